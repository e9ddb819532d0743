"""Texts that a decoder must say again: BART's five noises, T5's spans behind sentinels, a text cut
in two.

BART (Lewis et al. 2020, section 2.2, figure 2): each noise takes one text, ids Int[T], and returns
a new one. What lies between two special tokens counts as a document; the special tokens themselves,
padding among them, stay. T5 (Raffel et al. 2020, section 3.1.4, figure 2): one text becomes an
input and a target, which a special token at its end ends too.

    Thank you <X> me to your party <Y> week.    ->    <X> for inviting <Y> last <Z>
"""

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.objectives.masking import (
    choose,
    fill_budget,
    lay_out,
    mask_of,
    ordinary,
    share_of,
    stretches,
)
from course_lib.vocab import Vocab

if TYPE_CHECKING:
    from course_lib.data.tokenizers import Tokenizer

SENTINEL = "<extra_id_{}>"  # its name in the public vocabularies


def token_masking(ids: Tensor, rng: torch.Generator, *, vocab: Vocab, rate: float = 0.15) -> Tensor:
    """`rate` of the tokens become the mask token: ABCDEF. -> A_CD_F."""
    return ids.masked_fill(_some(ids, rng, vocab, rate), mask_of(vocab))


def token_deletion(
    ids: Tensor, rng: torch.Generator, *, vocab: Vocab, rate: float = 0.15
) -> Tensor:
    """`rate` of the tokens are taken out; the model must find out where: ABCDEF. -> ACDF."""
    return ids[~_some(ids, rng, vocab, rate)]


def text_infilling(
    ids: Tensor, rng: torch.Generator, *, vocab: Vocab, rate: float = 0.3, mean: float = 3.0
) -> Tensor:
    """Spans of tokens become one mask token each; the model must find out how many are missing:
    ABCDEF. -> A_D_F.

    Lengths are Poisson distributed around `mean`, drawn until `rate` of the tokens is covered; of
    length 0, nothing is missing. Known departure: spans of length 0 that would make a text longer
    than it was are left out."""
    spans = []
    for start, stop in stretches(ids, vocab):
        lengths = poisson_lengths(share_of(stop - start, rate), rng, mean=mean)
        spans += [(start + first, length) for first, length in lay_out(stop - start, lengths, rng)]
    return infill(ids, spans, mask_of(vocab))


def sentence_permutation(
    ids: Tensor, rng: torch.Generator, *, vocab: Vocab, ends: Collection[int]
) -> Tensor:
    """The sentences in random order: ABC. DE. FG. -> FG. ABC. DE. ends: ids of the tokens that end
    one (`sentence_ends`); what follows the last of them counts as a sentence."""
    last = torch.isin(ids, torch.tensor(sorted(ends), dtype=ids.dtype, device=ids.device))
    new = ids.clone()
    for start, stop in stretches(ids, vocab):
        cuts = [start, *(start + 1 + last[start : stop - 1].nonzero()[:, 0]).tolist(), stop]
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


def noised(
    ids: Tensor,
    rng: torch.Generator,
    *,
    vocab: Vocab,
    noises: Sequence[str] = ("sentence permutation", "text infilling"),
    ends: Collection[int] = (),
    rate: float | None = None,
) -> Tensor:
    """Several of `NOISES`, one after the other; by default the two that BART was trained with.
    rate: of masking, deletion and infilling, in place of their own."""
    for name in noises:
        options: dict[str, object] = {}
        if name == "sentence permutation":
            if not ends:
                has = (
                    "of the tokenizer's none does, for the texts that it learned from have no full"
                    " stop"
                )
                raise CourseError(
                    f"Sentences can be permuted only if `ends` says which tokens end one; {has}."
                )
            options["ends"] = ends
        elif name != "document rotation" and rate is not None:
            options["rate"] = rate
        ids = NOISES[name](ids, rng, vocab=vocab, **options)
    return ids


def infill(ids: Tensor, spans: Sequence[tuple[int, int]], mask: int) -> Tensor:
    """One `mask` in place of each (start, length) of a text Int[T]; a length of 0 puts it in before
    `start`.

    >>> infill(torch.arange(6), [(1, 2), (4, 0)], mask=9).tolist()
    [0, 9, 3, 9, 4, 5]
    """
    return mark_spans(ids, spans, [mask] * (len(spans) + 1)).input


def poisson_lengths(budget: int, rng: torch.Generator, *, mean: float = 3.0) -> list[int]:
    """Poisson span lengths, zeros among them, that add up to `budget`, in the order drawn; the last
    is cut to fit. At most `budget` of them: zeros beyond that are left out."""
    drawn = torch.zeros(0, dtype=torch.int64, device=rng.device)
    while int(drawn.sum()) < budget:
        more = torch.poisson(torch.full((budget,), mean, device=rng.device), generator=rng)
        drawn = torch.cat([drawn, more.long()])
    lengths = fill_budget(drawn, budget)
    spare = budget - sum(length > 0 for length in lengths)  # how many zeros there may be
    zeros = [i for i, length in enumerate(lengths) if length == 0][:spare]
    return [length for i, length in enumerate(lengths) if length > 0 or i in zeros]


def sentence_ends(tokenizer: "Tokenizer") -> tuple[int, ...]:
    """The ids of a vocabulary's full stops, question marks and exclamation marks."""
    tokens = tokenizer.tokens(range(tokenizer.vocab.size))
    return tuple(i for i, token in enumerate(tokens) if token.lstrip("Ġ▁#") in (".", "?", "!"))


