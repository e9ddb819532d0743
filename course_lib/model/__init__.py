"""The models: one Transformer, and a configuration for each published model.

Read `transformer.py` first.
"""
