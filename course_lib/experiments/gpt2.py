"""The claims of lesson 18: what a language model can do without training, and what its hints are worth."""
