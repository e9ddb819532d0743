"""A run killed twenty times by SIGKILL, also while its checkpoint is being written, ends with the same bits; a full
disk costs nothing that was there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}

# One process imports torch and forks a worker for each attempt; forking is cheap, importing is not.
PROGRAM = '''
import os, random, signal, sys, time
from pathlib import Path
import torch
import torch._dynamo  # a first step imports it; here once instead of in every worker
from torch import nn
from course_lib import losses
from course_lib.optim import adamw, cosine
from course_lib.train import train

torch.set_num_threads(1)
STEPS, EVERY = 100, 2  # twenty attempts reach 88 at most

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.mix = nn.Embedding(50, 64), nn.Linear(64, 64)
        self.drop, self.out = nn.Dropout(0.3), nn.Linear(64, 50, bias=False)
        self.out.weight = self.table.weight
    def forward(self, ids, *, keep=None, at=None):
        h = self.drop(self.mix(self.table(ids).cumsum(1)).tanh())
        return self.out(h if at is None else h[at])

class Batches:
    def __getitem__(self, step):
        rng = torch.Generator().manual_seed(step)
        return {"ids": torch.randint(0, 50, (8, 12), generator=rng),
                "keep": torch.arange(12) < torch.randint(3, 13, (8, 1), generator=rng)}

def run(path):
    torch.manual_seed(5)
    net = Net()
    yield from train(net, Batches(), losses.clm, adamw(net, 3e-3), cosine(STEPS, 5), steps=STEPS, accumulate=2,
                     checkpoint=path, every=EVERY)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def attempt(path, moment, rng):
    """In a forked worker: run, and die at `moment`."""
    real_replace, real_fsync = os.replace, os.fsync
    saves = [0]
    target = rng.randrange(1, 3)  # at which save of this attempt
    def replace(a, b):
        saves[0] += 1
        if saves[0] == target and moment == "before the rename":
            die()
        real_replace(a, b)
        if saves[0] == target and moment == "after the rename":
            die()
    def fsync(fd):
        if saves[0] + 1 == target and moment == "half written":
            os.ftruncate(fd, rng.randrange(os.fstat(fd).st_size))
            die()
        real_fsync(fd)
    os.replace, os.fsync = replace, fsync
    stop = rng.randrange(1, 5)
    for count, step in enumerate(run(path), 1):
        if moment == "between two steps" and count == stop:
            die()

def fork(path, moment, rng):
    pid = os.fork()
    if pid == 0:
        try:
            attempt(path, moment, rng)
            os._exit(0)
        except BaseException as error:
            print("worker:", repr(error), flush=True)
            os._exit(3)
    if moment == "any time":
        time.sleep(rng.random() * 6 * pace)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return status

folder, kills = Path(sys.argv[1]), int(sys.argv[2])
rng = random.Random(7)
whole = folder / "whole" / "state.safetensors"
start = time.perf_counter()
assert fork(whole, "never", rng) == 0
pace = (time.perf_counter() - start) / STEPS
path = folder / "killed" / "state.safetensors"
moments = ["before the rename", "half written", "between two steps", "after the rename", "any time"]
killed = []
while len(killed) < kills:
    moment = moments[len(killed) % len(moments)]
    status = fork(path, moment, rng)
    assert status == signal.SIGKILL, (status, moment, killed)
    killed.append(moment)
assert fork(path, "never", rng) == 0
print("killed", len(killed), "left", len(list(path.parent.iterdir())), "same", whole.read_bytes() == path.read_bytes())
'''


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL (not on Windows)")
def test_killed_and_resumed_gives_the_same_bits(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), "20"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["killed", "20", "left", "1", "same", "True"]


FULL = """
import resource, sys
from pathlib import Path
import torch
from torch import nn
from course_lib import losses, train
from course_lib.errors import CourseError

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 64)
    def forward(self, ids, *, keep=None, at=None):
        return (self.table(ids) if at is None else self.table(ids)[at]) @ self.table.weight.T

def run(steps):
    torch.manual_seed(0)
    return train.train(Net(), [{"ids": torch.arange(12).view(2, 6)}], losses.clm, steps=steps, checkpoint=path, every=2)

path = Path(sys.argv[1])
assert len(list(run(2))) == 2
kept = path.read_bytes()
most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (len(kept) // 2, most))  # no more room
try:
    list(run(4))
    raise SystemExit("nothing was said")
except CourseError as error:
    print(error)
assert path.read_bytes() == kept, "the last good checkpoint was lost"
assert [p.name for p in path.parent.iterdir()] == [path.name], "half a file was left"
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
assert [step.step for step in run(4)] == [3, 4]  # room again: it goes on
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_full_disk_is_one_sentence_and_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    """The system itself refuses to write on, in the middle of the checkpoint."""
    path = tmp_path / "run" / "state.safetensors"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], env=ENVIRONMENT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"Could not write {path}: ") and done.stdout.count("\n") == 1
    assert "File too large" in done.stdout and "unchanged" in done.stdout
