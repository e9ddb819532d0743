"""BART's five ways to spoil a text that the decoder must say again (Lewis et al. 2020, section 2.2, figure 2).

Each takes one text, ids Int[T], and returns a new one. What lies between two special tokens counts as a document; the
special tokens themselves, padding among them, stay. `noised` puts several ways one after the other.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from course_lib.corrupt.base import choose, fit, lay_out, mask_of, ordinary, share_of, stretches
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from course_lib.tokenizers import Tokenizer, Vocab


def token_masking(ids: Tensor, rng: torch.Generator, *, vocab: "Vocab", rate: float = 0.15) -> Tensor:
    """`rate` of the tokens become the mask token: ABCDEF. -> A_CD_F."""
    return ids.masked_fill(_some(ids, rng, vocab, rate), mask_of(vocab))


def token_deletion(ids: Tensor, rng: torch.Generator, *, vocab: "Vocab", rate: float = 0.15) -> Tensor:
    """`rate` of the tokens are taken out; the model must find out where: ABCDEF. -> ACDF."""
    return ids[~_some(ids, rng, vocab, rate)]


def text_infilling(
    ids: Tensor, rng: torch.Generator, *, vocab: "Vocab", rate: float = 0.3, mean: float = 3.0
) -> Tensor:
    """Spans of tokens become one mask token each; the model must find out how many are missing: ABCDEF. -> A_D_F.

    Span lengths are Poisson distributed, drawn until `rate` of the tokens is covered, and the last one is cut to fit.
    A span of length 0 puts in a mask token where nothing is missing.

    Args:
        ids: Int[T]. rate: share of the tokens covered. mean: of the span lengths.

    Known departure: no text gets longer than it was (a table of positions may end there); spans of length 0 that would
    make it so are left out. Only texts of a few tokens come to that.
    """
    spans = []
    for start, stop in stretches(ids, vocab):
        lengths = poisson_lengths(share_of(stop - start, rate), rng, mean=mean)
        spans += [(start + first, length) for first, length in lay_out(stop - start, lengths, rng)]
    return infill(ids, spans, mask_of(vocab))


def sentence_permutation(ids: Tensor, rng: torch.Generator, *, vocab: "Vocab", ends: Collection[int]) -> Tensor:
    """The sentences in random order: ABC. DE. FG. -> FG. ABC. DE.

    Args:
        ids: Int[T]. ends: ids of the tokens that end a sentence (`sentence_ends`). What follows the last of them
            counts as a sentence.
    """
    last = torch.isin(ids, torch.tensor(sorted(ends), dtype=ids.dtype, device=ids.device))
    new = ids.clone()
    for start, stop in stretches(ids, vocab):
        cuts = [start, *(start + 1 + last[start : stop - 1].nonzero()[:, 0]).tolist(), stop]
        sentences = [ids[a:b] for a, b in pairwise(cuts)]
        order = torch.randperm(len(sentences), generator=rng, device=rng.device).tolist()
        new[start:stop] = torch.cat([sentences[i] for i in order])
    return new


def document_rotation(ids: Tensor, rng: torch.Generator, *, vocab: "Vocab") -> Tensor:
    """The text begins at a random token and goes on round its end: ABC. DE. FG. -> E. FG. ABC. D"""
    new = ids.clone()
    for start, stop in stretches(ids, vocab):
        first = int(torch.randint(stop - start, (1,), generator=rng, device=rng.device))
        new[start:stop] = ids[start:stop].roll(-first)
    return new


NOISES: dict[str, Callable[..., Tensor]] = {
    "token masking": token_masking,
    "token deletion": token_deletion,
    "text infilling": text_infilling,
    "sentence permutation": sentence_permutation,
    "document rotation": document_rotation,
}


def noised(
    ids: Tensor,
    rng: torch.Generator,
    *,
    vocab: "Vocab",
    noises: Sequence[str] = ("sentence permutation", "text infilling"),
    ends: Collection[int] = (),
    rate: float | None = None,
) -> Tensor:
    """Several of `NOISES`, one after the other; by default the two that BART was trained with.

    Args:
        ids: Int[T]. noises: names. Order matters: infilling first would swallow full stops.
        ends: see `sentence_permutation`. rate: of masking, deletion and infilling, in place of their own.

    Raises:
        CourseError: no such noise; sentences to permute, but nothing said that ends one.
    """
    for name in noises:
        if name not in NOISES:
            raise CourseError(f"There is no noise {name!r}; there are {', '.join(NOISES)}.")
        options: dict[str, object] = {}
        if name == "sentence permutation":
            if not ends:
                raise CourseError("Sentences can be permuted only if `ends` says which tokens end one (sentence_ends).")
            options["ends"] = ends
        elif name != "document rotation" and rate is not None:
            options["rate"] = rate
        ids = NOISES[name](ids, rng, vocab=vocab, **options)
    return ids


def infill(ids: Tensor, spans: Sequence[tuple[int, int]], mask: int) -> Tensor:
    """One `mask` in place of each (start, length) of a text Int[T]; a length of 0 puts it in before `start`.

    >>> infill(torch.arange(6), [(1, 2), (4, 0)], mask=9).tolist()
    [0, 9, 3, 9, 4, 5]
    """
    pieces, done = [], 0
    for start, length in sorted(spans):
        pieces += [ids[done:start], ids.new_tensor([mask])]
        done = start + length
    return torch.cat([*pieces, ids[done:]])


def poisson_lengths(budget: int, rng: torch.Generator, *, mean: float = 3.0) -> list[int]:
    """Poisson span lengths, zeros among them, that add up to `budget`, in the order drawn; the last is cut to fit.

    At most `budget` of them: zeros beyond that are left out.
    """
    if mean <= 0:
        raise CourseError(f"mean is {mean}; the mean length of a span lies above 0.")
    drawn = torch.zeros(0, dtype=torch.int64, device=rng.device)
    while int(drawn.sum()) < budget:
        more = torch.poisson(torch.full((budget,), mean, device=rng.device), generator=rng)
        drawn = torch.cat([drawn, more.long()])
    lengths = fit(drawn, budget)
    spare = budget - sum(length > 0 for length in lengths)  # how many zeros there may be
    zeros = [i for i, length in enumerate(lengths) if length == 0][:spare]
    return [length for i, length in enumerate(lengths) if length > 0 or i in zeros]


def sentence_ends(tokenizer: "Tokenizer") -> tuple[int, ...]:
    """The ids of a vocabulary's full stops, question marks and exclamation marks."""
    tokens = tokenizer.tokens(range(tokenizer.vocab.size))
    return tuple(i for i, token in enumerate(tokens) if token.lstrip("Ġ▁#") in (".", "?", "!"))


def _some(ids: Tensor, rng: torch.Generator, vocab: "Vocab", rate: float) -> Tensor:
    """Bool[T]: `rate` of the ordinary tokens of a text."""
    share_of(0, rate)
    stretches(ids, vocab)
    units = torch.arange(len(ids), device=ids.device)[None]
    return choose(units, ordinary(ids, vocab)[None], rate, rng)[0]
