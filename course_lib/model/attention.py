"""Attention: each query gets a mean of the values, weighted by how well it matches their keys.

softmax(q k^T / sqrt(Dh)) v        (Vaswani et al. 2017, equation 1)
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.model import kernels, masks
from course_lib.model.cache import LayerCache
from course_lib.model.config import Disentangled, StackConfig
from course_lib.model.positions import Position, layer_weights


def scaled_dot_product_attention(
    q: Float[Tensor, "*B Tq Dh"],
    k: Float[Tensor, "*B Tk Dh"],
    v: Float[Tensor, "*B Tk Dv"],
    *,
    mask: Bool[Tensor, "*#B Tq Tk"] | None = None,
    bias: Float[Tensor, "*#B Tq Tk"] | None = None,
    scale: float | None = None,
    on_scores: Callable[[Tensor], Tensor] = lambda scores: scores,
    on_probs: Callable[[Tensor], Tensor] = lambda probs: probs,
) -> tuple[Float[Tensor, "*B Tq Dv"], Float[Tensor, "*B Tq Tk"]]:
    """softmax(scale q k^T + bias) v, step by step (Vaswani et al. 2017, equation 1).

    Args:
        q: queries.
        k: keys.
        v: values, one for each key.
        mask: True = may attend. If a query may attend to nothing, it attends to all keys
            with the same weight.
        bias: added to the scores.
        scale: factor on q k^T; by default 1 / sqrt(Dh).
        on_scores: applied to the scores before the softmax, to look at or change them.
        on_probs: applied to the weights before they multiply the values, for example dropout.

    Returns:
        The weighted means of the values, and the weights.

    >>> q = k = v = torch.eye(2)
    >>> y, weights = scaled_dot_product_attention(q, k, v, mask=masks.causal(2)[0, 0])
    >>> weights[0].tolist()
    [1.0, 0.0]
    """
    if scale is None:
        scale = q.shape[-1] ** -0.5  # keeps the scores' variance near 1, whatever Dh is
    if scale != 1.0:
        q = q * scale

    scores = q @ k.transpose(-1, -2)  # Tq Tk: how well each query matches each key
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        # After the softmax, this score is a weight of 0.
        lowest = torch.finfo(scores.dtype).min
        # We add it instead of overwriting the scores: a sum's backward pass costs nothing, and the
        # scores of a query that may attend to nothing keep their gradients.
        penalty = torch.zeros(mask.shape, dtype=scores.dtype, device=scores.device)
        scores = scores + penalty.masked_fill(~mask, lowest)

    scores = on_scores(scores)
    probs = scores.softmax(dim=-1)  # each row sums to 1
    probs = on_probs(probs)
    # A float32 bias has made bfloat16 scores float32.
    y = probs.to(v.dtype) @ v  # Tq Dv: a weighted mean of the values for each query
    return y, probs


@dataclass
class PositionInfo:
    """Positions of queries and keys, and the scheme that uses them.

    Each forward pass makes one, for all layers with the same attention pattern.

    Attributes:
        scheme: how positions enter the attention.
        queries: the position of each query.
        keys: the position of each key.
        bias: what the scheme adds to the scores if it does not need the queries for that; computed
            here by default.
    """

    scheme: Position
    queries: Int[Tensor, "#B Tq"]
    keys: Int[Tensor, "#B Tk"]
    # A field of __init__, because FSDP copies this object with `dataclasses.replace`.
    bias: Tensor | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        # Here and not in the blocks: with activation checkpointing each block runs twice.
        if self.bias is None and not self.scheme.scores_use_query:
            self.bias = self.scheme.scores(None, self.queries, self.keys)

    def scores(
        self, q: Float[Tensor, "B H Tq Dh"], k: Float[Tensor, "B H Tk Dh"], layer: nn.Module | None
    ) -> Float[Tensor, "#B H Tq Tk"] | None:
        """What the scheme adds to the scores.

        Args:
            q: queries.
            k: keys.
            layer: the weights that the scheme has in this layer; None except in DeBERTa.
        """
        if self.scheme.scores_use_query:
            return self.scheme.scores(q, self.queries, self.keys, k, layer)
        return self.bias


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2).

    `scores` and `probs` are identities: put a hook on them to read the scores and the weights.
    Without a hook, a fused kernel computes the output and never forms them.
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        inner = config.heads * config.dh  # width of all heads together; D in most models
        self.heads = config.heads
        self.dh = config.dh
        self.factor = config.score_factor
        self.dropout = config.attention_dropout
        self.q = nn.Linear(config.width, inner, bias=config.bias)
        # A bias of the keys adds the same number to all scores of a query, so the softmax does not
        # change. DeBERTa has no such bias.
        key_bias = config.bias and not isinstance(config.position, Disentangled)
        self.k = nn.Linear(config.width, inner, bias=key_bias)
        self.v = nn.Linear(config.width, inner, bias=config.bias)
        self.out = nn.Linear(inner, config.width, bias=config.bias)
        # The weights that the position scheme has in this layer; None except in DeBERTa. Saved
        # DeBERTas contain this name (`attn.position.k.weight`), so it must not change.
        self.position = layer_weights(config)
        self.scores = nn.Identity()
        self.probs = nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "B Tq D"],
        source: Float[Tensor, "B Tk D"],
        *,
        mask: Bool[Tensor, "#B #H #Tq Tk"] | None = None,
        is_causal: bool = False,
        positions: PositionInfo | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B Tq D"]:
        """Queries from x, keys and values from source.

        Args:
            x: the vectors that attend.
            source: the vectors that x attends to. In self-attention this is x itself, in
                cross-attention the encoder's output.
            mask: True = may attend; all may by default.
            is_causal: True has the effect of `mask=masks.causal(Tq)`, without making that mask.
            positions: positions of queries and keys; None in cross-attention.
            cache: keys and values of earlier tokens; those of the new tokens are appended in place.
        """
        q = self._split(self.q(x))  # B H Tq Dh
        if self.factor != 1.0:
            q = q * self.factor  # 1 / sqrt(Dh) in most models
        if positions is not None:
            q = positions.scheme.rotate(q, positions.queries)
        k, v = self._keys_values(source, positions, cache)  # B H Tk Dh

        bias = None
        if positions is not None:
            bias = positions.scores(q, k, self.position)  # B H Tq Tk

        # One fused kernel, unless someone wants to see or change the attention weights: then the
        # formula. q is scaled already, so neither scales again.
        if kernels.use_attention(q, k) and not self._needs_weights(positions):
            dropout = self.dropout if self.training else 0.0
            y = kernels.attention(
                q, k, v, mask=mask, bias=bias, is_causal=is_causal, dropout=dropout
            )
        else:
            if is_causal:  # the formula has no shortcut for it
                mask = masks.causal(q.shape[2], k.shape[2], q.device)
            y, weights = scaled_dot_product_attention(
                q,
                k,
                v,
                mask=mask,
                bias=bias,
                scale=1.0,
                on_scores=self.scores,
                on_probs=self._drop,
            )
            if positions is not None:
                # Shaw's scheme adds a vector here; the others add 0.
                y = y + positions.scheme.values(weights, positions.queries, positions.keys)
        y = y.transpose(1, 2).flatten(2)  # B H Tq Dh -> B Tq H*Dh: the heads side by side
        return self.out(y)  # B Tq D

    def _split(self, x: Float[Tensor, "B T HDh"]) -> Float[Tensor, "B H T Dh"]:
        return x.view(*x.shape[:-1], self.heads, self.dh).transpose(1, 2)

    def _keys_values(
        self, source: Tensor, positions: PositionInfo | None, cache: LayerCache | None
    ) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, Tk, Dh] of all tokens, from the cache and from the source."""
        # Cross-attention: the encoder's output is the same at every step, and so are its keys.
        if cache is not None and cache.fixed and cache.k is not None and cache.v is not None:
            return cache.k, cache.v

        k = self._split(self.k(source))
        v = self._split(self.v(source))
        if positions is not None:
            # The keys in the cache are already rotated. The new tokens are the last positions.
            new_tokens = k.shape[2]
            k = positions.scheme.rotate(k, positions.keys[:, -new_tokens:])
        if cache is None:
            return k, v
        return cache.extend(k, v)

    def _drop(self, probs: Float[Tensor, "B H Tq Tk"]) -> Float[Tensor, "B H Tq Tk"]:
        """Dropout on the weights. The hooks of `probs` see the weights before dropout."""
        probs = self.probs(probs)
        if not self.training or self.dropout == 0:
            return probs
        return F.dropout(probs, self.dropout)

    def _needs_weights(self, positions: PositionInfo | None) -> bool:
        """Whether a hook or the position scheme reads the scores or weights."""
        if self.scores._forward_hooks or self.probs._forward_hooks:
            return True
        return positions is not None and positions.scheme.changes_values
