"""Commands that keep the repository true to itself: the lock, the notebooks, the README's table."""
