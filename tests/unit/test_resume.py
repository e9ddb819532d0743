"""A run killed by SIGKILL at any moment, even while its checkpoint is being written, resumes to the same bits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# One process imports torch and forks a worker for each attempt; forking is cheap, importing is not.
PROGRAM = '''
import os, random, signal, sys, time
from pathlib import Path
import torch
from torch import nn
from course_lib import files, losses
from course_lib.optim import adamw, cosine
from course_lib.train import train

torch.set_num_threads(1)
STEPS, EVERY = 30, 4

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
    target = rng.randrange(1, 4)          # at which save of this attempt
    def replace(a, b):
        saves[0] += 1
        if saves[0] == target and moment == "before the rename":
            die()
        real_replace(a, b)
        if saves[0] == target and moment == "after the rename":
            die()
    def fsync(fd):
        if saves[0] + 1 == target and moment == "half written":
            size = os.fstat(fd).st_size
            os.ftruncate(fd, size // 2)
            die()
        real_fsync(fd)
    os.replace, os.fsync = replace, fsync
    stop = rng.randrange(1, 12)
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
        time.sleep(rng.random() * float(sys.argv[3]))
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return status

folder, seed = Path(sys.argv[1]), int(sys.argv[2])
rng = random.Random(seed)
whole = folder / "whole.safetensors"
assert fork(whole, "never", rng) == 0
path = folder / "killed.safetensors"
moments = ["before the rename", "half written", "between two steps", "after the rename", "any time", "any time"]
rng.shuffle(moments)
killed = 0
for moment in moments:
    status = fork(path, moment, rng)
    assert status in (0, signal.SIGKILL), status
    killed += status == signal.SIGKILL
assert fork(path, "never", rng) == 0
print("killed", killed, "same", whole.read_bytes() == path.read_bytes())
'''


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL (not on Windows)")
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_and_resumed_gives_the_same_bits(seed: int, tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(seed), "0.3"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    words = done.stdout.split()
    assert int(words[1]) >= 3, f"too few attempts were killed: {done.stdout}"
    assert words[-1] == "True", "the resumed run ended in another state"
