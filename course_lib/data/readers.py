"""Readers of files: each turns a file into pairs (place in the file, record).

A place is a text such as "line 3", for messages. A record has the file's own names for its columns.
It is None for a broken line that a published format is known to have. Whatever else is wrong in a
file raises a `CourseError` of one sentence with the number of the line.
"""

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

# Why not `datasets.load_dataset("csv" | "json")`, which reads Parquet and the hub for this course?
# We tried it (datasets 5.2) on files as students bring them:
# - a TSV whose rows are all longer than the header loses its first column without a word;
# - one unbalanced quote in a TSV (GLUE has them) swallows all rows up to the next quote;
# - the texts "NA", "null" and "None" become missing values, "007" the number 7, a date in JSON a
#   datetime;
# - a short row is filled with missing values, and a repeated header is read as a row;
# - text that is not UTF-8 and broken JSON are errors, but without the number of the line.
# Settings mend the quotes and "NA". Types can be set only for columns that are known beforehand.
Reader = Callable[
    [Path, Mapped | None], Iterator[Placed]
]  # file, what the user says of its columns

PACKED: dict[str, Callable[..., IO[bytes]]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}  # type: ignore[dict-item]
# characters; a longer text becomes several documents, so that no file has to fit into memory
PIECE = 4_000_000
# WikiText: one "=" is an article's title, more are its sections
ARTICLE = re.compile(r"^ ?= [^=](.*[^=])? = ?$")
# Project Gutenberg puts these lines around the text of a book.
START = re.compile(r"^\*\*\* ?START OF")
END = re.compile(r"^\*\*\* ?END OF")
LOOK = 1000  # lines that are looked at before the first record is given
LANGUAGE = re.compile(r"[a-z]{2,3}(_[A-Z]{2})?")
csv.field_size_limit(2**31 - 1)  # Python's default, 131,072 characters, is less than some articles


def wrong(path: Path, place: str, message: str) -> CourseError:
    """The sentence for something wrong inside a file."""
    return CourseError(f"{path}, {place}: {message}")


def unpacked(path: Path) -> Path:
    """The name without .gz and the like: "train.en.gz" is a "train.en"."""
    return path.with_suffix("") if path.suffix.lower() in PACKED else path


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file, with their numbers from 1 and without their ends.

    The file is unpacked and read line by line, so it may be larger than memory.

    Raises:
        CourseError: the file is empty, damaged or not UTF-8.
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
    """Documents of a text file, in the column `text`.

    WikiText's articles are a document each. Any other file is one document, without the licence
    around a Project Gutenberg book. A document of more than `PIECE` characters is cut at the next
    blank line.
    """
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
    """A story of CNN / Daily Mail: `text` is the article, `target` its highlights, one a line."""
    lines = [line.strip() for _, line in read_lines(path) if line.strip()]
    article, *highlights = [part.strip() for part in "\n".join(lines).split("@highlight")]
    if not article or not highlights or not all(highlights):
        raise CourseError(
            f"{path} is no story: an article, then lines @highlight, each with a sentence after it."
        )
    yield "line 1", {"text": article, "target": "\n".join(highlights)}


def read_parallel(path: Path, wanted: Mapped | None = None) -> Iterator[Placed]:
    """Files in several languages, line by line: a record has a column for each language.

    Args:
        path: what the names have in common: "train" for train.en.gz and train.de.
        wanted: of three or more languages, says which two are read.

    Raises:
        CourseError: a line has a translation but no text, or the other way round.
    """
    files = languages(path)
    chosen = set(wanted.columns.values()) if wanted else set()
    if chosen and chosen <= files.keys():
        files = {language: file for language, file in files.items() if language in chosen}
    # A file that ends early gives None for the lines it has not.
    for lines in zip_longest(*(read_lines(file) for file in files.values())):
        number = next(line[0] for line in lines if line)
        texts = {
            language: line[1].strip() if line else None
            for language, line in zip(files, lines, strict=True)
        }
        if not any(texts.values()):
            continue  # a blank line in every language
        if not all(texts.values()):
            short = next(files[language] for language, text in texts.items() if not text)
            raise wrong(
                short, f"line {number}", "it has nothing here, but its translation goes on."
            )
        yield f"line {number}", texts


