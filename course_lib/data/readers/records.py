"""JSON: a record a line, a list of records, or SQuAD's questions."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course_lib.data import shapes
from course_lib.data.readers.base import Columns, Placed, read_file, read_lines, unpacked, wrong
from course_lib.errors import CourseError


def read_json(path: Path, columns: Columns | None = None) -> Iterator[Placed]:
    """Rows of the shape that the fields' names make (`course_lib.data.shapes`), or that `columns` says.

    JSON lines are read one by one. A .json file may hold a list of records, SQuAD's {"data": ...}, or JSON lines.

    Args:
        columns: our names and the fields', e.g. {"text": "review", "label": "stars"}.

    Raises:
        CourseError: a line that is no JSON object, fields that make no task, a value of the wrong kind.
    """
    names: shapes.Names | None = None
    for place, record in records(path):
        if "paragraphs" in record:
            yield from _squad(path, record, place)
            continue
        names = names or shapes.names_of(record, columns, f"{path}, {place}")
        try:
            yield place, shapes.row(record, names)
        except CourseError as error:
            raise wrong(path, place, str(error)) from None


def read_texts(path: Path, columns: Columns | None = None) -> Iterator[Placed]:
    """Rows `text` for a corpus; the field is `columns["text"]` or one of the usual names."""
    for place, record in records(path):
        name = str((columns or {}).get("text") or shapes.text_of(record) or "")
        if name not in record:
            asked = f"no field {name!r}" if name else "no field that is known to hold the text"
            raise wrong(path, place, f"there is {asked}; the fields are {', '.join(record)}; say which by column=.")
        if not isinstance(record[name], str):
            raise wrong(path, place, f"the field {name!r} is no text.")
        if record[name].strip():
            yield place, {"text": record[name]}


def records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, record) of a JSON file in any of its layouts."""
    if unpacked(path).suffix == ".json" and not _is_lines(path):
        whole = _parse(read_file(path), path, 0)
        if isinstance(whole, dict):
            whole = whole["data"] if isinstance(whole.get("data"), list) else [whole]
        if not isinstance(whole, list) or not whole:
            raise CourseError(f"{path} holds {type(whole).__name__} instead of a list of records.")
        for number, record in enumerate(whole):
            yield f"record {number}", _object(record, path, f"record {number}")
        return
    for number, line in read_lines(path):
        if line.strip():
            yield f"line {number}", _object(_parse(line, path, number), path, f"line {number}")


def _squad(path: Path, article: dict[str, Any], place: str) -> Iterator[Placed]:
    """Rows `id, title, text, pair, answer, start, answers`; version 2's unanswerable questions have start -1.

    (Rajpurkar et al. 2016, 2018.)
    """
    for p, paragraph in enumerate(_list(article, "paragraphs", path, place)):
        here = f"{place}, paragraph {p}"
        passage = _object(paragraph, path, here).get("context")
        if not isinstance(passage, str):
            raise wrong(path, here, "it has no context.")
        for question in _list(paragraph, "qas", path, here):
            name = f"question {question.get('id', '')}".strip()
            try:
                found = shapes.row(
                    {"context": passage, "question": question.get("question"), "answers": question.get("answers", [])},
                    {"text": "question", "pair": "context", "answers": "answers"},
                )
            except (CourseError, KeyError, TypeError) as error:
                said = str(error) if isinstance(error, CourseError) else "its answers are not in SQuAD's form."
                raise wrong(path, name, said) from None
            if (found["start"] < 0) != bool(question.get("is_impossible", False)):
                says = "has answers but is_impossible is true" if found["start"] >= 0 else "has no answer"
                raise wrong(path, name, f"it {says}; version 2 of SQuAD marks the unanswerable by is_impossible.")
            yield name, {"id": str(question.get("id", "")), "title": str(article.get("title", "")), **found}


def _is_lines(path: Path) -> bool:
    """Whether the first line is a JSON object by itself, and so a record a line follow."""
    first = next((line for _, line in read_lines(path) if line.strip()), "")
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and not isinstance(record.get("data"), list)


def _parse(text: str, path: Path, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {line or error.lineno}, column {error.colno}"
        raise wrong(path, place, f"not valid JSON ({error.msg}); correct it or fetch the file again.") from None
    except RecursionError:
        raise wrong(path, f"line {line or 1}", "the JSON is nested too deeply.") from None


def _object(value: Any, path: Path, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(path, place, f"expected a JSON object {{...}} but found {type(value).__name__}.")
    return value


def _list(record: dict[str, Any], name: str, path: Path, place: str) -> list[dict[str, Any]]:
    values = record.get(name)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise wrong(path, place, f"it has no list {name!r}, as SQuAD has.")
    return values
