"""The experiments of lesson 16: each rule can come out every way, on the lesson's own corner of the town."""

import random
from dataclasses import replace

import pytest

from course_lib.claims.experiment import find
from course_lib.claims.lab import PLANS, Lab
from course_lib.claims.record import figure
from course_lib.experiments import bart, corner
from tests.unit.lessons import cells_of, run_cell
from tests.unit.verdicts import NO, PARTLY, YES, Values, judged

PLAN = replace(PLANS["smoke"], steps=12)
CELLS = cells_of("16_bart")


def three(value: float, spread: float) -> list[float]:
    return [value - spread, value, value + spread]


def noises(masking: float, deletion: float, infilling: float, rotation: float, permutation: float) -> Values:
    found = dict(zip((*bart.LOST, *bart.ORDER), (masking, deletion, infilling, rotation, permutation), strict=True))
    values = {f"perplexity/{name}": three(value, 0.01) for name, value in found.items()}
    return values | {"perplexity/permutation + infilling": three(9, 1)}


def classes(ours: float, encoder: float, fresh: float, spread: float = 0.001) -> Values:
    return {"BART": three(ours, spread), "encoder": three(encoder, -spread), "BART, not pretrained": three(fresh, 0.0)}


def written(rival: float, frozen: float, spread: float = 0.01) -> Values:
    rouge = {"Lead-1": 0.2, "Lead-2": 0.3, "LSTM": rival, "Transformer, not pretrained": 0.1}
    values = {f"ROUGE-2/{name}": [value] * 3 for name, value in rouge.items()}
    into = {f"BLEU/{name}": [value] * 3 for name, value in {"baseline": 5.0, "frozen": frozen}.items()}
    return values | into | {"ROUGE-2/BART": three(0.5, spread), "BLEU/tuned": three(50, 100 * spread)}


@pytest.mark.parametrize(
    ("claim", "values", "verdict"),
    [
        ("bart-which-noise", noises(1.3, 1.3, 1.1, 2.0, 2.0), YES),
        ("bart-which-noise", noises(1.1, 1.3, 1.1, 2.0, 2.0), PARTLY),
        ("bart-which-noise", noises(1.3, 1.3, 1.1, 2.0, 1.2), PARTLY),
        ("bart-which-noise", noises(1.1, 1.3, 1.1, 2.0, 1.2), NO),
        ("bart-which-noise", noises(1.3, 1.3, 2.0, 1.1, 1.1), NO),
        ("bart-classifies-too", classes(0.9, 0.9, 0.5), YES),
        ("bart-classifies-too", classes(0.9, 0.8, 0.5), YES),
        ("bart-classifies-too", classes(0.88, 0.9, 0.5, spread=0.02), PARTLY),
        ("bart-classifies-too", classes(0.8, 0.9, 0.5), NO),
        ("bart-classifies-too", classes(0.9, 0.9, 0.95), NO),
        ("bart-classifies-too", classes(0.9, 0.4, 0.5), NO),
        ("bart-generates", written(0.1, 40), YES),
        ("bart-generates", written(0.1, 60), PARTLY),
        ("bart-generates", written(0.5, 40), PARTLY),
        ("bart-generates", written(0.1, 40, spread=0.1), NO),
        ("bart-generates", written(0.6, 60), NO),
    ],
)
def test_rules(claim: str, values: Values, verdict: str) -> None:
    assert judged(claim, values) == verdict


def test_the_corner_is_the_lessons() -> None:
    space = run_cell(CELLS, "corner-words", {"random": random})
    space = run_cell(CELLS, "classify-data", run_cell(CELLS, "corner-tell", space) | {"run": Run()})
    told, own = (tell(random.Random(3)) for tell in (space["tell"], corner.story))
    assert told == own
    assert corner.told_apart(random.Random(3), 500)[:200] == space["taught"]
    event = corner.event(random.Random(4), "Mara", 1)
    assert corner.translated(random.Random(4), 1)[0]["text"].split()[-1] == "."
    assert space["event"](random.Random(4), "Mara", 1) == event


class Run:
    """A lesson's run, as far as its data ask for one."""

    seed = 0

    def pick(self, *, smoke: int, lesson: int) -> int:
        return lesson


def test_a_translated_event_says_the_same_backwards() -> None:
    rows = corner.translated(random.Random(0), 50)
    assert len({row["target"] for row in rows}) == len(rows) > 40
    for row in rows:
        place, thing, who, verb, stop = (word[::-1] for word in row["text"].split())
        assert f"{who.capitalize()} {verb} the {thing} in the {place} {stop}" == row["target"]


def test_frozen_keeps_what_was_pretrained() -> None:
    body = bart.fresh(0)
    made = bart.translator(body, 50, 0, frozen=True)
    learns = {name for name, weight in made.named_parameters() if weight.requires_grad}
    assert learns and all("front" in name or "position" in name or "blocks.0.attn" in name for name in learns)
    assert all(weight.requires_grad for weight in bart.translator(body, 50, 0, frozen=False).parameters())


@pytest.mark.parametrize("name", ["bart-which-noise", "bart-classifies-too", "bart-generates"])
def test_a_measure_gives_what_its_rule_asks_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for count in ("TUNING", "JUDGING", "TRANSLATING"):
        monkeypatch.setattr(bart, count, 2)
    test, measure = find(name), getattr(bart, name.removeprefix("bart-").replace("-", "_"))
    assert test is not None
    assert test.verdict({key: figure([value] * 2) for key, value in measure(Lab(PLAN), 0).items()})
