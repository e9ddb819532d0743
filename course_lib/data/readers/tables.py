"""Tables with tabs or commas: GLUE's tasks, similarity scores, translations, or anything whose columns are named."""

import csv
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from course_lib.data import shapes
from course_lib.data.readers.base import Columns, Placed, read_raw, unpacked, wrong
from course_lib.errors import CourseError

LOOK = 1000  # lines that are looked at to tell the columns of a table without a header
STS = range(6)  # SemEval's scores run from 0 to 5
Line = tuple[int, list[str]]


def read_table(path: Path, columns: Columns | None = None) -> Iterator[Placed]:
    """Rows of the shape that the header's names make (`course_lib.data.shapes`), or that `columns` says.

    Without a header: a text and its label (either order), two texts (a translation), two texts and a label or score,
    CoLA's four columns, SemEval's score and two texts, the STS benchmark's seven or nine. Similarity pairs without a
    score, which SemEval 2016 left unjudged, are left out.

    Args:
        path: .csv is comma-separated, unless its first line has tabs only; anything else is tab-separated, and there
            quotes are ordinary characters, as in GLUE.
        columns: which columns to take, by the header's names or by number from 0, e.g. {"text": 3, "label": 1}.

    Raises:
        CourseError: the columns cannot be told, a named one is missing, a line has too few, a text is empty, a score
            is outside 0 to 5.
    """
    lines = _cells(path)
    start = list(islice(lines, LOOK))
    first = start[0][1]
    named = columns is not None and any(isinstance(column, str) for column in columns.values())
    header = named or (columns is None and shapes.is_header(_header(first)))
    where, layout = _columns(path, columns, start, header)
    least = max(where.values()) + 1
    any_rows = False
    for number, cells in chain(start[header:], lines):
        place = f"line {number}"
        if len(cells) < least:
            raise wrong(path, place, f"expected {max(len(first), least)} columns but found {len(cells)}.")
        row = {ours: cells[i].strip() for ours, i in where.items()}
        if layout == "scores" and not row["label"]:
            continue
        for ours in ("text", "pair", "target"):
            if not row.get(ours, "-"):
                raise wrong(path, place, f"the {ours} is empty.")
        any_rows = True
        yield place, {**row, "label": _score(row["label"], layout, path, place)} if "label" in row else row
    if not any_rows:
        raise CourseError(f"{path} has a header but no rows." if header else f"{path} has no row with a score.")


def read_table_texts(path: Path, columns: Columns | None = None) -> Iterator[Placed]:
    """Rows `text` for a corpus: the column `columns["text"]`, or one of the usual names in the header."""
    lines = _cells(path)
    _, first = next(lines)
    names = _header(first)
    name = (columns or {}).get("text", shapes.text_of(names))
    column = name if isinstance(name, int) else names.index(name) if name in names else -1
    if not 0 <= column < len(names):
        asked = "no text column" if name is None else f"no column {name!r}"
        raise CourseError(f"{path} has {asked}; its columns are {', '.join(names)}; say which by column=.")
    for number, cells in chain([] if isinstance(name, str) else [(1, first)], lines):
        if len(cells) <= column:
            raise wrong(path, f"line {number}", f"expected {len(first)} columns but found {len(cells)}.")
        if cells[column].strip():
            yield f"line {number}", {"text": cells[column].strip()}


def is_number(text: str) -> bool:
    """Whether a label is a number, such as 1 or 3.25."""
    try:
        return float(text) == float(text)
    except ValueError:
        return False


def _cells(path: Path) -> Iterator[Line]:
    """(line number, cells) of each line that is not blank."""
    raw = read_raw(path)
    first = next(raw, "")
    commas = unpacked(path).suffix == ".csv" and not ("\t" in first and first.count("\t") > first.count(","))
    lines = chain([first], raw)
    reader = csv.reader(lines, strict=True) if commas else csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    empty = True
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                empty = False
                yield reader.line_num, cells
    except csv.Error as error:
        raise wrong(path, f"line {reader.line_num}", f"not a readable table ({error}).") from None
    if empty:
        raise CourseError(f"{path} is empty.")


