"""Attention: every query takes a weighted mean of the values, weighted by how well it matches their
keys.

softmax(q k^T / sqrt(Dh)) v        (Vaswani et al. 2017, equation 1)
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.model import masks, positions
from course_lib.model.config import Disentangled, StackConfig
from course_lib.model.positions import Position


def scaled_dot_product_attention(
    q: Float[Tensor, "*B Tq Dh"],
    k: Float[Tensor, "*B Tk Dh"],
    v: Float[Tensor, "*B Tk Dv"],
    *,
    mask: Bool[Tensor, "*#B Tq Tk"] | None = None,
    bias: Float[Tensor, "*#B Tq Tk"] | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    on_scores: Callable[[Tensor], Tensor] = lambda scores: scores,
    on_probs: Callable[[Tensor], Tensor] = lambda probs: probs,
) -> tuple[Float[Tensor, "*B Tq Dv"], Float[Tensor, "*B Tq Tk"]]:
    """softmax(scale q k^T + bias) v, step by step (Vaswani et al. 2017, section 3.2.1, equation 1),
    and the weights.

    mask: True = may attend; a query that may attend to nothing attends to everything alike. scale:
    by default 1 / sqrt(Dh). on_scores, on_probs: what scores and weights pass through, to look at
    them or to change them.

    >>> q = k = v = torch.eye(2)
    >>> y, weights = scaled_dot_product_attention(q, k, v, mask=masks.causal(2)[0, 0])
    >>> weights[0].tolist()
    [1.0, 0.0]
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = (q if scale == 1.0 else q * scale) @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        # costs the backward pass nothing
        blocked = torch.zeros(mask.shape, dtype=scores.dtype, device=scores.device)
        scores = scores + blocked.masked_fill_(~mask, torch.finfo(scores.dtype).min)
    probs = on_probs(on_scores(scores).softmax(dim=-1))
    dropped = F.dropout(probs, dropout, dropout > 0)
    return dropped.to(v.dtype) @ v, dropped  # a float32 bias has made bfloat16 scores float32


@dataclass
class PositionInfo:
    """Positions of queries and keys, and the scheme that reads them. Made once a forward pass, used
    by every layer.
    """

    position: Position
    q_pos: Int[Tensor, "#B Tq"]
    k_pos: Int[Tensor, "#B Tk"]
    _bias: Tensor | None = field(default=None, repr=False)

    # before the blocks, which may be computed twice (`Transformer.recompute`)
    def __post_init__(self) -> None:
        if self._bias is None and not self.position.scores_use_query:
            self._bias = self.position.scores(None, self.q_pos, self.k_pos)

    def scores(
        self, q: Float[Tensor, "B H Tq Dh"], k: Float[Tensor, "B H Tk Dh"], own: nn.Module | None
    ) -> Tensor | None:
        """The scheme's additive scores; computed once for all layers where they do not depend on q
        and k.
        """
        if self.position.scores_use_query:
            return self.position.scores(q, self.q_pos, self.k_pos, k, own)
        return self._bias


