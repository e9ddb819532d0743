"""Lesson 14: drawing words from a generator, filling them in, the detection loss."""

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
    one_draw = (drawn == drawn[0]).all() and any(
        (draw(seed) != drawn).any() for seed in range(4, 12)
    )
    refuse(one_draw, "one_draw")
    found, wanted = torch.bincount(drawn, minlength=V) / count, row.softmax(-1)
    shares = {
        "likeliest": F.one_hot(row.argmax(), V),
        "uniform": torch.ones(V) / V,
        "inverted": (-row).softmax(-1),
    }
    for name, share in shares.items():
        refuse((found - share).abs().max() < 0.03, name)
    said = {
        name: ", ".join(f"{p:.2f}" for p in part)
        for name, part in (("found", found), ("wanted", wanted))
    }
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
    refuse(
        got.min() < 0 or got.max() >= vocabulary,
        "outside",
        token=int(got.max()),
        vocabulary=vocabulary,
    )
    return torch.as_tensor(got)


@exercise(judge=_drawn)
def sample_words(logits: Tensor, rng: Generator) -> Tensor:
    """One token a row of logits [N V], drawn by its probability: Int[N]. Every draw comes from
    `rng`.
    """
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
)
def replace_tokens(ids: Tensor, loss_mask: Tensor, sampled: Tensor) -> tuple[Tensor, Tensor]:
    """(seen, replaced): the text with the samples in it, and where it is another than before.

    ids Int[B T], the original; loss_mask Bool[B T]; sampled Int[N], for the chosen places in
    reading order."""
    seen = ids.masked_scatter(loss_mask, sampled)
    return seen, seen != ids


def _detected(g: Generator, *lengths: int) -> tuple[Tensor, Tensor, Tensor]:
    attention_mask = row_mask(*lengths)
    replaced = (torch.rand(attention_mask.shape, generator=g) < 0.4) & attention_mask
    return 2 * normal(g, *attention_mask.shape), replaced, attention_mask


@exercise(
    lambda g: [_detected(g, 6, 3, 4), _detected(g, 5, 2)],
    learns="logits",
)
def rtd_loss(logits: Tensor, replaced: Tensor, attention_mask: Tensor) -> Tensor:
    """The mean binary cross-entropy of "was it replaced?" over the real tokens.

    logits [B T], above 0 = replaced; replaced and attention_mask Bool[B T].
    """
    each = F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none")
    return each[attention_mask].mean()
