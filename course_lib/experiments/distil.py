"""The claim of lesson 13: half the layers, taught by all of them."""
