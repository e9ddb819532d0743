"""Lesson 20: LoRA beside one Linear, how it starts, and inside it."""

from typing import Any

import torch
from torch import Generator, Tensor, nn

from classroom.checks.base import answer, normal
from classroom.checks.exercise import exercise


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
    inputs = linear.in_features
    a = nn.Parameter(torch.empty(rank, inputs).uniform_(-1, 1) / inputs**0.5)
    b = nn.Parameter(torch.zeros(linear.out_features, rank))
    return a, b
