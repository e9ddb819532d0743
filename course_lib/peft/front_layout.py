"""Prompts and prefixes in a folder of the library `peft`: one matrix, a row for each position.

A prompt of 20 positions for a model of width 768 is {"prompt_embeddings": Float[20, 768]}: a token
vector in each row. A prefix has the keys and values of all layers in a row: with 12 layers,
Float[20, 2 * 12 * 768].
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.transformer import Transformer
from course_lib.peft.front import Front, Vectors
from course_lib.peft.layout import AdapterFiles, Layout, Rows
from course_lib.peft.prefix import Prefixed
from course_lib.peft.prompt import Prompted

MATRIX = "prompt_embeddings"  # the matrix's name in the file, also for a prefix
Kind = type[Prompted] | type[Prefixed]


def _layout(method: str, kind: Kind) -> Layout:
    """The layout of prompt tuning or prefix tuning.

    Args:
        method: the library's name, such as "PROMPT_TUNING".
        kind: our class.
    """

    def read(files: AdapterFiles) -> Callable[[], None]:
        """Check the matrix. Return a function that puts it in front of the model's text."""
        model: Any = files.model
        stack = getattr(model, "stack", None)
        if not isinstance(stack, Transformer) or isinstance(stack, Front):
            raise CourseError(
                "The course puts a prefix or prompt before one Transformer only; `peft` uses it in"
                " the encoder and in the decoder."
            )
        _check_pooler(model, kind)
        matrix = files.weights.pop(MATRIX).to(stack.embed.tokens.weight)  # its device and dtype
        sizes = _sizes(stack, kind)
        width = _row_width(sizes, kind)
        if matrix.shape[1] != width:
            raise CourseError(
                f"The folder's prompt or prefix has {matrix.shape[1]} numbers a row; this model"
                f" takes {width}."
            )
        sizes["num_virtual_tokens"] = len(matrix)
        for name, size in sizes.items():
            if files.config.get(name) != size:
                raise CourseError(
                    f"{name} is {files.config.get(name)}, but by the model and the table it is"
                    f" {size}."
                )

        def install() -> None:
            model.stack = kind(stack, matrix)

        return install

    def write(model: nn.Module, rows: Rows) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The entries of adapter_config.json, and the matrix. A prefix's network is applied."""
        _check_pooler(model, kind)
        front = next(module for module in model.modules() if isinstance(module, kind))
        vectors = next(module for module in front.modules() if isinstance(module, Vectors))
        entries = {
            "peft_type": method,
            "num_virtual_tokens": front.length,
            "num_transformer_submodules": 1,  # 2 would be an encoder and a decoder
        }
        return entries | _sizes(front, kind), {MATRIX: vectors.table}

    return Layout("base_model.", kind, (Vectors,), read, write)


def _sizes(stack: Transformer, kind: Kind) -> dict[str, int]:
    """The base's sizes, as entries of adapter_config.json."""
    config = stack.config
    token_dim = config.heads * config.dh  # the keys of all heads
    if kind is Prompted:
        token_dim = stack.embed.tokens.embedding_dim
    return {
        "num_layers": config.layers,
        "num_attention_heads": config.heads,
        "token_dim": token_dim,
    }


def _row_width(sizes: dict[str, int], kind: Kind) -> int:
    if kind is Prompted:
        return sizes["token_dim"]
    return 2 * sizes["num_layers"] * sizes["token_dim"]


def _check_pooler(model: nn.Module, kind: Kind) -> None:
    """Refuse a prompt for a model with a pooler.

    The pooler reads the first position. In the library that is the prompt's, here the text's.
    """
    if kind is Prompted and getattr(model, "pooler", None) is not None:
        raise CourseError(
            "With `peft` a pooler would read the prompt instead of [CLS], so the outputs would"
            " differ."
        )


PROMPT = _layout("PROMPT_TUNING", Prompted)
PREFIX = _layout("PREFIX_TUNING", Prefixed)
