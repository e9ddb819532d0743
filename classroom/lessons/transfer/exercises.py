"""Lesson 07: a text's last state, a classifier that starts from a language model, how far a layer
has moved, a learning rate for each layer."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classroom.checks.base import Crash, normal, outcome, row_mask
from classroom.checks.exercise import exercise


@exercise(
    lambda g: [
        (normal(g, 3, 6, 3), F.pad(row_mask(5, 2, 4), (0, 1))),
        (normal(g, 2, 3, 3), row_mask(1, 3)),
        (normal(g, 4, 4, 3), row_mask(4, 4, 1, 2)),
    ],
)
def last_state(h: Tensor, attention_mask: Tensor) -> Tensor:
    """The state after the last real token of each row [B H].

    h [B T H]; attention_mask Bool[B T], True at real tokens, padding on the right.
    """
    return h[torch.arange(len(h)), attention_mask.sum(1) - 1]


class _Model(nn.Module):
    """A body of two parts and a linear layer on top."""

    body: nn.ModuleDict

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.body = nn.ModuleDict(
            {"embed": nn.Embedding(9, 4), "lstm": nn.LSTM(4, 5, batch_first=True)}
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
    parts = ("body.embed", "body.lstm", "out.")
    state = {
        part: {k: v for k, v in got.state_dict().items() if k.startswith(part)} for part in parts
    }
    same = {part: [torch.equal(v, learned[k]) for k, v in state[part].items()] for part in parts}
    refuse(not any(same["body.embed"] + same["body.lstm"]), "body_random")
    refuse(not any(same["body.lstm"]), "vectors_only")
    refuse(not any(same["body.embed"]), "lstm_only")
    refuse(not all(same["body.lstm"]), "lstm_part")
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
