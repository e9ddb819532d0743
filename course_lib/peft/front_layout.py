"""A prompt or a prefix in a folder of the library `peft`: one table, a row for each position."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.transformer import Transformer
from course_lib.peft.front import Front, Vectors
from course_lib.peft.layout import Layout, Places, Stored
from course_lib.peft.prefix import Prefixed
from course_lib.peft.prompt import Prompted

TABLE = "prompt_embeddings"  # its name in the folder
Kind = type[Prompted] | type[Prefixed]


def _layout(method: str, kind: Kind) -> Layout:
    """The form of a method, by the library's name for it and our class."""

    def read(stored: Stored) -> Callable[[], None]:
        """What puts the table in front of the model; a `CourseError` if it does not fit."""
        model: Any = stored.model
        stack = getattr(model, "stack", None)
        if not isinstance(stack, Transformer) or isinstance(stack, Front):
            raise CourseError("With `peft` two stacks have one prefix or prompt; here not.")
        _check_pooler(model, kind)
        table = stored.weights.pop(TABLE).to(stack.embed.tokens.weight)
        sizes = _sizes(stack, kind)
        wanted = _numbers_a_row(sizes, kind)
        if table.shape[1] != wanted:
            raise CourseError(
                f"What stands in front has {table.shape[1]} numbers a row; this model takes"
                f" {wanted}."
            )
        sizes["num_virtual_tokens"] = len(table)
        for name, size in sizes.items():
            if stored.config.get(name) != size:
                raise CourseError(
                    f"{name} is {stored.config.get(name)}, but by the model and the table it is"
                    f" {size}."
                )

        def install() -> None:
            model.stack = kind(stack, table)

        return install

    def write(model: nn.Module, places: Places) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The folder's configuration and weights."""
        _check_pooler(model, kind)
        front = next(module for module in model.modules() if isinstance(module, kind))
        vectors = next(module for module in front.modules() if isinstance(module, Vectors))
        values = {
            "peft_type": method,
            "num_virtual_tokens": front.length,
            "num_transformer_submodules": 1,
        }
        return values | _sizes(front, kind), {TABLE: vectors.table}

    return Layout("base_model.", kind, (Vectors,), read, write)


def _sizes(stack: Transformer, kind: Kind) -> dict[str, int]:
    """What adapter_config.json says of the base."""
    config = stack.config
    token_dim = config.heads * config.dh  # of a layer's keys
    if kind is Prompted:
        token_dim = stack.embed.tokens.embedding_dim
    return {
        "num_layers": config.layers,
        "num_attention_heads": config.heads,
        "token_dim": token_dim,
    }


def _numbers_a_row(sizes: dict[str, int], kind: Kind) -> int:
    """A prompt's row is a token's vector; a prefix's holds keys and values of every layer."""
    if kind is Prompted:
        return sizes["token_dim"]
    return 2 * sizes["num_layers"] * sizes["token_dim"]


def _check_pooler(model: nn.Module, kind: Kind) -> None:
    """Refuse a model to which the library does something else than the course.

    Raises:
        CourseError: it has a pooler, and a prompt in front.
    """
    if kind is Prompted and getattr(model, "pooler", None) is not None:
        raise CourseError("With `peft` a pooler would read the prompt instead of [CLS]; here not.")


PROMPT = _layout("PROMPT_TUNING", Prompted)
PREFIX = _layout("PREFIX_TUNING", Prefixed)
