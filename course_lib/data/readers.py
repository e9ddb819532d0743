"""Readers of files. Each turns a file into pairs (place in the file, record).

A place is a text such as "line 3", for messages. A record has the file's own column names. It is
None for a broken line that a published format is known to have. Any other fault in a file raises a
`CourseError` of one sentence with the number of the line.
"""

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import chain, groupby, islice, pairwise, zip_longest
from pathlib import Path
from typing import IO, Any, cast

from course_lib.data import formats
from course_lib.data.columns import (
    OURS,
    SEPARATORS,
    Mapped,
    Placed,
    are_sentence_numbers,
    is_number,
    unknown,
)
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
# A text of more characters becomes several documents, so that no file has to fit into memory.
MAX_DOCUMENT = 4_000_000
# The names that a header may give to the column of tags.
TAG_COLUMNS = ("tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "pos", "upos")
# In WikiText a line with one "=" on each side is an article's title; more mark its sections.
ARTICLE = re.compile(r"^ ?= [^=](.*[^=])? = ?$")
# Project Gutenberg puts these lines around the text of a book.
START = re.compile(r"^\*\*\* ?START OF")
END = re.compile(r"^\*\*\* ?END OF")
LOOK = 1000  # lines of a table that are read ahead, to find out about its header and quotes
# The first bytes of a file (byte order mark) -> its encoding. UTF-32 comes before UTF-16, because
# the mark of UTF-32 (little-endian) starts with that of UTF-16.
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# The first bytes of files that are no text -> what such a file is, and what the user can do.
NO_TEXT = {
    b"PK\x03\x04": "an Excel or Word file, or an archive; save a table as CSV, unpack an archive",
    b"\xd0\xcf\x11\xe0": "an old Excel or Word file; save it as CSV or text",
    b"%PDF-": "a PDF file; save it as text",
    b"PAR1": "a Parquet file; end its name with .parquet",
    b"\x1f\x8b": "packed by gzip; end its name with .gz",
    b"BZh91AY": "packed by bzip2; end its name with .bz2",
    b"\xfd7zXZ": "packed by xz; end its name with .xz",
    b"\x28\xb5\x2f\xfd": "packed by zstd; unpack it",
    b"7z\xbc\xaf": "an archive; unpack it",
    b"Rar!": "an archive; unpack it",
    b"{\\rtf": "an RTF file; save it as text",
    b"<!DOCTYPE html": "a web page; fetch the file that it shows, or save the page as text",
    b"<html": "a web page; fetch the file that it shows, or save the page as text",
    b"version https://git-lfs": "a placeholder of Git LFS; fetch the file itself by git lfs pull",
}
LANGUAGE = re.compile(r"[a-z]{2,3}(_[A-Z]{2})?")
csv.field_size_limit(2**31 - 1)  # Python's default, 131,072 characters, is less than some articles


def wrong(path: Path, place: str, message: str) -> CourseError:
    """An error at a place in a file."""
    return CourseError(f"{path}, {place}: {message}")


def unpacked(path: Path) -> Path:
    """The path without the extension of a compressed file: "train.en.gz" becomes "train.en"."""
    return path.with_suffix("") if path.suffix.lower() in PACKED else path


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file, with their numbers from 1 and without their ends.

    The file is UTF-8, or starts with the byte order mark of UTF-16 or UTF-32, as Excel's "Unicode
    text" does. A line ends with LF, CR LF or CR (old Macs), and nowhere else. The file is unpacked
    and read line by line, so it may be larger than memory.

    Raises:
        CourseError: the file is empty, damaged, or not such a text.
    """
    number = 0
    empty = True
    try:
        with PACKED.get(path.suffix.lower(), open)(path, "rb") as file:
            refuse_no_text(path, file)
            for line in _decoded(file):
                empty = empty and not line.strip()
                for part in line.rstrip("\r\n").split("\r"):
                    number += 1
                    if "\0" in part:
                        raise wrong(
                            path,
                            f"line {number}",
                            "a NUL character, so this is no UTF-8 text; save the file as UTF-8.",
                        )
                    yield number, part
    except UnicodeDecodeError as error:
        message = f"{_undecoded(error)}; save the file as UTF-8 (in Excel: CSV UTF-8)."
        raise wrong(path, f"line {number + 1}", message) from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise CourseError(f"{path} cannot be read, or is damaged or cut short ({error}).") from None
    if empty:
        raise CourseError(f"{path} is empty.")


def refuse_no_text(path: Path, file: IO[bytes]) -> None:
    """Refuse a file that is no text, by its first bytes. They can still be read afterwards.

    Raises:
        CourseError: it is an Excel file, an archive, a placeholder of Git LFS or the like.
    """
    start = _peek(file)
    for sign, kind in NO_TEXT.items():
        if start.startswith(sign):
            raise CourseError(f"{path} is {kind}.")


def _decoded(file: IO[bytes]) -> Iterator[str]:
    """The lines of an open file as text, with their ends."""
    start = _peek(file)
    encoding = next(
        (name for mark, name in BYTE_ORDER_MARKS.items() if start.startswith(mark)), "utf-8"
    )
    if encoding in ("utf-16", "utf-32"):
        with io.TextIOWrapper(file, encoding, newline="\n") as text:
            yield from text
        return
    # Decoded line by line, so that an error has its line.
    for raw in file:
        yield raw.decode(encoding)
        encoding = "utf-8"  # only the first line has the byte order mark


def _peek(file: IO[bytes]) -> bytes:
    """The first bytes of a file that was just opened."""
    return cast(io.BufferedReader, file).peek(64)


def _undecoded(error: UnicodeDecodeError) -> str:
    """What is wrong with some bytes, and what an old Windows program would have meant by it."""
    if error.encoding != "utf-8":
        return f"not {error.encoding.upper()} text"
    byte = error.object[error.start : error.start + 1]
    meant = byte.decode("cp1252", errors="ignore")
    windows = f", {meant!r} in Windows-1252" if meant else ""
    return f"not UTF-8 text (its byte {error.start} is 0x{byte.hex()}{windows})"


def read_text(path: Path, wanted: Mapped | None = None) -> Iterator[Placed]:
    """Documents of a text file, in the column `text`.

    In WikiText each article is a document. Any other file is one document, without the licence
    around a Project Gutenberg book. After `MAX_DOCUMENT` characters a document is cut at the next
    blank line.
    """
    body: list[str] = []
    begun = 1  # the first line of the document
    size = 0
    for (number, line), (_, following) in pairwise(chain(read_lines(path), [(0, "")])):
        if START.match(line):
            body = []
            size = 0
            continue
        if END.match(line):
            break
        # A title of WikiText is between two blank lines; a formula such as "= x =" need not be.
        title = ARTICLE.match(line) and not following.strip() and not (body and body[-1].strip())
        if title or (size > MAX_DOCUMENT and not line.strip()):
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
        path: the common start of the names: "train" for train.en.gz and train.de.
        wanted: its columns choose two of three or more languages.

    Raises:
        CourseError: a line has a translation but no text, or the other way round.
    """
    files = languages(path)
    chosen = set(wanted.columns.values()) if wanted else set()
    if chosen and chosen <= files.keys():
        files = {language: file for language, file in files.items() if language in chosen}
    # A file that ends early gives None for each missing line.
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
    """Language -> file, for the files `path`.LANGUAGE, such as train.en and train.de.gz."""
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
    """Tagged sentences as in CoNLL 2003: a line is a word with its tags, a sentence is a record.

    `tokens` is the first column and `labels` the last; the columns between have numbers as names. A
    file of one column has words without tags. Tabs separate the columns, or blanks in a line
    without tabs. A line such as "# id 7" is a comment.

    Raises:
        CourseError: a line has another number of columns than the first word.
    """
    width, tags = _columns_and_tags(path)
    first_tag = next(iter(tags), "")
    if tags[first_tag] == 1 and first_tag.casefold() in TAG_COLUMNS:
        raise CourseError(f"{path}: its first line, with {first_tag!r}, is a header; remove it.")
    for lines in _sentences(path, skip="-DOCSTART-"):
        rows = [(number, line, _words(line)) for number, line in lines]
        rows = [row for row in rows if not _is_comment(row[1], row[2], width, tags)]
        if not rows:
            continue
        for number, _, cells in rows:
            if len(cells) != width:
                message = f"expected {width} columns but found {len(cells)}."
                raise wrong(path, f"line {number}", message)
        names = ["tokens", *map(str, range(1, width - 1)), "labels"][:width]
        columns = zip(*(cells for _, _, cells in rows), strict=True)  # rows of words to columns
        yield f"line {rows[0][0]}", dict(zip(names, map(list, columns), strict=True))


def _columns_and_tags(path: Path) -> tuple[int, Counter[str]]:
    """The number of columns, and how often each tag occurs in lines without "#" at the start."""
    width = 0
    tags: Counter[str] = Counter()
    for lines in _sentences(path, skip="-DOCSTART-"):
        for _, line in lines:
            cells = _words(line)
            if not line.startswith("#"):
                width = width or len(cells)
                tags[cells[-1]] += 1
    # If every line starts with "#", no line is a comment: all of them are words.
    return width or len(_words(line)), tags


def _is_comment(line: str, cells: list[str], width: int, tags: Collection[str]) -> bool:
    """ "# id 7" has another number of columns than the words; "#tag O" and "# O" are words.

    "# newdoc" has two columns, too, but its tag is no other word's. (A pound sign is tagged "#".)
    """
    if not line.startswith("#"):
        return False
    if len(cells) != width or re.match("#(begin|end) document", line):  # CoNLL 2012
        return True
    return line.startswith("# ") and bool(tags) and cells[-1] not in (*tags, "#", "O")


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
        words: list[list[str]] = []
        for number, line in lines:
            if line.startswith("#"):
                if re.match(r"# *text =", line):
                    text = text or line.partition("=")[2].strip()
                continue
            cells = line.split("\t")
            if len(cells) != 10:
                message = f"expected 10 fields with tabs between, found {len(cells)}."
                raise wrong(path, f"line {number}", message)
            if re.fullmatch(r"[0-9]+[-.][0-9]+", cells[0]):
                continue  # 3-4 is a contraction of two words, 3.1 an empty node
            if cells[0] != str(len(words) + 1):
                message = f"word {len(words) + 1} of its sentence is numbered {cells[0]!r}."
                raise wrong(path, f"line {number}", message)
            if not re.fullmatch("[0-9]+|_", cells[6]):
                raise wrong(path, f"line {number}", f"the head {cells[6]!r} is no number.")
            words.append(cells)
        heads = [-1 if cells[6] == "_" else int(cells[6]) for cells in words]
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


def _sentences(path: Path, skip: str | None = None) -> Iterator[list[tuple[int, str]]]:
    """The numbered lines of each sentence.

    A blank line ends a sentence, and so does a line that starts with `skip`.
    """

    def ends(line: tuple[int, str]) -> bool:
        return not line[1].strip() or (skip is not None and line[1].startswith(skip))

    for is_end, lines in groupby(read_lines(path), key=ends):
        if not is_end:
            yield list(lines)


def read_records(path: Path, wanted: Mapped | None = None) -> Iterator[Placed]:
    """JSON: an object in each line; or, in a .json file, a list of objects or {"data": list}.

    Raises:
        CourseError: it is not JSON, or a record is no object.
    """
    if unpacked(path).suffix == ".json" and not _is_lines(path):
        records = _json_list(path)
    else:
        records = _json_lines(path)
    for place, record in records:
        if not isinstance(record, dict):
            hint = "" if path.suffix == ".json" else "; one JSON text of many lines is a .json"
            message = f"expected a JSON object {{...}} but found {type(record).__name__}{hint}."
            raise wrong(path, place, message)
        if "paragraphs" in record:  # an article of SQuAD
            yield from _questions(path, place, record)
            continue
        are_lists = all(isinstance(value, list) for value in record.values())
        if are_lists and any(map(_are_records, record.values())):
            lists = ", ".join(record)
            message = f"it holds its records inside of {lists}; write each into a file of its own."
            raise wrong(path, place, message)
        yield place, record


def _json_list(path: Path) -> Iterator[tuple[str, Any]]:
    """The records of a file that is a single JSON value, which is read into memory."""
    whole = _parse("\n".join(line for _, line in read_lines(path)), path, 0)
    if isinstance(whole, dict):
        whole = whole.get("data", whole)
    records = whole if isinstance(whole, list) else [whole]
    for number, record in enumerate(records):
        yield f"record {number}", record


def _are_records(value: Any) -> bool:
    """Whether this is a list of objects."""
    return isinstance(value, list) and bool(value) and all(isinstance(x, dict) for x in value)


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
                record = {
                    "id": question["id"],
                    "title": article.get("title", ""),
                    "question": question["question"],
                    "context": paragraph["context"],
                }
                is_impossible = bool(question.get("is_impossible"))
                if "answers" in question or is_impossible:  # else it is only to be asked
                    record["answers"] = question.get("answers", [])
                    if not record["answers"] and not is_impossible:
                        raise wrong(
                            path,
                            f"question {question['id']}",
                            "it has no answer and is not marked impossible.",
                        )
                yield f"question {question['id']}", record
    except (KeyError, TypeError, AttributeError) as error:
        raise wrong(path, place, f"it is not in SQuAD's form ({error}).") from None


def _is_lines(path: Path) -> bool:
    """Whether the first line is a whole JSON object; if so, every line is a record."""
    first = next((line for _, line in read_lines(path) if line.strip()), "")
    try:
        record = json.loads(first)
    except ValueError:
        return False
    return isinstance(record, dict) and not isinstance(record.get("data"), list)


def _parse(text: str, path: Path, line: int) -> Any:
    """The value of a JSON text. `line` is its number in the file, 0 if the text is the file."""
    try:
        record = json.loads(text, object_pairs_hook=_object)
        if "\\u" in text:
            # Half of a surrogate pair is valid JSON, but no tokenizer takes it: encoding fails.
            json.dumps(record, ensure_ascii=False).encode()
        return record
    except UnicodeEncodeError as error:
        half = f"half a character, \\u{ord(error.object[error.start]):04x}"
        raise wrong(path, f"line {line or 1}", f"not Unicode text ({half}); correct it.") from None
    except json.JSONDecodeError as error:
        place = f"line {line or error.lineno}, column {error.colno}"
        advice = "correct it or fetch the file again"
        if line == 1 and text.strip() in ("{", "["):
            advice = "a text of many lines is a .json, and a .jsonl has an object in each line"
        raise wrong(path, place, f"not valid JSON ({error.msg}); {advice}.") from None
    except (RecursionError, ValueError) as error:  # nested too deep, a number of 5,000 digits
        reason = str(error).partition(";")[0]
        raise wrong(path, f"line {line or 1}", f"not readable JSON ({reason}).") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a JSON object with the same name twice, of which Python would keep the last value."""
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has {twice!r} twice")
    return record


def read_table(path: Path, wanted: Mapped | None = None) -> Iterator[Placed]:
    """A table of comma- or tab-separated values: each line is a record.

    A file of a published format without a header gets that format's column names. Other files get
    the names of their header, or numbers from 0 if the user says that there is no header.

    Raises:
        CourseError: the columns are not known, or a line has more or fewer cells than columns.
    """
    known = None if wanted and wanted.columns else formats.of_file(unpacked(path))
    separator = (wanted and wanted.separator) or (known and known.separator) or _separator(path)
    has_quotes = None if wanted is None else wanted.quotes
    if has_quotes is None:
        has_quotes = separator != "\t" or (known is None and _is_quoted(path))
    lines = _cells(path, separator, has_quotes)
    start = list(islice(lines, LOOK))
    if not start:
        raise CourseError(f"{path} is empty.")
    header = None
    if known:
        names = list(known.lines)
    elif _has_header(path, start, separator, wanted):
        header = names = start.pop(0)[1]
        known = formats.of_columns(dict.fromkeys(names), labelled=False)
    else:
        names = [str(i) for i in range(len(start[0][1]))]
    repeated = [name for name in names if name and names.count(name) > 1]
    if repeated:
        raise wrong(path, "line 1", f"two columns are called {repeated[0]}; rename one.")

    for number, cells in chain(start, lines):
        if header is not None and len(cells) > 1 and _are_alike(cells, header):
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


def _are_alike(cells: list[str], header: list[str]) -> bool:
    """Whether a line repeats the header, in capitals or not."""
    return [cell.casefold() for cell in cells] == [name.casefold() for name in header]


def _advice(cells: list[str], names: list[str], has_quotes: bool) -> str:
    """Advice, for a message, about a line with a wrong number of cells."""
    if not has_quotes and any(cell.startswith('"') for cell in cells):
        return "; if quotes hold cells together here, add quotes=yes to the columns"
    if has_quotes and len(cells) > len(names):
        return "; a cell with the separator inside stands in quotes"
    return ""


def _is_quoted(path: Path) -> bool:
    """Whether a table with tabs is written as Excel and pandas do, who put quotes around cells.

    GLUE's tables are not: there a quote is an ordinary character, and many are unbalanced.
    """
    start = list(islice(read_lines(path), LOOK))
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
    # It is one if otherwise there would be no table, if all of its first line stands in quotes, or
    # if a quote inside of a cell is doubled.
    is_table = len({len(cells) for cells in raw}) == 1
    doubled = any(re.fullmatch('"([^"]|"")*""([^"]|"")*"', cell) for cells in raw for cell in cells)
    return not is_table or doubled or all(re.fullmatch('"[^"]+"', cell) for cell in raw[0])


def is_table(path: Path) -> bool:
    """Whether a text file is a table: its first line that is not blank contains a tab."""
    return "\t" in next((line for _, line in read_lines(path) if line.strip()), "")


def is_conll(path: Path) -> bool:
    """Whether a text file holds tags, as train.txt of CoNLL 2003 does."""
    first = next((line for _, line in read_lines(path) if line.strip()), "")
    return first.startswith("-DOCSTART-")


def _has_header(
    path: Path, start: list[tuple[int, list[str]]], separator: str, wanted: Mapped | None
) -> bool:
    """Whether the first line is a header: the user says so, or a published format has its names."""
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
        if wanted is not None and wanted.is_corpus:
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
        raise CourseError(f"{path}: {unknown(first, [first, *others], False)}")
    return True


def _are_tagged_words(start: list[tuple[int, list[str]]]) -> bool:
    """Whether lines are words with a tag each: by their tags, or by the blank lines between them.

    Args:
        start: the numbers of the first lines that are not blank, and their cells.
    """
    if are_sentence_numbers([cells[0] for _, cells in start]):
        return False  # `unknown` says what to do with such a table
    if all(_is_tagged(cells) for _, cells in start):
        return True
    rows = [cells[0].split() if len(cells) == 1 else cells for _, cells in start]
    width = len(rows[0])
    for cells in rows:
        if len(cells) != width or any(len(cell.split()) != 1 for cell in cells):
            return False
    # Lines follow each other in a sentence, and blank lines stand between sentences.
    steps = [after - before for (before, _), (after, _) in pairwise(start)]
    tags = {cells[-1] for cells in rows}
    return width > 1 and {1} < set(steps) and 2 * len(tags) <= len(rows)


def _is_tagged(cells: list[str]) -> bool:
    """Whether a line is a word and its tag, as in CoNLL 2003."""
    *_, tag = " ".join(cells).split() or [""]
    return re.fullmatch("O|[BIESLU]-[A-Za-z]+", tag) is not None


def _is_alone(first: list[str], others: list[list[str]], column: int) -> bool:
    """Whether the first line's label is the name of a column, or unlike the other labels.

    That is a word above numbers, or a word that none of the others is, few as these are.
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
    """The character between cells: a tab, or in a .csv file the one that its first line has."""
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


def _cells(path: Path, separator: str, has_quotes: bool) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line that is not blank, with the line's number."""
    lines = (f"{line}\n" for _, line in read_lines(path))
    if has_quotes:
        reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
    else:
        reader = csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE)
    try:
        for cells in reader:
            is_note = reader.line_num == 1 and cells[:1] == ["sep="]
            if any(cell.strip() for cell in cells) and not is_note:
                yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise wrong(
            path,
            f"line {reader.line_num}",
            f"not a readable table ({error}); inside a cell in quotes a quote is written twice.",
        ) from None
