"""What a masked language model has to fill in (tokens, words, spans), what ELECTRA puts there
instead, and what all corruptions share: the generator of their draws, the tokens that are never
touched, where spans lie."""

import hashlib
from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.vocab import IGNORE, Vocab


def seeded_generator(seed: int, *keys: int) -> torch.Generator:
    """A generator of its own for (seed, keys), e.g. (seed, epoch, document). The numbers are
    hashed, so that neighbouring keys give unrelated streams."""
    digest = hashlib.sha256(repr((seed, *keys)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def mask_of(vocab: Vocab) -> int:
    """The id of [MASK]."""
    if vocab.mask is None:
        raise CourseError(
            "Masking needs a vocabulary with a mask token; this tokenizer has none (is it a BPE"
            " one?)."
        )
    return vocab.mask


def ordinary(ids: Tensor, vocab: Vocab) -> Tensor:
    """Bool of the shape of `ids`: text, unknown words too; not padding, [CLS], [SEP] and the
    like.
    """
    special = [i for i in vocab.special if i != vocab.unk]
    return ~torch.isin(ids, torch.tensor(special, dtype=ids.dtype, device=ids.device))


def stretches(ids: Tensor, vocab: Vocab) -> list[tuple[int, int]]:
    """(start, past the end) of each run of ordinary tokens of a text Int[T]; special tokens lie
    between them.
    """
    edges = torch.nn.functional.pad(ordinary(ids, vocab).int(), (1, 1)).diff()
    return list(
        zip(
            (edges == 1).nonzero()[:, 0].tolist(),
            (edges == -1).nonzero()[:, 0].tolist(),
            strict=True,
        )
    )


def choose(units: Tensor, may: Tensor, rate: float, rng: torch.Generator) -> Tensor:
    """Bool[B T]: all positions of `rate` of each row's units (words), among the positions that
    `may` be chosen.
    """
    width = int(units.max()) + 1 if units.numel() else 0
    present = torch.zeros(len(units), max(width, 1), dtype=torch.bool, device=units.device)  # B W
    inside = units.clamp(min=0)
    present.scatter_reduce_(1, inside, may, reduce="amax")
    order = torch.rand(present.shape, generator=rng, device=units.device).masked_fill(~present, 2.0)
    rank = order.argsort(dim=1).argsort(dim=1)  # of each unit in its row's random order
    there = present.sum(dim=1)
    count = (there * rate).round().clamp(min=1 if rate > 0 else 0).minimum(there)
    return (rank < count[:, None]).gather(1, inside) & may


def share_of(total: int, rate: float) -> int:
    """`rate` of so many tokens, rounded, at least one if there is one."""
    return min(total, max(1 if rate > 0 else 0, round(total * rate)))


def fill_budget(lengths: Tensor, budget: int) -> list[int]:
    """The first of these lengths, as many as it takes to add up to `budget`; the last one is cut to
    fit.
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
    """Where spans of these lengths lie among `total` tokens: (start, length) from left to right,
    none overlapping, every arrangement and order equally likely. apart: at least one token between
    two spans."""
    free, n = total - sum(lengths), len(lengths)
    slots = (
        torch.randperm(free + (1 if apart else n), generator=rng, device=rng.device)[:n]
        .sort()
        .values.tolist()
    )
    order = torch.randperm(n, generator=rng, device=rng.device).tolist()
    spans, covered = [], 0
    for i, (slot, which) in enumerate(zip(slots, order, strict=True)):
        spans.append((slot - (0 if apart else i) + covered, lengths[which]))
        covered += lengths[which]
    return spans


class Corrupted(NamedTuple):
    """What the model sees, what it should say, and where it is asked."""

    ids: Tensor  # Int[B T]
    labels: Tensor  # Int[B T], the original token at the chosen positions, -100 elsewhere
    loss_mask: Tensor  # Bool[B T], the chosen positions, whatever stands there now


def mask_tokens(
    ids: Tensor,
    rng: torch.Generator,
    *,
    vocab: Vocab,
    rate: float = 0.15,
    parts: tuple[float, float, float] = (0.8, 0.1, 0.1),
    words: Tensor | None = None,
    attention_mask: Tensor | None = None,
    spans: bool = False,
) -> Corrupted:
    """Masked-language-model corruption (Devlin et al. 2019, section 3.1 and appendix A.1): chooses
    `rate` of each row's real tokens, rounded, at least one; one draw decides which become [MASK], a
    random token, or stay.

    Args:
        ids: Int[B T] (or Int[T]). Special tokens are never chosen and never drawn as the random
            token.
        parts: shares of [MASK], random, unchanged among the chosen; they add up to 1.
        words: Int[B T], the index of each token's word, -1 for none. If given, `rate` of the row's
            words are chosen, all pieces of each, and each piece has its own draw among the three
            `parts`.
        spans: choose spans (`span_lengths`) of words, or of tokens where no `words` are given, with
            one draw a span (Joshi et al. 2020, SpanBERT, section 3.1). One that meets a special
            token goes on behind it.

    Known departures: BERT draws the random token from the whole vocabulary, special ones too, and
    its whole-word version stops at 15% of the tokens; SpanBERT draws starts until the budget is
    spent, here no spans overlap."""
    if not 0 <= rate <= 1:
        raise CourseError(f"rate is {rate}; the share of tokens to mask lies between 0 and 1.")
    if min(parts) < 0 or abs(sum(parts) - 1) > 1e-6:
        raise CourseError(
            f"parts is {parts}; give three shares (mask, random, unchanged) that add up to 1."
        )
    text = torch.ones(vocab.size, dtype=torch.bool, device=ids.device)
    text[list(vocab.special)] = False
    rows = ids.reshape(-1, ids.shape[-1])
    # every token is its own word
    units = torch.arange(rows.shape[1], device=ids.device).expand_as(rows)
    units = units if words is None else words.reshape(rows.shape)
    may = text[rows] & (units >= 0)
    if attention_mask is not None:
        may = may & attention_mask.reshape(rows.shape).bool()
    if spans:
        at, draw = _spans(units, may, rate, rng)
    else:
        at = choose(units, may, rate, rng)
        draw = torch.rand(rows.shape, generator=rng, device=ids.device)
    pool = text.nonzero().squeeze(1)
    other = pool[torch.randint(len(pool), rows.shape, generator=rng, device=ids.device)]
    swapped = at & (draw >= parts[0]) & (draw < parts[0] + parts[1])
    seen = rows.masked_fill(at & (draw < parts[0]), mask_of(vocab)).where(~swapped, other)
    return Corrupted(*(x.reshape(ids.shape) for x in (seen, rows.masked_fill(~at, IGNORE), at)))


def _spans(units: Tensor, may: Tensor, rate: float, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Bool[B T], spans that cover `rate` of each row's units, and Float[B T], a number in 0 to 1
    for each span.
    """
    at, draw = torch.zeros_like(may), torch.zeros(may.shape, device=may.device)
    for b, here in enumerate(may):
        places = here.nonzero()[:, 0]  # N
        # of each place's word, N
        number = torch.unique_consecutive(units[b, places], return_inverse=True)[1]
        total = int(number[-1]) + 1 if len(number) else 0
        for start, length in lay_out(total, span_lengths(share_of(total, rate), rng), rng):
            inside = places[(number >= start) & (number < start + length)]
            at[b, inside] = True
            draw[b, inside] = torch.rand((), generator=rng, device=rng.device).item()
    return at, draw


def span_lengths(budget: int, rng: torch.Generator) -> list[int]:
    """Span lengths l of 1 to 10 words (mean 3.8), P(l) ~ 0.2 * 0.8^(l - 1), that add up to
    `budget`, in the order drawn; the last is cut to fit."""
    if budget == 0:
        return []
    chances = 0.8 ** torch.arange(10, dtype=torch.float64, device=rng.device)
    return fill_budget(
        1 + torch.multinomial(chances, budget, replacement=True, generator=rng), budget
    )


def mask_documents(
    ids: Tensor,
    documents: Sequence[int],
    *,
    vocab: Vocab,
    seed: int,
    epoch: int = 0,
    copies: int | None = None,
) -> Corrupted:
    """Static or dynamic masking (Liu et al. 2019, RoBERTa, section 4.1): each row's mask depends on
    (seed, document's number, which copy of the data this epoch uses) and on the row, its padding
    included. ids: Int[B T]. copies: None = dynamic, a new mask every epoch; 1 = static; 10 = BERT's
    preprocessing, ten masks in turn."""
    copy = epoch if copies is None else epoch % copies
    rows = [
        mask_tokens(row, seeded_generator(seed, copy, document), vocab=vocab)
        for row, document in zip(ids, documents, strict=True)
    ]
    return Corrupted(*(torch.stack(column) for column in zip(*rows, strict=True)))


def mask_known(
    ids: Tensor,
    rng: torch.Generator,
    *,
    vocab: Vocab,
    names: Collection[int],
    ends: Collection[int],
    rate: float = 0.5,
    words: Tensor | None = None,
) -> Corrupted:
    """Hides what a reader of the sentences before can know: one name in `rate` of those whose names
    all stood before. names: tokens that are names or parts of them. ends: tokens that end a
    sentence (`sentence_ends`). words: Int[B T], the index of each token's word; if given, a word of
    several tokens is a name too. Compare recurring span selection (Ram et al. 2021, ACL)."""
    named = torch.isin(ids, torch.tensor(list(names), dtype=ids.dtype, device=ids.device))
    if words is not None:
        inside_word = (words[:, 1:] == words[:, :-1]) & (words[:, 1:] >= 0)
        named[:, 1:] |= inside_word
        named[:, :-1] |= inside_word
    at = torch.zeros_like(ids, dtype=torch.bool)
    for row, tokens in enumerate(ids.tolist()):
        seen: set[int] = set()
        sentence: list[list[int]] = []  # its names, each the positions of its tokens
        for i, token in enumerate(tokens):
            if named[row, i] and sentence and sentence[-1][-1] == i - 1:
                sentence[-1].append(i)
            elif named[row, i]:
                sentence.append([i])
            elif token in ends:
                inside = [tokens[i] for name in sentence for i in name]
                if (
                    sentence
                    and seen.issuperset(inside)
                    and float(torch.rand((), generator=rng)) < rate
                ):
                    at[row, sentence[int(torch.randint(len(sentence), (), generator=rng))]] = True
                seen.update(inside)
                sentence = []
    return Corrupted(ids.masked_fill(at, mask_of(vocab)), ids.masked_fill(~at, IGNORE), at)


class Replaced(NamedTuple):
    """ids Int[B T]: what ELECTRA's discriminator reads. replaced Bool[B T]: where it differs from
    the original.
    """

    ids: Tensor
    replaced: Tensor


def sample(logits: Tensor, rng: torch.Generator | None = None) -> Tensor:
    """Draw one token a row from softmax(logits), logits [*N V] -> Int[*N]: by Gumbel noise, the
    largest of logits - log(-log u), u uniform (Clark et al. 2020, appendix A). No gradient
    passes."""
    scores = logits.detach().float()
    # its negative is Gumbel distributed
    noise = torch.empty_like(scores).exponential_(generator=rng).log()
    return (scores - noise).argmax(dim=-1)


def replace_tokens(ids: Tensor, loss_mask: Tensor, sampled: Tensor) -> Replaced:
    """Put sampled tokens Int[N] into a text Int[B T], at the places of `loss_mask` in reading order
    (Clark et al. 2020, section 2). A sample that happens to be the original token does not count as
    replaced.

    >>> replace_tokens(torch.tensor([[5, 6, 7]]), torch.tensor([[True, True, False]]), torch.tensor([5, 9]))
    Replaced(ids=tensor([[5, 9, 7]]), replaced=tensor([[False,  True, False]]))
    """
    seen = ids.clone()
    seen[loss_mask] = sampled.to(ids.dtype)
    return Replaced(seen, seen != ids)


def original(ids: Tensor, labels: Tensor, loss_mask: Tensor) -> Tensor:
    """The text as it was before `mask_tokens` hid parts of it, Int[B T]."""
    return replace_tokens(ids, loss_mask, labels[loss_mask]).ids
