"""AdamW with the usual parameter groups, and learning-rate schedules as plain functions of the step."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course_lib.errors import CourseError

Schedule = Callable[[int], float]  # step, from 0 -> factor on the optimizer's learning rate


def parameter_groups(model: nn.Module, weight_decay: float = 0.01) -> list[dict[str, Any]]:
    """Two groups: matrices decay; biases, norm weights and embedding tables do not.

    Only trainable parameters appear, and a tied one once. Matrices are what has two or more dimensions
    and does not belong to an nn.Embedding.
    """
    tables = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters(recurse=False)}
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise CourseError("The model has no trainable parameter: all are frozen, or it has none.")
    matrices = [p for p in trained if p.dim() > 1 and id(p) not in tables]
    rest = [p for p in trained if p.dim() <= 1 or id(p) in tables]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def adamw(
    model: nn.Module,
    lr: float = 1e-3,
    *,
    weight_decay: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019) over `parameter_groups`, in PyTorch's fused form where there is one.

    Args:
        lr: peak learning rate; a schedule multiplies it.
        weight_decay: for matrices only.
    """
    if lr <= 0:
        raise CourseError(f"lr is {lr}; a learning rate must be above 0.")
    groups = parameter_groups(model, weight_decay)
    here = {p.device.type for p in model.parameters()}
    fused = here <= {"cpu", "cuda", "mps"}
    return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps, fused=fused)


def constant(warmup: int = 0) -> Schedule:
    """1 after a linear warm-up of `warmup` steps."""
    _check(None, warmup)
    return lambda step: _warm(step, warmup)


def linear(steps: int, warmup: int = 0, final: float = 0.0) -> Schedule:
    """Linear warm-up to 1, then linear decay towards `final` (Devlin et al. 2019, appendix A.2)."""
    _check(steps, warmup)
    return lambda step: _warm(step, warmup) * (1 - (1 - final) * _progress(step, steps, warmup))


def cosine(steps: int, warmup: int = 0, final: float = 0.0) -> Schedule:
    """Linear warm-up to 1, then half a cosine towards `final` (Radford et al. 2018, section 4.1).

    >>> [round(cosine(6, warmup=2)(step), 2) for step in range(6)]
    [0.5, 1.0, 1.0, 0.85, 0.5, 0.15]
    """
    _check(steps, warmup)
    return lambda step: (
        _warm(step, warmup) * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * _progress(step, steps, warmup))))
    )


def stable(steps: int, warmup: int = 0, decay: float = 0.2) -> Schedule:
    """Warm-up, constant, then linear decay to 0 over the last `decay` of the steps (Hu et al. 2024, section
    4).

    Until the decay begins, runs of different lengths are the same run: a running one may be given more steps
    or fewer.
    """
    _check(steps, warmup)
    last = max(1, round(steps * decay))
    return lambda step: _warm(step, warmup) * min(1.0, max(0.0, (steps - step) / last))


def _warm(step: int, warmup: int) -> float:
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


def _progress(step: int, steps: int, warmup: int) -> float:
    """0 until the warm-up is over, 1 from step `steps` on: the last step taken, steps - 1, still learns
    something."""
    return min(1.0, max(0.0, (step - warmup) / max(1, steps - warmup)))


def _check(steps: int | None, warmup: int) -> None:
    if warmup < 0 or (steps is not None and warmup > steps):
        raise CourseError(f"warmup is {warmup}; it must lie between 0 and the number of steps ({steps}).")
    if steps is not None and steps < 1:
        raise CourseError(f"steps is {steps}; a schedule needs at least one step.")
