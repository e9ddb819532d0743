"""The computed claims of lessons 18, 19 and 21: their rules come out either way, and their counts are the papers'."""

import pytest

from course_lib.claims.experiment import find
from course_lib.claims.lab import PLANS, Lab
from course_lib.experiments import computed
from course_lib.models.gpt import GPT2_SIZES, GPT3_SIZES
from tests.unit.verdicts import NO, PARTLY, YES, judged

Values = dict[str, float]


def gpt2(off: float) -> Values:
    values = {f"{what}/{size}": 1e8 for what in ("label", "with GPT-1's tables") for size in GPT2_SIZES}
    values |= {f"{what}/{size}": 1e8 for what in ("counted", "transformers") for size in GPT2_SIZES}
    return values | {"counted/355M": 1e8 * (1 + off)}


def gpt3(off: float, *odd: str) -> Values:
    values: Values = {"training GB/175B": 2800.0, "days of 1,000 V100 at 30%/175B": 97.0}
    for size in GPT3_SIZES:
        values |= {f"printed/{size}": 1e9, f"counted/{size}": 1e9, f"printed width/{size}": 768.0}
        values[f"heads x head width/{size}"] = 768.0 + 8 * (size in odd)
    return values | {"counted/13B": 1e9 * (1 - off)}


def compute(small: float, large: float, times: float) -> Values:
    values = {computed.DAYS(computed.SMALL): small, computed.DAYS(computed.LARGE): large}
    return values | {computed.PARAMETERS(computed.SMALL): 1.0, computed.PARAMETERS(computed.LARGE): times}


def comparison(*counts: float) -> Values:
    systems = ("GPT-1", "GPT-2", "GPT-3")
    values = {f"the lecture says/{name}": 1e9 for name in (*systems, "GPT-4 (estimate)")}
    return values | {f"counted/{name}": 1e9 * count for name, count in zip(systems, counts, strict=True)}


def bills(off: float, share: float) -> Values:
    values: Values = {}
    for name in computed.BERTS:
        values |= {f"device-hours/{name}": 9.0, f"the lecture says/{name}": 100.0, f"today, one A100/{name}": 9.0}
        values |= {f"hours x list price/{name}": 100.0, f"share of peak, {computed.MIDDLE}/{name}": 0.3}
    return values | {
        "hours x list price/BERT-base": 100 * (1 + off),
        f"share of peak, {computed.MIDDLE}/BERT-large": share,
    }


@pytest.mark.parametrize(
    ("claim", "values", "verdict"),
    [
        ("gpt2-sizes", gpt2(0.009), YES),
        ("gpt2-sizes", gpt2(-0.011), PARTLY),
        ("gpt2-sizes", gpt2(0.11), NO),
        ("gpt3-table", gpt3(0.019, "XL", "13B"), YES),
        ("gpt3-table", gpt3(0.021, "XL", "13B"), PARTLY),
        ("gpt3-table", gpt3(0.019, "XL"), PARTLY),
        ("gpt3-table", gpt3(0.019, "Small", "XL", "13B"), PARTLY),
        ("gpt3-table", gpt3(0.021), NO),
        ("training-compute", compute(43, 57, 9), YES),
        ("training-compute", compute(43, 57, 8.9), PARTLY),
        ("training-compute", compute(42, 57, 9), PARTLY),
        ("training-compute", compute(43, 58, 8.9), NO),
        ("gpt-comparison", comparison(0.96, 1.04, 1), YES),
        ("gpt-comparison", comparison(0.94, 1.06, 1), PARTLY),
        ("gpt-comparison", comparison(0.94, 1.06, 1.1), NO),
        ("pretraining-cost", bills(-0.09, 0.11), YES),
        ("pretraining-cost", bills(0.11, 0.5), PARTLY),
        ("pretraining-cost", bills(0.09, 1.1), PARTLY),
        ("pretraining-cost", bills(0.09, 0.09), PARTLY),
        ("pretraining-cost", bills(-0.11, 1.1), NO),
    ],
)
def test_a_rule_comes_out_either_way(claim: str, values: Values, verdict: str) -> None:
    assert judged(claim, values) == verdict


@pytest.mark.parametrize("claim", ["gpt3-table", "training-compute", "gpt-comparison", "pretraining-cost"])
def test_the_figures_are_plain_numbers(claim: str) -> None:
    found = find(claim)
    assert found is not None
    values = found.measure(Lab(PLANS["smoke"]), 0)
    assert judged(claim, values) in (YES, PARTLY)
    known = {
        "gpt3-table": ("counted/13B", 12_853_355_520),
        "training-compute": ("petaflop/s-days/GPT-3 175B", 3637.5),
        "gpt-comparison": ("counted/GPT-2", 1_557_611_200),
        "pretraining-cost": ("hours x list price/BERT-base", 384 * 1.35),
    }
    name, value = known[claim]
    assert values[name] == pytest.approx(value, rel=1e-4)


def test_the_nearest_price_is_taken() -> None:
    assert computed._nearest(1.3, (4.5, 1.35)) == 1.35
    assert computed._nearest(3.0, (4.5, 1.35)) == 4.5
