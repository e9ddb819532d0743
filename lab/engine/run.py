"""Run experiments: arms first, then seeds, side by side, each job in a process with one thread.

Every job leaves its result in a file as soon as it is done. A run that is killed, at any time, goes
on from there."""

import json
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import metadata
from itertools import chain
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import torch

from classroom.records.figures import Figures, figure
from classroom.records.ledger import claim
from classroom.records.record import RESULTS, Record, write
from classroom.records.rules import digest, judge, words
from course_lib.errors import CourseError
from course_lib.files import read_json, write_json
from lab.engine import arms
from lab.engine.experiment import Experiment, find
from lab.engine.lab import PLANS, Lab, Plan

PACKAGES = ("torch", "tokenizers", "numpy", "scipy", "scikit-learn")


class Done(NamedTuple):
    """One finished job: the arm or the claim and seed, and its seconds by the wall's clock."""

    what: str
    seconds: float
    record: Record | None = None


@dataclass(frozen=True)
class _Job:
    claim: str
    seed: int
    arm: arms.Arm | None = None

    def __str__(self) -> str:
        return f"arm {self.arm.name} ({self.arm})" if self.arm else f"{self.claim} seed {self.seed}"


@dataclass(frozen=True)
class RunSettings:
    """Where and how large a run is.

    Attributes:
        plan: its sizes.
        seeds: how many; by default the plan's.
        device: where it is trained.
        out: folder of the records.
        work: folder of the finished seeds, one file each.
        arms: folder of the pretrained arms.
        public: folder of public data sets, for the claims that read one.
    """

    plan: Plan = PLANS["cpu"]
    seeds: int | None = None
    device: str = "cpu"
    out: Path = RESULTS
    work: Path = arms.FOLDER.parent / "claims"
    arms: Path = arms.FOLDER
    public: Path | None = None

    def numbers(self, experiment: Experiment) -> list[int]:
        """The seeds of an experiment; what is exact or computed needs one."""
        if claim(experiment.id).kind != "measured":
            return [0]
        return list(range(self.plan.seeds if self.seeds is None else self.seeds))


def run(names: Sequence[str], settings: RunSettings, *, jobs: int = 1) -> Iterator[Done]:
    """Make the records of claims, in this order; one `Done` after each job, with the record where
    one is complete.

    jobs: processes side by side, of one thread each; 1: in this process.
    """
    experiments = [find(name) for name in names]
    if settings.plan.scale == "smoke" and settings.out.resolve() == RESULTS.resolve():
        raise CourseError(
            "A smoke run proves the path and measures nothing; name another folder for it: --out."
        )
    pending = dict.fromkeys(
        job for experiment in experiments for job in _jobs(experiment, settings)
    )
    left = Counter(job.claim for job in pending)
    for experiment in experiments:
        if not left[experiment.id]:
            yield Done(experiment.id, 0.0, compose(experiment, settings))
    do = partial(_do, settings=settings)
    arm_jobs = [job for job in pending if job.arm]
    seed_jobs = [job for job in pending if not job.arm]
    for job, seconds in side_by_side(do, arm_jobs, jobs):
        yield Done(str(job), seconds)
    for job, seconds in side_by_side(do, seed_jobs, jobs):
        left[job.claim] -= 1
        record = None if left[job.claim] else compose(find(job.claim), settings)
        yield Done(str(job), seconds, record)


