"""What a user of the course reads when something is wrong."""


class CourseError(ValueError):
    """Bad input, said in one sentence: what was wrong, where, and what to do about it."""


class CourseWarning(UserWarning):
    """A sentence on input that has gaps: what was left out."""
