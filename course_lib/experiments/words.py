"""The claim of lesson 04: one vector a word mixes its senses."""
