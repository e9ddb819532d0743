"""The claims of lesson 17: architectures and objectives, many tasks at once, sizes."""
