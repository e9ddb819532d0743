"""Grade a folder of submissions: in parallel, each in a box of its own.

Only what has changed since the last time is graded again.
"""

import contextlib
import hashlib
import json
import secrets
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

from classroom.grading import box, collect, gradebook, report, score
from classroom.grading.assignment import Assignment
from classroom.grading.box import Limits, Sandbox
from classroom.grading.collect import GradingRecord
from classroom.grading.hand_ins import HandIns, gather
from classroom.grading.marks import MARKS, read_marks
from classroom.grading.worker import allow
from course_lib.errors import CourseError
from course_lib.files import atomic_write, locked, read_json, write_json

FORMAT = 3  # of the records; earlier ones are made anew
MOST_SEEDS, LARGEST_SEED = 10**6, 10**9
OUTSIDE = 120  # seconds of processor time for all that happens outside the box to one submission


@dataclass(frozen=True)
class GradeConfig:
    """How a folder is graded.

    Attributes:
        jobs: submissions at once.
        limits: what one submission may use.
        way: how students' code is shut in; by default the strongest there is.
        seed: of the tests' inputs; by default drawn once and kept in the folder of results.
        again: also grade what has not changed.
    """

    jobs: int = 2
    limits: Limits = field(default_factory=Limits)
    way: Sandbox | None = None
    seed: int | None = None
    again: bool = False


def grade(
    submissions: Path,
    assignment: str,
    out: Path,
    config: GradeConfig = GradeConfig(),
    *,
    hand_ins: HandIns | None = None,
    warn: Callable[[str], object] = str,
) -> Iterator[GradingRecord]:
    """Grade all submissions of a folder; yields each record when it is there, earlier ones first.

    Args:
        submissions: the folder with a file or a folder for each submission.
        assignment: "hw1", or a master's path.
        out: the folder of results.
        config: how.
        hand_ins: what of the folder counts; all by default.
        warn: gets sentences for the teacher, about marks that do not fit.

    Raises:
        CourseError: another process grades into `out`, or something there is not as it should be.
    """
    if out.resolve().is_relative_to(submissions.resolve()):
        raise CourseError(
            f"{out} is inside {submissions} and would be a submission; take another folder for"
            " --out."
        )
    hand_ins = hand_ins or gather(submissions)
    master = Assignment(assignment)
    with locked(out):
        _try_what_comes_last(out, master, hand_ins)
        records: dict[str, GradingRecord] = {}
        for record in _graded(master, out, config, hand_ins):
            records[record["key"]] = record
            yield record
        in_order = [records[key] for _, key in hand_ins.entries.values()]
        for sentence in hand_ins.warnings + report.write(in_order, master, out, hand_ins):
            warn(sentence)


def _graded(
    master: Assignment, out: Path, config: GradeConfig, hand_ins: HandIns
) -> Iterator[GradingRecord]:
    """The records: first those that still hold, then those that are made anew."""
    seed = _seed(out, master.name, config.seed)
    checks = (out / "tests" / f"{master.name}_checks.json").resolve()
    with atomic_write(checks) as file:
        file.write(master.checks())
    asked = f"{FORMAT} {master.digest} {seed} {asdict(config.limits)}"
    version = hashlib.sha256(asked.encode()).hexdigest()[:16]

    waiting: list[Job] = []
    digests = {key: collect.digest(entry) for entry, (_, key) in hand_ins.entries.items()}
    for entry, (student, key) in hand_ins.entries.items():
        old = {} if config.again else _earlier(out, key, master)
        same = (old.get("version"), old.get("digest")) == (version, digests[key])
        if digests[key] and same:
            yield old | {"student": student}
        else:
            waiting.append(Job(entry, student, key))
    given = (str(master.path), seed, config.limits, config.way or box.chosen(), checks)
    for record in _parallel(waiting, config.jobs, given):
        record |= {"version": version, "digest": digests[record["key"]]}
        write_json(out / "results" / f"{record['key']}.json", record)
        yield record


def _try_what_comes_last(out: Path, master: Assignment, hand_ins: HandIns) -> None:
    """Raise now, not after an hour, where marks or the gradebook are not as they should be."""
    read_marks(out / MARKS, master)
    if hand_ins.marks_file:
        read_marks(hand_ins.marks_file, master)
    if hand_ins.gradebook:
        gradebook.write([], master, {}, {}, hand_ins)


