"""The claims of lessons 11, 13 and 15, which read shipped bodies: every rule can come out either way; mentions, links
and ways to use layers by hand."""

from collections.abc import Callable

import pytest
import torch

from course_lib.data.searches import KINDS
from course_lib.experiments import distil, inside, sbert
from tests.unit.verdicts import NO, PARTLY, YES, Values, around, judged


def syntax(det: float, obj: float, coreference: float) -> Values:
    """By how much the best head is ahead of the best rule; random weights are far below."""
    values: Values = {}
    for relation, lead in (("det", det), ("obj", obj), ("coreference", coreference)):
        values |= {f"best head/{relation}": around(0.6 + lead), f"random weights/{relation}": around(0.2)}
        values |= {f"{rule}/{relation}": around(0.6 - 0.1 * n) for n, rule in enumerate(inside.RULES[relation])}
    return values


def lucky(random_weights: float) -> Values:
    return syntax(0.1, 0.1, 0.1) | {f"random weights/{r}": around(random_weights) for r in inside.RULES}


def layers(blocks: float, mixed: float) -> Values:
    values = {
        "layer 0": around(0.6),
        "layer 1": around(0.6 + blocks),
        "layer 2": around(0.8),
        "fine-tuned": around(0.9),
    }
    return values | {name: around(0.8 + mixed - 0.1 * n) for n, name in enumerate(inside.MIXED)}


def students(kept: float, taught: float, small: float = 0.6) -> Values:
    values: Values = {"parameters/BERT-base": [100.0] * 3, "parameters/DistilBERT": [100 * small] * 3}
    values |= {"milliseconds/teacher": [2.0] * 3, "milliseconds/student": [1.0] * 3}
    at = {"teacher": 0.8, "distilled": 0.8 * kept, "no teacher": 0.8 * kept - taught}
    for name in ("teacher", "cut, untrained", *distil.ARMS):
        values |= {f"masked words/{name}": around(0.5), f"score/{name}": around(at.get(name, 0.7))}
    return values


def pooling(static: float, mean: float, trained: float) -> Values:
    """Averaged GloVe over averaged BERT, that one over CLS, and S-BERT over the best of them."""
    best = max(static, mean, 0) + 30
    return {
        "STS/avg GloVe": around(30 + static + max(mean, 0)),
        "STS/avg BERT": around(30 + max(mean, 0)),
        "STS/BERT CLS": around(30 + max(mean, 0) - mean),
        "STS/S-BERT softmax": around(best + abs(static) + trained),
        "STS/shared words": around(20),
    }


def retrieval(hard: float, hybrid: float) -> Values:
    values: Values = {}
    for kind in (*KINDS, "all"):
        for name in (*sbert.OTHERS, sbert.OWN, "hybrid"):
            values[f"MRR, {kind}/{name}"] = around(0.4)
    values[f"MRR, {sbert.HARDEST}/{sbert.OWN}"] = around(0.4 + hard)
    return values | {"MRR, all/hybrid": around(0.4 + hybrid)}


@pytest.mark.parametrize(
    ("claim", "make", "numbers", "verdict"),
    [
        ("heads-learn-syntax", syntax, (0.06, 0.2, 0.1), YES),
        ("heads-learn-syntax", syntax, (0.04, 0.2, 0.1), PARTLY),  # ahead, and not by five points
        ("heads-learn-syntax", syntax, (0.0, 0.2, -0.3), PARTLY),
        ("heads-learn-syntax", syntax, (0.0, 0.04, -0.3), NO),
        ("heads-learn-syntax", lucky, (0.2,), YES),
        ("heads-learn-syntax", lucky, (0.68,), NO),  # random weights do as well
        ("layers-as-features", layers, (0.1, 0.05), YES),
        ("layers-as-features", layers, (-0.1, 0.05), PARTLY),
        ("layers-as-features", layers, (0.1, -0.05), PARTLY),
        ("layers-as-features", layers, (-0.1, -0.05), NO),
        ("distilbert", students, (1.0, 0.1), YES),
        ("distilbert", students, (1.0, 0.0), PARTLY),
        ("distilbert", students, (0.8, 0.1), PARTLY),
        ("distilbert", students, (0.8, 0.0), NO),
        ("distilbert", students, (1.0, 0.0, 0.5), NO),  # one of three, and not the size
        ("distilbert", students, (1.0, 0.1, 0.5), NO),
        ("sbert-pooling", pooling, (10, 10, 10), YES),
        ("sbert-pooling", pooling, (10, 10, -5), PARTLY),  # ahead of two of the three
        ("sbert-pooling", pooling, (-10, 10, 10), PARTLY),
        ("sbert-pooling", pooling, (-10, 10, -30), PARTLY),
        ("sbert-pooling", pooling, (-10, -10, -30), NO),
        ("dense-retrieval", retrieval, (0.2, 0.1), YES),
        ("dense-retrieval", retrieval, (0.2, 0.0), PARTLY),
        ("dense-retrieval", retrieval, (-0.2, 0.1), PARTLY),
        ("dense-retrieval", retrieval, (0.0, 0.0), NO),
    ],
)
def test_rules(claim: str, make: Callable[..., Values], numbers: tuple[float, ...], verdict: str) -> None:
    assert (claim, numbers, judged(claim, make(*numbers))) == (claim, numbers, verdict)


STORY = {  # the wolf saw a sheep ; it saw the wolf
    "tokens": ["The", "wolf", "saw", "a", "sheep", "It", "saw", "the", "wolf"],
    "heads": [1, 2, -1, 4, 2, 6, -1, 8, 6],
    "mentions": [
        {"start": 0, "end": 2, "entity": "wolf"},
        {"start": 3, "end": 5, "entity": "sheep"},
        {"start": 5, "end": 6, "entity": "sheep"},
        {"start": 7, "end": 9, "entity": "wolf"},
    ],
}


def test_a_mention_is_asked_for_an_earlier_one_of_its_own() -> None:
    assert list(inside.mentions(STORY)) == [(5, [1, 4], [4]), (8, [1, 4, 5], [1])]


def test_links_of_the_rules_and_of_a_head() -> None:
    heads = torch.zeros(2, 9, 9)
    heads[0, :, 1] = heads[1, :, 4] = 1  # the one always at the first wolf, the other at the sheep
    found = inside.links([heads[None]], [STORY])
    assert found.T.tolist() == [[True, True, False, True], [False, True, True, False]]  # nearest, same word, two heads


def test_a_head_is_chosen_on_one_set_and_scored_on_the_other() -> None:
    assert inside.best(torch.tensor([[0.1, 0.9], [0.2, 0.3]]), torch.tensor([[0.7, 0.4], [0.6, 0.5]])) == pytest.approx(
        0.4
    )


def test_ways_to_use_layers() -> None:
    x = torch.randn(6, 3, 2)
    made_of = inside.features(x)
    assert list(made_of) == [*(f"layer {i}" for i in range(6)), *inside.MIXED]
    assert torch.equal(made_of["layer 5"], x[5])
    assert torch.allclose(made_of["sum of all"], x.sum(0))
    assert torch.allclose(made_of["last 4, summed"], x[2:].sum(0))
    assert torch.equal(made_of["last 4, side by side"][:, :2], x[2])
    assert made_of["last 4, side by side"].shape == (3, 8)


def test_shared_words() -> None:
    assert sbert.overlap("The wolf saw a sheep.", "A sheep saw the lamp") == pytest.approx(4 / 6)
