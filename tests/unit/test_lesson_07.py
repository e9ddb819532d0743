"""Lesson 07: typical slips in its answers are named."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from course_lib import check

ANSWERS = {
    "last_state": """
def last_state(h, keep):
    lengths = keep.sum(1)
    return h[torch.arange(len(h)), lengths - 1]
""",
    "start_from": """
def start_from(classifier, lm):
    classifier.body.load_state_dict(lm.body.state_dict())
    return classifier
""",
    "weight_change": """
def weight_change(before, after):
    old = torch.cat([tensor.flatten() for tensor in before])
    new = torch.cat([tensor.flatten() for tensor in after])
    return ((new - old).norm() / old.norm()).item()
""",
    "layer_rates": """
def layer_rates(lr, layers, factor):
    return [lr / factor ** (layers - 1 - layer) for layer in range(layers)]
""",
}

# The answers with one slip each, and a word of the sentence that must name it.
LOAD = "classifier.body.load_state_dict(lm.body.state_dict())"
PART = "classifier.body.{0}.load_state_dict(lm.body.{0}.state_dict())"
SLIPS = [
    ("last_state", ("h[torch.arange(len(h)), lengths - 1]", "h[:, -1]"), "stands on padding"),
    ("last_state", ("h[torch.arange(len(h)), lengths - 1]", "h[:, 0]"), "first token"),
    ("last_state", ("lengths - 1]", "lengths]"), "One place too far"),
    ("last_state", ("lengths - 1]", "lengths.clamp(max=h.shape[1] - 1)]"), "One place too far"),
    ("last_state", ("h[torch.arange(len(h)), lengths - 1]", "h.mean(1)"), "padding included"),
    (
        "last_state",
        ("h[torch.arange(len(h)), lengths - 1]", "(h * keep[..., None]).sum(1) / lengths[:, None]"),
        "mean of the real tokens",
    ),
    ("last_state", ("torch.arange(len(h))", ":"), "pair rows and places"),
    ("last_state", ("lengths - 1]", "lengths.max() - 1]"), "longest row"),
    ("last_state", ("lengths - 1]", "lengths - 2]"), "numbers differ"),
    ("start_from", (LOAD, "pass"), "nothing was copied"),
    ("start_from", (LOAD, "classifier.load_state_dict(lm.state_dict())"), "a row a class"),
    ("start_from", (LOAD, "classifier.body = lm.body"), "share tensors"),
    ("start_from", (LOAD, PART.format("embed")), "Only the word vectors"),
    ("start_from", (LOAD, PART.format("lstm")), "not the word vectors"),
    ("start_from", (LOAD, "lm.body.load_state_dict(classifier.body.state_dict())"), "language model has changed"),
    ("start_from", (LOAD, LOAD + "; classifier.body.requires_grad_(False)"), "as features"),
    ("start_from", (LOAD, LOAD + "; torch.nn.init.zeros_(classifier.out.weight)"), "head `out` has changed"),
    ("start_from", ("return classifier", "return lm"), "returns the language model"),
    ("start_from", ("return classifier", "return classifier.body"), "should return the classifier"),
    ("start_from", (LOAD, "classifier.body.load(lm)"), "It raises AttributeError"),
    ("weight_change", (" / old.norm()", ""), "length of the change alone"),
    ("weight_change", ("/ old.norm()", "/ new.norm()"), "where the layer started"),
    ("weight_change", ("(new - old).norm()", "(new.norm() - old.norm())"), "two lengths"),
    ("weight_change", ("(new - old).norm() / old.norm()", "((new - old) / old).norm()"), "near zero"),
    ("weight_change", ("(new - old).norm() / old.norm()", "((new - old).norm() / old.norm()) ** 2"), "square root"),
    ("weight_change", ("in before]", "in before[:1]]", "in after]", "in after[:1]]"), "first tensor"),
    (
        "weight_change",
        (
            "((new - old).norm() / old.norm()).item()",
            "sum(((b - a).norm() / a.norm()).item() for a, b in zip(before, after)) / len(before)",
        ),
        "each tensor's own ratio",
    ),
    (
        "weight_change",
        (
            "((new - old).norm() / old.norm()).item()",
            "(sum((b - a).norm() for a, b in zip(before, after)) / sum(a.norm() for a in before)).item()",
        ),
        "right angle",
    ),
    ("layer_rates", ("(layers - 1 - layer)", "layer"), "upside down"),
    ("layer_rates", ("lr / factor", "lr * factor"), "multiply where you should divide"),
    ("layer_rates", ("lr / factor ** (layers - 1 - layer)", "lr * factor ** layer"), "top layer that has lr"),
    ("layer_rates", ("layers - 1 - layer", "layers - layer"), "top layer is divided"),
    ("layer_rates", ("lr / factor ** (layers - 1 - layer)", "lr"), "without discrimination"),
    ("layer_rates", ("** (layers - 1 - layer)", "** min(1, layers - 1 - layer)"), "same rate"),
    ("layer_rates", ("factor ** (layers - 1 - layer)", "max(1, factor * (layers - 1 - layer))"), "power of the factor"),
    ("layer_rates", ("range(layers)", "range(layers - 1)"), "list of 4"),
]  # fmt: skip


def answered(name: str, *swap: str) -> Any:
    source = ANSWERS[name]
    for old, new in zip(swap[::2], swap[1::2], strict=True):
        assert old in source
        source = source.replace(old, new)
    space: dict[str, Any] = {"torch": torch}
    exec(source, space)
    return space[name]


RIGHT = {name: answered(name) for name in ANSWERS}
WRONG = [(name, answered(name, *swap), says) for name, swap, says in SLIPS]


@pytest.mark.parametrize("name", ANSWERS)
def test_the_answer_passes(name: str) -> None:
    assert getattr(check, name)(RIGHT[name]).passed


@pytest.mark.parametrize(("name", "swap", "says"), SLIPS)
def test_a_slip_is_named(name: str, swap: tuple[str, ...], says: str) -> None:
    verdict = getattr(check, name)(answered(name, *swap))
    assert not verdict.passed
    assert says in verdict.message, verdict.message


def _by_names(classifier: Any, lm: Any) -> Any:
    own = dict(classifier.named_parameters())
    with torch.no_grad():
        for name, weight in lm.named_parameters():
            if name.startswith("body."):
                own[name].copy_(weight)
    return classifier


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("last_state", lambda h, keep: torch.stack([row[k][-1] for row, k in zip(h, keep, strict=True)])),
        ("start_from", _by_names),
        (
            "weight_change",
            lambda before, after: (
                (
                    sum(float(((a - b) ** 2).sum()) for b, a in zip(before, after, strict=True))
                    / float((parameters_to_vector(before) ** 2).sum())
                )
                ** 0.5
            ),
        ),
        ("layer_rates", lambda lr, layers, factor: torch.tensor([lr * factor**-i for i in range(layers)]).flip(0)),
    ],
)
def test_another_right_answer_passes(name: str, other: Callable[..., Any]) -> None:
    verdict = getattr(check, name)(other)
    assert verdict.passed, verdict.message


def test_a_check_leaves_the_students_random_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    for name, right in RIGHT.items():
        getattr(check, name)(right)
    assert torch.equal(torch.rand(4), expected)
