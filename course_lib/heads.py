"""What stands on top of a stack: one small module for each kind of question.

Every head owns its `stack`, takes ids [B, T] with `keep` and `segments` as `Stack` does, and returns logits.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.attention import KVCache
from course_lib.errors import CourseError
from course_lib.layers import ACTIVATIONS, norm
from course_lib.stack import Stack

Pool = Literal["first", "last", "mean", "max"]


class LM(nn.Module):
    """Next-token logits with the token vectors as output matrix (GPT-1, GPT-2).

    `at`: Bool[B, T]; logits of those positions only, [N, V]: the output matrix is most of a small model's work.
    """

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B Tk"] | None = None,
        mask: Bool[Tensor, "#B #H #T Tk"] | None = None,
        cache: KVCache | None = None,
        at: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"] | Float[Tensor, "N V"]:
        h = self.stack(ids, keep=keep, mask=mask, cache=cache)
        return nn.functional.linear(h if at is None else h[at], self.stack.embed.tokens.weight)


class MaskedHead(nn.Module):
    """dense, activation, norm, then the token vectors as output, and a bias (Devlin et al. 2019, section 3.1)."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        config = stack.config
        width = config.embed.width or config.width
        self.dense = nn.Linear(config.width, width)
        self.norm = norm(config, width)
        self.bias = nn.Parameter(torch.zeros(config.embed.vocab))
        self.activation = ACTIVATIONS[config.activation]
        _init(self.dense, stack)

    def forward(self, h: Float[Tensor, "*N D"], tokens: Float[Tensor, "V E"]) -> Float[Tensor, "*N V"]:
        return nn.functional.linear(self.norm(self.activation(self.dense(h))), tokens, self.bias)


class MLM(nn.Module):
    """Masked-language-model logits. `at` as in `LM`: logits of the masked positions only."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack
        self.head = MaskedHead(stack)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        mask: Bool[Tensor, "#B #H #T T"] | None = None,
        at: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"] | Float[Tensor, "N V"]:
        h = self.stack(ids, keep=keep, segments=segments, mask=mask)
        logits: Tensor = self.head(h if at is None else h[at], self.stack.embed.tokens.weight)
        return logits


class Pooler(nn.Module):
    """tanh(dense(first token)): BERT's sentence vector (Devlin et al. 2019, section 3.1, the vector C).

    activation: in place of tanh; DistilBERT has ReLU here, ELECTRA and DeBERTa GELU. dropout: on the first token.
    """

    def __init__(self, stack: Stack, activation: Callable[[Tensor], Tensor] = torch.tanh, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(stack.config.width, stack.config.width)
        self.activation = activation
        _init(self.dense, stack)

    def forward(self, h: Float[Tensor, "B T D"]) -> Float[Tensor, "B D"]:
        return self.activation(self.dense(self.dropout(h[:, 0])))


class Pooled(nn.Module):
    """A stack and its pooler: (hidden states [B, T, D], sentence vector [B, D])."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack
        self.pooler = Pooler(stack)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B D"]]:
        h = self.stack(ids, keep=keep, segments=segments)
        return h, self.pooler(h)


class NSP(nn.Module):
    """Is the second sentence the next one? Logits [B, 2]; class 0 = it is, 1 = a random one."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack
        self.pooler = Pooler(stack)
        self.next = nn.Linear(stack.config.width, 2)
        _init(self.next, stack)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B 2"]:
        logits: Tensor = self.next(self.pooler(self.stack(ids, keep=keep, segments=segments)))
        return logits


class Pretraining(nn.Module):
    """Both objectives of BERT on one stack: (masked-LM logits, next-sentence logits [B, 2])."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack
        self.head = MaskedHead(stack)
        self.pooler = Pooler(stack)
        self.next = nn.Linear(stack.config.width, 2)
        _init(self.next, stack)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        at: Bool[Tensor, "B T"] | None = None,
    ) -> tuple[Tensor, Float[Tensor, "B 2"]]:
        h = self.stack(ids, keep=keep, segments=segments)
        words = self.head(h if at is None else h[at], self.stack.embed.tokens.weight)
        return words, self.next(self.pooler(h))


