"""What prompt tuning and prefix tuning share: trained positions before every text.

    the text                          [CLS] the cat sat [SEP]
    with three trained positions      v1 v2 v3 [CLS] the cat sat [SEP]

A prompt (prompt.py) trains the token vectors v1, v2, v3. A prefix (prefix.py) trains their keys and
values in every layer. The model itself is frozen.

Each is a `Transformer` that shares the modules of the frozen one, so every head, `finetune` and
`generate` can use it. Callers do not see the trained positions: their `attention_mask` is for the
text alone.
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
    """The trained numbers, a row for each position.

    Args:
        rows: the initial numbers: a prompt's token vectors, Float[P, E]; or a prefix's keys and
            values, Float[P, L * 2 * H * Dh], in each layer the keys first.
        network: computes the rows from narrower ones, which makes training stable (Li and Liang
            2021, equation 3). It is trained, too.
    """

    def __init__(self, rows: Tensor, network: nn.Module | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(rows.detach().clone())
        self.network = network

    @property
    def table(self) -> Tensor:
        """The rows that the model gets: after the network, if there is one."""
        return self.weight if self.network is None else self.network(self.weight)


class Front(Transformer):
    """A Transformer with `length` trained positions before every text.

    Args:
        stack: the Transformer, whose modules are used and frozen.
        length: the number of trained positions.
    """

    def __init__(self, stack: Transformer, length: int) -> None:
        nn.Module.__init__(self)  # not Transformer's, which would make new modules
        self.config = stack.config
        self.embed = stack.embed
        self.position = stack.position
        self.rotations = stack.rotations
        self.blocks = stack.blocks
        self.norm = stack.norm
        self.vocabulary = stack.vocabulary
        self.training = stack.training
        self.length = length
        freeze(self)

    def _with_front(
        self, x: Tensor, cache: KVCache | None, attention_mask: Tensor | None
    ) -> Tensor | None:
        """The text's `attention_mask`, with True added for the trained positions.

        If `generate` calls with a filled cache, the cache has the trained positions already. Its
        mask may have them too, and is then returned as it is.
        """
        past = cache.length if cache is not None else 0
        # A filled cache already counts the trained positions.
        all_positions = (past or self.length) + x.shape[1]
        if attention_mask is None or attention_mask.shape[1] == all_positions:
            return attention_mask
        return nn.functional.pad(attention_mask.bool(), (self.length, 0), value=True)


def put_in_front(model: Model, length: int, make: Callable[[Transformer], Front]) -> Model:
    """Freeze the model and put trained positions before its text.

    Args:
        model: a Transformer, or a model with a Transformer as its `stack`, which is replaced.
        length: the number of trained positions.
        make: (Transformer) -> the `Front` that replaces it.

    Returns:
        The `Front`, if the model is a Transformer; otherwise the same model.

    Raises:
        CourseError: the model has no single Transformer, or trained positions already; or `length`
            is below 1.
    """
    stack = model if isinstance(model, Transformer) else getattr(model, "stack", None)
    # The `stack` of an encoder-decoder holds two Transformers and is refused.
    if not isinstance(stack, Transformer) or isinstance(stack, Front) or length < 1:
        raise CourseError(
            "A prefix or prompt of at least one position stands in front of one bare Transformer."
        )
    if isinstance(model, Transformer):
        return cast(Model, make(model))
    cast(Any, model).stack = make(stack)
    freeze(model)
    return model
