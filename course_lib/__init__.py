"""Pretrained language models, written to be read: one transformer core that says every model by
configuration.

Read `model/transformer.py` first. Importing this package imports torch and nothing heavier; data,
plotting and transformers are imported by the functions that use them."""

from course_lib.errors import CourseError as CourseError

__version__ = "0.1.0"
