"""The task models that pretrained Transformers were compared with: BiLSTM, with static vectors or
ELMo, and attention.

GLUE's baselines (Wang et al. 2018, section 5), "BiLSTM+ELMo+Attn" among them: a bidirectional LSTM
over word vectors; one text is pooled to a vector and classified; of two texts, u and v, each word
also attends to the other text (Seo et al. 2017), a second BiLSTM reads what it saw, and a small
network reads [u; v; |u - v|; u * v].

Letters: B rows, T words, F word features, H cells of a direction.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.families.elmo import Elmo, ScalarMix, spelling
from course_lib.families.lstm import framing
from course_lib.model.heads import Kind, Mask, Segments
from course_lib.model.lstm import BiLSTM
from course_lib.vocab import Vocab

PAD = "<PAD>"


class WordTokenizer(Protocol):
    """What `Words` asks of a tokenizer (`data.words.word_tokenizer`): every token is a word."""

    vocab: Vocab

    def tokens(self, ids: Iterable[int]) -> list[str]: ...


@dataclass(frozen=True)
class ReaderConfig:
    """What reads the word vectors. cells: of the BiLSTM, a direction. hidden: width of the
    classifying network.
    """

    cells: int = 128
    hidden: int = 128
    dropout: float = 0.2


class Words(nn.Module):
    """Word vectors for a task: static ones, ELMo's mix of layers, or both side by side, in place of
    a stack. tokenizer: of `word_tokenizer`."""

    spelled: Tensor

    def __init__(
        self,
        tokenizer: WordTokenizer,
        *,
        elmo: Elmo | None = None,
        static: Float[Tensor, "V E"] | None = None,
        reader: ReaderConfig | None = None,
    ) -> None:
        super().__init__()
        size = tokenizer.vocab.size
        self.reader, self.elmo, self.frozen = reader or ReaderConfig(), elmo, False
        length = elmo.config.length if elmo is not None else 0
        table = [
            spelling(w, length) if length and w != PAD else (0,) * length
            for w in tokenizer.tokens(range(size))
        ]
        self.register_buffer("spelled", torch.tensor(table), persistent=False)
        self.mix = (
            ScalarMix(elmo.config.layers + 1, self.reader.dropout) if elmo is not None else None
        )
        self.static = (
            None
            if static is None
            else nn.Embedding(size, static.shape[1], _weight=static.detach().clone())
        )
        width = (2 * elmo.config.width if elmo is not None else 0) + (
            static.shape[1] if static is not None else 0
        )
        self.config = framing(size, width, segments=2, dropout=self.reader.dropout)

    def forward(
        self, ids: Int[Tensor, "B T"], *, attention_mask: Mask = None, segments: Segments = None
    ) -> Float[Tensor, "B T F"]:
        parts = []
        if self.elmo is not None and self.mix is not None:
            parts.append(self.mix(self.elmo(self.spelled[ids], attention_mask=attention_mask)))
        if self.static is not None:
            parts.append(self.static(ids))
        return torch.cat(parts, dim=-1)

    def train(self, mode: bool = True) -> "Words":
        """A frozen ELMo stays without its dropout."""
        super().train(mode)
        if self.frozen and self.elmo is not None:
            self.elmo.eval()
        return self

    def for_task(
        self,
        kind: Kind,
        classes: int | None,
        *,
        pretrained: bool = True,
        frozen: bool = False,
        dropout: float | None = None,
    ) -> "TaskModel":
        """A model for one task on a copy of these vectors. pretrained: False starts them from fresh
        weights. frozen: they stay as they are; the mix and what is on top learn. dropout: the
        reader's."""
        body = copy.deepcopy(self)
        if dropout is not None:
            body.reader = replace(body.reader, dropout=dropout)
            if body.mix is not None:
                body.mix.dropout.p = dropout
        if not pretrained:
            body.elmo = None if body.elmo is None else Elmo(body.elmo.config)
            if body.static is not None:
                nn.init.normal_(body.static.weight, std=0.1)
        body.requires_grad_(True)
        body.frozen = frozen
        for part in filter(None, (body.elmo, body.static)):
            part.requires_grad_(not frozen)
        return TaskModel(body, kind, classes)