def languages(path: Path) -> dict[str, Path]:
    """Language -> file, of the files named `path` and a language: train.en, train.de.gz."""
    files = {}
    for file in sorted(path.parent.glob("*")):
        if not file.is_file():
            continue
        name = unpacked(file)
        language = name.suffix[1:]
        if name.with_suffix("") == path and LANGUAGE.fullmatch(language):
            files[language] = file
    return files


def read_conll(path: Path, wanted: Mapped | None = None) -> Iterator[Placed]:
    """Tagged sentences, a word a line with its tags, as in CoNLL 2003; a sentence is a record.

    `tokens` are the first column, `labels` the last; those between have numbers for names. Columns
    stand between tabs, or between blanks where a line has no tab.

    Raises:
        CourseError: a line has another number of columns than the first word.
    """
    width = 0  # columns of the file, known from its first word
    for lines in _sentences(path, skip="-DOCSTART-"):
        rows = [(number, _words(line)) for number, line in lines]
        # Comments ("# id 7") stand before their sentence.
        words = [cells for _, cells in rows if not cells[0].startswith("#")] or [rows[-1][1]]
        width = width or len(words[0])
        while rows and _is_comment(rows[0][1], width):
            rows.pop(0)
        if not rows:
            continue
        for number, cells in rows:
            if len(cells) < 2 or len(cells) != width:
                message = f"expected {max(width, 2)} columns but found {len(cells)}."
                raise wrong(path, f"line {number}", message)
        names = ["tokens", *map(str, range(1, width - 1)), "labels"]
        columns = zip(*(cells for _, cells in rows), strict=True)  # rows of words to columns
        yield f"line {rows[0][0]}", dict(zip(names, map(list, columns), strict=True))


def _is_comment(cells: list[str], width: int) -> bool:
    """ "# id 7" has another number of columns than the words; "#tag O" and "# O" are words."""
    return cells[0].startswith("# ") or (cells[0] == "#" and len(cells) != width)


def _words(line: str) -> list[str]:
    if "\t" in line:
        return [cell.strip() for cell in line.split("\t")]
    return re.split(" +", line.strip(" "))


def read_conllu(path: Path, wanted: Mapped | None = None) -> Iterator[Placed]:
    """Treebanks of Universal Dependencies; a sentence is a record.

    Columns: `text, tokens, labels, upos, heads, deprels`; the labels are the upos. "didn't" is two
    words, and an empty node is none. Heads are counted from 1; 0 is the root, -1 stands where the
    file names no head.

    Raises:
        CourseError: a line has not 10 fields, or a head is no word of its sentence.
    """
    for lines in _sentences(path):
        first = f"line {lines[0][0]}"
        text = ""
        words = []
        for number, line in lines:
            if line.startswith("#"):
                if re.match(r"# *text =", line):
                    text = text or line.partition("=")[2].strip()
                continue
            cells = line.split("\t")
            if len(cells) != 10:
                message = f"expected 10 fields with tabs between, found {len(cells)}."
                raise wrong(path, f"line {number}", message)
            if cells[0].isdigit():  # 3-4 is a contraction of two words, 3.1 an empty node
                words.append(cells)
        heads = [int(cells[6]) if cells[6].isdigit() else -1 for cells in words]
        if any(head > len(words) for head in heads):
            raise wrong(path, first, f"the head {max(heads)} is no word of its sentence.")
        if not words:
            continue
        tokens = [cells[1] for cells in words]
        upos = [cells[3] for cells in words]
        record: dict[str, Any] = {"text": text or " ".join(tokens), "tokens": tokens}
        record["labels"] = upos
        record["upos"] = upos
        record["heads"] = heads
        record["deprels"] = [cells[7] for cells in words]
        yield first, record


def _sentences(path: Path, skip: str = "\n") -> Iterator[list[tuple[int, str]]]:
    """The numbered lines of each sentence, without lines that begin with `skip`.

    A blank line ends a sentence.
    """
    for is_blank, lines in groupby(read_lines(path), key=lambda line: not line[1].strip()):
        sentence = [line for line in lines if not line[1].startswith(skip)]
        if sentence and not is_blank:
            yield sentence


def read_records(path: Path, wanted: Mapped | None = None) -> Iterator[Placed]:
    """JSON: an object a line, or in a .json file also a list of objects, or SQuAD's {"data": ...}.

    Raises:
        CourseError: it is not JSON, or a record is no object.
    """
    if unpacked(path).suffix == ".json" and not _is_lines(path):
        records = _json_list(path)
    else:
        records = _json_lines(path)
    for place, record in records:
        if not isinstance(record, dict):
            message = f"expected a JSON object {{...}} but found {type(record).__name__}."
            raise wrong(path, place, message)
        if "paragraphs" in record:  # an article of SQuAD
            yield from _questions(path, place, record)
        else:
            yield place, record


