"""Masked language modelling: hide some tokens of a text, and train the model to predict them.

BERT hides 15% of the tokens. Of the hidden ones 80% become [MASK], 10% a random token, and 10% stay
as they are; the model does not know which. For the text "the cat sat", `mask_tokens` may return

    ids       the   [MASK]  sat
    labels    -100  cat     -100      (-100: nothing to predict here)

A span sampler says which tokens are hidden together, `mask_tokens(..., spans=ngrams())`:

    tokens             single tokens                           BERT, RoBERTa
    whole_words        all tokens of a word                    BERT's whole-word version
    geometric_spans    spans of words, mostly short            SpanBERT
    ngrams             spans of one, two or three words        ALBERT

A new strategy is one function that returns a `SpanSampler`, and one entry in `SPAN_SAMPLERS`; its
name there is the command's option. Shapes: B rows in a batch, T tokens in a row.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.objectives.draws import (
    choose_units,
    fill_budget,
    lay_out,
    mask_id,
    rounded_share,
    seeded_generator,
)
from course_lib.vocab import IGNORE, Vocab

BERT_PARTS = (0.8, 0.1, 0.1)  # of the hidden tokens: [MASK], a random token, unchanged


class Corrupted(NamedTuple):
    """The model's input, its labels, and the positions that it must predict."""

    ids: Tensor  # Int[B T], the text with some tokens hidden
    labels: Tensor  # Int[B T], the original token at the hidden positions, -100 elsewhere
    loss_mask: Tensor  # Bool[B T], True at the hidden positions, unchanged tokens included


class Chosen(NamedTuple):
    """What a span sampler hides, and one random number for each hidden token.

    The number decides what the token becomes: [MASK] below 0.8, a random token below 0.9, else it
    stays. The tokens of a SpanBERT span share one number, so all of them become [MASK], or none.
    """

    positions: Tensor  # Bool[B T], True at the tokens to hide
    draws: Tensor  # Float[B T], from 0 to 1


class SpanSampler(Protocol):
    """A function that chooses the tokens to hide."""

    def __call__(
        self, maskable: Tensor, words: Tensor | None, rate: float, rng: torch.Generator, /
    ) -> Chosen:
        """Choose tokens of each row.

        Args:
            maskable: Bool[B T], the tokens that may be hidden.
            words: Int[B T], the number of the word that each token belongs to, -1 for a special
                token; None if not known.
            rate: share of the tokens, or of the words, to hide.
            rng: random generator.
        """


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
    """Hide a share `rate` of each row's tokens (Devlin et al. 2019, section 3.1, appendix A.1).

    The number of tokens is rounded; a row has at least one hidden token if `rate` is above 0.

    Known departure: BERT draws the random token from the whole vocabulary, special ones too.

    Args:
        ids: Int[B T] or Int[T]. Special tokens are never hidden, nor drawn as the random token.
        rng: random generator.
        vocab: the special tokens.
        rate: share of the tokens (or words) to hide, 0 to 1.
        parts: of the hidden tokens, the shares that become [MASK], become a random token and stay;
            they add up to 1.
        spans: which tokens are hidden together; by default single `tokens()`.
        words: Int[B T], the number of the word that each token belongs to, -1 for a special token,
            as `Tokenizer.words` gives it.
        attention_mask: Bool[B T], True at real tokens; by default all are real.

    Raises:
        CourseError: `rate` or `parts` is out of range, or the vocabulary has no mask token.
    """
    if not 0 <= rate <= 1:
        raise CourseError(f"rate is {rate}; the share of tokens to mask lies between 0 and 1.")
    if min(parts) < 0 or abs(sum(parts) - 1) > 1e-6:
        raise CourseError(
            f"parts is {parts}; give three shares (mask, random, unchanged) that add up to 1."
        )
    is_text = torch.ones(vocab.size, dtype=torch.bool, device=ids.device)  # V
    is_text[list(vocab.special)] = False

    rows = ids.reshape(-1, ids.shape[-1])  # B T; a single row becomes a batch of one
    maskable = is_text[rows]
    if attention_mask is not None:
        maskable = maskable & attention_mask.reshape(rows.shape).bool()
    if words is not None:
        words = words.reshape(rows.shape)
    sampler = tokens() if spans is None else spans
    chosen, draws = sampler(maskable, words, rate, rng)

    # A random token is drawn for every position, and used at those that `randomized` selects.
    text_tokens = is_text.nonzero().squeeze(1)
    numbers = torch.randint(len(text_tokens), rows.shape, generator=rng, device=ids.device)
    random_ids = text_tokens[numbers]  # B T
    masked = chosen & (draws < parts[0])
    randomized = chosen & (draws >= parts[0]) & (draws < parts[0] + parts[1])
    seen = rows.masked_fill(masked, mask_id(vocab)).where(~randomized, random_ids)
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

    Static masking hides the same tokens in every epoch, dynamic masking others each time.

    Args:
        ids: Int[B T]. The mask depends on the row's width, too, that is, on its padding.
        documents: the number of each row's document.
        vocab: the special tokens.
        seed: equal seeds give equal masks.
        epoch: the number of this pass over the data, from 0.
        copies: how many masks a document has, in turn. None is dynamic masking, a new mask every
            epoch; 1 is static; 10 is BERT's preprocessing.
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