class Job(NamedTuple):
    """One submission to grade."""

    entry: Path
    student: str
    key: str


class _Worker:
    """A process that grades one submission after another."""

    def __init__(self, given: tuple[Any, ...]) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, name="grader", args=(theirs, *given), daemon=True
        )
        self.process.start()
        theirs.close()
        self.job: Job | None = None
        limits: Limits = given[2]
        starts = (limits.restarts + 2) * box.START_SECONDS
        # by the clock: a guard against a hang
        self.longest = starts + box.PATIENCE * (2 * limits.seconds + OUTSIDE)

    def give(self, job: Job) -> None:
        """Let it grade this one."""
        self.job = job
        self.until = time.monotonic() + self.longest
        with contextlib.suppress(OSError):  # it died; what follows says so
            self.pipe.send(job)

    def result(self) -> GradingRecord | None:
        """Its record, where there is one or will be none."""
        assert self.job is not None
        waits = self.process.is_alive() and time.monotonic() < self.until
        with contextlib.suppress(EOFError, OSError):
            if self.pipe.poll():
                record: GradingRecord = json.loads(self.pipe.recv_bytes())
                return record
            if waits:
                return None
        self.process.join(5)
        late = self.process.exitcode in (None, -getattr(signal, "SIGXCPU", 0))
        self.end()
        why = "reading and comparing took too long" if late else "the grading process died"
        return score.unread(self.job.student, self.job.key, "grader failed", [why])

    def end(self) -> None:
        """Kill it, and with it the box that it has started."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _parallel(waiting: list[Job], jobs: int, given: tuple[Any, ...]) -> Iterator[GradingRecord]:
    """Records as they come.

    A grading process that dies costs the submission it had in hand, which says so.
    """
    todo = deque(waiting)
    workers: list[_Worker] = []
    try:
        while todo or workers:
            while todo and len(workers) < jobs:
                workers.append(_Worker(given))
                workers[-1].give(todo.popleft())
            pipes = [worker.pipe for worker in workers]
            ends = [worker.process.sentinel for worker in workers]
            wait([*pipes, *ends], timeout=5)
            for worker in list(workers):
                record = worker.result()
                if record is None:
                    continue
                if todo and worker.process.is_alive():
                    worker.give(todo.popleft())
                else:
                    workers.remove(worker)
                    worker.end()
                yield record
    finally:
        for worker in workers:
            worker.end()


def _serve(
    pipe: Any, assignment: str, seed: int, limits: Limits, way: Sandbox, checks: Path
) -> None:
    """A grading process; ends when the one that started it does."""
    import torch

    torch.set_num_threads(1)
    # of the terminal; the process that started this one ends it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run = score.GradingRun(Assignment(assignment), seed, limits, way, checks)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(
            resource.RLIMIT_AS, (int(limits.memory_gb * 2**30), resource.RLIM_INFINITY)
        )
    with contextlib.suppress(EOFError, OSError):
        while True:
            job = pipe.recv()
            allow(OUTSIDE)  # the box counts its own
            submission = collect.read(job.entry, job.student, job.key, run.assignment)
            pipe.send_bytes(json.dumps(score.grade(submission, run)).encode())


def _seed(out: Path, name: str, seed: int | None) -> int:
    """The seed of this folder, kept so that late submissions meet the same tests as the others."""
    path = out / "run.json"
    known = read_json(path) if path.exists() else {"assignment": name}
    if not isinstance(known, dict) or not isinstance(known.get("assignment"), str):
        raise CourseError(f"{path} is damaged; remove it, or give another folder for --out.")
    if known["assignment"] != name:
        raise CourseError(
            f"{out} holds the grades of {known['assignment']}; give {name} a folder of its own."
        )
    chosen = known.get("seed", secrets.randbelow(MOST_SEEDS)) if seed is None else seed
    if type(chosen) is not int or not 0 <= chosen <= LARGEST_SEED:
        raise CourseError(
            f"{path} has the seed {chosen!r}; it is a number from 0 to {LARGEST_SEED}. Remove the"
            " file, or give --seed."
        )
    write_json(path, {"assignment": name, "seed": chosen})
    return chosen


def _earlier(out: Path, key: str, master: Assignment) -> GradingRecord:
    """What was found last time; nothing where it was the grader that failed."""
    try:
        record = report.sound(read_json(out / "results" / f"{key}.json"), master)
    except CourseError:
        return {}
    return record if record["status"] != "grader failed" else {}
