"""The bench itself, at a tiny size: every contender runs alone, the table and the record say what was measured.

No test asserts a time: a figure is only required to be one.
"""

import json
import math

import pytest

from course_lib import bench
from course_lib.bench import contenders, families
from course_lib.bench.contenders import Plan
from course_lib.errors import CourseError

TINY = Plan(rounds=1, steps=2, warmup=1, new=3, threads=1, clock="cpu", tiny=True)
CHEAP = [(name, c) for name, m in bench.measures().items() for c in m.contenders if c != "course_lib"]


@pytest.mark.parametrize(("measure", "contender"), CHEAP)
def test_every_contender_gives_a_figure(measure, contender):
    """In this process: two dozen fresh interpreters would take minutes. The next test starts real ones."""
    if measure == "import" and contender == "transformers":
        pytest.skip("ten seconds of import say nothing about the bench")
    found = bench.measures()[measure]
    value = found.contenders[contender](TINY)
    if found.figures:
        assert value.keys() <= found.figures.keys() if found.part == "growth" else value.keys() == found.figures.keys()
    for figure, each in (value if found.figures else {measure: value}).items():
        assert math.isfinite(each)
        assert each >= 0 or "memory" in figure if "memory" in figure else each > 0


def test_every_family_of_the_course_is_there():
    from course_lib import hf

    kinds = {family.public[0] for family in families.FAMILIES.values()}
    elsewhere = {"openai-gpt", "megatron-bert"}  # differ from GPT-2 and BERT by the place of their norms only
    assert kinds == set(hf.families()) - elsewhere


@pytest.mark.parametrize("name", ["GPT-2", "ALBERT", "DeBERTa", "T5"])
def test_both_sides_of_a_family_are_equally_large(name):
    """Weights, counted: the public model is built from the configuration that ours writes."""
    family, size = families.FAMILIES[name], contenders.SIZES["tiny"]
    ours, theirs = family.head(family.of(size)), family.theirs(size)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


@pytest.fixture
def several(monkeypatch):
    """Two measures of several figures each, and a clock that a contender moves by a minute."""
    clock, asked = [0.0], []
    made = {
        name: bench.Measure("", 0, {"theirs": None, "ours": None}, against="theirs", figures=figures, part=part)
        for name, part, figures in (
            ("BERT", "families", {"training": ("tokens/s", +1), "peak memory": ("MiB", -1)}),
            ("growth with length", "growth", {f"length {n}, {k}": (u, -1) for n in (64, 128, 256)
                                              for k, u in (("time", "ms/step"), ("memory", "MiB"))}),
        )
    }  # fmt: skip

    def alone(measure, contender, plan):
        clock[0] += 60
        asked.append((measure, contender))
        if measure == "BERT":
            return {"training": 100.0 if contender == "ours" else 50.0, "peak memory": 30.0}
        return {"length 64, time": 10.0, "length 128, time": 20.0, "length 64, memory": 3.0, "length 128, memory": 9.0}

    monkeypatch.setattr(bench, "measures", lambda: made)
    monkeypatch.setattr(bench, "_alone", alone)
    monkeypatch.setattr(bench.time, "perf_counter", lambda: clock[0])
    return asked


def test_figures_measured_together_are_records_of_their_own(several):
    records = list(bench.run(Plan(rounds=1)))
    assert [r["name"] for r in records[:2]] == ["BERT: training", "BERT: peak memory"]
    assert [r["unit"] for r in records[:2]] == ["tokens/s", "MiB"]
    assert records[0]["rows"][1]["ratio"] == 2.0
    assert len(records) == 6  # of the lengths only those that were measured
    lines = bench.overview(records).splitlines()
    assert lines[0].split() == ["BERT", "ours", "training", "2.00x,", "peak", "memory", "1.00x", "of", "theirs"]
    assert lines[1].endswith("64 to 128: time 2.00x, memory 3.00x")


def test_parts_and_minutes(several):
    assert {r["measure"] for r in bench.run(Plan(rounds=1), parts=["growth"])} == {"growth with length"}
    several.clear()
    list(bench.run(Plan(rounds=3), minutes=5))  # two minutes a round: the second measure's share begins after 2.5
    assert [measure for measure, _ in several] == ["BERT"] * 4 + ["growth with length"] * 2
    several.clear()
    list(bench.run(Plan(rounds=1), minutes=1))
    assert [measure for measure, _ in several] == ["BERT"] * 2
    several.clear()
    list(bench.run(Plan(rounds=1), minutes=1, when={"BERT": "2026-11-21 09:00:00"}))
    assert [measure for measure, _ in several] == ["growth with length"] * 2, "what had no time comes first"


