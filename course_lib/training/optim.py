"""How weights change: the optimizers AdamW and Muon, and schedules for the learning rate.

An optimizer turns gradients into updates of the weights. A schedule is a function from the step,
counted from 0, to a factor on the learning rate. `linear(6, warmup=2)`, for example, rises for two
steps (the warm-up) and then falls:

    step      0    1    2    3     4    5
    factor    0.5  1.0  1.0  0.75  0.5  0.25

Configs and commands choose by name: see `OPTIMIZERS` and `SCHEDULES` at the end of this file.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.training.settings import OptimizerName, ScheduleName

Schedule = Callable[[int], float]  # step, counted from 0 -> factor on the learning rate

# Muon's constants (Jordan et al. 2024): the momentum, and the coefficients of a Newton-Schulz step.
MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
# The size of a typical AdamW update (Liu et al. 2025, section 2.2): Muon's is scaled to the same.
UPDATE_SIZE = 0.2
ADAM_EPSILON = 1e-8  # as in PyTorch's AdamW; it keeps a weight without gradient from dividing by 0


def parameter_groups(model: nn.Module, weight_decay: float = 0.01) -> list[dict[str, Any]]:
    """Two groups of the trainable parameters: with weight decay, and without.

    Weight decay moves a weight a little towards 0 at each update. It is for matrices. Biases, the
    weights of norms, and embedding tables have none.

    Args:
        model: the model.
        weight_decay: the decay of the first group.

    Raises:
        CourseError: no parameter is trainable.
    """
    tables: set[int] = set()  # embedding tables, by identity: they are matrices that do not decay
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
    """AdamW (Loshchilov and Hutter 2019): Adam, with a weight decay for the matrices.

    Args:
        model: the model to train.
        lr: the highest learning rate; a schedule multiplies it by a factor of at most 1.
        weight_decay: the matrices' decay.
        betas: decay of the running mean of the gradient, and of the squared gradient; close to 1
            is slow.

    Raises:
        CourseError: `lr` is not a positive number, or no parameter is trainable.
    """
    if not 0 < lr < math.inf:
        raise CourseError(f"lr is {lr}; a learning rate must be above 0 and finite.")
    groups = parameter_groups(model, weight_decay)
    # PyTorch has a faster, fused form of AdamW for these devices.
    fused = {p.device.type for p in model.parameters()} <= {"cpu", "cuda", "mps"}
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=fused)


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) for matrices, Adam for embedding tables, norms and biases.

    A gradient matrix often has a few large singular values, so most of an update goes into a few
    directions. Muon makes all singular values about 1 before the update. Then it multiplies by
    0.2 sqrt(larger side), so that an update is as large as AdamW's and the same learning rates
    work (Liu et al. 2025, section 2.2).

    Args:
        groups: from `parameter_groups`. Those with a weight decay hold the matrices.
        lr: the highest learning rate.
        betas: Adam's, as for `adamw`.
    """

    def __init__(self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters once."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if group["weight_decay"]:  # a matrix
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    size = UPDATE_SIZE * max(p.shape) ** 0.5
                    p.add_(self._orthogonal_step(p, p.grad), alpha=-group["lr"] * size)
                else:
                    p.add_(self._adam_step(p, p.grad, group["betas"]), alpha=-group["lr"])

    def _orthogonal_step(self, p: Tensor, grad: Tensor) -> Tensor:
        """The gradient's running mean with Nesterov's correction, made orthogonal."""
        momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
        momentum.lerp_(grad, 1 - MOMENTUM)
        # Nesterov: mix the newest gradient in once more.
        return orthogonal(grad.lerp(momentum, MOMENTUM))

    def _adam_step(self, p: Tensor, grad: Tensor, betas: tuple[float, float]) -> Tensor:
        """Adam's step (Kingma and Ba 2015, algorithm 1), before the learning rate."""
        state = self.state[p]
        if not state:
            # The step is a tensor, because a saved run state keeps nothing else of an optimizer.
            state["step"] = torch.zeros(())
            state["mean"] = torch.zeros_like(p)
            state["square"] = torch.zeros_like(p)
        state["step"] += 1
        state["mean"].lerp_(grad, 1 - betas[0])
        state["square"].lerp_(grad.square(), 1 - betas[1])
        # Both means start at 0, so at first they are too small. The divisions correct this.
        mean = state["mean"] / (1 - betas[0] ** state["step"])
        square = state["square"] / (1 - betas[1] ** state["step"])
        return mean / (square.sqrt() + ADAM_EPSILON)  # type: ignore[no-any-return]


def orthogonal(x: Tensor) -> Tensor:
    """The matrix [R C] with the same singular vectors, but with all singular values near 1.

    A singular value decomposition would be slow on a GPU. Five Newton-Schulz steps come near
    enough: u <- a u + (b S + c S S) u with S = u u^T, in bfloat16. They need matrix products only.
    """
    a, b, c = NEWTON_SCHULZ
    is_tall = x.shape[0] > x.shape[1]
    u = x.bfloat16()
    if is_tall:  # u u^T is smaller if u is wide
        u = u.T
    # Now no singular value is above 1. The clamp leaves a gradient of zeros as it is.
    u = u / u.norm().clamp(min=1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        square = u @ u.T
        polynomial = torch.addmm(square, square, square, beta=b, alpha=c)  # b S + c S S
        u = torch.addmm(u, polynomial, u, beta=a)
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
    """Muon for a model's matrices, Adam for its other weights.

    It needs whole matrices, so it does not work with weights in shards (FSDP).

    Raises:
        CourseError: `lr` or `weight_decay` is not above 0, or no parameter is trainable.
    """
    if not 0 < lr < math.inf or weight_decay <= 0:
        raise CourseError(
            f"lr is {lr} and weight_decay {weight_decay}; with Muon both must be above 0."
        )
    return Muon(parameter_groups(model, weight_decay), lr, betas)


def constant(warmup: int = 0) -> Schedule:
    """Linear warm-up to 1 in `warmup` steps, then always 1."""
    return lambda step: _warmup_factor(step, warmup)


def linear(steps: int, warmup: int = 0) -> Schedule:
    """Linear warm-up to 1, then linear decay towards 0 (Devlin et al. 2019, appendix A.2)."""
    return lambda step: _warmup_factor(step, warmup) * (1 - _progress(step, steps, warmup))


def cosine(steps: int, warmup: int = 0) -> Schedule:
    """Linear warm-up to 1, then half a cosine towards 0 (Radford et al. 2018, section 4.1).

    Two steps have the factor 1, the last of the warm-up and the first of the decay, as in `linear`.

    >>> [round(cosine(6, warmup=2)(step), 2) for step in range(6)]
    [0.5, 1.0, 1.0, 0.85, 0.5, 0.15]
    """

    def factor(step: int) -> float:
        angle = math.pi * _progress(step, steps, warmup)  # 0 to pi
        return _warmup_factor(step, warmup) * 0.5 * (1 + math.cos(angle))

    return factor


def wsd(steps: int, warmup: int = 0, decay: float = 0.2) -> Schedule:
    """Warm-up, stable, decay: constant after the warm-up, then linear to 0.

    (Hu et al. 2024, section 4.) Before the decay the factor does not depend on `steps`. So a run
    can be continued for more steps from a state that was saved then.

    Args:
        steps: number of steps in the whole run.
        warmup: number of steps until the factor is 1.
        decay: share of the steps in which it falls, at the end.
    """
    last = max(1, round(steps * decay))  # number of steps of the decay; it is a divisor
    return lambda step: _warmup_factor(step, warmup) * min(1.0, max(0.0, (steps - step) / last))


def _warmup_factor(step: int, warmup: int) -> float:
    """Rises from 1 / `warmup` at step 0 to 1."""
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


def _progress(step: int, steps: int, warmup: int) -> float:
    """0 during the warm-up, then rises linearly, to 1 at step `steps`.

    The last step has the number `steps` - 1, so its learning rate is still above 0.
    """
    decay_steps = max(1, steps - warmup)  # a short run may consist of its warm-up only
    return min(1.0, max(0.0, (step - warmup) / decay_steps))


# Add a new name to settings.py, too: the commands read the names there.
# (model, lr, *, weight_decay, betas) -> optimizer. The training loop passes all arguments, so the
# defaults of `TrainConfig` count there, and not those of the functions above.
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
