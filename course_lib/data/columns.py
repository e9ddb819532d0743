"""Which of the columns of published data is which of the course's: a record has the first shape of
`TABLE` that the names of its columns make."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from course_lib.errors import CourseError

Row = Mapping[str, Any]  # as the file has it, or in the columns of the course
# our name -> the file's: a header's or field's name, or a column's number from 0
Columns = Mapping[str, str | int]
Placed = tuple[str, Row]  # where in the file a record or row stands ("line 3"), and itself
# a column; for a text (one, what stands between, another); for choices a column each
Theirs = str | tuple[str, ...]
Names = Mapping[str, Theirs]  # ours -> theirs

# numbers by their meaning, even if whole
SCORES = ("score", "similarity", "similarity_score", "relatedness_score")
LABEL = (
    "label, labels, gold_label, quality, is_duplicate, score, similarity, similarity_score,"
    " relatedness_score, class, category, sentiment, stars, rating, class index"
)
# A shape, and for each of our columns the names it is published under, in capitals or not; the
# first one counts.
TABLE = f"""
span    | text: question | pair: context, passage, paragraph | answers: answers
choice  | text: text, ctx, startphrase, premise, context, question, sentence, query, goal \
        | choices: choices, endings, options | label: label, gold, answer
tagging | tokens: tokens, words | labels: labels, tags, ner_tags, upos, pos_tags, chunk_tags, label
pair    | text: question | pair: passage, context | label: {LABEL}, answer
pair    | text: question | pair: sentence | label: {LABEL}
pair    | text: text, sentence1, question1, premise, #1 string, s1, sentence_a, text1 \
        | pair: pair, sentence2, question2, hypothesis, #2 string, s2, sentence_b, text2 | label: {LABEL}
seq2seq | text: document, article, dialogue, source, src, input, prompt, context, text \
        | target: summary, highlights, abstract, target, tgt, output, completion, response
single  | text: text, sentence, content, review, question, review_body, document, description | label: {LABEL}
"""
SHAPES = [
    (
        shape.strip(),
        {
            ours.strip(): theirs.strip().split(", ")
            for ours, theirs in (one.split(":") for one in columns)
        },
    )
    for shape, *columns in (line.split("|") for line in TABLE.strip().splitlines())
]
# A text that is more than one column: Word in Context asks about this word; AG News' title belongs
# to its text.
JOINED = {"sentence1": ("word", ": "), "description": ("title", " ")}
TEXT = ("text", "content", "document", "article", "story", "sentence", "review", "body", "abstract")
SAY = 'columns={"text": "review", "label": "stars"}, or --columns text=review,label=stars'


def is_number(text: str) -> bool:
    """Whether a label is a number, such as 1 or 3.25."""
    try:
        return float(text) == float(text)
    except ValueError:
        return False


def rows(
    records: Iterable[Placed], columns: Columns | None, *, withheld: bool = False
) -> Iterator[tuple[str, Row]]:
    """Records in the course's columns, told by the first of them or by `columns`. withheld: without
    labels of None.
    """
    names: Names = {}
    for place, whole in records:
        # the hub's translations have both languages inside one column
        inside = whole.get("translation")
        record = inside if isinstance(inside, Mapping) else whole
        try:
            names = names or names_of(record, columns)
            if not withheld or record.get(label_of(names), "") is not None:
                yield place, row(record, names)
        except CourseError as error:
            raise CourseError(f"{place}: {error}") from None


def texts(records: Iterable[Placed], column: str | None) -> Iterator[Row]:
    """Records as rows `text`, for a corpus; blank ones are left out."""
    for place, record in records:
        try:
            text = record[text_of(record, column)]
            if not isinstance(text, str):
                raise CourseError(f"the text is {_short(text)}; choose another column.")
        except CourseError as error:
            raise CourseError(f"{place}: {error}") from None
        if text.strip():
            yield {"text": text}


def find(names: Collection[str]) -> Names | None:
    """Ours -> theirs for a record with these names; None if they make no task."""
    there = {name.lower(): name for name in reversed(list(names))}
    for shape, wanted in SHAPES:
        lower = {
            ours: next((name for name in some if name in there), "")
            for ours, some in wanted.items()
        }
        found: dict[str, Theirs] = {ours: there.get(name, "") for ours, name in lower.items()}
        if all(found.values()) and len(set(found.values())) == len(found):
            first, between = JOINED.get(lower.get("text", ""), ("", ""))
            if first and first in there:
                found["text"] = (there[first], between, there[lower["text"]])
            return found
        if shape == "choice" and found["text"] and (several := _numbered(names)):
            return {**found, "choices": several, "label": found["label"] or "label"}
    languages = [name for name in names if len(name) == 2 and name.isalpha() and name.islower()]
    if len(languages) == len(names) == 2:  # from English, if it is one of them
        source, target = sorted(languages, key=lambda name: (name != "en", name))
        return {"text": source, "target": target}
    return None


def is_header(names: Collection[str]) -> bool:
    """Whether these are names of columns: two of them are known, or one is "en"."""
    known = {name for _, wanted in SHAPES for some in wanted.values() for name in some} | {
        "index",
        "idx",
        "id",
    }
    return len(known & {name.lower() for name in names}) > 1 or (
        "en" in names and find(names) is not None
    )


def text_of(names: Collection[str], asked: str | None = None) -> str:
    """The column with a corpus' text: the one asked for, or one of the usual names."""
    there = {name.lower(): name for name in names}
    found = (
        [there[name] for name in TEXT if name in there]
        if asked is None
        else [n for n in names if n == asked]
    )
    if found:
        return found[0]
    what = "no text column that is known" if asked is None else f"no column {asked!r}"
    say = (
        'call the text\'s column text, or say which it is by column="NAME", in predict by --columns'
        " text=NAME"
    )
    raise CourseError(f"there is {what}; the columns are {', '.join(names)}; {say}.")


