"""One file a family: how it differs from the 2017 Transformer, presets, and the rules for its public weights."""
