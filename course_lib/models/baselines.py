"""The task models that pretrained Transformers were compared with: BiLSTM, with static vectors or ELMo, and attention.

GLUE's baselines (Wang et al. 2018, section 5), "BiLSTM+ELMo+Attn" among them: a bidirectional LSTM over word vectors;
one text is pooled to a vector and classified; of two texts, u and v, a small network reads [u; v; |u - v|; u * v]. With
`cross`, each word of one text also attends to the other text (Seo et al. 2017), and a second BiLSTM reads what it saw.

    tokenizer = word_tokenizer(task_words(task))
    body = Words(tokenizer, elmo=bilm.elmo)
    result = finetune(body, task, tokenizer, frozen=True)

Differs from a Transformer by: words instead of pieces; an LSTM on top that starts from nothing for every task.
Letters: B rows, T words, F word features, H cells of a direction.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.config import EmbedConfig, NoPosition, StackConfig
from course_lib.errors import CourseError
from course_lib.inputs import Kind
from course_lib.lstm import BiLSTM
from course_lib.models.elmo import Elmo, ScalarMix, split
from course_lib.models.elmo.words import BOS, EOS, UNK, WORD, spelling
from course_lib.tokenizers import Tokenizer

PAD = "<PAD>"


@dataclass(frozen=True)
class ReaderConfig:
    """What reads the word vectors.

    cells: of the BiLSTM, a direction. layers: of the first BiLSTM. hidden: width of the classifying network. pool: how
    words become one vector, the largest value of each component, or a mean whose weights are learned. cross: words of
    a pair attend to the other text.
    """

    cells: int = 128
    layers: int = 1
    hidden: int = 128
    pool: Literal["max", "attention"] = "max"
    cross: bool = True
    dropout: float = 0.2


def task_words(task: Mapping[str, Iterable[Mapping[str, Any]]]) -> list[str]:
    """Every word of a task's texts, in all its splits: a vocabulary of inputs only, whose vectors come by spelling."""
    found: dict[str, None] = {}
    for rows in task.values():
        for row in rows:
            for value in row.values():
                for text in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
                    if isinstance(text, str):
                        found |= dict.fromkeys(split(text))
    return list(found)


def word_tokenizer(words: Iterable[str]) -> Tokenizer:
    """One token a word or punctuation mark; texts are framed as `<S> text </S>`, pairs as two of these.

    Args:
        words: the vocabulary; other words become `<UNK>`.
    """
    import tokenizers
    from tokenizers import models, pre_tokenizers, processors

    marks = (PAD, UNK, BOS, EOS)
    vocab = {word: i for i, word in enumerate(dict.fromkeys([*marks, *words]))}
    backend = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token=UNK))
    backend.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(WORD.pattern), "removed", invert=True)
    backend.post_processor = processors.TemplateProcessing(
        single=f"{BOS}:0 $A:0 {EOS}:0",
        pair=f"{BOS}:0 $A:0 {EOS}:0 {BOS}:1 $B:1 {EOS}:1",
        special_tokens=[(BOS, vocab[BOS]), (EOS, vocab[EOS])],
    )
    backend.add_special_tokens(list(marks))
    return Tokenizer(backend, {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS})


