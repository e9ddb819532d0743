"""Keys and values of earlier tokens, so that generation computes those of the new token only.

LayerCache     holds the keys and values of one attention
BlockCache     holds two of them: the block's self-attention and cross-attention
KVCache        holds those of all blocks of a stack
"""

from typing import NamedTuple

from jaxtyping import Int
from torch import Tensor

from course_lib.model.kernels import GrowingBuffer


class LayerCache:
    """The keys and values that one attention has already computed, [B, H, T, Dh] each.

    Args:
        fixed: True for cross-attention. The keys and values of the encoder's output are written
            once and then only read.
        capacity: number of tokens to allocate memory for at first. More are allocated when it is
            full.
    """

    def __init__(self, fixed: bool = False, capacity: int = 0) -> None:
        self.fixed = fixed
        self.k: Tensor | None = None
        self.v: Tensor | None = None
        self._k_buffer = GrowingBuffer(capacity)
        self._v_buffer = GrowingBuffer(capacity)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append new keys and values along T; return all so far."""
        self.k = self._k_buffer.append(self.k, k)
        self.v = self._v_buffer.append(self.v, v)
        return self.k, self.v

    def reorder(self, rows: Int[Tensor, " B"], since: int = 0) -> None:
        """Keep, repeat or permute batch rows.

        Args:
            rows: for each new row, the index of the old row that it copies. [1, 1, 0] makes rows
                1, 1 and 0 of the old batch rows 0, 1 and 2 of the new one.
            since: tokens before this position are the same in the old and in the new row, and are
                not copied. The number of rows must then stay the same.
        """
        if self.k is None or self.v is None:
            return
        if since == 0:
            self.k = self.k.index_select(0, rows)
            self.v = self.v.index_select(0, rows)
        else:
            for tensor in (self.k, self.v):
                recent = tensor[:, :, since:]  # a view: writing to it changes the cache
                recent.copy_(recent.index_select(0, rows))


class BlockCache(NamedTuple):
    """The caches of one block's self-attention (`attn`) and cross-attention (`cross`)."""

    attn: LayerCache
    cross: LayerCache


class KVCache:
    """The caches of all layers of a stack. The caller owns it, never a module.

    Args:
        layers: the number L of layers.
        capacity: number of tokens to allocate memory for at first.
    """

    def __init__(self, layers: int, capacity: int = 0) -> None:
        self.attn = [LayerCache(capacity=capacity) for _ in range(layers)]
        self.cross = [LayerCache(fixed=True) for _ in range(layers)]

    @property
    def length(self) -> int:
        """The number of tokens in the cache."""
        first = self.attn[0].k
        return 0 if first is None else first.shape[2]

    def layer(self, number: int) -> BlockCache:
        """The caches of one block."""
        return BlockCache(self.attn[number], self.cross[number])

    def reorder(self, rows: Int[Tensor, " B"]) -> None:
        """Keep, repeat or permute batch rows (beam search)."""
        for layer in self.attn + self.cross:
            layer.reorder(rows)
