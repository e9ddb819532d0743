"""Rename a file's columns to the course's, and check their values.

A file may call its columns as it likes; the course calls them `text`, `label` and so on:

    record    {"review": "a fine film", "stars": "5", "id": "17"}
    columns   {"text": "review", "label": "stars"}
    row       {"text": "a fine film", "label": "5"}

The user gives `columns=` in Python, or `--columns text=review,label=stars` in a command. Further
entries describe the file:

    header=no             the first line is a row; columns then have numbers from 0
    separator=semicolon   the character between cells: comma, semicolon, bar or tab
    quotes=yes            quotes enclose a cell; with quotes=no they are part of the text
    no_label=-|N/A        these labels mean "no label"; such rows are skipped
    class=-               this label is a class, although it looks like a missing label
    scores=yes            the labels are scores, even if they are whole numbers; with scores=no they
                          are classes
"""

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from course_lib.errors import CourseError

Row = Mapping[str, Any]  # an example with the course's column names
Record = Mapping[str, Any]  # the same example with the file's own column names
Columns = Mapping[str, str | int]  # the user's `columns=`: our name -> the file's name or number
# A record and its location in the file ("line 3"), which messages name. The record is None for a
# broken line that a published file is known to have; such lines are skipped.
Located = tuple[str, Record | None]

OURS = ("text", "pair", "label", "tokens", "labels", "choices", "answers", "target")
ANSWERS = ("label", "labels", "target", "answers")  # the columns that a model should predict
SEPARATORS = {"comma": ",", "semicolon": ";", "bar": "|", "tab": "\t"}
DESCRIPTIONS = ("header", "separator", "quotes", "no_label", "class", "scores")
# Labels, in lower case, that mean "no label" in some published data and are a class in other data.
# -100 is the label that PyTorch's loss ignores.
DOUBTFUL = (
    *("-", "--", "\N{EN DASH}", "\N{EM DASH}", "?", "_", "-1", "-100"),
    *("n/a", "#n/a", "n.a.", "na", "<na>", "nan", "none", "null", "nil"),
)
SHOWN = 20  # messages show so many characters of a cell


@dataclass(frozen=True)
class ColumnMap:
    """Which column of a file is which, and how to read the file.

    None always means that the reader finds out by looking at the file.

    Attributes:
        columns: our name -> the file's name, or its number from 0.
        header: whether a table's first line names its columns. By default it does, unless `columns`
            has numbers.
        separator: the character between a table's cells. By default the file's name and first line
            decide.
        quotes: whether quotes enclose cells. By default they do in tables with commas, and in
            tables with tabs only if the lines look like that.
        no_label: labels that mean "no label".
        classes: labels of `DOUBTFUL` that are classes in this file.
        is_score: whether the labels are scores, even if they are whole numbers. By default the
            labels decide.
        is_corpus: whether only the text is read.
    """

    columns: Columns = field(default_factory=dict)
    header: bool | None = None
    separator: str | None = None
    quotes: bool | None = None
    no_label: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    is_score: bool | None = None
    is_corpus: bool = False

    def names(self, record: Record) -> dict[str, str]:
        """Our name -> the file's name, with column numbers replaced by names."""
        columns = list(record)
        names = {}
        for ours, theirs in self.columns.items():
            if isinstance(theirs, int):
                name = columns[theirs] if theirs in range(len(columns)) else None
            else:
                name = theirs if theirs in record else None
            if name is None:
                numbered = ", numbered from 0" if isinstance(theirs, int) else ""
                raise CourseError(
                    f"there is no column {theirs!r};"
                    f" the columns are {', '.join(columns)}{numbered}."
                )
            names[ours] = name
        return names


def parse(text: str) -> dict[str, str | int]:
    """Parse the option `--columns` of a command.

    >>> parse("text=review,label=2")
    {'text': 'review', 'label': 2}
    """
    columns: dict[str, str | int] = {}
    for part in text.split(","):
        ours, _, theirs = (word.strip() for word in part.partition("="))
        if not ours or not theirs:
            raise CourseError(
                f"--columns {text!r} is not understood; say it as text=review,label=stars."
            )
        if ours in columns:
            raise CourseError(f"--columns {text!r} says {ours} twice.")
        columns[ours] = int(theirs) if re.fullmatch("[0-9]{1,9}", theirs) else theirs
    return columns


