"""Trained positions in front of a frozen model's text: the common part of prefix and prompt tuning.

A prefix (prefix.py) and a prompt (prompt.py) are each a `Transformer` that shares the modules of
the given one. So every head, `finetune` and `generate` use it like any other Transformer. The
`attention_mask` covers the text alone.
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
    """The trained vectors, a row for each position.

    Args:
        rows: a prompt's token vectors, Float[P, E]; or a prefix's keys and values, Float[P, L * 2 *
            H * Dh], keys first.
        network: maps narrower rows to the vectors while they are trained (Li and Liang 2021,
            equation 3).
    """

    def __init__(self, rows: Tensor, network: nn.Module | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(rows.detach().clone())
        self.network = network

    @property
    def table(self) -> Tensor:
        """The vectors, after the network if there is one."""
        return self.weight if self.network is None else self.network(self.weight)


class Front(Transformer):
    """A Transformer with `length` trained positions in front of every text."""

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
        """The text's `attention_mask`, with True added for the trained positions."""
        past = cache.length if cache is not None else 0
        whole = (past or self.length) + x.shape[1]
        if attention_mask is None or attention_mask.shape[1] == whole:
            return attention_mask
        return nn.functional.pad(attention_mask.bool(), (self.length, 0), value=True)


def put_in_front(model: Model, length: int, make: Callable[[Transformer], Front]) -> Model:
    """Freeze the model and put trained positions in front of its text.

    Args:
        model: a Transformer, or a model with one as its `stack`, which is replaced in place.
        length: the number of trained positions.
        make: builds the `Front` from the Transformer.

    Returns:
        The new `Front` for a Transformer; otherwise the model itself.

    Raises:
        CourseError: if there is no Transformer without a front, or `length` is below 1.
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
