"""The guard against updates that are not finite.

A loss or a gradient of nan or infinity must not reach the weights. So both have to be
read before each update. On a GPU that costs time: to read a number, the CPU waits until the GPU has
computed it, and meanwhile the GPU gets no new work.

So on a GPU the guard reads them every `LOOK` steps only. In between, the optimizer itself skips bad
updates. PyTorch's fused optimizers read the attribute `found_inf`, a number on the device, and
their kernel changes nothing where it is 1. From the first bad step on, the guard sets it to 1. When
the guard reads them at last, the weights are still those before the bad step.

`found_inf` is no documented interface. It is what `torch.amp.GradScaler` sets. The scaler itself
would read all gradients once more, and would go on with the step after a bad one."""

import math
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from course_lib.errors import CourseError

LOOK = 20  # steps between two looks at loss and gradient, on a device of `ASYNCHRONOUS`
ASYNCHRONOUS = {"cuda"}  # devices that compute while the CPU goes on; a look makes it wait


class Guard:
    """Stops a training before an update that is not finite.

    Args:
        optimizer: makes the updates.
        device: holds the loss and the norm.
        sharded: the weights are in shards; then there is no fused kernel to leave an update out.
        saved: the file of the run's state, which the error names.
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
        # Loss, norm and number of the newest step, or of the first bad one if there was one.
        self.figures = torch.zeros(3, device=device)

    def check(self, step: int, loss: Tensor, grad_norm: Tensor, *, look: bool = False) -> None:
        """Before the update: note the step's figures, and look at them now or later.

        Args:
            step: its number, from 1.
            loss: scalar, of the whole batch.
            grad_norm: scalar, before clipping.
            look: look now, because the state is about to be saved.

        Raises:
            CourseError: at a look, if this step or one since the last look was not finite.
        """
        newest = torch.stack((loss, grad_norm, torch.full_like(loss, step)))
        self.figures = newest.where(self.figures.isfinite().all(), self.figures)
        if self.looks_rarely:
            is_bad = ~self.figures.isfinite().all()
            cast(Any, self.optimizer).found_inf = is_bad.float()
            if not look and step % LOOK != 0:
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
