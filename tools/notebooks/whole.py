"""Run all lessons, two at a time, with a table of what each took; go on where a run was broken
off.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.files import read_json, write_json
from tools.notebooks import lessons, run, site
from tools.notebooks.build import read

HEAD = f"{'lesson':<24}{'time':>8}{'memory':>10}"


def run_all(
    given: dict[str, Any],
    out: Path,
    *,
    again: bool = False,
    say: Callable[[str], None] = print,
    progress: bool = True,
) -> Path:
    """Execute every lesson with the given parameters and make the site of them; returns the site's
    first page.

    A line is said for each lesson: time and peak memory. What has been executed is kept in
    `out`/run: a call after a failure, or after a stop by hand, executes only what is missing or has
    been edited since. A run that went through is followed by a new one. On a GPU, each lesson has
    the machine to itself.

    Raises:
        CourseError: lessons failed; all others have been executed.
    """
    folder = (
        out
        / "run"
        / (
            re.sub(r"\W+", "-", "-".join(str(value) for value in given.values())).strip("-")
            or "run"
        )
    )
    done = folder / "done.json"
    if again or done.exists():
        for old in folder.glob("*.json"):
            old.unlink()
    say(f"{HEAD}\n{'-' * len(HEAD)}")
    failed: list[str] = []
    alone = given.get("SCALE") == "gpu" or str(given.get("DEVICE")).startswith("cuda")
    start = time.perf_counter()
    kept = {path: _kept(path, folder) for path in lessons()}
    pool = ProcessPoolExecutor(
        1 if alone else 2, multiprocessing.get_context("spawn"), _share_cores, (alone,)
    )
    try:
        missing = [path for path, entry in kept.items() if entry is None]
        coming = {
            path: pool.submit(_one, path, given, folder, progress and alone) for path in missing
        }
        for path, entry in kept.items():
            try:
                note = "" if entry is None else "  kept from an earlier run"
                say(_line(path.stem, entry or coming[path].result()) + note)
            except CourseError as error:
                failed.append(path.stem)
                say(f"{path.stem:<24}  failed: {error}")
    except BrokenExecutor as error:
        raise CourseError(
            "A process ended before its lesson (memory? Ctrl-C?); the same command goes on."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
    entries = {path.stem: read_json(path) for path in sorted(folder.glob("[0-9]*.json"))}
    total = {
        "seconds": time.perf_counter() - start,
        "peak_mb": max((entry["peak_mb"] for entry in entries.values()), default=0),
    }
    say(f"{'-' * len(HEAD)}\n{_line(f'{len(entries)} lessons', total)}")
    if failed:
        names = ", ".join(failed)
        raise CourseError(
            f"{len(failed)} of {len(lessons())} failed: {names}. The same command runs only these"
            " again."
        )
    write_json(done, {"at": time.strftime("%Y-%m-%d %H:%M:%S")})
    return site.build(
        out / "site", {path.stem: folder / path.name for path in lessons()}, entries, given
    )


def _share_cores(alone: bool) -> None:
    """For a process that runs lessons: half of the cores where there are two such; Ctrl-C ends it
    with all others.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if not alone:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, min(8, os.cpu_count() or 1) // 2)))


def _one(path: Path, given: dict[str, Any], folder: Path, progress: bool) -> dict[str, Any]:
    """Execute one lesson and note what it took."""
    _, measure = run.execute(path, given, folder, progress=progress)
    entry = {
        "seconds": round(measure.seconds, 1),
        "peak_mb": round(measure.peak_mb),
        "source": _source(path),
    }
    # a file a lesson: two that end together do not write over each other
    write_json(folder / f"{path.stem}.json", entry)
    return entry


def _kept(path: Path, folder: Path) -> dict[str, Any] | None:
    """What a lesson took that was executed and not edited since."""
    place = folder / f"{path.stem}.json"
    entry: dict[str, Any] | None = read_json(place) if place.exists() else None
    return (
        entry
        if entry and entry["source"] == _source(path) and (folder / path.name).exists()
        else None
    )


def _source(path: Path) -> str:
    text = "\0".join(cell.source for cell in read(path).cells)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _line(name: str, entry: dict[str, Any]) -> str:
    return f"{name:<24}{entry['seconds']:>6.0f} s{entry['peak_mb'] / 1024:>7.1f} GB"
