"""Every rule can come out either way, and hangs on what its words say."""

from collections.abc import Callable

import pytest

from course_lib.experiments import bert_arms, finetuning, gpt1
from course_lib.experiments.judging import above, clearly_above, gap, names, percent, points
from tests.unit.verdicts import NO, PARTLY, YES, Values, around, judged, made

NOISE = (-0.01, 0.0, 0.01)


def averages(*pairs: tuple[str, float]) -> Values:
    return {f"{name}/average": around(value) for name, value in pairs}


def ablation(bert: float, masked: float, causal: float) -> Values:
    rows = averages(("BERT", bert), ("no NSP", masked), ("LTR, no NSP", causal), ("+ BiLSTM", causal))
    return rows | {f"{name}/questions": around(0.3) for name in bert_arms.ABLATION}


def race(start: float, end: float, tasks: float) -> Values:
    values = {}
    for step, lead in ((10, start), (100, end)):
        for name, here in (("masked", lead), ("left to right", 0.0)):
            values[f"hidden word/{name}/{step}"] = around(0.4 + here)
            values[f"tasks/{name}/{step}"] = around(0.5 + (tasks if name == "masked" and step == 100 else 0))
    return values


def sweep(*scores: float) -> Values:
    rates = dict(zip(finetuning.RATES, scores, strict=True))
    return {f"{rate:g}/{n} epochs": around(score) for n in finetuning.EPOCHS for rate, score in rates.items()}


def sizes(*perplexities: float, gain: float = 0.1) -> Values:
    values: Values = {}
    for i, value in enumerate(perplexities):
        values |= {f"perplexity/{i} x 8": around(value), f"average/{i} x 8": around(0.5 + gain * i)}
    return values


def wins(words: float, right: float, both: float) -> Values:
    values: Values = {}
    for name in ("BERT", "GPT", "biLM", "bert-mini", "gpt-mini"):
        better = name in ("BERT", "bert-mini")
        values |= {f"hidden word/{name}": around(0.4 + (words if better else 0)), f"{name}/left": around(0.3)}
        values |= {f"{name}/right": around(0.1 + (right if better else 0))}
        values |= {f"{name}/both": around(0.1 + (both if better else 0))}
    return values


def mismatch(frozen: float, tuned: float) -> Values:
    values = {f"{how}/{recipe}": around(0.5) for how in ("frozen", "fine-tuned") for recipe in ("100/0/0", "0/100/0")}
    return values | {"frozen/80/10/10": around(0.5 + frozen), "fine-tuned/80/10/10": around(0.5 + tuned)}


def tuned(elmo: float, bert: float) -> Values:
    return averages(("ELMo frozen", 0.5), ("ELMo tuned", 0.5 + elmo), ("BERT frozen", 0.5), ("BERT tuned", 0.5 + bert))


def squad(arm: float, shipped: float) -> Values:
    gains = {"from scratch": 0.0, "BERT": arm, "bert-mini's shape, from scratch": 0.0, "bert-mini": shipped}
    return {f"{what}/{name}": around(0.2 + gain) for name, gain in gains.items() for what in ("F1", "exact match")}


def swag(bert: float, shipped: float) -> Values:
    scores = {"BiLSTM+ELMo+Attn": 0.3, "GPT": 0.3, "BERT": 0.3 + bert, "gpt-mini": 0.4, "bert-mini": 0.4 + shipped}
    return {name: around(value) for name, value in scores.items()}


def glue(*scores: float) -> Values:
    return averages(*zip(finetuning.SYSTEMS, scores, strict=True))


def table(gain: float, ahead: int) -> Values:
    values = averages(("pretrained", 0.5 + gain), ("from scratch", 0.5))
    for number, task in enumerate(gpt1.TASKS):
        values[f"pretrained/{task}"] = around(0.5 + (0.1 if number < ahead else -0.1))
        values[f"from scratch/{task}"] = around(0.5)
    return values


def converges(low: float, high: float) -> Values:
    return {
        "held-out loss/GELU": [3.0, 3.0, 3.0],
        "held-out loss/ReLU": [3 + low, 3 + high, 3 + high],
        "steps": [9] * 3,
    }


def cheats(loss: float, words: float) -> Values:
    return {"loss/causal": around(4), "loss/two-sided": around(loss), "steps": [9.0] * 3,
            "hidden word/causal": around(0.4), "hidden word/two-sided": around(words)}  # fmt: skip


def writes(perplexity: float, positions: float) -> Values:
    return {"perplexity/GPT": around(10), "perplexity/BERT": around(perplexity), "perplexity/real text": around(9),
            "positions/GPT": around(100), "positions/BERT": around(positions)}  # fmt: skip


