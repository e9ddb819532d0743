"""One file a family: a card saying how it differs from the 2017 Transformer, presets, and its rules for public weights."""
