"""Checks of lesson 07: a text's last state, a classifier that starts from a language model, how far a layer has moved,
a learning rate for each layer."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.check.base import Case, Crash, Mistake, Verdict, WrongError, compare, difference, outcome, report, rng


def last_state(fn: object) -> Verdict:
    """`fn(h, keep)` -> the state after the last real token of each row [B H].

    h [B T H]; keep Bool[B T], True at real tokens, padding on the right.
    """
    cases = [_states(seed, lengths) for seed, lengths in enumerate([[5, 2, 4], [1, 3], [4, 4, 1, 2]])]

    def test() -> str:
        compare(fn, cases, _last, _LAST_MISTAKES)
        return "the state at each row's last real token, three paddings"

    return report("last_state", test)


def start_from(fn: object) -> Verdict:
    """`fn(classifier, lm)` -> the classifier, whose body holds a copy of the language model's; its head stays.

    Both are modules with a `body` of the same shape and an `out` of another.
    """

    def test() -> str:
        for seed in (0, 1):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                classifier, lm = _Model(2), _Model(9)
                _judge_start(fn, classifier, lm)
        return "the whole body copied, the head fresh, the language model as it was and apart, all to be trained"

    return report("start_from", test)


def weight_change(fn: object) -> Verdict:
    """`fn(before, after)` -> how far one layer has moved: |after - before| / |before| over all its weights together.

    before, after: lists of the layer's tensors.
    """
    cases = [_layer(seed, shapes) for seed, shapes in enumerate([[(4, 3), (4,)], [(2, 5), (5, 5), (3,)]])]

    def test() -> str:
        compare(fn, cases, _change, _CHANGE_MISTAKES)
        return "one number for all tensors of a layer together, two layers"

    return report("weight_change", test)


def layer_rates(fn: object) -> Verdict:
    """`fn(lr, layers, factor)` -> learning rates from the lowest layer to the top one, which has `lr`; each layer's is
    the next higher one's divided by `factor`."""
    cases: list[Case] = [{"lr": lr, "layers": n, "factor": f} for lr, n, f in ((0.01, 4, 2.6), (0.3, 3, 2.0))]

    def test() -> str:
        got = [_as_list(outcome(fn, case)) for case in cases]
        compare(lambda lr, layers, factor: got[lr == 0.3], cases, _rates, _RATE_MISTAKES)
        return "lr at the top, divided by the factor at each step down, two networks"

    return report("layer_rates", test)


# --- the last state -----------------------------------------------------------------------------------------------


def _states(seed: int, lengths: list[int]) -> Case:
    most = max(lengths) + (seed == 0)  # a column that is padding in every row
    h = torch.randn(len(lengths), most, 3, generator=rng(seed))
    return {"h": h, "keep": torch.arange(most) < torch.tensor(lengths)[:, None]}


def _last(h: Tensor, keep: Tensor) -> Tensor:
    return h[torch.arange(len(h)), keep.sum(1) - 1]


_LAST_MISTAKES = [
    Mistake(
        "This is h[:, -1], the last column: in a shorter row that stands on padding. Count the real tokens with keep.",
        lambda h, keep: h[:, -1],
    ),
    Mistake("This is the state after the first token; nearly nothing was read by then.", lambda h, keep: h[:, 0]),
    Mistake(
        "One place too far: a row of n tokens ends at place n - 1, counted from 0.",
        lambda h, keep: h[torch.arange(len(h)), keep.sum(1).clamp(max=h.shape[1] - 1)],
    ),
    Mistake(
        "One place too far: a row of n tokens ends at place n - 1, counted from 0.",
        lambda h, keep: h[torch.arange(len(h)), keep.sum(1)],
    ),
    Mistake(
        "This is the mean of the real tokens' states; asked for is the state after the last one.",
        lambda h, keep: (h * keep[..., None]).sum(1) / keep.sum(1, keepdim=True),
    ),
    Mistake("This is the mean over all places, padding included; take one place of each row.", lambda h, k: h.mean(1)),
    Mistake(
        "h is indexed by [:, lengths - 1], which takes every length from every row; pair rows and places: "
        "h[torch.arange(len(h)), lengths - 1].",
        lambda h, keep: h[:, keep.sum(1) - 1],
    ),
    Mistake(
        "The length is that of the longest row for all; each row has its own.",
        lambda h, keep: h[:, int(keep.sum(1).max()) - 1],
    ),
]