class Classifier(nn.Module):
    """One label for a whole input: class logits [B, C] (C = 1 for a score).

    pool: "first" is BERT's pooler on [CLS]; "last" is the last kept token, as GPT-1 reads its extract token; "mean" is
    the mean over kept tokens. pooler: in place of BERT's. dropout: before the last layer, by default the stack's.
    """

    def __init__(
        self,
        stack: Stack,
        classes: int,
        pool: Pool = "first",
        bias: bool = True,
        *,
        pooler: Pooler | None = None,
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        self.stack, self.pool = stack, pool
        if pool == "first":
            self.pooler = pooler or Pooler(stack)
        self.dropout = nn.Dropout(stack.config.dropout if dropout is None else dropout)
        self.out = nn.Linear(stack.config.width, classes, bias=bias)
        _init(self.out, stack)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B C"]:
        h = self.stack(ids, keep=keep, segments=segments)
        vector = self.pooler(h) if self.pool == "first" else pool(h, keep, self.pool)
        logits: Tensor = self.out(self.dropout(vector))
        return logits


class Choice(Classifier):
    """Which of N continuations? Each is read on its own and gets one score: ids [B, N, T] -> [B, N]."""

    def __init__(
        self, stack: Stack, pool: Pool = "first", *, pooler: Pooler | None = None, dropout: float | None = None
    ) -> None:
        super().__init__(stack, 1, pool, pooler=pooler, dropout=dropout)

    def forward(
        self,
        ids: Int[Tensor, "B N T"],
        *,
        keep: Bool[Tensor, "B N T"] | None = None,
        segments: Int[Tensor, "B N T"] | None = None,
    ) -> Float[Tensor, "B N"]:
        scores = super().forward(
            ids.flatten(0, 1),
            keep=None if keep is None else keep.flatten(0, 1),
            segments=None if segments is None else segments.flatten(0, 1),
        )
        return scores.view(ids.shape[:2])


class Tagger(nn.Module):
    """One label a token: [B, T, C]."""

    def __init__(self, stack: Stack, classes: int) -> None:
        super().__init__()
        self.stack = stack
        self.dropout = nn.Dropout(stack.config.dropout)
        self.out = nn.Linear(stack.config.width, classes)
        _init(self.out, stack)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T C"]:
        logits: Tensor = self.out(self.dropout(self.stack(ids, keep=keep, segments=segments)))
        return logits


class RTD(nn.Module):
    """Was this token replaced? One logit a token, above zero = yes (ELECTRA, Clark et al. 2020, section 3.1)."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack
        self.dense = nn.Linear(stack.config.width, stack.config.width)
        self.activation = ACTIVATIONS[stack.config.activation]
        self.score = nn.Linear(stack.config.width, 1)
        _init(self.dense, stack)
        _init(self.score, stack)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T"]:
        h = self.stack(ids, keep=keep, segments=segments)
        logits: Tensor = self.score(self.activation(self.dense(h))).squeeze(-1)
        return logits


class Span(nn.Module):
    """Where the answer starts and ends: two logits a token, ([B, T], [B, T]) (Devlin et al. 2019, section 4.2)."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack
        self.out = nn.Linear(stack.config.width, 2)
        _init(self.out, stack)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        start, end = self.out(self.stack(ids, keep=keep, segments=segments)).unbind(-1)
        return start, end


def pool(h: Float[Tensor, "B T D"], keep: Bool[Tensor, "B T"] | None, how: Pool) -> Float[Tensor, "B D"]:
    """One vector a row: the first token's, the last kept token's, or the mean or the maximum over kept tokens."""
    if how == "first":
        return h[:, 0]
    keep = torch.ones(h.shape[:2], dtype=torch.bool, device=h.device) if keep is None else keep.bool()
    if how == "mean":
        weights = keep.to(h.dtype)[..., None]
        return (h * weights).sum(1) / weights.sum(1).clamp(min=1)
    if how == "max":
        return h.masked_fill(~keep[..., None], -torch.inf).max(dim=1).values
    if how == "last":
        places = torch.arange(h.shape[1], device=h.device)
        last = (places * keep).argmax(dim=1)
        return h[torch.arange(len(h), device=h.device), last]
    raise CourseError(f"Unknown pooling {how!r}; there are first, last, mean and max.")


def _init(linear: nn.Linear, stack: Stack) -> None:
    nn.init.normal_(linear.weight, std=stack.config.init_std)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
