"""What stands in front of a frozen model's text: trained vectors that no token has.

A prefix (prefix.py) and a prompt (prompt.py) are each a `Transformer` that shares the given one's
parts and names, so every head, `finetune` and `generate` take it as they take any other.
`attention_mask` speaks of the text alone.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.cache import KVCache
from course_lib.model.transformer import Transformer
from course_lib.peft.inject import Added, Model, freeze

Tokens = Sequence[int] | Tensor


class Vectors(Added):
    """The trained vectors.

    Args:
        rows: a prompt's token vectors, Float[P, E]; or a prefix's keys and values, Float[P, L * 2 *
            H * Dh], keys first.
        network: makes them of narrower rows while they are trained (Li and Liang 2021, equation 3).
    """

    def __init__(self, rows: Tensor, network: nn.Module | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(rows.detach().clone())
        self.network = network

    @property
    def table(self) -> Tensor:
        """The vectors themselves."""
        return self.weight if self.network is None else self.network(self.weight)


class Front(Transformer):
    """A stack with `length` positions in front of every text."""

    def __init__(self, stack: Transformer, length: int) -> None:
        nn.Module.__init__(self)
        self.config = stack.config
        self.embed = stack.embed
        self.position = stack.position
        self.blocks = stack.blocks
        self.norm = stack.norm
        self.training = stack.training
        self.length = length
        freeze(self)

    def _with_front(
        self, x: Tensor, cache: KVCache | None, attention_mask: Tensor | None
    ) -> Tensor | None:
        """The text's `attention_mask`, with True for what stands in front of it."""
        past = cache.length if cache is not None else 0
        whole = (past or self.length) + x.shape[1]
        if attention_mask is None or attention_mask.shape[1] == whole:
            return attention_mask
        return nn.functional.pad(attention_mask.bool(), (self.length, 0), value=True)


def put_in_front(model: Model, length: int, make: Callable[[Transformer], Front]) -> Model:
    """Freeze the model and give it a front.

    Args:
        model: a Transformer, in whose place the front is returned; or a model that owns one.
        length: positions of the front.
        make: the stack with its front, of the stack.

    Raises:
        CourseError: if there is no bare Transformer, or nothing would stand in front of it.
    """
    stack = model if isinstance(model, Transformer) else getattr(model, "stack", None)
    if not isinstance(stack, Transformer) or isinstance(stack, Front) or length < 1:
        raise CourseError(
            "A prefix or prompt of at least one position stands in front of one bare Transformer."
        )
    if isinstance(model, Transformer):
        return cast(Model, make(model))
    cast(Any, model).stack = make(stack)
    freeze(model)
    return model
