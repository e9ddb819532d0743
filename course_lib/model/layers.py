"""The modules around attention: feed-forward, block and embedding."""

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
from course_lib.model.norms import norm

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,  # x Phi(x), exact (Hendrycks & Gimpel 2016)
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),  # GPT-1's and GPT-2's approximation
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, for each token separately.

    down(act(up(x)))                  (Vaswani et al. 2017, equation 2)
    down(act(gate(x)) * up(x))        if gated (Shazeer 2020, equation 6)
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, config.hidden, bias=config.bias)
        self.gate = None
        if config.gated:
            self.gate = nn.Linear(config.width, config.hidden, bias=config.bias)
        self.down = nn.Linear(config.hidden, config.width, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = config.activation_dropout

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        up = self.up(x)  # B T hidden
        if self.gate is None:
            hidden = self.activation(up)
        else:
            gate = self.activation(self.gate(x))
            hidden = gate * up
        if self.training and self.dropout > 0:
            hidden = F.dropout(hidden, self.dropout)
        return self.down(hidden)  # B T D


class Block(nn.Module):
    """Attention, cross-attention (in a decoder with an encoder), feed-forward.

    Each part f has a residual connection and a norm:

    post: x = norm(x + f(x))  (2017)        pre: x = x + f(norm(x))  (GPT-2, T5)

    Args:
        config: the configuration of the stack.
        layer: index of the layer, from 0.
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
        """One layer.

        Args:
            x: hidden states.
            mask: True = may attend; all may by default.
            is_causal: True: a token may attend to itself and earlier ones; `mask` is then None.
            positions: positions of queries and keys.
            cache: keys and values of earlier tokens; those of x are appended in place.
            memory: the encoder's output, for blocks with cross-attention.
            memory_mask: True at the memory's real tokens.
        """
        h = self._input(x, self.attn_norm)
        attn_cache = None if cache is None else cache.attn
        h = self.attn(h, h, mask=mask, is_causal=is_causal, positions=positions, cache=attn_cache)
        x = self._add(x, h, self.attn_norm)

        if memory is not None:
            h = self._input(x, self.cross_norm)
            # With n targets per source (beam search), these attend to its memory as one long
            # sequence: B*n T D -> B n*T D
            h = h.reshape(len(memory), -1, h.shape[-1])
            memory = kernels.cast_once(memory)
            cross_cache = None if cache is None else cache.cross
            h = self.cross(h, memory, mask=memory_mask, cache=cross_cache)
            x = self._add(x, h.view_as(x), self.cross_norm)

        h = self.ff(self._input(x, self.ff_norm))
        return self._add(x, h, self.ff_norm)

    def _input(self, x: Float[Tensor, "B T D"], layer_norm: nn.Module) -> Float[Tensor, "B T D"]:
        """The input of a part: x (post-norm), or norm(x) (pre-norm)."""
        h = layer_norm(x) if self.pre else x
        return kernels.cast_once(h)

    def _add(
        self, x: Float[Tensor, "B T D"], h: Float[Tensor, "B T D"], layer_norm: nn.Module
    ) -> Float[Tensor, "B T D"]:
        """The residual sum: norm(x + h) (post-norm), or x + h (pre-norm)."""
        x = x + self.dropout(h)
        return x if self.pre else layer_norm(x)


class Embedding(nn.Module):
    """Token + segment + position vector, then norm and dropout (Devlin et al. 2019, figure 2).

    It takes two steps, because soft prompts, which are vectors without a token, enter between them:

        x = embed.lookup(ids)                    # the token vectors
        h = embed(x, positions, segments)        # the input of the first block
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        embed = config.embed
        width = embed.width or config.width  # E
        self.scale = embed.scale
        self.tokens = nn.Embedding(embed.vocab, width)
        self.segments = nn.Embedding(embed.segments, width) if embed.segments else None
        self.norm = norm(config, width) if embed.norm else nn.Identity()
        self.project = nn.Linear(width, config.width) if embed.width is not None else nn.Identity()
        rate = config.dropout if config.embed_dropout is None else config.embed_dropout
        self.dropout = nn.Dropout(rate)

    def lookup(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T E"]:
        """The token vectors, before segments and positions are added."""
        # Not on a GPU: reading the ids back would make the program wait for it.
        if ids.device.type == "cpu" and not torch.compiler.is_compiling():
            check_ids(ids, self.tokens.num_embeddings)
        return self.tokens(ids)

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        position: Float[Tensor, "#B T E"] | float,
        segments: Int[Tensor, "B T"] | None,
    ) -> Float[Tensor, "B T D"]:
        """Token vectors to the input of the first block.

        Args:
            x: token vectors, as `lookup` gives them.
            position: the position vectors of `Position.embed`, or 0.0.
            segments: the segment of each token; 0 by default.

        Raises:
            CourseError: segments are given, but the model has no segment table.
        """
        if self.segments is None and segments is not None:
            raise CourseError(
                "segments were given to a model without a segment table; leave them out."
            )
        if self.scale != 1.0:
            x = x * self.scale
        total = x + self._segment_vectors(segments) + position  # B T E
        x = total.to(x.dtype)  # sinusoidal positions are float32, x may be bfloat16
        x = self.dropout(self.norm(x))
        # Hidden states stay float32 under autocast. Otherwise the norms would run in bfloat16, and
        # a CPU sums their gradients in bfloat16, too.
        return self.project(x).to(x.dtype)

    def _segment_vectors(
        self, segments: Int[Tensor, "B T"] | None
    ) -> Float[Tensor, "*T E"] | float:
        """The vector of each token's segment; 0.0 if the model has no segments."""
        if self.segments is None:
            return 0.0
        if segments is None:
            return self.segments.weight[0]  # E: all tokens are in segment 0
        return self.segments(segments)  # B T E
