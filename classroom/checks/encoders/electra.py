"""Lesson 14: drawing words from a generator, filling them in, the detection loss, what a budget buys."""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from classroom.checks.base import answer, normal, rng, row_mask
from classroom.checks.exercise import exercise


def _drawn(fn: object) -> None:
    for row in ([1.5, -1.0, 0.5, 0.0], [-0.5, 2.0, 0.7, -3.0, 0.2]):
        _judge_draws(fn, torch.tensor(row))


def _judge_draws(fn: object, row: Tensor, count: int = 8000) -> None:
    refuse, logits, V = sample_words.refuse, row.expand(count, -1).contiguous(), len(row)

    def draw(seed: int) -> Tensor:
        return _tokens(answer(fn, {"logits": logits, "rng": rng(seed)}), count, V)

    drawn = draw(3)
    one_draw = (drawn == drawn[0]).all() and any((draw(seed) != drawn).any() for seed in range(4, 12))
    refuse(one_draw, "one_draw")
    found, wanted = torch.bincount(drawn, minlength=V) / count, row.softmax(-1)
    shares = {"likeliest": F.one_hot(row.argmax(), V), "uniform": torch.ones(V) / V, "inverted": (-row).softmax(-1)}
    for name, share in shares.items():
        refuse((found - share).abs().max() < 0.03, name)
    said = {name: ", ".join(f"{p:.2f}" for p in part) for name, part in (("found", found), ("wanted", wanted))}
    refuse((found - wanted).abs().max() > 0.03, "shares", **said)
    runs = (drawn[1:] == drawn[:-1]).float().mean()
    refuse((runs - wanted.square().sum()).abs() > 0.05, "neighbours")
    refuse(not torch.equal(draw(3), drawn), "redrawn")
    refuse(torch.equal(draw(4), drawn), "other_seed")


def _tokens(got: Any, count: int, vocabulary: int) -> Tensor:
    refuse = sample_words.refuse
    refuse(not isinstance(got, Tensor), "tensor")
    refuse(got.is_floating_point(), "dtype")
    refuse(got.shape == (count, 1), "column")
    refuse(got.shape != (count,), "shape", shape=list(got.shape), count=count)
    refuse(got.min() < 0 or got.max() >= vocabulary, "outside", token=int(got.max()), vocabulary=vocabulary)
    return torch.as_tensor(got)


@exercise(
    mistakes="""
    likeliest...: => logits.argmax(-1)
    uniform...: logits.softmax(-1) => torch.ones_like(logits)
    inverted...: logits.softmax => (-logits).softmax
    shares...: logits.softmax => (logits / 2).softmax
    one_draw...: logits.softmax => logits[:1].softmax && [:, 0] => [:, 0].expand(len(logits))
    neighbours...: logits.softmax => logits[::2].softmax && [:, 0] => [:, 0].repeat_interleave(2)
    redrawn...: , generator=rng =>
    other_seed...: generator=rng => generator=torch.Generator().manual_seed(0)
    column...: [:, 0] =>
    shape...: [:, 0] => [:3, 0]
    dtype...: => logits.softmax(-1)
    tensor...: [:, 0] => [:, 0].tolist()
    outside...: [:, 0] => [:, 0] + 9
    """,
    judge=_drawn,
)
def sample_words(logits: Tensor, rng: Generator) -> Tensor:
    """One token a row of logits [N V], drawn by its probability: Int[N]. Every draw comes from `rng`."""
    return torch.multinomial(logits.softmax(-1), 1, generator=rng)[:, 0]


@exercise(
    [
        (
            torch.tensor([[7, 5, 9, 6], [8, 5, 7, 3]]),
            torch.tensor([[False, True, False, True], [True, False, True, False]]),
            torch.tensor([5, 2, 4, 7]),  # the first and the last are the original tokens
        ),
        (
            torch.tensor([[2, 3, 4, 5, 6]]),
            torch.tensor([[True, False, True, True, False]]),
            torch.tensor([9, 4, 2]),
        ),
    ],
    """
    all_chosen: seen, seen != ids => seen, loss_mask
    inverted: seen != ids => seen == ids
    exchanged: return seen, seen != ids => return seen != ids, seen
    original: => (ids, loss_mask)
    complement: (loss_mask, sampled) => (~loss_mask, sampled.repeat(9))
    columns: ids.masked_scatter(loss_mask, sampled) => ids.T.masked_scatter(loss_mask.T, sampled).T
    reversed: (loss_mask, sampled) => (loss_mask, sampled.flip(0))
    text_only: return seen, seen != ids => return seen
    replaced_only: return seen, seen != ids => return seen != ids
    """,
)
def replace_tokens(ids: Tensor, loss_mask: Tensor, sampled: Tensor) -> tuple[Tensor, Tensor]:
    """(seen, replaced): the text with the samples in it, and where it is another than before.

    ids Int[B T], the original; loss_mask Bool[B T]; sampled Int[N], for the chosen places in reading order.
    """
    seen = ids.masked_scatter(loss_mask, sampled)
    return seen, seen != ids


def _detected(g: Generator, *lengths: int) -> tuple[Tensor, Tensor, Tensor]:
    attention_mask = row_mask(*lengths)
    replaced = (torch.rand(attention_mask.shape, generator=g) < 0.4) & attention_mask
    return 2 * normal(g, *attention_mask.shape), replaced, attention_mask


@exercise(
    lambda g: [_detected(g, 6, 3, 4), _detected(g, 5, 2)],
    """
    padding: each[attention_mask] => each
    divided_by_all: each[attention_mask] => (each * attention_mask)
    replaced_only: [attention_mask] => [replaced]
    kept_only: [attention_mask] => [attention_mask & ~replaced]
    inverted: replaced.float() => (~replaced).float()
    summed: .mean() => .sum()
    row_means: each[attention_mask] => ((each * attention_mask).sum(1) / attention_mask.sum(1))
    double_sigmoid: (logits, => (logits.sigmoid(),
    half: => -(replaced * F.logsigmoid(logits))[attention_mask].mean()
    squared: => (logits.sigmoid() - replaced.float())[attention_mask].square().mean()
    sign: return each => return -each
    unreduced: .mean() =>
    """,
)
def rtd_loss(logits: Tensor, replaced: Tensor, attention_mask: Tensor) -> Tensor:
    """The mean binary cross-entropy of "was it replaced?" over the real tokens.

    logits [B T], above 0 = replaced; replaced and attention_mask Bool[B T].
    """
    each = F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none")
    return each[attention_mask].mean()


@exercise(
    [(1_000_000, [900, 100], 32), (5_000_000, [1_100], 16), (2_500_000, [700, 90], 8)],
    """
    forward_only: 3 * =>
    twice: 3 * => 2 *
    first_model: sum(forwards) => forwards[0]
    last_model: sum(forwards) => forwards[-1]
    mean: sum(forwards) => sum(forwards) / len(forwards)
    no_batch: rows * =>
    rounded_up: int(budget // step) => math.ceil(budget / step)
    nearest: int(budget // step) => round(budget / step)
    fraction: int(budget // step) => budget / step
    one_step: int(budget // step) => step
    """,
    also=[lambda budget, forwards, rows: math.floor(budget / (3 * rows * sum(forwards)))],
)
def steps_for(budget: float, forwards: Sequence[float], rows: int) -> int:
    """How many whole training steps a budget of FLOPs pays for (int).

    forwards: FLOPs of one row's forward pass, a number for each model that is trained; rows: of a batch.
    """
    step = 3 * rows * sum(forwards)
    return int(budget // step)
