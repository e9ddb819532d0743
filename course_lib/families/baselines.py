"""The baselines that pretrained Transformers were compared with: BiLSTMs over word vectors.

They are GLUE's baselines (Wang et al. 2018, section 5), such as "BiLSTM+ELMo+Attn". The word
vectors are static, ELMo's, or both. A bidirectional LSTM reads them.

    one text     Its vectors are pooled to one vector, which a small network classifies.
    two texts    Each word also attends to the other text (Seo et al. 2017). A second BiLSTM reads
                 the result. The texts are pooled to u and v, and a small network classifies
                 [u; v; |u - v|; u * v].

Letters in shapes: B rows, T words, F width of a word vector, H cells in each direction of an LSTM.
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
# The logit of a word that cannot be in the answer. With -inf, the loss could become infinite.
NO_ANSWER = -1e4


class WordTokenizer(Protocol):
    """A tokenizer whose tokens are words, such as that of `data.words.word_tokenizer`."""

    vocab: Vocab

    def tokens(self, ids: Iterable[int]) -> list[str]: ...


@dataclass(frozen=True)
class ReaderConfig:
    """The sizes of the network on top of the word vectors."""

    cells: int = 128  # H, in each direction of a BiLSTM
    hidden: int = 128  # width of the small network that classifies
    dropout: float = 0.2  # on the input of each LSTM and of the small network


class Words(nn.Module):
    """Word vectors: static ones, ELMo's weighted sum of layers, or both concatenated.

    A `TaskModel` reads them, as a head reads the hidden states of a stack.

    Args:
        tokenizer: a tokenizer whose tokens are words.
        elmo: an ELMo, which reads the characters of each word.
        static: a vector for each word of the tokenizer's vocabulary.
        reader: the sizes of the network on top.
    """

    spelled: Tensor  # V C: the character ids of each word

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

        length = elmo.config.length if elmo is not None else 0  # 0: `spelled` has no columns
        no_characters = (0,) * length  # the padding token has no spelling
        table = []
        for word in tokenizer.tokens(range(size)):
            has_spelling = length and word != PAD
            table.append(spelling(word, length) if has_spelling else no_characters)
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
        """Switch the mode, but a frozen ELMo stays in evaluation mode, without dropout."""
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
        """A model for one task on a copy of these word vectors.

        Args:
            kind: kind of task.
            classes: number of classes, if the task has classes.
            pretrained: False: start from random word vectors.
            frozen: do not train the word vectors; the weights of ELMo's layers and the network on
                top are trained.
            dropout: dropout rate; by default that of `reader`.
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


def max_pool(
    h: Float[Tensor, "B T F"], attention_mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B F"]:
    """Word vectors to one vector: the maximum of each component over the words."""
    is_padding = ~attention_mask[..., None]
    lowest = torch.finfo(h.dtype).min
    return h.masked_fill(is_padding, lowest).amax(1)


class TaskModel(nn.Module):
    """BiLSTM, attention between two texts, pooling, and a small network.

    The kind of task decides the logits:

        single, pair    [B, C]
        choice          [B, N], for ids [B, N, T]
        tagging         [B, T, C]
        span            [B, T] for the start and [B, T] for the end

    Args:
        body: the word vectors.
        kind: kind of task.
        classes: C; None if the task has no classes.
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
            h = max_pool(h, attention_mask)  # B 2H
        return self.out(self.dropout(h))

    def _pair(self, ids: Tensor, attention_mask: Tensor, segments: Tensor) -> Float[Tensor, "B C"]:
        """Class logits of two texts."""
        (first, first_mask), (second, second_mask) = self._read_both(ids, attention_mask, segments)
        u = max_pool(first, first_mask)  # B 2H
        v = max_pool(second, second_mask)
        features = torch.cat([u, v, (u - v).abs(), u * v], dim=-1)  # B 8H
        return self.out(self.dropout(features))

    def _span(self, ids: Tensor, attention_mask: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of start and end. Only words of the second text can be an answer."""
        _, (second, second_mask) = self._read_both(ids, attention_mask, segments)
        scores = self.out(self.dropout(second))  # B Tv 2
        # `second` has the words of the second text only. Put their scores back at the positions
        # that they have in the row; all other positions get a logit that never wins.
        logits = scores.new_full((*ids.shape, 2), NO_ANSWER)  # B T 2
        logits[attention_mask & (segments == 1)] = scores[second_mask]
        start, end = logits.unbind(-1)
        return start, end

    def _read_both(
        self, ids: Tensor, attention_mask: Tensor, segments: Tensor
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        """Vectors and mask of each of the two texts, after each has attended to the other."""
        u, u_mask = self._read_one(ids, attention_mask & (segments == 0))
        v, v_mask = self._read_one(ids, attention_mask & (segments == 1))
        scores = self.cross(u) @ v.transpose(1, 2)  # B Tu Tv
        from_v = _attend(v, v_mask, scores)  # B Tu 2H
        from_u = _attend(u, u_mask, scores.transpose(1, 2))  # B Tv 2H
        u = self.again(_compare(u, from_v), u_mask)
        v = self.again(_compare(v, from_u), v_mask)
        return (u, u_mask), (v, v_mask)

    def _read_one(self, ids: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Read the chosen words of each row as a text of their own.

        Args:
            ids: token ids [B, T].
            chosen: True = a word of this text, Bool[B, T].

        Returns:
            Vectors [B, Tu, 2H] and mask [B, Tu].
        """
        lengths = chosen.sum(1, keepdim=True)  # B 1
        mask = torch.arange(int(lengths.max()), device=ids.device) < lengths  # B Tu
        text = ids.new_zeros(mask.shape)
        text[mask] = ids[chosen]  # the chosen words, moved to the left
        words = self.body(text, attention_mask=mask)
        return self.read(words, mask), mask


def _attend(
    words: Float[Tensor, "B T F"], mask: Bool[Tensor, "B T"], scores: Float[Tensor, "B To T"]
) -> Float[Tensor, "B To F"]:
    """For each word of the other text, the mean of these words, weighted by softmax(scores)."""
    weights = scores.masked_fill(~mask[:, None], float("-inf")).softmax(-1)
    return weights.to(words.dtype) @ words


def _compare(x: Float[Tensor, "B T F"], other: Float[Tensor, "B T F"]) -> Float[Tensor, "B T 4F"]:
    """[x; other; x * other; x - other]."""
    return torch.cat([x, other, x * other, x - other], dim=-1)
