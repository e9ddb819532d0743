"""The course's one exception and one warning, written for its users."""


class CourseError(ValueError):
    """Bad input. The message says what is wrong, where, and what to do about it."""


class CourseWarning(UserWarning):
    """Input that is used only in part. The message says what was left out or may differ."""
