"""The measurements behind the lessons: every claim, the recipes of the shipped checkpoints, the
bench.
"""
