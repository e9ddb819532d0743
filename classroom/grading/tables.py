"""Tables as spreadsheets and learning platforms write and read them."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.files import atomic_write

FORMULA = ("=", "+", "-", "@")
Row = dict[str, str]


def read(path: Path) -> tuple[list[str], list[Row]]:
    """The columns and rows of a table, however a spreadsheet has saved it: commas, semicolons or tabs; UTF-8, UTF-16 or
    Windows' own encoding. A cell that is not there is not in its row."""
    text = _decoded(path.read_bytes())
    first = text.partition("\n")[0]
    try:
        reader = csv.DictReader(io.StringIO(text), delimiter=max(",;\t", key=first.count))
        rows = [{str(name): cell for name, cell in row.items() if isinstance(cell, str)} for row in reader]
    except csv.Error as error:
        raise CourseError(f"{path.name} cannot be read as a table: {error}.") from None
    return list(reader.fieldnames or []), rows


def write(path: Path, columns: list[str], rows: Iterable[list[str]], *, mark: bool = True) -> None:
    """A table that spreadsheets open rightly: no cell looks like a formula to them. mark: with a byte-order mark, which
    Canvas does not take off."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([[harmless(cell) for cell in row] for row in [columns, *rows]])
    with atomic_write(path) as file:
        file.write("\ufeff" * mark + text.getvalue())


def harmless(cell: str) -> str:
    """A cell on one line that no spreadsheet takes for a formula."""
    cell = " ".join(cell.split())
    return "'" + cell if cell.startswith(FORMULA) else cell


def unguarded(cell: str) -> str:
    """What `harmless` was given."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def _decoded(raw: bytes) -> str:
    for encoding in ("utf-16",) if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else ("utf-8-sig", "cp1252"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return raw.decode("cp1252", "replace")
