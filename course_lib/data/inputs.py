"""Encodes a task's rows as inputs and labels of a model, and makes batches of them.

    encoders (BERT)                  [CLS] text [SEP]                    one text
                                     [CLS] text [SEP] pair [SEP]         two texts
    decoders (GPT-1, section 3.3)    <start> text <extract>
                                     <start> text <delimiter> pair <extract>

Encoder-decoders with a classifier read the same inputs as encoders. The three special tokens of a
decoder are new tokens at the end of its vocabulary. Its classifier reads the vector at <extract>.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from tokenizers.processors import TemplateProcessing
from torch import Tensor

from course_lib.data.batch_plans import BatchPlan, Shuffled
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError, CourseWarning
from course_lib.model.config import Kind, StackConfig
from course_lib.objectives.collate import pad_to_longest
from course_lib.objectives.losses import Batch
from course_lib.vocab import IGNORE

COLUMNS: dict[Kind, tuple[str, ...]] = {
    # a question, a text, the answer and its first character in the text
    "span": ("text", "pair", "answer", "start"),
    "choice": ("text", "choices", "label"),  # the label is the number of the right continuation
    "tagging": ("tokens", "labels"),  # one label for each word
    "pair": ("text", "pair", "label"),
    "single": ("text", "label"),
}
# GPT-1's special tokens for tasks, which `with_marks` adds to a decoder's vocabulary.
NAMES = ("<start>", "<delimiter>", "<extract>")


class Passage(NamedTuple):
    """The text that a span task's answer is copied from.

    Attributes:
        text: the passage.
        offsets: for each token of the input, its first character in `text` and the one past its
            last; None for a token outside the passage.
    """

    text: str
    offsets: tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True)
class EncodedRow:
    """One example as token ids with special tokens.

    Attributes:
        ids: token ids; for "choice" a list for each candidate, otherwise one list.
        segments: for each token, 0 in the first text and 1 in the second.
        label: the target of the loss: a class number, a score, or a list. For "tagging" the list
            has a label for each token, for "span" the first and the last token of the answer.
        truth: the value that a prediction is scored against: the label or labels, the labels of all
            words, or the text of the target or answer (a list if several answers are right).
        words: for "tagging", the position of the token that carries each word's label; -1 if the
            word was cut off.
        passage: the text that the answer of a span task is copied from; None for other tasks.
        is_cut: whether the text was longer than the maximum length, so that its end is missing.
    """

    ids: list[list[int]]
    segments: list[list[int]]
    label: Any
    truth: Any = None
    words: tuple[int, ...] = ()
    passage: Passage | None = None
    is_cut: bool = False


def kind_of(columns: Iterable[str]) -> Kind:
    """The kind of task that has these columns."""
    have = set(columns)
    for kind, needed in COLUMNS.items():
        if have >= set(needed):
            return kind
    known = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in COLUMNS.items())
    raise CourseError(
        f"The columns {', '.join(sorted(have))} make no task the course knows ({known})."
    )


class Frame:
    """Turns rows of a task into `EncodedRow`s, and these into batches.

    Args:
        tokenizer: the model's own.
        config: of the model's stack.
        kind: of task.
        classes: number of classes; None if the labels are scores.
        max_length: maximum number of tokens in an input; None takes the longest that the model's
            positions and the tokenizer allow.
        multi_label: whether a row's label is a list with all of its classes.
        marks: whether a decoder's texts get GPT-1's special tokens. False is for the tokenizer of a
            public fine-tuned model, which adds that model's own special tokens.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        config: StackConfig,
        kind: Kind,
        *,
        classes: int | None = None,
        max_length: int | None = None,
        multi_label: bool = False,
        marks: bool = True,
    ) -> None:
        self.kind = kind
        self.classes = classes
        self.multi_label = multi_label
        self.length = _length(config, tokenizer, max_length)
        self.causal = config.causal and not config.cross
        self.segments = config.embed.segments > 1
        self.tokenizer = with_marks(tokenizer) if self.causal and marks else tokenizer

    def rows(self, data: Iterable[Mapping[str, Any]]) -> list[EncodedRow]:
        """Encode every row of a task."""
        make = {"tagging": self._tagging, "span": self._span}.get(self.kind, self._texts)
        rows: list[EncodedRow] = []
        for number, item in enumerate(data):
            missing = [name for name in COLUMNS[self.kind] if name not in item]
            if missing:
                raise CourseError(
                    f"A {self.kind} task needs the column {missing[0]!r}; row {number} has none."
                )
            if self.kind == "single" and "pair" in item:
                raise CourseError(f"This task has one text; row {number} has a second, its pair.")
            row = make(item)
            self._check_labels(row, number)
            if rows and len(row.ids) != len(rows[0].ids):
                raise CourseError(
                    f"Row {number} has {len(row.ids)} choices and row 0 has {len(rows[0].ids)}; all"
                    " rows need as many."
                )
            rows.append(row)
        return rows

    def _check_labels(self, row: EncodedRow, number: int) -> None:
        classes = len(row.ids) if self.kind == "choice" else self.classes
        if self.kind == "span" or classes is None:
            return
        if isinstance(row.label, list) != (self.multi_label or self.kind == "tagging"):
            other = "a list of labels" if self.multi_label else "one label"
            raise CourseError(f"Row {number} has the label {row.label!r}, not {other}.")
        labels = row.label if isinstance(row.label, list) else [row.label]
        for label in labels:
            if label != IGNORE and label not in range(classes):
                raise CourseError(
                    f"Row {number} has the label {label!r}; the labels are 0 to {classes - 1}."
                )

    def collate(self, rows: Sequence[EncodedRow]) -> Batch:
        """A batch of rows, padded to the longest: ids, attention_mask, segments and labels.

        The first three are [B N T] for "choice" with N candidates, otherwise [B T].
        """
        ids: list[list[int]] = []
        segments: list[list[int]] = []
        for row in rows:
            ids += row.ids
            segments += row.segments
        batch = pad_to_longest(ids, self.tokenizer.vocab.padding_id)
        if self.segments:
            batch["segments"] = pad_to_longest(segments, 0)["ids"]
        if self.kind == "choice":  # [B*N T] -> [B N T]
            batch = {
                name: value.view(len(rows), len(rows[0].ids), -1) for name, value in batch.items()
            }
        labels = [row.label for row in rows]
        if self.kind == "tagging":
            return batch | {"labels": pad_to_longest(labels, IGNORE)["ids"]}
        if self.multi_label:
            return batch | {"labels": _marked(labels, self.classes or 0)}
        are_scores = self.classes is None and self.kind in ("single", "pair")
        dtype = torch.float32 if are_scores else torch.int64
        return batch | {"labels": torch.tensor(labels, dtype=dtype)}

    def _texts(self, item: Mapping[str, Any]) -> EncodedRow:
        """One text, a text with its pair, or a text with each of its candidates."""
        seconds = [None]
        if self.kind == "choice":
            seconds = item["choices"]
        elif self.kind == "pair":
            seconds = [item["pair"]]
        codes = [
            self.tokenizer.encode(item["text"], second, max_length=self.length)
            for second in seconds
        ]
        return EncodedRow(
            [code.ids for code in codes],
            [code.segments for code in codes],
            item["label"],
            item["label"],
            is_cut=any(code.is_cut for code in codes),
        )

    def _tagging(self, item: Mapping[str, Any]) -> EncodedRow:
        """Words with a label each. One token of a word carries its label, the others have -100.

        It is the first token for an encoder. For a decoder it is the last one, because only that
        token has seen the whole word.
        """
        words = list(item["tokens"])
        labels = list(item["labels"])
        code = self.tokenizer.encode(words, max_length=self.length)
        carrier: dict[int, int] = {}
        for token, word in enumerate(code.words):
            if word is not None and (self.causal or word not in carrier):
                carrier[word] = token
        label = [IGNORE] * len(code)
        for word, token in carrier.items():
            label[token] = labels[word]
        carriers = tuple(carrier.get(i, -1) for i in range(len(words)))
        return EncodedRow(
            [code.ids], [code.segments], label, labels, words=carriers, is_cut=code.is_cut
        )

    def _span(self, item: Mapping[str, Any]) -> EncodedRow:
        """The answer as token numbers, both -100 if the text was cut before its end."""
        code = self.tokenizer.encode(item["text"], item["pair"], max_length=self.length)
        between = code.words.index(None, 1)  # the special token behind the question
        start = item["start"]
        end = start + len(item["answer"])
        places: list[tuple[int, int] | None] = []  # of the passage's tokens: first, past-the-last
        label = [IGNORE, IGNORE]
        reached = -1  # the last character of the answer that a token covers, plus 1
        for token, (place, word) in enumerate(zip(code.offsets, code.words, strict=True)):
            if token <= between or word is None:
                places.append(None)
                continue
            places.append(place)
            if place[0] < end and place[1] > start:  # the token and the answer overlap
                if reached < 0:
                    label[0] = token
                label[1] = token
                reached = place[1]
        if reached < end:  # the text was cut before the answer's end
            label = [IGNORE, IGNORE]
        answers = item.get("answers") or ()
        truth = list(answers) if len(answers) > 1 else item["answer"]
        passage = Passage(item["pair"], tuple(places))
        return EncodedRow(
            [code.ids], [code.segments], label, truth, passage=passage, is_cut=code.is_cut
        )


