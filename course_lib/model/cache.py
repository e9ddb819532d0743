"""Keys and values that attention has computed already, so that a new token costs one column.

LayerCache     of one attention
BlockCache     of one block: its self-attention and its cross-attention
KVCache        of a whole stack
"""

from typing import NamedTuple

from jaxtyping import Int
from torch import Tensor

from course_lib.model.kernels import Columns


class LayerCache:
    """The keys and values that one attention has already computed, [B, H, T, Dh] each.

    Args:
        fixed: written once and then only read, as cross-attention's memory.
        columns: tokens to make room for at once (`kernels.Columns`).
    """

    def __init__(self, fixed: bool = False, columns: int = 0) -> None:
        self.fixed = fixed
        self.k: Tensor | None = None
        self.v: Tensor | None = None
        self._more_k = Columns(columns)
        self._more_v = Columns(columns)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append new keys and values along T; return all so far."""
        self.k = self._more_k.append(self.k, k)
        self.v = self._more_v.append(self.v, v)
        return self.k, self.v

    def reorder(self, rows: Int[Tensor, " B"], since: int = 0) -> None:
        """Keep, repeat or permute batch rows.

        Args:
            rows: the old number of each new row.
            since: columns before this one are the same in the old and the new row, and stay.
                Then B does not change, either.
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
    """The caches of one block: its self-attention's and its cross-attention's."""

    own: LayerCache
    cross: LayerCache


class KVCache:
    """The caches of all layers of a stack. The caller owns it, never a module.

    Args:
        layers: L.
        columns: tokens to make room for at once.
    """

    def __init__(self, layers: int, columns: int = 0) -> None:
        self.own = [LayerCache(columns=columns) for _ in range(layers)]
        self.cross = [LayerCache(fixed=True) for _ in range(layers)]

    @property
    def length(self) -> int:
        """The number of tokens held."""
        first = self.own[0].k
        return 0 if first is None else first.shape[2]

    def layer(self, number: int) -> BlockCache:
        """The caches of one block."""
        return BlockCache(self.own[number], self.cross[number])

    def reorder(self, rows: Int[Tensor, " B"]) -> None:
        """Keep, repeat or permute batch rows (beam search)."""
        for layer in self.own + self.cross:
            layer.reorder(rows)