def names_of(record: Row, columns: Columns | None) -> Names:
    """Ours -> theirs for records like this one: by `columns` if given, otherwise by the names they
    have.
    """
    there = list(record)
    if columns is None:
        if (found := find(record)) is None:
            known = (
                "make no task that the course knows (plain texts and many test sets have no labels)"
            )
            raise CourseError(
                f"the columns {', '.join(there)} {known}; say which to take, e.g. {SAY}."
            )
        return found
    if not (
        {"text", "tokens"} & columns.keys()
        and {"label", "labels", "target", "answers"} & columns.keys()
    ):
        raise CourseError(f"say where both the text and its label (or target) stand, e.g. {SAY}.")
    for name in columns.values():
        if name not in (record if isinstance(name, str) else range(len(there))):
            raise CourseError(
                f"there is no column {name!r}; the columns are {', '.join(there)}, numbered from 0."
            )
    return {ours: there[name] if isinstance(name, int) else name for ours, name in columns.items()}


def label_of(names: Names) -> str:
    """The column with the label or labels; "" if there is none."""
    return str(names.get("labels", names.get("label", "")))


def row(record: Row, names: Names) -> Row:
    """The record in the course's columns, with the `id` and `title` of a question and the tree of a
    parsed sentence.
    """
    try:
        out = {ours: _value(record, ours, theirs) for ours, theirs in names.items()}
    except KeyError as error:
        raise CourseError(f"there is no {error}; it has {', '.join(record)}.") from None
    for name in {"text", "pair", "target"} & out.keys():
        if not (isinstance(out[name], str) and out[name].strip()):
            says = "empty" if out[name] == "" else f"{_short(out[name])} instead of text"
            raise CourseError(f"the {name} is {says}; correct it, or choose another column.")
    if "answers" in out:
        out |= {name: str(record[name]) for name in ("id", "title") if name in record}
        out |= answer(out["pair"], out["answers"])
    elif "tokens" in out:
        out |= {
            name: record[name] for name in ("text", "upos", "heads", "deprels") if "heads" in record
        }
        _check_tokens(out)
    elif "choices" in out:
        _check_choices(out)
    elif "label" in out:
        out["label"] = label(out["label"], names["label"])
    return out


def label(value: Any, name: object = "label") -> str | float:
    """A label as the files' readers give it: text, or a number that is a score."""
    scored = str(name).lower() in SCORES
    if isinstance(value, bool):
        return "true" if value else "false"
    # pandas' word for a label that is missing
    if isinstance(value, str) and value.strip().lower() not in ("", "nan"):
        if scored and not is_number(value):
            raise CourseError(f"the score {_short(value)} is no number.")
        return float(value) if scored else value.strip()
    if isinstance(value, int) and not scored:
        return str(value)
    if isinstance(value, int | float) and value == value:
        return float(value)
    says = f"{_short(value)} instead of a word or a number" if value else "empty"
    raise CourseError(f"the label is {says}.")


def answer(passage: str, answers: Any) -> Row:
    """`answer, start, answers` ("" and -1 if there is none) of SQuAD's list, or of the hub's dict
    of lists.
    """
    try:
        if isinstance(answers, Mapping):
            pairs = list(zip(answers["text"], answers["answer_start"], strict=True))
        else:
            pairs = [(one["text"], one["answer_start"]) for one in answers]
    except (KeyError, TypeError, ValueError):
        raise CourseError("its answers are not in SQuAD's form.") from None
    for text, start in pairs:
        if not text or passage[start : start + len(text)] != text:
            raise CourseError(
                f"the answer {_short(text)} is not at character {start} of its passage."
            )
    text, start = pairs[0] if pairs else ("", -1)
    return {"answer": text, "start": start, "answers": [text for text, _ in pairs]}


def _value(record: Row, ours: str, theirs: Theirs) -> Any:
    if isinstance(theirs, str):
        return record[theirs]
    if ours == "choices":
        return [record[name] for name in theirs]
    first, between, second = theirs
    return f"{record[first]}{between}{record[second]}".strip()


def _numbered(names: Collection[str]) -> tuple[str, ...]:
    """ending0, ending1, ... (SWAG) or choice1, choice2."""
    for stem, first in (("ending", 0), ("choice", 1), ("option", 1), ("sol", 1)):
        several = tuple(
            f"{stem}{first + i}" for i in range(len(names)) if f"{stem}{first + i}" in names
        )
        if len(several) > 1 and "label" in names:
            return several
    return ()


def _check_tokens(out: dict[str, Any]) -> None:
    tokens, labels = out["tokens"], out.get("labels")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(t, str) for t in tokens):
        raise CourseError(f"the tokens are {_short(tokens)} instead of a list of words.")
    if not isinstance(labels, list) or len(labels) != len(tokens):
        raise CourseError(
            f"the labels {_short(labels)} are not one for each of {len(tokens)} tokens."
        )
    out["labels"] = [value if isinstance(value, str) else str(label(value)) for value in labels]


def _check_choices(out: dict[str, Any]) -> None:
    choices = out["choices"]
    if (
        not isinstance(choices, list)
        or len(choices) < 2
        or not all(isinstance(c, str) for c in choices)
    ):
        raise CourseError(
            f"the choices are {_short(choices)} instead of a list of two texts or more."
        )
    if not str(out["label"]).isdigit() or not 0 <= int(out["label"]) < len(choices):
        raise CourseError(
            f"the label {out['label']!r} is no choice; they are numbered 0 to {len(choices) - 1}."
        )
    out["label"] = int(out["label"])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 50 else f"{text[:47]}..."
