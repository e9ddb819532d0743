"""Masked language modelling: which tokens are hidden, and what replaces them.

What is hidden together is chosen by a span sampler, `mask_tokens(..., spans=ngrams())`:

    tokens             single tokens                           BERT, RoBERTa
    whole_words        all tokens of a word                    BERT's whole-word version
    geometric_spans    stretches of words, mostly short        SpanBERT
    ngrams             stretches of one, two or three words    ALBERT

A new strategy is one function that returns a `SpanSampler`, and one entry in `SPAN_SAMPLERS`.
Commands ask for samplers by the names in this table.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.objectives.draws import (
    choose,
    fill_budget,
    lay_out,
    mask_of,
    seeded_generator,
    share_of,
)
from course_lib.vocab import IGNORE, Vocab

BERT_PARTS = (0.8, 0.1, 0.1)  # of the hidden tokens: [MASK], a random token, unchanged


class Corrupted(NamedTuple):
    """The model's input, its labels, and the positions that carry loss."""

    ids: Tensor  # Int[B T]
    labels: Tensor  # Int[B T], the original token at the chosen positions, -100 elsewhere
    loss_mask: Tensor  # Bool[B T], the chosen positions, unchanged tokens included


class Chosen(NamedTuple):
    """What a span sampler hides."""

    positions: Tensor  # Bool[B T]
    draws: Tensor  # Float[B T] in 0 to 1; equal draws share their fate: [MASK], random, unchanged


class SpanSampler(Protocol):
    """Chooses what is hidden: (maskable, words, rate, rng) -> Chosen."""

    def __call__(
        self, maskable: Tensor, words: Tensor | None, rate: float, rng: torch.Generator, /
    ) -> Chosen:
        """Choose positions of each row.

        Args:
            maskable: Bool[B T], the positions that may be chosen.
            words: Int[B T], the number of each token's word, -1 for none; None if not known.
            rate: share of the tokens, or of the words, to choose.
            rng: of the draws.
        """


def tokens() -> SpanSampler:
    """Single tokens, each with a draw of its own (Devlin et al. 2019, section 3.1)."""

    def sample_tokens(
        maskable: Tensor, words: Tensor | None, rate: float, rng: torch.Generator
    ) -> Chosen:
        return _single_units(_numbered(maskable), maskable, rate, rng)

    return sample_tokens


def whole_words() -> SpanSampler:
    """All tokens of a word; each token has a draw of its own.

    Known departure: BERT's version stops at 15% of the tokens, this one at `rate` of the words.
    """

    def sample_words(
        maskable: Tensor, words: Tensor | None, rate: float, rng: torch.Generator
    ) -> Chosen:
        if words is None:
            raise CourseError(
                "Whole words are masked only if `words` says which tokens make one"
                " (Tokenizer.words)."
            )
        return _single_units(words, maskable & (words >= 0), rate, rng)

    return sample_words


def geometric_spans(p: float = 0.2, longest: int = 10) -> SpanSampler:
    """Spans of n words, P(n) proportional to (1 - p)^(n - 1) (Joshi et al. 2020, section 3.1).

    The mean length is 3.8 for p = 0.2 and longest = 10. Tokens take the place of words where these
    are not known. Known departure: SpanBERT's spans may overlap; these do not.
    """
    return _spans((1 - p) ** torch.arange(longest, dtype=torch.float64))


def ngrams(longest: int = 3) -> SpanSampler:
    """N-grams of words, P(n) proportional to 1 / n (Lan et al. 2020, section 4.1).

    Tokens take the place of words where these are not known.
    """
    return _spans(ngram_weights(longest))


def ngram_weights(longest: int) -> Tensor:
    """1 / n for n from 1 to `longest`: how likely each length is, up to a factor."""
    return 1 / torch.arange(1, longest + 1, dtype=torch.float64)


SPAN_SAMPLERS: dict[str, Callable[[], SpanSampler]] = {
    "tokens": tokens,
    "words": whole_words,
    "spans": geometric_spans,
    "ngrams": ngrams,
}


def span_sampler(name: str) -> SpanSampler:
    """The sampler of this name, with its paper's settings."""
    if name not in SPAN_SAMPLERS:
        raise CourseError(
            f"There is no unit {name!r} to mask; there are {', '.join(SPAN_SAMPLERS)}."
        )
    return SPAN_SAMPLERS[name]()


