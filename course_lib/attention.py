"""Attention: every query takes a weighted mean of the values, weighted by how well it matches their keys.

softmax(q k^T / sqrt(Dh)) v        (Vaswani et al. 2017, equation 1)
"""

from dataclasses import dataclass, field
from typing import Self

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib import masks, positions
from course_lib.config import StackConfig
from course_lib.positions import Position


@dataclass
class Where:
    """Positions of queries and keys, and the scheme that reads them. Made once a forward pass, used by every layer."""

    position: Position
    q_pos: Int[Tensor, "#B Tq"]
    k_pos: Int[Tensor, "#B Tk"]
    _bias: Tensor | None = field(default=None, repr=False)

    def scores(
        self, q: Float[Tensor, "B H Tq Dh"], k: Float[Tensor, "B H Tk Dh"], own: nn.Module | None = None
    ) -> Tensor | None:
        """The scheme's additive scores; computed once for all layers where they do not depend on q (and k)."""
        if self.position.scores_use_query:
            return self.position.scores(q, self.q_pos, self.k_pos, k, own)
        if self._bias is None:
            self._bias = self.position.scores(None, self.q_pos, self.k_pos)
        return self._bias


@dataclass
class LayerCache:
    """Keys and values already computed, [B, H, T, Dh] each. `fixed`: written once (cross-attention's memory)."""

    fixed: bool = False
    k: Tensor | None = None
    v: Tensor | None = None
    _room: tuple[Tensor, Tensor] | None = field(default=None, repr=False)  # k and v begin these longer tensors

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append along T; returns all keys and values so far."""
        if self.k is None or self.v is None:
            self.k, self.v = k, v
        elif torch.is_grad_enabled():  # writing in place would spoil the backward pass
            self.k, self.v, self._room = torch.cat((self.k, k), dim=2), torch.cat((self.v, v), dim=2), None
        else:
            self.k, self.v = self._write(self.k, self.v, k, v)
        return self.k, self.v

    def _write(self, k: Tensor, v: Tensor, new_k: Tensor, new_v: Tensor) -> tuple[Tensor, Tensor]:
        """Into spare room behind the old ones, so that a step does not copy the whole past."""
        past, total = k.shape[2], k.shape[2] + new_k.shape[2]
        if self._room is None or self._room[0].shape[2] < total or self._room[0].data_ptr() != k.data_ptr():
            shape = (*k.shape[:2], 2 * total, k.shape[3])
            self._room = (k.new_empty(shape), v.new_empty(shape))
            self._room[0][:, :, :past], self._room[1][:, :, :past] = k, v
        for room, new in zip(self._room, (new_k, new_v), strict=True):
            room[:, :, past:total] = new
        return self._room[0][:, :, :total], self._room[1][:, :, :total]

    def reorder(self, rows: Int[Tensor, " B"]) -> None:
        """Keep, repeat or permute batch rows."""
        if self.k is not None and self.v is not None:
            self.k, self.v, self._room = self.k[rows], self.v[rows], None


class KVCache:
    """One `LayerCache` a layer for self- and one for cross-attention. Owned by the caller, never by a module."""

    def __init__(self, layers: int) -> None:
        self.own = [LayerCache() for _ in range(layers)]
        self.cross = [LayerCache(fixed=True) for _ in range(layers)]

    @property
    def length(self) -> int:
        """Positions held."""
        return 0 if self.own[0].k is None else self.own[0].k.shape[2]

    def reorder(self, rows: Int[Tensor, " B"]) -> None:
        """Keep, repeat or permute batch rows (beam search)."""
        for layer in self.own + self.cross:
            layer.reorder(rows)

    def copy(self) -> Self:
        """An independent cache over the same tensors: extending one leaves the other."""
        other = type(self)(len(self.own))
        other.own = [LayerCache(c.fixed, c.k, c.v) for c in self.own]
        other.cross = [LayerCache(c.fixed, c.k, c.v) for c in self.cross]
        return other


class Attention(nn.Module):
    """Multi-head attention with separate q, k, v and out projections (Vaswani et al. 2017, section 3.2.2).

    `scores` and `probs` are identities: hook them (`trace.record`) to see what is attended to. While nobody watches,
    PyTorch's fused kernel is used wherever it is the faster way; it never forms them.
    """

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        inner = config.heads * config.dh
        self.heads, self.dh = config.heads, config.dh
        self.factor = config.score_factor
        self.dropout = config.attention_dropout
        self.q = nn.Linear(config.width, inner, bias=config.bias)
        self.k = nn.Linear(config.width, inner, bias=config.key_bias)
        self.v = nn.Linear(config.width, inner, bias=config.bias)
        self.out = nn.Linear(inner, config.width, bias=config.bias)
        self.position = positions.in_layer(config)  # what a scheme learns anew in each layer; only DeBERTa's does
        self.scores = nn.Identity()
        self.probs = nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "B Tq D"],
        source: Float[Tensor, "B Tk D"],
        *,
        mask: Bool[Tensor, "#B #H #Tq Tk"] | None = None,
        is_causal: bool = False,
        where: Where | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B Tq D"]:
        """Queries from x, keys and values from source (x itself for self-attention).

        mask: True = may attend. is_causal: says that the mask is exactly `masks.causal(Tq)`, which the fused kernel
        knows by heart; then mask is None. where: None for cross-attention, which has no positions. cache: past keys
        and values, extended in place.
        """
        q = self._split(self.q(x)) * self.factor  # B H Tq Dh
        if where is not None:
            q = where.position.rotate(q, where.q_pos)
        k, v = self._keys_values(source, where, cache)  # B H Tk Dh
        bias = None if where is None else where.scores(q, k, self.position)  # B H Tq Tk

        if self._is_watched(where) or _fused_is_slower(q, k):
            if is_causal:
                mask = masks.causal(q.shape[2], k.shape[2], q.device)
            y = self._explicit(q, k, v, mask, bias, where)
        else:
            y = self._fused(q, k, v, mask, bias, is_causal)
        y = y.transpose(1, 2).flatten(2)  # B Tq H*Dh
        out: Tensor = self.out(y)
        return out

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.heads, self.dh).transpose(1, 2)  # B T H*Dh -> B H T Dh

    def _keys_values(self, source: Tensor, where: Where | None, cache: LayerCache | None) -> tuple[Tensor, Tensor]:
        if cache is not None and cache.fixed and cache.k is not None and cache.v is not None:
            return cache.k, cache.v
        k, v = self._split(self.k(source)), self._split(self.v(source))
        if where is not None:
            k = where.position.rotate(k, where.k_pos[:, -k.shape[2] :])  # the cache holds turned keys
        return (k, v) if cache is None else cache.extend(k, v)

    def _is_watched(self, where: Where | None) -> bool:
        speaks_in_values = where is not None and type(where.position).values is not Position.values
        return bool(self.scores._forward_hooks or self.probs._forward_hooks or speaks_in_values)

    def _explicit(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, where: Where | None
    ) -> Tensor:
        scores = q @ k.transpose(-1, -2)  # B H Tq Tk
        if bias is not None:
            scores = scores + bias
        if mask is not None:
            scores = scores + _additive(mask, scores.dtype)
        probs = self.probs(self.scores(scores).softmax(dim=-1))
        dropped = F.dropout(probs, self.dropout, self.training)
        y: Tensor = dropped.to(v.dtype) @ v  # a float32 bias has made bfloat16 scores float32
        if where is not None:
            y = y + where.position.values(dropped, where.q_pos, where.k_pos)
        return y

    def _fused(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, is_causal: bool
    ) -> Tensor:
        if bias is not None:
            if is_causal:
                mask, is_causal = masks.causal(q.shape[2], k.shape[2], q.device), False
            bias = bias.to(q.dtype)
            mask = bias if mask is None else torch.where(mask, bias, torch.finfo(q.dtype).min)
        dropout = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, scale=1.0)


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where one may attend, else the lowest number. Adding it costs the backward pass nothing; `masked_fill` does."""
    lowest = torch.finfo(dtype).min
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, lowest)


def _fused_is_slower(q: Tensor, k: Tensor) -> bool:
    """In bfloat16 on a CPU the fused kernel's backward pass is the slower one, until the scores outgrow the cache.

    Forward and backward of one attention, explicit / fused, in milliseconds of one Xeon core with AMX, for rows x heads
    x tokens x head width:
                   64 x 4 x 64 x 32   32 x 4 x 128 x 64   8 x 4 x 512 x 64   4 x 4 x 1024 x 64
        bfloat16        9 / 45             18 / 56             41 / 60            75 / 117
        float32        12 / 11             30 / 28             94 / 76           193 / 163
    """
    learns = torch.is_grad_enabled() and q.requires_grad
    return learns and q.device.type == "cpu" and q.dtype == torch.bfloat16 and k.shape[2] <= 1024
