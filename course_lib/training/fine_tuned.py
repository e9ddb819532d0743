"""Use a fine-tuned model: save it in a folder, load it again, predict.

    tuned = load("build/reviews")
    predict(tuned, [{"text": "The soup was cold."}])    # [0], the number of a class
    tuned.names[0]                                      # "bad"

A fine-tuned model is a pretrained body with a head, the output layer for a task (finetune.py).
"""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn

from course_lib import zoo
from course_lib.analysis import metrics
from course_lib.data.columns import Row
from course_lib.data.inputs import EncodedRow, Frame, in_order, warn_of_cut
from course_lib.errors import CourseError
from course_lib.files import read_json
from course_lib.model import heads
from course_lib.model.config import Kind
from course_lib.model.modes import evaluating
from course_lib.training import spans
from course_lib.training.finetune_config import CONFIG_FILE

PREDICTED_AT_ONCE = 64  # rows in a batch; without gradients they need little memory
# The kind of task that a head is for.
KIND_OF: dict[type[nn.Module], Kind] = {
    heads.Classifier: "single",  # or "pair", which has the same head
    heads.TokenClassifier: "tagging",
    heads.MultipleChoice: "choice",
    heads.QuestionAnswering: "span",
}


@dataclass(frozen=True, kw_only=True)
class FineTuned:
    """A fine-tuned model.

    Attributes:
        model: the body and the head.
        frame: turns rows of the task into the model's input.
        names: the names of the classes; empty if the model predicts scores, spans or choices.
        takes_pairs: whether a classifier reads two texts; None if its folder does not say.
    """

    model: nn.Module = field(repr=False)
    frame: Frame = field(repr=False)
    names: list[str] = field(repr=False)
    takes_pairs: bool | None = None

    def save(self, folder: str | Path) -> None:
        """Write a folder that `load` and transformers can open."""
        if self.names:
            self.model.class_names = tuple(self.names)  # type: ignore[assignment]
        zoo.save_pretrained(self.model, folder, tokenizer=self.frame.tokenizer)


def load(source: str | Path) -> FineTuned:
    """Load a fine-tuned model from a folder or the hub. transformers may have written the folder.

    Raises:
        CourseError: there is no model, or it has no head for a task.
    """
    model, tokenizer, _ = zoo.open_model(source)
    kind = KIND_OF.get(type(model))
    if kind is None:
        raise CourseError(
            f"{source} is not fine-tuned: a {type(model).__name__} has no head for a task's"
            " answers."
        )
    count = model.out.out_features if kind in ("single", "tagging") else None
    class_names = getattr(model, "class_names", None)
    if not class_names:
        class_names = range(count or 0)  # classes without names are called "0", "1", ...
    names = [str(name) for name in class_names]
    multi_label = kind == "single" and model.multi_label
    if kind == "single" and count == 1 and not multi_label:
        count = None  # a single output is a score
        names = []
    takes_pairs = _takes_pairs(source)
    if kind == "single" and takes_pairs:
        kind = "pair"
    frame = Frame(
        tokenizer,
        model.stack.config,
        kind,
        classes=count,
        multi_label=multi_label,
        task_tokens=False,
    )
    return FineTuned(model=model, frame=frame, names=names, takes_pairs=takes_pairs)


def predict(tuned: FineTuned | str | Path, data: Iterable[Row]) -> list[Any]:
    """Predict the labels of new rows. If the rows have labels, they are ignored.

    Args:
        tuned: the model, or the folder that it was saved in.
        data: rows with the columns of its task.

    Returns:
        One entry for each row, by the kind of task: a class number (an index in
        `FineTuned.names`), the numbers of all labels with a probability above 0.5, a score, a list
        of tags, the number of the chosen candidate, or a text.
    """
    if not isinstance(tuned, FineTuned):
        tuned = load(tuned)
    rows = list(data)
    frame = tuned.frame
    # A classifier has the same head for one text and for two. If its folder does not say which, the
    # first row decides.
    is_unknown = tuned.takes_pairs is None and frame.kind == "single"
    if is_unknown and rows and "pair" in rows[0]:
        frame = copy(frame)  # the caller's model keeps its own
        frame.kind = "pair"
    encoded = frame.rows({**row, **_blank_labels(frame, row)} for row in rows)
    warn_of_cut(encoded, frame.length, "texts")
    predictions, _ = answers(tuned.model, frame, encoded, tuned.names)
    return predictions


@torch.no_grad()
def answers(
    model: nn.Module, frame: Frame, rows: list[EncodedRow], names: list[str]
) -> tuple[list[Any], list[Any]]:
    """Run the model on encoded rows. Returns the predictions and the right answers of all rows."""
    predictions: list[Any] = [None] * len(rows)
    device = next(model.parameters()).device
    with evaluating(model):
        for numbers, batch in in_order(frame, rows, PREDICTED_AT_ONCE):
            inputs = {name: value.to(device) for name, value in batch.items() if name != "labels"}
            out = model(**inputs)
            for index, number in enumerate(numbers):
                predictions[number] = _answer(frame, rows[number], out, index, names)
    truth = [row.truth for row in rows]
    if frame.kind == "tagging":
        truth = [[names[label] for label in labels] for labels in truth]
    return predictions, truth


def score(metric: str, predictions: list[Any], truth: list[Any], kind: Kind) -> float:
    """Score predictions by a metric in `metrics.METRICS`.

    A metric of single labels gets the tags of all sentences in one list.
    """
    if metric not in metrics.OF_SEQUENCES and kind == "tagging":
        predictions = list(chain.from_iterable(predictions))
        truth = list(chain.from_iterable(truth))
    return metrics.METRICS[metric](predictions, truth)


def per_class(
    kind: Kind, predictions: list[Any], truth: list[Any], names: list[str]
) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and number of rows of each class, by its name."""
    if not names:
        return {}
    if kind == "tagging":
        number = {name: i for i, name in enumerate(names)}
        predictions = [number[tag] for row in predictions for tag in row]
        truth = [number[tag] for row in truth for tag in row]
    return metrics.per_class(predictions, truth, names)


def _takes_pairs(source: str | Path) -> bool | None:
    """Whether a folder's classifier was tuned on two texts; None if the folder does not say."""
    file = Path(source) / CONFIG_FILE
    kind = read_json(file).get("kind") if file.is_file() else None
    return None if kind is None else kind == "pair"


def _blank_labels(frame: Frame, row: Row) -> dict[str, Any]:
    """Placeholders for the columns with labels: `Frame.rows` needs them, a prediction does not."""
    if frame.kind == "tagging":
        return {"labels": [0] * len(row.get("tokens", ()))}
    if frame.kind == "span":
        return {"answer": "", "start": 0, "answers": None}
    return {"label": [] if frame.multi_label else 0}


def _answer(frame: Frame, row: EncodedRow, out: Any, index: int, names: Sequence[str]) -> Any:
    """The prediction for one row: row `index` of the batch whose output is `out`."""
    if frame.kind == "span":
        start, end = out
        return spans.answer_text(row, start[index], end[index])
    scores = out[index].float().cpu()
    if frame.kind == "tagging":
        # A word that was cut off gets the tag "O", or the first one if there is no "O".
        cut_off = names.index("O") if "O" in names else 0
        tags = scores.argmax(-1).tolist()
        return [names[tags[token] if token >= 0 else cut_off] for token in row.words]
    if frame.multi_label:
        return (scores > 0).nonzero().flatten().tolist()  # logit above 0: probability above 0.5
    if frame.classes is None and frame.kind != "choice":
        return scores.squeeze(-1).item()
    return int(scores.argmax())