@pytest.mark.parametrize(
    ("claim", "make", "numbers", "verdict"),
    [
        ("bert-ablation", ablation, (0.8, 0.79, 0.6), YES),
        ("bert-ablation", ablation, (0.8, 0.85, 0.6), PARTLY),  # NSP harmed
        ("bert-ablation", ablation, (0.8, 0.6, 0.55), PARTLY),  # NSP mattered more
        ("bert-ablation", ablation, (0.8, 0.79, 0.81), NO),
        ("mlm-converges-slower", race, (-0.2, 0.2, 0.1), YES),
        ("mlm-converges-slower", race, (0.1, 0.2, 0.1), PARTLY),
        ("mlm-converges-slower", race, (-0.2, 0.2, -0.1), PARTLY),
        ("mlm-converges-slower", race, (0.2, -0.2, 0.1), NO),
        ("finetuning-recipe", sweep, (0.6, 0.8, 0.81, 0.7, 0.5), YES),
        ("finetuning-recipe", sweep, (0.6, 0.8, 0.81, 0.82, 0.8), PARTLY),  # no cliff
        ("finetuning-recipe", sweep, (0.5, 0.5, 0.8, 0.5, 0.5), NO),  # a peak is no plateau
        ("bert-size", sizes, (30, 25, 20, 15), YES),
        ("bert-size", sizes, (30, 20, 25, 15), PARTLY),
        ("bert-size", sizes, (15, 20, 25, 30), NO),
        ("bidirectional-wins", wins, (0.1, 0.2, 0.2), YES),
        ("bidirectional-wins", wins, (0.1, 0.05, 0.05), PARTLY),
        ("bidirectional-wins", wins, (-0.1, 0.05, 0.05), NO),
        ("mask-mismatch", mismatch, (0.1, 0.02), YES),
        ("mask-mismatch", mismatch, (0.1, -0.2), PARTLY),
        ("mask-mismatch", mismatch, (-0.1, 0.0), NO),
        ("frozen-or-tuned", tuned, (-0.05, 0.1), YES),
        ("frozen-or-tuned", tuned, (0.05, 0.1), PARTLY),
        ("frozen-or-tuned", tuned, (0.2, 0.1), NO),
        ("bert-squad", squad, (0.2, 0.4), YES),
        ("bert-squad", squad, (-0.2, 0.4), PARTLY),
        ("bert-squad", squad, (-0.1, -0.1), NO),
        ("bert-swag", swag, (0.2, 0.0), YES),
        ("bert-swag", swag, (-0.1, 0.2), PARTLY),
        ("bert-swag", swag, (-0.1, -0.1), NO),
        ("bert-glue", glue, (0.5, 0.6, 0.7, 0.8), YES),
        ("bert-glue", glue, (0.6, 0.5, 0.7, 0.8), PARTLY),
        ("bert-glue", glue, (0.8, 0.7, 0.6, 0.5), NO),
        ("gpt1-table", table, (0.1, 7), YES),
        ("gpt1-table", table, (0.1, 2), PARTLY),
        ("gpt1-table", table, (-0.1, 2), NO),
        ("gelu-converges", converges, (0.1, 0.12), YES),
        ("gelu-converges", converges, (-0.3, 0.4), PARTLY),
        ("gelu-converges", converges, (-0.1, -0.1), NO),
        ("two-sided-lm-cheats", cheats, (0.1, 0.05), YES),
        ("two-sided-lm-cheats", cheats, (3.0, 0.05), PARTLY),
        ("two-sided-lm-cheats", cheats, (3.0, 0.3), NO),
        ("bert-cannot-generate", writes, (30, 900), YES),
        ("bert-cannot-generate", writes, (12, 900), PARTLY),
        ("bert-cannot-generate", writes, (12, 200), NO),
    ],
)
def test_rules(claim: str, make: Callable[..., Values], numbers: tuple[float, ...], verdict: str) -> None:
    assert (claim, numbers, judged(claim, make(*numbers))) == (claim, numbers, verdict)


def test_words_of_the_rules() -> None:
    f = made({"a": [0.5, 0.6, 0.7], "b": [0.4, 0.5, 0.6], "c": [0.1, 0.9, 0.5], "x/t": [1, 1, 1]})
    assert clearly_above(f, "a", "b")
    assert not clearly_above(f, "a", "c")
    assert above(f, "a", "c")
    assert not above(f, "a", "b", by=0.11)
    assert gap(f, "a", "b").mean == pytest.approx(0.1)
    assert names(f, "x") == ["t"]
    assert [percent(x) for x in (0.5, 0.0321)] == ["50%", "3.2%"]
    assert points(gap(f, "a", "b")) == "+10.0 ± 0.0 points"
