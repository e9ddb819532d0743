"""The claims of lesson 15: ways to make one vector of a sentence, and search by vectors."""