def mask_tokens(
    ids: Tensor,
    rng: torch.Generator,
    *,
    vocab: Vocab,
    rate: float = 0.15,
    parts: tuple[float, float, float] = BERT_PARTS,
    spans: SpanSampler | None = None,
    words: Tensor | None = None,
    attention_mask: Tensor | None = None,
) -> Corrupted:
    """Hide `rate` of each row's tokens (Devlin et al. 2019, section 3.1 and appendix A.1).

    The number is rounded, and at least one. One draw decides which of the chosen become [MASK],
    which a random token, and which stay.

    Known departure: BERT draws the random token from the whole vocabulary, special ones too.

    Args:
        ids: Int[B T] or Int[T]. Special tokens are neither chosen nor drawn as the random token.
        rng: of the draws.
        vocab: names the special tokens.
        rate: share of the tokens (or words) to hide, 0 to 1.
        parts: shares of [MASK], random and unchanged among the chosen; they add up to 1.
        spans: what is hidden together; single `tokens()` if not given.
        words: Int[B T], the number of each token's word, -1 for none, as `Tokenizer.words` gives.
        attention_mask: Bool[B T], True at real tokens; all if not given.
    """
    if not 0 <= rate <= 1:
        raise CourseError(f"rate is {rate}; the share of tokens to mask lies between 0 and 1.")
    if min(parts) < 0 or abs(sum(parts) - 1) > 1e-6:
        raise CourseError(
            f"parts is {parts}; give three shares (mask, random, unchanged) that add up to 1."
        )
    is_text = torch.ones(vocab.size, dtype=torch.bool, device=ids.device)  # V
    is_text[list(vocab.special)] = False

    rows = ids.reshape(-1, ids.shape[-1])  # B T, also if one row was given
    maskable = is_text[rows]
    if attention_mask is not None:
        maskable = maskable & attention_mask.reshape(rows.shape).bool()
    if words is not None:
        words = words.reshape(rows.shape)
    sampler = tokens() if spans is None else spans
    chosen, draws = sampler(maskable, words, rate, rng)

    text_tokens = is_text.nonzero().squeeze(1)
    numbers = torch.randint(len(text_tokens), rows.shape, generator=rng, device=ids.device)
    random_ids = text_tokens[numbers]
    masked = chosen & (draws < parts[0])
    randomized = chosen & (draws >= parts[0]) & (draws < parts[0] + parts[1])
    seen = rows.masked_fill(masked, mask_of(vocab)).where(~randomized, random_ids)
    labels = rows.masked_fill(~chosen, IGNORE)
    return Corrupted(seen.reshape(ids.shape), labels.reshape(ids.shape), chosen.reshape(ids.shape))


def mask_documents(
    ids: Tensor,
    documents: Sequence[int],
    *,
    vocab: Vocab,
    seed: int,
    epoch: int = 0,
    copies: int | None = None,
) -> Corrupted:
    """Mask each document statically or dynamically (Liu et al. 2019, RoBERTa, section 4.1).

    A row's mask depends on (seed, document, copy) and on the row, its padding included.

    Args:
        ids: Int[B T].
        documents: the number of each row's document.
        vocab: names the special tokens.
        seed: of all masks.
        epoch: how often the data was read before.
        copies: None is dynamic, a new mask every epoch; 1 is static; 10 is BERT's preprocessing,
            ten masks in turn.
    """
    copy = epoch if copies is None else epoch % copies
    rows = []
    for row, document in zip(ids, documents, strict=True):
        rows.append(mask_tokens(row, seeded_generator(seed, copy, document), vocab=vocab))
    return Corrupted(
        torch.stack([row.ids for row in rows]),
        torch.stack([row.labels for row in rows]),
        torch.stack([row.loss_mask for row in rows]),
    )


def _numbered(maskable: Tensor) -> Tensor:
    """Int[B T]: every token is its own unit."""
    return torch.arange(maskable.shape[1], device=maskable.device).expand_as(maskable)


def _single_units(units: Tensor, maskable: Tensor, rate: float, rng: torch.Generator) -> Chosen:
    """Units chosen one by one; each token of a unit has a draw of its own."""
    positions = choose(units, maskable, rate, rng)
    draws = torch.rand(maskable.shape, generator=rng, device=maskable.device)
    return Chosen(positions, draws)


def _spans(weights: Tensor) -> SpanSampler:
    """Spans of words, or of tokens where words are not known; a span has one draw.

    A span that meets a special token continues after it.

    Args:
        weights: Float[longest], how likely the lengths 1, 2, ... are.
    """

    def sample_spans(
        maskable: Tensor, words: Tensor | None, rate: float, rng: torch.Generator
    ) -> Chosen:
        units = _numbered(maskable) if words is None else words
        maskable = maskable & (units >= 0)
        positions = torch.zeros_like(maskable)
        draws = torch.zeros(maskable.shape, device=maskable.device)
        for b, row in enumerate(maskable):
            places = row.nonzero()[:, 0]  # N, the positions of the row's maskable tokens
            # The words of these positions, counted from 0: N
            numbers = torch.unique_consecutive(units[b, places], return_inverse=True)[1]
            total = int(numbers[-1]) + 1 if len(numbers) else 0
            lengths = span_lengths(weights, share_of(total, rate), rng)
            for start, length in lay_out(total, lengths, rng):
                inside = places[(numbers >= start) & (numbers < start + length)]
                positions[b, inside] = True
                draws[b, inside] = torch.rand((), generator=rng, device=rng.device).item()
        return Chosen(positions, draws)

    return sample_spans


def span_lengths(weights: Tensor, budget: int, rng: torch.Generator) -> list[int]:
    """Draw lengths 1, 2, ... with these weights until they add up to `budget` words.

    They come in the order drawn; the last is cut to fit.
    """
    if budget == 0:
        return []
    # `budget` lengths are always enough, as each is at least 1. The draws count from 0.
    drawn = torch.multinomial(weights.to(rng.device), budget, replacement=True, generator=rng)
    return fill_budget(1 + drawn, budget)
