"""Several processes give one process's training: data parallel, FSDP, resumed in another number, a command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}

# One process imports torch and forks the others: two cores are soon busy with importing.
PROGRAM = '''
import functools, json, os, socket, sys, time, warnings
from pathlib import Path
import accelerate, torch
import torch._dynamo  # a first step imports it; here once instead of in every worker
import torch.distributed as dist
from safetensors.torch import save_file
from course_lib import checkpoint, heads, losses
from course_lib.models.albert import albert
from course_lib.models.bert import bert
from course_lib.models.gpt import gpt
from course_lib.models.t5 import t5, t5_lm
from course_lib.optim import adamw, linear
from course_lib.stack import Stack
from course_lib.train import train

torch.set_num_threads(1)
warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
STEPS = 4
folder = Path(sys.argv[1])

def gpt_mini(dropout=0.0):
    torch.manual_seed(3)
    return heads.LM(Stack(gpt(32, width=8, layers=2, heads=2, length=12, dropout=dropout)))

def bert_mini(dropout=0.0):
    torch.manual_seed(3)
    return heads.Pretraining(Stack(bert(32, width=8, layers=2, heads=2, length=12, dropout=dropout)))

def albert_mini(dropout=0.0):
    torch.manual_seed(3)
    return heads.Pretraining(Stack(albert(32, width=8, layers=3, heads=2, embed=4, length=12, dropout=dropout)))

def t5_mini(dropout=0.0):
    torch.manual_seed(3)
    return t5_lm(t5(32, width=8, layers=2, heads=2, hidden=16, dropout=dropout))

class Batches:
    """Rows of very different lengths, 5 of them, and once a single row: fewer than there are processes."""
    def __getitem__(self, step):
        rng = torch.Generator().manual_seed(step)
        rows = 1 if step == 2 else 5
        keep = torch.arange(12) < torch.randint(3, 13, (rows, 1), generator=rng)
        return {"ids": torch.randint(5, 32, (rows, 12), generator=rng), "keep": keep}

class Masked(Batches):
    def __getitem__(self, step):
        batch = super().__getitem__(step)
        at = batch["keep"] & (torch.arange(12) % 3 == 1)
        follows = torch.tensor([0, 1, -100, -100, 1])[: len(at)]
        return batch | {"labels": batch["ids"].masked_fill(~at, -100), "at": at, "next": follows,
                        "segments": torch.zeros_like(batch["ids"])}

class Sources(Batches):
    def __getitem__(self, step):
        batch = super().__getitem__(step)
        return batch | {"labels": batch["ids"][:, :7].masked_fill(~batch["keep"][:, :7], -100)}

CASES = {"gpt": (gpt_mini, Batches(), losses.clm), "bert": (bert_mini, Masked(), losses.mlm_nsp),
         "albert": (albert_mini, Masked(), losses.mlm_nsp), "t5": (t5_mini, Sources(), losses.seq2seq)}

def late(write):  # the main process is slow to write; the others are at the next run before the file is there
    def writing(*what, **how):
        time.sleep(0.5)
        write(*what, **how)
    return writing

def curve(case, name, steps=STEPS, accumulate=1, dropout=0.0):
    checkpoint.save_file = late(save_file) if name.startswith("stopped") and steps < STEPS else save_file
    make, batches, loss = CASES[case]
    model = make(dropout)
    run = train(model, batches, loss, adamw(model, 1e-2), linear(STEPS, 2), steps=steps, accumulate=accumulate,
                checkpoint=folder / name, every=2)
    found = [[step.step, step.loss, step.grad_norm, step.tokens] for step in run]
    (folder / f"{name}.{os.environ.get('RANK', 0)}.json").write_text(json.dumps(found))

def work(jobs, rank, world, port, sharded):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port), ACCELERATE_USE_FSDP=str(sharded).lower())
    for job in jobs:
        job()
    if world > 1:
        dist.destroy_process_group()

def launch(jobs, world, sharded=False):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pids = []
    for rank in range(world):
        if (pid := os.fork()) == 0:
            code = 1
            try:
                work(jobs, rank, world, port, sharded)
                code = 0
            except BaseException:
                import traceback
                traceback.print_exc()
            os._exit(code)
        pids.append(pid)
    ends = [os.waitpid(pid, 0)[1] for pid in pids]
    assert ends == [0] * world, ends

do = functools.partial
launch([*(do(curve, case, f"{case}-1") for case in CASES), do(curve, "gpt", "half-1", steps=2)], 1)
for kind in ("ddp", "fsdp"):
    launch([
        *(do(curve, case, f"{case}-{kind}") for case in CASES),
        do(curve, "gpt", f"parts-{kind}", steps=2, accumulate=2),
        do(curve, "gpt", "half-1" if kind == "ddp" else "half-ddp"),  # goes on with the run of one process, or of two
        do(curve, "gpt", f"dropped-{kind}", dropout=0.3), do(curve, "gpt", f"stopped-{kind}", steps=2, dropout=0.3),
        do(curve, "gpt", f"stopped-{kind}", dropout=0.3),
        do(curve, "gpt", "half-ddp", steps=2) if kind == "ddp" else do(curve, "gpt", "half-fsdp", steps=2),
    ], 2, kind == "fsdp")
launch([do(curve, "gpt", "half-fsdp")], 1)
whole = {}
for name in ("gpt-1", "gpt-ddp", "gpt-fsdp"):
    model = gpt_mini()
    assert checkpoint.load_model(folder / name, model) == STEPS
    whole[name] = torch.cat([p.detach().flatten() for p in model.parameters()])
print(*(float((whole[name] - whole["gpt-1"]).abs().max()) for name in ("gpt-ddp", "gpt-fsdp")))
'''


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """Every run's records and checkpoint, and how far the final weights of two processes are from one's."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork (not on Windows)")
    folder = tmp_path_factory.mktemp("runs")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)], env=ENVIRONMENT, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, [float(word) for word in done.stdout.split()]


