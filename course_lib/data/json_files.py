"""Read JSON: an object in each line, a list of objects, or SQuAD's articles.

    {"text": "a fine film", "label": 1}
    {"text": "two lost hours", "label": 0}   ->   ("line 2", {"text": "two lost hours", "label": 0})

The reader turns a file into pairs (location, record); the location is for messages.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course_lib.data.columns import ColumnMap, Located
from course_lib.data.lines import read_lines, unpacked, wrong


def read_records(path: Path, user_map: ColumnMap | None = None) -> Iterator[Located]:
    """Read JSON: an object in each line; or, in a .json file, a list of objects or {"data": list}.

    Raises:
        CourseError: the file is not JSON, or a record is no object.
    """
    if unpacked(path).suffix == ".json" and not _is_lines(path):
        records = _json_list(path)
    else:
        records = _json_lines(path)
    for location, record in records:
        if not isinstance(record, dict):
            hint = "" if path.suffix == ".json" else "; one JSON text of many lines is a .json"
            message = f"expected a JSON object {{...}} but found {type(record).__name__}{hint}."
            raise wrong(path, location, message)
        if "paragraphs" in record:  # an article of SQuAD
            yield from _questions(path, location, record)
            continue
        are_lists = all(isinstance(value, list) for value in record.values())
        if are_lists and any(map(_are_records, record.values())):
            lists = ", ".join(record)
            message = f"it holds its records inside of {lists}; write each into a file of its own."
            raise wrong(path, location, message)
        yield location, record


def _is_lines(path: Path) -> bool:
    """Whether the first line is a complete JSON object, so that each line is a record."""
    first = next((line for _, line in read_lines(path) if line.strip()), "")
    try:
        record = json.loads(first)
    except ValueError:
        return False
    return isinstance(record, dict) and not isinstance(record.get("data"), list)


def _json_list(path: Path) -> Iterator[tuple[str, Any]]:
    """The records of a file that is a single JSON value; it is read into memory."""
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


def _are_records(value: Any) -> bool:
    """Whether this is a list of objects."""
    return isinstance(value, list) and bool(value) and all(isinstance(x, dict) for x in value)


def _questions(path: Path, location: str, article: dict[str, Any]) -> Iterator[Located]:
    """One record for each question about an article of SQuAD (Rajpurkar et al. 2016, 2018).

    Version 2 also has questions without an answer. Their field `is_impossible` is true.
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
                if "answers" in question or is_impossible:  # a test set has no answers at all
                    record["answers"] = question.get("answers", [])
                    if not record["answers"] and not is_impossible:
                        raise wrong(
                            path,
                            f"question {question['id']}",
                            "it has no answer and is not marked impossible.",
                        )
                yield f"question {question['id']}", record
    except (KeyError, TypeError, AttributeError) as error:
        raise wrong(path, location, f"it is not in SQuAD's form ({error}).") from None


def _parse(text: str, path: Path, line: int) -> Any:
    """The value of a JSON text.

    Args:
        text: one line, or the whole file.
        path: the file, for messages.
        line: the line's number; 0 if `text` is the whole file.
    """
    try:
        record = json.loads(text, object_pairs_hook=_object)
        if "\\u" in text:
            # JSON writes some characters as two halves, \ud83d\ude00. One half alone is valid
            # JSON but no character, and no tokenizer can read it. `encode` raises an error.
            json.dumps(record, ensure_ascii=False).encode()
        return record
    except UnicodeEncodeError as error:
        half = f"half a character, \\u{ord(error.object[error.start]):04x}"
        raise wrong(path, f"line {line or 1}", f"not Unicode text ({half}); correct it.") from None
    except json.JSONDecodeError as error:
        location = f"line {line or error.lineno}, column {error.colno}"
        advice = "correct it or fetch the file again"
        if line == 1 and text.strip() in ("{", "["):
            advice = "a text of many lines is a .json, and a .jsonl has an object in each line"
        raise wrong(path, location, f"not valid JSON ({error.msg}); {advice}.") from None
    except (RecursionError, ValueError) as error:  # nested too deep, a number of 5,000 digits
        reason = str(error).partition(";")[0]
        raise wrong(path, f"line {line or 1}", f"not readable JSON ({reason}).") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a JSON object with a name twice. Python would silently keep the last value."""
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has {twice!r} twice")
    return record
