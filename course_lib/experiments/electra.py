"""The claim of lesson 14: learning from all tokens, at equal operations."""