def steps(runs: tuple[Path, list[float]], name: str, rank: int = 0) -> list[list[float]]:
    found: list[list[float]] = json.loads((runs[0] / f"{name}.{rank}.json").read_text())
    return found


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("case", ["gpt", "bert", "albert", "t5"])
def test_two_processes_give_one_processs_losses(runs: tuple[Path, list[float]], case: str, kind: str) -> None:
    """Tied output, two losses, one block applied over and over, two stacks."""
    alone = steps(runs, f"{case}-1")
    assert len(alone) == 4 and alone[0][1] > alone[-1][1] > 0
    for rank in (0, 1):
        found = steps(runs, f"{case}-{kind}", rank)
        for ours, theirs in zip(found, alone, strict=True):
            assert ours == pytest.approx(theirs, abs=1e-6, rel=1e-6)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_their_weights_are_those_of_one_too(runs: tuple[Path, list[float]], kind: str) -> None:
    assert runs[1][["ddp", "fsdp"].index(kind)] < 1e-5  # Adam divides by gradients near 0


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_each_process_can_accumulate(runs: tuple[Path, list[float]], kind: str) -> None:
    for ours, theirs in zip(steps(runs, f"parts-{kind}"), steps(runs, "gpt-1"), strict=False):
        assert ours == pytest.approx(theirs, abs=1e-6, rel=1e-6)


@pytest.mark.parametrize("name", ["half-1", "half-ddp", "half-fsdp"])
def test_a_run_goes_on_in_another_number_of_processes(runs: tuple[Path, list[float]], name: str) -> None:
    """One then two; two then two with shards; two with shards then one."""
    rest, alone = steps(runs, name), steps(runs, "gpt-1")
    assert [step for step, *_ in rest] == [3, 4]
    for ours, theirs in zip(rest, alone[2:], strict=True):
        assert ours == pytest.approx(theirs, abs=2e-6, rel=2e-6)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_stopped_processes_go_on_to_the_same_bits(runs: tuple[Path, list[float]], kind: str) -> None:
    """With dropout: each process's random numbers are kept too."""
    whole, stopped = (runs[0] / f"{name}-{kind}" for name in ("dropped", "stopped"))
    assert whole.read_bytes() == stopped.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("way", [["--multi_gpu"], ["--use_fsdp", "--fsdp_version", "2"]])
def test_by_accelerate_launch(way: list[str], tmp_path: Path) -> None:
    """The command of the README; `--multi_gpu` is how accelerate starts several processes, on a CPU too."""
    (tmp_path / "book.txt").write_text("the judge went home. anna saw the judge at the mill. " * 40)
    launch = [*way, "--num_processes", "2", "--num_machines", "1", "--main_process_port", "0"]
    launch += ["--mixed_precision", "no", "--dynamo_backend", "no"]
    size = ["--vocab", "280", "--width", "8", "--layers", "1", "--heads", "2", "--length", "16", "--tokens", "128"]
    course = ["-m", "course_lib", "pretrain", "gpt", "--data", "book.txt", "--out", "model", *size, "--device", "cpu"]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "accelerate.commands.launch", *launch, *course, *more]
        return subprocess.run(words, env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    done = run("--steps", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("written to model") == done.stdout.count("parameters") == 1, "one process speaks"
    assert (tmp_path / "model" / "model.safetensors").exists()
    if "--use_fsdp" in way:
        return
    failed = run("--steps", "4", "--width", "16")
    assert failed.returncode != 0 and "error: model/run/state.safetensors belongs to another model" in failed.stderr
