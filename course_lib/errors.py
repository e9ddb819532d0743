"""The one exception a user of the course should ever have to read."""


class CourseError(ValueError):
    """Bad input, said in one sentence: what was wrong, where, and what to do about it."""
