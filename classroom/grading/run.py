"""Grade a folder of submissions: in parallel, each in a box of its own, only what has changed since the last time."""

import hashlib
import secrets
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from classroom.grading import box, collect, report, score
from classroom.grading.assignment import Assignment
from classroom.grading.box import Limits, Sandbox
from classroom.grading.collect import GradingRecord
from course_lib.errors import CourseError
from course_lib.files import atomic_write, read_json, write_json

_RUN: list[score.GradingRun] = []  # the one of this process


def grade(
    submissions: Path,
    assignment: str,
    out: Path,
    *,
    jobs: int = 2,
    limits: Limits | None = None,
    way: Sandbox | None = None,
    seed: int | None = None,
    again: bool = False,
) -> Iterator[GradingRecord]:
    """Grade all submissions of a folder into `out`; yields each record when it is there, earlier ones first.

    assignment: "hw1" or a master's path. way: how students' code is shut in; by default the strongest there is. seed:
        of the tests' inputs; by default drawn once and kept in `out`. again: also grade what has not changed.
    """
    limits = limits or Limits()
    entries = collect.collect(submissions)
    master = Assignment(assignment)
    report.read_marks(out / report.MARKS, master)  # a slip in there is said now, not after an hour
    seed = _seed(out, master.name, seed)
    checks = (out / "tests" / f"{master.name}_checks.json").resolve()
    with atomic_write(checks) as file:
        file.write(master.checks())
    version = hashlib.sha256(f"{master.digest} {seed} {asdict(limits)}".encode()).hexdigest()[:16]

    records: dict[str, GradingRecord] = {}
    waiting: list[tuple[Path, str, str]] = []
    for entry, (student, key) in entries.items():
        old = {} if again else _earlier(out, key)
        if old.get("version") == version:
            new = collect.read(entry, student, key, master)
            if (new.digest, new.status or old["status"]) == (old["digest"], old["status"]):
                records[key] = old
                yield old
                continue
        waiting.append((entry, student, key))
    for record in _parallel(waiting, jobs, (assignment, seed, limits, way or box.sandbox(), checks)):
        record["version"] = version
        write_json(out / "results" / f"{record['key']}.json", record)
        records[record["key"]] = record
        yield record
    report.write([records[key] for _, key in entries.values()], master, out)


def _parallel(waiting: list[tuple[Path, str, str]], jobs: int, given: tuple[Any, ...]) -> Iterator[GradingRecord]:
    """Records as they come. A grading process that dies costs the submissions it had in hand, which say so."""
    if not waiting:
        return
    jobs = max(1, min(jobs, len(waiting)))
    with ProcessPoolExecutor(jobs, get_context("spawn"), _start, given) as pool:
        futures = {pool.submit(_one, *item): item for item in waiting}
        try:
            for future in as_completed(futures):
                try:
                    yield future.result()
                except BrokenProcessPool:
                    _, student, key = futures[future]
                    lost = collect.Submission(student, key, "grader failed", notes=["the grading process died"])
                    yield score.unread(lost)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _start(assignment: str, seed: int, limits: Limits, way: Sandbox, checks: Path) -> None:
    """Set up one grading process."""
    import torch

    torch.set_num_threads(1)
    _RUN.append(score.GradingRun(Assignment(assignment), seed, limits, way, checks))


def _one(entry: Path, student: str, key: str) -> GradingRecord:
    run = _RUN[-1]
    return score.grade(collect.read(entry, student, key, run.assignment), run)


def _seed(out: Path, name: str, seed: int | None) -> int:
    """The seed of this folder, kept so that late submissions meet the same tests as the others."""
    path = out / "run.json"
    known: dict[str, Any] = read_json(path) if path.exists() else {}
    if known and known.get("assignment") != name:
        raise CourseError(f"{out} holds the grades of {known.get('assignment')}; give {name} a folder of its own.")
    chosen = seed if seed is not None else int(known.get("seed", secrets.randbelow(10**6)))
    write_json(path, {"assignment": name, "seed": chosen})
    return chosen


def _earlier(out: Path, key: str) -> GradingRecord:
    path = out / "results" / f"{key}.json"
    try:
        found = read_json(path) if path.exists() else {}
    except CourseError:
        found = {}
    return found if isinstance(found, dict) else {}
