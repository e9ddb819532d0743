"""Run experiments: arms first, then seeds, side by side, each job in a process with one thread.

Every job leaves its result in a file as soon as it is done. A run that is killed, at any time, goes on from there.
"""

import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from importlib import metadata
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from course_lib.claims import arms
from course_lib.claims.arms import Arm
from course_lib.claims.experiment import Experiment, find
from course_lib.claims.lab import PLANS, Lab, Plan
from course_lib.claims.record import RESULTS, Record, figure, write
from course_lib.errors import CourseError
from course_lib.files import read_json, write_json

WORK = arms.FOLDER.parent / "claims"  # one file a seed
PACKAGES = ("torch", "tokenizers", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Done:
    """One finished job. what: the arm or the claim and seed. seconds: wall clock."""

    what: str
    seconds: float
    record: Record | None = None


@dataclass(frozen=True)
class _Job:
    claim: str
    seed: int
    arm: Arm | None = None

    def __str__(self) -> str:
        return f"arm {self.arm.name} ({self.arm})" if self.arm else f"{self.claim} seed {self.seed}"


@dataclass(frozen=True)
class Bench:
    """Where and how large a run is. plan: a key of `PLANS`, or a plan. seeds: how many; None: the plan's."""

    plan: Plan = PLANS["cpu"]
    seeds: int | None = None
    device: str = "cpu"
    out: Path = RESULTS
    work: Path = WORK
    arms: Path = arms.FOLDER

    def numbers(self, experiment: Experiment) -> list[int]:
        """The seeds of an experiment; what is exact or computed needs one."""
        if experiment.claim.kind != "measured":
            return [0]
        return list(range(self.plan.seeds if self.seeds is None else self.seeds))


def run(names: Sequence[str], bench: Bench, *, jobs: int = 1) -> Iterator[Done]:
    """Make the records of claims, in this order; one `Done` after each job, with the record where one is complete.

    Args:
        names: claims with an experiment. jobs: processes side by side, of one thread each; 1: in this process.

    Raises:
        CourseError: a claim without an experiment; numbers out of range; what an experiment raises.
    """
    experiments = [_experiment(name) for name in names]
    if jobs < 1 or (bench.seeds is not None and bench.seeds < 1):
        raise CourseError(f"jobs is {jobs} and seeds is {bench.seeds}; both must be at least 1.")
    if bench.plan.scale == "smoke" and bench.out.resolve() == RESULTS.resolve():
        raise CourseError("A smoke run proves the path and measures nothing; name another folder for it: --out.")
    pending = [job for experiment in experiments for job in _jobs(experiment, bench)]
    pending = list(dict.fromkeys(pending))
    for experiment in experiments:
        if not any(job.claim == experiment.id and job.arm is None for job in pending):
            yield Done(experiment.id, 0.0, compose(experiment, bench))
    left = {e.id: sum(job.claim == e.id and job.arm is None for job in pending) for e in experiments}
    for job, seconds in _work(pending, bench, jobs):
        done = None
        if job.arm is None:
            left[job.claim] -= 1
            done = compose(_experiment(job.claim), bench) if not left[job.claim] else None
        yield Done(str(job), seconds, done)


def compose(experiment: Experiment, bench: Bench) -> Record:
    """The record of an experiment whose seeds are all done, written to `bench.out`."""
    numbers = bench.numbers(experiment)
    parts = [read_json(_seed_file(experiment, seed, bench)) for seed in numbers]
    exact = experiment.claim.kind != "measured"
    figures = {name: figure([part["values"][name] for part in parts], exact=exact) for name in parts[0]["values"]}
    verdict, why = experiment.verdict(figures)
    needed = [list(experiment.needs(bench.plan, seed)) for seed in numbers]
    spent = {arm.name: read_json(bench.arms / arm.name / "card.json")["seconds"] for row in needed for arm in row}
    made = Record(
        id=experiment.id,
        kind=experiment.claim.kind,
        rule=experiment.rule,
        rule_hash=experiment.rule_hash,
        verdict=verdict,
        why=why,
        figures=figures,
        seeds=numbers,
        config=_config(experiment, bench.plan) | {"arms": [arm.to_dict() for arm in needed[0]]},
        arms=list(spent),
        versions={"python": platform.python_version()} | {name: metadata.version(name) for name in PACKAGES},
        hardware=parts[-1]["hardware"],
        seconds=round(sum(part["seconds"] for part in parts) + sum(spent.values()), 1),
        made=parts[-1]["made"],
        tried=list(experiment.tried),
    )
    write(made, bench.out)
    return made


def _experiment(name: str) -> Experiment:
    found = find(name)
    if found is None:
        raise CourseError(f"The claim {name!r} has no experiment yet; `claims list` shows which have.")
    return found


def _jobs(experiment: Experiment, bench: Bench) -> Iterator[_Job]:
    for seed in bench.numbers(experiment):
        if _seed_file(experiment, seed, bench).exists():
            continue
        for arm in experiment.needs(bench.plan, seed):
            if not arms.finished(arm, bench.arms):
                yield _Job("", 0, arm)
        yield _Job(experiment.id, seed)


def _work(pending: list[_Job], bench: Bench, jobs: int) -> Iterator[tuple[_Job, float]]:
    """Do the jobs, a claim's seed once its arms are there."""
    if jobs == 1:
        for job in pending:
            yield job, _do(job, bench)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        running: dict[Future[float], _Job] = {}
        try:
            while pending or running:
                for job in [job for job in pending if _ready(job, bench)][: jobs - len(running)]:
                    pending.remove(job)
                    running[pool.submit(_do, job, bench)] = job
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        except BrokenProcessPool as error:
            raise CourseError("A job's process died; run the same command again, what was finished stays.") from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _ready(job: _Job, bench: Bench) -> bool:
    if job.arm is not None:
        return True
    needed = _experiment(job.claim).needs(bench.plan, job.seed)
    return all(arms.finished(arm, bench.arms) for arm in needed)


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


def _do(job: _Job, bench: Bench) -> float:
    """One job, its result to disk; wall-clock seconds."""
    start, clock = time.perf_counter(), time.process_time()
    if job.arm is not None:
        arms.trained(job.arm, bench.arms, device=bench.device)
        return time.perf_counter() - start
    experiment = _experiment(job.claim)
    lab = Lab(bench.plan, bench.arms, bench.device)
    values = experiment.measure(lab, job.seed)
    write_json(
        _seed_file(experiment, job.seed, bench),
        {
            "claim": job.claim,
            "seed": job.seed,
            "rule_hash": experiment.rule_hash,
            "values": {name: float(value) for name, value in values.items()},
            "seconds": round(max(lab.seconds, time.process_time() - clock), 1),
            "hardware": _hardware(bench.device),
            "made": time.strftime("%Y-%m-%d"),
        },
    )
    return time.perf_counter() - start


def _seed_file(experiment: Experiment, seed: int, bench: Bench) -> Path:
    """Named by what the values follow from: the plan, the arms, the rule under which they were measured."""
    follows = [
        _config(experiment, bench.plan),
        [arm.name for arm in experiment.needs(bench.plan, seed)],
        experiment.rule_hash,
    ]
    key = arms.short_hash(json.dumps(follows, sort_keys=True))
    return bench.work / experiment.id / f"seed-{seed}-{key}.json"


def _config(experiment: Experiment, plan: Plan) -> dict[str, Any]:
    return {"plan": asdict(plan), **experiment.config}


def _hardware(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)} a job"
