"""From a task's rows to what a model reads, for both ways of framing an input.

Encoders (BERT): [CLS] text [SEP] or [CLS] text [SEP] pair [SEP]; segments 0 and 1.
Decoders (GPT-1, section 3.3): start text extract, or start text delimiter pair extract; the extract token's
vector is what the classifier reads. The three marks are new tokens at the end of the vocabulary.
Encoder-decoders: a task with labels as encoders have it; text in, text out by `SourceTarget`.

Columns, one kind of task each:
    single   text, label                  one text, one label
    pair     text, pair, label            two texts, one label
    tagging  tokens, labels               one label a word
    choice   text, choices, label         which of the continuations
    span     text, pair, answer, start    a question, a text, the answer and its first character in the text
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from course_lib.config import Learned, StackConfig
from course_lib.corrupt import IGNORE, generator
from course_lib.errors import CourseError
from course_lib.losses import Batch
from course_lib.tokenizers import Tokenizer

Kind = Literal["single", "pair", "tagging", "choice", "span"]
COLUMNS: dict[Kind, tuple[str, ...]] = {
    "span": ("text", "pair", "answer", "start"),
    "choice": ("text", "choices", "label"),
    "tagging": ("tokens", "labels"),
    "pair": ("text", "pair", "label"),
    "single": ("text", "label"),
}
MARKS = 3  # tokens that a decoder's inputs need beside the vocabulary: start, delimiter, extract


@dataclass(frozen=True)
class Row:
    """One framed input. For "choice" there is one inner list a candidate, otherwise one in all.

    ids, segments: the tokens. label: class number, score, or a list (a label a token; the answer's first and
    last token).
    words: for "tagging", the token that carries each word's label, -1 where it was cut off. context: for
    "span", the
    text, and the characters (first, past the last) of each token in it, None outside it; answers: all that count.
    """

    ids: list[list[int]]
    segments: list[list[int]]
    label: Any
    words: tuple[int, ...] = ()
    truth: tuple[int, ...] = ()
    answer: str = ""
    answers: tuple[str, ...] = ()
    context: tuple[str, tuple[tuple[int, int] | None, ...]] | None = None


def kind_of(columns: Iterable[str]) -> Kind:
    """The kind of task that these columns make.

    Raises:
        CourseError: none of them.
    """
    have = set(columns)
    for kind, needed in COLUMNS.items():
        if have >= set(needed):
            return kind
    known = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in COLUMNS.items())
    raise CourseError(f"The columns {', '.join(sorted(have))} make no task the course knows ({known}).")


class Frame:
    """Turns rows of a task into `Row`s, and `Row`s into batches.

    Args:
        tokenizer: the vocabulary must be the stack's.
        config: of the stack; a decoder alone gets GPT-1's frame. Its position table limits the length.
        kind: of task. classes: number of labels, None for scores.
        max_length: longest input in tokens, if below what the positions allow.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        config: StackConfig,
        kind: Kind,
        *,
        classes: int | None = None,
        max_length: int | None = None,
    ) -> None:
        limit = config.position.length if isinstance(config.position, Learned) else 512
        self.tokenizer, self.kind, self.classes = tokenizer, kind, classes
        self.causal, self.segments = config.causal and not config.cross, config.embed.segments > 1
        self.length = min(limit, max_length or limit)
        self.marks = tuple(range(tokenizer.vocab.size, tokenizer.vocab.size + MARKS)) if self.causal else ()

    def rows(self, data: Iterable[Mapping[str, Any]]) -> list[Row]:
        """Frame every row of a task.

        Raises:
            CourseError: a column is missing, a label lies outside the classes, there is no row.
        """
        make = {"tagging": self._tagging, "choice": self._choice, "span": self._span}.get(self.kind, self._text)
        rows = []
        for number, item in enumerate(data):
            if missing := [name for name in COLUMNS[self.kind] if name not in item]:
                raise CourseError(f"A {self.kind} task needs the column {missing[0]!r}; row {number} has none.")
            row = make(item)
            self._check(number, row)
            rows.append(row)
        if not rows:
            raise CourseError(f"The {self.kind} task has no rows.")
        return rows

    def layout(self, first: Sequence[int], second: Sequence[int] | None = None) -> list[int]:
        """GPT-1's frame (Radford et al. 2018, figure 1): start first extract, or start first delimiter second
        extract.

        The longer part is cut at its end until the whole fits.
        """
        start, delimiter, extract = self.marks
        a, b = list(first), list(second or [])
        room = self.length - (2 if second is None else 3)
        while len(a) + len(b) > room:
            (a if len(a) >= len(b) else b).pop()
        return [start, *a, extract] if second is None else [start, *a, delimiter, *b, extract]

    def collate(self, rows: Sequence[Row]) -> Batch:
        """Pad to the longest: ids, keep, segments and labels; [B N T] for "choice", otherwise [B T]."""
        count = {len(row.ids) for row in rows}
        if len(count) > 1:
            raise CourseError(f"The rows of a batch have different numbers of choices: {sorted(count)}.")
        width = max(len(ids) for row in rows for ids in row.ids)
        shape = (len(rows), count.pop(), width)
        ids = torch.full(shape, self.tokenizer.vocab.pad or 0)
        keep, segments = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.int64)
        for b, row in enumerate(rows):
            for n, (tokens, parts) in enumerate(zip(row.ids, row.segments, strict=True)):
                ids[b, n, : len(tokens)] = torch.tensor(tokens)
                segments[b, n, : len(tokens)] = torch.tensor(parts)
                keep[b, n, : len(tokens)] = True
        batch = {"ids": ids, "keep": keep} | ({"segments": segments} if self.segments else {})
        if self.kind != "choice":
            batch = {name: value[:, 0] for name, value in batch.items()}
        return batch | {"labels": self._labels([row.label for row in rows], width)}

    def _labels(self, labels: Sequence[Any], width: int) -> Tensor:
        if self.kind == "tagging":
            return torch.tensor([[*label, *[IGNORE] * (width - len(label))] for label in labels])
        scores = self.classes is None and self.kind in ("single", "pair")
        return torch.tensor(labels, dtype=torch.float32 if scores else torch.int64)

    def _text(self, item: Mapping[str, Any]) -> Row:
        ids, segments = self._frame(item["text"], item["pair"] if self.kind == "pair" else None)
        return Row([ids], [segments], item["label"])

    def _choice(self, item: Mapping[str, Any]) -> Row:
        framed = [self._frame(item["text"], candidate) for candidate in item["choices"]]
        return Row([ids for ids, _ in framed], [segments for _, segments in framed], item["label"])

    def _frame(self, text: str, pair: str | None) -> tuple[list[int], list[int]]:
        if not self.causal:
            code = self.tokenizer.encode(text, pair, max_length=self.length)
            return code.ids, code.segments
        first = self.tokenizer.encode(text, special=False).ids
        second = None if pair is None else self.tokenizer.encode(pair, special=False).ids
        ids = self.layout(first, second)
        return ids, [0] * len(ids)

    def _tagging(self, item: Mapping[str, Any]) -> Row:
        """An encoder labels the first piece of each word; a decoder the last, which has read the whole
        word."""
        words, labels = list(item["tokens"]), list(item["labels"])
        if len(words) != len(labels):
            raise CourseError(f"A tagging row has {len(words)} tokens and {len(labels)} labels.")
        if self.causal:
            code = self.tokenizer.encode(words, special=False, max_length=self.length - 2)
            ids, of = self.layout(code.ids), [None, *code.words, None]
            segments = [0] * len(ids)
        else:
            code = self.tokenizer.encode(words, max_length=self.length)
            ids, of, segments = code.ids, list(code.words), code.segments
        carrier: dict[int, int] = {}
        for token, word in enumerate(of):
            if word is not None and (self.causal or word not in carrier):
                carrier[word] = token
        label = [IGNORE] * len(ids)
        for word, token in carrier.items():
            label[token] = labels[word]
        return Row(
            [ids], [segments], label, words=tuple(carrier.get(i, -1) for i in range(len(words))), truth=tuple(labels)
        )

    def _span(self, item: Mapping[str, Any]) -> Row:
        """The answer as token numbers, both -100 if the text was cut before its end."""
        if self.causal:
            q = self.tokenizer.encode(item["text"], special=False, max_length=self.length // 2)
            c = self.tokenizer.encode(item["pair"], special=False, max_length=max(1, self.length - len(q) - 3))
            ids = self.layout(q.ids, c.ids)
            segments = [0] * len(ids)
            inside: list[tuple[int, int] | None] = [None] * (len(q) + 2)
            inside += [*c.offsets, None]
        else:
            code = self.tokenizer.encode(item["text"], item["pair"], max_length=self.length)
            ids, segments = code.ids, code.segments
            real = zip(code.offsets, code.segments, code.words, strict=True)
            inside = [offset if part == 1 and word is not None else None for offset, part, word in real]
        start, end = item["start"], item["start"] + len(item["answer"])
        if item["pair"][start:end] != item["answer"]:
            raise CourseError(f"A span row's answer {item['answer']!r} does not stand at character {start}.")
        hit = [t for t, o in enumerate(inside) if o is not None and o[0] < end and o[1] > start]
        whole = bool(hit) and inside[hit[-1]][1] >= end  # type: ignore[index]
        label = [hit[0], hit[-1]] if whole else [IGNORE, IGNORE]
        answers = tuple(item.get("answers") or [item["answer"]])
        context = item["pair"], tuple(inside)
        return Row([ids], [segments], label, answer=item["answer"], answers=answers, context=context)

    def _check(self, number: int, row: Row) -> None:
        if self.kind == "choice":
            classes: int | None = len(row.ids)
        else:
            classes = self.classes
        if self.kind == "span" or classes is None:
            return
        for label in row.label if isinstance(row.label, list) else [row.label]:
            if label != IGNORE and not (isinstance(label, int) and 0 <= label < classes):
                raise CourseError(f"Row {number} has the label {label!r}; the labels are 0 to {classes - 1}.")


class SourceTarget:
    """Sources and targets for an encoder-decoder, with the tokenizer's special tokens around both; collated, the batch
    that `losses.seq2seq` reads.

    Args:
        tokenizer: it must end a text with a special token, or a target would have no end.
        config: of the decoder. Its position table limits the lengths.
        prefix: before every source, as T5 names the task ("translate English to German: ").
        max_length, max_target: longest source and target in tokens, if below what the positions allow.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        config: StackConfig,
        *,
        prefix: str = "",
        max_length: int | None = None,
        max_target: int | None = None,
    ) -> None:
        limit = config.position.length if isinstance(config.position, Learned) else 512
        self.tokenizer, self.prefix = tokenizer, prefix
        self.length, self.target = min(limit, max_length or limit), min(limit, max_target or limit)
        if not tokenizer.encode("").ids:
            raise CourseError(
                "This tokenizer marks no end of a text, so a target would have none; train one that does."
            )

    def rows(self, data: Iterable[Mapping[str, Any]]) -> list[Row]:
        """Frame the columns `text` and `target` of every row; `answer` keeps the target's text.

        Raises:
            CourseError: a column is missing, there is no row.
        """
        items = list(data)
        for number, item in enumerate(items):
            if missing := [name for name in ("text", "target") if name not in item]:
                raise CourseError(f"A seq2seq task needs the column {missing[0]!r}; row {number} has none.")
        if not items:
            raise CourseError("The seq2seq task has no rows.")
        sources = self.tokenizer.ids([self.prefix + item["text"] for item in items], max_length=self.length)
        targets = self.tokenizer.ids([item["target"] for item in items], max_length=self.target)
        return [
            Row([source], [[0] * len(source)], target, answer=item["target"])
            for source, target, item in zip(sources, targets, items, strict=True)
        ]

    def collate(self, rows: Sequence[Row]) -> Batch:
        """Pad both sides to their longest: ids and keep [B T] of the sources, labels [B U] of the targets, -100 behind
        their ends."""
        ids, keep = _padded([row.ids[0] for row in rows], self.tokenizer.vocab.pad or 0)
        labels, _ = _padded([row.label for row in rows], IGNORE)
        return {"ids": ids, "keep": keep, "labels": labels}


def _padded(rows: Sequence[Sequence[int]], value: int) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[value] * (width - len(row))] for row in rows])
    return ids, torch.arange(width) < torch.tensor([[len(row)] for row in rows])


class Collates(Protocol):
    """What makes a batch of framed rows: `Frame` or `SourceTarget`."""

    def collate(self, rows: Sequence[Row]) -> Batch: ...


class TaskBatches:
    """Shuffled batches, epoch after epoch; batch `step` depends on (rows, seed, step) only."""

    def __init__(self, frame: Collates, rows: Sequence[Row], batch: int, seed: int) -> None:
        self.frame, self.rows, self.batch, self.seed = frame, rows, batch, seed
        self.per_epoch = -(-len(rows) // batch)

    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""
        epoch, index = divmod(step, self.per_epoch)
        order = torch.randperm(len(self.rows), generator=generator(self.seed, epoch)).tolist()
        return self.frame.collate([self.rows[i] for i in order[index * self.batch : (index + 1) * self.batch]])


def in_order(frame: Collates, rows: Sequence[Row], batch: int) -> Iterator[tuple[list[int], Batch]]:
    """Batches for prediction, longest rows together: (row numbers, batch)."""
    order = sorted(range(len(rows)), key=lambda i: max(map(len, rows[i].ids)))
    for start in range(0, len(order), batch):
        numbers = order[start : start + batch]
        yield numbers, frame.collate([rows[i] for i in numbers])
