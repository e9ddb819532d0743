"""What all corruptions share: the generator of their draws, the tokens that are never touched, where spans lie."""

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from course_lib.errors import CourseError

if TYPE_CHECKING:
    from course_lib.tokenizers import Vocab

IGNORE = -100  # the label of a position that carries no loss; F.cross_entropy's own default


class Corrupted(NamedTuple):
    """What the model sees, what it should say, and where it is asked.

    ids Int[B T]: the corrupted input. labels Int[B T]: the original token at the chosen positions, -100
    elsewhere. at Bool[B T]: the chosen positions, 15% of the real tokens by default, whatever stands there
    now.
    """

    ids: Tensor
    labels: Tensor
    at: Tensor


def generator(seed: int, *keys: int) -> torch.Generator:
    """A generator of its own for (seed, keys), e.g. (seed, epoch, document): equal numbers, equal draws.

    The numbers are hashed, so that neighbouring keys give unrelated streams.
    """
    digest = hashlib.sha256(repr((seed, *keys)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def choose(units: Tensor, may: Tensor, rate: float, rng: torch.Generator) -> Tensor:
    """Bool[B T]: all positions of `rate` of each row's units (words), among the positions that `may` be
    chosen."""
    width = int(units.max()) + 1 if units.numel() else 0
    present = torch.zeros(len(units), max(width, 1), dtype=torch.bool, device=units.device)  # B W
    inside = units.clamp(min=0)
    present.scatter_reduce_(1, inside, may, reduce="amax")
    order = torch.rand(present.shape, generator=rng, device=units.device).masked_fill(~present, 2.0)
    rank = order.argsort(dim=1).argsort(dim=1)  # of each unit in its row's random order
    there = present.sum(dim=1)
    count = (there * rate).round().clamp(min=1 if rate > 0 else 0).minimum(there)
    return (rank < count[:, None]).gather(1, inside) & may


def ordinary(ids: Tensor, vocab: "Vocab") -> Tensor:
    """Bool of the shape of `ids`: text, unknown words too; not padding, [CLS], [SEP] and the like."""
    special = [i for i in vocab.special if i != vocab.unk]
    return ~torch.isin(ids, torch.tensor(special, dtype=ids.dtype, device=ids.device))


def stretches(ids: Tensor, vocab: "Vocab") -> list[tuple[int, int]]:
    """(start, past the end) of each run of ordinary tokens of a text Int[T]; special tokens lie between them.

    Raises:
        CourseError: more than one text.
    """
    if ids.dim() != 1:
        raise CourseError(f"This corrupts one text at a time, ids Int[T]; these have the shape {tuple(ids.shape)}.")
    edges = torch.nn.functional.pad(ordinary(ids, vocab).int(), (1, 1)).diff()
    return list(zip((edges == 1).nonzero()[:, 0].tolist(), (edges == -1).nonzero()[:, 0].tolist(), strict=True))


def fit(lengths: Tensor, budget: int) -> list[int]:
    """The first of these lengths, as many as it takes to add up to `budget`; the last one is cut to fit."""
    if budget == 0:
        return []
    ends = lengths.cumsum(0)
    last = int((ends < budget).sum())
    if last == len(ends):
        raise CourseError(f"{len(ends)} spans add up to {int(ends[-1])} tokens, not to {budget}; draw more of them.")
    fitting: list[int] = lengths[: last + 1].tolist()
    fitting[-1] -= int(ends[last]) - budget
    return fitting


def lay_out(total: int, lengths: list[int], rng: torch.Generator, *, apart: bool = False) -> list[tuple[int, int]]:
    """Where spans of these lengths lie among `total` tokens: (start, length) from left to right, none overlapping.

    Their order is shuffled, and every arrangement is equally likely. apart: at least one token between two spans.
    """
    free, n = total - sum(lengths), len(lengths)
    slots = torch.randperm(free + (1 if apart else n), generator=rng, device=rng.device)[:n].sort().values.tolist()
    order = torch.randperm(n, generator=rng, device=rng.device).tolist()
    spans, covered = [], 0
    for i, (slot, which) in enumerate(zip(slots, order, strict=True)):
        spans.append((slot - (0 if apart else i) + covered, lengths[which]))
        covered += lengths[which]
    return spans


def check_rate(rate: float) -> None:
    """Raises CourseError for a share outside 0 to 1."""
    if not 0 <= rate <= 1:
        raise CourseError(f"rate is {rate}; the share of tokens to mask lies between 0 and 1.")


def share_of(total: int, rate: float) -> int:
    """`rate` of so many tokens, rounded, at least one if there is one."""
    check_rate(rate)
    return min(total, max(1 if rate > 0 else 0, round(total * rate)))


def mask_of(vocab: "Vocab") -> int:
    """The id of [MASK]."""
    if vocab.mask is None:
        raise CourseError("Masking needs a vocabulary with a mask token; this tokenizer has none (is it a BPE one?).")
    return vocab.mask
