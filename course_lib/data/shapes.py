"""Which of the names that published data give their columns is which of the course's.

A record (a row of a table with a header, of a JSON file, of a hub's dataset) has one of these shapes, the first that
its names make:

    span     text, pair, answer, start, answers   a question, a passage, the answer in it, all answers that count
    choice   text, choices, label                 which of the continuations
    tagging  tokens, labels                       a label a word
    seq2seq  text, target                         a summary, a translation
    pair     text, pair, label
    single   text, label
    text     text                                 for a corpus
"""

from collections.abc import Collection, Mapping
from typing import Any

from course_lib.errors import CourseError

Record = Mapping[str, Any]
Theirs = str | tuple[str, ...]  # a column; ("translation", "de"): a field inside one; for choices a column each
Names = dict[str, Theirs]  # ours -> theirs

LABEL = (
    "label", "labels", "gold_label", "Quality", "is_duplicate", "score", "similarity", "similarity_score",
    "relatedness_score", "class", "category", "sentiment", "stars", "rating",
)  # fmt: skip
SCORES = ("score", "similarity", "similarity_score", "relatedness_score")  # numbers by their meaning, even if whole

# The first name that is there counts.
SHAPES: tuple[tuple[str, dict[str, tuple[str, ...]]], ...] = (
    ("span", {"text": ("question",), "pair": ("context", "passage", "paragraph"), "answers": ("answers",)}),
    ("span", {"text": ("text",), "pair": ("pair",), "answer": ("answer",), "start": ("start",)}),
    (
        "choice",
        {
            "text": ("text", "ctx", "startphrase", "premise", "context", "question", "sentence", "query", "goal"),
            "choices": ("choices", "endings", "options"),
            "label": ("label", "gold", "answer"),
        },
    ),
    (
        "tagging",
        {
            "tokens": ("tokens", "words"),
            "labels": ("labels", "tags", "ner_tags", "upos", "pos_tags", "chunk_tags", "label"),
        },
    ),
    ("pair", {"text": ("question",), "pair": ("passage", "context"), "label": (*LABEL, "answer")}),
    ("pair", {"text": ("question",), "pair": ("sentence",), "label": LABEL}),
    (
        "pair",
        {
            "text": ("text", "sentence1", "question1", "premise", "#1 String", "s1", "sentence_A", "text1"),
            "pair": ("pair", "sentence2", "question2", "hypothesis", "#2 String", "s2", "sentence_B", "text2"),
            "label": LABEL,
        },
    ),
    (
        "seq2seq",
        {
            "text": ("document", "article", "dialogue", "source", "src", "input", "prompt", "context", "text"),
            "target": ("summary", "highlights", "abstract", "target", "tgt", "output", "completion", "response"),
        },
    ),
    (
        "single",
        {"text": ("text", "sentence", "content", "review", "question", "review_body", "document"), "label": LABEL},
    ),
)
WORD = ("word", ": ")
TEXT = ("text", "content", "document", "article", "story", "sentence", "review", "body", "abstract")


def find(names: Collection[str]) -> tuple[str, Names] | None:
    """(shape, ours -> theirs) of a record with these names; None if they make no task."""
    for shape, wanted in SHAPES:
        found: Names = {ours: next((n for n in some if n in names), "") for ours, some in wanted.items()}
        if all(found.values()) and len(set(found.values())) == len(found):
            if shape == "pair" and "word" in names:  # Word in Context asks about this word
                found["text"] = (*WORD, str(found["text"]))
            return shape, found
        if shape == "choice" and found["text"] and (several := _numbered(names)):
            return shape, {**found, "choices": several, "label": found["label"] or "label"}
    languages = [name for name in names if len(name) == 2 and name.isalpha() and name.islower()]
    if len(languages) == len(names) == 2:
        source, target = direction(languages)
        return "seq2seq", {"text": source, "target": target}
    return None


def is_header(names: Collection[str]) -> bool:
    """Whether these are names of columns, even if they make no task: two of them are known, or one is "en"."""
    known = {name for _, wanted in SHAPES for some in wanted.values() for name in some}
    return len((known | {"index", "idx", "id"}) & set(names)) > 1 or ("en" in names and find(names) is not None)


def direction(languages: Collection[str]) -> tuple[str, str]:
    """(from, to) of two languages: from English, if it is one of them."""
    first, second = sorted(languages, key=lambda name: (name.split("_")[0] != "en", name))
    return first, second


def text_of(names: Collection[str]) -> str | None:
    """The column with a corpus' text."""
    return next((name for name in TEXT if name in names), None)


def names_of(record: Record, columns: Mapping[str, str | int] | None, where: str) -> Names:
    """Ours -> theirs for records like this one: by `columns` if given, otherwise by the names they have.

    Raises:
        CourseError: `columns` names what is not there, or the names make no task.
    """
    if columns is None and isinstance(record.get("translation"), Mapping):  # the hub's translation sets
        columns, inside = {}, tuple(record["translation"])
        if len(inside) == 2:
            source, target = direction(inside)
            return {"text": ("translation", source), "target": ("translation", target)}
    if columns:
        return {ours: _theirs(name, record, where) for ours, name in columns.items()}
    found = find(record.keys())
    if found is None:
        raise CourseError(
            f"{where}: the columns {', '.join(record)} make no task that the course knows; "
            'say which to take, e.g. columns={"text": "review", "label": "stars"}.'
        )
    return found[1]


