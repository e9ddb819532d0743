"""Runs lose nothing when they are killed, make what is missing and no more, and the records say
what was found.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from classroom import records
from classroom.records import ledger, report
from classroom.records.figures import Figure, difference, figure, short
from classroom.records.record import RESULTS, read
from course_lib.errors import CourseError
from lab.engine import experiment, small_models
from lab.engine import run as running
from lab.engine.cli import app
from lab.engine.experiment import find
from lab.engine.lab import PLANS
from lab.engine.run import RunSettings, run
from tools.lock import ROOT

FROM_HERE = {**os.environ, "PYTHONPATH": str(ROOT)}
# a measured claim of the ledger, here with an experiment that takes no time
NAME = "gelu-converges"


@pytest.fixture
def settings(tmp_path: Path) -> RunSettings:
    return RunSettings(
        PLANS["smoke"],
        3,
        out=tmp_path / "results",
        work=tmp_path / "claims",
        arms=tmp_path / "arms",
    )


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An experiment of NAME that notes which seeds it was asked for."""
    asked: list[int] = []
    find(NAME)
    register(monkeypatch, asked)
    return asked


RULE = {"statements": [{"says": "a is above -1", "range": ["a", -1, None]}]}
OTHER = {"statements": [{"says": "b is one or more", "range": ["b", 1, None]}]}


def register(monkeypatch: pytest.MonkeyPatch, asked: list[int], **changed: Any) -> None:
    def measure(lab: Any, seed: int) -> dict[str, float]:
        asked.append(seed)
        return {"a": 1.0 + seed, "b": 0.5}

    chosen = changed.pop("measure", measure)
    words = {key: changed.pop(key) for key in ("rule", "tried") if key in changed}
    told = replace(ledger.claim(NAME), **{"rule": RULE, "tried": ()} | words)  # the ledger's row
    monkeypatch.setitem(ledger.read(), NAME, told)
    monkeypatch.setattr(experiment, "_FOUND", dict(experiment._FOUND))
    experiment.experiment(NAME, **changed)(chosen)


def test_a_record_says_it_all(settings: RunSettings, toy: list[int]) -> None:
    done = list(run([NAME], settings))
    assert [each.what for each in done] == [f"{NAME} seed {seed}" for seed in (0, 1, 2)] and done[
        0
    ].record is None
    found = records.record(NAME, settings.out)
    assert found == done[-1].record and found is not None
    assert (found.verdict, found.seeds) == ("reproduced", [0, 1, 2])
    assert found.why == "holds: a is above -1 (2 ± 2.48)" and found.figures["a"].seeds == [
        1.0,
        2.0,
        3.0,
    ]
    low, high = found.figures["a"].interval or (0, 0)
    assert (low + high) / 2 == pytest.approx(2.0)
    # Student's t, two degrees of freedom
    assert high - 2 == pytest.approx(4.30265 / 3**0.5, rel=1e-4)
    assert found.rule == "Statements: (1) a is above -1."
    assert found.config["plan"]["scale"] == "smoke" and {"python", "torch"} <= set(found.versions)


def test_no_seed_is_done_twice(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch, toy: list[int]
) -> None:
    for _ in range(2):
        list(run([NAME], settings))
    assert toy == [0, 1, 2]
    list(run([NAME], replace(settings, seeds=5)))
    assert toy == [0, 1, 2, 3, 4]
    before = records.record(NAME, settings.out)
    assert before is not None and before.seeds == [0, 1, 2, 3, 4]
    register(monkeypatch, toy, rule=OTHER, tried=("longer",))
    list(run([NAME], settings))
    after = records.record(NAME, settings.out)
    assert len(toy) == 5, "another rule asks for no new figures"
    assert after is not None and before.rule_hash != after.rule_hash
    assert (after.verdict, after.tried) == ("opposite", ["longer"])


def test_arms_come_first_and_once(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch, toy: list[int]
) -> None:
    made: list[str] = []

    def trained(arm: Any, folder: Path, **options: Any) -> None:
        made.append(arm.name)
        running.write_json(folder / arm.name / "card.json", {"seconds": 60.0})

    monkeypatch.setattr(running.arms, "trained", trained)
    monkeypatch.setattr("lab.engine.small_models.fingerprint", lambda world: "x")
    register(
        monkeypatch,
        toy,
        needs=lambda plan, seed: [small_models.bert_arm(plan, n) for n in (seed, 0)],
    )
    done = [each.what for each in run([NAME], settings)]
    assert [what.split()[0] for what in done] == ["arm"] * 3 + [NAME] * 3
    found = records.record(NAME, settings.out)
    assert (
        found is not None
        and found.arms == made
        and len(made) == 3
        and found.seconds == pytest.approx(180, abs=5)
    )
    assert found.config["arms"][0]["objective"] == "masked_pairs"


def test_bad_numbers_are_one_sentence(
    settings: RunSettings, toy: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CourseError, match="measures nothing; name another folder"):
        list(run([NAME], replace(settings, out=RESULTS)))
    with monkeypatch.context() as bare:
        bare.setattr(experiment, "LESSONS", Path("nowhere"))
        bare.setattr(experiment, "_FOUND", {})
        with pytest.raises(CourseError, match="The claim 'qlora' has no experiment yet"):
            list(run(["qlora"], settings))
    assert toy == []
    with pytest.raises(CourseError, match=r"needs finite numbers, one a seed; it got \[1.0, nan\]"):
        figure([1.0, float("nan")])