def _header(cells: Sequence[str]) -> list[str]:
    return [cell.strip() for cell in cells]


def _columns(path: Path, columns: Columns | None, start: list[Line], header: bool) -> tuple[dict[str, int], str]:
    """Where each of our columns stands, and the layout: "scores" where the label is a similarity from 0 to 5."""
    names = _header(start[0][1])
    if columns is None and not header:
        return _guess(path, [cells for _, cells in start])
    if columns is None:
        shape, found = shapes.find(names) or ("", {})
        if not shape:
            raise CourseError(
                f"{path} has the columns {', '.join(names)}, among which there is no label (test sets are published "
                "without) or it is not known; say by columns= which to take."
            )
        if shape not in ("pair", "single", "seq2seq") or not all(isinstance(name, str) for name in found.values()):
            raise CourseError(f"{path}: a table cannot hold the lists of a {shape} task; write it as JSON lines.")
        where = {ours: names.index(str(theirs)) for ours, theirs in found.items()}
        return where, "header scores" if found.get("label") in shapes.SCORES else ""
    where = {}
    for ours, theirs in columns.items():
        if isinstance(theirs, str) and theirs not in names:
            raise CourseError(f"{path} has no column {theirs!r}; its columns are {', '.join(names)}.")
        where[ours] = names.index(theirs) if isinstance(theirs, str) else theirs
        if not 0 <= where[ours] < len(names):
            raise CourseError(f"{path} has no column {theirs}; it has {len(names)}, counted from 0.")
    if "text" not in where or not {"label", "target"} & set(where):
        raise CourseError(
            f"columns must say where text and label stand, or text and target; it says only {', '.join(where)}."
        )
    return where, "header scores" if columns.get("label") in shapes.SCORES else ""


def _guess(path: Path, table: list[list[str]]) -> tuple[dict[str, int], str]:
    first = table[0]
    same = [cells for cells in table if len(cells) >= len(first)]
    if len(first) == 2:
        if all(sum(" " in cells[i].strip() for cells in same) > len(same) / 2 for i in range(2)):
            return {"text": 0, "target": 1}, ""  # labels are words, not sentences
        width = [sum(len(cells[i]) for cells in same) for i in range(2)]
        return ({"text": 0, "label": 1} if width[0] >= width[1] else {"text": 1, "label": 0}), ""
    if len(first) == 3:
        scores = [cells[0].strip() for cells in same]
        if any(scores) and all(is_number(score) for score in scores if score):
            return {"label": 0, "text": 1, "pair": 2}, "scores"  # SemEval's similarity files put the score first
        return {"text": 0, "pair": 1, "label": 2}, ""
    if len(first) == 4 and all(cells[1] in ("0", "1") for cells in same):
        return {"text": 3, "label": 1}, ""  # CoLA
    if len(first) in (7, 9) and all(is_number(cells[4]) for cells in same):
        return {"text": 5, "pair": 6, "label": 4}, "scores"  # the STS benchmark; two columns more are its sources
    raise CourseError(
        f"The columns of {path} are not known (its first line has {len(first)}: {' | '.join(c[:20] for c in first)}); "
        'say which to take, e.g. columns={"text": 3, "label": 1}.'
    )


def _score(text: str, layout: str, path: Path, place: str) -> str | float:
    """The label: a number where the layout says that it is one."""
    if not text:
        raise wrong(path, place, "the label is empty.")
    if not layout:
        return text
    if not is_number(text):
        raise wrong(path, place, f"the score {text[:20]!r} is no number.")
    if layout == "scores" and not STS[0] <= float(text) <= STS[-1]:
        raise wrong(path, place, f"the score {text} is outside {STS[0]} to {STS[-1]}.")
    return float(text)