def tokens() -> SpanSampler:
    """Hide single tokens (Devlin et al. 2019, section 3.1)."""

    def sample_tokens(
        maskable: Tensor, words: Tensor | None, rate: float, rng: torch.Generator
    ) -> Chosen:
        return _choose_one_by_one(_token_numbers(maskable), maskable, rate, rng)

    return sample_tokens


def whole_words() -> SpanSampler:
    """Hide whole words: ["un", "##kind"] together. Each token has a random number of its own.

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
        return _choose_one_by_one(words, maskable & (words >= 0), rate, rng)

    return sample_words


def geometric_spans(p: float = 0.2, longest: int = 10) -> SpanSampler:
    """Hide spans of n words, P(n) proportional to (1 - p)^(n - 1) (Joshi et al. 2020, section 3.1).

    The mean length is 3.8 for p = 0.2 and longest = 10. If the words are not known, a span consists
    of tokens. Known departure: SpanBERT's spans may overlap; these do not.
    """
    return _span_sampler((1 - p) ** torch.arange(longest, dtype=torch.float64))


def ngrams(longest: int = 3) -> SpanSampler:
    """Hide n-grams: spans of n words, P(n) proportional to 1 / n (Lan et al. 2020, section 4.1).

    If the words are not known, a span consists of tokens.
    """
    return _span_sampler(ngram_weights(longest))


def ngram_weights(longest: int) -> Tensor:
    """1 / n for n from 1 to `longest`: relative probabilities, which need not add up to 1."""
    return 1 / torch.arange(1, longest + 1, dtype=torch.float64)


SPAN_SAMPLERS: dict[str, Callable[[], SpanSampler]] = {
    "tokens": tokens,
    "words": whole_words,
    "spans": geometric_spans,
    "ngrams": ngrams,
}


def span_sampler(name: str) -> SpanSampler:
    """The sampler of this name, with its paper's settings.

    Raises:
        CourseError: there is no sampler of this name.
    """
    if name not in SPAN_SAMPLERS:
        raise CourseError(
            f"There is no unit {name!r} to mask; there are {', '.join(SPAN_SAMPLERS)}."
        )
    return SPAN_SAMPLERS[name]()


def span_lengths(weights: Tensor, budget: int, rng: torch.Generator) -> list[int]:
    """Draw span lengths until they add up to `budget` words; the last is shortened to fit.

    Args:
        weights: Float[longest], relative probabilities of the lengths 1, 2, ...
        budget: the number of words to cover.
        rng: random generator.
    """
    if budget == 0:
        return []
    # As each length is at least 1, `budget` of them are enough. The draws count from 0.
    drawn = torch.multinomial(weights.to(rng.device), budget, replacement=True, generator=rng)
    return fill_budget(1 + drawn, budget)


def _token_numbers(maskable: Tensor) -> Tensor:
    """Int[B T], 0 1 2 ... in each row: every token is a unit of its own."""
    return torch.arange(maskable.shape[1], device=maskable.device).expand_as(maskable)


def _choose_one_by_one(
    units: Tensor, maskable: Tensor, rate: float, rng: torch.Generator
) -> Chosen:
    """Choose tokens or words; each token has a random number of its own."""
    positions = choose_units(units, maskable, rate, rng)
    draws = torch.rand(maskable.shape, generator=rng, device=maskable.device)
    return Chosen(positions, draws)


def _span_sampler(weights: Tensor) -> SpanSampler:
    """A sampler of spans of words; the tokens of a span share one random number.

    Special tokens do not end a span: it continues after them.

    Args:
        weights: Float[longest], relative probabilities of the lengths 1, 2, ...
    """

    def sample_spans(
        maskable: Tensor, words: Tensor | None, rate: float, rng: torch.Generator
    ) -> Chosen:
        if words is None:
            words = _token_numbers(maskable)
        maskable = maskable & (words >= 0)
        positions = torch.zeros_like(maskable)
        draws = torch.zeros(maskable.shape, device=maskable.device)
        for b, row in enumerate(maskable):
            maskable_positions = row.nonzero()[:, 0]  # N
            # The word of each maskable token, counted without gaps: 4 4 7 9 becomes 0 0 1 2.
            word_numbers = torch.unique_consecutive(
                words[b, maskable_positions], return_inverse=True
            )[1]  # N
            total = int(word_numbers[-1]) + 1 if len(word_numbers) else 0
            lengths = span_lengths(weights, rounded_share(total, rate), rng)
            for start, length in lay_out(total, lengths, rng):
                in_span = (word_numbers >= start) & (word_numbers < start + length)
                hidden = maskable_positions[in_span]
                positions[b, hidden] = True
                draws[b, hidden] = torch.rand((), generator=rng, device=rng.device).item()
        return Chosen(positions, draws)

    return sample_spans