@pytest.mark.slow
def test_a_run_writes_the_record_and_keeps_what_it_did_not_measure(tmp_path, capsys, monkeypatch):
    out = tmp_path / "bench.json"
    one = bench.Measure(
        "tokens/s", +1, {"transformers": contenders.loop_gpt("S"), "course fp32": contenders.train_gpt("S", "fp32")}
    )
    flags = ["--tiny", "--rounds", "1", "--steps", "1", "--clock", "cpu", "--out", str(out)]
    every = {"training GPT S": one, "generation, batch 1": one}
    monkeypatch.setattr(bench, "measures", lambda: every)

    bench.main([*flags, "--only", "training GPT S"])
    record = json.loads(out.read_text())
    assert set(record) == {"sizes", "versions", "hardware", "measures"}
    assert {"python", "torch", "transformers"} <= set(record["versions"])
    (found,) = record["measures"]
    assert found["plan"]["threads"] == 1 and found["plan"]["rounds"] == 1
    assert [row["contender"] for row in found["rows"]] == ["transformers", "course fp32"]
    assert all(len(row["values"]) == 1 and row["values"][0] > 0 for row in found["rows"])
    printed = capsys.readouterr().out
    assert "training GPT S (tokens/s)" in printed and "1.00x transformers" in printed

    monkeypatch.setattr(bench, "_alone", lambda *a: 5.0)
    bench.main([*flags, "--only", "generation"])
    again = json.loads(out.read_text())
    assert [m["name"] for m in again["measures"]] == ["training GPT S", "generation, batch 1"]
    assert again["measures"][0] == found


@pytest.fixture
def fixed(monkeypatch):
    def use(better, values, targets):
        measure = bench.Measure("unit", better, dict.fromkeys(values), against="theirs", targets=targets)
        monkeypatch.setattr(bench, "measures", lambda: {"m": measure})
        turns = {name: iter(each) for name, each in values.items()}
        monkeypatch.setattr(bench, "_alone", lambda m, c, plan: next(turns[c]))
        (record,) = bench.run(Plan(rounds=3))
        return record

    return use


def test_figures_are_medians_and_ratios_of_medians(fixed):
    record = fixed(+1, {"theirs": [10, 30, 20], "ours": [100, 36, 1]}, {"ours": [("theirs", 1.5, 2.0)]})
    theirs, ours = record["rows"]
    assert theirs["median"] == 20 and theirs["ratio"] == 1
    assert ours["median"] == 36 and ours["ratio"] == pytest.approx(1.8)
    assert "1.80x theirs (least 1.5, aim 2): least" in bench.table([record])


@pytest.mark.parametrize(
    ("better", "ours", "reached"),
    [(+1, 14, "below"), (+1, 16, "least"), (+1, 21, "aim"), (-1, 9, "below"), (-1, 8, "least"), (-1, 5, "aim")],
)
def test_targets_know_their_direction(fixed, better, ours, reached):
    goals = ("theirs", 1.5, 2.0) if better > 0 else ("theirs", 0.85, 0.6)
    record = fixed(better, {"theirs": [10] * 3, "ours": [ours] * 3}, {"ours": [goals]})
    assert [goal["reached"] for goal in record["rows"][1]["goals"]] == [reached]


def test_contenders_take_turns(monkeypatch):
    order = []
    monkeypatch.setattr(bench, "measures", lambda: {"m": bench.Measure("u", 1, {"a": None, "b": None}, against="a")})
    monkeypatch.setattr(bench, "_alone", lambda m, c, plan: order.append(c) or 1.0)
    list(bench.run(Plan(rounds=2)))
    assert order == ["a", "b", "a", "b"]


def test_an_unknown_measure_and_a_contender_that_fails():
    with pytest.raises(CourseError, match="No measure is called like 'tea'; there are training GPT S"):
        list(bench.run(TINY, "tea"))
    with pytest.raises(CourseError, match="The contender 'nobody' of 'import' failed: KeyError"):
        bench._alone("import", "nobody", TINY)


def test_a_text_that_ends_early_is_not_measured():
    import torch

    with pytest.raises(CourseError, match="stopped before the asked number"):
        contenders.generation(lambda ids: torch.cat([ids, ids[:, :1]], 1), 9, 2, TINY)


def test_every_target_names_contenders_of_its_measure():
    for measure in bench.measures().values():
        assert measure.against in measure.contenders
        for name, goals in measure.targets.items():
            assert name in measure.contenders
            for against, least, aim in goals:
                assert against in measure.contenders and measure.better * (aim - least) >= 0
