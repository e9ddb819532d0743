"""All that only a GPU can tell, in one go: `python -m lab.bench --gpu`, under eight minutes
of one machine.

    training    GPT-2 124M and BERT-base: tokens a second and share of peak, compiled and not, and
                compiled with one of the loop's gains switched off
    generation  GPT-2 124M, greedily, with a CUDA graph and without
    families    what a step waits for, graph breaks, bfloat16 and float32, attention kernels
    fine-tuning padded rows of odd widths, compiled: whether a gradient is not finite
    tests       those marked cuda

One JSON, written anew after each part, so that a run that is cut short has told something: in $OUT
if that is set. A part that fails leaves its error there, and the others are run. With `--tiny` on a
CPU: models of no size."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from course_lib.analysis.cost import DEVICES, forward_flops
from course_lib.errors import CourseError
from course_lib.families import FAMILIES
from course_lib.files import COURSE, write_json
from course_lib.generation import bf16_copy, generate, state
from course_lib.generation.graphed import can_be_graphed
from course_lib.model import heads, kernels
from course_lib.model.transformer import Transformer
from course_lib.objectives import losses
from course_lib.objectives.collate import WIDTH_STEP
from course_lib.training import feed
from course_lib.training.loop import TrainConfig, train
from course_lib.training.optim import adamw
from lab.bench import steps
from lab.bench.contenders import (
    SIZES,
    ModelSize,
    batches_of,
    config_of,
    loss_of,
    ours,
    their_steps,
    theirs,
)

FILE = Path("data/results/bench_gpu.json")
MINUTES = 7.5  # nothing begins later
BIG = {
    "gpt": ModelSize(layers=12, width=768, heads=12, tokens=1024, batch=32, vocab=50257),
    "bert": ModelSize(layers=12, width=768, heads=12, tokens=512, batch=64, vocab=30522),
}
TESTS = [
    "tests/course_lib/training/test_train.py",
    "tests/course_lib/training/test_guard.py",
    "tests/course_lib/generation/test_graphed.py",
]
# What is switched off in a compiled training, so that each gain is measured alone: the name of a
# function of `kernels` that then says no.
SWITCHES = {
    "all logits": "use_linear_cross_entropy",
    "vocabulary not padded": "use_padded_vocabulary",
}
LARGER = 2  # times as many rows: does the batch fill the card?
Record = dict[str, Any]


def peak(device: str) -> float | None:
    """FLOP/s of the device's data sheet, if `analysis.cost` knows it."""
    name = torch.cuda.get_device_name() if device == "cuda" else ""
    return next((it.flops for key, it in DEVICES.items() if key in name), None)


