"""The guard: a bad update is not made, also where nobody has looked yet."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.objectives import losses
from course_lib.objectives.losses import Batch
from course_lib.training import guard as guards
from course_lib.training.guard import LOOK_EVERY, Guard
from course_lib.training.loop import TrainConfig, train
from course_lib.training.optim import adamw
from tests.course_lib.training.test_train import BATCHES, Net

BAD = 3  # the step whose loss is nan


def weights(model: Net) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def updates(model: Net, guard: Guard, optimizer: torch.optim.Optimizer) -> Iterator[int]:
    """The loop in short."""
    for step in range(1, 2 * LOOK_EVERY):
        loss = losses.clm(model, BATCHES[0]) * (math.nan if step == BAD else 1.0)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        guard.check(step, loss.detach(), norm)
        optimizer.step()
        optimizer.zero_grad()
        yield step


def test_a_bad_update_that_nobody_has_seen_changes_nothing() -> None:
    """The CPU's fused AdamW can leave an update out, as a GPU's can."""
    model = Net()
    optimizer = adamw(model)
    guard = Guard(optimizer, torch.device("cpu"))
    assert not guard.looks_rarely  # a CPU need not wait
    guard.looks_rarely = True
    changed = []
    before = weights(model)
    with pytest.raises(CourseError, match=f"diverged at step {BAD}: the loss is nan"):  # noqa: PT012
        for _ in updates(model, guard, optimizer):
            after = weights(model)
            changed.append(any(not torch.equal(a, b) for a, b in zip(before, after, strict=True)))
            before = after
    assert changed == [True] * (BAD - 1) + [False] * (LOOK_EVERY - BAD)


def test_before_a_save_the_guard_looks() -> None:
    guard = Guard(adamw(Net()), torch.device("cpu"))
    guard.looks_rarely = True
    bad = torch.tensor(math.inf)
    guard.check(1, bad, bad)
    with pytest.raises(CourseError, match="diverged at step 1: the loss is inf"):
        guard.check(2, torch.ones(()), torch.ones(()), look=True)


@pytest.mark.parametrize(("fused", "sharded", "rarely"), [(1, 0, 1), (0, 0, 0), (1, 1, 0)])
def test_the_guard_looks_rarely_where_the_optimizer_can_leave_updates_out(
    fused: bool, sharded: bool, rarely: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "ASYNCHRONOUS", {"cpu"})
    optimizer = torch.optim.AdamW(Net().parameters(), fused=bool(fused))
    guard = Guard(optimizer, torch.device("cpu"), sharded=bool(sharded))
    assert guard.looks_rarely is bool(rarely)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_on_a_gpu_a_bad_update_changes_nothing() -> None:
    made = []

    def loss(model: torch.nn.Module, batch: Batch) -> Tensor:
        made.append(losses.clm(model, batch))
        return made[-1] * (math.nan if len(made) == BAD else 1.0)

    model = Net().cuda()
    changed = []
    before = weights(model)
    with pytest.raises(CourseError, match=f"diverged at step {BAD}: the loss is nan"):  # noqa: PT012
        for _ in train(model, BATCHES, loss, TrainConfig(steps=2 * LOOK_EVERY, device="cuda")):
            after = weights(model)
            changed.append(any(not torch.equal(a, b) for a, b in zip(before, after, strict=True)))
            before = after
    assert changed == [True] * (BAD - 1) + [False] * (LOOK_EVERY - BAD)
