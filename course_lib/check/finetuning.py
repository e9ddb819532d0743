"""Checks of lesson 10: a class read at [CLS], a batch of pairs, a frozen body."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.check.base import Case, Crash, Mistake, Verdict, WrongError, compare, outcome, report, rng


def cls_logits(fn: object) -> Verdict:
    """`fn(h, w_pool, b_pool, w, b)` -> class logits [B C]: BERT's pooler on [CLS], then one linear layer.

    h [B T D]; w_pool [D D], b_pool [D], w [C D], b [C] as in nn.Linear, an output a row.
    """
    cases = [_head_case(seed, *sizes) for seed, sizes in enumerate([(2, 6, 4, 3), (3, 5, 4, 4), (1, 4, 5, 2)])]

    def test() -> str:
        compare(fn, cases, _cls_logits, _CLS_MISTAKES)
        return "tanh of a linear layer on the first position, then class logits, three sizes"

    return report("cls_logits", test)


def pair_batch(fn: object) -> Verdict:
    """`fn(pairs, cls, sep, pad)` -> (ids Int[B T], segments Int[B T], keep Bool[B T]) of [CLS] a [SEP] b [SEP].

    pairs: list of (a, b), lists of token ids. Padding at the right: id pad, segment 0, keep False.
    """
    cases: list[Case] = [
        {"pairs": [([11, 12, 13], [21]), ([31], [41, 42])], "cls": 2, "sep": 3, "pad": 0},
        {"pairs": [([11], [21, 22]), ([31, 32, 33, 34], [41, 42, 43]), ([51], [61])], "cls": 101, "sep": 102, "pad": 9},
    ]

    def test() -> str:
        compare(fn, cases, _pair_batch, _PAIR_MISTAKES)
        return "ids, segments and keep of pairs of unlike length"

    return report("pair_batch", test)


def freeze(fn: object) -> Verdict:
    """`fn(model)` -> the parameters to be trained; the body (model.stack) is frozen, the head is not."""

    def test() -> str:
        for make in (_tagger, _classifier):
            _judge_frozen(fn, make)
        return "the head's parameters and nothing else; the body needs no gradient; no weight changed"

    return report("freeze", test)


# --- one label for the whole input ------------------------------------------------------------------------------


def _head_case(seed: int, batch: int, length: int, width: int, classes: int) -> Case:
    draw = rng(seed)
    shapes = {"h": (batch, length, width), "w_pool": (width, width), "b_pool": (width,), "w": (classes, width)}
    tensors = {name: torch.randn(*shape, generator=draw) for name, shape in shapes.items()}
    return tensors | {"b": torch.randn(classes, generator=draw)}


def _cls_logits(h: Tensor, w_pool: Tensor, b_pool: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return (h[:, 0] @ w_pool.T + b_pool).tanh() @ w.T + b


def _of(says: str, change: Callable[[Tensor], Tensor]) -> Mistake:
    """The right head on another vector than [CLS]'s."""

    def wrong(h: Tensor, w_pool: Tensor, b_pool: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return (change(h) @ w_pool.T + b_pool).tanh() @ w.T + b

    return Mistake(says, wrong)


_CLS_MISTAKES = [
    _of(
        "It reads the last token, as GPT does; BERT's class is read at [CLS], the first: h[:, 0].",
        lambda h: h[:, -1],
    ),
    _of("It reads the mean over all tokens; BERT's class is read at [CLS] alone: h[:, 0].", lambda h: h.mean(1)),
    _of("It reads the maximum over all tokens; BERT's class is read at [CLS] alone: h[:, 0].", lambda h: h.amax(1)),
    _of("It reads the second token; [CLS] stands at position 0.", lambda h: h[:, 1]),
    _of("Every token gets logits; one label for the whole input is read at [CLS] alone: h[:, 0].", lambda h: h),
    _of("h[0] is the first row of the batch; the first token of every row is h[:, 0].", lambda h: h[0]),
    Mistake("The tanh between the two layers is missing.", lambda h, wp, bp, w, b: (h[:, 0] @ wp.T + bp) @ w.T + b),
    Mistake(
        "The activation of the pooler is tanh, not ReLU.",
        lambda h, wp, bp, w, b: (h[:, 0] @ wp.T + bp).relu() @ w.T + b,
    ),
    Mistake("The pooler is left out: tanh(w_pool h + b_pool) comes first.", lambda h, wp, bp, w, b: h[:, 0] @ w.T + b),
    Mistake(
        "w_pool is used the wrong way round: a row of it is one output, so h @ w_pool.T.",
        lambda h, wp, bp, w, b: (h[:, 0] @ wp + bp).tanh() @ w.T + b,
    ),
    Mistake("The biases are missing.", lambda h, wp, bp, w, b: (h[:, 0] @ wp.T).tanh() @ w.T),
    Mistake("The bias b is missing.", lambda h, wp, bp, w, b: (h[:, 0] @ wp.T + bp).tanh() @ w.T),
    Mistake("The bias b_pool is missing.", lambda h, wp, bp, w, b: (h[:, 0] @ wp.T).tanh() @ w.T + b),
    Mistake(
        "These are probabilities; logits are asked for, the loss does the softmax itself.",
        lambda *x: _cls_logits(*x).softmax(-1),
    ),
    Mistake(
        "This is the pooled vector; the class layer (w, b) is missing.", lambda h, wp, bp, w, b: _pooled(h, wp, bp)
    ),
    Mistake("There is a tanh after the class layer too; logits are not squeezed.", lambda *x: _cls_logits(*x).tanh()),
]


def _pooled(h: Tensor, w_pool: Tensor, b_pool: Tensor) -> Tensor:
    return (h[:, 0] @ w_pool.T + b_pool).tanh()


# --- pairs ------------------------------------------------------------------------------------------------------

Pairs = Sequence[tuple[Sequence[int], Sequence[int]]]
Line = tuple[list[int], list[int]]


def _pair_batch(pairs: Pairs, cls: int, sep: int, pad: int) -> tuple[Tensor, Tensor, Tensor]:
    return _batch([_line(a, b, cls, sep) for a, b in pairs], pad)


def _line(a: Sequence[int], b: Sequence[int], cls: int, sep: int) -> Line:
    return [cls, *a, sep, *b, sep], [0] * (len(a) + 2) + [1] * (len(b) + 1)


def _batch(lines: Sequence[Line], pad: int, *, left: bool = False, fill: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    width = max(len(ids) for ids, _ in lines)

    def padded(row: list[int], value: int) -> list[int]:
        rest = [value] * (width - len(row))
        return rest + row if left else row + rest

    ids = torch.tensor([padded(ids, pad) for ids, _ in lines])
    segments = torch.tensor([padded(parts, fill) for _, parts in lines])
    keep = torch.tensor([padded([1] * len(ids), 0) for ids, _ in lines]).bool()
    return ids, segments, keep


def _lines(says: str, line: Callable[[Sequence[int], Sequence[int], int, int], Line]) -> Mistake:
    return Mistake(says, lambda pairs, cls, sep, pad: _batch([line(a, b, cls, sep) for a, b in pairs], pad))


def _after(says: str, change: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]) -> Mistake:
    return Mistake(says, lambda *given: change(*_pair_batch(*given)))


_PAIR_MISTAKES = [
    _after(
        "The segments are all 0: the model cannot tell the texts apart. Segment 1 begins after the first [SEP].",
        lambda i, s, k: (i, torch.zeros_like(s), k),
    ),
    _after(
        "The segments are the wrong way round: 0 for the first text, 1 for the second.",
        lambda i, s, k: (i, (1 - s) * k, k),
    ),
    _after(
        "The segments are the wrong way round: 0 for the first text, 1 for the second (and 0 in the padding).",
        lambda i, s, k: (i, 1 - s, k),
    ),
    _after("The padding is in segment 1; it belongs to no text and gets 0.", lambda i, s, k: (i, s | (~k).long(), k)),
    _after("keep is True everywhere: padding would be attended to.", lambda i, s, k: (i, s, torch.ones_like(k))),
    _after("keep is inverted: True where there is a real token, False at the padding.", lambda i, s, k: (i, s, ~k)),
    _after("keep leaves out the special tokens; only padding is False.", lambda i, s, k: (i, s, _ordinary(i, k))),
    _after("keep is the second of the three; the order is ids, segments, keep.", lambda i, s, k: (i, k, s)),
    _after("The segments are missing; without them the two texts are one.", lambda i, s, k: (i, k)),
    _after("It returns the ids only; segments and keep are asked for as well.", lambda i, s, k: (i,)),
    _lines("The first [SEP] belongs to the first text: segment 0.", lambda a, b, c, s: _parts(a, b, c, s, 1, 2)),
    _lines("The last [SEP] is missing.", lambda a, b, c, s: ([c, *a, s, *b], [0] * (len(a) + 2) + [1] * len(b))),
    _lines(
        "The [SEP] between the texts is missing.",
        lambda a, b, c, s: ([c, *a, *b, s], [0] * (len(a) + 1) + [1] * (len(b) + 1)),
    ),
    _lines(
        "[CLS] at the beginning is missing.",
        lambda a, b, c, s: ([*a, s, *b, s], [0] * (len(a) + 1) + [1] * (len(b) + 1)),
    ),
    _lines("The texts have changed places.", lambda a, b, c, s: _line(b, a, c, s)),
    Mistake(
        "The padding stands at the left; BERT's positions count from [CLS], so it goes to the right.",
        lambda pairs, c, s, p: _batch([_line(a, b, c, s) for a, b in pairs], p, left=True),
    ),
    Mistake(
        "The padding has id 0; it is the argument pad.",
        lambda pairs, c, s, p: _batch([_line(a, b, c, s) for a, b in pairs], 0),
    ),
]


def _ordinary(ids: Tensor, keep: Tensor) -> Tensor:
    """Neither [CLS] (each row's first), nor [SEP] (its last real token), nor padding."""
    last = ids.gather(1, keep.sum(1, keepdim=True) - 1)
    return keep & (ids != ids[:, :1]) & (ids != last)


def _parts(a: Sequence[int], b: Sequence[int], cls: int, sep: int, first: int, second: int) -> Line:
    return _line(a, b, cls, sep)[0], [0] * (len(a) + first) + [1] * (len(b) + second)


# --- frozen or tuned --------------------------------------------------------------------------------------------


def _tiny() -> nn.Module:
    from course_lib.models.bert import bert
    from course_lib.stack import Stack

    return Stack(bert(20, width=8, layers=2, heads=2, length=8))


def _tagger() -> nn.Module:
    from course_lib.heads import Tagger

    return Tagger(_tiny(), 3)  # type: ignore[arg-type]


def _classifier() -> nn.Module:
    from course_lib.heads import Classifier

    return Classifier(_tiny(), 2)  # type: ignore[arg-type]


def _judge_frozen(fn: object, make: Callable[[], nn.Module]) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = make()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        value = outcome(fn, {"model": model})
    if isinstance(value, Crash):
        raise WrongError(f"It raises {type(value.error).__name__}: {str(value.error).strip().splitlines()[0]}")
    chosen = _parameters(value)
    name_of = {id(p): name for name, p in model.named_parameters()}
    if strange := [p for p in chosen if not isinstance(p, nn.Parameter) or id(p) not in name_of]:
        raise WrongError(
            f"It should return a list of the model's parameters; one of its entries is a {type(strange[0]).__name__}."
        )
    if any(not torch.equal(value, model.state_dict()[name]) for name, value in before.items()):
        raise WrongError("It changes weights; freezing only says which of them are trained.")
    trained = {name_of[id(p)] for p in chosen}
    body = {name for name in name_of.values() if name.startswith("stack.")}
    open_body = {name for name, p in model.named_parameters() if name in body and p.requires_grad}
    _judge_body(trained & body, open_body, body)
    head = set(name_of.values()) - body
    if closed := sorted(name for name, p in model.named_parameters() if name in head and not p.requires_grad):
        raise WrongError(f"The head is frozen too ({closed[0]}): nothing would learn. Freeze model.stack only.")
    if missing := sorted(head - trained):
        raise WrongError(f"A part of the head is not in the list: {', '.join(missing[:3])}.")
    if len(chosen) != len(trained):
        raise WrongError("A parameter stands in the list twice; an optimizer would take its step twice.")


def _judge_body(listed: set[str], open_body: set[str], body: set[str]) -> None:
    if listed and open_body == body:
        raise WrongError("Nothing is frozen: the body's parameters are in the list and still require gradients.")
    if listed and not open_body:
        raise WrongError(
            "The frozen body is left in the optimizer. It gets no gradient, so AdamW skips it today, but keeps it in "
            "its groups and moves it as soon as anyone unfreezes it. Return the head's parameters only."
        )
    if open_body == body:
        raise WrongError(
            "The body is not in the list, but its parameters still require gradients: they would be computed at every "
            "step and thrown away. model.stack.requires_grad_(False)."
        )
    if open_body:
        raise WrongError(
            f"Only a part of the body is frozen; {sorted(open_body)[0]} and {len(open_body) - 1} more still require "
            "gradients. model.stack.requires_grad_(False) reaches all."
        )
    if listed:
        raise WrongError(f"A part of the body is in the list: {sorted(listed)[0]}.")


def _parameters(value: Any) -> list[Any]:
    """What the student lists: parameters, named parameters, or an optimizer's."""
    if isinstance(value, torch.optim.Optimizer):
        return [p for group in value.param_groups for p in group["params"]]
    if isinstance(value, Tensor | str) or not isinstance(value, Iterable):
        raise WrongError(f"It should return a list of parameters, and returns a {type(value).__name__}.")
    return list(value)
