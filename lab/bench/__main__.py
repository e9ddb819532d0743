"""Speed and memory, side by side with transformers: `python -m lab.bench`, or `make bench`.

    core      training, generation, memory, import
    limits    with every part: products and copies a second, from which shares are computed
    families  every model of the course: training, peak memory, inference, generation
    generation  small models, one prompt and sixteen: greedy, beam search, sampled
    --gpu     one NVIDIA GPU instead, see `lab/bench/gpu.py`
    --first-cells  the lessons instead, see `lab/bench/first_cells.py`
    --shares  instead, what of a step both sides share, see `lab/bench/shares.py`
    --where   no measurement: what a training step moves on a GPU, see `lab/bench/where.py`

Every contender runs in a process of its own, for what one sets must not help the other. All have
the same environment, `course_lib.memory`'s variables included. The contenders of a measure take
turns, round after round, so that a busy minute hits them all. Figures are medians."""

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
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from course_lib.errors import CourseError
from course_lib.files import COURSE, read_json, write_json
from course_lib.memory import KEEP_LARGE_BUFFERS
from course_lib.training.device import has_bf16
from lab.bench import first_cells, gpu, roofline, shares, summary, where
from lab.bench.contenders import PARTS, SIZES, Timing, measures

OUT = Path("data/results/bench.json")
PICTURE = Path("docs/roofline.svg")
SUMMARY = Path("docs/bench.svg")


def run(
    timing: Timing,
    only: str = "",
    *,
    parts: Sequence[str] = PARTS,
    minutes: float = math.inf,
    when: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Measure everything of these parts whose name contains `only`; one record for each figure.

    minutes: nothing begins later. when: the date of each measure's last record; the oldest is
    measured first."""
    chosen = {
        name: measure
        for name, measure in measures().items()
        if measure.part in parts and only in name
    }
    if not chosen:
        raise CourseError(f"No measure is called like {only!r}; there are {', '.join(measures())}.")
    begun = time.perf_counter()
    for name in sorted(chosen, key=lambda name: (when or {}).get(name, "")):
        measure = chosen[name]
        start = time.perf_counter()
        if start - begun > 60 * minutes:
            return
        names = [n for n in measure.contenders if has_bf16("cpu") or timing.tiny or "bf16" not in n]
        rounds = [{n: _alone(name, n, timing) for n in names} for _ in range(timing.rounds)]
        around = {
            "measure": name,
            "plan": asdict(timing),
            "seconds": round(time.perf_counter() - start, 1),
            "when": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        }
        for figure, unit in measure.figures.items():
            values = {n: [turn[n][figure] for turn in rounds] for n in names}
            record_name = name if measure.part == "core" else f"{name}: {figure}"
            work = {n: roofline.work(measure, record_name, n, timing) for n in names}
            yield {
                "name": record_name,
                "unit": unit,
                "rows": _rows(measure.against, values),
                "work": {n: least for n, least in work.items() if least is not None},
            } | around


def _rows(against: str, values: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Of each contender its values, their median, and that divided by the median of the one it is
    set against.
    """
    medians = {name: statistics.median(found) for name, found in values.items()}
    rows = []
    for name, median in medians.items():
        ratio = median / medians[against] if medians[against] else None
        rows.append(
            {
                "contender": name,
                "values": values[name],
                "median": median,
                "against": against,
                "ratio": ratio,
            }
        )
    return rows


def table(record: Mapping[str, Any]) -> str:
    """A record as lines of text, one a contender."""
    lines = [f"{record['name']} ({record['unit']})"]
    for row in record["rows"]:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}x {row['against']}"
        ratio += f", {row['share']:.0%} of the limit" if "share" in row else ""
        lines.append(f"  {row['contender']:<18}{row['median']:>12,.2f}   {ratio}")
    return "\n".join(lines)


