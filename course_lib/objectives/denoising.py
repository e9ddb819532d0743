"""Denoising: corrupt a text, and train an encoder-decoder to write the original.

BART (Lewis et al. 2020, section 2.2, figure 2) has five kinds of noise. Each is a function that
takes one text, ids Int[T], and returns a corrupted copy, for example `token_deletion`:

    ABCDEF. -> ACDF.

T5 (Raffel et al. 2020, section 3.1.4, figure 2) replaces spans (runs of neighbouring tokens) by
sentinels, the special tokens <X>, <Y>, <Z>. The model reads the input and writes only the spans:

    Thank you <X> me to your party <Y> week.    ->    <X> for inviting <Y> last <Z>

No noise changes special tokens. All other tokens are called ordinary, and the special tokens
divide the text: in [CLS] A B [SEP] C D [SEP], A B and C D are corrupted separately. A random
generator `rng` makes every choice.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.objectives.draws import (
    choose_units,
    fill_budget,
    is_ordinary,
    lay_out,
    mask_id,
    ordinary_runs,
    rounded_share,
)
from course_lib.vocab import Vocab

BART_NOISES = ("sentence permutation", "text infilling")  # the two that BART was trained with


def token_masking(ids: Tensor, rng: torch.Generator, *, vocab: Vocab, rate: float = 0.15) -> Tensor:
    """Replace a share `rate` of the tokens by the mask token: ABCDEF. -> A_CD_F."""
    return ids.masked_fill(_some_tokens(ids, rng, vocab, rate), mask_id(vocab))


def token_deletion(
    ids: Tensor, rng: torch.Generator, *, vocab: Vocab, rate: float = 0.15
) -> Tensor:
    """Delete a share `rate` of the tokens: ABCDEF. -> ACDF.

    The model must also find out where tokens are missing.
    """
    return ids[~_some_tokens(ids, rng, vocab, rate)]


def text_infilling(
    ids: Tensor, rng: torch.Generator, *, vocab: Vocab, rate: float = 0.3, mean: float = 3.0
) -> Tensor:
    """Replace each span by a single mask token: ABCDEF. -> A_D_F.

    The model must also find out how many tokens are missing. A span may have the length 0: then a
    mask token is inserted where nothing is missing.

    Known departure from BART: spans of length 0 are dropped if they would make the text longer than
    the original.

    Args:
        ids: Int[T].
        rng: random generator.
        vocab: the special tokens.
        rate: share of the tokens that the spans cover.
        mean: mean length of a span; the lengths are Poisson distributed.
    """
    spans = []
    for start, stop in ordinary_runs(ids, vocab):
        lengths = poisson_lengths(rounded_share(stop - start, rate), rng, mean=mean)
        for first, length in lay_out(stop - start, lengths, rng):
            spans.append((start + first, length))
    return infill(ids, spans, mask_id(vocab))


def sentence_permutation(
    ids: Tensor, rng: torch.Generator, *, vocab: Vocab, ends: Collection[int] | None = None
) -> Tensor:
    """Put the sentences into a random order: ABC. DE. FG. -> FG. ABC. DE.

    Args:
        ids: Int[T]. Tokens after the last full stop count as a sentence, too.
        rng: random generator.
        vocab: the special tokens.
        ends: ids of the tokens that end a sentence; by default the vocabulary's (`Vocab.ends`).

    Raises:
        CourseError: no token ends a sentence.
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
    for start, stop in ordinary_runs(ids, vocab):
        # A sentence starts after each end token, except after one at the very end.
        inner_ends = is_end[start : stop - 1].nonzero()[:, 0]
        boundaries = [start, *(start + 1 + inner_ends).tolist(), stop]
        sentences = [ids[left:right] for left, right in pairwise(boundaries)]
        order = torch.randperm(len(sentences), generator=rng, device=rng.device).tolist()
        new[start:stop] = torch.cat([sentences[i] for i in order])
    return new


