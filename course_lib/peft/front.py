"""Vectors that no token has, in front of a frozen model's text; they alone are trained.

Prefix tuning (Li & Liang 2021): keys and values in every layer, a cache filled beforehand. Prompt
tuning (Lester et al. 2021): token vectors at the input. Either is a `Transformer` that shares the
given one's parts and names, so every head, `finetune` and `generate` take it as they take any
other. `attention_mask` speaks of the text alone."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.attention import KVCache
from course_lib.model.heads import Mask, Segments
from course_lib.model.layers import evaluating
from course_lib.model.transformer import Transformer
from course_lib.peft.methods import Added, Model, freeze

Tokens = Sequence[int] | Tensor


class Vectors(Added):
    """A prompt's token vectors, Float[P, E]; or a prefix's keys and values, Float[P, L * 2 * H *
    Dh], keys first. network: what makes them of narrower rows while they are trained (Li & Liang
    2021, equation 3)."""

    def __init__(self, rows: Tensor, network: nn.Module | None = None) -> None:
        super().__init__()
        self.weight, self.network = nn.Parameter(rows.detach().clone()), network

    @property
    def table(self) -> Tensor:
        """The vectors themselves."""
        return self.weight if self.network is None else self.network(self.weight)


class Front(Transformer):
    """A stack with `length` positions in front of every text."""

    def __init__(self, stack: Transformer, length: int) -> None:
        nn.Module.__init__(self)
        self.config, self.embed, self.position = stack.config, stack.embed, stack.position
        self.blocks, self.norm, self.training = stack.blocks, stack.norm, stack.training
        self.length = length
        freeze(self)

    def _with_front(
        self, x: Tensor, cache: KVCache | None, attention_mask: Tensor | None
    ) -> Tensor | None:
        """The text's `attention_mask`, with True for what stands in front of it."""
        past = cache.length if cache is not None else 0
        if attention_mask is None or attention_mask.shape[1] == (past or self.length) + x.shape[1]:
            return attention_mask
        return nn.functional.pad(attention_mask.bool(), (self.length, 0), value=True)


class Prefixed(Front):
    """A stack whose layers attend to a prefix beside their own positions."""

    def __init__(
        self, stack: Transformer, rows: Float[Tensor, "P S"], network: nn.Module | None = None
    ) -> None:
        super().__init__(stack, len(rows))
        self.prefix = Vectors(rows, network)

    def run(
        self,
        x: Float[Tensor, "B T E"],
        *,
        attention_mask: Mask = None,
        cache: KVCache | None = None,
        **more: Any,
    ) -> Float[Tensor, "B T D"]:
        """As `Transformer.run`. A cache that is empty gets the prefix first; one that is not holds
        it already.
        """
        attention_mask = self._with_front(x, cache, attention_mask)
        config, cache = self.config, cache or KVCache(self.config.layers)
        if cache.length == 0:
            parts = self.prefix.table.view(self.length, config.layers, 2, config.heads, config.dh)
            for layer, own in enumerate(cache.own):
                # B H P Dh
                own.k, own.v = (
                    parts[:, layer].permute(1, 2, 0, 3)[:, None].expand(-1, len(x), -1, -1, -1)
                )
        return super().run(x, attention_mask=attention_mask, cache=cache, **more)


class Prompted(Front):
    """A stack that reads the prompt's vectors before every text."""

    def __init__(self, stack: Transformer, vectors: Float[Tensor, "P E"]) -> None:
        super().__init__(stack, len(vectors))
        self.prompt = Vectors(vectors)

    def run(
        self,
        x: Float[Tensor, "B T E"],
        *,
        attention_mask: Mask = None,
        segments: Segments = None,
        cache: KVCache | None = None,
        **more: Any,
    ) -> Float[Tensor, "B T D"]:
        """As `Transformer.run`. A cache that is not empty has read the prompt already. The prompt
        is of segment 0.
        """
        more["attention_mask"] = self._with_front(x, cache, attention_mask)
        if cache is not None and cache.length:
            return super().run(x, segments=segments, cache=cache, **more)
        x = torch.cat((self.prompt.weight.to(x.dtype).expand(len(x), -1, -1), x), dim=1)
        if segments is not None:
            segments = nn.functional.pad(segments, (self.length, 0))
        return super().run(x, segments=segments, cache=cache, **more)[:, self.length :]


def prefix(
    model: Model, length: int = 10, *, hidden: int | None = None, words: Tokens | None = None
) -> Model:
    """Freeze the model and put a trained prefix before the keys and values of every layer.

    Args:
        model: a Transformer gives a `Prefixed` one; in a model that owns one it takes the stack's
            place.
        length: positions P. With learned positions the text begins at position P, so P fewer tokens
            fit (`finetune(..., max_length=...)`).
        hidden: width of the network that makes the prefix while it is trained (the paper: 512 or
            800), if any.
        words: token ids, in place of `hidden`; the prefix starts as the keys and values of their
            hidden states (section 7.4), so the model starts as one that has read them. `length` is
            then their number.
    """

    def before(stack: Transformer) -> Prefixed:
        if words is not None:
            return Prefixed(stack, _read(stack, words))
        config, tokens = stack.config, stack.embed.tokens.weight
        size = config.layers * 2 * config.heads * config.dh
        if hidden is None:
            return Prefixed(stack, (0.02 * torch.randn(length, size)).to(tokens))
        rows = torch.randn(length, config.width)
        network = nn.Sequential(nn.Linear(config.width, hidden), nn.Tanh(), nn.Linear(hidden, size))
        return Prefixed(stack, rows.to(tokens), network.to(tokens))

    return _in_front(model, length, before)


def prompt(model: Model, length: int = 20, *, words: Tokens | None = None) -> Model:
    """Freeze the model and let it read `length` trained vectors before every text. words: token ids
    whose vectors the prompt starts from, repeated or cut to the length: the names of the labels
    (section 3.2); by default drawn."""

    def before(stack: Transformer) -> Prompted:
        table = stack.embed.tokens.weight.detach()
        if words is None:
            return Prompted(stack, table[torch.randint(len(table), (length,), device=table.device)])
        ids = torch.as_tensor(words, device=table.device).repeat(-(-length // len(words)))[:length]
        return Prompted(stack, table[ids])

    return _in_front(model, length, before)


def _in_front(model: Model, length: int, before: Callable[[Transformer], Front]) -> Model:
    stack = model if isinstance(model, Transformer) else getattr(model, "stack", None)
    if not isinstance(stack, Transformer) or isinstance(stack, Front) or length < 1:
        raise CourseError(
            "A prefix or prompt of at least one position stands in front of one bare Transformer."
        )
    if isinstance(model, Transformer):
        return cast(Model, before(model))
    cast(Any, model).stack = before(stack)
    freeze(model)
    return model


@torch.no_grad()
def _read(stack: Transformer, words: Tokens) -> Float[Tensor, "P S"]:
    """Keys and values of all layers, of a model that reads these words."""
    cache = KVCache(stack.config.layers)
    with evaluating(stack):
        stack(torch.as_tensor(words, device=stack.embed.tokens.weight.device)[None], cache=cache)
    # 2 H P Dh
    pairs = [torch.stack((cast(Tensor, own.k)[0], cast(Tensor, own.v)[0])) for own in cache.own]
    return torch.stack(pairs).permute(3, 0, 1, 2, 4).flatten(1)
