"""From batches to a trained model: the loop, its optimizer and files, and the three things it is
used for.
"""
