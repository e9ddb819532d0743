"""Read tables: cells with commas (.csv) or tabs (.tsv) between them.

    text,label
    "good, really",5      ->   ("line 2", {"text": "good, really", "label": "5"})

The reader turns a file into pairs (location, record); the location is for messages. Most of this
file decides three questions that a table does not answer by itself: which character separates the
cells, whether quotes enclose them, and whether the first line is a header.
"""

import csv
import re
from collections.abc import Iterator
from itertools import chain, islice, pairwise
from pathlib import Path

from course_lib.data import formats
from course_lib.data.columns import (
    OURS,
    SEPARATORS,
    ColumnMap,
    Located,
    are_sentence_numbers,
    is_number,
    unknown_columns,
)
from course_lib.data.lines import read_lines, unpacked, wrong
from course_lib.errors import CourseError

# Why not `datasets.load_dataset("csv" | "json")`? It reads Parquet files and the hub for this
# course. We tried it (datasets 5.2) on files as students bring them:
# - a TSV whose rows are all longer than the header loses its first column without a word;
# - one unbalanced quote in a TSV (GLUE has them) makes one cell of all rows up to the next quote;
# - the texts "NA", "null" and "None" become missing values, "007" the number 7, a date in JSON a
#   datetime;
# - a short row is filled with missing values, and a repeated header is read as a row;
# - text that is not UTF-8 and broken JSON are errors, but without the number of the line.
# Its settings solve the quotes and "NA". Types can be set only for columns known beforehand.
LOOKAHEAD = 1000  # lines that are read first, to find out about header and quotes
csv.field_size_limit(2**31 - 1)  # Python's default, 131,072 characters, is less than some articles


def read_table(path: Path, user_map: ColumnMap | None = None) -> Iterator[Located]:
    """Read a table of comma- or tab-separated values: each line is a record.

    The column names are those of the header. A published file without a header gets the names of
    its format: CoLA's columns become source, label, mark, sentence. If the user says that there is
    no header, the columns are called "0", "1", and so on.

    Args:
        path: the file.
        user_map: what the user says about the columns; None if nothing.

    Raises:
        CourseError: the columns are not known, or a line has more or fewer cells than columns.
    """
    user_map = user_map or ColumnMap()
    # A published file without a header: its name tells the format. What the user says goes first.
    known = None if user_map.columns else formats.of_file(unpacked(path))
    published_separator = None if known is None else known.separator
    separator = user_map.separator or published_separator or _separator(path)
    has_quotes = user_map.quotes
    if has_quotes is None:
        has_quotes = separator != "\t" or (known is None and _is_quoted(path))
    lines = _cells(path, separator, has_quotes)
    start = list(islice(lines, LOOKAHEAD))
    if not start:
        raise CourseError(f"{path} is empty.")

    # The names of the columns
    header = None
    if known:
        names = list(known.column_names)
    elif _has_header(path, start, separator, user_map):
        names = start.pop(0)[1]
        header = [name.casefold() for name in names]
        known = formats.of_columns(dict.fromkeys(names), labelled=False)
    else:
        names = [str(i) for i in range(len(start[0][1]))]
    repeated = [name for name in names if name and names.count(name) > 1]
    if repeated:
        raise wrong(path, "line 1", f"two columns are called {repeated[0]}; rename one.")

    for number, cells in chain(start, lines):
        if len(cells) > 1 and [cell.casefold() for cell in cells] == header:
            raise wrong(path, f"line {number}", "it repeats the header; remove it.")
        fitted: list[str] | None = cells
        if len(cells) != len(names):
            try:
                fitted = _repaired(cells, names, known)
            except ValueError:
                advice = _advice(cells, names, has_quotes)
                message = f"expected {len(names)} columns but found {len(cells)}{advice}."
                raise wrong(path, f"line {number}", message) from None
        record = None if fitted is None else dict(zip(names, fitted, strict=True))
        yield f"line {number}", record


def is_table(path: Path) -> bool:
    """Whether a text file is a table: its first line that is not blank contains a tab."""
    return "\t" in next((line for _, line in read_lines(path) if line.strip()), "")


def _separator(path: Path) -> str:
    """The character between cells: a tab, or in a .csv file what its first line contains."""
    if unpacked(path).suffix.lower() != ".csv":
        return "\t"
    first = next((line for _, line in read_lines(path)), "")
    if first.lower().startswith("sep=") and len(first) == 5:  # a line that Excel writes: "sep=;"
        return first[-1]
    outside = re.sub('"[^"]*"', "", first)  # the line without its quoted cells
    names = [name for name, sign in SEPARATORS.items() if sign in outside]
    if len(names) > 1:
        raise CourseError(
            f"{path}: its first line {first[:60]!r} may be cut at each {' or '.join(names)}; say by"
            f" --columns separator={names[-1]}, or another, what stands between the cells."
        )
    return SEPARATORS[names[0]] if names else ","


def _is_quoted(path: Path) -> bool:
    """Whether quotes enclose cells in a table with tabs, as Excel and pandas write them.

    In GLUE's tables they do not: there a quote is a character like any other, and many have no
    second one.
    """
    start = list(islice(read_lines(path), LOOKAHEAD))
    if not any('"' in line for _, line in start):
        return False
    raw = [line.split("\t") for _, line in start if line.strip()]
    try:
        quoted = list(csv.reader((f"{line}\n" for _, line in start), delimiter="\t", strict=True))
    except csv.Error:
        # The last of many lines may lack the second half of a cell.
        return False
    quoted = [cells for cells in quoted if cells]
    if len({len(cells) for cells in quoted}) > 1:
        return False
    # Quotes enclose cells if one of three signs is there: without them the lines would have
    # different numbers of cells; all cells of the first line are in quotes; or a quote inside a
    # quoted cell is doubled.
    is_table = len({len(cells) for cells in raw}) == 1
    doubled = any(re.fullmatch('"([^"]|"")*""([^"]|"")*"', cell) for cells in raw for cell in cells)
    return not is_table or doubled or all(re.fullmatch('"[^"]+"', cell) for cell in raw[0])


