"""Several processes give one process's training: data parallel, FSDP, resumed in another number, a
command line.
"""

import json
import os
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from course_lib.families.albert import albert
from course_lib.families.bert import bert
from course_lib.families.gpt import gpt
from course_lib.families.t5 import t5, t5_lm
from course_lib.files import COURSE
from course_lib.model import heads
from course_lib.model.transformer import Transformer
from course_lib.objectives import losses
from course_lib.training import run_state
from course_lib.training.loop import TrainConfig, train
from course_lib.training.optim import adamw, linear
from tests.course_lib.training.test_resume import FORKS

pytestmark = pytest.mark.slow
STEPS = 4
SIZE: dict[str, Any] = {"width": 8, "heads": 2}
MODELS: dict[str, Callable[[float], nn.Module]] = {
    "gpt": lambda p: heads.LM(Transformer(gpt(32, **SIZE, layers=2, length=12, dropout=p))),
    "bert": lambda p: heads.Pretraining(
        Transformer(bert(32, **SIZE, layers=2, length=12, dropout=p))
    ),
    "albert": lambda p: heads.Pretraining(
        Transformer(albert(32, **SIZE, layers=3, embed=4, length=12, dropout=p))
    ),
    "t5": lambda p: t5_lm(t5(32, **SIZE, layers=2, hidden=16, dropout=p)),
}
LOSSES = {"gpt": losses.clm, "bert": losses.mlm_nsp, "albert": losses.mlm_nsp, "t5": losses.seq2seq}


def make(case: str, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(3)
    return MODELS[case](dropout)


class Batches:
    """Rows of very different lengths, 5 of them, and once a single row: fewer than there are
    processes.
    """

    def __init__(self, case: str) -> None:
        self.case = case

    def __getitem__(self, step: int, /) -> dict[str, Tensor]:
        rng = torch.Generator().manual_seed(step)
        rows = 1 if step == 2 else 5
        real = torch.arange(12) < torch.randint(3, 13, (rows, 1), generator=rng)
        ids = torch.randint(5, 32, (rows, 12), generator=rng)
        batch = {"ids": ids, "attention_mask": real}
        if self.case == "t5":
            batch["labels"] = ids[:, :7].masked_fill(~real[:, :7], -100)
        if self.case in ("bert", "albert"):
            at = real & (torch.arange(12) % 3 == 1)
            batch |= {
                "labels": ids.masked_fill(~at, -100),
                "loss_mask": at,
                "segments": torch.zeros_like(ids),
            }
            batch["next"] = torch.tensor([0, 1, -100, -100, 1])[:rows]
        return batch


def curve(
    folder: Path,
    case: str,
    name: str,
    steps: int = STEPS,
    accumulate: int = 1,
    dropout: float = 0.0,
) -> None:
    """In one of the processes: train, and write down what each step said."""
    write = run_state.save_file

    # the others are at the next run before the file is there
    def late(*what: Any, **how: Any) -> None:
        time.sleep(0.5)
        write(*what, **how)

    run_state.save_file = late if name.startswith("stopped") and steps < STEPS else write
    model = make(case, dropout)
    how: dict[str, Any] = {
        "steps": steps,
        "accumulate": accumulate,
        "save_to": folder / name,
        "save_every": 2,
    }
    run = train(
        model,
        Batches(case),
        LOSSES[case],
        TrainConfig(**how),
        optimizer=adamw(model, 1e-2),
        schedule=linear(STEPS, 2),
    )
    found = [[step.step, step.loss, step.grad_norm, step.tokens] for step in run]
    (folder / f"{name}.{os.environ['RANK']}.json").write_text(json.dumps(found))
    run_state.save_file = write


def work(jobs: list[Callable[[], None]], rank: int, world: int, port: int, sharded: bool) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_RANK=str(rank),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        ACCELERATE_USE_FSDP=str(sharded).lower(),
    )
    for job in jobs:
        job()
    if world > 1:
        torch.distributed.destroy_process_group()


