"""Runs lose nothing when they are killed, make what is missing and no more, and the records say what was found."""

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

from course_lib import claims
from course_lib.__main__ import app
from course_lib.claims import experiment, ledger, report
from course_lib.claims import run as running
from course_lib.claims.experiment import find
from course_lib.claims.lab import PLANS
from course_lib.claims.record import RESULTS, Figure, difference, figure, read, short
from course_lib.claims.run import Bench, run
from course_lib.errors import CourseError
from tools.lock import ROOT

FROM_HERE = {**os.environ, "PYTHONPATH": str(ROOT)}
NAME = "gelu-converges"  # a measured claim of the ledger, here with an experiment that takes no time


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(PLANS["smoke"], 3, out=tmp_path / "results", work=tmp_path / "claims", arms=tmp_path / "arms")


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An experiment of NAME that notes which seeds it was asked for."""
    asked: list[int] = []
    find(NAME)
    register(monkeypatch, asked)
    return asked


def judge(f: claims.Figures) -> tuple[str, str]:
    return "reproduced" if f["a"].mean > f["b"].mean else "partly", f"a is {f['a'].mean:.1f}."


def other_judge(f: claims.Figures) -> tuple[str, str]:
    return "not at this scale", "no."


def register(monkeypatch: pytest.MonkeyPatch, asked: list[int], **changed: Any) -> None:
    def measure(lab: Any, seed: int) -> dict[str, float]:
        asked.append(seed)
        return {"a": 1.0 + seed, "b": 0.5}

    chosen = changed.pop("measure", measure)
    options: dict[str, Any] = {"rule": "a above b", "judge": judge} | changed
    monkeypatch.setattr(experiment, "_FOUND", dict(experiment._FOUND))
    experiment.experiment(NAME, **options)(chosen)


def test_a_record_says_it_all(bench: Bench, toy: list[int]) -> None:
    done = list(run([NAME], bench))
    assert [each.what for each in done] == [f"{NAME} seed {seed}" for seed in (0, 1, 2)]
    assert done[0].record is None
    found = claims.record(NAME, bench.out)
    assert found == done[-1].record
    assert found is not None
    assert (found.verdict, found.why, found.seeds) == ("reproduced", "a is 2.0.", [0, 1, 2])
    assert found.figures["a"].seeds == [1.0, 2.0, 3.0]
    low, high = found.figures["a"].interval or (0, 0)
    assert (low + high) / 2 == pytest.approx(2.0)
    assert high - 2 == pytest.approx(4.30265 / 3**0.5, rel=1e-4)  # Student's t, two degrees of freedom
    assert found.rule == "a above b"
    assert found.config["plan"]["scale"] == "smoke"
    assert {"python", "torch"} <= set(found.versions)


def test_finished_seeds_are_not_done_again(bench: Bench, toy: list[int]) -> None:
    for _ in range(2):
        list(run([NAME], bench))
    assert toy == [0, 1, 2]
    list(run([NAME], replace(bench, seeds=5)))
    assert toy == [0, 1, 2, 3, 4]
    assert claims.record(NAME, bench.out).seeds == [0, 1, 2, 3, 4]  # type: ignore[union-attr]


def test_killed_between_two_seeds(bench: Bench, monkeypatch: pytest.MonkeyPatch, toy: list[int]) -> None:
    def dies(lab: Any, seed: int) -> dict[str, float]:
        if seed == 1:
            raise KeyboardInterrupt
        toy.append(seed)
        return {"a": 1.0 + seed, "b": 0.5}

    register(monkeypatch, toy, measure=dies)
    with pytest.raises(KeyboardInterrupt):
        list(run([NAME], bench))
    assert claims.record(NAME, bench.out) is None
    register(monkeypatch, toy)
    list(run([NAME], bench))
    assert toy == [0, 1, 2]


def test_another_rule_is_another_run(bench: Bench, monkeypatch: pytest.MonkeyPatch, toy: list[int]) -> None:
    list(run([NAME], bench))
    before = claims.record(NAME, bench.out)
    register(monkeypatch, toy, judge=other_judge)
    list(run([NAME], bench))
    after = claims.record(NAME, bench.out)
    assert toy == [0, 1, 2, 0, 1, 2]
    assert before is not None and after is not None
    assert before.rule_hash != after.rule_hash
    register(monkeypatch, toy, rule="a well above b")
    assert find(NAME).rule_hash not in (before.rule_hash, after.rule_hash)  # type: ignore[union-attr]


def test_what_was_tried_is_added_without_a_run(bench: Bench, monkeypatch: pytest.MonkeyPatch, toy: list[int]) -> None:
    list(run([NAME], bench))
    register(monkeypatch, toy, tried=["longer"])
    list(run([NAME], bench))
    assert toy == [0, 1, 2]
    assert claims.record(NAME, bench.out).tried == ["longer"]  # type: ignore[union-attr]


def test_a_verdict_is_one_of_three(bench: Bench, monkeypatch: pytest.MonkeyPatch, toy: list[int]) -> None:
    register(monkeypatch, toy, judge=lambda f: ("true", "it is"))
    with pytest.raises(CourseError, match="says 'true'; a verdict is one of reproduced, partly, not at this scale"):
        list(run([NAME], bench))


def test_arms_come_before_their_seeds_and_once(bench: Bench, monkeypatch: pytest.MonkeyPatch, toy: list[int]) -> None:
    from course_lib.experiments import family

    made: list[str] = []

    def trained(arm: Any, folder: Path, **options: Any) -> None:
        made.append(arm.name)
        running.write_json(folder / arm.name / "card.json", {"seconds": 60.0})

    monkeypatch.setattr(running.arms, "trained", trained)
    monkeypatch.setattr("course_lib.experiments.family.fingerprint", lambda world: "x")
    register(monkeypatch, toy, needs=lambda plan, seed: [family.bert_arm(plan, seed), family.bert_arm(plan, 0)])
    done = [each.what for each in run([NAME], bench)]
    assert [what.split()[0] for what in done] == ["arm", NAME, "arm", NAME, "arm", NAME]
    found = claims.record(NAME, bench.out)
    assert found is not None
    assert found.arms == made
    assert len(made) == 3
    assert found.seconds == pytest.approx(180, abs=5)
    assert found.config["arms"][0]["objective"] == "mlm_nsp"


def test_bad_numbers_are_one_sentence(bench: Bench, toy: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CourseError, match="jobs is 0 and seeds is 3; both must be at least 1"):
        list(run([NAME], bench, jobs=0))
    with pytest.raises(CourseError, match="measures nothing; name another folder"):
        list(run([NAME], replace(bench, out=RESULTS)))
    with monkeypatch.context() as bare:
        bare.setattr(experiment, "MODULES", {})
        bare.setattr(experiment, "_FOUND", {})
        with pytest.raises(CourseError, match="The claim 'lora' has no experiment yet"):
            list(run(["lora"], bench))
    assert toy == []
    with pytest.raises(CourseError, match=r"needs finite numbers, one a seed; it got \[1.0, nan\]"):
        figure([1.0, float("nan")])


def test_figures() -> None:
    assert figure([2.0]).interval is None
    assert figure([2.0], exact=True).interval == (2.0, 2.0)
    assert difference(figure([1.0, 2.0]), figure([0.5, 1.5])) == Figure([0.5, 0.5], 0.5, (0.5, 0.5))
    assert [short(x) for x in (3, 1234567, 0.5, 12.34, 123.4, 1e-6)] == [
        "3",
        "1,234,567",
        "0.500",
        "12.3",
        "123",
        "1.0e-06",
    ]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda r: r.pop("why"), "the key 'why' is missing or unknown"),
        (lambda r: r.update(verdict="true"), "and the verdict 'true'"),
        (lambda r: r.update(id="gelu"), "names the claim 'gelu'"),
        (lambda r: r.update(figures={"a": {}}), "is no record of a claim"),
        (lambda r: r.update(figures=3), "is no record of a claim"),
    ],
)
def test_a_file_that_is_no_record(bench: Bench, toy: list[int], change: Any, sentence: str) -> None:
    list(run([NAME], bench))
    path = bench.out / f"{NAME}.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    with pytest.raises(CourseError, match=sentence):
        claims.record(NAME, bench.out)


def test_telling(bench: Bench, toy: list[int], tmp_path: Path) -> None:
    assert claims.summary(NAME, bench.out).startswith(f"{NAME}: not recorded yet; `python -m course_lib claims run")
    assert len(claims.table(NAME, bench.out)) == 0
    list(run([NAME], bench))
    assert claims.summary(NAME, bench.out) == f"{NAME}: reproduced (3 seeds, mean and 95% interval). a is 2.0."
    table = claims.table(NAME, bench.out)
    assert list(table.columns) == ["figure", "paper", "recorded", "low", "high", "seeds"]
    assert table.set_index("figure").recorded.to_dict() == {"a": 2.0, "b": 0.5}
    shown = claims.beside(NAME, {"ours": "a"}, {"ours": 7}, scale=100, folder=bench.out)
    assert repr(shown).split("\n")[1].split() == ["ours", "7", "200.00", "[-48.41,", "448.41]"]
    assert "<td" in shown._repr_html_()
    with pytest.raises(CourseError, match="has no figure 'c'; it has a, b"):
        claims.beside(NAME, {"ours": "c"}, folder=bench.out)
    assert "not recorded yet" in repr(claims.beside("gelu", {"ours": "a"}, folder=bench.out))
    mean, low, high = claims.recorded(NAME, "a", "b", scale=10, folder=bench.out)
    differences = difference(*(claims.record(NAME, bench.out).figures[key] for key in "ab"))
    assert mean == pytest.approx(15) and (low, high) == pytest.approx([10 * end for end in differences.interval])
    assert claims.recorded("gelu", "a", folder=bench.out) is None
    with pytest.raises(CourseError, match="has no figure 'c'"):
        claims.recorded(NAME, "a", "c", folder=bench.out)
    both = claims.table("bert-swag", bench.out).set_index("figure")
    assert both.paper["paper: BERT-large"] == 86.3
    page, text = (report.save(tmp_path / f"report.{kind}", bench.out).read_text() for kind in ("html", "md"))
    for told in (page, text):
        assert "1 of 80 claims recorded: 1 reproduced" in told
        assert "a is 2.0." in told
        assert "a above b" in told
    assert "<script" not in page


def test_reading_what_the_ledger_holds_as_figures() -> None:
    for claim in ledger.read().values():
        assert all(not isinstance(value, dict | list) for _, value in report.flat(claim.paper))


def test_command_line(bench: Bench, toy: list[int], tmp_path: Path) -> None:
    def call(*words: str) -> str:
        done = CliRunner().invoke(app, ["claims", *words, "--out", str(bench.out)], terminal_width=200)
        assert done.exit_code == 0, done.output
        return done.output

    work = ["--work", str(tmp_path / "work")]
    assert "gelu-converges: reproduced. a is 2.0." in call("run", NAME, "--scale", "smoke", "--seeds", "3", *work)
    assert call("run", NAME, "--scale", "smoke", "--seeds", "3", *work).startswith(f"{NAME}: 0 s")
    listed = call("list", "--lesson", "08")
    assert "gpt1-table" in listed
    assert "1 of 4 claims recorded: 1 reproduced" in listed
    assert "mlm-recipe" not in listed
    assert "a is 2.0" in call("report", "--to", str(tmp_path / "all.html"))
    assert (tmp_path / "all.html").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run"], "Name the claims to run"),
        (["run", "gelux", "--scale", "smoke", "--out", "x"], "There is no claim 'gelux'; did you mean gelu"),
        (["run", "gelu", "--scale", "smoke"], "A smoke run proves the path and measures nothing"),
        (["list", "--lesson", "42"], "There is no lesson '42'"),
    ],
)
def test_command_line_mistakes(words: list[str], sentence: str) -> None:
    done = CliRunner().invoke(app, ["claims", *words])
    assert isinstance(done.exception, CourseError)
    assert sentence in str(done.exception)


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_behind(tmp_path: Path) -> None:
    import psutil

    words = ["claims", "run", "gelu-converges", "--scale", "smoke", "--seeds", "9", "--jobs", "2", "--out", "out"]
    run = subprocess.Popen([sys.executable, "-m", "course_lib", *words, "--work", "work"], cwd=tmp_path, env=FROM_HERE)
    workers: list[psutil.Process] = []
    for _ in range(1200):
        workers = [p for p in psutil.Process(run.pid).children() if "spawn_main" in " ".join(p.cmdline())]
        if len(workers) == 2 and list((tmp_path / "work").glob("arms/*/arm.json")):
            break
        time.sleep(0.1)
    run.kill()
    run.wait()
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert len(workers) == 2
    assert alive == []


@pytest.mark.slow
def test_side_by_side_in_processes(tmp_path: Path) -> None:
    """Two jobs at once, as a student would call it; and the second call finds everything done."""
    words = ["claims", "run", "nsp-recipe", "causal-mask", "--jobs", "2", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "course_lib", *words, "--work", str(tmp_path)]
    for expected in ("causal-mask seed 0", "causal-mask: 0 s"):
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=FROM_HERE)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
        assert "nsp-recipe: reproduced." in done.stdout
    assert read(tmp_path / "out" / "causal-mask.json").verdict == "reproduced"
