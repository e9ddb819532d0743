"""Lesson 07: a step of a head's training, a classifier that starts from a language model, layers
unfrozen from the top, a learning rate for each layer.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classroom.checks.base import Crash, normal, outcome
from classroom.checks.exercise import exercise


@exercise(
    lambda g: [
        (normal(g, 3, 4), normal(g, 3), normal(g, 5, 4), torch.tensor([0, 2, 1, 1, 2]), 0.5),
        (normal(g, 2, 3), normal(g, 2), normal(g, 4, 3), torch.tensor([1, 1, 0, 1]), 0.1),
    ],
)
def head_step(
    weight: Tensor, bias: Tensor, x: Tensor, labels: Tensor, lr: float
) -> tuple[Tensor, Tensor]:
    """(weight [C D], bias [C]) after one step down the gradient of the mean cross-entropy.

    x [N D] are the vectors of N texts, labels Int[N] their classes.
    """
    error = (x @ weight.T + bias).softmax(-1) - F.one_hot(labels, len(weight))
    return weight - lr * error.T @ x / len(x), bias - lr * error.mean(0)


class _Model(nn.Module):
    """A body of two parts and a linear layer on top."""

    body: nn.ModuleDict

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.body = nn.ModuleDict(
            {"embed": nn.Embedding(9, 4), "blocks": nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 5))}
        )
        self.out = nn.Linear(5, outputs)


def _started(fn: object) -> None:
    for seed in (0, 1):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            _judge_start(fn, _Model(2), _Model(9))


def _judge_start(fn: object, classifier: _Model, lm: _Model) -> None:
    refuse = start_from.refuse
    fresh, learned = (copy.deepcopy(model.state_dict()) for model in (classifier, lm))
    got = outcome(fn, {"classifier": classifier, "lm": lm})
    if isinstance(got, Crash):
        refuse(
            all(word in str(got.error) for word in ("out.weight", "size mismatch")), "whole_state"
        )
        refuse(True, "crash", kind=type(got.error).__name__, text=str(got.error).split("\n")[0])
    refuse(got is lm, "language_model")
    refuse(
        not isinstance(got, _Model) or got.out.out_features != 2,
        "other_thing",
        kind=type(got).__name__,
    )
    theirs = {weight.data_ptr() for weight in lm.parameters()}
    refuse(any(weight.data_ptr() in theirs for weight in got.parameters()), "shared")
    refuse(
        not all(torch.equal(value, learned[name]) for name, value in lm.state_dict().items()),
        "lm_changed",
    )
    parts = ("body.embed", "body.blocks", "out.")
    state = {
        part: {k: v for k, v in got.state_dict().items() if k.startswith(part)} for part in parts
    }
    same = {part: [torch.equal(v, learned[k]) for k, v in state[part].items()] for part in parts}
    refuse(not any(same["body.embed"] + same["body.blocks"]), "body_random")
    refuse(not any(same["body.blocks"]), "vectors_only")
    refuse(not any(same["body.embed"]), "blocks_only")
    refuse(not all(same["body.blocks"]), "blocks_part")
    refuse(
        not all(torch.equal(value, fresh[name]) for name, value in state["out."].items()),
        "head_changed",
    )
    refuse(not all(weight.requires_grad for weight in got.parameters()), "closed")


@exercise(judge=_started)
def start_from(classifier: _Model, lm: _Model) -> nn.Module:
    """The classifier, whose body holds a copy of the language model's; its head stays.

    Both are modules with a `body` of the same shape and an `out` of another.
    """
    classifier.body.load_state_dict(lm.body.state_dict())
    return classifier


def _unfrozen(fn: object) -> None:
    with torch.random.fork_rng(devices=[]):
        for k, before in ((1, "1111"), (4, "0000"), (2, "1001")):
            _judge_unfrozen(fn, k, [flag == "1" for flag in before])


def _judge_unfrozen(fn: object, k: int, before: list[bool]) -> None:
    refuse = unfreeze.refuse
    layers = [nn.Linear(2, 2).requires_grad_(flag) for flag in before]
    got = outcome(fn, {"layers": layers, "k": k})
    if isinstance(got, Crash):
        refuse(True, "crash", kind=type(got.error).__name__, text=str(got.error).split("\n")[0])
    refuse(any("requires_grad" in vars(layer) for layer in layers), "attribute")
    halves = [{weight.requires_grad for weight in layer.parameters()} for layer in layers]
    refuse(any(len(half) > 1 for half in halves), "half_a_layer")
    after = [half.pop() for half in halves]
    n = len(layers)
    top = [i >= n - k for i in range(n)]
    wrong = {
        "upside_down": [i < k for i in range(n)],
        "not_frozen": [old or new for old, new in zip(before, top, strict=True)],
        "not_thawed": [old and new for old, new in zip(before, top, strict=True)],
        "one_too_many": [i >= n - k - 1 for i in range(n)],
        "one_too_few": [i >= n - k + 1 for i in range(n)],
    }
    if after != top:
        for name, states in wrong.items():
            refuse(after == states, name)
        refuse(True, "others", k=k)
    same = isinstance(got, list | tuple) and [*map(id, got)] == [*map(id, layers[n - k :])]
    refuse(not same, "returned")


@exercise(judge=_unfrozen)
def unfreeze(layers: Sequence[nn.Module], k: int) -> Sequence[nn.Module]:
    """Let the top k layers learn and freeze all others; returns the top k.

    layers: from the lowest to the top one.
    """
    for i, layer in enumerate(layers):
        layer.requires_grad_(i >= len(layers) - k)
    return layers[len(layers) - k :]


def _as_list(got: Any) -> Any:
    """Any sequence of numbers as a list of floats."""
    if isinstance(got, Tensor) and got.dim() == 1:
        got = got.tolist()
    if isinstance(got, list | tuple):
        return [float(rate) if isinstance(rate, int | float | Tensor) else rate for rate in got]
    return got


@exercise(
    [(0.01, 4, 2.6), (0.3, 3, 2.0)],
    form=_as_list,
)
def layer_rates(lr: float, layers: int, factor: float) -> list[float]:
    """Learning rates from the lowest layer to the top one, which has `lr`; each is the next higher
    one's / `factor`.
    """
    return [lr / factor ** (layers - 1 - i) for i in range(layers)]
