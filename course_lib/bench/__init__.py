"""Speed and memory, side by side with transformers: `python -m course_lib.bench`, or `make bench`.

Every contender runs in a process of its own (what one sets, mallopt for instance, must not help the other); the
contenders of a measure take turns, round after round, so that a busy minute hits them all; figures are medians.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from course_lib.bench import contenders as c
from course_lib.bench.contenders import SIZES, Contender, Plan
from course_lib.errors import CourseError
from course_lib.files import read_json, write_json
from course_lib.train import has_bf16

OUT = Path("data/results/bench.json")


@dataclass(frozen=True)
class Measure:
    """One figure of several contenders. better: +1 more is better, -1 less is. against: what ours is divided by.

    targets: contender -> [(compared with, least, aim), ...], as ratios.
    """

    unit: str
    better: int
    contenders: dict[str, Contender]
    against: str = "transformers"
    targets: dict[str, list[tuple[str, float, float]]] = field(default_factory=dict)


def measures() -> dict[str, Measure]:
    """Everything that is measured. Targets are FINDINGS': least, aim."""
    lesson = "import course_lib.heads, course_lib.train, course_lib.generate, course_lib.trace, course_lib.hf"
    found = {
        f"training GPT {size}": Measure(
            "tokens/s",
            +1,
            {
                "transformers": c.loop_gpt(size),
                "Trainer": c.trainer_gpt(size),
                "course fp32": c.train_gpt(size, "fp32"),
                "course bf16": c.train_gpt(size, "bf16"),
            },
            targets={"course bf16": [("transformers", *loop), ("Trainer", *trainer)]},
        )
        for size, loop, trainer in (("S", (1.35, 1.6), (1.5, 1.8)), ("M", (1.9, 2.3), (2.0, 2.4)))
    }
    found["training BERT M"] = Measure(
        "tokens/s",
        +1,
        {
            "transformers": c.loop_bert("M"),
            "course fp32": c.train_bert("M", "fp32"),
            "course bf16": c.train_bert("M", "bf16"),
        },
        targets={"course fp32": [("transformers", 1.7, 1.9)], "course bf16": [("transformers", 2.5, 3.0)]},
    )
    for batch, fp32, bf16 in ((1, (1.0, 1.2), (1.0, 1.2)), (16, (1.1, 1.2), (2.0, 2.5))):
        found[f"generation, batch {batch}"] = Measure(
            "tokens/s",
            +1,
            {
                "transformers": c.generate_theirs(batch, bf16=False),
                "transformers bf16": c.generate_theirs(batch, bf16=True),
                "course fp32": c.generate_ours(batch, bf16=False),
                "course bf16": c.generate_ours(batch, bf16=True),
            },
            targets={"course fp32": [("transformers", *fp32)], "course bf16": [("transformers", *bf16)]},
        )
    found["peak memory, training GPT M"] = Measure(
        "MiB",
        -1,
        {
            "transformers": c.peak_memory(c.loop_gpt("M"), "transformers"),
            "course fp32": c.peak_memory(c.train_gpt("M", "fp32"), "course_lib.train"),
            "course bf16": c.peak_memory(c.train_gpt("M", "bf16"), "course_lib.train"),
        },
        targets={"course bf16": [("transformers", 0.85, 0.6)]},
    )
    found["import"] = Measure(
        "CPU s",
        -1,
        {
            "torch": c.importing("import torch"),
            "course_lib": c.importing(lesson),
            "transformers": c.importing("from transformers import BertModel, GPT2LMHeadModel"),
        },
        against="torch",
        targets={"course_lib": [("torch", 1.3, 1.1)]},
    )
    return found


def run(plan: Plan, only: str = "") -> Iterator[dict[str, Any]]:
    """Measure everything whose name contains `only`; one record after each measure."""
    every = measures()
    chosen = {only: every[only]} if only in every else {name: m for name, m in every.items() if only in name}
    if not chosen:
        raise CourseError(f"No measure is called like {only!r}; there are {', '.join(every)}.")
    for name, measure in chosen.items():
        start, load = time.perf_counter(), _load()
        names = [n for n in measure.contenders if has_bf16("cpu") or plan.tiny or "bf16" not in n]
        values: dict[str, list[float]] = {n: [] for n in names}
        for _ in range(plan.rounds):
            for contender in names:
                values[contender].append(_alone(name, contender, plan))
        yield {
            "name": name,
            "unit": measure.unit,
            "rows": _rows(measure, values),
            "plan": asdict(plan),
            "load": load,
            "busy": load > 1.0,
            "seconds": round(time.perf_counter() - start, 1),
        }


