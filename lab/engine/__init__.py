"""How a claim is run: arms, fine-tunings, seeds, a record."""