def compose(experiment: Experiment, settings: RunSettings) -> Record:
    """The record of an experiment whose seeds are all done, written to `settings.out`."""
    seeds = settings.numbers(experiment)
    results = [read_json(_seed_file(experiment, seed, settings)) for seed in seeds]
    kind = claim(experiment.id).kind
    figures = {}
    for name in results[0]["values"]:
        values = [result["values"][name] for result in results]
        figures[name] = figure(values, exact=kind != "measured")
    judged = _judged(experiment.id, figures)

    needed = [list(experiment.needs(settings.plan, seed)) for seed in seeds]
    arm_seconds: dict[str, float] = {}
    for arm in chain.from_iterable(needed):
        card = read_json(settings.arms / arm.name / "card.json")
        arm_seconds[arm.name] = card["seconds"]
    seconds = sum(result["seconds"] for result in results) + sum(arm_seconds.values())
    packages = {name: metadata.version(name) for name in PACKAGES}
    record = Record(
        id=experiment.id,
        kind=kind,
        ruled=judged["rule_hash"],
        figures=figures,
        seeds=seeds,
        config={
            "plan": asdict(settings.plan),
            **experiment.config,
            "arms": [arm.to_dict() for arm in needed[0]],
        },
        arms=list(arm_seconds),
        versions={"python": platform.python_version()} | packages,
        hardware=results[-1]["hardware"],
        seconds=round(seconds, 1),
        made=results[-1]["made"],
        **judged,
    )
    write(record, settings.out)
    return record


def judge_again(record: Record) -> Record:
    """The record under the ledger's rule as it stands, its figures untouched."""
    ruled = record.ruled or record.rule_hash
    return replace(record, ruled=ruled, **_judged(record.id, record.figures))


def _judged(name: str, figures: Figures) -> dict[str, Any]:
    """What a record says of the ledger's rule and of its verdict, which follows from the figures
    and nothing else.
    """
    entry = claim(name)
    judgement = judge(entry.rule, figures)
    return {
        "rule": words(entry.rule),
        "rule_hash": digest(entry.rule),
        "tried": list(entry.tried),
        "verdict": judgement.verdict,
        "why": judgement.why,
    }


def _jobs(experiment: Experiment, settings: RunSettings) -> Iterator[_Job]:
    for seed in settings.numbers(experiment):
        if _seed_file(experiment, seed, settings).exists():
            continue
        for arm in experiment.needs(settings.plan, seed):
            if not arms.finished(arm, settings.arms):
                yield _Job("", 0, arm)
        yield _Job(experiment.id, seed)


def side_by_side(
    do: Callable[[Any], Any], what: Sequence[Any], jobs: int
) -> Iterator[tuple[Any, Any]]:
    """Do one thing to many, in several processes.

    Args:
        do: what is done to each.
        what: the things.
        jobs: processes, of one thread each; 1: in this process.

    Yields:
        each thing with its result, as soon as it is done.
    """
    if jobs == 1:
        for each in what:
            yield each, do(each)
        return
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=_one_thread
    ) as pool:
        futures = {pool.submit(do, each): each for each in what}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise CourseError(
                "A job's process died; run the same command again, what was finished stays."
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _one_thread() -> None:
    """A worker's start: one thread for its work, and one that ends it when the run was killed."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    Thread(target=follow, daemon=True).start()


def _do(job: _Job, settings: RunSettings) -> float:
    """One job, its result to disk; wall-clock seconds."""
    start = time.perf_counter()
    cpu_start = time.process_time()
    if job.arm is not None:
        arms.trained(job.arm, settings.arms, device=settings.device)
        return time.perf_counter() - start
    experiment = find(job.claim)
    lab = Lab(settings.plan, settings.arms, settings.device, settings.public)
    values = experiment.measure(lab, job.seed)
    result = {
        "values": {name: float(value) for name, value in values.items()},
        "seconds": round(max(lab.seconds, time.process_time() - cpu_start), 1),
        "hardware": _hardware(settings.device),
        "made": time.strftime("%Y-%m-%d"),
    }
    write_json(_seed_file(experiment, job.seed, settings), result)
    return time.perf_counter() - start


def _seed_file(experiment: Experiment, seed: int, settings: RunSettings) -> Path:
    """Named by what the values follow from: the plan, the settings, the arms."""
    needed = [arm.name for arm in experiment.needs(settings.plan, seed)]
    follows = [{"plan": asdict(settings.plan), **experiment.config}, needed]
    key = arms.short_hash(json.dumps(follows, sort_keys=True))
    return settings.work / experiment.id / f"seed-{seed}-{key}.json"


def _hardware(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    plural = "s" if threads > 1 else ""
    return f"{platform.machine()} CPU, {threads} thread{plural} a job"
