"""The claims of lesson 19: learning from the prompt, sums, laws of scale, wordings."""
