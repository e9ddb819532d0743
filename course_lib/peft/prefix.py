"""Prefix tuning (Li and Liang 2021): trained keys and values before the text, in every layer.

A model that generates keeps the keys and values of earlier tokens in a cache. Prefix tuning fills
that cache with trained numbers before the text is read. So the text attends to P positions that
never were tokens.

Letters: P positions of the prefix, L layers, H heads, Dh width of a head; S = L * 2 * H * Dh
numbers for each position.
"""

from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.model.cache import KVCache
from course_lib.model.config import StackConfig
from course_lib.model.heads import Mask
from course_lib.model.modes import evaluating
from course_lib.model.transformer import Transformer
from course_lib.peft.front import Front, Tokens, Vectors, put_in_front
from course_lib.peft.inject import Model


class Prefixed(Front):
    """A Transformer whose layers attend to the prefix and to the text."""

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
        """As `Transformer.run`, after filling an empty cache with the prefix."""
        attention_mask = self._with_front(x, cache, attention_mask)
        if cache is None:
            cache = KVCache(self.config.layers)
        if cache.length == 0:
            self._fill(cache, batch=len(x))
        return super().run(x, attention_mask=attention_mask, cache=cache, **more)

    def _fill(self, cache: KVCache, batch: int) -> None:
        """Write the prefix into an empty cache, the same for every row of the batch."""
        config = self.config
        table = self.prefix.table.view(self.length, config.layers, 2, config.heads, config.dh)
        for layer, layer_cache in enumerate(cache.attn):
            keys_values = table[:, layer].permute(1, 2, 0, 3)  # 2 H P Dh
            both = keys_values[:, None].expand(-1, batch, -1, -1, -1)  # 2 B H P Dh
            keys, values = both  # B H P Dh each
            layer_cache.k = keys
            layer_cache.v = values


def prefix(
    model: Model, length: int = 10, *, hidden: int | None = None, words: Tokens | None = None
) -> Model:
    """Freeze the model and put a trained prefix before the keys and values of every layer.

    Args:
        model: a Transformer, or a model with a Transformer as its `stack`, which is replaced.
        length: the number of positions P. The text begins at position P. So in a model with
            learned positions, P fewer tokens fit (`finetune(..., max_length=...)`).
        hidden: the width of a network that computes the prefix while it is trained (512 or 800 in
            the paper). By default the prefix is trained directly.
        words: token ids that initialise the prefix with their keys and values (section 7.4), so
            the model starts as if it had read them. `length` is then their number, and `hidden` is
            not used.
    """

    def make(stack: Transformer) -> Prefixed:
        if words is not None:
            return Prefixed(stack, _keys_values_of(stack, words))
        tokens = stack.embed.tokens.weight
        width = stack.config.width
        size = _row_size(stack.config)
        if hidden is None:
            # 0.02 is the usual standard deviation of initial weights, BERT's and GPT-2's.
            return Prefixed(stack, (0.02 * torch.randn(length, size)).to(tokens))
        rows = torch.randn(length, width)
        network = nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, size))
        return Prefixed(stack, rows.to(tokens), network.to(tokens))

    return put_in_front(model, length, make)


@torch.no_grad()
def _keys_values_of(stack: Transformer, token_ids: Tokens) -> Float[Tensor, "P S"]:
    """The keys and values of all layers after the model has read these tokens."""
    cache = KVCache(stack.config.layers)
    ids = torch.as_tensor(token_ids, device=stack.embed.tokens.weight.device)[None]
    with evaluating(stack):
        stack(ids, cache=cache)
    layers = []
    for layer in cache.attn:
        keys = cast(Tensor, layer.k)[0]  # H P Dh: the only row of the batch
        values = cast(Tensor, layer.v)[0]
        layers.append(torch.stack((keys, values)))
    stacked = torch.stack(layers)  # L 2 H P Dh
    return stacked.permute(3, 0, 1, 2, 4).flatten(1)


def _row_size(config: StackConfig) -> int:
    """S: how many numbers the keys and values of all layers are at one position."""
    return config.layers * 2 * config.heads * config.dh
