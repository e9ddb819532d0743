"""Lessons 09 to 15: BERT and its relatives."""