@dataclass
class LayerCache:
    """Keys and values already computed, [B, H, T, Dh] each. `fixed`: written once
    (cross-attention's memory). columns: how many to make room for at once; beyond them it
    doubles."""

    fixed: bool = False
    columns: int = 0
    k: Tensor | None = None
    v: Tensor | None = None
    # k and v begin these longer tensors
    _room: tuple[Tensor, Tensor] | None = field(default=None, repr=False)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append along T; all keys and values so far."""
        if self.k is None or self.v is None:
            if torch.is_grad_enabled() or not self.columns:
                self.k, self.v = k, v
                return k, v
            self.k, self.v = k[:, :, :0], v[:, :, :0]
        if torch.is_grad_enabled():  # writing in place would spoil the backward pass
            self.k, self.v, self._room = (
                torch.cat((self.k, k), dim=2),
                torch.cat((self.v, v), dim=2),
                None,
            )
        else:
            self.k, self.v = self._write(self.k, self.v, k, v)
        return self.k, self.v

    def _write(self, k: Tensor, v: Tensor, new_k: Tensor, new_v: Tensor) -> tuple[Tensor, Tensor]:
        """Into spare room behind the old ones, so that a step does not copy the whole past."""
        past, total = k.shape[2], k.shape[2] + new_k.shape[2]
        if (
            self._room is None
            or self._room[0].shape[2] < total
            or self._room[0].data_ptr() != k.data_ptr()
        ):
            shape = (*k.shape[:2], self.columns if total <= self.columns else 2 * total, k.shape[3])
            self._room = (k.new_empty(shape), v.new_empty(shape))
            self._room[0][:, :, :past], self._room[1][:, :, :past] = k, v
        for room, new in zip(self._room, (new_k, new_v), strict=True):
            room[:, :, past:total] = new
        return self._room[0][:, :, :total], self._room[1][:, :, :total]

    def reorder(self, rows: Int[Tensor, " B"], since: int = 0) -> None:
        """Keep, repeat or permute rows. since: the columns before it stay where they are (then B
        stays as well).
        """
        if self.k is None or self.v is None:
            return
        if since:
            for held in (self.k[:, :, since:], self.v[:, :, since:]):
                held.copy_(held.index_select(0, rows))
        else:
            self.k, self.v, self._room = (
                self.k.index_select(0, rows),
                self.v.index_select(0, rows),
                None,
            )


class KVCache:
    """One `LayerCache` a layer for self- and one for cross-attention. Owned by the caller, never by
    a module.
    """

    def __init__(self, layers: int, columns: int = 0) -> None:
        self.own = [LayerCache(columns=columns) for _ in range(layers)]
        self.cross = [LayerCache(fixed=True) for _ in range(layers)]

    @property
    def length(self) -> int:
        """Positions held."""
        return 0 if self.own[0].k is None else self.own[0].k.shape[2]

    def reorder(self, rows: Int[Tensor, " B"]) -> None:
        """Keep, repeat or permute batch rows (beam search)."""
        for layer in self.own + self.cross:
            layer.reorder(rows)


class Attention(nn.Module):
    """Multi-head attention with separate q, k, v and out projections (Vaswani et al. 2017, section
    3.2.2). `scores` and `probs` are identities: hook them to see what is attended to. While nobody
    watches, PyTorch's fused kernel, which never forms them, is used wherever it is the faster
    way."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        inner = config.heads * config.dh
        self.heads, self.dh = config.heads, config.dh
        self.factor = config.score_factor
        self.dropout = config.attention_dropout
        self.q = nn.Linear(config.width, inner, bias=config.bias)
        # DeBERTa's keys have no bias: it adds one number to all scores of a query, and softmax
        # undoes that.
        self.k = nn.Linear(
            config.width, inner, bias=config.bias and not isinstance(config.position, Disentangled)
        )
        self.v = nn.Linear(config.width, inner, bias=config.bias)
        self.out = nn.Linear(inner, config.width, bias=config.bias)
        # what a scheme learns anew in each layer; only DeBERTa's does
        self.position = positions.in_layer(config)
        self.scores = nn.Identity()
        self.probs = nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "B Tq D"],
        source: Float[Tensor, "B Tk D"],
        *,
        mask: Bool[Tensor, "#B #H #Tq Tk"] | None = None,
        is_causal: bool = False,
        where: PositionInfo | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B Tq D"]:
        """Queries from x, keys and values from source. mask: True = may attend. is_causal: for
        `masks.causal(Tq)`, which the fused kernel has built in. where: None for cross-attention.
        cache: extended in place."""
        q = self._split(self.q(x))  # B H Tq Dh
        q = q if self.factor == 1.0 else q * self.factor
        if where is not None:
            q = where.position.rotate(q, where.q_pos)
        k, v = self._keys_values(source, where, cache)  # B H Tk Dh
        bias = None if where is None else where.scores(q, k, self.position)  # B H Tq Tk

        explicit = self._is_watched(where) or _fused_is_slower(q, k)
        if is_causal and (explicit or bias is not None):
            mask, is_causal = masks.causal(q.shape[2], k.shape[2], q.device), False
        dropout = self.dropout if self.training else 0.0
        if explicit:
            y, weights = scaled_dot_product_attention(
                q,
                k,
                v,
                mask=mask,
                bias=bias,
                scale=1.0,
                dropout=dropout,
                on_scores=self.scores,
                on_probs=self.probs,
            )
            y = y if where is None else y + where.position.values(weights, where.q_pos, where.k_pos)
        else:
            if bias is not None:
                bias = bias.to(q.dtype)
                mask = bias if mask is None else torch.where(mask, bias, torch.finfo(q.dtype).min)
            y = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, scale=1.0)
        return self.out(y.transpose(1, 2).flatten(2))  # B Tq H*Dh -> B Tq D

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.heads, self.dh).transpose(1, 2)  # B T H*Dh -> B H T Dh

    def _keys_values(
        self, source: Tensor, where: PositionInfo | None, cache: LayerCache | None
    ) -> tuple[Tensor, Tensor]:
        if cache is not None and cache.fixed and cache.k is not None and cache.v is not None:
            return cache.k, cache.v
        k, v = self._split(self.k(source)), self._split(self.v(source))
        if where is not None:
            # the cache holds turned keys
            k = where.position.rotate(k, where.k_pos[:, -k.shape[2] :])
        return (k, v) if cache is None else cache.extend(k, v)

    def _is_watched(self, where: PositionInfo | None) -> bool:
        speaks_in_values = where is not None and type(where.position).values is not Position.values
        return bool(self.scores._forward_hooks or self.probs._forward_hooks or speaks_in_values)


def _fused_is_slower(q: Tensor, k: Tensor) -> bool:
    """In bfloat16 on a CPU the fused kernel's backward pass is the slower one (5 times at 64
    tokens, 1.5 at 1024).
    """
    learns = torch.is_grad_enabled() and q.requires_grad
    return learns and q.device.type == "cpu" and q.dtype == torch.bfloat16 and k.shape[2] <= 1024
