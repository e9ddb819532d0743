"""What a user of the course reads when something is wrong."""


class CourseError(ValueError):
    """Bad input, said in one sentence: what was wrong, where, and what to do about it."""


class CourseWarning(UserWarning):
    """What was done with input that is not whole, said in one sentence."""