def test_figures() -> None:
    assert figure([2.0]).interval is None and figure([2.0], exact=True).interval == (2.0, 2.0)
    assert difference(figure([1.0, 2.0]), figure([0.5, 1.5])) == Figure([0.5, 0.5], 0.5, (0.5, 0.5))
    told = {
        3: "3",
        1234567: "1,234,567",
        0.5: "0.500",
        12.34: "12.3",
        123.4: "123",
        1e-6: "1.0e-06",
    }
    assert [short(number) for number in told] == list(told.values())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda r: r.pop("why"), "is no record of a claim .*'why'"),
        (lambda r: r.update(verdict="true"), "and the verdict 'true'"),
        (lambda r: r.update(id="qlora"), "names the claim 'qlora'"),
        (lambda r: r.update(figures={"a": {}}), "is no record of a claim"),
        (lambda r: r.update(figures=3), "is no record of a claim"),
    ],
)
def test_a_file_that_is_no_record(
    settings: RunSettings, toy: list[int], change: Any, sentence: str
) -> None:
    list(run([NAME], settings))
    path = settings.out / f"{NAME}.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    with pytest.raises(CourseError, match=sentence):
        records.record(NAME, settings.out)


def test_telling(settings: RunSettings, toy: list[int], tmp_path: Path) -> None:
    assert records.summary(NAME, settings.out).startswith(
        f"{NAME}: not recorded yet; `python -m course_lib claims run"
    )
    list(run([NAME], settings))
    told = [
        f"{NAME}: reproduced (3 seeds, mean and 95% interval)",
        "  holds: a is above -1 (2 ± 2.48)",
    ]
    assert records.summary(NAME, settings.out).splitlines() == told
    shown = records.beside(NAME, {"ours": "a"}, scale=100, folder=settings.out)
    assert repr(shown).split("\n")[1].split() == ["ours", "200.00", "[-48.41,", "448.41]"]
    assert "<td" in shown._repr_html_()
    with pytest.raises(CourseError, match="has no figure 'c'; it has a, b"):
        records.beside(NAME, {"ours": "c"}, folder=settings.out)
    assert "not recorded yet" in repr(records.beside("qlora", {"ours": "a"}, folder=settings.out))
    mean, low, high = records.recorded(NAME, "a", "b", scale=10, folder=settings.out)
    differences = difference(*(records.record(NAME, settings.out).figures[key] for key in "ab"))
    assert mean == pytest.approx(15) and (low, high) == pytest.approx(
        [10 * end for end in differences.interval]
    )
    assert records.recorded("qlora", "a", folder=settings.out) is None
    with pytest.raises(CourseError, match="has no figure 'c'"):
        records.recorded(NAME, "a", "c", folder=settings.out)
    page, text = (
        report.save(tmp_path / f"report.{kind}", settings.out).read_text()
        for kind in ("html", "md")
    )
    for told in (page, text):
        assert f"1 of {len(ledger.read())} claims recorded: 1 reproduced" in told
        assert "a is above -1 (2 ± 2.48)" in told and "Statements: (1) a is above -1." in told
    assert "<script" not in page


def test_command_line(settings: RunSettings, toy: list[int], tmp_path: Path) -> None:
    def call(*words: str) -> str:
        done = CliRunner().invoke(app, [*words, "--out", str(settings.out)], terminal_width=200)
        assert done.exit_code == 0, done.output
        return done.output

    work = ["--work", str(tmp_path / "work")]
    assert "  holds: a is above -1 (2 ± 2.48)" in call(
        "run", NAME, "--scale", "smoke", "--seeds", "3", *work
    )
    assert call("run", NAME, "--scale", "smoke", "--seeds", "3", *work).startswith(f"{NAME}: 0 s")
    listed = call("list", "--lesson", "08")
    assert "gpt1-size" in listed and "claims recorded: 1 reproduced" in listed
    assert "bert-params" not in listed and "a is above -1" in call(
        "report", "--to", str(tmp_path / "all.html")
    )
    assert (tmp_path / "all.html").exists()


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_behind(tmp_path: Path) -> None:
    import psutil

    words = [
        "claims",
        "run",
        "gelu-converges",
        "--scale",
        "smoke",
        "--seeds",
        "9",
        "--jobs",
        "2",
        "--out",
        "out",
    ]
    run = subprocess.Popen(
        [sys.executable, "-m", "course_lib", *words, "--work", "work"], cwd=tmp_path, env=FROM_HERE
    )
    workers: list[psutil.Process] = []
    for _ in range(1200):
        workers = [
            p for p in psutil.Process(run.pid).children() if "spawn_main" in " ".join(p.cmdline())
        ]
        if len(workers) == 2 and list((tmp_path / "work").glob("arms/*/arm.json")):
            break
        time.sleep(0.1)
    run.kill()
    run.wait()
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert len(workers) == 2 and alive == []


@pytest.mark.slow
def test_side_by_side_in_processes(tmp_path: Path) -> None:
    """Two jobs at once, as a student would call it; and the second call finds everything done."""
    words = [
        "claims",
        "run",
        "gpt1-size",
        "bert-params",
        "--jobs",
        "2",
        "--out",
        str(tmp_path / "out"),
    ]
    command = [sys.executable, "-m", "course_lib", *words, "--work", str(tmp_path)]
    for expected in ("bert-params seed 0", "bert-params: 0 s"):
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=FROM_HERE)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout and "gpt1-size: reproduced (computed)" in done.stdout
    assert read(tmp_path / "out" / "bert-params.json").verdict == "reproduced"
