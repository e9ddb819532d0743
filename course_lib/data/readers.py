"""Readers of files: a file -> (place in it, record by the file's own names) for each record.

What is wrong in a file is one sentence that says in which line. A record of None is a line that a
published format leaves out."""

import bz2
import csv
import gzip
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from itertools import chain, groupby, islice, pairwise, zip_longest
from pathlib import Path
from typing import IO, Any

from course_lib.data import formats
from course_lib.data.columns import SEPARATORS, Mapped, Placed, is_number, unknown
from course_lib.errors import CourseError

Reader = Callable[
    [Path, Mapped | None], Iterator[Placed]
]  # path, what the user says of its columns

PACKED: dict[str, Callable[..., IO[bytes]]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}  # type: ignore[dict-item]
# characters; a longer text becomes several documents, so that no file has to fit into memory
PIECE = 4_000_000
# WikiText: one "=" is an article's title, more are its sections
ARTICLE = re.compile(r"^ ?= [^=](.*[^=])? = ?$")
START, END = re.compile(r"^\*\*\* ?START OF"), re.compile(r"^\*\*\* ?END OF")
LOOK = 1000  # lines that are looked at before the first record is given
csv.field_size_limit(2**31 - 1)  # the library's own is 131,072 characters
LANGUAGE = re.compile(r"[a-z]{2,3}(_[A-Z]{2})?")


def wrong(path: Path, place: str, message: str) -> CourseError:
    """The sentence for something wrong inside a file."""
    return CourseError(f"{path}, {place}: {message}")