def warn_of_cut(rows: Sequence[EncodedRow], length: int, name: str) -> None:
    """Warn if texts were longer than the maximum length.

    Args:
        rows: made by `Frame.rows`.
        length: the frame's maximum number of tokens.
        name: what the rows are called in the message.
    """
    count = sum(row.is_cut for row in rows)
    if count:
        warnings.warn(
            f"{count:,} of {len(rows):,} {name} are longer than the {length} tokens that are read;"
            " what stands behind them is left out.",
            CourseWarning,
            stacklevel=3,
        )


def _marked(labels: Sequence[Sequence[int]], classes: int) -> Float[Tensor, "B C"]:
    """Multi-hot labels: [[0, 2]] with three classes is [[1, 0, 1]]."""
    marked = torch.zeros(len(labels), classes)
    for row, numbers in enumerate(labels):
        marked[row, list(numbers)] = 1.0
    return marked


def with_marks(tokenizer: Tokenizer) -> Tokenizer:
    """A copy of a decoder's tokenizer that puts GPT-1's special tokens around texts.

    The three tokens are added to the end of its vocabulary (Radford et al. 2018, figure 1).
    """
    backend = type(tokenizer.backend).from_str(tokenizer.backend.to_str())
    backend.add_special_tokens(list(NAMES))  # no change if it has them, as a saved one does
    start, delimiter, extract = NAMES
    backend.post_processor = TemplateProcessing(
        single=f"{start} $A {extract}",
        pair=f"{start} $A {delimiter} $B {extract}",
        special_tokens=[(name, backend.token_to_id(name)) for name in NAMES],
    )
    return Tokenizer(backend, tokenizer.roles, tokenizer.max_length)


