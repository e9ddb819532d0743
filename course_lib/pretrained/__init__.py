"""Weights and tokenizers that exist already: the shipped checkpoints, public folders, the hub."""
