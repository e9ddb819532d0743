"""Checks of lesson 20: LoRA beside one Linear and inside it, an adapter, NF4 of one block."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.check.base import Case, Crash, Mistake, Verdict, WrongError, compare, difference, outcome, report, rng
from course_lib.peft import nf4

_SCALE = "alpha / rank, with the rank that A has rows, is missing: the update is (alpha / r) B A x."


def lora_forward(fn: object) -> Verdict:
    """`fn(x, w, bias, a, b, alpha)` -> W x + bias + (alpha / r) B A x.

    x [N I], w [O I], bias [O], a [r I], b [O r], alpha a number.
    """
    cases = [_lora_case(seed, *sizes) for seed, sizes in enumerate([(3, 5, 5, 2, 4.0), (2, 6, 4, 3, 1.0)])]

    def test() -> str:
        compare(fn, cases, _lora, _LORA_MISTAKES)
        return "the frozen product plus alpha / r times the low-rank one, two sizes"

    return report("lora_forward", test)


def lora_start(fn: object) -> Verdict:
    """`fn(linear, rank)` -> (a, b): freezes the Linear; A random [r I], B zero [O r], both to be trained."""

    def test() -> str:
        for outputs, inputs, rank in ((6, 4, 2), (5, 7, 3)):
            with torch.random.fork_rng(devices=[]):
                linear = nn.Linear(inputs, outputs)
                before = [weight.detach().clone() for weight in linear.parameters()]
                _judge_start(outcome(fn, {"linear": linear, "rank": rank}), linear, before, rank)
        return "shapes, B = 0 and A not, both trainable, the Linear frozen and as it was"

    return report("lora_start", test)


def lora_merge(fn: object) -> Verdict:
    """`fn(w, a, b, alpha)` -> the one matrix [O I] that does what W and its update do."""
    cases = [_matrices(seed, *sizes) for seed, sizes in enumerate([(5, 5, 2, 4.0), (6, 4, 3, 1.0)])]

    def test() -> str:
        compare(fn, cases, lambda w, a, b, alpha: w + alpha / len(a) * (b @ a), _MERGE_MISTAKES)
        return "one matrix for W and its update, w itself untouched, two sizes"

    return report("lora_merge", test)


def adapter_forward(fn: object) -> Verdict:
    """`fn(h, down, down_bias, up, up_bias)` -> h + up(gelu(down(h))).

    h [N D], down [m D], down_bias [m], up [D m], up_bias [D], as in nn.Linear.
    """
    cases = [_adapter_case(seed, *sizes) for seed, sizes in enumerate([(3, 6, 2), (2, 5, 5)])]

    def test() -> str:
        compare(fn, cases, _adapter, _ADAPTER_MISTAKES)
        return "down, GELU, up, and h itself added, two sizes"

    return report("adapter_forward", test)


def nf4_block(fn: object) -> Verdict:
    """`fn(block, levels)` -> (codes, scale): the number of each value's nearest level, and the divisor of the block.

    block [N]; levels [16], ascending from -1 to 1; codes Int[N] from 0 to 15; scale a tensor of one number.
    """
    cases: list[Case] = [
        {"block": 0.3 * torch.randn(64, generator=rng(seed)) - offset, "levels": nf4.levels()}
        for seed, offset in ((0, 0.0), (1, 0.4))
    ]

    def test() -> str:
        got = [_codes_and_scale(outcome(fn, case), case) for case in cases]
        _name_block_mistake(got, cases)
        return "scale by the largest magnitude, then the nearest of the 16 levels, two blocks of 64"

    return report("nf4_block", test)


# --- LoRA ---------------------------------------------------------------------------------------------------------


def _matrices(seed: int, outputs: int, inputs: int, rank: int, alpha: float) -> Case:
    draw = rng(seed)
    shapes = {"w": (outputs, inputs), "a": (rank, inputs), "b": (outputs, rank)}
    return {name: torch.randn(*shape, generator=draw) for name, shape in shapes.items()} | {"alpha": alpha}


def _lora_case(seed: int, rows: int, inputs: int, outputs: int, rank: int, alpha: float) -> Case:
    draw, parts = rng(100 + seed), _matrices(seed, outputs, inputs, rank, alpha)
    x, bias = torch.randn(rows, inputs, generator=draw), torch.randn(outputs, generator=draw)
    return {"x": x, "w": parts["w"], "bias": bias, "a": parts["a"], "b": parts["b"], "alpha": alpha}


def _lora(x: Tensor, w: Tensor, bias: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
    return x @ w.T + bias + alpha / len(a) * (x @ a.T @ b.T)


_LORA_MISTAKES = [
    Mistake(_SCALE, lambda x, w, bias, a, b, alpha: x @ w.T + bias + x @ a.T @ b.T),
    Mistake(
        "The update is multiplied by alpha, but not divided by the rank: (alpha / r) B A x.",
        lambda x, w, bias, a, b, alpha: x @ w.T + bias + alpha * (x @ a.T @ b.T),
    ),
    Mistake(
        "The update is divided by the rank, but not multiplied by alpha: (alpha / r) B A x.",
        lambda x, w, bias, a, b, alpha: x @ w.T + bias + (x @ a.T @ b.T) / len(a),
    ),
    Mistake(
        "The factor is r / alpha; it is the other way round, alpha / r.",
        lambda x, w, bias, a, b, alpha: x @ w.T + bias + len(a) / alpha * (x @ a.T @ b.T),
    ),
    Mistake(
        "The rank is the number of rows of A, which has shape [r I]; you divide by its columns.",
        lambda x, w, bias, a, b, alpha: x @ w.T + bias + alpha / a.shape[1] * (x @ a.T @ b.T),
    ),
    Mistake(
        "The frozen part is missing: LoRA adds to W x + bias, it does not replace it.",
        lambda x, w, bias, a, b, alpha: alpha / len(a) * (x @ a.T @ b.T),
    ),
    Mistake(
        "The bias is missing; it belongs to the frozen part.",
        lambda x, w, bias, a, b, alpha: x @ w.T + alpha / len(a) * (x @ a.T @ b.T),
    ),
    Mistake("The update is missing: this is the frozen Linear alone.", lambda x, w, bias, *rest: x @ w.T + bias),
    Mistake(
        "alpha / r stands before W x too; only the update is scaled.",
        lambda x, w, bias, a, b, alpha: alpha / len(a) * (x @ w.T + x @ a.T @ b.T) + bias,
    ),
    Mistake(
        "The update is subtracted; it is added.",
        lambda x, w, bias, a, b, alpha: x @ w.T + bias - alpha / len(a) * (x @ a.T @ b.T),
    ),
]

_MERGE_MISTAKES = [
    Mistake(_SCALE, lambda w, a, b, alpha: w + b @ a),
    Mistake(
        "The update is multiplied by alpha, but not divided by the rank: (alpha / r) B A.",
        lambda w, a, b, alpha: w + alpha * (b @ a),
    ),
    Mistake(
        "The update is divided by the rank, but not multiplied by alpha: (alpha / r) B A.",
        lambda w, a, b, alpha: w + (b @ a) / len(a),
    ),
    Mistake(
        "The update is in there twice: merged, and merged again. Add (alpha / r) B A once.",
        lambda w, a, b, alpha: w + 2 * alpha / len(a) * (b @ a),
    ),
    Mistake(
        "This is A B, another matrix; x meets A first, so the product is B A.",
        lambda w, a, b, alpha: w + alpha / len(a) * (a.T @ b.T),
    ),
    Mistake("This is the update alone; merged means W plus the update.", lambda w, a, b, x: x / len(a) * (b @ a)),
    Mistake("The update is subtracted, which is unmerging.", lambda w, a, b, alpha: w - alpha / len(a) * (b @ a)),
]


def _judge_start(got: Any, linear: nn.Linear, before: list[Tensor], rank: int) -> None:
    if isinstance(got, Crash):
        raise WrongError(f"It raises {type(got.error).__name__}: {str(got.error).splitlines()[0]}")
    if not isinstance(got, tuple | list) or len(got) != 2 or not all(isinstance(part, Tensor) for part in got):
        raise WrongError("It should return two tensors, a and b.")
    a, b = got
    wanted = [rank, linear.in_features], [linear.out_features, rank]
    if [list(b.shape), list(a.shape)] == list(wanted):
        raise WrongError("a and b come in the wrong order, or with their shapes exchanged: return a [r I], b [O r].")
    for name, part, shape in (("a", a, wanted[0]), ("b", b, wanted[1])):
        if list(part.shape) != shape:
            raise WrongError(f"{name} has shape {list(part.shape)}; beside {linear} with rank {rank} it is {shape}.")
    _judge_values(a, b)
    if any(weight.requires_grad for weight in linear.parameters()):
        bias_only = not linear.weight.requires_grad
        which = "The bias of the base still requires" if bias_only else "The base is not frozen: its weight requires"
        raise WrongError(f"{which} a gradient. linear.requires_grad_(False) freezes weight and bias.")
    if not all(torch.equal(w, old) for w, old in zip(linear.parameters(), before, strict=True)):
        raise WrongError("The base's weights have changed; they stay as they were pretrained.")
    for name, part in (("a", a), ("b", b)):
        if not part.requires_grad:
            raise WrongError(f"{name} requires no gradient, so nothing would train it; make it an nn.Parameter.")


def _judge_values(a: Tensor, b: Tensor) -> None:
    if not a.any() and not b.any():
        raise WrongError(
            "A and B are both zero. Then each one's gradient is zero, because it is multiplied by the other: nothing "
            "ever moves. One of them is random (A), the other zero (B)."
        )
    if a.any() and b.any():
        raise WrongError("Neither is zero, so the model starts changed by a random update. B begins at zero.")
    if b.any():
        raise WrongError(
            "It is A that is zero here. It would train, but the custom (and this check) is A random, B zero."
        )
    if len(a) > 1 and bool((a == a.flatten()[0]).all()):
        raise WrongError("All entries of A are equal, so its rows stay equal for ever: rank 1. Draw A at random.")
    if not math.isfinite(float(a.detach().abs().sum())):
        raise WrongError("A holds numbers that are not finite; torch.empty is memory as found, draw from torch.randn.")


# --- adapter ------------------------------------------------------------------------------------------------------


def _adapter_case(seed: int, rows: int, width: int, narrow: int) -> Case:
    draw = rng(seed)
    shapes = {
        "h": (rows, width), "down": (narrow, width), "down_bias": (narrow,), "up": (width, narrow), "up_bias": (width,),
    }  # fmt: skip
    return {name: torch.randn(*shape, generator=draw) for name, shape in shapes.items()}


def _adapter(h: Tensor, down: Tensor, down_bias: Tensor, up: Tensor, up_bias: Tensor) -> Tensor:
    return h + F.gelu(h @ down.T + down_bias) @ up.T + up_bias


_ADAPTER_MISTAKES = [
    Mistake(
        "h itself is not added: without this path a fresh adapter would throw away what the model knows.",
        lambda h, d, db, u, ub: F.gelu(h @ d.T + db) @ u.T + ub,
    ),
    Mistake(
        "The activation is missing; down and up would be one matrix of low rank.",
        lambda h, d, db, u, ub: h + (h @ d.T + db) @ u.T + ub,
    ),
    Mistake(
        "The activation is ReLU; GELU is asked for: F.gelu.",
        lambda h, d, db, u, ub: h + (h @ d.T + db).relu() @ u.T + ub,
    ),
    Mistake(
        "There is an activation after the way up too; only the narrow vector gets one.",
        lambda h, d, db, u, ub: h + F.gelu(F.gelu(h @ d.T + db) @ u.T + ub),
    ),
    Mistake(
        "The activation comes before the way down; it belongs between down and up.",
        lambda h, d, db, u, ub: h + (F.gelu(h) @ d.T + db) @ u.T + ub,
    ),
    Mistake("The biases are missing.", lambda h, d, db, u, ub: h + F.gelu(h @ d.T) @ u.T),
    Mistake("down_bias is missing.", lambda h, d, db, u, ub: h + F.gelu(h @ d.T) @ u.T + ub),
    Mistake("up_bias is missing.", lambda h, d, db, u, ub: h + F.gelu(h @ d.T + db) @ u.T),
]


# --- NF4 ----------------------------------------------------------------------------------------------------------


def _nearest(block: Tensor, levels: Tensor, scale: Tensor) -> Tensor:
    return (block[:, None] / scale - levels).abs().argmin(dim=1)


def _uniform(levels: Tensor) -> Tensor:
    return torch.linspace(-1, 1, len(levels))


# Scales that a student may divide by instead of the largest magnitude, and what to say then.
_SCALES = [
    (
        lambda block: block.abs().mean(),
        "The scale is the mean magnitude; it is the largest, so that nothing exceeds 1.",
    ),
    (lambda block: block.std(), "The scale is the standard deviation; it is the largest magnitude (absmax)."),
    (
        lambda block: block.max(),
        "The scale is the largest value; with the sign left out, block.abs().max(), nothing falls below -1 either.",
    ),
    (
        lambda block: block.max() - block.min(),
        "The scale is max - min; it is the largest magnitude: the levels are between -1 and 1 and hold an exact 0.",
    ),
    (lambda block: torch.ones(()), "The block is not divided by anything; its largest magnitude is the scale."),
]


def _codes_and_scale(got: Any, case: Case) -> tuple[Tensor, Tensor]:
    if isinstance(got, Crash):
        raise WrongError(difference(case, got, None))
    if not isinstance(got, tuple | list) or len(got) != 2 or not isinstance(got[0], Tensor):
        raise WrongError("It should return (codes, scale): 64 whole numbers, and one number.")
    codes, scale = got[0], torch.as_tensor(got[1]).float()
    if scale.numel() != 1:
        raise WrongError(f"The scale has shape {list(scale.shape)}; one block has one scale.")
    if codes.shape != case["block"].shape:
        raise WrongError(
            f"codes has shape {list(codes.shape)}; it needs one code a value: {list(case['block'].shape)}."
        )
    if codes.is_floating_point():
        raise WrongError("codes holds values; what is kept are their numbers in `levels`, from 0 to 15 (argmin).")
    return codes.long(), scale.reshape(())


def _name_block_mistake(got: list[tuple[Tensor, Tensor]], cases: list[Case]) -> None:
    def all_of(test: Any) -> bool:
        return all(test(codes, scale, *case.values()) for (codes, scale), case in zip(got, cases, strict=True))

    absmax = all_of(lambda c, s, block, levels: torch.allclose(s, block.abs().max()))
    if absmax and all_of(lambda c, s, block, levels: torch.equal(c, _nearest(block, levels, s))):
        return
    if absmax and all_of(lambda c, s, block, levels: torch.equal(c, _nearest(block, _uniform(levels), s))):
        raise WrongError(
            "These are the codes of 16 evenly spaced levels (linspace from -1 to 1); take the nearest of `levels`."
        )
    if absmax and all_of(lambda c, s, block, levels: torch.equal(c, _nearest(block, levels, torch.ones(())))):
        raise WrongError("The scale is right, but the block is not divided by it before its levels are looked up.")
    if absmax and all_of(lambda c, s, block, levels: torch.equal(c, _below(block / s, levels))):
        raise WrongError(
            "Each value goes to the level below it; the nearest one may be above: (x - levels).abs().argmin."
        )
    for wrong, says in _SCALES:
        if all_of(lambda c, s, block, levels, wrong=wrong: torch.allclose(s, wrong(block))):
            raise WrongError(says)
    codes, scale = got[0]
    block, levels = cases[0].values()
    if not absmax:
        raise WrongError(f"The scale is {scale:.4g}; the largest magnitude of the block is {block.abs().max():.4g}.")
    right = _nearest(block, levels, scale)
    at = int((codes != right).nonzero()[0]) if not torch.equal(codes, right) else 0
    raise WrongError(
        f"The value {block[at]:.3f} over the scale is {block[at] / scale:.3f}; it gets code {int(codes[at])} and the "
        f"nearest level is number {int(right[at])} ({levels[right[at]]:.3f})."
    )


def _below(x: Tensor, levels: Tensor) -> Tensor:
    return torch.bucketize(x, levels, right=True).sub(1).clamp(min=0)