# --- a classifier that starts from a language model -----------------------------------------------------------------


class _Model(nn.Module):
    """A body of two parts and a linear layer on top."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.body = nn.ModuleDict({"embed": nn.Embedding(9, 4), "lstm": nn.LSTM(4, 5, batch_first=True)})
        self.out = nn.Linear(5, outputs)


def _judge_start(fn: object, classifier: _Model, lm: _Model) -> None:
    fresh, learned = (copy.deepcopy(model.state_dict()) for model in (classifier, lm))
    got = outcome(fn, {"classifier": classifier, "lm": lm})
    if isinstance(got, Crash):
        text = str(got.error)
        if "out.weight" in text and "size mismatch" in text:
            raise WrongError(
                "The whole state dict does not fit: the language model's `out` has a row a word, the classifier's a "
                "row a class. Copy the body only: classifier.body.load_state_dict(lm.body.state_dict())."
            )
        raise WrongError(difference({}, got, None).replace(" on ", " ").replace(" :", ":"))
    if got is lm:
        raise WrongError("It returns the language model; return the classifier.")
    if not isinstance(got, _Model) or got.out.out_features != 2:
        raise WrongError(f"It should return the classifier, and returns a {type(got).__name__}.")
    theirs = {id(weight) for weight in lm.parameters()} | {weight.data_ptr() for weight in lm.parameters()}
    if any(id(weight) in theirs or weight.data_ptr() in theirs for weight in got.parameters()):
        raise WrongError(
            "The classifier and the language model now share tensors: fine-tuning the one would change the other. "
            "Copy the values, as load_state_dict does."
        )
    if not _equal(lm.state_dict(), learned):
        raise WrongError("The language model has changed; it is read only, for other tasks start from it too.")
    state = got.state_dict()
    copied = [name for name in state if name.startswith("body.") and torch.equal(state[name], learned[name])]
    missing = [name for name in state if name.startswith("body.") and name not in copied]
    if missing:
        _name_missing(copied, missing)
    if not _equal({k: v for k, v in state.items() if k.startswith("out.")}, fresh):
        raise WrongError("The head `out` has changed; the classifier's own fresh one stays, no text has taught it.")
    if not all(weight.requires_grad for weight in got.parameters()):
        raise WrongError(
            "Some weights require no gradient. That is using the body as features; fine-tuning moves all of it."
        )


def _name_missing(copied: list[str], missing: list[str]) -> None:
    if not copied:
        raise WrongError("The body is still the random one: nothing was copied into it.")
    if all("embed" in name for name in copied):
        raise WrongError(
            "Only the word vectors were copied, as with word2vec in lesson 04; the LSTM starts from random weights."
        )
    if all("lstm" in name for name in copied):
        raise WrongError("The LSTM was copied but not the word vectors that it has learned to read.")
    raise WrongError(f"Some weights of the body were not copied: {', '.join(missing)}.")


def _equal(some: dict[str, Any], others: dict[str, Any]) -> bool:
    return all(torch.equal(value, others[name]) for name, value in some.items())


# --- how far a layer has moved --------------------------------------------------------------------------------------


def _layer(seed: int, shapes: list[tuple[int, ...]]) -> Case:
    draw = rng(seed)
    before = [(2.0 + 3 * i) * torch.randn(*shape, generator=draw) for i, shape in enumerate(shapes)]
    return {"before": before, "after": [old + torch.randn(old.shape, generator=draw) for old in before]}


def _flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def _change(before: list[Tensor], after: list[Tensor]) -> float:
    old, new = _flat(before), _flat(after)
    return float((new - old).norm() / old.norm())


def _tensorwise(before: list[Tensor], after: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    return [((b - a).norm(), a.norm()) for a, b in zip(before, after, strict=True)]


_CHANGE_MISTAKES = [
    Mistake(
        "This is the length of the change alone. A layer with more or larger weights has a longer one; divide by "
        "|before|.",
        lambda a, b: float((_flat(b) - _flat(a)).norm()),
    ),
    Mistake(
        "You divide by |after|; the change is measured against where the layer started, |before|.",
        lambda a, b: float((_flat(b) - _flat(a)).norm() / _flat(b).norm()),
    ),
    Mistake(
        "This compares the two lengths, |after| - |before|. A layer can turn without growing; take the length of the "
        "difference.",
        lambda a, b: float((_flat(b).norm() - _flat(a).norm()) / _flat(a).norm()),
    ),
    Mistake(
        "This compares the two lengths, |after| - |before|. A layer can turn without growing; take the length of the "
        "difference.",
        lambda a, b: float((_flat(b).norm() - _flat(a).norm()).abs() / _flat(a).norm()),
    ),
    Mistake(
        "This is the mean of each tensor's own ratio, so a bias counts as much as a matrix; put all weights of the "
        "layer together first.",
        lambda a, b: float(torch.stack([d / n for d, n in _tensorwise(a, b)]).mean()),
    ),
    Mistake(
        "The tensors' lengths are added. Lengths add like the sides of a right angle: squares first, root last.",
        lambda a, b: float(sum(d for d, _ in _tensorwise(a, b)) / sum(n for _, n in _tensorwise(a, b))),
    ),
    Mistake(
        "This is a ratio of squares; the square root is missing.",
        lambda a, b: float(((_flat(b) - _flat(a)).norm() / _flat(a).norm()) ** 2),
    ),
    Mistake(
        "Only the first tensor of the layer is counted.",
        lambda a, b: float((b[0] - a[0]).norm() / a[0].norm()),
    ),
    Mistake(
        "Each weight is divided by itself; one near zero then outweighs all others. Divide the two lengths.",
        lambda a, b: float(((_flat(b) - _flat(a)) / _flat(a)).norm()),
    ),
]


# --- a learning rate for each layer ---------------------------------------------------------------------------------


def _as_list(got: Any) -> Any:
    """Any sequence of numbers as a list of floats."""
    if isinstance(got, Tensor) and got.dim() == 1:
        got = got.tolist()
    if isinstance(got, list | tuple):
        return [float(rate) if isinstance(rate, int | float | Tensor) else rate for rate in got]
    return got


def _rates(lr: float, layers: int, factor: float) -> list[float]:
    return [lr / factor ** (layers - 1 - layer) for layer in range(layers)]


_RATE_MISTAKES = [
    Mistake(
        "The order is upside down: the list goes from the lowest layer, which learns slowest, to the top one.",
        lambda lr, n, f: _rates(lr, n, f)[::-1],
    ),
    Mistake(
        "You multiply where you should divide: the rates grow downwards, and the most general layer would move most.",
        lambda lr, n, f: [lr * f ** (n - 1 - i) for i in range(n)],
    ),
    Mistake(
        "The lowest layer has lr and the rates grow above it; it is the top layer that has lr.",
        lambda lr, n, f: [lr * f**i for i in range(n)],
    ),
    Mistake(
        "The top layer is divided by the factor too; it has lr itself.",
        lambda lr, n, f: [lr / f ** (n - i) for i in range(n)],
    ),
    Mistake(
        "Every layer below the top has the same rate; divide once more at each step down.",
        lambda lr, n, f: [lr / f] * (n - 1) + [lr],
    ),
    Mistake("All layers have one rate; that is fine-tuning without discrimination.", lambda lr, n, f: [lr] * n),
    Mistake(
        "The divisor grows by adding (factor, 2 factor, ...); it is a power of the factor.",
        lambda lr, n, f: [lr / (f * (n - 1 - i)) for i in range(n - 1)] + [lr],
    ),
]
