"""Lessons 01 to 03: attention, the Transformer's block and its translation, positions."""
