"""Longer runs whose figures are recorded in data/results."""