class Words(nn.Module):
    """Word vectors for a task: static ones, ELMo's mix of layers, or both side by side. It takes a stack's part.

    Args:
        tokenizer: of `word_tokenizer`; its words are spelled once, here.
        elmo: reads each text of a pair by itself. static: Float[V E], one vector a word of the tokenizer, trained
            further unless frozen.
        reader: what the task's model puts on top.
    """

    spelled: Tensor

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        elmo: Elmo | None = None,
        static: Float[Tensor, "V E"] | None = None,
        reader: ReaderConfig | None = None,
    ) -> None:
        super().__init__()
        size = tokenizer.vocab.size
        if elmo is None and static is None:
            raise CourseError("Words need ELMo, static vectors, or both; neither was given.")
        if static is not None and len(static) != size:
            raise CourseError(f"There are {len(static)} static vectors for {size} words; give one a word.")
        self.reader, self.elmo, self.frozen = reader or ReaderConfig(), elmo, False
        length = elmo.config.length if elmo is not None else 0
        unread = (0,) * length
        table = [unread if elmo is None or w == PAD else spelling(w, length) for w in tokenizer.tokens(range(size))]
        self.register_buffer("spelled", torch.tensor(table), persistent=False)
        self.mix = ScalarMix(elmo.config.layers + 1, self.reader.dropout) if elmo is not None else None
        self.static = None if static is None else nn.Embedding(size, static.shape[1], _weight=static.detach().clone())
        width = (2 * elmo.config.width if elmo is not None else 0) + (static.shape[1] if static is not None else 0)
        self.config = StackConfig(  # what frames the inputs asks of a body
            embed=EmbedConfig(size, segments=2),
            width=width,
            layers=1,
            heads=1,
            hidden=width,
            position=NoPosition(),
            dropout=self.reader.dropout,
        )

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T F"]:
        """Vectors of each row as it stands; there are no vectors of segments."""
        parts = []
        if self.elmo is not None and self.mix is not None:
            parts.append(self.mix(self.elmo(self.spelled[ids], keep=keep)))
        if self.static is not None:
            parts.append(self.static(ids))
        return torch.cat(parts, dim=-1)

    def train(self, mode: bool = True) -> "Words":
        """Frozen, ELMo stays as it is when it predicts: without its dropout."""
        super().train(mode)
        if self.frozen and self.elmo is not None:
            self.elmo.eval()
        return self

    def for_task(
        self, kind: Kind, classes: int | None, *, pretrained: bool = True, frozen: bool = False,
        dropout: float | None = None,
    ) -> "TaskModel":  # fmt: skip
        """A model for one task on a copy of these vectors.

        Args:
            classes: number of labels; None for scores, choices and spans.
            pretrained: False starts ELMo and the static vectors from fresh weights.
            frozen: ELMo and the static vectors stay as they are; the mix and what is on top learn.
            dropout: in place of the reader's.
        """
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
        for part in (body.elmo, body.static):
            if part is not None and frozen:
                part.requires_grad_(False)
        return TaskModel(body, kind, classes)


class Pool(nn.Module):
    """Words to one vector: the largest value of each component, or a mean with learned weights."""

    def __init__(self, width: int, how: Literal["max", "attention"]) -> None:
        super().__init__()
        self.score = nn.Linear(width, 1) if how == "attention" else None

    def forward(self, h: Float[Tensor, "B T F"], keep: Bool[Tensor, "B T"]) -> Float[Tensor, "B F"]:
        if self.score is None:
            return h.masked_fill(~keep[..., None], torch.finfo(h.dtype).min).amax(1)
        scores: Tensor = self.score(h).squeeze(-1).masked_fill(~keep, float("-inf"))
        return (scores.softmax(-1)[..., None].to(h.dtype) * h).sum(1)


