"""`python -m course_lib.bench`."""

import sys

from course_lib.bench import main
from course_lib.errors import CourseError

try:
    main()
except CourseError as error:
    sys.exit(f"Bench stopped: {error}")
