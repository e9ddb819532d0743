"""The measured claims of lessons 04 and 06: every rule can come out each way, the measures measure what they say."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib.data.world import World
from course_lib.experiments import elmo, senses, words
from tests.unit.verdicts import NO, PARTLY, YES, Values, around, judged


def sense(arms: float, mini: float) -> Values:
    values = {"static": around(0.4), "biLM/layer 2": around(0.4 + arms)[::-1], "elmo-mini/layer 2": around(0.6)}
    return values | {"elmo-mini/layer 2 minus static, low end": around(mini)}


def mix(other: bool, *gains: float) -> Values:
    values: Values = {}
    for i, (task, gain) in enumerate(zip((*elmo.COLUMNS, "sense"), gains, strict=True)):
        best = "layer 1" if other and i == 0 else "layer 2"
        values |= {f"share/{task}/{layer}": around(0.6 if layer == best else 0.2) for layer in elmo.ARMS}
        values |= {f"accuracy/{task}/mix": around(0.8 + gain), f"accuracy/{task}/layer 2": around(0.8)}
    return values


def improves(higher: int) -> Values:
    values = {f"static/{kind}": around(0.5) for kind in elmo.KINDS}
    return values | {f"static + ELMo/{k}": around(0.6 if i < higher else 0.5) for i, k in enumerate(elmo.KINDS)}


def mixes(glove: float, static: float, bert: float) -> Values:
    values = {f"two senses or more/{name}": around(0.8) for name in words.METHODS}
    values |= {"two senses or more/GloVe": around(glove)}
    return values | {"same sense/static": [0.5, 0.5, static], "same sense/bert-mini": around(bert)}


@pytest.mark.parametrize(
    ("claim", "make", "numbers", "verdict"),
    [
        ("elmo-picks-sense", sense, (0.1, 0.05), YES),
        ("elmo-picks-sense", sense, (0.01, 0.05), PARTLY),  # the interval of the small ones reaches below zero
        ("elmo-picks-sense", sense, (0.1, 0.01), PARTLY),  # elmo-mini's, with one seed
        ("elmo-picks-sense", sense, (-0.1, -0.01), NO),
        ("elmo-layer-mix", mix, (True, 0.02, 0.0, 0.0, 0.0), YES),
        ("elmo-layer-mix", mix, (False, 0.02, 0.0, 0.0, 0.0), PARTLY),  # all want the same layer
        ("elmo-layer-mix", mix, (True, 0.005, 0.0, 0.0, 0.0), PARTLY),  # no gain
        ("elmo-layer-mix", mix, (True, 0.02, -0.01, 0.0, 0.0), PARTLY),  # a loss
        ("elmo-layer-mix", mix, (False, 0.0, -0.01, 0.0, 0.0), NO),
        ("elmo-improves-baselines", improves, (6,), YES),
        ("elmo-improves-baselines", improves, (4,), PARTLY),
        ("elmo-improves-baselines", improves, (3,), NO),
        ("static-mixes-senses", mixes, (0.6, 0.5, 0.6), YES),
        ("static-mixes-senses", mixes, (0.4, 0.5, 0.6), PARTLY),  # one method separates them
        ("static-mixes-senses", mixes, (0.6, 0.51, 0.6), PARTLY),  # a static vector that hears something
        ("static-mixes-senses", mixes, (0.6, 0.5, 0.51), PARTLY),  # the reader may be at chance
        ("static-mixes-senses", mixes, (0.4, 0.5, 0.51), NO),
    ],
)
def test_rules(claim: str, make: Callable[..., Values], numbers: tuple[Any, ...], verdict: str) -> None:
    assert (claim, numbers, judged(claim, make(*numbers))) == (claim, numbers, verdict)


USES = [
    senses.Use("bank", "river", ["muddy", "bank"], 1),
    senses.Use("bank", "river", ["wet", "bank"], 1),
    senses.Use("bank", "money", ["a", "bank"], 1),
    senses.Use("play", "stage", ["the", "play"], 1),
]


def test_the_nearest_use_of_the_same_word_counts() -> None:
    other, same, drawn = elmo.nearest_use(USES)
    assert drawn.tolist() == [0.5, 0.5, 0.0, 0.0]
    vectors = torch.tensor([[1.0, 0.0], [0.9, 0.5], [0.8, 0.6], [1.0, 0.01]])
    assert elmo.hits(vectors, other, same).tolist() == [
        1.0,
        0.0,
        0.0,
        0.0,
    ]  # "play" is nearest to the first, and no rival


def test_a_mix_learns_which_layer_tells() -> None:
    """Only the middle layer knows the label: the mix finds it, and no other layer alone does as well."""
    torch.manual_seed(0)
    y = torch.randint(2, (400,))
    x = torch.randn(3, 400, 8)
    x[1, :, 0] += 4 * y
    train, test = ((x[:, part], [str(int(label)) for label in y[part]]) for part in (slice(300), slice(300, 400)))
    score, shares = elmo.fit(train, test, None, 0, 60)
    assert score > 0.9
    assert shares[1] > 0.5
    assert elmo.fit(train, test, 0, 0, 60)[0] < 0.7 < elmo.fit(train, test, 1, 0, 60)[0]


def test_sentences_their_labels_and_marks_stay_together() -> None:
    for document in World(seed=0).documents(30):
        rows = list(senses.by_sentence(document, senses.marks(document)))
        assert [word for found, _ in rows for word in found] == document["tokens"]
        for word, label in ((w, x) for found, labels in rows for w, x in zip(found, labels, strict=True)):
            assert label is None or label.split("/")[0] == word.lower()
        assert sum(label is not None for _, labels in rows for label in labels) == len(document["senses"])


def test_the_test_of_the_senses_was_not_learned() -> None:
    found = elmo.questions(True, 0)["sense"]
    learned = {senses.without_names(sentence) for sentence, _ in found["train"]}
    assert found["test"]
    assert not any(senses.without_names(sentence) in learned for sentence, _ in found["test"])
    assert all(sum(label is not None for label in labels) == 1 for _, labels in found["test"])


def test_a_neighbour_speaks_for_the_sense_beside_which_it_stands() -> None:
    river: tuple[list[str], list[str | None]] = (["muddy", "the", "bank"], [None, None, "bank/river"])
    money: tuple[list[str], list[str | None]] = (["lent", "the", "bank"], [None, None, "bank/money"])
    company = words.Company([river] * 3 + [money], ["bank"])
    assert company.senses == {"bank": ["bank/money", "bank/river"]}
    assert [company.belongs("bank", w) for w in ("muddy", "lent", "the")] == ["bank/river", "bank/money", ""]


def test_the_probe_takes_the_threshold_of_the_tune_rows() -> None:
    tune, test = torch.tensor([0.9, 0.7, 0.2, 0.1]), torch.tensor([0.8, 0.3, 0.75, 0.0])
    same = (torch.tensor([True, True, False, False]), torch.tensor([True, True, False, False]))
    assert words.threshold_probe((tune, test), same) == (1.0, 0.5)
    ones = torch.ones(4)
    assert words.threshold_probe((ones, ones), same) == (0.5, 0.5)