def _alone(measure: str, contender: str, timing: Timing) -> dict[str, float]:
    """One contender in its own process."""
    command = [
        sys.executable,
        "-m",
        "lab.bench",
        "--one",
        measure,
        contender,
        json.dumps(asdict(timing)),
    ]
    paths = os.pathsep.join([str(COURSE), *filter(None, [os.environ.get("PYTHONPATH")])])
    quiet = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", "PYTHONPATH": paths}
    environment = {**os.environ, **KEEP_LARGE_BUFFERS, **quiet}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise CourseError(f"The contender {contender!r} of {measure!r} failed: {last}")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def _circumstances(timing: Timing) -> dict[str, Any]:
    packages = ("torch", "transformers", "accelerate", "numpy")
    return {
        "sizes": {
            name: asdict(size) for name, size in SIZES.items() if (name == "tiny") == timing.tiny
        },
        "versions": (
            {"python": platform.python_version()} | {name: version(name) for name in packages}
        ),
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


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--only", default="", help="measures whose name contains this; the record keeps the others"
    )
    parser.add_argument(
        "--part",
        choices=PARTS,
        action="append",
        help="one part, or by saying it again some; else all",
    )
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin nothing new after so many"
    )
    parser.add_argument(
        "--rounds", type=int, default=Timing.rounds, help="processes for each contender"
    )
    parser.add_argument(
        "--tiny", action="store_true", help="models of no size: tries the bench itself out"
    )
    parser.add_argument(
        "--gpu", action="store_true", help="what only a GPU can tell, in its own record"
    )
    parser.add_argument(
        "--first-cells", action="store_true", help="what each lesson's first cell waits for"
    )
    parser.add_argument(
        "--shares", action="store_true", help="what of a training step both sides share"
    )
    parser.add_argument(
        "--where", action="store_true", help="count what a training step moves on a GPU"
    )
    parser.add_argument(
        "--out", type=Path, help=f"where the record goes, by default {OUT}; with --gpu $OUT, if set"
    )
    parser.add_argument(
        "--one", nargs=3, metavar=("MEASURE", "CONTENDER", "PLAN"), help=argparse.SUPPRESS
    )
    given = parser.parse_args(arguments)
    if given.one:
        measure, contender, plan = given.one
        timing = Timing(**json.loads(plan))
        torch.manual_seed(0)
        print(json.dumps(measures()[measure].contenders[contender](timing)))
        return
    if given.first_cells:
        print(first_cells.report())
        return
    if given.shares:
        print(shares.report(Timing(tiny=given.tiny)))
        return
    if given.where:
        print(where.report())
        return
    if given.gpu:
        minutes = given.minutes if given.tiny else min(given.minutes, gpu.MINUTES)
        for line in gpu.measure(given.tiny, given.out, given.only, minutes):
            print(line, flush=True)
        return
    timing = Timing(rounds=given.rounds, tiny=given.tiny)
    out = given.out or OUT
    around = _circumstances(timing)
    earlier = read_json(out) if out.exists() else {}
    same = all(earlier.get(key) == around[key] for key in around)
    done = {m["name"]: m for m in earlier.get("measures", [])} if same else {}
    when = {m["measure"]: m["when"] for m in done.values()}
    limits: dict[str, float] = {}
    parts = ["limits", *(given.part or PARTS)]
    for record in run(timing, given.only, parts=parts, minutes=given.minutes, when=when):
        done[record["name"]] = record
        limits = roofline.compare(done.values())
        print(table(record), flush=True)
        write_json(out, around | {"measures": list(done.values())})
    if limits:
        picture = PICTURE if out == OUT else out.with_suffix(".svg")
        roofline.draw(done.values(), limits).savefig(picture, metadata={"Date": None})
    if summary.ratios(done.values()):
        picture = SUMMARY if out == OUT else out.with_name(f"{out.stem}_summary.svg")
        summary.draw(done.values()).savefig(picture, metadata={"Date": None})
    print(f"\nWritten to {out}; what found no time comes first the next time.")


if __name__ == "__main__":
    try:
        main()
    except CourseError as error:
        sys.exit(f"Bench stopped: {error}")
