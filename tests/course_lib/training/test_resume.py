"""A run killed ten times by SIGKILL, also while its checkpoint is being written, ends with the same
bits; a full disk costs nothing that was there."""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.files import locked
from course_lib.objectives import losses
from course_lib.training.loop import Step, TrainConfig, train
from course_lib.training.optim import adamw, cosine
from course_lib.training.pretrain_config import PretrainConfig
from course_lib.training.pretraining import pretrain
from course_lib.training.run_folder import train_in_folder
from tests.course_lib.training.test_train import Net, batch

resource = pytest.importorskip("resource", reason="needs fork, SIGKILL and limits (not on Windows)")
STEPS = 60  # ten attempts reach 44 at most
MOMENTS = ["before the rename", "half written", "between two steps", "after the rename", "any time"]
# One process imports torch and forks the others; forking is cheap, importing is not. A first step
# imports dynamo.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch._dynamo", __name__])


class Endless:
    def __getitem__(self, step: int, /) -> dict[str, Tensor]:
        return batch(step)


def run(path: Path, steps: int = STEPS) -> Iterator[Step]:
    torch.set_num_threads(1)
    net = Net(64, dropout=0.3)
    how: dict[str, Any] = {"steps": steps, "accumulate": 2, "save_to": path, "save_every": 2}
    return train(
        net,
        Endless(),
        losses.clm,
        TrainConfig(**how),
        optimizer=adamw(net, 3e-3),
        schedule=cosine(STEPS, 5),
    )


def attempt(path: Path, moment: str, target: int, stop: int) -> None:
    """In a process of its own: run, and die at `moment` of the save `target`, or after `stop`
    steps.
    """
    replace, fsync, saves = os.replace, os.fsync, [0]

    def die(now: str) -> None:
        if moment == now and (saves[0] == target or now == "between two steps"):
            os.kill(os.getpid(), signal.SIGKILL)

    def replacing(a: Any, b: Any) -> None:
        saves[0] += 1
        die("before the rename")
        replace(a, b)
        die("after the rename")

    def syncing(fd: int) -> None:
        if moment == "half written" and saves[0] + 1 == target:
            os.ftruncate(fd, os.fstat(fd).st_size * stop // 5)
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(fd)

    os.replace, os.fsync = replacing, syncing  # type: ignore[assignment]
    for step, _ in enumerate(run(path), 1):
        if step == stop:
            die("between two steps")


def forked(work: Any, *how: Any, seconds: float | None = None) -> int | None:
    """The exit code of a process that does this; killed after so many seconds."""
    process = FORKS.Process(target=work, args=how)
    process.start()
    if seconds is not None:
        time.sleep(seconds)
        process.kill()
    process.join()
    return process.exitcode


def test_killed_and_resumed_gives_the_same_bits(tmp_path: Path) -> None:
    whole, path = (
        tmp_path / "whole" / "state.safetensors",
        tmp_path / "killed" / "state.safetensors",
    )
    assert forked(time.sleep, 0) == 0  # the server is up
    start = time.perf_counter()
    assert forked(attempt, whole, "never", 0, 0) == 0
    pace, rng = (time.perf_counter() - start) / STEPS, random.Random(7)
    for moment in MOMENTS * 2:
        seconds = rng.random() * 6 * pace if moment == "any time" else None
        killed = forked(
            attempt, path, moment, rng.randrange(1, 3), rng.randrange(1, 5), seconds=seconds
        )
        assert killed == -signal.SIGKILL, moment
    assert forked(attempt, path, "never", 0, 0) == 0
    assert whole.read_bytes() == path.read_bytes() and len(list(path.parent.iterdir())) == 1


def held(folder: Path) -> None:
    with locked(folder):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_folder_has_one_writer_and_a_killed_one_leaves_it(tmp_path: Path) -> None:
    assert forked(held, tmp_path) == -signal.SIGKILL
    net, said = Net(), f"^Process {os.getpid()} is writing in {tmp_path}: wait"
    with locked(tmp_path):
        with pytest.raises(CourseError, match=said):
            next(train_in_folder(tmp_path, net, Endless(), losses.clm, TrainConfig(steps=2)))
        with pytest.raises(CourseError, match=said):
            pretrain(PretrainConfig(model="gpt", data="book.txt", out=tmp_path))
    assert not tmp_path.exists()


def fill_up(path: Path) -> None:
    """The system itself refuses to write on, in the middle of the checkpoint."""
    assert len(list(run(path, 2))) == 2
    kept, (_, most) = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(kept) // 2, most))
    with pytest.raises(
        CourseError, match=rf"^Could not write {path}: .*File too large.*unchanged[^\n]*$"
    ):
        list(run(path, 4))
    assert path.read_bytes() == kept, "the last good checkpoint was lost"
    assert [p.name for p in path.parent.iterdir()] == [path.name], "half a file was left"
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert [step.step for step in run(path, 4)] == [3, 4]  # room again: it goes on


def test_a_full_disk_is_one_sentence_and_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    assert forked(fill_up, tmp_path / "run" / "state.safetensors") == 0
