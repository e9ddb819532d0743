"""Prompt tuning (Lester et al. 2021): trained token vectors before the text.

A written prompt such as "Is this review good?" is a row of token vectors. Here P such vectors are
trained instead of written. They need not be the vectors of any words.

Letters: P positions of the prompt, E width of a token's vector.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.model.cache import KVCache
from course_lib.model.heads import Mask, Segments
from course_lib.model.transformer import Transformer
from course_lib.peft.front import Front, Tokens, Vectors, put_in_front
from course_lib.peft.inject import Model


class Prompted(Front):
    """A Transformer that reads the prompt's vectors before every text."""

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
        """As `Transformer.run`, with the prompt before `x`. The prompt belongs to segment 0.

        The hidden states of the prompt's positions are not returned.

        If the cache is not empty, the prompt was read in an earlier call.
        """
        mask = self._with_front(x, cache, attention_mask)
        if cache is not None and cache.length:
            return super().run(x, attention_mask=mask, segments=segments, cache=cache, **more)
        vectors = self.prompt.weight.to(x.dtype).expand(len(x), -1, -1)
        x = torch.cat((vectors, x), dim=1)  # B P+T E
        if segments is not None:
            segments = nn.functional.pad(segments, (self.length, 0))  # pads with 0
        hidden = super().run(x, attention_mask=mask, segments=segments, cache=cache, **more)
        return hidden[:, self.length :]


def prompt(model: Model, length: int = 20, *, words: Tokens | None = None) -> Model:
    """Freeze the model and put `length` trained vectors before every text.

    Args:
        model: a Transformer, or a model with a Transformer as its `stack`, which is replaced.
        length: the number of positions P.
        words: token ids that initialise the prompt, repeated or cut to the length, for example
            those of the labels' names (section 3.2). By default the ids are random.
    """

    def make(stack: Transformer) -> Prompted:
        table = stack.embed.tokens.weight.detach()
        if words is None:
            ids = torch.randint(len(table), (length,), device=table.device)
        else:
            times = -(-length // len(words))  # rounded up
            ids = torch.as_tensor(words, device=table.device).repeat(times)[:length]
        return Prompted(stack, table[ids])

    return put_in_front(model, length, make)
