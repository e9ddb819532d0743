"""The course's one exception and one warning, written for its users."""

import re

# Control characters, line breaks and halves of surrogate pairs, which no terminal can print.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class CourseError(ValueError):
    """Bad input. The message says what is wrong, where, and what to do about it.

    It quotes files of others. A character of theirs that cannot be printed, such as a line break in
    a column's name, is written as its escape, so each message is one line.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(UNPRINTABLE.sub(_escape, str(message)))


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


class CourseWarning(UserWarning):
    """Input that is used only in part. The message says what was left out or may differ."""
