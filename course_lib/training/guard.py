"""Stop a training before a loss or a gradient of nan or infinity spoils the weights.

If step 7 has a loss of nan, `Guard.check(7, loss, grad_norm)` raises an error before the optimizer
updates the weights, so the weights of step 6 are kept.

To check a number, the CPU has to wait until the GPU has computed it, and meanwhile the GPU gets no
new work. So on a GPU the guard looks at the numbers only every `LOOK_EVERY` steps. In between, the
optimizer itself skips bad updates: PyTorch's fused optimizers have an attribute `found_inf`, a
number on the GPU, and they change no weight if it is 1. The guard sets it to 1 from the first bad
step on. When it looks at last, the weights are still those before the bad step.

`found_inf` is not documented. `torch.amp.GradScaler` uses it in the same way. We do not use the
scaler itself: it would read all gradients once more, and it would continue after a bad step.
"""

import math
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from course_lib.errors import CourseError

LOOK_EVERY = 20  # steps, on a device of `ASYNCHRONOUS`
ASYNCHRONOUS = {"cuda"}  # devices that compute while the CPU continues with the next operation


class Guard:
    """Stops a training before an update that is not finite (nan or infinity).

    Args:
        optimizer: the training's optimizer.
        device: the device that computes the loss.
        sharded: whether the weights are in shards (FSDP). Such an optimizer is not fused and
            cannot skip updates.
        saved: the file of the run's saved state; the error message names it.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        *,
        sharded: bool = False,
        saved: Path | None = None,
    ) -> None:
        is_fused = all(group.get("fused") for group in optimizer.param_groups)
        self.looks_rarely = device.type in ASYNCHRONOUS and is_fused and not sharded
        self.optimizer = optimizer
        self.saved = saved
        # Loss, norm and number of the newest step, or of the first bad step if there was one. They
        # are on the device, so that noting them does not wait for it.
        self.figures = torch.zeros(3, device=device)

    def check(self, step: int, loss: Tensor, grad_norm: Tensor, *, look: bool = False) -> None:
        """Call this before each update: it notes the step's loss and norm, and looks if it is time.

        Args:
            step: the step's number, from 1.
            loss: the loss of the whole batch, a scalar.
            grad_norm: the norm of the gradient before clipping, a scalar.
            look: look now, for example because the state is about to be saved.

        Raises:
            CourseError: the guard looked, and this step or one since its last look was not finite.
        """
        # Once a step was bad, `figures` keeps that step.
        newest = torch.stack((loss, grad_norm, torch.full_like(loss, step)))
        self.figures = newest.where(self.figures.isfinite().all(), self.figures)
        if self.looks_rarely:
            is_bad = ~self.figures.isfinite().all()
            cast(Any, self.optimizer).found_inf = is_bad.float()
            if not look and step % LOOK_EVERY != 0:
                return

        bad_loss, bad_norm, bad_step = self.figures.tolist()
        if math.isfinite(bad_loss) and math.isfinite(bad_norm):
            return
        hint = ""
        if self.saved and self.saved.exists():
            hint = f" The checkpoint {self.saved} still holds the last good state."
        raise CourseError(
            f"Training diverged at step {bad_step:.0f}: the loss is {bad_loss}, the norm of the"
            f" gradient is {bad_norm}. Lower the learning rate or warm up for longer.{hint}"
        )
