"""What both sides of a training share: `python -m lab.bench --shares`.

This library and transformers call the same kernels of PyTorch for matrix products, attention,
activations and norms. A faster library cannot save this part of a step. The rest is the library's
own: casts, copies, sums, the loss, the update, and Python.

A step is profiled on each side, in turn: ours in float32, then in bfloat16 where the processor has
it, theirs always in float32. "at most" is how many times as fast as transformers a library would be
whose own part took no time.
"""

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from course_lib.training.device import has_bf16
from course_lib.training.loop import TrainConfig, train
from course_lib.training.settings import Precision
from lab.bench import contenders
from lab.bench.contenders import NAMES, Timing

# A part of the name of a kernel -> the kind of work. What has none of them is the library's own.
KINDS = {
    "mm": "products",
    "linear": "products",
    "attention": "attention",
    "softmax": "attention",
    "gelu": "activations",
    "relu": "activations",
    "threshold": "activations",
    "layer_norm": "norms",
}
ROUNDS = 3


def kind_of(kernel: str) -> str | None:
    """ "aten::addmm" -> "products", "aten::copy_" -> None."""
    for part, kind in KINDS.items():
        if part in kernel:
            return kind
    return None


def one_step(step: Callable[[], Any]) -> dict[str, float]:
    """Seconds of a step by kind of work, and "all" of them."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        step()
    seconds = {"all": 0.0}
    for entry in profiled.key_averages():
        own = entry.self_cpu_time_total / 1e6
        seconds["all"] += own
        kind = kind_of(entry.key)
        if kind is not None:
            seconds[kind] = seconds.get(kind, 0.0) + own
    return seconds


def measure(
    family: str, timing: Timing, precision: Precision
) -> tuple[dict[str, float], dict[str, float]]:
    """A step of ours and of theirs, which is in float32: medians of several, taken in turn."""
    size = timing.size("S")
    batches = contenders.batches_of(family, size)
    model = contenders.ours(family, size)
    loss = contenders.training_loss(family)
    config = TrainConfig(steps=10**6, precision=precision)
    ours = train(model, batches, loss, config)
    theirs = contenders.their_steps(contenders.theirs(family, size), batches)
    sides = [partial(next, ours), partial(next, theirs)]
    found: list[list[dict[str, float]]] = [[], []]
    for number in range(1 + ROUNDS):
        for side, rounds in zip(sides, found, strict=True):
            seconds = one_step(side)
            if number > 0:  # the first one warms up
                rounds.append(seconds)
    our_median, their_median = map(_median, found)
    return our_median, their_median


def _median(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {kind: statistics.median(each.get(kind, 0.0) for each in rounds) for kind in rounds[0]}


def report(timing: Timing) -> str:
    """A table in Markdown for each precision that the processor has."""
    torch.set_num_threads(1)
    precisions: tuple[Precision, ...] = ("fp32", "bf16") if has_bf16("cpu") else ("fp32",)
    return "\n\n".join(table(timing, precision) for precision in precisions)


def table(timing: Timing, precision: Precision) -> str:
    """A row for each family."""
    kinds = list(dict.fromkeys(KINDS.values()))
    head = [f"share of our step in {precision}", *kinds, "together", "own part", "ratio", "at most"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for family, name in NAMES.items():
        torch.manual_seed(0)
        ours, theirs = measure(family, timing, precision)
        shares = [ours.get(kind, 0.0) / ours["all"] for kind in kinds]
        shared = sum(shares)
        ratio = theirs["all"] / ours["all"]
        cells = [f"{share:.0%}" for share in [*shares, shared, 1 - shared]]
        cells += [f"{ratio:.2f}", f"{ratio / shared:.2f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)
