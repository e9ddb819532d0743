"""Optimizers, AdamW and Muon, and learning-rate schedules as plain functions of the step."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.training.settings import OptimizerName, ScheduleName

Schedule = Callable[[int], float]  # step, from 0 -> factor on the optimizer's learning rate


def parameter_groups(model: nn.Module, weight_decay: float = 0.01) -> list[dict[str, Any]]:
    """Two groups of the trainable parameters: those that decay, and the others.

    What has two or more dimensions and does not belong to an nn.Embedding decays. Biases, norm
    weights and embedding tables do not.
    """
    tables: set[int] = set()
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            tables.update(id(p) for p in module.parameters(recurse=False))
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise CourseError("The model has no trainable parameter: all are frozen, or it has none.")

    matrices = [p for p in trained if p.dim() > 1 and id(p) not in tables]
    others = [p for p in trained if p.dim() <= 1 or id(p) in tables]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def adamw(
    model: nn.Module,
    lr: float = 1e-3,
    *,
    weight_decay: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.999),
) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019) over `parameter_groups`.

    It runs in PyTorch's fused form where there is one.

    Args:
        model: whose trainable parameters it moves.
        lr: the peak of the learning rate; a schedule multiplies it.
        weight_decay: of the matrices.
        betas: how slowly the means of the gradient and of its square forget.
    """
    if not 0 < lr < math.inf:
        raise CourseError(f"lr is {lr}; a learning rate must be above 0 and finite.")
    groups = parameter_groups(model, weight_decay)
    fused = {p.device.type for p in model.parameters()} <= {"cpu", "cuda", "mps"}
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=fused)


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) for the blocks' matrices, AdamW for tables, norms and biases.

    A matrix moves by its momentum with all singular values made about 1, times 0.2 sqrt(larger
    side). So the step is as large as AdamW's and takes the same learning rate (Liu et al. 2025,
    section 2.2).

    Args:
        groups: of `parameter_groups`; those that decay are the matrices.
        lr: the peak of the learning rate.
        betas: AdamW's.
    """

    def __init__(self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move all parameters once."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if group["weight_decay"]:
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    size = 0.2 * max(p.shape) ** 0.5
                    p.add_(self._orthogonal_step(p, p.grad), alpha=-group["lr"] * size)
                else:
                    p.add_(self._adam_step(p, p.grad, group["betas"]), alpha=-group["lr"])

    def _orthogonal_step(self, p: Tensor, grad: Tensor) -> Tensor:
        """Nesterov's momentum, made orthogonal."""
        momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
        momentum.lerp_(grad, 1 - 0.95)
        return orthogonal(grad.lerp(momentum, 0.95))

    def _adam_step(self, p: Tensor, grad: Tensor, betas: tuple[float, float]) -> Tensor:
        """Adam's step (Kingma and Ba 2015, algorithm 1), before the learning rate."""
        state = self.state[p]
        if not state:
            state["step"] = torch.zeros(())
            state["mean"] = torch.zeros_like(p)
            state["square"] = torch.zeros_like(p)
        state["step"] += 1
        state["mean"].lerp_(grad, 1 - betas[0])
        state["square"].lerp_(grad.square(), 1 - betas[1])
        # Both begin at 0, which these divisions undo.
        mean = state["mean"] / (1 - betas[0] ** state["step"])
        square = state["square"] / (1 - betas[1] ** state["step"])
        return mean / (square.sqrt() + 1e-8)  # type: ignore[no-any-return]


def orthogonal(x: Tensor) -> Tensor:
    """A matrix [R, C] with the same singular vectors and all singular values near 1.

    Five Newton-Schulz steps in bfloat16, u <- a u + (b S + c S S) u with S = u u^T (coefficients
    of Jordan et al. 2024).
    """
    is_tall = x.shape[0] > x.shape[1]
    u = x.bfloat16()
    if is_tall:  # then u u^T is the smaller square
        u = u.T
    u = u / u.norm().clamp(min=1e-7)
    for _ in range(5):
        square = u @ u.T
        polynomial = torch.addmm(square, square, square, beta=-4.7750, alpha=2.0315)
        u = torch.addmm(u, polynomial, u, beta=3.4445)
    if is_tall:
        u = u.T
    return u.to(x.dtype)


def muon(
    model: nn.Module,
    lr: float,
    *,
    weight_decay: float = 0.1,
    betas: tuple[float, float] = (0.9, 0.98),
) -> Muon:
    """`Muon` over a model's `parameter_groups`; whole matrices, not shards."""
    if not 0 < lr < math.inf or weight_decay <= 0:
        raise CourseError(
            f"lr is {lr} and weight_decay {weight_decay}; with Muon both must be above 0."
        )
    return Muon(parameter_groups(model, weight_decay), lr, betas)


def constant(warmup: int = 0) -> Schedule:
    """1 after a linear warm-up of `warmup` steps."""
    return lambda step: _warm(step, warmup)


def linear(steps: int, warmup: int = 0) -> Schedule:
    """Linear warm-up to 1, then linear decay towards 0 (Devlin et al. 2019, appendix A.2)."""
    return lambda step: _warm(step, warmup) * (1 - _progress(step, steps, warmup))


def cosine(steps: int, warmup: int = 0) -> Schedule:
    """Linear warm-up to 1, then half a cosine towards 0 (Radford et al. 2018, section 4.1).

    Two steps have the peak, the last of the warm-up and the first of the decay; in `linear`, too.

    >>> [round(cosine(6, warmup=2)(step), 2) for step in range(6)]
    [0.5, 1.0, 1.0, 0.85, 0.5, 0.15]
    """

    def factor(step: int) -> float:
        angle = math.pi * _progress(step, steps, warmup)  # 0 to pi
        return _warm(step, warmup) * 0.5 * (1 + math.cos(angle))

    return factor


def wsd(steps: int, warmup: int = 0, decay: float = 0.2) -> Schedule:
    """Warm-up, constant, then linear decay to 0 (Hu et al. 2024, section 4).

    Until the decay begins, runs of different lengths are the same run.

    Args:
        steps: in all.
        warmup: steps until the factor is 1.
        decay: share of the steps in which it falls.
    """
    last = max(1, round(steps * decay))
    return lambda step: _warm(step, warmup) * min(1.0, max(0.0, (steps - step) / last))


def _warm(step: int, warmup: int) -> float:
    """From 1 / `warmup` at step 0 up to 1."""
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


def _progress(step: int, steps: int, warmup: int) -> float:
    """0 until the warm-up is over, then rising; 1 would be reached at step `steps`.

    The last step that is taken is steps - 1, so it still learns something.
    """
    return min(1.0, max(0.0, (step - warmup) / max(1, steps - warmup)))


# By name, for configs and commands; a new name also stands in `settings`.
# (model, lr, *, weight_decay, betas) -> optimizer. A training passes all of them: its beta2 is the
# config's, 0.999 by default, whatever the function's own default says.
OPTIMIZERS: Mapping[OptimizerName, Callable[..., torch.optim.Optimizer]] = {
    "adamw": adamw,
    "muon": muon,
}
# (steps, warmup) -> schedule
SCHEDULES: Mapping[ScheduleName, Callable[[int, int], Schedule]] = {
    "constant": lambda steps, warmup: constant(warmup),
    "linear": linear,
    "cosine": cosine,
    "wsd": wsd,
}
