"""Every task as text in and text out, in T5's wording (Raffel et al. 2020, section 2.4 and appendix D).

    sst2 sentence: a film of great warmth                  -> positive
    mrpc sentence1: He left. sentence2: He went away.      -> equivalent
    translate English to German: The house is old.         -> Das Haus ist alt.

`rows` words the examples of a labelled task, `label_of` reads a class or a score out of what a model wrote, and
`mixing` draws the rows of several tasks into one batch.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from course_lib.errors import CourseError

STEP = 0.2  # scores are rounded to this before they are written, as T5 does for STS-B


@dataclass(frozen=True)
class Wording:
    """How one task is said. prefix: in front of everything. fields: the course's column -> its name in the text, ""
    for none. labels: the classes as words; none for a score, or a target that is text already."""

    prefix: str
    fields: Mapping[str, str] = field(default_factory=lambda: {"text": "sentence"})
    labels: Sequence[str] = ()

    def source(self, item: Mapping[str, Any]) -> str:
        """What the encoder reads.

        Raises:
            CourseError: a column is missing.
        """
        if missing := [column for column in self.fields if column not in item]:
            raise CourseError(f"The wording of {self.prefix!r} needs the column {missing[0]!r}; there is none.")
        parts = [f"{name}: {item[column]}" if name else str(item[column]) for column, name in self.fields.items()]
        return " ".join([self.prefix, *parts])

    def target(self, item: Mapping[str, Any]) -> str:
        """What the decoder says: the label as a word, the score rounded to a fifth, or the text there is.

        Raises:
            CourseError: a label outside the classes, or neither a label nor a target.
        """
        if "target" in item:
            return str(item["target"])
        if "label" not in item:
            raise CourseError(f"An example of {self.prefix!r} has neither a label nor a target.")
        label = item["label"]
        if not self.labels:
            return f"{round(float(label) / STEP) * STEP:.1f}"
        if not (isinstance(label, int) and 0 <= label < len(self.labels)):
            raise CourseError(f"The label {label!r} of {self.prefix!r} is not one of 0 to {len(self.labels) - 1}.")
        return self.labels[label]

    def label_of(self, written: str) -> int | float | None:
        """The class or the score that a model's answer names; None for any other words, which count as wrong."""
        written = written.strip()
        if self.labels:
            return self.labels.index(written) if written in self.labels else None
        try:
            return float(written)
        except ValueError:
            return None


PAIR = {"text": "sentence1", "pair": "sentence2"}
WORDINGS = {
    "cola": Wording("cola", labels=("unacceptable", "acceptable")),
    "sst2": Wording("sst2", labels=("negative", "positive")),
    "mrpc": Wording("mrpc", PAIR, ("not_equivalent", "equivalent")),
    "stsb": Wording("stsb", PAIR),
    "rte": Wording("rte", PAIR, ("entailment", "not_entailment")),
    "mnli": Wording("mnli", {"pair": "hypothesis", "text": "premise"}, ("entailment", "neutral", "contradiction")),
    "qnli": Wording("qnli", {"text": "question", "pair": "sentence"}, ("entailment", "not_entailment")),
    "summary": Wording("summarize:", {"text": ""}),
    "squad": Wording("question:", {"text": "", "pair": "context"}),
}


def translation(source: str, target: str) -> Wording:
    """The wording of a translation between two languages, named in English."""
    return Wording(f"translate {source} to {target}:", {"text": ""})


def rows(data: Iterable[Mapping[str, Any]], wording: Wording | str) -> Iterator[dict[str, str]]:
    """Columns `text` and `target` for `inputs.SourceTarget`.

    Args:
        data: examples in the course's columns. wording: one of `WORDINGS` by its name, or your own.

    Raises:
        CourseError: no such wording, a missing column, a label outside the classes.
    """
    if isinstance(wording, str):
        if wording not in WORDINGS:
            raise CourseError(f"There is no wording {wording!r}; there are {', '.join(WORDINGS)}.")
        wording = WORDINGS[wording]
    for item in data:
        answer = {"target": item["answer"]} if "answer" in item and "target" not in item else {}
        yield {"text": wording.source(item), "target": wording.target({**item, **answer})}