def column_map(columns: Columns) -> ColumnMap:
    """Turn a user's `columns=` into a `ColumnMap`.

    Raises:
        CourseError: an entry is neither a column of the course nor a description of the file.
    """
    for name in columns:
        if name not in OURS + DESCRIPTIONS:
            raise CourseError(
                f"the course has no column {name!r}; its columns are {', '.join(OURS)}."
            )
    sources = [theirs for name, theirs in columns.items() if name in OURS]
    if len(set(sources)) < len(sources):
        raise CourseError(f"the columns {columns} name one of the file's twice.")
    separator = columns.get("separator")
    if separator not in (None, *SEPARATORS):
        raise CourseError(f"separator is {', '.join(SEPARATORS)}, not {separator!r}.")
    return ColumnMap(
        columns={name: theirs for name, theirs in columns.items() if name in OURS},
        header=_yes_or_no(columns, "header"),
        separator=None if separator is None else SEPARATORS[str(separator)],
        quotes=_yes_or_no(columns, "quotes"),
        no_label=_words(columns, "no_label"),
        classes=_words(columns, "class"),
        is_score=_yes_or_no(columns, "scores"),
    )


def _yes_or_no(columns: Columns, name: str) -> bool | None:
    if columns.get(name) not in (None, "yes", "no"):
        raise CourseError(f"{name} is yes or no, not {columns[name]!r}.")
    return None if name not in columns else columns[name] == "yes"


def _words(columns: Columns, name: str) -> tuple[str, ...]:
    return tuple(str(columns[name]).split("|")) if name in columns else ()


def as_option(columns: Columns) -> str:
    """These columns as an option of a command and as Python, for messages."""
    command = ",".join(f"{ours}={theirs}" for ours, theirs in columns.items())
    if not re.fullmatch(r"[\w=,./+-]*", command):  # the shell would read other signs
        command = f'"{command}"'
    return f"--columns {command} (in Python columns={json.dumps(columns, ensure_ascii=False)})"


def unknown_columns(names: Sequence[str], rows: Sequence[Sequence[Any]], has_names: bool) -> str:
    """A message that asks the user which column is which, with a guess.

    Args:
        names: the names of the columns, or the first line of a table, which may be a row.
        rows: the first rows, or lines; the message shows three of them.
        has_names: whether `names` are surely names. If not, the message asks this, too.
    """
    if has_names:
        grouped = _words_of_sentences(names, rows)
    else:
        numbers = range(len(names))
        grouped = _words_of_sentences(numbers, rows) or _words_of_sentences(names, rows[1:])
    if grouped is not None:
        sentence, word, tag = map(repr, grouped)
        return (
            f"it looks like a word in each row, with its sentence in {sentence} and its tag in"
            f" {tag}. The course reads a sentence in each row; write these by pandas:"
            f" table.groupby(table[{sentence}].ffill(), sort=False).agg(tokens=({word}, list),"
            f" labels=({tag}, list)).to_json('train.jsonl', orient='records', lines=True)."
        )
    rows = rows[:3]
    lines = [_line(row) for row in rows]
    if has_names:
        lines = [_line(names), *lines]
        say = as_option(_likely(list(names), rows))
    else:
        say = as_option(_likely(list(range(len(names))), rows))
        if _may_be_header(names, rows[1:]):
            named = as_option(_likely(list(names), rows[1:]))
            say = f"{named} if the first line is a header, {say} if it is a row"
    begin = " / ".join(lines)
    return f"the columns are not known. It begins: {begin}. Say which is which, for instance {say}."


def _words_of_sentences(
    names: Sequence[str | int], rows: Sequence[Sequence[Any]]
) -> tuple[str | int, str | int, str | int] | None:
    """Find the columns (sentence, word, tag) of a table in which each row is a word.

    In such a table the rows of a sentence follow each other and have the same sentence number:

        1  Anna  B-PER
        1  slept O
        2  Theo  B-PER

    Returns:
        The three columns; None if the table does not look like that.
    """
    if len(names) < 3 or any(len(row) != len(names) for row in rows):
        return None
    cells = [[str(row[i]) for row in rows] for i in range(len(names))]
    sentences = [i for i, column in enumerate(cells) if are_sentence_numbers(column)]
    if not sentences:
        return None
    others = [i for i in range(len(names)) if i != sentences[0]]
    if any(len(cell.split()) != 1 for i in others for cell in cells[i]):
        return None
    different = {i: len(set(cells[i])) for i in others}
    word = next((i for i in others if not any(map(is_number, cells[i]))), None)
    # Of several columns with tags the last one, as in CoNLL 2003.
    tags = [i for i in others if i != word and different[i] < len(rows)]
    if word is None or not tags or different[tags[-1]] > different[word]:
        return None
    return names[sentences[0]], names[word], names[tags[-1]]