def _rows(measure: Measure, values: dict[str, list[float]]) -> list[dict[str, Any]]:
    medians = {name: statistics.median(found) for name, found in values.items()}

    def ratio(name: str, against: str) -> float | None:
        return medians[name] / medians[against] if medians[against] else None

    rows = []
    for name in medians:
        row: dict[str, Any] = {"contender": name, "values": values[name], "median": medians[name], "goals": []}
        row |= {"against": measure.against, "ratio": ratio(name, measure.against)}
        for against, least, aim in measure.targets.get(name, []):
            if (found := ratio(name, against)) is not None:
                reached = [measure.better * (found - goal) >= 0 for goal in (least, aim)]
                verdict = ["below", "least", "aim"][sum(reached)]
                row["goals"].append(
                    {"against": against, "ratio": found, "least": least, "aim": aim, "reached": verdict}
                )
        rows.append(row)
    return rows


def table(measured: list[dict[str, Any]]) -> str:
    """The records as lines of text, one a contender."""
    lines = []
    for measure in measured:
        lines.append(f"{measure['name']} ({measure['unit']})" + (" on a busy machine" if measure["busy"] else ""))
        for row in measure["rows"]:
            ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}x {row['against']}"
            goals = [
                f"{g['ratio']:.2f}x {g['against']} (least {g['least']:g}, aim {g['aim']:g}): {g['reached']}"
                for g in row["goals"]
            ]
            lines.append(f"  {row['contender']:<18}{row['median']:>12,.2f}   {'; '.join(goals) or ratio}")
    return "\n".join(lines)


def _alone(measure: str, contender: str, plan: Plan) -> float:
    """One contender in its own process."""
    command = [sys.executable, "-m", "course_lib.bench", "--one", measure, contender, json.dumps(asdict(plan))]
    here = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    quiet = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", "PYTHONPATH": paths}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | quiet)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise CourseError(f"The contender {contender!r} of {measure!r} failed: {last}")
    return float(done.stdout.strip().splitlines()[-1])


def _circumstances(plan: Plan) -> dict[str, Any]:
    packages = ("torch", "transformers", "accelerate", "numpy")
    return {
        "sizes": {name: asdict(size) for name, size in SIZES.items() if (name == "tiny") == plan.tiny},
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
        "hardware": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "bf16": has_bf16("cpu"),
        },
    }


def _cpu() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _load() -> float:
    """Processes that wanted to run in the last minute; 0 where the system does not say."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m course_lib.bench", description="Speed and memory against transformers."
    )
    parser.add_argument("--only", default="", help="measures whose name contains this; the record keeps the others")
    parser.add_argument("--rounds", type=int, default=Plan.rounds, help="processes for each contender")
    parser.add_argument("--steps", type=int, default=Plan.steps, help="timed steps in each process")
    parser.add_argument("--new", type=int, default=Plan.new, help="tokens to generate")
    parser.add_argument("--threads", type=int, default=0, help="0: as PyTorch chooses")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: for a busy machine, one thread")
    parser.add_argument("--tiny", action="store_true", help="models of no size: tries the bench itself out")
    parser.add_argument("--out", type=Path, default=OUT, help="where the record goes")
    parser.add_argument("--one", nargs=3, metavar=("MEASURE", "CONTENDER", "PLAN"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        measure, contender, plan_json = given.one
        plan = Plan(**json.loads(plan_json))
        if plan.threads:
            torch.set_num_threads(plan.threads)
        torch.manual_seed(0)
        print(measures()[measure].contenders[contender](plan))  # noqa: T201
        return
    threads = 1 if given.clock == "cpu" else given.threads
    plan = Plan(
        rounds=given.rounds, steps=given.steps, new=given.new, threads=threads, clock=given.clock, tiny=given.tiny
    )  # fmt: skip
    around = _circumstances(plan)
    earlier = read_json(given.out) if given.only and given.out.exists() else {}
    same = all(earlier.get(key) == around[key] for key in around)
    done = {m["name"]: m for m in earlier.get("measures", [])} if same else {}
    for record in run(plan, given.only):
        print(table([record]), flush=True)  # noqa: T201
        done[record["name"]] = record
        write_json(given.out, around | {"measures": [done[name] for name in measures() if name in done]})
    print(f"\nWritten to {given.out}.")  # noqa: T201