def document_rotation(ids: Tensor, rng: torch.Generator, *, vocab: Vocab) -> Tensor:
    """Start the text at a random token; what stood before it follows at the end.

    ABC. DE. FG. -> E. FG. ABC. D
    """
    new = ids.clone()
    for start, stop in ordinary_runs(ids, vocab):
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
NOISES_WITH_RATE = ("token masking", "token deletion", "text infilling")


def noised(
    ids: Tensor,
    rng: torch.Generator,
    *,
    vocab: Vocab,
    noises: Sequence[str] = BART_NOISES,
    ends: Collection[int] | None = None,
    rate: float | None = None,
) -> Tensor:
    """Apply several noises to one text, one after the other.

    Args:
        ids: Int[T].
        rng: random generator.
        vocab: the special tokens.
        noises: names in `NOISES`; by default the two that BART was trained with.
        ends: ids of the tokens that end a sentence; by default the vocabulary's.
        rate: share of the tokens to mask, delete or infill; by default each noise's own.
    """
    for name in noises:
        options: dict[str, Any] = {}
        if name == "sentence permutation":
            options["ends"] = ends
        if name in NOISES_WITH_RATE and rate is not None:
            options["rate"] = rate
        ids = NOISES[name](ids, rng, vocab=vocab, **options)
    return ids


def infill(ids: Tensor, spans: Sequence[tuple[int, int]], mask: int) -> Tensor:
    """Replace each span of a text Int[T] by one `mask` token.

    >>> infill(torch.arange(6), [(1, 2), (4, 0)], mask=9).tolist()
    [0, 9, 3, 9, 4, 5]

    Args:
        ids: Int[T].
        spans: (start, length) of each; a length of 0 inserts the mask before `start`.
        mask: id of the mask token.
    """
    # T5's input with the same token as every sentinel; its target is not used.
    return mark_spans(ids, spans, [mask] * (len(spans) + 1)).input


