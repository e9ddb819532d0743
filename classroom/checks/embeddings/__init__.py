"""Lessons 04 to 07: word embeddings, cutting text into pieces, ELMo, transfer."""
