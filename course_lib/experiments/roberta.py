"""The claims of lesson 12: masks, rows, how much is read, whole words, and three relatives of BERT."""