def launch(jobs: list[Callable[[], None]], world: int, sharded: bool = False) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        FORKS.Process(target=work, args=(jobs, rank, world, port, sharded)) for rank in range(world)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * world


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every run's records and checkpoint."""
    folder = tmp_path_factory.mktemp("runs")
    do = partial(partial, curve, folder)
    launch([*(do(case, f"{case}-1") for case in MODELS), do("gpt", "half-1", steps=2)], 1)
    for kind in ("ddp", "fsdp"):
        jobs = [do(case, f"{case}-{kind}") for case in MODELS]
        jobs += [do("gpt", f"parts-{kind}", steps=2, accumulate=2)]
        # goes on with the run of one process, or of two
        jobs += [do("gpt", "half-1" if kind == "ddp" else "half-ddp")]
        jobs += [
            do("gpt", f"dropped-{kind}", dropout=0.3),
            do("gpt", f"stopped-{kind}", steps=2, dropout=0.3),
        ]
        jobs += [do("gpt", f"stopped-{kind}", dropout=0.3), do("gpt", f"half-{kind}", steps=2)]
        launch(jobs, 2, kind == "fsdp")
    launch([do("gpt", "half-fsdp")], 1)
    return folder


def check(
    runs: Path, name: str, case: str, rank: int = 0, *, within: float = 1e-6, after: int = 0
) -> None:
    """The records of a run are those of one process's."""
    found, alone = (
        json.loads((runs / file).read_text())
        for file in (f"{name}.{rank}.json", f"{case}-1.0.json")
    )
    assert len(alone) == STEPS and alone[0][1] > alone[-1][1] > 0 and found
    for ours, theirs in zip(found, alone[after:], strict=not name.startswith("parts")):
        assert ours == pytest.approx(theirs, abs=within, rel=within)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("case", list(MODELS))
def test_two_processes_give_one_processs_losses(runs: Path, case: str, kind: str) -> None:
    """Tied output, two losses, one block applied over and over, two stacks."""
    for rank in (0, 1):
        check(runs, f"{case}-{kind}", case, rank)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_their_weights_are_those_of_one_too_and_each_can_accumulate(runs: Path, kind: str) -> None:
    models = [make("gpt"), make("gpt")]
    for model, name in zip(models, ("gpt-1", f"gpt-{kind}"), strict=True):
        assert run_state.load_model(runs / name, model) == STEPS
    for alone, two in zip(*(model.parameters() for model in models), strict=True):
        # Adam divides by gradients near 0
        torch.testing.assert_close(two, alone, rtol=0, atol=1e-5)
    check(runs, f"parts-{kind}", "gpt")


@pytest.mark.parametrize("name", ["half-1", "half-ddp", "half-fsdp"])
def test_a_run_goes_on_in_another_number_of_processes(runs: Path, name: str) -> None:
    """One then two; two then two with shards; two with shards then one."""
    check(runs, name, "gpt", within=2e-6, after=2)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_stopped_processes_go_on_to_the_same_bits(runs: Path, kind: str) -> None:
    """With dropout: each process's random numbers are kept too."""
    whole, stopped = (runs / f"{name}-{kind}" for name in ("dropped", "stopped"))
    assert whole.read_bytes() == stopped.read_bytes()


@pytest.mark.parametrize("way", [["--multi_gpu"], ["--use_fsdp", "--fsdp_version", "2"]])
def test_by_accelerate_launch(way: list[str], tmp_path: Path) -> None:
    """The command of the README; `--multi_gpu` is how accelerate starts several processes, on a CPU
    too.
    """
    (tmp_path / "book.txt").write_text("the judge went home. anna saw the judge at the mill. " * 40)
    launch = [*way, "--num_processes", "2", "--num_machines", "1", "--main_process_port", "0"]
    launch += ["--mixed_precision", "no", "--dynamo_backend", "no"]
    size = [
        "--vocab",
        "280",
        "--width",
        "8",
        "--layers",
        "1",
        "--heads",
        "2",
        "--length",
        "16",
        "--tokens",
        "128",
    ]
    course = [
        "-m",
        "course_lib",
        "pretrain",
        "gpt",
        "--data",
        "book.txt",
        "--out",
        "model",
        *size,
        "--device",
        "cpu",
    ]
    known = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(COURSE), "HF_HUB_OFFLINE": "1"}

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "accelerate.commands.launch", *launch, *course, *more]
        return subprocess.run(
            words, env=known, cwd=tmp_path, capture_output=True, text=True, timeout=1200
        )

    done = run("--steps", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("written to model") == done.stdout.count("parameters") == 1, (
        "one process speaks"
    )
    assert (tmp_path / "model" / "model.safetensors").exists()
    if "--use_fsdp" not in way:
        failed = run("--steps", "4", "--width", "16")
        assert (
            failed.returncode != 0
            and "state.safetensors is of a run with width 8 (here 16)" in failed.stderr
        )
