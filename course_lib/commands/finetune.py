"""The commands `finetune` and `predict`.

The options of `finetune` are the fields of `FinetuneConfig`, besides those that are listed here.
"""

import re
import warnings
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from course_lib.commands.options import (
    ColumnsOption,
    Device,
    Model,
    Threads,
    named,
    options_of,
)
from course_lib.commands.screen import print_table, progress
from course_lib.errors import CourseError, CourseWarning
from course_lib.files import locked
from course_lib.training.finetune_config import FinetuneConfig

if TYPE_CHECKING:
    from course_lib.data.columns import Columns

Row = Mapping[str, Any]  # in the course's columns
# Two letters of a script without blanks: Thai, Lao, Burmese, Khmer, Japanese, Chinese.
WITHOUT_BLANKS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]{2}"
)


@options_of(FinetuneConfig)
def finetune(
    model: Model,
    task: Annotated[
        str,
        typer.Option(
            help="Labelled rows: a file or folder, hub:NAME, or NAME/TASK of an installed source."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to save the model in, for `predict`. By default it is not saved.",
            callback=named,
        ),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option(help="Train on so many rows, drawn by the seed. By default on all.", min=1),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            help="The split to score. By default test, or validation if test has no labels."
        ),
    ] = None,
    columns: ColumnsOption = None,
    device: Device = "auto",
    threads: Threads = 0,  # not used here: its callback has set the number
    **options: Any,
) -> None:
    """Fine-tune a model on one task and score it.

    Example: python -m course_lib finetune bert-english --task reviews.csv
    --columns text=review,label=stars --test train --out build/reviews
    """
    # Importing torch takes seconds, so it is done here: `--help` does not need it.
    from course_lib import data, zoo
    from course_lib.training import finetune as tuning

    config = FinetuneConfig(device=device, out=out, **options)
    loaded = zoo.open_model(model)
    wanted = _columns(columns)
    test = test or data.held_out(task, columns=wanted)
    rows = {
        "train": data.task(task, n=n, columns=wanted, seed=config.seed),
        "test": data.task(task, split=test, columns=wanted, seed=config.seed),
    }
    _warn_of_copies(rows["train"], rows["test"], test)
    # -(-a // b) is a / b, rounded up: the last batch of an epoch may be smaller.
    steps = config.epochs * -(-len(rows["train"]) // config.batch)
    lock = nullcontext() if out is None else locked(out)
    with lock, progress(steps) as watch:
        result = tuning.finetune(
            loaded.model,  # with BERT's pooler, if it has one
            rows,
            loaded.tokenizer,
            config,
            live=lambda training, _: map(watch, training),
        )
    if result.per_class:
        table = []
        for name, row in result.per_class.items():
            scores = [f"{row[key]:.3f}" for key in ("precision", "recall", "f1")]
            table.append([name, *scores, f"{row['count']:,.0f}"])
        print_table(table, "class", "precision", "recall", "F1", "rows")
    for split, count in result.cut.items():
        if count:
            print(f"{count:,} {split} rows are longer than the model reads; their ends are cut off")
    print(
        f"{result.metric} {result.score:.4f} on {len(result.truth):,} {test} rows,"
        f" {result.seconds:.0f} s"
    )
    if out is not None:
        print(f"written to {out}")


def _warn_of_copies(train: Iterable[Row], test: Iterable[Row], split: str) -> None:
    """Warn of test rows that are also training rows: their score says nothing of new rows."""

    def inputs(row: Row) -> str:
        return repr([row.get(name) for name in ("text", "pair", "tokens", "choices")])

    learned = set(map(inputs, train))
    copies = [row for row in test if inputs(row) in learned]
    if copies and split == "train":
        warnings.warn("The score is that of the training rows.", CourseWarning, stacklevel=2)
    elif copies:
        warnings.warn(
            f"{len(copies):,} of the {split} rows are training rows, too; the score is too good.",
            CourseWarning,
            stacklevel=2,
        )


def predict(
    model: Annotated[
        str,
        typer.Argument(help="A folder that `finetune --out` wrote, or a fine-tuned model's name."),
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="TEXT|FILE", help="A text, or a file of texts: one a line, or a table."
        ),
    ],
    pair: Annotated[
        str | None, typer.Option(help="The second text, where the task has two.")
    ] = None,
    columns: ColumnsOption = None,
    threads: Threads = 0,
) -> None:
    """Predict with a fine-tuned model: one line for each text, the prediction first.

    Example: python -m course_lib predict build/sentiment "The soup was cold."
    """
    # Importing torch takes seconds, so it is done here: `--help` does not need it.
    from course_lib.training import finetune as tuning

    tuned = tuning.load(model)
    rows = _rows(source, pair, _columns(columns), tuned.frame.kind)
    for row, answer in zip(rows, tuning.predict(tuned, rows), strict=True):
        if tuned.frame.multi_label:
            answer = ", ".join(tuned.names[label] for label in answer) or "(no label)"
        elif tuned.frame.kind in ("single", "pair") and tuned.names:
            answer = tuned.names[answer]
        if isinstance(answer, list):
            answer = " ".join(answer)
        if isinstance(answer, float):
            answer = f"{answer:.3f}"
        texts = [row[key] for key in ("text", "pair") if key in row] or [" ".join(row["tokens"])]
        print(*map(_one_line, [answer, *texts]), sep="\t")


