"""Random choices that the corruptions of pretraining share.

A corruption changes a text, and the model learns to restore it: BERT hides 15% of the tokens, T5
cuts out spans (runs of neighbouring tokens). Each one needs a random generator, a number of tokens
to change, and positions for them. Special tokens such as [CLS] or padding are never changed; all
other tokens are called ordinary. For example, to hide 15% of 20 tokens in spans of 2 and 1:

    rounded_share(20, 0.15)      3 tokens
    lay_out(20, [2, 1], rng)     [(10, 2), (13, 1)], that is, tokens 10, 11 and 13

Every draw comes from the `torch.Generator` that is passed in, so equal seeds give equal texts.
Shapes: B rows in a batch, T tokens in a row.
"""

import hashlib

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.vocab import Vocab


def seeded_generator(seed: int, *keys: int) -> torch.Generator:
    """Make a random generator for one purpose, for example for (seed, epoch, document).

    The numbers are hashed, so (0, 1) and (0, 2) give unrelated random numbers.
    """
    digest = hashlib.sha256(repr((seed, *keys)).encode()).digest()
    # `manual_seed` takes at most 63 bits; 8 bytes are 64, so one is dropped.
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def mask_id(vocab: Vocab) -> int:
    """The id of [MASK].

    Raises:
        CourseError: the vocabulary has no mask token.
    """
    if vocab.mask is None:
        raise CourseError(
            "Masking needs a vocabulary with a mask token; this tokenizer has none (is it a BPE"
            " one?)."
        )
    return vocab.mask


def is_ordinary(ids: Tensor, vocab: Vocab) -> Tensor:
    """Bool of the shape of `ids`: False at special tokens, True at all others.

    [UNK] counts as ordinary, because it stands for a word of the text.
    """
    special = [token for token in vocab.special if token != vocab.unk]
    return ~torch.isin(ids, torch.tensor(special, dtype=ids.dtype, device=ids.device))


def ordinary_runs(ids: Tensor, vocab: Vocab) -> list[tuple[int, int]]:
    """(start, stop) of each run of ordinary tokens in a text Int[T].

    [CLS] a b [SEP] c [SEP] has the runs (1, 3) and (4, 5).
    """
    padded = F.pad(is_ordinary(ids, vocab).int(), (1, 1))  # a 0 on each side: T + 2
    change = padded.diff()  # +1 where a run starts, -1 just after its last token: T + 1
    starts = (change == 1).nonzero()[:, 0].tolist()
    stops = (change == -1).nonzero()[:, 0].tolist()
    return list(zip(starts, stops, strict=True))


def choose_units(units: Tensor, allowed: Tensor, rate: float, rng: torch.Generator) -> Tensor:
    """Choose a share of each row's units (tokens or words): `rate` of them, rounded.

    If `rate` is above 0, at least one unit is chosen. With rate 0.5:

        units      0  0  1  2  3        word 0 has two tokens
        result     T  T  F  T  F        words 0 and 2 were drawn

    Args:
        units: Int[B T], the number of the unit that each token belongs to.
        allowed: Bool[B T], the tokens that may be chosen.
        rate: share of the units, 0 to 1.
        rng: random generator.

    Returns:
        Bool[B T], True at all allowed tokens of the chosen units.
    """
    # W, the number of units. It is at least 1, for a batch may have no unit at all.
    width = max(1, int(units.max()) + 1) if units.numel() else 1
    inside = units.clamp(min=0)  # special tokens have the number -1; they are never allowed
    present = torch.zeros(len(units), width, dtype=torch.bool, device=units.device)  # B W
    present.scatter_reduce_(1, inside, allowed, reduce="amax")
    # Each unit draws a number below 1, and the units with the smallest numbers are chosen. Units
    # that are not in the row get a larger number, so they come last.
    draws = torch.rand(present.shape, generator=rng, device=units.device)
    draws = draws.masked_fill(~present, 2.0)
    rank = draws.argsort(dim=1).argsort(dim=1)  # sorting an order gives each unit's rank in it
    total = present.sum(dim=1)  # B
    minimum = 1 if rate > 0 else 0
    count = (total * rate).round().clamp(min=minimum).minimum(total)  # B
    is_chosen = rank < count[:, None]  # B W
    return is_chosen.gather(1, inside) & allowed  # from units back to tokens: B T


def rounded_share(total: int, rate: float) -> int:
    """`rate` of `total` tokens, rounded; at least 1 if both are above 0."""
    minimum = 1 if rate > 0 else 0
    return min(total, max(minimum, round(total * rate)))


def fill_budget(lengths: Tensor, budget: int) -> list[int]:
    """The first lengths that add up to `budget`; the last of them is shortened to fit.

    >>> fill_budget(torch.tensor([2, 3, 4, 1]), budget=7)
    [2, 3, 2]
    """
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
    """Place spans of these lengths among `total` tokens, so that none overlap.

    Every arrangement and every order of the spans is equally likely.

    Args:
        total: number of tokens.
        lengths: length of each span; together at most `total`.
        rng: random generator.
        apart: leave at least one token between two spans.

    Returns:
        (start, length) of each span, from left to right.
    """
    count = len(lengths)
    outside = total - sum(lengths)  # tokens that are in no span
    # Without `apart`, imagine each span shrunk to one slot. Then `outside` tokens and `count` spans
    # stand in a row, and any `count` slots of it may be the spans. With `apart`, a slot is a gap:
    # before, between or after the outside tokens. A gap holds at most one span.
    choices = outside + 1 if apart else outside + count
    slots = torch.randperm(choices, generator=rng, device=rng.device)[:count].sort().values.tolist()
    order = torch.randperm(count, generator=rng, device=rng.device).tolist()
    spans = []
    covered = 0  # tokens in the spans to the left
    for i, (slot, number) in enumerate(zip(slots, order, strict=True)):
        outside_before = slot if apart else slot - i  # i of the slots before are spans themselves
        spans.append((outside_before + covered, lengths[number]))
        covered += lengths[number]
    return spans
