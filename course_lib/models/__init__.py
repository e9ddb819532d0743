"""One file or folder a family: how it differs from the 2017 Transformer, presets, rules for its public weights."""
