"""What a masked language model has to fill in: single tokens, whole words, spans."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from course_lib.corrupt.base import IGNORE, Corrupted, check_rate, choose, fit, generator, lay_out, mask_of, share_of
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from course_lib.tokenizers import Vocab


def mask_tokens(
    ids: Tensor,
    rng: torch.Generator,
    *,
    vocab: "Vocab",
    rate: float = 0.15,
    parts: tuple[float, float, float] = (0.8, 0.1, 0.1),
    words: Tensor | None = None,
    keep: Tensor | None = None,
) -> Corrupted:
    """Masked-language-model corruption (Devlin et al. 2019, section 3.1 and appendix A.1).

    Chooses `rate` of each row's real tokens without replacement, rounded, at least one. Each chosen token then gets
    one draw: [MASK], a random token, or left as it is, in `parts`. One draw decides among the three, so that the
    shares are 80/10/10 and not 81/10/9 as when the second draw falls on what the first one left.

    Args:
        ids: Int[B T] (or Int[T]). Special tokens are never chosen and never drawn as the random token.
        rng: where every draw comes from; on the device of `ids`.
        vocab: gives the mask id, the special ids and the size.
        rate: share of tokens to choose, 0 to 1.
        parts: shares of [MASK], random, unchanged among the chosen; they add up to 1.
        words: Int[B T], the index of each token's word, -1 for none. If given, whole words are chosen: `rate`
            of the row's words, all pieces of each. Each piece keeps its own draw among the three `parts`.
        keep: Bool[B T], True = a real token. Padding is never chosen.

    Returns: Corrupted(ids, labels, at), new tensors of the shape of `ids`.

    Raises:
        CourseError: a vocabulary without [MASK] or without an ordinary token, a share outside 0 to 1, a wrong
            shape.

    Known departures: BERT draws the random token from the whole vocabulary, special ones too; BERT's whole-word
    version stops at 15% of the tokens, ours takes 15% of the words.
    """
    rows, may, pool = _prepared(ids, vocab, rate, parts, words, keep)
    if words is None:
        units = torch.arange(rows.shape[1], device=ids.device).expand_as(rows)  # every token is its own word
    else:
        units = words.reshape(rows.shape)
    at = choose(units, may, rate, rng)
    draw = torch.rand(rows.shape, generator=rng, device=ids.device)
    return _hidden(ids, rows, at, draw, pool, rng, vocab, parts)


def mask_known(
    ids: Tensor,
    rng: torch.Generator,
    *,
    vocab: "Vocab",
    names: Collection[int],
    ends: Collection[int],
    rate: float = 0.5,
    words: Tensor | None = None,
) -> Corrupted:
    """Hides what a reader of the sentences before can know: one name in `rate` of those whose names all stood before.

    ids: Int[B T]. names: tokens that are names or parts of them. ends: tokens that end a sentence
    (`sentence_ends(tokenizer)`). words: Int[B T], the index of each token's word (`tokenizer.words(ids)`); if given, a
    word of several tokens, too rare to be one, is a name too. Every token of the chosen name becomes [MASK]. Compare
    recurring span selection (Ram et al. 2021, ACL), which asks for spans that a passage says again.
    """
    named = torch.isin(ids, torch.tensor(list(names), dtype=ids.dtype, device=ids.device))
    if words is not None:
        inside_word = (words[:, 1:] == words[:, :-1]) & (words[:, 1:] >= 0)
        named[:, 1:] |= inside_word
        named[:, :-1] |= inside_word
    at = torch.zeros_like(ids, dtype=torch.bool)
    for row, tokens in enumerate(ids.tolist()):
        seen: set[int] = set()
        for sentence in _sentences(tokens, named[row].tolist(), ends):
            inside = [tokens[i] for name in sentence for i in name]
            if sentence and seen.issuperset(inside) and float(torch.rand((), generator=rng)) < rate:
                at[row, sentence[int(torch.randint(len(sentence), (), generator=rng))]] = True
            seen.update(inside)
    return Corrupted(ids.masked_fill(at, mask_of(vocab)), ids.masked_fill(~at, IGNORE), at)


def _sentences(tokens: list[int], named: list[bool], ends: Collection[int]) -> Iterator[list[list[int]]]:
    """Of each sentence its names, each the positions of its tokens. named: whether a token belongs to a name."""
    found: list[list[int]] = []
    for i, token in enumerate(tokens):
        if named[i]:
            if found and found[-1][-1] == i - 1:
                found[-1].append(i)
            else:
                found.append([i])
        elif token in ends:
            yield found
            found = []


def mask_spans(
    ids: Tensor,
    rng: torch.Generator,
    *,
    vocab: "Vocab",
    rate: float = 0.15,
    p: float = 0.2,
    longest: int = 10,
    parts: tuple[float, float, float] = (0.8, 0.1, 0.1),
    words: Tensor | None = None,
    keep: Tensor | None = None,
) -> Corrupted:
    """Masking of whole spans (Joshi et al. 2020, SpanBERT, section 3.1).

    Span lengths are geometric, P(l) ~ p (1 - p)^(l - 1), up to `longest` (mean 3.8 words), and are drawn until
    `rate` of the row is covered; the last one is cut to fit. A span gets one draw among `parts`: all its tokens
    become [MASK], or random tokens, or stay.

    Args:
        ids, rng, rate, parts, keep: as for `mask_tokens`.
        p, longest: of the lengths' distribution, in words.
        words: Int[B T], the index of each token's word, -1 for none; without it each token counts as a word.

    Returns: Corrupted(ids, labels, at).

    Raises:
        CourseError: as `mask_tokens`; p outside 0 to 1, or no possible length.

    Known departures: spans are laid out without overlap, every arrangement equally likely; the paper draws starts until
    the budget is spent. A span that meets a special token goes on behind it.
    """
    if not 0 < p <= 1 or longest < 1:
        raise CourseError(f"p is {p} and longest {longest}; span lengths need 0 < p <= 1 and a longest of at least 1.")
    rows, may, pool = _prepared(ids, vocab, rate, parts, words, keep)
    at, draw = torch.zeros_like(may), torch.zeros(rows.shape, device=ids.device)
    for b, here in enumerate(may):
        places = here.nonzero()[:, 0]  # N
        units = places if words is None else words.reshape(rows.shape)[b, places]
        number = torch.unique_consecutive(units, return_inverse=True)[1]  # of each place's word, N
        total = int(number[-1]) + 1 if len(number) else 0
        lengths = span_lengths(share_of(total, rate), rng, p=p, longest=longest)
        for start, length in lay_out(total, lengths, rng):
            inside = places[(number >= start) & (number < start + length)]
            at[b, inside] = True
            draw[b, inside] = torch.rand((), generator=rng, device=rng.device).item()
    return _hidden(ids, rows, at, draw, pool, rng, vocab, parts)


def span_lengths(budget: int, rng: torch.Generator, *, p: float = 0.2, longest: int = 10) -> list[int]:
    """Geometric span lengths of 1 to `longest` that add up to `budget`, in the order drawn; the last is cut to fit."""
    if budget == 0:
        return []
    chances = (1 - p) ** torch.arange(longest, dtype=torch.float64, device=rng.device)
    return fit(1 + torch.multinomial(chances, budget, replacement=True, generator=rng), budget)


def mask_documents(
    ids: Tensor,
    documents: Sequence[int],
    *,
    vocab: "Vocab",
    seed: int,
    epoch: int = 0,
    copies: int | None = None,
    rate: float = 0.15,
    parts: tuple[float, float, float] = (0.8, 0.1, 0.1),
    words: Tensor | None = None,
    keep: Tensor | None = None,
) -> Corrupted:
    """Static or dynamic masking (Liu et al. 2019, RoBERTa, section 4.1), by document instead of by batch.

    Each row's mask depends on (seed, document, which copy of the data this epoch uses) and on the row itself, its
    padding included; so mask before padding to a batch's width, as `data.MaskedBatches` does.

    Args:
        ids: Int[B T]. documents: the B documents' numbers.
        epoch: how many times the data has been gone through before.
        copies: None = dynamic, a new mask every epoch. 1 = static, the same mask each time. 10 = BERT's
            preprocessing, ten masks in turn.
        rate, parts, words, keep: as for `mask_tokens`.

    Returns: Corrupted(ids, labels, at).
    """
    if ids.dim() != 2 or len(documents) != len(ids):
        raise CourseError(f"mask_documents needs one document number a row: {len(documents)} for {tuple(ids.shape)}.")
    if copies is not None and copies < 1:
        raise CourseError(f"copies is {copies}; give at least 1, or None for dynamic masking.")
    copy = epoch if copies is None else epoch % copies
    rows = [
        mask_tokens(
            ids[i],
            generator(seed, copy, document),
            vocab=vocab,
            rate=rate,
            parts=parts,
            words=None if words is None else words[i],
            keep=None if keep is None else keep[i],
        )
        for i, document in enumerate(documents)
    ]
    return Corrupted(*(torch.stack(column) for column in zip(*rows, strict=True)))


def _prepared(
    ids: Tensor,
    vocab: "Vocab",
    rate: float,
    parts: tuple[float, float, float],
    words: Tensor | None,
    keep: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(ids [B T], Bool[B T]: may be chosen, ids [P] to draw random tokens from), after checks of the arguments."""
    check_rate(rate)
    if len(parts) != 3 or min(parts) < 0 or abs(sum(parts) - 1) > 1e-6:
        raise CourseError(f"parts is {parts}; give three shares (mask, random, unchanged) that add up to 1.")
    if vocab.mask is None:
        raise CourseError("Masking needs a vocabulary with a mask token; this tokenizer has none (is it a BPE one?).")
    for name, given in (("words", words), ("keep", keep)):
        if given is not None and given.shape != ids.shape:
            raise CourseError(f"{name} has shape {tuple(given.shape)}, ids has {tuple(ids.shape)}; they must be equal.")
    text = torch.ones(vocab.size, dtype=torch.bool, device=ids.device)
    text[list(vocab.special)] = False
    pool = text.nonzero().squeeze(1)
    if len(pool) == 0:
        raise CourseError("Masking needs ordinary tokens to draw from; this vocabulary has only special ones.")
    rows = ids.reshape(-1, ids.shape[-1])
    may = text[rows]
    if keep is not None:
        may = may & keep.reshape(rows.shape).bool()
    if words is not None:
        may = may & (words.reshape(rows.shape) >= 0)
    return rows, may, pool


def _hidden(
    ids: Tensor,
    rows: Tensor,
    at: Tensor,
    draw: Tensor,
    pool: Tensor,
    rng: torch.Generator,
    vocab: "Vocab",
    parts: tuple[float, float, float],
) -> Corrupted:
    """Put [MASK], a random token or nothing at the chosen places of rows [B T], as `draw` in 0 to 1 says."""
    masked = at & (draw < parts[0])
    swapped = at & (draw >= parts[0]) & (draw < parts[0] + parts[1])
    other = pool[torch.randint(len(pool), rows.shape, generator=rng, device=ids.device)]
    seen = rows.masked_fill(masked, vocab.mask or 0).where(~swapped, other)
    labels = rows.masked_fill(~at, IGNORE)
    return Corrupted(seen.reshape(ids.shape), labels.reshape(ids.shape), at.reshape(ids.shape))
