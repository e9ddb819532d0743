"""Lesson 21: what an answer costs, which tokens of a row are learned, and DPO's loss."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from classroom.checks.base import normal
from classroom.checks.exercise import exercise


@exercise(
    [
        (n, *sizes, cache)
        for n, *sizes in ((124_000_000, 100, 50), (10, 7, 1), (3, 2, 4))
        for cache in (True, False)
    ],
)
def answer_flops(parameters: float, read: int, written: int, cache: bool) -> float:
    """FLOPs of one answer, 2 for each parameter and token that passes.

    With the cache each token passes once; the last one written is not read again. Without it every
    new token needs a pass over all before it."""
    passes = read + written - 1 if cache else sum(read + i for i in range(written))
    return 2.0 * parameters * passes


def _answers(g: Generator, lengths: list[int], ends: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of ids, where their answers begin, and which tokens are real."""
    width = max(ends) + 1
    attention_mask = torch.arange(width) < torch.tensor(ends)[:, None]
    ids = torch.randint(2, 50, (len(ends), width), generator=g)
    return ids * attention_mask, torch.tensor(lengths), attention_mask


@exercise(
    lambda g: [
        _answers(g, [3, 2], [6, 5]),
        _answers(g, [1, 4, 2], [7, 6, 3]),
        (torch.arange(10, 18)[None], torch.tensor([4]), torch.ones(1, 8, dtype=torch.bool)),
    ],
)
def answer_labels(ids: Tensor, lengths: Tensor, attention_mask: Tensor) -> Tensor:
    """The next token where it belongs to the answer, and -100 elsewhere; Int[B T].

    ids: Int[B T], request and answer, then padding. lengths: Int[B], the number of tokens of each
    request. attention_mask: Bool[B T], True at real tokens."""
    next_ids = ids.roll(-1, 1)
    is_real = attention_mask.roll(-1, 1)
    is_real[:, -1] = False
    place = torch.arange(1, ids.shape[1] + 1)
    return torch.where((place >= lengths[:, None]) & is_real, next_ids, -100)


@exercise(
    lambda g: [
        (*(normal(g, 5) - 20 for _ in range(4)), 0.1),
        (*(normal(g, 5) - 20 for _ in range(4)), 2.0),
        (torch.tensor([-900.0]), torch.tensor([-20.0]), *(torch.tensor([-20.0]),) * 2, 0.5),
    ],
    learns="chosen",
)
def dpo_loss(
    chosen: Tensor, rejected: Tensor, chosen_start: Tensor, rejected_start: Tensor, beta: float
) -> Tensor:
    """DPO's loss of N pairs, a scalar with a gradient (Rafailov et al. 2023, equation 7).

    chosen, rejected: Float[N], log probabilities of the preferred answers and of the others by the
    model that is trained. chosen_start, rejected_start: the same by the model at the start."""
    gain_chosen = chosen - chosen_start
    gain_rejected = rejected - rejected_start
    return -F.logsigmoid(beta * (gain_chosen - gain_rejected)).mean()