def _one_line(text: object) -> str:
    """The text in one cell of the printed table: tabs and line breaks become blanks."""
    return re.sub(r"[\t\r\n]", " ", str(text))


def _columns(text: str | None) -> "Columns | None":
    from course_lib.data.columns import parse

    return None if text is None else parse(text)


def _rows(
    source: str, pair: str | None, columns: "Columns | None", kind: str
) -> list[dict[str, Any]]:
    """The rows to predict: a text, or those of a file, with or without their labels."""
    from course_lib import data

    if pair is not None and (kind in ("tagging", "choice") or not pair.strip()):
        raise CourseError("--pair is empty, or the model takes none; leave it out.")
    rows: list[dict[str, Any]]
    if _is_file(source):
        rows = [dict(row) for row in data.unlabelled(source, columns=columns)]
    elif columns is not None:
        raise CourseError(f"--columns is for a file, and {source[:40]!r} is a text; leave it out.")
    else:
        rows = [{"text": source}]
    for row in rows:
        if pair is not None and "pair" in row:
            raise CourseError(f"{source} has a second text in each row; leave out --pair.")
        if pair is not None:
            row["pair"] = pair
        if kind == "pair" and "pair" not in row:
            raise CourseError("The model was tuned on two texts; give the second by --pair.")
        if kind == "tagging" and "tokens" not in row:
            row["tokens"] = row.pop("text").split()
            _warn_of_one_word(row["tokens"])
    return rows


def _warn_of_one_word(words: list[str]) -> None:
    """Warn of a text without blanks in a script that has none: a tagger reads it as one word."""
    if len(words) == 1 and WITHOUT_BLANKS.search(words[0]):
        warnings.warn(
            f"{words[0][:20]!r} is one word for the tagger, because it has no blanks. Put blanks"
            " between the words.",
            CourseWarning,
            stacklevel=4,
        )


def _is_file(source: str) -> bool:
    """Whether the argument is the path of a file, and not a text to predict for.

    Raises:
        CourseError: it is empty, a folder, or looks like a path and there is no such file.
    """
    if not source.strip():
        raise CourseError("The text is empty; give a text, or the path of a file.")
    path = Path(source)
    try:
        is_folder = path.is_dir()
        is_file = path.is_file()
        is_other = path.exists()  # a device, a pipe
    except (OSError, ValueError):  # a text may be too long for a path, or hold a NUL
        return False
    if is_folder:
        raise CourseError(f"{source} is a folder; give a text, or the path of one file.")
    if not is_file and (is_other or _is_like_a_path(source)):
        raise CourseError(f"There is no file {source}; give a text, or the path of one file.")
    return is_file


def _is_like_a_path(source: str) -> bool:
    """Whether a text looks like a path: one word with a slash, or a data file's ending."""
    from course_lib import hub
    from course_lib.data import folders, lines

    if lines.unpacked(Path(source)).suffix.lower() in folders.ENDING:
        return True
    is_one_word = not any(map(str.isspace, source))
    return is_one_word and ("/" in source or "\\" in source or source.startswith(hub.PREFIX))
