"""Lessons 08 and 18 to 21: GPT-1 to GPT-3, adapters, which model to choose."""
