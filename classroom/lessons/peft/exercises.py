"""Lesson 20: LoRA beside one Linear and inside it, an adapter, NF4 of one block."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from classroom.checks.base import Case, answer, normal
from classroom.checks.exercise import exercise
from course_lib.peft import nf4


def _matrices(g: Generator, outputs: int, inputs: int, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    return normal(g, outputs, inputs), normal(g, rank, inputs), normal(g, outputs, rank)


def _beside(
    g: Generator, rows: int, inputs: int, outputs: int, rank: int, alpha: float
) -> tuple[Any, ...]:
    w, a, b = _matrices(g, outputs, inputs, rank)
    return normal(g, rows, inputs), w, normal(g, outputs), a, b, alpha


@exercise(lambda g: [_beside(g, 3, 5, 5, 2, 4.0), _beside(g, 2, 6, 4, 3, 1.0)])
def lora_forward(x: Tensor, w: Tensor, bias: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
    """W x + bias + (alpha / r) B A x.

    x [N I], w [O I], bias [O], a [r I], b [O r], alpha a number.
    """
    update = alpha / len(a) * (x @ a.T @ b.T)
    return x @ w.T + bias + update


@exercise(lambda g: [(*_matrices(g, 5, 5, 2), 4.0), (*_matrices(g, 6, 4, 3), 1.0)])
def lora_merge(w: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
    """The one matrix [O I] that does what W and its update do."""
    return w + alpha / len(a) * (b @ a)


def _started(fn: object) -> None:
    for outputs, inputs, rank in ((6, 4, 2), (5, 7, 3)):
        with torch.random.fork_rng(devices=[]):
            linear = nn.Linear(inputs, outputs)
            before = [weight.detach().clone() for weight in linear.parameters()]
            _judge_start(answer(fn, {"linear": linear, "rank": rank}), linear, rank)
        kept = all(map(torch.equal, linear.parameters(), before))
        lora_start.refuse(not kept, "base_changed")


def _judge_start(got: Any, linear: nn.Linear, rank: int) -> None:
    refuse = lora_start.refuse
    pair = (
        isinstance(got, tuple | list)
        and len(got) == 2
        and all(isinstance(part, Tensor) for part in got)
    )
    refuse(not pair, "two_tensors")
    wanted = {"a": [rank, linear.in_features], "b": [linear.out_features, rank]}
    parts = dict(zip(wanted, got, strict=True))
    shapes = [list(part.shape) for part in got]
    refuse(shapes == list(wanted.values())[::-1], "exchanged")
    for name, part in parts.items():
        shape = list(part.shape)
        refuse(
            shape != wanted[name],
            "shape",
            name=name,
            shape=shape,
            linear=linear,
            rank=rank,
            wanted=wanted[name],
        )
    a, b = got
    refuse(not a.any() and not b.any(), "both_zero")
    refuse(a.any() and b.any(), "none_zero")
    refuse(b.any(), "a_zero")
    refuse(not a.isfinite().all(), "a_infinite")
    refuse((a == a[0, 0]).all(), "a_constant")
    refuse(linear.weight.requires_grad, "base_open")
    refuse(linear.bias.requires_grad, "bias_open")
    for name, part in parts.items():
        refuse(not part.requires_grad, "untrained", name=name)


@exercise(judge=_started)
def lora_start(linear: nn.Linear, rank: int) -> tuple[Tensor, Tensor]:
    """(a, b): freezes the Linear; A random [r I], B zero [O r], both to be trained."""
    linear.requires_grad_(False)
    a = nn.Parameter(torch.randn(rank, linear.in_features) / linear.in_features**0.5)
    b = nn.Parameter(torch.zeros(linear.out_features, rank))
    return a, b


@exercise(
    lambda g: [
        (
            normal(g, rows, width),
            normal(g, m, width),
            normal(g, m),
            normal(g, width, m),
            normal(g, width),
        )
        for rows, width, m in ((3, 6, 2), (2, 5, 5))
    ],
)
def adapter_forward(
    h: Tensor, down: Tensor, down_bias: Tensor, up: Tensor, up_bias: Tensor
) -> Tensor:
    """h + up(gelu(down(h))).

    h [N D], down [m D], down_bias [m], up [D m], up_bias [D], as in nn.Linear.
    """
    narrow = F.gelu(h @ down.T + down_bias)
    return h + narrow @ up.T + up_bias


def _codes_and_scale(got: Any, block: Tensor) -> tuple[Tensor, Tensor]:
    refuse = nf4_block.refuse
    refuse(
        not isinstance(got, tuple | list) or len(got) != 2 or not isinstance(got[0], Tensor), "pair"
    )
    codes, scale = got[0], torch.as_tensor(got[1]).float()
    refuse(scale.numel() != 1, "one_scale", shape=list(scale.shape))
    refuse(codes.shape != block.shape, "shape", shape=list(codes.shape), wanted=list(block.shape))
    refuse(codes.is_floating_point(), "values")
    return codes.long(), scale.reshape(())


def _block(fn: object) -> None:
    for case in nf4_block.draw():
        _codes_and_scale(answer(fn, case), case["block"])
    nf4_block.compare(fn)


def _which_value(fn: object, case: Case) -> str:
    """What is wrong with the scale, or with the first wrong code."""
    block, levels = case.values()
    codes, scale = _codes_and_scale(answer(fn, case), block)
    most, (right, _) = block.abs().max(), nf4_block.reference(block, levels)
    nf4_block.refuse(not torch.allclose(scale, most), "scale", scale=scale, most=most)
    at = int((codes != right).nonzero()[0]) if not torch.equal(codes, right) else 0
    values = {"value": block[at], "ratio": block[at] / scale, "code": codes[at]}
    return nf4_block.says["nearest"].format(**values, right=right[at], level=levels[right[at]])


@exercise(
    lambda g: [(0.3 * normal(g, 64) - offset, nf4.levels()) for offset in (0.0, 0.4)],
    form=lambda got: (got[0].long(), torch.as_tensor(got[1]).float().reshape(())),
    hint=_which_value,
    judge=_block,
)
def nf4_block(block: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
    """(codes, scale): the number of each value's nearest level, and the divisor of the block.

    block [N]; levels [16], ascending from -1 to 1; codes Int[N] from 0 to 15; scale a tensor of one
    number."""
    scale = block.abs().max()
    codes = (block[:, None] / scale - levels).abs().argmin(dim=1)
    return codes, scale
