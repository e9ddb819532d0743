"""From batches to a trained model: the loop, its optimizer and files, and what uses the loop."""