def unpacked(path: Path) -> Path:
    """The name without .gz and the like: "train.en.gz" is a "train.en"."""
    return path.with_suffix("") if path.suffix.lower() in PACKED else path


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, line without its end) of a UTF-8 file, unpacked on the way; never the whole
    file at once.
    """
    number = 0
    empty = True
    try:
        with PACKED.get(path.suffix.lower(), open)(path, "rb") as file:
            for number, raw in enumerate(file, start=1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                empty = empty and not line.strip()
                for part in line.split("\r"):  # the line end of old Macs
                    yield number, part
    except UnicodeDecodeError as error:
        byte = f"its byte {error.start} is 0x{error.object[error.start]:02x}"
        raise wrong(
            path, f"line {number}", f"not UTF-8 text ({byte}); convert the file to UTF-8."
        ) from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise CourseError(f"{path} cannot be read, or is damaged or cut short ({error}).") from None
    if empty:
        raise CourseError(f"{path} is empty.")


def read_text(path: Path, wanted: Mapped | None = None) -> Iterator[Placed]:
    """`text`: WikiText's articles if the file has their headings, else the whole file is one
    document, without the licence around a Project Gutenberg book; more than `PIECE` is cut at blank
    lines."""
    body: list[str] = []
    begun = 1  # the line at which the document begins
    size = 0
    for (number, line), (_, following) in pairwise(chain(read_lines(path), [(0, "")])):
        if START.match(line):
            body = []
            size = 0
            continue
        if END.match(line):
            break
        # WikiText sets a title between two blank lines; a formula between text lines is none.
        title = ARTICLE.match(line) and not following.strip() and not (body and body[-1].strip())
        if title or (size > PIECE and not line.strip()):
            yield f"line {begun}", {"text": "\n".join(body).strip()}
            body = []
            begun = number
            size = 0
        body.append(line)
        size += len(line) + 1
    yield f"line {begun}", {"text": "\n".join(body).strip()}


def read_story(path: Path, wanted: Mapped | None = None) -> Iterator[Placed]:
    """One record `text, target`: an article of the CNN / Daily Mail stories and its highlights, a
    sentence a line.
    """
    lines = [line.strip() for _, line in read_lines(path) if line.strip()]
    article, *highlights = [part.strip() for part in "\n".join(lines).split("@highlight")]
    if not article or not highlights or not all(highlights):
        raise CourseError(
            f"{path} is no story: an article, then lines @highlight, each with a sentence after it."
        )
    yield "line 1", {"text": article, "target": "\n".join(highlights)}


def read_parallel(path: Path, wanted: Mapped | None = None) -> Iterator[Placed]:
    """A column a language; of three or more, `wanted` says which two. path: "train" for
    train.en.gz and train.de.
    """
    files = languages(path)
    asked = set(wanted.columns.values()) if wanted else set()
    if asked and asked <= files.keys():
        files = {language: file for language, file in files.items() if language in asked}
    for lines in zip_longest(*(read_lines(file) for file in files.values())):
        number = next(line[0] for line in lines if line)
        said = {
            language: line[1].strip() if line else None
            for language, line in zip(files, lines, strict=True)
        }
        if any(said.values()):
            if not all(said.values()):
                short = next(files[language] for language, text in said.items() if not text)
                raise wrong(
                    short, f"line {number}", "it has nothing here, but its translation goes on."
                )
            yield f"line {number}", said


def languages(path: Path) -> dict[str, Path]:
    """Language -> file, for the files that are named `path` with a language (and perhaps .gz) at
    the end.
    """
    beside = {file: unpacked(file) for file in sorted(path.parent.glob("*")) if file.is_file()}
    return {
        name.suffix[1:]: file
        for file, name in beside.items()
        if name.with_suffix("") == path and LANGUAGE.fullmatch(name.suffix[1:])
    }


def read_conll(path: Path, wanted: Mapped | None = None) -> Iterator[Placed]:
    """A sentence a record: `tokens` are the first column, `labels` the last, those between have
    numbers for names. Columns stand between tabs, or between blanks where there are no tabs.
    """
    width = 0
    for lines in _sentences(path, skip="-DOCSTART-"):
        rows = [(number, _words(line)) for number, line in lines]
        # Comments ("# id 7") stand before their sentence.
        words = [cells for _, cells in rows if not cells[0].startswith("#")] or [rows[-1][1]]
        width = width or len(words[0])
        while rows and _is_comment(rows[0][1], width):
            rows.pop(0)
        for number, cells in rows:
            if len(cells) < 2 or len(cells) != width:
                says = f"expected {max(width, 2)} columns but found {len(cells)}."
                raise wrong(path, f"line {number}", says)
        names = ["tokens", *map(str, range(1, width - 1)), "labels"]
        if rows:
            columns = zip(*(cells for _, cells in rows), strict=True)
            yield f"line {rows[0][0]}", dict(zip(names, map(list, columns), strict=True))


def _is_comment(cells: list[str], width: int) -> bool:
    """ "# id 7" has another number of columns than the words; "#tag O" and "# O" are words."""
    return cells[0].startswith("# ") or (cells[0] == "#" and len(cells) != width)


def _words(line: str) -> list[str]:
    if "\t" in line:
        return [cell.strip() for cell in line.split("\t")]
    return re.split(" +", line.strip(" "))


def read_conllu(path: Path, wanted: Mapped | None = None) -> Iterator[Placed]:
    """Universal Dependencies: `text, tokens, labels, upos, heads, deprels` of each sentence's words
    ("didn't" is two, empty nodes are none); the labels are the upos. heads: counted from 1, 0 for
    the root, -1 where none is told."""
    for lines in _sentences(path):
        text = next(
            (line.partition("=")[2].strip() for _, line in lines if re.match(r"# *text =", line)),
            "",
        )
        words = []
        for number, line in lines:
            cells = line.split("\t")
            if not line.startswith("#"):
                if len(cells) != 10:
                    raise wrong(
                        path,
                        f"line {number}",
                        f"expected 10 fields with tabs between, found {len(cells)}.",
                    )
                if cells[0].isdigit():  # 3-4 is a contraction of two words, 3.1 an empty node
                    words.append(cells)
        heads = [int(cells[6]) if cells[6].isdigit() else -1 for cells in words]
        if any(head > len(words) for head in heads):
            raise wrong(
                path, f"line {lines[0][0]}", f"the head {max(heads)} is no word of its sentence."
            )
        if words:
            tokens, upos, deprels = ([cells[i] for cells in words] for i in (1, 3, 7))
            tree = {"upos": upos, "heads": heads, "deprels": deprels}
            yield (
                f"line {lines[0][0]}",
                {"text": text or " ".join(tokens), "tokens": tokens, "labels": upos} | tree,
            )


def _sentences(path: Path, skip: str = "\n") -> Iterator[list[tuple[int, str]]]:
    """The numbered lines of each sentence; blank lines stand between, and lines beginning with
    `skip` do not count.
    """
    for blank, lines in groupby(read_lines(path), key=lambda line: not line[1].strip()):
        kept = [line for line in lines if not line[1].startswith(skip)]
        if kept and not blank:
            yield kept


def read_records(path: Path, wanted: Mapped | None = None) -> Iterator[Placed]:
    """JSON lines, read one by one; a .json file may also hold a list of records, or SQuAD's
    {"data": ...}.
    """
    if unpacked(path).suffix == ".json" and not _is_lines(path):
        whole = _parse("\n".join(line for _, line in read_lines(path)), path, 0)
        if isinstance(whole, dict):
            whole = whole.get("data", whole)
        whole = whole if isinstance(whole, list) else [whole]
        records = ((f"record {number}", record) for number, record in enumerate(whole))
    else:
        lines = ((number, line) for number, line in read_lines(path) if line.strip())
        records = ((f"line {number}", _parse(line, path, number)) for number, line in lines)
    for place, record in records:
        if not isinstance(record, dict):
            raise wrong(
                path, place, f"expected a JSON object {{...}} but found {type(record).__name__}."
            )
        yield from _questions(path, place, record) if "paragraphs" in record else [(place, record)]


def _questions(path: Path, place: str, article: dict[str, Any]) -> Iterator[Placed]:
    """A record for each question of SQuAD; version 2 has unanswerable ones (Rajpurkar et al. 2016,
    2018).
    """
    try:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answers = question.get("answers", [])
                if not answers and not question.get("is_impossible"):
                    raise wrong(
                        path,
                        f"question {question['id']}",
                        "it has no answer and is not marked impossible.",
                    )
                about = {"id": question["id"], "title": article.get("title", "")}
                asked = {
                    "question": question["question"],
                    "context": paragraph["context"],
                    "answers": answers,
                }
                yield f"question {question['id']}", about | asked
    except (KeyError, TypeError, AttributeError) as error:
        raise wrong(path, place, f"it is not in SQuAD's form ({error}).") from None


def _is_lines(path: Path) -> bool:
    """Whether the first line is a JSON object by itself, and so a record a line follow."""
    first = next((line for _, line in read_lines(path) if line.strip()), "")
    try:
        record = json.loads(first)
    except ValueError:
        return False
    return isinstance(record, dict) and not isinstance(record.get("data"), list)


def _parse(text: str, path: Path, line: int) -> Any:
    try:
        record = json.loads(text)
        if "\\u" in text:
            json.dumps(record, ensure_ascii=False).encode()
        return record
    except UnicodeEncodeError as error:
        half = f"half a character, \\u{ord(error.object[error.start]):04x}"
        raise wrong(path, f"line {line or 1}", f"not Unicode text ({half}); correct it.") from None
    except json.JSONDecodeError as error:
        place = f"line {line or error.lineno}, column {error.colno}"
        raise wrong(
            path, place, f"not valid JSON ({error.msg}); correct it or fetch the file again."
        ) from None


def read_table(path: Path, wanted: Mapped | None = None) -> Iterator[Placed]:
    """A line a record, by the names of its columns.

    The names are those of the header; those of the published format, if the file's name is one; or
    numbers from 0, if the user says that there is no header.

    Raises:
        CourseError: nothing of this is known, or a line has more or fewer cells than columns.
    """
    known = None if wanted and wanted.columns else formats.of_file(unpacked(path))
    separator = (wanted and wanted.separator) or (known and known.separator)
    lines = _cells(path, separator or _separator(path))
    start = list(islice(lines, LOOK))
    if not start:
        raise CourseError(f"{path} is empty.")
    header = None
    if known:
        names = list(known.lines)
    elif _has_header(path, start, wanted):
        header = names = start.pop(0)[1]
        known = formats.of_columns(dict.fromkeys(names), labelled=False)
    else:
        names = [str(i) for i in range(len(start[0][1]))]
    again = [name for name in names if name and names.count(name) > 1]
    if again:
        raise wrong(path, "line 1", f"two columns are called {again[0]}; rename one.")
    for number, cells in chain(start, lines):
        if cells == header and len(cells) > 1:
            raise wrong(path, f"line {number}", "it repeats the header; remove it.")
        try:
            fitted = cells if len(cells) == len(names) else _repaired(cells, names, known)
        except ValueError:
            says = f"expected {len(names)} columns but found {len(cells)}."
            raise wrong(path, f"line {number}", says) from None
        yield f"line {number}", None if fitted is None else dict(zip(names, fitted, strict=True))


def is_table(path: Path) -> bool:
    """Whether a text file is a table: its first line that is not blank has a tab."""
    return "\t" in next((line for _, line in read_lines(path) if line.strip()), "")


def is_conll(path: Path) -> bool:
    """Whether a text file holds tags, as train.txt of CoNLL 2003 does."""
    first = next((line for _, line in read_lines(path) if line.strip()), "")
    return first.startswith("-DOCSTART-")


def _has_header(path: Path, start: list[tuple[int, list[str]]], wanted: Mapped | None) -> bool:
    """Whether the first line names the columns, as the user says or a published format."""
    first, *others = [cells for _, cells in start]
    if wanted is not None and wanted.header is not None:
        return wanted.header
    if wanted is not None and wanted.columns:
        numbers = [column for column in wanted.columns.values() if isinstance(column, int)]
        label = wanted.columns.get("label")
        if isinstance(label, int) and _is_alone(first, others, label):
            raise CourseError(
                f"{path}: no other line has the label {first[label]!r} of the first line; add"
                " header=yes to the columns if it is a header, header=no if it is a row."
            )
        return not numbers
    if formats.of_columns(dict.fromkeys(first), labelled=False) is None:
        raise CourseError(f"{path}: {unknown(first, [first, *others[:2]], False)}")
    return True


def _is_alone(first: list[str], others: list[list[str]], column: int) -> bool:
    """Whether the first line's label is a word that none of the others has, few as these are."""
    if column >= len(first) or is_number(first[column]):
        return False
    labels = [cells[column] for cells in others if column < len(cells)]
    return bool(labels) and first[column] not in labels and 2 * len(set(labels)) <= len(labels)


