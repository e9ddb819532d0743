"""The claim of lesson 21: three architectures of equal training cost on one suite."""
