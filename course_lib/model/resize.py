"""A larger vocabulary: more rows in a model's token table."""

from dataclasses import replace

import torch

from course_lib.errors import CourseError
from course_lib.model.config import StackConfig
from course_lib.model.transformer import Transformer

TABLE = "embed.tokens.weight"


def resize_vocabulary(stack: Transformer, rows: int) -> Transformer:
    """A copy of a model, in float32, with `rows` rows in its token table.

    The new rows are random, as in a new model: a whole new model is drawn for them.

    Raises:
        CourseError: if the model has more rows than that.
    """
    larger = Transformer(with_vocabulary(stack.config, rows))
    copy_weights(stack, larger)
    return larger


def with_vocabulary(config: StackConfig, rows: int) -> StackConfig:
    """The same model with so many rows in its token table.

    Raises:
        CourseError: if it has more rows than that.
    """
    if rows < config.embed.vocab:
        raise CourseError(f"The model has {config.embed.vocab} tokens; it cannot shrink to {rows}.")
    return replace(config, embed=replace(config.embed, vocab=rows))


def copy_weights(source: Transformer, target: Transformer) -> None:
    """Copy a model's weights, in float32.

    Args:
        source: the model, which stays as it is.
        target: gets the weights. If its token table has more rows, these stay as they are.
    """
    state = {name: value.detach().float().clone() for name, value in source.state_dict().items()}
    new_rows = target.state_dict()[TABLE][source.config.embed.vocab :]
    state[TABLE] = torch.cat([state[TABLE], new_rows.to(state[TABLE].device)])
    target.load_state_dict(state)
