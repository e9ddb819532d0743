"""Turn the rows of a task into token ids and labels, and these into batches.

    row      {"text": "a fine film", "label": 1}
    frame    Frame(tokenizer, model.stack.config, "single", classes=2)
    ids      [CLS] a fine film [SEP]

What the model reads depends on the model and on the number of texts:

    an encoder (BERT)             [CLS] text [SEP]                    one text
                                  [CLS] text [SEP] pair [SEP]         two texts
    a decoder (GPT-1, sec. 3.3)   <start> text <extract>
                                  <start> text <delimiter> pair <extract>

A decoder's three special tokens are called task tokens here. They are new: they come after the last
token of its vocabulary. A classifier reads the vector at [CLS] or, in a decoder, at <extract>. An
encoder-decoder with a classifier reads what an encoder reads.
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

from course_lib.data.batch_plans import Shuffled, SimilarLength
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError, CourseWarning
from course_lib.model.config import Kind, StackConfig
from course_lib.objectives.collate import pad_to_longest
from course_lib.objectives.losses import Batch
from course_lib.vocab import IGNORE

COLUMNS: dict[Kind, tuple[str, ...]] = {
    # a question, a passage, the answer, and the position of its first character in the passage
    "span": ("text", "pair", "answer", "start"),
    "choice": ("text", "choices", "label"),  # the label is the number of the right choice
    "tagging": ("tokens", "labels"),  # one label for each word
    "pair": ("text", "pair", "label"),
    "single": ("text", "label"),
}
DEFAULT_LENGTH = 512  # tokens, if neither the model nor the tokenizer has a limit
# GPT-1's special tokens for tasks (Radford et al. 2018, figure 1).
TASK_TOKENS = ("<start>", "<delimiter>", "<extract>")


class Passage(NamedTuple):
    """The text that contains the answer to a question.

    Attributes:
        text: the passage.
        offsets: for each token of the input, the characters (start, stop) of `text` that it covers;
            None for a token outside the passage.
    """

    text: str
    offsets: tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True)
class EncodedRow:
    """One example as token ids with special tokens.

    Attributes:
        ids: token ids; for "choice" a list for each candidate, otherwise one list.
        segments: for each token, 0 in the first text and 1 in the second.
        label: what the model must predict: a class number, a score, or a list. For "tagging" the
            list has a label for each token, for "span" the first and the last token of the answer.
        truth: what a prediction is compared with: the label or labels, the labels of all words, or
            the text of the target or answer (a list if several answers are right).
        words: for "tagging", the position of the token that has each word's label; -1 if the word
            was cut off.
        passage: for "span", the text that contains the answer; None for other tasks.
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
    """The kind of task that has these columns, such as "pair" for text, pair, label.

    Raises:
        CourseError: no task has these columns.
    """
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
        tokenizer: the model's tokenizer.
        config: the configuration of the model's Transformer.
        kind: the kind of task, a key of `COLUMNS`.
        classes: number of classes; None if the labels are scores.
        max_length: maximum number of tokens in an input; None takes the longest that the model's
            positions and the tokenizer allow.
        multi_label: whether a row's label is a list of classes.
        task_tokens: whether to put the task tokens around a decoder's texts. False is for the
            tokenizer of a public fine-tuned model, which adds its own special tokens.
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
        task_tokens: bool = True,
    ) -> None:
        self.kind = kind
        self.classes = classes
        self.multi_label = multi_label
        self.length = _length(config, tokenizer, max_length)
        # An encoder-decoder has a causal decoder, but its classifier reads what an encoder reads.
        self.causal = config.causal and not config.cross
        self.segments = config.embed.segments > 1
        self.tokenizer = with_task_tokens(tokenizer) if self.causal and task_tokens else tokenizer

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
            return batch | {"labels": _multi_hot(labels, self.classes or 0)}
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
            [encoding.ids for encoding in codes],
            [encoding.segments for encoding in codes],
            label=item["label"],
            truth=item["label"],
            is_cut=any(encoding.is_cut for encoding in codes),
        )

    def _tagging(self, item: Mapping[str, Any]) -> EncodedRow:
        """Words with labels. One token of each word gets its label, the others get -100.

        For an encoder this is the word's first token. For a decoder it is the last one, because
        only this token has seen the whole word.
        """
        words = list(item["tokens"])
        labels = list(item["labels"])
        encoding = self.tokenizer.encode(words, max_length=self.length)
        carrier: dict[int, int] = {}  # word -> the token that gets its label
        for token, word in enumerate(encoding.words):
            if word is not None and (self.causal or word not in carrier):
                carrier[word] = token
        label = [IGNORE] * len(encoding)
        for word, token in carrier.items():
            label[token] = labels[word]
        carriers = tuple(carrier.get(i, -1) for i in range(len(words)))
        return EncodedRow(
            [encoding.ids],
            [encoding.segments],
            label,
            labels,
            words=carriers,
            is_cut=encoding.is_cut,
        )

    def _span(self, item: Mapping[str, Any]) -> EncodedRow:
        """A question and a passage. The label is the answer's first and last token.

        Both are -100 if the passage was cut before the answer's end.
        """
        encoding = self.tokenizer.encode(item["text"], item["pair"], max_length=self.length)
        # The special token after the question. The search starts behind [CLS], which is token 0.
        separator = encoding.words.index(None, 1)
        start = item["start"]
        end = start + len(item["answer"])
        offsets: list[tuple[int, int] | None] = []  # see `Passage.offsets`
        label = [IGNORE, IGNORE]
        covered = -1  # the answer's tokens so far end before this character
        for token, (span, word) in enumerate(zip(encoding.offsets, encoding.words, strict=True)):
            if token <= separator or word is None:
                offsets.append(None)
                continue
            offsets.append(span)
            if span[0] < end and span[1] > start:  # the token and the answer overlap
                if covered < 0:
                    label[0] = token
                label[1] = token
                covered = span[1]
        if covered < end:  # the passage was cut before the answer's end
            label = [IGNORE, IGNORE]
        answers = item.get("answers") or ()
        truth = list(answers) if len(answers) > 1 else item["answer"]
        passage = Passage(item["pair"], tuple(offsets))
        return EncodedRow(
            [encoding.ids],
            [encoding.segments],
            label,
            truth,
            passage=passage,
            is_cut=encoding.is_cut,
        )


