"""Tables as spreadsheets and learning platforms write and read them."""

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.files import atomic_write

# A sign that begins a formula, where a cell begins: at the front, or behind a sign at which some
# spreadsheets cut (a German one at semicolons, whatever stands around them).
FORMULA = re.compile(r"(^|[;|\t])( *)('*)(?=[=+\-@＝＋－＠])")
GUARDED = re.compile(r"(^|[;|\t])( *)'('*)(?=[=+\-@＝＋－＠])")


def read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Columns and rows of a table, as a spreadsheet may have saved it.

    With commas, semicolons or tabs, in UTF-8, UTF-16 or Windows' own encoding. A row has only the
    cells that are there.
    """
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", "replace")
    head = text.partition("\n")[0]
    delimiter = max(",;\t", key=head.count)
    try:
        # strict: a quotation mark that is never closed would take in all rows behind it
        reader = csv.DictReader(io.StringIO(text), delimiter=delimiter, strict=True)
        rows = [_strings(row) for row in reader]
    except csv.Error as error:
        raise CourseError(f"{path.name} cannot be read as a table: {error}.") from None
    return list(reader.fieldnames or []), rows


def write(path: Path, columns: list[str], rows: Iterable[list[str]], *, mark: bool = True) -> None:
    """Write a table that spreadsheets open rightly: no cell looks like a formula to them.

    Args:
        path: of the file.
        columns: their names.
        rows: of cells.
        mark: begin with a byte-order mark, which spreadsheets need and Canvas does not take off.
    """
    with atomic_write(path) as file:
        if mark:
            file.write("\ufeff")
        table = csv.writer(file, lineterminator="\n")
        for row in [columns, *rows]:
            table.writerow(map(harmless, row))


def _strings(row: dict[str | Any, str | Any]) -> dict[str, str]:
    """A row without the cells that are missing, and those beyond the columns."""
    return {str(name): cell for name, cell in row.items() if isinstance(cell, str)}


def harmless(cell: str) -> str:
    """A cell on one line of which no spreadsheet takes a part for a formula."""
    return FORMULA.sub(r"\1\2'\3", " ".join(cell.split()))


def unguarded(cell: str) -> str:
    """What `harmless` was given."""
    return GUARDED.sub(r"\1\2\3", cell)
