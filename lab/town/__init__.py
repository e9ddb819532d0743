"""The town's tasks, measured: what pretraining, labels and asking bring on each."""