def warn_of_cut(rows: Sequence[EncodedRow], length: int, name: str) -> None:
    """Warn if texts were longer than the maximum length.

    Args:
        rows: the encoded rows, from `Frame.rows`.
        length: the maximum number of tokens (`Frame.length`).
        name: a word for the rows, for the message.
    """
    count = sum(row.is_cut for row in rows)
    if count:
        warnings.warn(
            f"{count:,} of {len(rows):,} {name} are longer than the {length} tokens that are read;"
            " what stands behind them is left out.",
            CourseWarning,
            stacklevel=3,
        )


def _multi_hot(labels: Sequence[Sequence[int]], classes: int) -> Float[Tensor, "B C"]:
    """Labels as zeros and ones: with three classes, [[0, 2]] becomes [[1, 0, 1]]."""
    flags = torch.zeros(len(labels), classes)
    for row, numbers in enumerate(labels):
        flags[row, list(numbers)] = 1.0
    return flags


def with_task_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """A copy of a decoder's tokenizer that puts the task tokens around texts.

    The three tokens come after the last token of the vocabulary.
    """
    backend = type(tokenizer.backend).from_str(tokenizer.backend.to_str())
    backend.add_special_tokens(list(TASK_TOKENS))  # a saved tokenizer has them already
    start, delimiter, extract = TASK_TOKENS
    backend.post_processor = TemplateProcessing(
        single=f"{start} $A {extract}",
        pair=f"{start} $A {delimiter} $B {extract}",
        special_tokens=[(name, backend.token_to_id(name)) for name in TASK_TOKENS],
    )
    return Tokenizer(backend, tokenizer.roles, tokenizer.max_length)


class SourceTarget:
    """Turns texts and their targets (a translation, a summary) into batches for `losses.seq2seq`.

    Args:
        tokenizer: the model's tokenizer; it adds its special tokens to both texts.
        config: the configuration of the decoder.
        max_length: maximum number of tokens in a text; None takes the longest that the model's
            positions and the tokenizer allow.
        max_target: maximum number of tokens in a target; None as for `max_length`.
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
        """A batch: `ids` and `attention_mask` [B T] of the texts, `labels` [B U] of the targets.

        After the end of a target the labels are -100.
        """
        batch = pad_to_longest([row.ids[0] for row in rows], self.tokenizer.vocab.padding_id)
        return batch | {"labels": pad_to_longest([row.label for row in rows], IGNORE)["ids"]}


class TaskBatches:
    """`batches[step]` is the batch of a step. Each epoch has every row once, in a new random order.

    Args:
        frame: makes batches of rows.
        rows: the encoded rows, from `frame.rows`.
        batch: number of rows in a batch.
        seed: seed of the random order.
        by_length: put rows of similar length into a batch, which then needs less padding.
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
        self.plan: Shuffled | SimilarLength
        if by_length:
            lengths = np.array([max(map(len, row.ids)) for row in rows])
            # The plan rounds the lengths, and so groups the rows. `collate` does not round them.
            self.plan = SimilarLength(lengths, batch, None, seed, max_width=512)
        else:
            self.plan = Shuffled(len(rows), batch, seed)
        self.per_epoch = self.plan.steps

    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""
        return self.frame.collate([self.rows[i] for i in self.plan[step]])


def in_order(
    frame: Frame | SourceTarget, rows: Sequence[EncodedRow], batch: int
) -> Iterator[tuple[list[int], Batch]]:
    """Batches for prediction, each with the numbers of its rows. Longer rows come later.

    The caller sorts the predictions by these numbers.
    """
    order = sorted(range(len(rows)), key=lambda i: max(map(len, rows[i].ids)))
    for start in range(0, len(order), batch):
        numbers = order[start : start + batch]
        yield numbers, frame.collate([rows[i] for i in numbers])


def _length(config: StackConfig, tokenizer: Tokenizer, max_length: int | None) -> int:
    """`max_length`, or less if the model or its tokenizer has a lower limit. Without limits 512."""
    limits = [limit for limit in (config.max_length, tokenizer.max_length) if limit]
    limit = min(limits, default=DEFAULT_LENGTH)
    return min(limit, max_length or limit)
