"""The parts between the attentions: norms, feed-forward, the block that all models share, the
embedding.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from course_lib.errors import CourseError
from course_lib.model.attention import Attention, LayerCache, PositionInfo
from course_lib.model.config import StackConfig

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,  # x Phi(x), exact (Hendrycks & Gimpel 2016)
    # the approximation that GPT-1 and GPT-2 use
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight: no mean is subtracted, no bias added (Zhang & Sennrich
    2019).
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*T D"]) -> Float[Tensor, "*T D"]:
        learns = x.is_cpu and x.requires_grad and x.dtype == self.weight.dtype == torch.float32
        if learns and not torch.compiler.is_compiling():
            y: Tensor = _RMSNorm.apply(x, self.weight, self.eps)  # type: ignore[no-untyped-call]
            return y
        scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps)
        return self.weight * (x * scale).to(x.dtype)


class _RMSNorm(torch.autograd.Function):
    """RMSNorm whose gradient LayerNorm's kernel computes, with a mean of 0; what that takes off for
    the way through the mean is added again. On a CPU a third of the formula's time, and one tensor
    kept instead of two."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).mul_(weight)

    @staticmethod
    @once_differentiable  # LayerNorm's own second derivative would be another
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, scale = ctx.saved_tensors
        # mean, 1 / deviation, weight, bias
        saved = (x, weight.shape, torch.zeros_like(scale), scale, weight, None)
        to_x, to_weight, _ = torch.ops.aten.native_layer_norm_backward(
            outer, *saved, [True, True, False]
        )
        return to_x.add_((outer @ weight)[..., None] * scale / len(weight)), to_weight, None


def norm(config: StackConfig, width: int | None = None) -> nn.Module:
    """The config's kind of norm."""
    return (RMSNorm if config.rms else nn.LayerNorm)(width or config.width, eps=config.eps)


class FeedForward(nn.Module):
    """down(act(up(x))), or down(act(gate(x)) * up(x)) where gated (Shazeer 2020)."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, config.hidden, bias=config.bias)
        self.gate = (
            nn.Linear(config.width, config.hidden, bias=config.bias) if config.gated else None
        )
        self.down = nn.Linear(config.hidden, config.width, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        up = self.up(x)
        hidden = self.activation(up) if self.gate is None else self.activation(self.gate(x)) * up
        return self.down(hidden)


class Block(nn.Module):
    """Attention, cross-attention where there is a memory, feed-forward; each with a residual and a
    norm.

    post: x = norm(x + f(x))  (2017)        pre: x = x + f(norm(x))  (GPT-2, T5)
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.attn = Attention(config)
        self.attn_norm = norm(config)
        if config.cross:
            self.cross = Attention(config)
            self.cross_norm = norm(config)
        self.ff = FeedForward(config)
        self.ff_norm = norm(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Bool[Tensor, "#B #H #T Tk"] | None = None,
        is_causal: bool = False,
        where: PositionInfo | None = None,
        cache: LayerCache | None = None,
        memory: Float[Tensor, "B M D"] | None = None,
        memory_mask: Bool[Tensor, "#B 1 1 M"] | None = None,
        cross_cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T D"]:
        h = cast_once(self.attn_norm(x) if self.pre else x)
        x = x + self.dropout(
            self.attn(h, h, mask=mask, is_causal=is_causal, where=where, cache=cache)
        )
        x = x if self.pre else self.attn_norm(x)

        if memory is not None:
            memory = cast_once(memory)
            h = self.cross_norm(x) if self.pre else x
            # n texts of one source ask it together: B*n T D -> B n*T D
            h = h.reshape(len(memory), -1, h.shape[-1])
            x = x + self.dropout(
                self.cross(h, memory, mask=memory_mask, cache=cross_cache)
            ).view_as(x)
            x = x if self.pre else self.cross_norm(x)

        h = cast_once(self.ff_norm(x) if self.pre else x)
        x = x + self.dropout(self.ff(h))
        return x if self.pre else self.ff_norm(x)


def cast_once(x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
    """x in autocast's type, which otherwise casts it anew for each matrix that reads it."""
    kind = x.device.type
    able = x.dtype == torch.float32 and torch.amp.is_autocast_available(kind)  # "meta" has none
    return x.to(torch.get_autocast_dtype(kind)) if able and torch.is_autocast_enabled(kind) else x


def check_ids(ids: Int[Tensor, "*N"], size: int) -> None:
    """Refuse ids outside a vocabulary of this size, of which a GPU would only say "device-side
    assert".
    """
    low, high = (int(v) for v in ids.aminmax()) if ids.numel() else (0, 0)
    if low < 0 or high >= size:
        run = f"Token ids run from {low} to {high}, but the model's vocabulary has {size} entries"
        raise CourseError(f"{run}; was the text encoded with another model's tokenizer?")


class Embedding(nn.Module):
    """Token vector + segment vector + position vector, then norm and dropout where the config has
    them.
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        embed = config.embed
        width = embed.width or config.width
        self.scale = embed.scale
        self.tokens = nn.Embedding(embed.vocab, width)
        self.segments = nn.Embedding(embed.segments, width) if embed.segments else None
        self.norm = norm(config, width) if embed.norm else None
        self.project = nn.Linear(width, config.width) if embed.width is not None else None
        self.dropout = nn.Dropout(config.dropout)

    def lookup(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T E"]:
        """Token vectors alone."""
        # a look would wait for a device
        if ids.device.type == "cpu" and not torch.compiler.is_compiling():
            check_ids(ids, self.tokens.num_embeddings)
        return self.tokens(ids)

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        position: Float[Tensor, "#B T E"] | float,
        segments: Int[Tensor, "B T"] | None,
    ) -> Float[Tensor, "B T D"]:
        x = x * self.scale if self.scale != 1.0 else x
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        elif segments is not None:
            raise CourseError(
                "segments were given to a model without a segment table; leave them out."
            )
        x = (x + position).to(x.dtype)  # sines are float32 whatever the weights are
        x = x if self.norm is None else self.norm(x)
        x = self.dropout(x)
        # Hidden states stay float32 under autocast: on a CPU a bfloat16 norm's gradients are summed
        # in bfloat16.
        return x if self.project is None else self.project(x).to(x.dtype)


@contextmanager
def evaluating(model: nn.Module | list[nn.Module]) -> Iterator[None]:
    """Without dropout inside of the block; after it, also after an error, each part is in the mode
    it was in. model: or its `modules()`, for whoever comes back at every token."""
    training = [
        module
        for module in (model if isinstance(model, list) else model.modules())
        if module.training
    ]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
