"""Prompt tuning (Lester et al. 2021): trained token vectors in front of the text.

Letters: P positions of the prompt, E width of a token's vector.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.cache import KVCache
from course_lib.model.heads import Mask, Segments
from course_lib.model.transformer import Transformer
from course_lib.peft.front import Front, Tokens, Vectors, put_in_front
from course_lib.peft.inject import Model
from course_lib.peft.layout import Layout, Places, Stored

NOT_OURS = (
    "With `peft` a pooler would read the prompt instead of [CLS], and two stacks have one prompt;"
    " here not."
)


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


def _read(stored: Stored) -> Any:
    """What puts a folder's prompt in front of the model; a `CourseError` if it does not fit."""
    model: Any = stored.model
    stack = getattr(model, "stack", None)
    if not isinstance(stack, Transformer) or isinstance(stack, Front) or _has_pooler(model):
        raise CourseError(NOT_OURS)
    table = stored.weights.pop("prompt_embeddings").to(stack.embed.tokens.weight)
    wanted = stack.embed.tokens.embedding_dim
    if table.shape[1] != wanted:
        raise CourseError(
            f"What stands in front has {table.shape[1]} numbers a row; this model takes {wanted}."
        )

    def install() -> None:
        model.stack = Prompted(stack, table)

    return install


def _write(model: nn.Module, places: Places) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The folder's configuration and weights."""
    if _has_pooler(model):
        raise CourseError(NOT_OURS)
    front = next(module for module in model.modules() if isinstance(module, Prompted))
    values = {
        "peft_type": "PROMPT_TUNING",
        "num_virtual_tokens": front.length,
        "num_layers": front.config.layers,
        "num_attention_heads": front.config.heads,
        "num_transformer_submodules": 1,
        "token_dim": front.prompt.weight.shape[1],
    }
    return values, {"prompt_embeddings": front.prompt.weight}


def _has_pooler(model: nn.Module) -> bool:
    return getattr(model, "pooler", None) is not None


LAYOUT = Layout("base_model.", Prompted, (Vectors,), _read, _write)
