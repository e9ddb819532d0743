"""Real English: what shipped models know of it, and public tasks. The texts themselves are not part
of the course.
"""