def largest(h: Float[Tensor, "B T F"], attention_mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B F"]:
    """Words to one vector: the largest value of each component."""
    return h.masked_fill(~attention_mask[..., None], torch.finfo(h.dtype).min).amax(1)


class TaskModel(nn.Module):
    """BiLSTM, attention between two texts, pooling, a small network. Class logits [B C] for
    "single" and "pair", [B N] for "choice" (ids [B N T]), [B T C] for "tagging", start and end [B
    T] each for "span"."""

    def __init__(self, body: Words, kind: Kind, classes: int | None) -> None:
        super().__init__()
        reader, width = body.reader, 2 * body.reader.cells
        self.body, self.kind = body, kind
        self.read = BiLSTM(body.config.width, reader.cells, dropout=reader.dropout)
        if kind in ("pair", "choice", "span"):
            self.cross = nn.Linear(width, width, bias=False)
            self.again = BiLSTM(4 * width, reader.cells, dropout=reader.dropout)
        self.dropout = nn.Dropout(reader.dropout)
        inputs = 4 * width if kind in ("pair", "choice") else width
        outputs = {"choice": 1, "span": 2}.get(kind, classes or 1)
        self.out = nn.Sequential(
            nn.Linear(inputs, reader.hidden), nn.Tanh(), nn.Linear(reader.hidden, outputs)
        )

    def forward(
        self, ids: Tensor, *, attention_mask: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        if attention_mask is None:
            attention_mask = torch.ones_like(ids, dtype=torch.bool)
        attention_mask = attention_mask.bool()
        if segments is None:
            segments = torch.zeros_like(ids)
        if self.kind == "choice":
            rows = (x.flatten(0, 1) for x in (ids, attention_mask, segments))
            return self._pair(*rows).view(ids.shape[:2])
        if self.kind == "pair":
            return self._pair(ids, attention_mask, segments)
        if self.kind == "span":
            return self._span(ids, attention_mask, segments)
        h = self.read(self.body(ids, attention_mask=attention_mask), attention_mask)
        return self.out(self.dropout(h if self.kind == "tagging" else largest(h, attention_mask)))

    def _pair(self, ids: Tensor, attention_mask: Tensor, segments: Tensor) -> Float[Tensor, "B C"]:
        (u, keep_u), (v, keep_v) = self._both(ids, attention_mask, segments)
        a, b = largest(u, keep_u), largest(v, keep_v)
        return self.out(self.dropout(torch.cat([a, b, (a - b).abs(), a * b], dim=-1)))

    def _span(self, ids: Tensor, attention_mask: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the second text's words, at their places in the whole row; nothing else can be
        an answer.
        """
        _, (v, keep_v) = self._both(ids, attention_mask, segments)
        scores = self.out(self.dropout(v))  # B Tv 2
        whole = scores.new_full((*ids.shape, 2), -1e4)
        whole[attention_mask & (segments == 1)] = scores[keep_v]
        start, end = whole.unbind(-1)
        return start, end

    def _both(
        self, ids: Tensor, attention_mask: Tensor, segments: Tensor
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """Vectors and mask of both texts: each read by itself, then each word beside what it
        attends to in the other text, read once more."""
        read = []
        for segment in (0, 1):
            own = attention_mask & (segments == segment)
            keep = torch.arange(int(own.sum(1).max()), device=ids.device) < own.sum(1, keepdim=True)
            text = ids.new_zeros(keep.shape)
            text[keep] = ids[own]
            read += [self.read(self.body(text, attention_mask=keep), keep), keep]
        u, keep_u, v, keep_v = read
        scores = self.cross(u) @ v.transpose(1, 2)  # B Tu Tv
        to_v = _mean_of(v, keep_v, scores)
        to_u = _mean_of(u, keep_u, scores.transpose(1, 2))
        return (
            (self.again(_beside(u, to_v), keep_u), keep_u),
            (self.again(_beside(v, to_u), keep_v), keep_v),
        )


def _mean_of(
    words: Float[Tensor, "B T F"], keep: Bool[Tensor, "B T"], scores: Float[Tensor, "B To T"]
) -> Float[Tensor, "B To F"]:
    """What each word of the other text attends to: a mean of these words by their scores."""
    weights = scores.masked_fill(~keep[:, None], float("-inf")).softmax(-1)
    return weights.to(words.dtype) @ words


def _beside(x: Float[Tensor, "B T F"], other: Float[Tensor, "B T F"]) -> Float[Tensor, "B T 4F"]:
    return torch.cat([x, other, x * other, x - other], dim=-1)
