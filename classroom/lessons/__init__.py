"""One folder a lesson; `classroom/course.py` says what stands in it and finds it."""
