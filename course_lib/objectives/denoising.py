"""Corruptions for encoder-decoders: BART's five noises, T5's spans, a text cut in two.

BART (Lewis et al. 2020, section 2.2, figure 2): each noise takes one text, ids Int[T], and returns
a new one. What lies between two special tokens counts as a document. The special tokens themselves
stay, padding among them.

T5 (Raffel et al. 2020, section 3.1.4, figure 2): one text becomes an input and a target. A special
token that ends the text ends both.

    Thank you <X> me to your party <Y> week.    ->    <X> for inviting <Y> last <Z>
"""

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.objectives.draws import (
    choose,
    fill_budget,
    lay_out,
    mask_of,
    ordinary,
    share_of,
    stretches,
)
from course_lib.vocab import Vocab

BART_NOISES = ("sentence permutation", "text infilling")  # the two that BART was trained with


def token_masking(ids: Tensor, rng: torch.Generator, *, vocab: Vocab, rate: float = 0.15) -> Tensor:
    """`rate` of the tokens become the mask token: ABCDEF. -> A_CD_F."""
    return ids.masked_fill(_some_tokens(ids, rng, vocab, rate), mask_of(vocab))


def token_deletion(
    ids: Tensor, rng: torch.Generator, *, vocab: Vocab, rate: float = 0.15
) -> Tensor:
    """`rate` of the tokens are taken out; the model must find out where: ABCDEF. -> ACDF."""
    return ids[~_some_tokens(ids, rng, vocab, rate)]


def text_infilling(
    ids: Tensor, rng: torch.Generator, *, vocab: Vocab, rate: float = 0.3, mean: float = 3.0
) -> Tensor:
    """Spans of tokens become one mask token each: ABCDEF. -> A_D_F.

    The model must find out how many are missing. A span of length 0 is a mask token where nothing
    is missing.

    Known departure: spans of length 0 that would make a text longer than it was are left out.

    Args:
        ids: Int[T].
        rng: of the draws.
        vocab: names the special tokens.
        rate: share of the tokens to cover.
        mean: of the spans' lengths, which are Poisson distributed.
    """
    spans = []
    for start, stop in stretches(ids, vocab):
        lengths = poisson_lengths(share_of(stop - start, rate), rng, mean=mean)
        for first, length in lay_out(stop - start, lengths, rng):
            spans.append((start + first, length))
    return infill(ids, spans, mask_of(vocab))


def sentence_permutation(
    ids: Tensor, rng: torch.Generator, *, vocab: Vocab, ends: Collection[int] | None = None
) -> Tensor:
    """The sentences in random order: ABC. DE. FG. -> FG. ABC. DE.

    ends: tokens that end a sentence; the vocabulary's (`Vocab.ends`) if not given. What follows
    the last of them counts as a sentence, too.
    """
    if ends is None:
        ends = vocab.ends
        if not ends:
            raise CourseError(
                "Sentences can be permuted only if `ends` says which tokens end one; of the"
                " tokenizer's none does, for the texts that it learned from have no full stop."
            )
    is_end = torch.isin(ids, torch.tensor(sorted(ends), dtype=ids.dtype, device=ids.device))
    new = ids.clone()
    for start, stop in stretches(ids, vocab):
        inner_ends = is_end[start : stop - 1].nonzero()[:, 0]
        cuts = [start, *(start + 1 + inner_ends).tolist(), stop]
        sentences = [ids[a:b] for a, b in pairwise(cuts)]
        order = torch.randperm(len(sentences), generator=rng, device=rng.device).tolist()
        new[start:stop] = torch.cat([sentences[i] for i in order])
    return new


def document_rotation(ids: Tensor, rng: torch.Generator, *, vocab: Vocab) -> Tensor:
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
RATED = ("token masking", "token deletion", "text infilling")  # noises with a rate


def noised(
    ids: Tensor,
    rng: torch.Generator,
    *,
    vocab: Vocab,
    noises: Sequence[str] = BART_NOISES,
    ends: Collection[int] | None = None,
    rate: float | None = None,
) -> Tensor:
    """Apply several of `NOISES`, one after the other.

    Args:
        ids: Int[T].
        rng: of the draws.
        vocab: names the special tokens.
        noises: by name; by default the two that BART was trained with.
        ends: tokens that end a sentence; the vocabulary's if not given.
        rate: of masking, deletion and infilling, in place of their own.
    """
    for name in noises:
        options: dict[str, Any] = {}
        if name == "sentence permutation":
            options["ends"] = ends
        if name in RATED and rate is not None:
            options["rate"] = rate
        ids = NOISES[name](ids, rng, vocab=vocab, **options)
    return ids


def infill(ids: Tensor, spans: Sequence[tuple[int, int]], mask: int) -> Tensor:
    """Put one `mask` in place of each span of a text Int[T].

    >>> infill(torch.arange(6), [(1, 2), (4, 0)], mask=9).tolist()
    [0, 9, 3, 9, 4, 5]

    spans: (start, length) each; a length of 0 puts the mask in before `start`.
    """
    return mark_spans(ids, spans, [mask] * (len(spans) + 1)).input


def poisson_lengths(budget: int, rng: torch.Generator, *, mean: float = 3.0) -> list[int]:
    """Draw Poisson span lengths, zeros among them, that add up to `budget`.

    They come in the order drawn; the last is cut to fit. There are at most `budget` of them, so
    some zeros may be left out.
    """
    drawn = torch.zeros(0, dtype=torch.int64, device=rng.device)
    while int(drawn.sum()) < budget:
        more = torch.poisson(torch.full((budget,), mean, device=rng.device), generator=rng)
        drawn = torch.cat([drawn, more.long()])
    lengths = []
    drawn_lengths = fill_budget(drawn, budget)
    zeros_left = budget - sum(length > 0 for length in drawn_lengths)
    for length in drawn_lengths:
        if length == 0:
            if zeros_left == 0:
                continue
            zeros_left -= 1
        lengths.append(length)
    return lengths