class TaskModel(nn.Module):
    """BiLSTM, attention between two texts, pooling, a small network: one model for every kind of task.

    `forward(ids, *, keep, segments)` is that of the heads on a stack (`course_lib.heads`): class logits [B C] for
    "single" and "pair", [B N] for "choice" (ids [B N T]), [B T C] for "tagging", start and end [B T] each for "span".
    """

    def __init__(self, body: Words, kind: Kind, classes: int | None) -> None:
        super().__init__()
        reader, width = body.reader, 2 * body.reader.cells
        self.body, self.kind = body, kind
        self.read = BiLSTM(body.config.width, reader.cells, reader.layers, reader.dropout)
        self.cross = (
            nn.Linear(width, width, bias=False) if reader.cross and kind in ("pair", "choice", "span") else None
        )
        if self.cross is not None:
            self.again = BiLSTM(4 * width, reader.cells, dropout=reader.dropout)
        self.pool = Pool(width, reader.pool)
        self.dropout = nn.Dropout(reader.dropout)
        inputs = {"pair": 4 * width, "choice": 4 * width, "span": 2 * width if self.cross is None else width}
        outputs = {"choice": 1, "span": 2}.get(kind, classes or 1)
        self.out = nn.Sequential(
            nn.Linear(inputs.get(kind, width), reader.hidden), nn.Tanh(), nn.Linear(reader.hidden, outputs)
        )

    def forward(
        self, ids: Tensor, *, keep: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        keep = torch.ones_like(ids, dtype=torch.bool) if keep is None else keep.bool()
        segments = torch.zeros_like(ids) if segments is None else segments
        if self.kind == "choice":
            return self._pair(ids.flatten(0, 1), keep.flatten(0, 1), segments.flatten(0, 1)).view(ids.shape[:2])
        if self.kind == "pair":
            return self._pair(ids, keep, segments)
        if self.kind == "span":
            return self._span(ids, keep, segments)
        h = self.read(self.body(ids, keep=keep), keep)
        scores: Tensor = self.out(self.dropout(h if self.kind == "tagging" else self.pool(h, keep)))
        return scores

    def _pair(self, ids: Tensor, keep: Tensor, segments: Tensor) -> Float[Tensor, "B C"]:
        (u, keep_u), (v, keep_v), _ = self._both(ids, keep, segments)
        a, b = self.pool(u, keep_u), self.pool(v, keep_v)
        scores: Tensor = self.out(self.dropout(torch.cat([a, b, (a - b).abs(), a * b], dim=-1)))
        return scores

    def _span(self, ids: Tensor, keep: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the second text's words, at their places in the whole row; nothing else can be an answer."""
        (u, keep_u), (v, _), places = self._both(ids, keep, segments)
        if self.cross is None:  # all that a word knows of the question is the question's vector
            v = torch.cat([v, self.pool(u, keep_u)[:, None].expand_as(v)], dim=-1)
        scores = self.out(self.dropout(v))  # B Tv 2
        whole = scores.gather(1, places.clamp(0, v.shape[1] - 1)[..., None].expand(-1, -1, 2))
        inside = (segments == 1) & keep
        start, end = whole.masked_fill(~inside[..., None], -1e4).unbind(-1)
        return start, end

    def _both(self, ids: Tensor, keep: Tensor, segments: Tensor) -> tuple[Any, Any, Int[Tensor, "B T"]]:
        """Both texts, each read by itself and then with an eye on the other: (vectors, keep) of each, and where each
        place of the row is in the second text."""
        first = (keep & (segments == 0)).sum(1, keepdim=True)  # words of the first text, B 1
        second = keep.sum(1, keepdim=True) - first
        if bool((second == 0).any()):
            raise CourseError("A pair has no second text; segments must be 1 on it.")
        place = torch.arange(ids.shape[1], device=ids.device)[None]
        keep_u, keep_v = (place[:, : int(n.max())] < n for n in (first, second))
        ids_u = ids[:, : keep_u.shape[1]].masked_fill(~keep_u, 0)
        take = (place[:, : keep_v.shape[1]] + first).clamp(max=ids.shape[1] - 1)
        ids_v = ids.gather(1, take).masked_fill(~keep_v, 0)
        u, v = (self.read(self.body(i, keep=k), k) for i, k in ((ids_u, keep_u), (ids_v, keep_v)))
        if self.cross is not None:
            u, v = self._cross(u, keep_u, v, keep_v)
        return (u, keep_u), (v, keep_v), place - first

    def _cross(self, u: Tensor, keep_u: Tensor, v: Tensor, keep_v: Tensor) -> tuple[Tensor, Tensor]:
        """Every word beside what it attends to in the other text, read once more."""
        assert self.cross is not None
        scores = self.cross(u) @ v.transpose(1, 2)  # B Tu Tv
        to_v = scores.masked_fill(~keep_v[:, None], float("-inf")).softmax(-1).to(v.dtype) @ v
        to_u = scores.transpose(1, 2).masked_fill(~keep_u[:, None], float("-inf")).softmax(-1).to(u.dtype) @ u
        new = []
        for x, other, keep in ((u, to_v, keep_u), (v, to_u, keep_v)):
            new.append(self.again(torch.cat([x, other, x * other, x - other], dim=-1), keep))
        return new[0], new[1]