def wait(device: str) -> float:
    """The time when the device has done all that it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def timed(steps: Iterator[Any], device: str, warmup: int, count: int) -> dict[str, float]:
    """Seconds of a step, many at a time: nobody looks at a figure in between. The first ones, which
    compile, apart.
    """
    start = wait(device)
    for _ in range(warmup):
        next(steps)
    begun = wait(device)
    for _ in range(count):
        next(steps)
    return {"warmup": begun - start, "seconds": (wait(device) - begun) / count}


def switched_off(name: str, family: str, device: str, tiny: bool) -> Record:
    """A compiled training in which one fast path is not used (`SWITCHES`)."""
    with patch.object(kernels, SWITCHES[name], lambda *_: False):
        return training("course" if tiny else "course compiled", family, device, tiny)


def training(side: str, family: str, device: str, tiny: bool, rows: int = 1) -> Record:
    """Tokens a second, utilisation, memory. side: "course", "course compiled", or transformers with
    the same kernels (bfloat16 by autocast, fused AdamW, PyTorch's attention). rows: times as many
    as in `BIG`."""
    size = SIZES["tiny"] if tiny else BIG[family]
    size = replace(size, batch=rows * size.batch)
    warmup, count = (1, 2) if tiny else (4, 20)
    batches = batches_of(family, size)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    if side == "transformers":
        model = theirs(family, size).to(device)
        run = their_steps(model, batches, device, bf16=True)
    else:
        model = ours(family, size).to(device)
        run = train(
            model,
            batches,
            loss_of(family),
            TrainConfig(
                steps=10**6, device=device, precision="bf16", compile=side == "course compiled"
            ),
            optimizer=adamw(model, 1e-4),
        )
    found = timed(run, device, warmup, count)
    asked = (
        size.tokens if family == "gpt" else round(int(batches[0]["loss_mask"].sum()) / size.batch)
    )
    flops = 3 * size.batch * forward_flops(config_of(family, size), size.tokens, outputs=asked)
    found |= {"tokens/s": size.batch * size.tokens / found["seconds"]}
    found |= {"FLOP/s": flops / found["seconds"]}
    if known := peak(device):
        found |= {"utilisation": found["FLOP/s"] / known}
    return found | ({"GiB": torch.cuda.max_memory_allocated() / 2**30} if device == "cuda" else {})


def generation(batch: int, device: str, tiny: bool, *, graph: bool = True) -> Record:
    """New tokens a second, bfloat16 weights; with a CUDA graph, or by single kernels."""
    size = SIZES["tiny"] if tiny else replace(BIG["gpt"], tokens=512)
    prompt, new, times = (3, 5, 1) if tiny else (32, 256, 3)
    torch.manual_seed(0)
    model = bf16_copy(ours("gpt", size).to(device))
    ids = torch.randint(size.vocab, (batch, prompt), device=device)
    write = partial(generate, model, ids, max_new_tokens=new)
    with patch.object(state, "can_be_graphed", can_be_graphed if graph else lambda *_: False):
        text = write()  # the first one warms up
        start = wait(device)
        for _ in range(times):
            write()
        seconds = (wait(device) - start) / times
    known = kernels.ENABLED and device == "cuda"
    return {
        "tokens/s": batch * new / seconds,
        "prompt": prompt,
        "new": new,
        "is graphed": graph and known,
        "text": text[:, prompt : prompt + 8].tolist(),  # do both ways write the same?
    }


def finetuning(family: str, device: str, tiny: bool) -> Record:
    """Twenty compiled steps on padded rows of other widths in every batch: which were not finite?

    Compiled fine-tuning gave nan gradients on an H100; `feed.in_round_widths` is the cure that is
    tried here. "odd widths" is a training without it.
    """
    size = SIZES["tiny"]
    found: Record = {}
    for name, multiple in (("round widths", WIDTH_STEP), ("odd widths", 1)):
        rng = torch.Generator().manual_seed(0)
        batches: list[losses.Batch] = []
        for width in (7, 13, 9, 11):
            ids = torch.randint(5, size.vocab, (16, width), generator=rng)
            lengths = torch.randint(3, width + 1, (16, 1), generator=rng)
            attention_mask = torch.arange(width) < lengths
            batches.append({"ids": ids, "attention_mask": attention_mask, "labels": ids[:, 0] % 2})
        torch.manual_seed(0)
        stack = Transformer(config_of(family, SIZES["S"] if not tiny else size))
        model = heads.Classifier(stack, 2, "last" if stack.config.causal else "first").to(device)
        config = TrainConfig(steps=20, device=device, precision="bf16", compile=not tiny)
        norms: list[float] = []
        try:
            with patch.object(
                feed, "in_round_widths", partial(feed.in_round_widths, multiple=multiple)
            ):
                norms += [
                    each.grad_norm for each in train(model, batches, losses.classification, config)
                ]
            found[name] = {"last norm": norms[-1]}
        except CourseError as error:  # the guard's: not finite
            found[name] = {"error": str(error)}
    return found


def family(name: str, device: str, tiny: bool) -> Record:
    """What a step waits for, and how it is computed."""
    found: Record = {"crossings": steps.crossings(name, "meta" if device == "cpu" else device)}
    found |= {
        "graph breaks": steps.graph_breaks(name, device),
        "bf16": steps.bf16_error(name, device),
    }
    return found | ({} if device == "cpu" else {"kernels": steps.accepted(name)})


def tests(device: str, tiny: bool) -> Record:
    """The tests marked cuda, without the project's plugins, which need Jupyter. On a CPU all are
    skipped.
    """
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "--noconftest",
        "--import-mode=importlib",
        "-m",
        "cuda",
    ]
    # code 0: none has failed
    command += ["-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, capture_output=True, text=True, cwd=COURSE, timeout=180)
    said = done.stdout.replace(f"{COURSE}/", "").splitlines()[-20:]
    return {"code": done.returncode, "said": said}


def parts(device: str, tiny: bool) -> dict[str, Callable[[], Record]]:
    """Everything, the most wanted first."""
    found: dict[str, Callable[[], Record]] = {}
    for side in ("course compiled", "course", "transformers"):
        for name in BIG:
            found[f"training {name}, {side}"] = partial(training, side, name, device, tiny)
        if side == "course compiled":
            for batch in (1, 16):
                found[f"generation, batch {batch}"] = partial(generation, batch, device, tiny)
                found[f"generation, batch {batch}, no graph"] = partial(
                    generation, batch, device, tiny, graph=False
                )
            found["tests"] = partial(tests, device, tiny)
            for name in ("bert", "gpt"):
                found[f"fine-tuning {name}"] = partial(finetuning, name, device, tiny)
    for name in SWITCHES:
        found[f"training gpt, {name}"] = partial(switched_off, name, "gpt", device, tiny)
    for name in BIG:
        found[f"training {name}, {LARGER} times the rows"] = partial(
            training, "course" if tiny else "course compiled", name, device, tiny, LARGER
        )
    return found | {f"family {name}": partial(family, name, device, tiny) for name in FAMILIES}


def measure(
    tiny: bool, out: Path | None = None, only: str = "", minutes: float = MINUTES
) -> Iterator[str]:
    """Run all parts whose name contains `only`; a line of text after each, when the record is
    written.
    """
    device = "cpu" if tiny else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        raise CourseError("PyTorch sees no NVIDIA GPU here; --tiny tries the script out on a CPU.")
    torch.set_float32_matmul_precision("high")
    out = out or (Path(os.environ["OUT"]) / FILE.name if "OUT" in os.environ else FILE)
    todo = {name: part for name, part in parts(device, tiny).items() if only in name}
    record: Record = {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
        },
        "when": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        "sizes": (
            {"tiny": asdict(SIZES["tiny"])}
            if tiny
            else {name: asdict(size) for name, size in BIG.items()}
        ),
        "parts": {},
        "left out": list(todo),
    }
    begun = time.perf_counter()
    for name, part in todo.items():
        start = time.perf_counter()
        if start - begun > 60 * minutes:
            break
        try:
            found = part()
        except Exception as error:  # noqa: BLE001 - whatever it is: the machine is here now, and the other parts can be measured
            found = {"error": f"{type(error).__name__}: {str(error)[:1000]}"}
        record["parts"][name] = found | {"took": round(time.perf_counter() - start, 1)}
        record["left out"].remove(name)
        write_json(out, record)
        yield f"{name}: {json.dumps(record['parts'][name])}"
        torch._dynamo.reset()
        if device == "cuda":
            torch.cuda.empty_cache()
    late = f"; no time was left for {', '.join(record['left out'])}" if record["left out"] else ""
    yield f"Written to {out}{late}"
