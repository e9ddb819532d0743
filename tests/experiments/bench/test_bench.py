"""The bench itself, at a tiny size: every contender runs alone, the table and the record say what was measured.

No test asserts a time: a figure is only required to be one.
"""

import json
import math

import pytest

from course_lib.errors import CourseError
from experiments.bench import __main__ as bench
from experiments.bench import contenders
from experiments.bench.contenders import NAMES, Measurement, Timing

TINY = Timing(rounds=1, steps=2, warmup=1, new=3, tiny=True)
CHEAP = [(name, c) for name, m in bench.measures().items() for c in m.contenders if c != "course_lib"]


@pytest.mark.parametrize(("measure", "contender"), CHEAP)
def test_every_contender_gives_a_figure(measure, contender):
    """In this process: two dozen fresh interpreters would take minutes. The next test starts real ones."""
    if measure == "import" and contender.startswith("transformers"):
        pytest.skip("ten seconds of import say nothing about the bench")
    found = bench.measures()[measure]
    value = found.contenders[contender](TINY)
    assert value.keys() == found.figures.keys()
    for figure, each in value.items():
        assert math.isfinite(each)
        assert each > 0 or "memory" in figure


@pytest.mark.parametrize("name", NAMES)
def test_both_sides_of_a_family_are_equally_large(name):
    """Weights, counted: the public model is built from the configuration that ours writes."""
    size = contenders.SIZES["tiny"]
    ours, theirs = (
        sum(p.numel() for p in model.parameters())
        for model in (contenders.ours(name, size), contenders.theirs(name, size))
    )
    assert theirs - ours == size.width * {"roberta": 2, "bart": 4}.get(name, 0)  # position rows that nothing uses


@pytest.fixture
def several(monkeypatch):
    """Two families of two figures each, and a clock that a contender moves by a minute."""
    clock, asked = [0.0], []
    figures = {"training": "tokens/s", "peak memory": "MiB"}
    made = {
        name: Measurement(figures, {"theirs": None, "ours": None}, against="theirs", part="families")
        for name in ("BERT", "T5")
    }

    def alone(measure, contender, timing):
        clock[0] += 60
        asked.append(measure)
        return {"training": 100.0 if contender == "ours" else 50.0, "peak memory": 30.0}

    monkeypatch.setattr(bench, "measures", lambda: made)
    monkeypatch.setattr(bench, "_alone", alone)
    monkeypatch.setattr(bench.time, "perf_counter", lambda: clock[0])
    return asked


def test_figures_measured_together_are_records_of_their_own(several):
    records = list(bench.run(Timing(rounds=1)))
    assert [r["name"] for r in records[:2]] == ["BERT: training", "BERT: peak memory"]
    assert [r["unit"] for r in records[:2]] == ["tokens/s", "MiB"] and records[0]["rows"][1]["ratio"] == 2.0


def test_minutes(several):
    list(bench.run(Timing(rounds=1), minutes=1))
    assert several == ["BERT"] * 2
    several.clear()
    list(bench.run(Timing(rounds=1), minutes=1, when={"BERT": "2026-11-21 09:00:00"}))
    assert several == ["T5"] * 2, "what had no time comes first"


@pytest.mark.slow
def test_a_run_writes_the_record_and_keeps_what_it_did_not_measure(tmp_path, capsys, monkeypatch):
    out = tmp_path / "bench.json"
    made = bench.measures()["training GPT S"].contenders
    sides = ["transformers fp32", "course fp32"]
    one = Measurement({"training": "tokens/s"}, {name: made[name] for name in sides})
    flags = ["--tiny", "--rounds", "1", "--out", str(out)]
    every = {"training GPT S": one, "generation, batch 1": one}
    monkeypatch.setattr(bench, "measures", lambda: every)

    bench.main([*flags, "--only", "training GPT S"])
    record = json.loads(out.read_text())
    assert set(record) == {"sizes", "versions", "hardware", "measures"}
    assert {"python", "torch", "transformers"} <= set(record["versions"])
    (found,) = record["measures"]
    assert found["plan"]["rounds"] == 1 and [row["contender"] for row in found["rows"]] == sides
    assert all(len(row["values"]) == 1 and row["values"][0] > 0 for row in found["rows"])
    printed = capsys.readouterr().out
    assert "training GPT S (tokens/s)" in printed and "1.00x transformers fp32" in printed

    monkeypatch.setattr(bench, "_alone", lambda *a: {"training": 5.0})
    bench.main([*flags, "--only", "generation"])
    again = json.loads(out.read_text())
    assert [m["name"] for m in again["measures"]] == ["training GPT S", "generation, batch 1"]
    assert again["measures"][0] == found


def test_figures_are_medians_and_ratios_of_medians(monkeypatch):
    values = {"theirs": [10, 30, 20], "ours": [100, 36, 1]}
    monkeypatch.setattr(bench, "measures", lambda: {"m": Measurement({"f": "unit"}, dict.fromkeys(values), "theirs")})
    turns = {name: iter(each) for name, each in values.items()}
    monkeypatch.setattr(bench, "_alone", lambda m, c, timing: {"f": next(turns[c])})
    (record,) = bench.run(Timing(rounds=3))
    theirs, ours = record["rows"]
    assert theirs["median"] == 20 and theirs["ratio"] == 1
    assert ours["median"] == 36 and ours["ratio"] == pytest.approx(1.8) and "1.80x theirs" in bench.table(record)


def test_an_unknown_measure_and_a_contender_that_fails():
    with pytest.raises(CourseError, match="No measure is called like 'tea'; there are training GPT S"):
        list(bench.run(TINY, "tea"))
    with pytest.raises(CourseError, match="The contender 'nobody' of 'import' failed: KeyError"):
        bench._alone("import", "nobody", TINY)