def _json_list(path: Path) -> Iterator[tuple[str, Any]]:
    """The records of a file that is one JSON value; it is read whole."""
    whole = _parse("\n".join(line for _, line in read_lines(path)), path, 0)
    if isinstance(whole, dict):
        whole = whole.get("data", whole)
    records = whole if isinstance(whole, list) else [whole]
    for number, record in enumerate(records):
        yield f"record {number}", record


def _json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """The records of JSON lines, read one by one."""
    for number, line in read_lines(path):
        if line.strip():
            yield f"line {number}", _parse(line, path, number)


def _questions(path: Path, place: str, article: dict[str, Any]) -> Iterator[Placed]:
    """A record for each question about an article of SQuAD (Rajpurkar et al. 2016, 2018).

    Version 2 has questions without an answer; they are marked as impossible.
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
                record = {
                    "id": question["id"],
                    "title": article.get("title", ""),
                    "question": question["question"],
                    "context": paragraph["context"],
                    "answers": answers,
                }
                yield f"question {question['id']}", record
    except (KeyError, TypeError, AttributeError) as error:
        raise wrong(path, place, f"it is not in SQuAD's form ({error}).") from None


def _is_lines(path: Path) -> bool:
    """Whether the first line is a JSON object by itself: then every line is a record."""
    first = next((line for _, line in read_lines(path) if line.strip()), "")
    try:
        record = json.loads(first)
    except ValueError:
        return False
    return isinstance(record, dict) and not isinstance(record.get("data"), list)


def _parse(text: str, path: Path, line: int) -> Any:
    """The value of a JSON text. `line` is its number in the file, 0 if the text is the file."""
    try:
        record = json.loads(text)
        if "\\u" in text:
            # Half of a surrogate pair is valid JSON, but no tokenizer takes it: encoding fails.
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
    """A table of comma- or tab-separated values: each line is a record.

    The columns are named by the published format if the file's name is known as one, else by the
    header. They have numbers from 0 if the user says that there is no header.

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
    repeated = [name for name in names if name and names.count(name) > 1]
    if repeated:
        raise wrong(path, "line 1", f"two columns are called {repeated[0]}; rename one.")

    for number, cells in chain(start, lines):
        if cells == header and len(cells) > 1:
            raise wrong(path, f"line {number}", "it repeats the header; remove it.")
        fitted: list[str] | None = cells
        if len(cells) != len(names):
            try:
                fitted = _repaired(cells, names, known)
            except ValueError:
                message = f"expected {len(names)} columns but found {len(cells)}."
                raise wrong(path, f"line {number}", message) from None
        record = None if fitted is None else dict(zip(names, fitted, strict=True))
        yield f"line {number}", record


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
    """A line with more or fewer cells than columns, mended where it is known how.

    Returns:
        As many cells as columns; None if a published format leaves such lines out.

    Raises:
        ValueError: the line is broken.
    """
    if known and known.repair:
        return known.repair(cells, names)
    if len(cells) > len(names) and not any(cells[len(names) :]):
        return cells[: len(names)]  # a spreadsheet ends its lines with empty cells
    raise ValueError


def _separator(path: Path) -> str:
    """What stands between cells: tabs; in a .csv what its first line has."""
    if unpacked(path).suffix.lower() != ".csv":
        return "\t"
    first = next((line for _, line in read_lines(path)), "")
    if first.lower().startswith("sep=") and len(first) == 5:  # Excel says it itself
        return first[-1]
    outside = re.sub('"[^"]*"', "", first)  # what is not between quotes
    names = [name for name, sign in SEPARATORS.items() if sign in outside]
    if len(names) > 1:
        raise CourseError(
            f"{path}: its first line {first[:60]!r} may be cut at each {' or '.join(names)}; say by"
            f" --columns separator={names[-1]}, or another, what stands between the cells."
        )
    return SEPARATORS[names[0]] if names else ","


def _cells(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line that is not blank, with the line's number."""
    lines = (f"{line}\n" for _, line in read_lines(path))
    if separator == "\t":
        # In tables with tabs a quote is an ordinary character: GLUE has unbalanced ones.
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