class InputTarget(NamedTuple):
    """What the encoder reads, Int[T], and what the decoder should write, Int[U]."""

    input: Tensor
    target: Tensor


def span_corruption(
    ids: Tensor,
    rng: torch.Generator,
    *,
    vocab: Vocab,
    sentinels: Sequence[int] | None = None,
    rate: float = 0.15,
    mean: float = 3.0,
) -> InputTarget:
    """Take spans out of a text and ask for them (Raffel et al. 2020, sections 3.1.4 and 3.3.4).

    No two spans are adjacent, and every such choice is equally likely.

    Known departure: in the published code a text begins with kept tokens and ends with a span;
    here spans lie anywhere.

    Args:
        ids: Int[T].
        rng: of the draws.
        vocab: names the special tokens.
        sentinels: stand for the spans, in this order, one more than spans; the vocabulary's
            (`Vocab.sentinels`) if not given.
        rate: share of the ordinary tokens to take out, rounded.
        mean: of the spans' lengths.
    """
    sentinels = vocab.sentinels if sentinels is None else sentinels
    if not sentinels:
        raise CourseError(
            "This vocabulary has no sentinels (<extra_id_0>, ...); add_sentinels gives it some."
        )
    spans = []
    for start, stop in stretches(ids, vocab):
        total = stop - start
        noise = min(share_of(total, rate), max(total - 1, 0))  # tokens to take out
        # Between two spans a token must be left.
        count = min(max(1, round(noise / mean)), noise, total - noise + 1)
        lengths = _parts(noise, count, rng)
        for first, length in lay_out(total, lengths, rng, apart=True):
            spans.append((start + first, length))
    marked = mark_spans(ids, spans, sentinels)
    return marked._replace(target=torch.cat([marked.target, _end(ids, vocab)]))


def prefix_lm(ids: Tensor, rng: torch.Generator, *, vocab: Vocab) -> InputTarget:
    """Cut a text in two at a random position: read the first part, write the second.

    (Raffel et al. 2020, section 3.1.1.) A special token that ends the text ends both.
    """
    cuts = ordinary(ids, vocab).nonzero()[1:, 0].tolist()  # where the second part may begin
    if not cuts:
        raise CourseError(
            "A text of fewer than two tokens cannot be cut into a prefix and a continuation."
        )
    cut = cuts[int(torch.randint(len(cuts), (1,), generator=rng, device=rng.device))]
    return InputTarget(torch.cat([ids[:cut], _end(ids, vocab)]), ids[cut:])


def mark_spans(
    ids: Tensor, spans: Sequence[tuple[int, int]], sentinels: Sequence[int]
) -> InputTarget:
    """The input and the target for these spans; one last sentinel ends the target.

    >>> marked = mark_spans(torch.arange(7), [(1, 2), (5, 1)], sentinels=[90, 91, 92])
    >>> marked.input.tolist(), marked.target.tolist()
    ([0, 90, 3, 4, 91, 6], [90, 1, 2, 91, 5, 92])

    Args:
        ids: Int[T].
        spans: (start, length) each.
        sentinels: stand for the spans, from left to right, one more than spans.
    """
    if len(spans) >= len(sentinels):
        raise CourseError(
            f"{len(spans)} spans need {len(spans) + 1} sentinels; there are {len(sentinels)}."
        )
    markers = ids.new_tensor(list(sentinels))[:, None]  # S 1
    input_parts = []
    target_parts = []
    done = 0  # tokens that are in one of the parts already
    for marker, (start, length) in zip(markers, sorted(spans), strict=False):
        input_parts += [ids[done:start], marker]
        target_parts += [marker, ids[start : start + length]]
        done = start + length
    input_parts.append(ids[done:])
    target_parts.append(markers[len(spans)])
    return InputTarget(torch.cat(input_parts), torch.cat(target_parts))


def restore(input: Tensor, target: Tensor, sentinels: Sequence[int]) -> Tensor:
    """The text that `span_corruption` made an input and a target from: each span in its place.

    A sentinel that the target lacks, as in a model's own answer, stands for nothing.
    """
    spans: dict[int, list[int]] = {}
    current: list[int] = []
    for token in target.tolist():
        if token in sentinels:
            current = spans.setdefault(token, [])
        else:
            current.append(token)
    text: list[int] = []
    for token in input.tolist():
        if token in sentinels:
            text += spans.get(token, [])
        else:
            text.append(token)
    return input.new_tensor(text)


def _some_tokens(ids: Tensor, rng: torch.Generator, vocab: Vocab, rate: float) -> Tensor:
    """Bool[T]: `rate` of the ordinary tokens of a text."""
    positions = torch.arange(len(ids), device=ids.device)
    # `choose` takes rows: 1 T
    return choose(positions[None], ordinary(ids, vocab)[None], rate, rng)[0]


def _parts(total: int, parts: int, rng: torch.Generator) -> list[int]:
    """`total` in so many parts of at least 1, every way equally likely."""
    if parts == 0:
        return []
    places = torch.randperm(total - 1, generator=rng, device=rng.device)[: parts - 1]
    cuts = [0, *(1 + places.sort().values).tolist(), total]
    return [b - a for a, b in pairwise(cuts)]


def _end(ids: Tensor, vocab: Vocab) -> Tensor:
    """The special token that ends a text, Int[1], or nothing, Int[0]."""
    last = ids[-1:]
    return last[~ordinary(last, vocab)]