def are_sentence_numbers(column: Sequence[str]) -> bool:
    """Whether the cells of a column number sentences: 7 7 8, or "Sentence: 7" and blank cells.

    Neighbouring rows have the same number, or only the first row of a sentence has one.
    """
    number = ""
    filled = []
    for cell in column:
        number = cell or number
        filled.append(number)
    runs = [number for number, _ in groupby(filled)]
    are_numbered = all(re.search("[0-9]", number) for number in runs)
    return are_numbered and 1 < len(runs) == len(set(runs)) and 2 * len(runs) <= len(column)


def _may_be_header(first: Sequence[Any], others: Sequence[Sequence[Any]]) -> bool:
    """Whether a table's first line looks like a header: short words that the next lines lack."""
    for cell in first:
        comes_again = cell and any(cell in row for row in others)
        if comes_again or len(cell) >= 30 or is_number(cell):
            return False
    return True


def _line(cells: Sequence[Any]) -> str:
    texts = [" ".join(str(cell).split()) for cell in cells]
    return " | ".join(text if len(text) <= SHOWN else f"{text[:SHOWN]}..." for text in texts)


def _likely(names: list[Any], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Guess which column is which, for a message: long cells are texts, repeated ones labels."""
    if len(names) < 2:
        return {"text": names[0] if names else 0, "label": "NAME"}
    if all(isinstance(name, str) and re.fullmatch("[a-z]{2}", name) for name in names):
        return {"text": names[0], "target": names[1]}  # two languages
    cells = {i: [str(row[i]) for row in rows if i < len(row)] for i in range(len(names))}
    sizes = {i: sum(map(len, column)) for i, column in cells.items()}  # in characters
    numbers = [i for i, column in cells.items() if column and all(map(is_number, column))]

    # The text is the longest column, and the next longest may be its pair; numbers come last.
    by_size = sorted(cells, key=lambda i: (i not in numbers, sizes[i]), reverse=True)
    text, second, *_ = by_size
    # The label has the fewest different values; of several such columns the shortest.
    candidates = [i for i in by_size[1:] if sizes[i]] or by_size[1:]
    label = min(candidates, key=lambda i: (len(set(cells[i])), sizes[i] if i not in numbers else 0))
    is_long = 2 * sizes[second] >= sizes[text]
    has_words = any(" " in cell for cell in cells[second])
    if second not in (label, *numbers) and is_long and has_words:
        return {"text": names[text], "pair": names[second], "label": names[label]}
    return {"text": names[text], "label": names[label]}


def is_number(text: str) -> bool:
    """Whether a label is a finite number, such as 1 or 3.25."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def is_whole(text: str) -> bool:
    """Whether a label is a whole number without a point, such as 1 or -12."""
    return re.fullmatch("[-+]?[0-9]+", text) is not None


def has_label(record: Record, names: Mapping[str, str], no_label: Collection[str]) -> bool:
    """Whether a record has a label, or a label for each word. Blank cells and NaN are no labels."""
    column = names.get("labels", names.get("label", ""))
    if column not in record:
        return True
    value = record[column]
    labels = value if isinstance(value, list) else [value]
    return not any(_is_missing(label, no_label) for label in labels)


def _is_missing(label: Any, no_label: Collection[str]) -> bool:
    if label is None or label != label:  # NaN is unequal to itself
        return True
    text = str(label).strip()
    if is_number(text) and float(text).is_integer():
        text = f"{float(text):.0f}"  # pandas writes -1 as -1.0
    return text in ("", *no_label)


def map_row(
    record: Record, names: Mapping[str, str], is_score: bool | None = None
) -> dict[str, Any]:
    """Rename a record's columns and check their values. Other columns are dropped.

    Only a question keeps its `id` and `title`, and a sentence of a treebank its grammar.

    Args:
        record: the record with the file's own column names.
        names: our name -> the file's name, from `ColumnMap.names`.
        is_score: whether the label is a score; None decides by what the label looks like.

    Raises:
        CourseError: a value is of the wrong type.
    """
    out = {ours: record[theirs] for ours, theirs in names.items()}
    for name in ("text", "pair", "target"):
        if name in out and not (isinstance(out[name], str) and any(map(_is_seen, out[name]))):
            fault = "empty" if out[name] == "" else f"{_short(out[name])} instead of text"
            advice = "correct it, or choose another column"
            if isinstance(out[name], dict | list):
                advice = "a row is an object of its own (in pandas to_json(orient='records'))"
            raise CourseError(f"the {name} is {fault}; {advice}.")
    if "answers" in out:
        out |= {name: str(record[name]) for name in ("id", "title") if name in record}
        out |= answer(out["pair"], out["answers"])
    elif "tokens" in out:
        if "heads" in record:  # a treebank
            tree = ("text", "upos", "heads", "deprels")
            out |= {name: record[name] for name in tree if name in record}
        _check_tokens(out)
    elif "choices" in out:
        _check_choices(out)
    elif isinstance(out.get("label"), list):  # all labels of a text
        out["label"] = [label(value) for value in out["label"]]
    elif "label" in out:
        out["label"] = label(out["label"], is_score)
    return out


def _is_seen(character: str) -> bool:
    """Whether a character can be seen: neither a blank nor a character without width."""
    return character.isprintable() and not character.isspace()


def label(value: Any, is_score: bool | None = None) -> str | float:
    """A label as a text if it is a class, and as a float if it is a score.

    >>> label("good"), label(1), label(1.5)
    ('good', '1', 1.5)

    Args:
        value: the value in the file.
        is_score: whether it is a score; None: it is one if it is a float.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = value.strip()
    elif isinstance(value, int | float):
        text = str(value)
    else:
        raise CourseError(f"the label is {_short(value)} instead of a word or a number.")

    if is_score is False:
        is_whole_float = is_number(text) and float(text).is_integer()
        return str(int(float(text))) if is_whole_float else text  # pandas writes 1 as 1.0
    if is_score and not is_number(text):
        comma = ", write a point in place of its comma" if is_number(text.replace(",", ".")) else ""
        raise CourseError(f"the score {_short(value)} is no number{comma}.")
    if _is_infinite(text):
        raise CourseError(f"the label {_short(value)} is no finite number.")
    if is_score or isinstance(value, float):
        return float(text)
    return text


def _is_infinite(text: str) -> bool:
    try:
        return math.isinf(float(text))
    except ValueError:
        return False


def answer(passage: str, answers: Any) -> Row:
    """The first answer to a question, its position, and all right answers.

    Args:
        passage: the text that the answers are copied from.
        answers: a list of objects as in SQuAD's files, or one object of lists as on the hub.

    Returns:
        `answer`, the position `start` of its first character in the passage, and the list
        `answers`. They are "", -1 and an empty list if the question has no answer.

    Raises:
        CourseError: the passage does not have an answer at its position.
    """
    try:
        if isinstance(answers, Mapping):
            pairs = list(zip(answers["text"], answers["answer_start"], strict=True))
        else:
            pairs = [(item["text"], item["answer_start"]) for item in answers]
    except (KeyError, TypeError, ValueError):
        raise CourseError("its answers are not in SQuAD's form.") from None
    for text, start in pairs:
        if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
            raise CourseError("its answers are not in SQuAD's form.")
        if not text or start < 0 or passage[start : start + len(text)] != text:
            raise CourseError(
                f"the answer {_short(text)} is not at character {start} of its passage."
            )
    text, start = pairs[0] if pairs else ("", -1)
    return {"answer": text, "start": start, "answers": [text for text, _ in pairs]}


def _check_tokens(out: dict[str, Any]) -> None:
    """Check the words of a sentence and their labels, and turn the labels into texts."""
    tokens = out["tokens"]
    if not isinstance(tokens, list) or not tokens or not all(isinstance(t, str) for t in tokens):
        advice = ""
        if isinstance(tokens, str):
            advice = (
                "; a file with a word in each line ends in .conll, and has a blank line between"
                " sentences"
            )
        raise CourseError(f"the tokens are {_short(tokens)} instead of a list of words{advice}.")
    if "labels" not in out:
        return
    labels = out["labels"]
    if not isinstance(labels, list) or len(labels) != len(tokens):
        raise CourseError(
            f"the labels {_short(labels)} are not one for each of {len(tokens)} tokens."
        )
    out["labels"] = [str(label(value, is_score=False)) for value in labels]


def _check_choices(out: dict[str, Any]) -> None:
    """Check the choices of a row, and turn the label into the number of a choice."""
    choices = out["choices"]
    are_texts = isinstance(choices, list) and all(isinstance(choice, str) for choice in choices)
    if not are_texts or len(choices) < 2:
        raise CourseError(
            f"the choices are {_short(choices)} instead of a list of two texts or more."
        )
    if "label" not in out:
        return
    if not is_whole(str(out["label"])) or not 0 <= int(out["label"]) < len(choices):
        raise CourseError(
            f"the label {out['label']!r} is no choice; they are numbered 0 to {len(choices) - 1}."
        )
    out["label"] = int(out["label"])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 50 else f"{text[:47]}..."