def row(record: Record, names: Names) -> dict[str, Any]:
    """The record in the course's columns.

    Raises:
        CourseError: a value of the wrong kind, an answer that is not in its passage; without the place, which the
            caller knows.
    """
    out = {ours: _value(record, theirs) for ours, theirs in names.items()}
    if "answers" in out:
        out |= answer(out["pair"], out["answers"])
    for name in ("text", "pair", "target"):
        if name in out and not (isinstance(out[name], str) and out[name].strip()):
            theirs = f", {names[name]}," if isinstance(names[name], str) else ""
            raise CourseError(f"the {name}{theirs} is {_short(out[name])} instead of text; choose another by columns=.")
    if "tokens" in out:
        _check_tokens(out)
    elif "choices" in out:
        _check_choices(out)
    elif "label" in out:
        out["label"] = label(out["label"], names["label"])
    return out


def label(value: Any, name: object = "label") -> str | float:
    """A label as the files' readers give it: text, or a number that is a score."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and name not in SCORES:
        return str(value)
    if isinstance(value, int | float) and value == value:
        return float(value)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise CourseError(f"the label is {_short(value)} instead of a word or a number.")


def answer(passage: str, answers: Any) -> dict[str, Any]:
    """`answer, start, answers` of SQuAD's list of answers, or of the dict of lists that the hub makes of it.

    start is a character of the passage; without an answer `answer` is empty and `start` -1.
    """
    if isinstance(answers, Mapping):
        answers = [
            {"text": t, "answer_start": s} for t, s in zip(answers["text"], answers["answer_start"], strict=True)
        ]
    for one in answers:
        text, start = one["text"], one["answer_start"]
        if not text or passage[start : start + len(text)] != text:
            there = passage.find(text) if text else -1
            hint = f"it stands at {there}" if there >= 0 else "it stands nowhere in it"
            raise CourseError(f"the answer {_short(text)} is not at character {start} of its passage ({hint}).")
    first = answers[0] if answers else {"text": "", "answer_start": -1}
    return {"answer": first["text"], "start": first["answer_start"], "answers": [one["text"] for one in answers]}


def _value(record: Record, theirs: Theirs) -> Any:
    if isinstance(theirs, str):
        if theirs not in record:
            raise CourseError(f"there is no {theirs!r}; it has {', '.join(record)}.")
        return record[theirs]
    if theirs[:2] == WORD:
        return f"{record['word']}: {_value(record, theirs[2])}"
    if theirs[0] == "translation":
        return record[theirs[0]].get(theirs[1])
    return [record.get(name) for name in theirs]


def _theirs(name: str | int, record: Record, where: str) -> Theirs:
    if isinstance(name, int):
        if name < len(record):
            return list(record)[name]
        raise CourseError(f"{where} has no column {name}; it has {len(record)}, counted from 0.")
    if name in record:
        return name
    if isinstance(record.get("translation"), Mapping) and name in record["translation"]:
        return ("translation", name)
    raise CourseError(f"{where} has no column {name!r}; its columns are {', '.join(record)}.")


def _numbered(names: Collection[str]) -> tuple[str, ...]:
    """ending0, ending1, ... (SWAG) or choice1, choice2."""
    for stem, first in (("ending", 0), ("choice", 1), ("option", 1), ("sol", 1)):
        several = tuple(f"{stem}{first + i}" for i in range(len(names)) if f"{stem}{first + i}" in names)
        if len(several) > 1 and "label" in names:
            return several
    return ()


def _check_tokens(out: dict[str, Any]) -> None:
    tokens, labels = out["tokens"], out.get("labels")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(t, str) for t in tokens):
        raise CourseError(f"the tokens are {_short(tokens)} instead of a list of words.")
    if not isinstance(labels, list) or len(labels) != len(tokens):
        count = len(labels) if isinstance(labels, list) else "no"
        raise CourseError(f"there are {len(tokens)} tokens but {count} labels.")
    out["labels"] = [value if isinstance(value, str) else str(label(value)) for value in labels]


def _check_choices(out: dict[str, Any]) -> None:
    choices = out["choices"]
    if not isinstance(choices, list) or len(choices) < 2 or not all(isinstance(c, str) for c in choices):
        raise CourseError(f"the choices are {_short(choices)} instead of a list of two texts or more.")
    try:
        out["label"] = int(out["label"])
    except (TypeError, ValueError):
        raise CourseError(f"the label {_short(out['label'])} is no number of a choice.") from None
    if not 0 <= out["label"] < len(choices):
        raise CourseError(f"the label {out['label']} is no choice; they are numbered 0 to {len(choices) - 1}.")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 50 else f"{text[:47]}..."
