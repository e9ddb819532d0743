"""The bench itself, at a tiny size: every contender runs alone, the table and the record say what
was measured.

No test asserts a time: a figure is only required to be one.
"""

import json
import math

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.objectives import losses
from lab.bench import __main__ as bench
from lab.bench import contenders, roofline
from lab.bench.contenders import NAMES, Measurement, Timing

TINY = Timing(rounds=1, steps=2, warmup=1, new=3, tiny=True)
CHEAP = [
    (name, c) for name, m in bench.measures().items() for c in m.contenders if c != "course_lib"
]


@pytest.mark.parametrize(("measure", "contender"), CHEAP)
def test_every_contender_gives_a_figure(measure, contender):
    """In this process: two dozen fresh interpreters would take minutes. The next test starts real
    ones.
    """
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
    # position rows that nothing uses
    assert theirs - ours == size.width * {"roberta": 2, "bart": 4}.get(name, 0)


@pytest.fixture
def several(monkeypatch):
    """Two families of two figures each, and a clock that a contender moves by a minute."""
    clock, asked = [0.0], []
    figures = {"training": "tokens/s", "peak memory": "MiB"}
    made = {
        name: Measurement(
            figures, {"theirs": None, "ours": None}, against="theirs", part="families"
        )
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
    assert [r["unit"] for r in records[:2]] == ["tokens/s", "MiB"] and records[0]["rows"][1][
        "ratio"
    ] == 2.0


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
    monkeypatch.setattr(
        bench,
        "measures",
        lambda: {"m": Measurement({"f": "unit"}, dict.fromkeys(values), "theirs")},
    )
    turns = {name: iter(each) for name, each in values.items()}
    monkeypatch.setattr(bench, "_alone", lambda m, c, timing: {"f": next(turns[c])})
    (record,) = bench.run(Timing(rounds=3))
    theirs, ours = record["rows"]
    assert theirs["median"] == 20 and theirs["ratio"] == 1
    assert (
        ours["median"] == 36
        and ours["ratio"] == pytest.approx(1.8)
        and "1.80x theirs" in bench.table(record)
    )


def test_an_unknown_measure_and_a_contender_that_fails():
    with pytest.raises(
        CourseError, match="No measure is called like 'tea'; there are limits, training GPT S"
    ):
        list(bench.run(TINY, "tea"))
    with pytest.raises(CourseError, match="The contender 'nobody' of 'import' failed: KeyError"):
        bench._alone("import", "nobody", TINY)


def peer_apart(model):
    """Difference of the loss of nanoGPT's model to ours, whose weights it is given, with those of
    q, k, v joined.
    """
    size = contenders.SIZES["tiny"]
    own, batch = contenders.ours("gpt", size), contenders.batches_of("gpt", size)[0]
    theirs = iter(model.parameters())
    for p in (stack := own.stack).parameters():
        p.data.normal_(std=0.3)
    pairs = [[stack.embed.tokens.weight], [stack.position.table.weight]]
    for b in stack.blocks:
        qkv = (b.attn.q, b.attn.k, b.attn.v)
        norms = [[p] for norm in (b.attn_norm, b.ff_norm) for p in norm.parameters()]
        pairs += [*norms, [m.weight for m in qkv], [m.bias for m in qkv]]
        pairs += [[p] for part in (b.attn.out, b.ff.up, b.ff.down) for p in part.parameters()]
    for mine in [*pairs, *([p] for p in stack.norm.parameters())]:
        next(theirs).data.copy_(torch.cat(mine))
    assert next(theirs, None) is None
    ids = batch["ids"]
    return abs(model(ids[:, :-1], ids[:, 1:]).item() - losses.clm(own, batch).item())


def test_the_peer_is_our_gpt2_and_one_that_is_not_is_seen():
    model = contenders.peer("gpt", contenders.SIZES["tiny"])
    assert peer_apart(model) < 1e-5
    # q, k, v in another order
    model.blocks[0].qkv.register_forward_hook(lambda module, given, out: out.roll(16, -1))
    assert peer_apart(model) > 1e-3


def test_shares():
    """6 N and attention's by hand: one layer of width 16, 8 tokens, 64 words; 11 numbers a weight
    in training.
    """
    measure = bench.measures()["training GPT S"]
    flops, moved = roofline.work(measure, "training GPT S", "course fp32", TINY)
    assert flops == 6 * (12 * 16**2 + 64 * 16) + 3 * 4 * 16 * 4.5
    n = sum(p.numel() for p in contenders.ours("gpt", contenders.SIZES["tiny"]).parameters())
    assert moved == 11 * 4 * n / 16
    names = [f"generation BART S: {way}, batch 1" for way in ("greedy", "beam")]
    one, four = (
        roofline.work(bench.measures()["generation BART S"], name, "course fp32", TINY)
        for name in names
    )
    assert one[1] == four[1] and 2 < four[0] / one[0] < 4  # four beams, one reading of the source
    row = {"contender": "course fp32", "median": 5e8 / flops}
    rows = [
        {
            "name": f"limits: {k}",
            "measure": "limits",
            "rows": [{"contender": "machine", "median": 1.0}],
            "work": {},
        }
        for k in ("fp32", "bf16", "copy")
    ]
    rows += [
        {"name": "x", "measure": "x", "rows": [row], "work": {"course fp32": (flops, flops / 4)}}
    ]
    assert roofline.draw(rows, roofline.compare(rows)) and row["share"] == pytest.approx(0.5)
