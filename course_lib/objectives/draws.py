"""What all corruptions share: random draws, the tokens they may touch, and where spans lie."""

import hashlib

import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.vocab import Vocab


def seeded_generator(seed: int, *keys: int) -> torch.Generator:
    """Make a generator of its own for (seed, keys), for example (seed, epoch, document).

    The numbers are hashed, so that neighbouring keys give unrelated streams.
    """
    digest = hashlib.sha256(repr((seed, *keys)).encode()).digest()
    # `manual_seed` takes 63 bits.
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def mask_of(vocab: Vocab) -> int:
    """The id of [MASK]; a `CourseError` if the vocabulary has none."""
    if vocab.mask is None:
        raise CourseError(
            "Masking needs a vocabulary with a mask token; this tokenizer has none (is it a BPE"
            " one?)."
        )
    return vocab.mask


def ordinary(ids: Tensor, vocab: Vocab) -> Tensor:
    """Bool of the shape of `ids`: True at text, unknown words too; False at [CLS], padding etc."""
    special = [token for token in vocab.special if token != vocab.unk]
    return ~torch.isin(ids, torch.tensor(special, dtype=ids.dtype, device=ids.device))


def stretches(ids: Tensor, vocab: Vocab) -> list[tuple[int, int]]:
    """(start, stop) of each run of ordinary tokens in a text Int[T]; special tokens lie between."""
    # +1 where a run begins, -1 just after its end
    edges = torch.nn.functional.pad(ordinary(ids, vocab).int(), (1, 1)).diff()
    starts = (edges == 1).nonzero()[:, 0].tolist()
    stops = (edges == -1).nonzero()[:, 0].tolist()
    return list(zip(starts, stops, strict=True))


def choose(units: Tensor, allowed: Tensor, rate: float, rng: torch.Generator) -> Tensor:
    """Choose `rate` of each row's units, rounded, and at least one.

    Args:
        units: Int[B T], the number of the unit (token, word) that each position belongs to.
        allowed: Bool[B T], the positions that may be chosen.
        rate: share of the units, 0 to 1.
        rng: of the draws.

    Returns:
        Bool[B T], True at all allowed positions of the chosen units.
    """
    width = int(units.max()) + 1 if units.numel() else 1
    inside = units.clamp(min=0)  # units below 0 are never allowed
    present = torch.zeros(len(units), max(width, 1), dtype=torch.bool, device=units.device)  # B W
    present.scatter_reduce_(1, inside, allowed, reduce="amax")
    # Every unit draws a number; those with the lowest ranks are chosen. Absent units come last.
    draws = torch.rand(present.shape, generator=rng, device=units.device)
    draws = draws.masked_fill(~present, 2.0)
    rank = draws.argsort(dim=1).argsort(dim=1)  # the argsort of an order is each one's rank
    total = present.sum(dim=1)  # B
    fewest = 1 if rate > 0 else 0
    count = (total * rate).round().clamp(min=fewest).minimum(total)  # B
    is_chosen = rank < count[:, None]  # B W
    return is_chosen.gather(1, inside) & allowed  # from units back to positions: B T


def share_of(total: int, rate: float) -> int:
    """`rate` of so many tokens, rounded, and at least one if there is one."""
    fewest = 1 if rate > 0 else 0
    return min(total, max(fewest, round(total * rate)))


def fill_budget(lengths: Tensor, budget: int) -> list[int]:
    """The first lengths, as many as add up to `budget`; the last one is cut to fit."""
    if budget == 0:
        return []
    ends = lengths.cumsum(0)
    last = int((ends < budget).sum())
    fitting: list[int] = lengths[: last + 1].tolist()
    fitting[-1] -= int(ends[last]) - budget
    return fitting


def lay_out(
    total: int, lengths: list[int], rng: torch.Generator, *, apart: bool = False
) -> list[tuple[int, int]]:
    """Lay spans of these lengths among `total` tokens, none overlapping.

    Every arrangement and order is equally likely.

    Args:
        total: number of tokens.
        lengths: of the spans; they add up to at most `total`.
        rng: of the draws.
        apart: whether at least one token stands between two spans.

    Returns:
        (start, length) of each span, from left to right.
    """
    count = len(lengths)
    outside = total - sum(lengths)  # tokens outside all spans
    # Shrink each span to one slot in a row of single tokens. If spans must be apart, each slot is
    # a gap between two of the tokens outside instead.
    choices = outside + 1 if apart else outside + count
    slots = torch.randperm(choices, generator=rng, device=rng.device)[:count].sort().values.tolist()
    order = torch.randperm(count, generator=rng, device=rng.device).tolist()
    spans = []
    covered = 0  # tokens in the spans to the left
    for i, (slot, number) in enumerate(zip(slots, order, strict=True)):
        outside_before = slot if apart else slot - i  # without the i spans, of one slot each
        spans.append((outside_before + covered, lengths[number]))
        covered += lengths[number]
    return spans
