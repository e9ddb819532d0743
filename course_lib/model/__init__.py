"""The forward path: one Transformer core, and a configuration for each model.

Read `transformer.py` first.
"""
