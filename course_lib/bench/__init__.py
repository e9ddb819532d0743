"""Speed and memory, side by side with transformers: `python -m course_lib.bench`, or `make bench`.

    core      FINDINGS' targets: training, generation, memory, import
    families  every model of the course: training, peak memory, inference, generation
    growth    time and memory of a step with length, width and batch

Every contender runs in a process of its own (what one sets, mallopt for instance, must not help the other); the
contenders of a measure take turns, round after round, so that a busy minute hits them all; figures are medians.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from course_lib.bench.contenders import SIZES, Plan
from course_lib.bench.measures import PARTS, Measure, measures
from course_lib.errors import CourseError
from course_lib.files import read_json, write_json
from course_lib.train import has_bf16

OUT = Path("data/results/bench.json")


def run(
    plan: Plan,
    only: str = "",
    *,
    parts: Sequence[str] = PARTS,
    minutes: float = math.inf,
    when: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Measure everything of these parts whose name contains `only`; one record for each figure.

    minutes: first rounds begin until then; further rounds only as long as the measures behind keep their share of it.
    when: the date of each measure's last record; the oldest is measured first, so that what found no time comes first.
    """
    every = {name: m for name, m in measures().items() if m.part in parts}
    chosen = {only: every[only]} if only in every else {name: m for name, m in every.items() if only in name}
    if not chosen:
        raise CourseError(f"No measure is called like {only!r}; there are {', '.join(every)}.")
    order = sorted(chosen, key=lambda name: (when or {}).get(name, ""))
    begun = time.perf_counter()
    for place, name in enumerate(order, start=1):
        measure, start, load = chosen[name], time.perf_counter(), _load()
        if start - begun > 60 * minutes:
            return
        names = [n for n in measure.contenders if has_bf16("cpu") or plan.tiny or "bf16" not in n]
        values: dict[str, list[Any]] = {n: [] for n in names}
        for turn in range(plan.rounds):
            if turn and time.perf_counter() - begun > 60 * minutes * place / len(order):
                break
            for contender in names:
                values[contender].append(_alone(name, contender, plan))
        around = {
            "measure": name,
            "plan": asdict(plan),
            "load": load,
            "busy": load > 1.0,
            "seconds": round(time.perf_counter() - start, 1),
            "when": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        }
        if not measure.figures:
            yield {"name": name, "unit": measure.unit, "rows": _rows(measure, values)} | around
        for figure, (unit, better) in measure.figures.items():
            if all(figure in each for row in values.values() for each in row):
                some = {n: [each[figure] for each in row] for n, row in values.items()}
                rows = _rows(replace(measure, better=better), some)
                yield {"name": f"{name}: {figure}", "unit": unit, "rows": rows} | around


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


def overview(measured: list[dict[str, Any]]) -> str:
    """A line for each family and contender, its ratios; and how fast time and memory grow."""
    lines = []
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in measured:
        if record["name"] != record["measure"]:
            groups.setdefault(record["measure"], []).append(record)
    for name, records in groups.items():
        for index, row in enumerate(records[0]["rows"]):
            if name.startswith("growth"):
                lines.append(f"{name:<20}{row['contender']:<16}{_growth(records, index)}")
            elif row["contender"] != row["against"]:
                ratios = ((r["name"].split(": ")[1], r["rows"][index]["ratio"]) for r in records)
                said = ", ".join(f"{figure} {ratio:.2f}x" for figure, ratio in ratios if ratio is not None)
                lines.append(f"{name:<12}{row['contender']:<16}{said} of {row['against']}")
    return "\n".join(lines)


def _growth(records: list[dict[str, Any]], index: int) -> str:
    """By how much the last step of the axis multiplies time and memory: "width 256 to 512: time 2.9x, memory 1.9x"."""
    found: dict[str, list[tuple[str, float]]] = {}
    for record in records:
        point, figure = record["name"].split(": ")[1].split(", ")
        found.setdefault(figure, []).append((point, record["rows"][index]["median"]))
    said = [f"{figure} {b / a:.2f}x" for figure, ((_, a), (_, b)) in ((k, v[-2:]) for k, v in found.items()) if a > 0]
    (first, _), (last, _) = next(iter(found.values()))[-2:]
    return f"{first} to {last.split()[1]}: {', '.join(said)}"


def _alone(measure: str, contender: str, plan: Plan) -> Any:
    """One contender in its own process."""
    command = [sys.executable, "-m", "course_lib.bench", "--one", measure, contender, json.dumps(asdict(plan))]
    here = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    quiet = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", "PYTHONPATH": paths}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | quiet)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise CourseError(f"The contender {contender!r} of {measure!r} failed: {last}")
    return json.loads(done.stdout.strip().splitlines()[-1])


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
    parser.add_argument("--part", choices=PARTS, action="append", help="one part, or by saying it again some; else all")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing new after so many")
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
        print(json.dumps(measures()[measure].contenders[contender](plan)))  # noqa: T201
        return
    threads = 1 if given.clock == "cpu" else given.threads
    plan = Plan(
        rounds=given.rounds, steps=given.steps, new=given.new, threads=threads, clock=given.clock, tiny=given.tiny
    )  # fmt: skip
    around = _circumstances(plan)
    earlier = read_json(given.out) if given.out.exists() else {}
    same = all(earlier.get(key) == around[key] for key in around)
    done = {m["name"]: m for m in earlier.get("measures", [])} if same else {}
    when = {m.get("measure", name): m.get("when", "") for name, m in done.items()}
    new = []
    for record in run(plan, given.only, parts=given.part or PARTS, minutes=given.minutes, when=when):
        print(table([record]), flush=True)  # noqa: T201
        done[record["name"]] = record
        new.append(record)
        write_json(given.out, around | {"measures": list(done.values())})
    wanted = [n for n, m in measures().items() if m.part in (given.part or PARTS) and given.only in n]
    late = [name for name in wanted if name not in {record["measure"] for record in new}]
    print(f"\n{overview(new)}\n\nWritten to {given.out}.")  # noqa: T201
    if late and given.only not in wanted:
        print(f"No time was left for {', '.join(late)}; once more, and these come first.")  # noqa: T201
