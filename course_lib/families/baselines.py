"""The task models that pretrained Transformers were compared with: BiLSTMs over word vectors.

GLUE's baselines (Wang et al. 2018, section 5), "BiLSTM+ELMo+Attn" among them. Words are static
vectors, ELMo's, or both. A bidirectional LSTM reads them.

    one text     is pooled to a vector, which a small network classifies
    two texts    each word also attends to the other text (Seo et al. 2017), a second BiLSTM reads
                 the result, and both are pooled to u and v; a small network classifies
                 [u; v; |u - v|; u * v]

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
from course_lib.model.config import Kind
from course_lib.model.heads import Mask, Segments
from course_lib.model.lstm import BiLSTM
from course_lib.vocab import Vocab

PAD = "<PAD>"


class WordTokenizer(Protocol):
    """A tokenizer whose tokens are words, as `data.words.word_tokenizer` makes it."""

    vocab: Vocab

    def tokens(self, ids: Iterable[int]) -> list[str]: ...


@dataclass(frozen=True)
class ReaderConfig:
    """The sizes of the network that reads the word vectors."""

    cells: int = 128  # H, in each direction of a BiLSTM
    hidden: int = 128  # width of the classifying network
    dropout: float = 0.2


class Words(nn.Module):
    """Word vectors in place of a stack: static ones, ELMo's mix of layers, or both side by side.

    Args:
        tokenizer: every token is a word.
        elmo: reads the words by their characters.
        static: a vector for each word of the tokenizer's vocabulary.
        reader: the sizes of the network on top.
    """

    spelled: Tensor  # V C: each word's characters

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
        self.reader = reader or ReaderConfig()
        self.elmo = elmo
        self.frozen = False

        length = elmo.config.length if elmo is not None else 0
        nothing = (0,) * length
        table = []
        for word in tokenizer.tokens(range(size)):
            has_spelling = length and word != PAD
            table.append(spelling(word, length) if has_spelling else nothing)
        self.register_buffer("spelled", torch.tensor(table), persistent=False)

        width = 0  # F
        self.mix = None
        if elmo is not None:
            self.mix = ScalarMix(elmo.config.layers + 1, self.reader.dropout)
            width += 2 * elmo.config.width
        self.static = None
        if static is not None:
            vectors = static.detach().clone()
            self.static = nn.Embedding(size, static.shape[1], _weight=vectors)
            width += static.shape[1]
        self.config = framing(size, width, segments=2, dropout=self.reader.dropout)

    def forward(
        self, ids: Int[Tensor, "B T"], *, attention_mask: Mask = None, segments: Segments = None
    ) -> Float[Tensor, "B T F"]:
        parts = []
        if self.elmo is not None and self.mix is not None:
            layers = self.elmo(self.spelled[ids], attention_mask=attention_mask)
            parts.append(self.mix(layers))
        if self.static is not None:
            parts.append(self.static(ids))
        return torch.cat(parts, dim=-1)

    def train(self, mode: bool = True) -> "Words":
        """Switch the mode; a frozen ELMo stays without its dropout."""
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
        """A model for one task on a copy of these vectors.

        Args:
            kind: of the task.
            classes: number of labels, where the task has labels.
            pretrained: False starts from random vectors.
            frozen: the vectors stay as they are; the mix and the layers on top learn.
            dropout: in place of the reader's.
        """
        body = copy.deepcopy(self)
        if dropout is not None:
            body.reader = replace(body.reader, dropout=dropout)
            if body.mix is not None:
                body.mix.dropout.p = dropout
        if not pretrained:
            if body.elmo is not None:
                body.elmo = Elmo(body.elmo.config)
            if body.static is not None:
                nn.init.normal_(body.static.weight, std=0.1)
        body.requires_grad_(True)
        body.frozen = frozen
        for part in (body.elmo, body.static):
            if part is not None:
                part.requires_grad_(not frozen)
        return TaskModel(body, kind, classes)


def largest(h: Float[Tensor, "B T F"], attention_mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B F"]:
    """Words to one vector: the largest value of each component."""
    is_padding = ~attention_mask[..., None]
    lowest = torch.finfo(h.dtype).min
    return h.masked_fill(is_padding, lowest).amax(1)


class TaskModel(nn.Module):
    """BiLSTM, attention between two texts, pooling, and a small network.

    Its logits are, by the kind of task:

        single, pair    [B, C]
        choice          [B, N], for ids [B, N, T]
        tagging         [B, T, C]
        span            [B, T] for the start and [B, T] for the end

    Args:
        body: the word vectors.
        kind: of the task.
        classes: C.
    """

    def __init__(self, body: Words, kind: Kind, classes: int | None) -> None:
        super().__init__()
        reader = body.reader
        width = 2 * reader.cells
        self.body = body
        self.kind = kind
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
            rows = (x.flatten(0, 1) for x in (ids, attention_mask, segments))  # B*N T
            return self._pair(*rows).view(ids.shape[:2])  # B*N 1 -> B N
        if self.kind == "pair":
            return self._pair(ids, attention_mask, segments)
        if self.kind == "span":
            return self._span(ids, attention_mask, segments)
        words = self.body(ids, attention_mask=attention_mask)  # B T F
        h = self.read(words, attention_mask)  # B T 2H
        if self.kind != "tagging":
            h = largest(h, attention_mask)  # B 2H
        return self.out(self.dropout(h))

    def _pair(self, ids: Tensor, attention_mask: Tensor, segments: Tensor) -> Float[Tensor, "B C"]:
        """Class logits of two texts."""
        (first, first_mask), (second, second_mask) = self._both(ids, attention_mask, segments)
        u = largest(first, first_mask)  # B 2H
        v = largest(second, second_mask)
        features = torch.cat([u, v, (u - v).abs(), u * v], dim=-1)  # B 8H
        return self.out(self.dropout(features))

    def _span(self, ids: Tensor, attention_mask: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of start and end; only words of the second text can be an answer."""
        _, (second, second_mask) = self._both(ids, attention_mask, segments)
        scores = self.out(self.dropout(second))  # B Tv 2
        # Back to the words' positions in the whole row.
        logits = scores.new_full((*ids.shape, 2), -1e4)  # B T 2
        logits[attention_mask & (segments == 1)] = scores[second_mask]
        start, end = logits.unbind(-1)
        return start, end

    def _both(
        self, ids: Tensor, attention_mask: Tensor, segments: Tensor
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """Vectors and mask of each of the two texts."""
        u, u_mask = self._one(ids, attention_mask & (segments == 0))
        v, v_mask = self._one(ids, attention_mask & (segments == 1))
        # Each word attends to the other text; a second BiLSTM reads both side by side.
        scores = self.cross(u) @ v.transpose(1, 2)  # B Tu Tv
        from_v = _mean_of(v, v_mask, scores)  # B Tu 2H
        from_u = _mean_of(u, u_mask, scores.transpose(1, 2))  # B Tv 2H
        u = self.again(_beside(u, from_v), u_mask)
        v = self.again(_beside(v, from_u), v_mask)
        return (u, u_mask), (v, v_mask)

    def _one(self, ids: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Read the chosen words of each row alone: their vectors and mask."""
        lengths = chosen.sum(1, keepdim=True)  # B 1
        mask = torch.arange(int(lengths.max()), device=ids.device) < lengths  # B Tu
        text = ids.new_zeros(mask.shape)
        text[mask] = ids[chosen]  # moved to the left
        words = self.body(text, attention_mask=mask)
        return self.read(words, mask), mask


def _mean_of(
    words: Float[Tensor, "B T F"], mask: Bool[Tensor, "B T"], scores: Float[Tensor, "B To T"]
) -> Float[Tensor, "B To F"]:
    """For each word of the other text, a mean of these words by their scores."""
    weights = scores.masked_fill(~mask[:, None], float("-inf")).softmax(-1)
    return weights.to(words.dtype) @ words


def _beside(x: Float[Tensor, "B T F"], other: Float[Tensor, "B T F"]) -> Float[Tensor, "B T 4F"]:
    """Both vectors, their product and their difference."""
    return torch.cat([x, other, x * other, x - other], dim=-1)
