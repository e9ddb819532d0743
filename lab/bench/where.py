"""Where a training step's time goes on a GPU, counted without one: `python -m lab.bench --where`.

The step runs on fake tensors, which have shapes and types and no numbers. Each operation is noted
with its floating-point operations and with the bytes that it reads and writes. On a card it takes
at least

    max(operations / peak, bytes / bandwidth)

with the peak and the bandwidth of the data sheet. The sum over all operations is a lower bound for
a step that is not compiled. torch.compile joins operations that are no matrix products, so that
they read and write less.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course_lib.model import kernels
from course_lib.objectives import losses
from course_lib.training.device import autocast
from course_lib.training.loop import ModelWithLoss
from lab.bench.contenders import ModelSize, batches_of, loss_of, ours
from lab.bench.gpu import BIG

PEAK = 989e12  # FLOP/s of an H100's bfloat16 products, without sparsity
BANDWIDTH = 3.35e12  # bytes/s of an H100's memory
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}
# What the update moves for each weight, in numbers of 4 bytes: the norm of the gradient reads it;
# clipping reads and writes it; AdamW reads weight, gradient and two moments, and writes three.
UPDATE_NUMBERS = 1 + 2 + 7


@dataclass
class Kind:
    """The sums over all operations of one kind."""

    flops: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.0


@dataclass
class Operations(TorchDispatchMode):
    """Notes every operation that moves memory, by its kind.

    Args:
        vocab: size of the vocabulary; what has a dimension of it belongs to the head or the loss.
        is_causal: the attention computes half of its products.
    """

    vocab: int
    is_causal: bool
    kinds: dict[str, Kind] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.__name__.split(".")[0]
        if not func.is_view and name not in {"detach", "empty", "empty_like"}:
            read = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
            written = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
            self._note(name, read, written)
        return out

    def _note(self, name: str, read: list[Tensor], written: list[Tensor]) -> None:
        sizes = {size for x in read + written for size in x.shape}
        # The padded vocabulary is at most 63 larger.
        has_vocab = any(self.vocab <= size < self.vocab + 64 for size in sizes)
        flops = 0.0
        if name in PRODUCTS:
            kind = "last product" if has_vocab else "other products"
            left, right = read[-2:]
            flops = 2.0 * left.numel() * right.shape[-1]
        elif "attention" in name:
            kind = "attention"
            rows, heads, queries, width = read[1].shape  # of the keys
            products = 5 if "backward" in name else 2
            flops = 2.0 * products * rows * heads * queries * queries * width
            if self.is_causal:
                flops /= 2
        else:
            kind = "loss" if has_vocab else "norms, activations, sums"
        moved = float(sum(x.numel() * x.element_size() for x in read + written))
        self._add(kind, flops, moved)

    def _add(self, kind: str, flops: float, moved: float) -> None:
        entry = self.kinds.setdefault(kind, Kind())
        entry.flops += flops
        entry.bytes += moved
        entry.seconds += max(flops / PEAK, moved / BANDWIDTH)


def step(family: str, size: ModelSize, *, in_parts: bool) -> dict[str, Kind]:
    """The operations of one training step in bfloat16, by kind.

    Args:
        family: of the model.
        size: of the model and its batch.
        in_parts: compute the loss by `kernels.linear_cross_entropy`, not from all logits.
    """
    batch = losses.with_target_index(batches_of(family, size)[0])
    always: Callable[..., bool] = lambda *_: True  # noqa: E731
    never: Callable[..., bool] = lambda *_: False  # noqa: E731
    with (
        FakeTensorMode(allow_non_fake_inputs=True) as fake,
        patch.object(torch.compiler, "is_compiling", always),  # so that nobody reads numbers
        patch.object(kernels, "use_attention", always),
        patch.object(kernels, "use_cross_entropy", never),
        patch.object(kernels, "use_linear_cross_entropy", always if in_parts else never),
    ):
        model = ours(family, size)
        objective = ModelWithLoss(model, loss_of(family))
        fake_batch = {name: fake.from_tensor(value) for name, value in batch.items()}
        with Operations(size.vocab, family == "gpt") as seen:
            with autocast(torch.device("cpu"), True):
                loss = objective(fake_batch)
            loss.backward()
        weights = sum(p.numel() for p in model.parameters())
    seen._add("update", 0.0, 4.0 * UPDATE_NUMBERS * weights)
    kinds: dict[str, Kind] = seen.kinds
    return kinds


def table(family: str, size: ModelSize) -> str:
    """Both ways to compute the loss, as a table in Markdown."""
    ways = [step(family, size, in_parts=in_parts) for in_parts in (False, True)]
    lines = [
        "| part of the step | TFLOP | GB, all logits | ms | GB, in parts | ms |",
        "|---|---|---|---|---|---|",
    ]
    for kind in ways[0]:
        plain, parts = (way[kind] for way in ways)
        lines.append(
            f"| {kind} | {plain.flops / 1e12:.1f}"
            f" | {plain.bytes / 1e9:.0f} | {1e3 * plain.seconds:.1f}"
            f" | {parts.bytes / 1e9:.0f} | {1e3 * parts.seconds:.1f} |"
        )
    plain_ms, parts_ms = (1e3 * sum(each.seconds for each in way.values()) for way in ways)
    flops = sum(each.flops for each in ways[0].values())
    lines.append(f"| together | {flops / 1e12:.1f} | | {plain_ms:.1f} | | {parts_ms:.1f} |")
    return "\n".join(lines)


def report() -> str:
    """The tables of GPT-2 124M and BERT-base."""
    tables = [
        f"{name}, {size.batch} rows of {size.tokens}\n\n{table(name, size)}"
        for name, size in BIG.items()
    ]
    return "\n\n".join(tables)