def poisson_lengths(budget: int, rng: torch.Generator, *, mean: float = 3.0) -> list[int]:
    """Draw Poisson distributed span lengths that add up to `budget` tokens.

    The last length is shortened to fit. Lengths of 0 occur, but there are at most `budget` lengths
    in all; further zeros are dropped.
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
    """A training example of an encoder-decoder."""

    input: Tensor  # Int[T], what the encoder reads
    target: Tensor  # Int[U], what the decoder should write


def span_corruption(
    ids: Tensor,
    rng: torch.Generator,
    *,
    vocab: Vocab,
    sentinels: Sequence[int] | None = None,
    rate: float = 0.15,
    mean: float = 3.0,
) -> InputTarget:
    """Replace random spans by sentinels (Raffel et al. 2020, sections 3.1.4 and 3.3.4).

    At least one token stays between two spans, and every such choice of spans is equally likely. If
    a special token ends the text, it also ends the target.

    Known departure: in the published code a text begins with a kept token and ends with a span;
    here spans may lie anywhere.

    Args:
        ids: Int[T].
        rng: random generator.
        vocab: the special tokens.
        sentinels: ids of the sentinels in order, one more than spans; by default the vocabulary's
            (`Vocab.sentinels`).
        rate: share of the ordinary tokens to replace, rounded.
        mean: mean length of a span.

    Raises:
        CourseError: there are no sentinels, or too few.
    """
    sentinels = vocab.sentinels if sentinels is None else sentinels
    if not sentinels:
        raise CourseError(
            "This vocabulary has no sentinels (<extra_id_0>, ...); add_sentinels gives it some."
        )
    spans = []
    for start, stop in ordinary_runs(ids, vocab):
        total = stop - start
        # The number of tokens in spans. At least one token stays, even with a rate of 1.
        covered = min(rounded_share(total, rate), max(total - 1, 0))
        # total - covered tokens stay, so there are that many gaps, plus one, for the spans.
        span_count = min(max(1, round(covered / mean)), covered, total - covered + 1)
        lengths = _random_partition(covered, span_count, rng)
        for first, length in lay_out(total, lengths, rng, apart=True):
            spans.append((start + first, length))
    marked = mark_spans(ids, spans, sentinels)
    return marked._replace(target=torch.cat([marked.target, _end(ids, vocab)]))


def prefix_lm(ids: Tensor, rng: torch.Generator, *, vocab: Vocab) -> InputTarget:
    """Cut a text in two at a random position: the model reads the first part and writes the second.

    (Raffel et al. 2020, section 3.1.1.) A B C D </s> may become A B </s> -> C D </s>.

    Raises:
        CourseError: the text has fewer than two ordinary tokens.
    """
    # The second part may start at any ordinary token but the first.
    cuts = is_ordinary(ids, vocab).nonzero()[1:, 0].tolist()
    if not cuts:
        raise CourseError(
            "A text of fewer than two tokens cannot be cut into a prefix and a continuation."
        )
    cut = cuts[int(torch.randint(len(cuts), (1,), generator=rng, device=rng.device))]
    return InputTarget(torch.cat([ids[:cut], _end(ids, vocab)]), ids[cut:])


def mark_spans(
    ids: Tensor, spans: Sequence[tuple[int, int]], sentinels: Sequence[int]
) -> InputTarget:
    """Replace the given spans by sentinels, and list the spans in the target.

    One more sentinel ends the target.

    >>> marked = mark_spans(torch.arange(7), [(1, 2), (5, 1)], sentinels=[90, 91, 92])
    >>> marked.input.tolist(), marked.target.tolist()
    ([0, 90, 3, 4, 91, 6], [90, 1, 2, 91, 5, 92])

    Args:
        ids: Int[T].
        spans: (start, length) of each.
        sentinels: ids of the sentinels, from left to right, one more than spans.

    Raises:
        CourseError: there are too few sentinels.
    """
    if len(spans) >= len(sentinels):
        raise CourseError(
            f"{len(spans)} spans need {len(spans) + 1} sentinels; there are {len(sentinels)}."
        )
    markers = ids.new_tensor(list(sentinels))[:, None]  # S 1, so that `cat` can join each one
    input_parts = []
    target_parts = []
    done = 0  # tokens of `ids` that the parts contain so far
    # Not strict: there are more sentinels than spans.
    for marker, (start, length) in zip(markers, sorted(spans), strict=False):
        input_parts += [ids[done:start], marker]
        target_parts += [marker, ids[start : start + length]]
        done = start + length
    input_parts.append(ids[done:])
    target_parts.append(markers[len(spans)])
    return InputTarget(torch.cat(input_parts), torch.cat(target_parts))


def restore(input: Tensor, target: Tensor, sentinels: Sequence[int]) -> Tensor:
    """Undo `mark_spans`: put each span of the target back in place of its sentinel.

    If the target lacks a sentinel, as a model's own output may, this sentinel is just removed.
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
    """Bool[T], True at a random share `rate` of the ordinary tokens."""
    positions = torch.arange(len(ids), device=ids.device)  # each token is a unit of its own
    # `choose_units` takes a batch, here of one row: 1 T
    return choose_units(positions[None], is_ordinary(ids, vocab)[None], rate, rng)[0]


def _random_partition(total: int, count: int, rng: torch.Generator) -> list[int]:
    """`count` numbers of at least 1 that add up to `total`; every way is equally likely.

    7 in 3 parts: two random boundaries, 2 and 5, among 1 to 6 give the parts 2, 3, 2.
    """
    if count == 0:
        return []
    inner = torch.randperm(total - 1, generator=rng, device=rng.device)[: count - 1]
    boundaries = [0, *(1 + inner.sort().values).tolist(), total]
    return [right - left for left, right in pairwise(boundaries)]


def _end(ids: Tensor, vocab: Vocab) -> Tensor:
    """The special token that ends a text, such as </s>: Int[1]. Int[0] if there is none."""
    last = ids[-1:]
    return last[~is_ordinary(last, vocab)]
