"""Readers of published files, one function a format: a file -> (place in it, record by the
published names) for each of its records. What is wrong in a file is one sentence that says in which
line."""

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

from course_lib.data.columns import TEXT, Columns, Placed, is_header, is_number
from course_lib.errors import CourseError

Reader = Callable[..., Iterator[Placed]]  # (path, columns)

PACKED: dict[str, Callable[..., IO[bytes]]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}  # type: ignore[dict-item]
# characters; a longer text becomes several documents, so that no file has to fit into memory
PIECE = 4_000_000
# WikiText: one "=" is an article's title, more are its sections
ARTICLE = re.compile(r"^ ?= [^=](.*[^=])? = ?$")
START, END = re.compile(r"^\*\*\* ?START OF"), re.compile(r"^\*\*\* ?END OF")
LOOK = 1000  # lines that are looked at to tell the columns of a table without a header
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
    number, empty = 0, True
    try:
        with PACKED.get(path.suffix.lower(), open)(path, "rb") as file:
            for number, raw in enumerate(file, start=1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                empty = empty and not line.strip()
                yield number, line
    except UnicodeDecodeError as error:
        byte = f"its byte {error.start} is 0x{error.object[error.start]:02x}"
        raise wrong(
            path, f"line {number}", f"not UTF-8 text ({byte}); convert the file to UTF-8."
        ) from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise CourseError(f"{path} cannot be read, or is damaged or cut short ({error}).") from None
    if empty:
        raise CourseError(f"{path} is empty.")


def read_text(path: Path, columns: Columns | None = None) -> Iterator[Placed]:
    """`text`: WikiText's articles if the file has their headings, else the whole file is one
    document, without the licence around a Project Gutenberg book; more than `PIECE` is cut at blank
    lines."""
    body: list[str] = []
    begun, size = 1, 0
    for (number, line), (_, following) in pairwise(chain(read_lines(path), [(0, "")])):
        if START.match(line):
            body, size = [], 0
            continue
        if END.match(line):
            break
        # WikiText sets a title between two blank lines; a formula between text lines is none.
        title = ARTICLE.match(line) and not following.strip() and not (body and body[-1].strip())
        if title or (size > PIECE and not line.strip()):
            yield f"line {begun}", {"text": "\n".join(body).strip()}
            body, begun, size = [], number, 0
        body.append(line)
        size += len(line) + 1
    yield f"line {begun}", {"text": "\n".join(body).strip()}


def read_story(path: Path, columns: Columns | None = None) -> Iterator[Placed]:
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


def read_parallel(path: Path, columns: Columns | None = None) -> Iterator[Placed]:
    """A column a language; of three or more, `columns` says which two. path: "train" for
    train.en.gz and train.de.
    """
    files = languages(path)
    asked = set((columns or {}).values())
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


def read_conll(path: Path, columns: Columns | None = None) -> Iterator[Placed]:
    """A sentence a record: `tokens` are the first column, `labels` the last, those between have
    numbers for names.
    """
    width = 0
    for lines in _sentences(path, skip="-DOCSTART-"):
        table = [line.split("\t") if "\t" in line else line.split() for _, line in lines]
        width = width or len(table[0])
        for (number, _), cells in zip(lines, table, strict=True):
            if len(cells) < 2 or len(cells) != width:
                raise wrong(
                    path,
                    f"line {number}",
                    f"expected {max(width, 2)} columns but found {len(cells)}.",
                )
        names = ["tokens", *map(str, range(1, width - 1)), "labels"]
        yield (
            f"line {lines[0][0]}",
            {name: [cells[i].strip() for cells in table] for i, name in enumerate(names)},
        )


def read_conllu(path: Path, columns: Columns | None = None) -> Iterator[Placed]:
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
        if not blank and (kept := [line for line in lines if not line[1].startswith(skip)]):
            yield kept


def read_records(path: Path, columns: Columns | None = None) -> Iterator[Placed]:
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


def read_table(
    path: Path, columns: Columns | None = None, header: bool = False
) -> Iterator[Placed]:
    """A line a record, by the header's names, or without a header by those that it would have
    (`_guess`). Pairs without a score, which SemEval 2016 left unjudged, are left out."""
    lines = _cells(path)
    start = list(islice(lines, LOOK))
    if not start:
        raise CourseError(f"{path} is empty.")
    header = header or any(isinstance(column, str) for column in (columns or {}).values())
    header = header or (columns is None and (is_header(start[0][1]) or _is_named(start)))
    if header:
        names = start.pop(0)[1]
    elif columns is None:
        names = _guess(path, [cells for _, cells in start])
    else:
        names = list(map(str, range(len(start[0][1]))))
    if again := [name for name in filter(None, names) if names.count(name) > 1]:
        raise wrong(path, "line 1", f"two columns are called {again[0]}; rename one.")
    for number, cells in chain(start, lines):
        if len(cells) < len(names):
            raise wrong(
                path, f"line {number}", f"expected {len(names)} columns but found {len(cells)}."
            )
        record = dict(zip(names, cells, strict=False))
        if header or record.get("score") != "":
            yield f"line {number}", record


def is_table(path: Path) -> bool:
    """Whether a text file is a table: its first line that is not blank has a tab."""
    return "\t" in next((line for _, line in read_lines(path) if line.strip()), "")


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of lines that are not blank: .csv by commas, unless the first has tabs
    only; all else by tabs, where quotes are ordinary characters, as in GLUE."""
    lines = (f"{line}\n" for _, line in read_lines(path))
    first = next(lines, "")
    commas = unpacked(path).suffix == ".csv" and not (
        "\t" in first and first.count("\t") > first.count(",")
    )
    text = chain([first], lines)
    reader = (
        csv.reader(text, strict=True)
        if commas
        else csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE)
    )
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise wrong(path, f"line {reader.line_num}", f"not a readable table ({error}).") from None


def _is_named(start: list[tuple[int, list[str]]]) -> bool:
    """Whether the first line, unlike all others, names a text's column or has a word where numbers
    follow.
    """
    first, *others = (cells for _, cells in start)
    again = any(cell == name for cells in others for cell, name in zip(cells, first, strict=False))
    if not others or again or " " in "".join(first):
        return False
    columns = zip(first, *(cells for cells in others if len(cells) >= len(first)), strict=False)
    counted = any(
        name and not is_number(name) and all(map(is_number, below))
        for name, *below in columns
        if below
    )
    return counted or any(name.lower() in TEXT for name in first)


def _guess(path: Path, table: list[list[str]]) -> list[str]:
    """The names that the columns of a table without a header would have; "" or a number for columns
    of no use.
    """
    first = table[0]
    same = [cells for cells in table if len(cells) >= len(first)]
    if len(first) == 2:
        if all(sum(" " in cells[i] for cells in same) > len(same) / 2 for i in range(2)):
            return ["text", "target"]  # labels are words, not sentences
        width = [sum(len(cells[i]) for cells in same) for i in range(2)]
        return ["text", "label"] if width[0] >= width[1] else ["label", "text"]
    if len(first) == 3:
        numbers = [cells[0] for cells in same if cells[0]]
        # classes: similarity scores are seldom whole
        if numbers and all(map(str.isdigit, numbers)):
            news = ["Class Index", "Title", "Description"]  # AG News, Amazon: one text in two parts
            return news if unpacked(path).suffix == ".csv" else ["label", "text", "pair"]
        if numbers and all(map(is_number, numbers)):
            return ["score", "text", "pair"]  # SemEval's similarity files put the score first
        return ["text", "pair", "label"]
    if len(first) == 4 and all(cells[1] in ("0", "1") for cells in same):
        return ["0", "label", "2", "text"]  # CoLA
    if len(first) in (7, 9) and all(is_number(cells[4]) for cells in same):
        # the STS benchmark; two columns more are its sources
        return ["0", "1", "2", "3", "score", "text", "pair"]
    has = f"its first line has {len(first)}: {' | '.join(c[:20] for c in first)}"
    say = 'columns={"text": 3, "label": 1}, or --columns text=3,label=1'
    raise CourseError(
        f"The columns of {path} are not known ({has}); say which to take, e.g. {say}."
    )
