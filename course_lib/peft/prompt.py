"""Prompt tuning (Lester et al. 2021): trained token vectors in front of the text.

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
    """A stack that reads the prompt's vectors before every text."""

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
        """As `Transformer.run`. The prompt is of segment 0.

        A cache that is not empty has read the prompt already.
        """
        mask = self._with_front(x, cache, attention_mask)
        if cache is not None and cache.length:
            return super().run(x, attention_mask=mask, segments=segments, cache=cache, **more)
        vectors = self.prompt.weight.to(x.dtype).expand(len(x), -1, -1)
        x = torch.cat((vectors, x), dim=1)  # B P+T E
        if segments is not None:
            segments = nn.functional.pad(segments, (self.length, 0))
        hidden = super().run(x, attention_mask=mask, segments=segments, cache=cache, **more)
        return hidden[:, self.length :]


def prompt(model: Model, length: int = 20, *, words: Tokens | None = None) -> Model:
    """Freeze the model and let it read `length` trained vectors before every text.

    Args:
        model: a Transformer gives a `Prompted` one; in a model that owns one it takes the stack's
            place.
        length: positions P.
        words: token ids whose vectors the prompt starts from, repeated or cut to the length: the
            names of the labels (section 3.2). By default tokens are drawn.
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
