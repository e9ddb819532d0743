"""The parts around attention: norms, feed-forward, the block of all models, the embedding."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model import kernels
from course_lib.model.attention import Attention, PositionInfo
from course_lib.model.cache import BlockCache
from course_lib.model.checks import check_ids
from course_lib.model.config import Activation, StackConfig

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,  # x Phi(x), exact (Hendrycks & Gimpel 2016)
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),  # GPT-1's and GPT-2's approximation
    "silu": F.silu,
}


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight (Zhang & Sennrich 2019).

    LayerNorm also subtracts the mean and adds a bias.

    Args:
        width: D.
        eps: keeps the division finite.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*T D"]) -> Float[Tensor, "*T D"]:
        if kernels.use_rms_norm(x, self.weight):
            return kernels.rms_norm(x, self.weight, self.eps)

        # In float32 even if x is not: squares of bfloat16 numbers lose too much.
        mean_square = x.float().square().mean(-1, keepdim=True)  # *T 1
        scale = torch.rsqrt(mean_square + self.eps)
        return self.weight * (x * scale).to(x.dtype)


def norm(config: StackConfig, width: int | None = None) -> nn.Module:
    """A norm of the config's kind, over `width` components (by default D)."""
    width = width or config.width
    if config.rms:
        return RMSNorm(width, config.eps)
    return nn.LayerNorm(width, config.eps, bias=config.bias)


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, on every token alone.

    down(act(up(x)))                  (Vaswani et al. 2017, equation 2)
    down(act(gate(x)) * up(x))        where gated (Shazeer 2020, equation 6)
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, config.hidden, bias=config.bias)
        self.gate = None
        if config.gated:
            self.gate = nn.Linear(config.width, config.hidden, bias=config.bias)
        self.down = nn.Linear(config.hidden, config.width, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        up = self.up(x)  # B T hidden
        if self.gate is None:
            hidden = self.activation(up)
        else:
            gate = self.activation(self.gate(x))
            hidden = gate * up
        return self.down(hidden)  # B T D


class Block(nn.Module):
    """Attention, cross-attention where there is a memory, feed-forward.

    Each has a residual sum and a norm:

    post: x = norm(x + f(x))  (2017)        pre: x = x + f(norm(x))  (GPT-2, T5)

    Args:
        config: of the stack.
        layer: its number, from 0.
    """

    def __init__(self, config: StackConfig, layer: int = 0) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.attn = Attention(config)
        has_norm = config.first_norm or layer > 0
        self.attn_norm = norm(config) if has_norm else nn.Identity()
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
        positions: PositionInfo | None = None,
        cache: BlockCache | None = None,
        memory: Float[Tensor, "B M D"] | None = None,
        memory_mask: Bool[Tensor, "#B 1 1 M"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """One layer. The arguments are those of `Attention` and `Transformer.run`."""
        h = self.attn_norm(x) if self.pre else x
        h = kernels.cast_once(h)
        own_cache = None if cache is None else cache.own
        h = self.attn(h, h, mask=mask, is_causal=is_causal, positions=positions, cache=own_cache)
        x = x + self.dropout(h)
        if not self.pre:
            x = self.attn_norm(x)

        if memory is not None:
            h = self.cross_norm(x) if self.pre else x
            # Several texts of one source ask its memory together: B*n T D -> B n*T D
            h = h.reshape(len(memory), -1, h.shape[-1])
            memory = kernels.cast_once(memory)
            cross_cache = None if cache is None else cache.cross
            h = self.cross(h, memory, mask=memory_mask, cache=cross_cache)
            x = x + self.dropout(h.view_as(x))
            if not self.pre:
                x = self.cross_norm(x)

        h = self.ff_norm(x) if self.pre else x
        h = self.ff(kernels.cast_once(h))
        x = x + self.dropout(h)
        if not self.pre:
            x = self.ff_norm(x)
        return x


class Embedding(nn.Module):
    """Token + segment + position vector, then norm and dropout (Devlin et al. 2019, figure 2)."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        embed = config.embed
        width = embed.width or config.width  # E
        self.scale = embed.scale
        self.tokens = nn.Embedding(embed.vocab, width)
        self.segments = nn.Embedding(embed.segments, width) if embed.segments else None
        self.norm = norm(config, width) if embed.norm else nn.Identity()
        self.project = nn.Linear(width, config.width) if embed.width is not None else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)

    def lookup(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T E"]:
        """Token vectors alone."""
        # Not on a GPU: reading the ids back would make the program wait.
        if ids.device.type == "cpu" and not torch.compiler.is_compiling():
            check_ids(ids, self.tokens.num_embeddings)
        return self.tokens(ids)

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        position: Float[Tensor, "#B T E"] | float,
        segments: Int[Tensor, "B T"] | None,
    ) -> Float[Tensor, "B T D"]:
        """Everything behind `lookup`.

        Args:
            x: token vectors.
            position: what `Position.embed` adds.
            segments: the segment of each token; all of segment 0 by default.

        Raises:
            CourseError: the model has no segment table for these segments.
        """
        if self.segments is None and segments is not None:
            raise CourseError(
                "segments were given to a model without a segment table; leave them out."
            )
        if self.scale != 1.0:
            x = x * self.scale
        total = x + self._segment_vectors(segments) + position  # B T E
        x = total.to(x.dtype)  # sines are float32 whatever the weights are
        x = self.dropout(self.norm(x))
        # Hidden states stay float32 under autocast: on a CPU a bfloat16 norm's gradients are summed
        # in bfloat16.
        return self.project(x).to(x.dtype)

    def _segment_vectors(
        self, segments: Int[Tensor, "B T"] | None
    ) -> Float[Tensor, "*T E"] | float:
        """The vector of each token's segment; 0.0 where the model has no segments."""
        if self.segments is None:
            return 0.0
        if segments is None:
            return self.segments.weight[0]  # E: all tokens are of segment 0
        return self.segments(segments)  # B T E