def _repaired(cells: list[str], names: list[str], known: formats.Format | None) -> list[str] | None:
    """A cell a column, where a published format or a spreadsheet has others; None: left out.

    Raises:
        ValueError: the line is broken.
    """
    if known and known.repair:
        return known.repair(cells, names)
    if len(cells) > len(names) and not any(cells[len(names) :]):
        return cells[: len(names)]  # a spreadsheet ends its lines with empty cells
    raise ValueError


def _separator(path: Path) -> str:
    """Tabs; but in .csv what its first line has: commas, semicolons or tabs."""
    if unpacked(path).suffix.lower() != ".csv":
        return "\t"
    first = next((line for _, line in read_lines(path)), "")
    if first.lower().startswith("sep=") and len(first) == 5:  # Excel says it itself
        return first[-1]
    outside = re.sub('"[^"]*"', "", first)  # what is not between quotes
    found = [name for name, sign in SEPARATORS.items() if sign in outside]
    if len(found) > 1:
        raise CourseError(
            f"{path}: its first line {first[:60]!r} may be cut at each {' or '.join(found)}; say by"
            f" --columns separator={found[-1]}, or another, what stands between the cells."
        )
    return SEPARATORS[found[0]] if found else ","


def _cells(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of lines that are not blank. Between tabs quotes are ordinary
    characters, as in GLUE.
    """
    lines = (f"{line}\n" for _, line in read_lines(path))
    if separator == "\t":
        reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(lines, delimiter=separator, strict=True)
    try:
        for cells in reader:
            is_note = reader.line_num == 1 and cells[:1] == ["sep="]
            if any(cell.strip() for cell in cells) and not is_note:
                yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise wrong(path, f"line {reader.line_num}", f"not a readable table ({error}).") from None
