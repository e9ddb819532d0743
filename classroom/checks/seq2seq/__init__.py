"""Lessons 16 and 17: BART and T5."""
