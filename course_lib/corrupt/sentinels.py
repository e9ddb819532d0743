"""T5's objectives: a text becomes an input and a target (Raffel et al. 2020, section 3.1.4 and figure 2).

    Thank you for inviting me to your party last week.
    input   Thank you <X> me to your party <Y> week.
    target  <X> for inviting <Y> last <Z>

<X>, <Y>, <Z> are sentinels: tokens that stand for a span and occur nowhere else. Each function takes one text,
ids Int[T]; a special token that ends it ends the target too.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from course_lib.corrupt.base import lay_out, ordinary, share_of, stretches
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from course_lib.tokenizers import Tokenizer, Vocab

NAME = "<extra_id_{}>"  # of a sentinel, in the public vocabularies


class InputTarget(NamedTuple):
    """What the encoder reads, Int[T], and what the decoder says, Int[U]."""

    input: Tensor
    target: Tensor


def span_corruption(
    ids: Tensor,
    rng: torch.Generator,
    *,
    vocab: "Vocab",
    sentinels: Sequence[int],
    rate: float = 0.15,
    mean: float = 3.0,
) -> InputTarget:
    """Takes spans out of a text and asks for them (Raffel et al. 2020, sections 3.1.4 and 3.3.4).

    Exactly `rate` of the tokens, rounded, in rate / mean as many spans, no two of them adjacent; every such choice is
    equally likely. Input and target together hold every token once (`restore`).

    Args:
        ids: Int[T]. Special tokens are never taken out.
        sentinels: ids that stand for the spans, in this order (`sentinels(tokenizer)`).
        rate: noise density. mean: tokens a span.

    Raises:
        CourseError: more spans than sentinels (the target needs one more), a share outside 0 to 1, mean below 1.

    Known departures: in the published code a text always begins with kept tokens and ends with a span; here spans lie
    anywhere.
    """
    if mean < 1:
        raise CourseError(f"mean is {mean}; the mean length of a span is at least 1 token.")
    spans = []
    for start, stop in stretches(ids, vocab):
        total = stop - start
        noise = min(share_of(total, rate), max(total - 1, 0))
        count = min(max(1, round(noise / mean)), noise, total - noise + 1)
        spans += [
            (start + first, length) for first, length in lay_out(total, _parts(noise, count, rng), rng, apart=True)
        ]
    marked = mark_spans(ids, spans, sentinels)
    return marked._replace(target=torch.cat([marked.target, _end(ids, vocab)]))


def prefix_lm(ids: Tensor, rng: torch.Generator, *, vocab: "Vocab") -> InputTarget:
    """Cuts a text in two at a random place: read the first part, say the second (Raffel et al. 2020, section 3.1.1).

    Both parts keep at least one token; a special token that ends the text ends both.
    """
    inside = stretches(ids, vocab)
    places = [t for start, stop in inside for t in range(start, stop)][1:]  # where the second part may begin
    if not places:
        raise CourseError("A text of fewer than two tokens cannot be cut into a prefix and a continuation.")
    cut = places[int(torch.randint(len(places), (1,), generator=rng, device=rng.device))]
    return InputTarget(torch.cat([ids[:cut], _end(ids, vocab)]), ids[cut:])


def mark_spans(ids: Tensor, spans: Sequence[tuple[int, int]], sentinels: Sequence[int]) -> InputTarget:
    """The input and the target for these spans, (start, length) each; one last sentinel ends the target.

    >>> marked = mark_spans(torch.arange(7), [(1, 2), (5, 1)], sentinels=[90, 91, 92])
    >>> marked.input.tolist(), marked.target.tolist()
    ([0, 90, 3, 4, 91, 6], [90, 1, 2, 91, 5, 92])
    """
    if len(spans) >= len(sentinels):
        raise CourseError(f"{len(spans)} spans need {len(spans) + 1} sentinels; there are {len(sentinels)}.")
    signs = ids.new_tensor(list(sentinels))[:, None]  # S 1
    read, said, done = [], [], 0
    for sign, (start, length) in zip(signs, sorted(spans), strict=False):
        read += [ids[done:start], sign]
        said += [sign, ids[start : start + length]]
        done = start + length
    return InputTarget(torch.cat([*read, ids[done:]]), torch.cat([*said, signs[len(spans)]]))


def restore(input: Tensor, target: Tensor, sentinels: Sequence[int]) -> Tensor:
    """The text that an input and a target of `span_corruption` were made from: each span back in its sentinel's place.

    A sentinel that the target lacks stands for nothing, so that a model's own answer can be put in, too.
    """
    spans: dict[int, list[int]] = {}
    current: list[int] = []
    for token in target.tolist():
        if token in sentinels:
            current = spans.setdefault(token, [])
        else:
            current.append(token)
    text = [t for token in input.tolist() for t in (spans.get(token, []) if token in sentinels else [token])]
    return input.new_tensor(text)


def sentinels(tokenizer: "Tokenizer") -> tuple[int, ...]:
    """The ids of a vocabulary's sentinels <extra_id_0>, <extra_id_1>, ..., in this order.

    Raises:
        CourseError: it has none; `add_sentinels` gives it some.
    """
    found: list[int] = []
    while (token := tokenizer.backend.token_to_id(NAME.format(len(found)))) is not None:
        found.append(token)
    if not found:
        raise CourseError("This vocabulary has no sentinels (<extra_id_0>, ...); corrupt.add_sentinels gives it some.")
    return tuple(found)


def add_sentinels(tokenizer: "Tokenizer", n: int = 100) -> "Tokenizer":
    """A copy of a tokenizer with `n` sentinels behind its vocabulary, special tokens all; T5 has 100."""
    backend = type(tokenizer.backend).from_str(tokenizer.backend.to_str())
    backend.add_special_tokens([NAME.format(i) for i in range(n)])
    return type(tokenizer)(backend)


def _parts(total: int, parts: int, rng: torch.Generator) -> list[int]:
    """`total` in so many parts of at least 1, every way equally likely."""
    if parts == 0:
        return []
    cuts = 1 + torch.randperm(total - 1, generator=rng, device=rng.device)[: parts - 1].sort().values
    ends = [0, *cuts.tolist(), total]
    return [b - a for a, b in pairwise(ends)]


def _end(ids: Tensor, vocab: "Vocab") -> Tensor:
    """The special token that ends a text, Int[1], or nothing, Int[0]."""
    return ids[-1:][~ordinary(ids[-1:], vocab)]