def _cells(path: Path, separator: str, has_quotes: bool) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line that is not blank, with the line's number."""
    lines = (f"{line}\n" for _, line in read_lines(path))
    if has_quotes:
        reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
    else:
        reader = csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE)
    try:
        for cells in reader:
            is_note = reader.line_num == 1 and cells[:1] == ["sep="]  # see `_separator`
            if any(cell.strip() for cell in cells) and not is_note:
                yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise wrong(
            path,
            f"line {reader.line_num}",
            f"not a readable table ({error}); inside a cell in quotes a quote is written twice.",
        ) from None


def _has_header(
    path: Path, start: list[tuple[int, list[str]]], separator: str, user_map: ColumnMap
) -> bool:
    """Whether the first line is a header: the user says so, or it has a known format's names.

    Raises:
        CourseError: neither is the case, so it is not known which column is which.
    """
    first, *others = [cells for _, cells in start]
    if user_map.header is not None:
        return user_map.header
    if user_map.columns:
        numbers = [column for column in user_map.columns.values() if isinstance(column, int)]
        label = user_map.columns.get("label")
        if isinstance(label, int) and _looks_like_a_name(first, others, label):
            raise CourseError(
                f"{path}: no other line has the label {first[label]!r} of the first line; add"
                " header=yes to the columns if it is a header, header=no if it is a row."
            )
        return not numbers
    if formats.of_columns(dict.fromkeys(first), labelled=False) is not None:
        return True
    if user_map.is_corpus:
        raise CourseError(
            f"{path}: which column is the text is not known. It begins: {' | '.join(first)}."
            ' Name it by column="NAME", in a command --column NAME; a table without a header'
            " needs one."
        )
    if _are_tagged_words(start):
        tabs = "" if separator == "\t" else f", and write a tab for each {separator!r}"
        raise CourseError(
            f"{path}: its lines look like words with a tag each; if they are, end its name with"
            f" .conll{tabs}."
        )
    raise CourseError(f"{path}: {unknown_columns(first, [first, *others], False)}")


def _are_tagged_words(start: list[tuple[int, list[str]]]) -> bool:
    """Whether each line is a word with its tag: the tags or the blank lines show it.

    Args:
        start: (number, cells) of the first lines that are not blank.
    """
    if are_sentence_numbers([cells[0] for _, cells in start]):
        return False  # `unknown_columns` says what to do with such a table
    if all(_is_tagged(cells) for _, cells in start):
        return True
    # Blanks or tabs may separate the words from the tags.
    rows = [cells[0].split() if len(cells) == 1 else cells for _, cells in start]
    width = len(rows[0])
    for cells in rows:
        if len(cells) != width or any(len(cell.split()) != 1 for cell in cells):
            return False
    # Within a sentence the line numbers rise by 1, and at a blank line by 2 or more.
    steps = [after - before for (before, _), (after, _) in pairwise(start)]
    tags = {cells[-1] for cells in rows}
    return width > 1 and {1} < set(steps) and 2 * len(tags) <= len(rows)


def _is_tagged(cells: list[str]) -> bool:
    """Whether a line is a word and its tag, as in CoNLL 2003."""
    *_, tag = " ".join(cells).split() or [""]
    return re.fullmatch("O|[BIESLU]-[A-Za-z]+", tag) is not None


def _looks_like_a_name(first: list[str], others: list[list[str]], column: int) -> bool:
    """Whether the first line's label looks like the name of a column.

    It does if it is a usual name, such as "label"; if it is a word and all other labels are
    numbers; or if it never occurs again although the other labels occur again and again.
    """
    if column >= len(first) or is_number(first[column]):
        return False
    published = {str(name) for format in formats.FORMATS for name in format.columns.values()}
    if first[column].casefold() in published | {*OURS, "class", "sentiment", "category", "target"}:
        return True
    labels = [cells[column] for cells in others if column < len(cells)]
    if not labels or first[column] in labels:
        return False
    return all(map(is_number, labels)) or 2 * len(set(labels)) <= len(labels)


def _repaired(cells: list[str], names: list[str], known: formats.Format | None) -> list[str] | None:
    """Repair a line with more or fewer cells than columns, if we know how.

    Returns:
        As many cells as columns; None if such lines of a published format are skipped.

    Raises:
        ValueError: the line is broken.
    """
    if known and known.repair:
        return known.repair(cells, names)
    if len(cells) > len(names) and not any(cells[len(names) :]):
        return cells[: len(names)]  # a spreadsheet ends its lines with empty cells
    raise ValueError


def _advice(cells: list[str], names: list[str], has_quotes: bool) -> str:
    """The end of a message about a line with a wrong number of cells."""
    if not has_quotes and any(cell.startswith('"') for cell in cells):
        return "; if quotes hold cells together here, add quotes=yes to the columns"
    if has_quotes and len(cells) > len(names):
        return "; a cell with the separator inside stands in quotes"
    return ""