class SourceTarget:
    """Encodes sources and targets for an encoder-decoder, and makes batches for `losses.seq2seq`.

    Args:
        tokenizer: the model's own; it adds its special tokens to sources and targets.
        config: of the decoder.
        max_length: maximum number of tokens in a source; None takes the longest that the model's
            positions and the tokenizer allow.
        max_target: the same for a target.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        config: StackConfig,
        *,
        max_length: int | None = None,
        max_target: int | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.length = _length(config, tokenizer, max_length)
        self.target = _length(config, tokenizer, max_target)
        if not tokenizer.encode("").ids:
            raise CourseError(
                "This tokenizer marks no end of a text, so a target would have none; take another."
            )

    def rows(self, data: Iterable[Mapping[str, Any]]) -> list[EncodedRow]:
        """Encode the columns `text` and `target` of every row."""
        items = list(data)
        sources = self.tokenizer.ids([item["text"] for item in items], max_length=self.length)
        targets = self.tokenizer.ids([item["target"] for item in items], max_length=self.target)
        return [
            EncodedRow([source], [[0] * len(source)], target, item["target"])
            for source, target, item in zip(sources, targets, items, strict=True)
        ]

    def collate(self, rows: Sequence[EncodedRow]) -> Batch:
        """ids and attention_mask [B T] of the sources, labels [B U] of the targets.

        After the end of a target the labels are -100.
        """
        batch = pad_to_longest([row.ids[0] for row in rows], self.tokenizer.vocab.padding_id)
        return batch | {"labels": pad_to_longest([row.label for row in rows], IGNORE)["ids"]}


class TaskBatches:
    """Step -> batch of a task. Each epoch reads every row once, in a new random order.

    Args:
        frame: collates rows to batches.
        rows: what `frame.rows` made.
        batch: number of rows in a batch.
        seed: of the order.
        by_length: whether rows of similar length share a batch, which then needs less padding.
    """

    def __init__(
        self,
        frame: Frame | SourceTarget,
        rows: Sequence[EncodedRow],
        batch: int,
        seed: int,
        by_length: bool = False,
    ) -> None:
        self.frame = frame
        self.rows = rows
        if by_length:
            lengths = np.array([max(map(len, row.ids)) for row in rows])
            self.plan: BatchPlan | Shuffled = BatchPlan(lengths, batch, None, seed, 512)
        else:
            self.plan = Shuffled(len(rows), batch, seed)
        self.per_epoch = self.plan.steps

    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""
        return self.frame.collate([self.rows[i] for i in self.plan[step]])


def in_order(
    frame: Frame | SourceTarget, rows: Sequence[EncodedRow], batch: int
) -> Iterator[tuple[list[int], Batch]]:
    """Batches for prediction, longest rows together: (row numbers, batch)."""
    order = sorted(range(len(rows)), key=lambda i: max(map(len, rows[i].ids)))
    for start in range(0, len(order), batch):
        numbers = order[start : start + batch]
        yield numbers, frame.collate([rows[i] for i in numbers])


def _length(config: StackConfig, tokenizer: Tokenizer, wanted: int | None) -> int:
    """`wanted`, but at most what the model and its tokenizer allow; 512 if none of them says."""
    limits = [limit for limit in (config.max_length, tokenizer.max_length) if limit]
    limit = min(limits, default=512)
    return min(limit, wanted or limit)