class InputTarget(NamedTuple):
    """What the encoder reads, Int[T], and what the decoder says, Int[U]."""

    input: Tensor
    target: Tensor


def span_corruption(
    ids: Tensor,
    rng: torch.Generator,
    *,
    vocab: Vocab,
    sentinels: Sequence[int],
    rate: float = 0.15,
    mean: float = 3.0,
) -> InputTarget:
    """Takes spans out of a text and asks for them (Raffel et al. 2020, sections 3.1.4 and 3.3.4):
    `rate` of its ordinary tokens, rounded, in spans of `mean` tokens, no two of them adjacent;
    every such choice is equally likely.

    sentinels: ids that stand for the spans, in this order (`sentinels(tokenizer)`), one more than
    spans. Known departure: in the published code a text begins with kept tokens and ends with a
    span; here spans lie anywhere."""
    spans = []
    for start, stop in stretches(ids, vocab):
        total = stop - start
        noise = min(share_of(total, rate), max(total - 1, 0))
        count = min(max(1, round(noise / mean)), noise, total - noise + 1)
        parts = _parts(noise, count, rng)
        spans += [
            (start + first, length) for first, length in lay_out(total, parts, rng, apart=True)
        ]
    marked = mark_spans(ids, spans, sentinels)
    return marked._replace(target=torch.cat([marked.target, _end(ids, vocab)]))


def prefix_lm(ids: Tensor, rng: torch.Generator, *, vocab: Vocab) -> InputTarget:
    """Cuts a text in two at a random place: read the first part, say the second (Raffel et al.
    2020, section 3.1.1). A special token that ends the text ends both."""
    # of the second part's start
    places = [t for start, stop in stretches(ids, vocab) for t in range(start, stop)][1:]
    if not places:
        raise CourseError(
            "A text of fewer than two tokens cannot be cut into a prefix and a continuation."
        )
    cut = places[int(torch.randint(len(places), (1,), generator=rng, device=rng.device))]
    return InputTarget(torch.cat([ids[:cut], _end(ids, vocab)]), ids[cut:])


def mark_spans(
    ids: Tensor, spans: Sequence[tuple[int, int]], sentinels: Sequence[int]
) -> InputTarget:
    """The input and the target for these spans, (start, length) each; one last sentinel ends the
    target.

    >>> marked = mark_spans(torch.arange(7), [(1, 2), (5, 1)], sentinels=[90, 91, 92])
    >>> marked.input.tolist(), marked.target.tolist()
    ([0, 90, 3, 4, 91, 6], [90, 1, 2, 91, 5, 92])
    """
    if len(spans) >= len(sentinels):
        raise CourseError(
            f"{len(spans)} spans need {len(spans) + 1} sentinels; there are {len(sentinels)}."
        )
    signs = ids.new_tensor(list(sentinels))[:, None]  # S 1
    read, said, done = [], [], 0
    for sign, (start, length) in zip(signs, sorted(spans), strict=False):
        read += [ids[done:start], sign]
        said += [sign, ids[start : start + length]]
        done = start + length
    return InputTarget(torch.cat([*read, ids[done:]]), torch.cat([*said, signs[len(spans)]]))


def restore(input: Tensor, target: Tensor, sentinels: Sequence[int]) -> Tensor:
    """The text that an input and a target of `span_corruption` were made from: each span back in
    its sentinel's place. A sentinel that the target lacks, as in a model's own answer, stands for
    nothing."""
    spans: dict[int, list[int]] = {}
    current: list[int] = []
    for token in target.tolist():
        if token in sentinels:
            current = spans.setdefault(token, [])
        else:
            current.append(token)
    text = [
        t
        for token in input.tolist()
        for t in (spans.get(token, []) if token in sentinels else [token])
    ]
    return input.new_tensor(text)


def sentinels(tokenizer: "Tokenizer") -> tuple[int, ...]:
    """The ids of a vocabulary's sentinels <extra_id_0>, <extra_id_1>, ..., in this order."""
    found: list[int] = []
    while (token := tokenizer.backend.token_to_id(SENTINEL.format(len(found)))) is not None:
        found.append(token)
    if not found:
        raise CourseError(
            "This vocabulary has no sentinels (<extra_id_0>, ...); add_sentinels gives it some."
        )
    return tuple(found)


def add_sentinels(tokenizer: "Tokenizer", n: int = 100) -> "Tokenizer":
    """A copy of a tokenizer with `n` sentinels behind its vocabulary, special tokens all; T5 has
    100.
    """
    backend = type(tokenizer.backend).from_str(tokenizer.backend.to_str())
    backend.add_special_tokens([SENTINEL.format(i) for i in range(n)])
    return type(tokenizer)(backend)


def _some(ids: Tensor, rng: torch.Generator, vocab: Vocab, rate: float) -> Tensor:
    """Bool[T]: `rate` of the ordinary tokens of a text."""
    return choose(
        torch.arange(len(ids), device=ids.device)[None], ordinary(ids, vocab)[None], rate, rng
    )[0]


def _parts(total: int, parts: int, rng: torch.Generator) -> list[int]:
    """`total` in so many parts of at least 1, every way equally likely."""
    if parts == 0:
        return []
    cuts = (
        1 + torch.randperm(total - 1, generator=rng, device=rng.device)[: parts - 1].sort().values
    )
    return [b - a for a, b in pairwise([0, *cuts.tolist(), total])]


def _end(ids: Tensor, vocab: Vocab) -> Tensor:
    """The special token that ends a text, Int[1], or nothing, Int[0]."""
    return ids[-1:][~ordinary(ids[-1:], vocab)]
