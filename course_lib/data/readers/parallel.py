"""Parallel text: one file a language, whose lines say the same, such as train.en and train.de."""

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from course_lib.data import shapes
from course_lib.data.readers.base import Columns, Placed, read_lines, unpacked, wrong
from course_lib.errors import CourseError

LANGUAGE = re.compile(r"[a-z]{2,3}(_[A-Z]{2})?")


def read_parallel(path: Path, columns: Columns | None = None) -> Iterator[Placed]:
    """Rows `text, target` of two files that differ in their endings only.

    Args:
        path: without the language, "data/train" for data/train.en.gz and data/train.de.gz.
        columns: from which language to which, {"text": "en", "target": "de"}; without it from English, if the files are
            of two languages and one is English.

    Raises:
        CourseError: a language is missing, there are several, one file has more lines, a line is blank on one side.
    """
    a, b = _direction(path, languages(path), columns or {})
    for left, right in zip_longest(read_lines(a), read_lines(b)):
        if left is None or right is None:
            short, number = (a, right[0]) if left is None else (b, left[0])
            raise wrong(short, f"line {number}", f"it ends here, but {(b if short == a else a).name} goes on.")
        (number, text), (_, target) = left, right
        if bool(text.strip()) != bool(target.strip()):
            raise wrong(a if target.strip() else b, f"line {number}", "it is blank, and its translation is not.")
        if text.strip():
            yield f"line {number}", {"text": text.strip(), "target": target.strip()}


def _direction(path: Path, files: dict[str, Path], columns: Columns) -> tuple[Path, Path]:
    """The files to translate from and into."""
    there = f"{path} is there in {', '.join(files) or 'no language'}"
    how = 'say from which to which by columns={"text": "en", "target": "de"}.'
    first, second = columns.get("text"), columns.get("target")
    if len(files) == 2 and (first is None or second is None):
        source, target = shapes.direction(files)
        if first == target or second == source:
            source, target = target, source
        first, second = first or source, second or target
    if first is None or second is None:
        raise CourseError(f"{there}; {how}")
    if odd := [language for language in (first, second) if language not in files]:
        raise CourseError(f"{there}, not in {odd[0]!r}; {how}")
    return files[str(first)], files[str(second)]


def languages(path: Path) -> dict[str, Path]:
    """Language -> file, for the files that are named `path` with a language (and perhaps .gz) at the end."""
    beside = sorted(path.parent.glob("*")) if path.parent.is_dir() else []
    named = {file: unpacked(file) for file in beside if file.is_file()}
    return {
        name.suffix[1:]: file
        for file, name in named.items()
        if name.with_suffix("") == path and LANGUAGE.fullmatch(name.suffix[1:])
    }
