"""Lesson 14: sentences in each of which one word is changed, and who points at it."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.model.heads import word_logits
from course_lib.objectives.collate import pad_to_longest

SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
FEWEST = 20


class Chosen(NamedTuple):
    """Sentences with one word chosen in each."""

    ids: Tensor  # Int[B T]
    real: Tensor  # Bool[B T], False at the padding
    chosen: Tensor  # Bool[B T], True at one token of each row


def sentences(documents: Sequence[str], shortest: int = 8, longest: int = 30) -> list[str]:
    """The sentences of some documents that have so many words, each once.

    Where there are hardly any, all sentences, however long and often.

    Raises:
        CourseError: there is no sentence of two words or more.
    """
    found = [text for document in documents for text in SENTENCE_END.split(document)]
    fitting = [t for t in dict.fromkeys(found) if shortest <= len(t.split()) <= longest]
    if len(fitting) < FEWEST:
        fitting = [text for text in found if len(text.split()) > 1]
    if len(fitting) < 2:
        raise CourseError("DATA: there are no sentences in it.")
    return fitting


def frequencies(tokenizer: Tokenizer, texts: Sequence[str]) -> Tensor:
    """How often each word of one token stands in the texts, Float[V]. All other tokens have 0."""
    flat = torch.tensor([i for ids in tokenizer.ids(list(texts), max_length=512) for i in ids])
    counts = torch.bincount(flat, minlength=len(tokenizer)).float()
    return counts * _of_letters(tokenizer)


class Pairs:
    """Counted pairs of neighbouring tokens: the cheapest reader that looks at the context.

    A token is suspected where it stands beside its two neighbours less often than the frequencies
    of the three alone would have it.

    >>> pairs = Pairs(tokenizer, texts)  # doctest: +SKIP
    >>> suspicion = pairs(ids)  # Float[B T]  # doctest: +SKIP
    """

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str], smoothing: float = 5.0) -> None:
        """Count.

        Args:
            tokenizer: of the ids.
            texts: to count in.
            smoothing: a pair's share leans on the second token's own as if that were seen so often.
        """
        rows = [torch.tensor(ids) for ids in tokenizer.ids(list(texts), max_length=512)]
        self.size, self.smoothing = len(tokenizer), smoothing
        self.single = torch.bincount(torch.cat(rows), minlength=self.size) + 0.5
        both = torch.cat([row[:-1] * self.size + row[1:] for row in rows])
        self.pairs, self.counts = torch.unique(both, return_counts=True)

    def __call__(self, ids: Tensor) -> Tensor:
        """How little each token fits its neighbours. Float[B T]."""
        before, after = ids[:, :-1], ids[:, 1:]
        wanted = before * self.size + after
        place = torch.searchsorted(self.pairs, wanted).clamp(max=len(self.pairs) - 1)
        seen = torch.where(self.pairs[place] == wanted, self.counts[place], 0)
        share = self.single[after] / self.single.sum()
        expected = (self.single[before] + self.smoothing) * share
        strange = -((seen + self.smoothing * share) / expected).log()  # B T-1
        result = torch.zeros(ids.shape)
        result[:, 1:] += strange
        result[:, :-1] += strange
        return result


def _of_letters(tokenizer: Tokenizer) -> Tensor:
    """Which tokens are letters only, and begin a word where a tokenizer shows that. Bool[V]."""
    special = set(tokenizer.vocab.special)
    spelled = tokenizer.tokens(range(len(tokenizer)))
    return torch.tensor(
        [i not in special and token.lstrip("Ġ▁").isalpha() for i, token in enumerate(spelled)]
    )


def choose_one(
    tokenizer: Tokenizer, texts: Sequence[str], rng: torch.Generator, max_length: int = 64
) -> Chosen:
    """Choose one word of each text: of letters, a single token, any with equal probability.

    A text without such a word has one of its other tokens chosen.
    """
    rows = tokenizer.ids(list(texts), max_length=max_length)
    ids, real = pad_to_longest(rows, tokenizer.vocab.padding_id).values()
    word = tokenizer.words(ids)
    inside = real & (word >= 0)
    alone = inside & (word != word.roll(1, 1)) & (word != word.roll(-1, 1))
    alone &= _of_letters(tokenizer)[ids]
    place = torch.multinomial(alone.float() + 1e-6 * inside, 1, generator=rng)  # B 1
    return Chosen(ids, real, torch.zeros_like(real).scatter(1, place, True))


def points_at(suspicion: Tensor, real: Tensor, chosen: Tensor) -> Tensor:
    """Whether the most suspected token of each text is the chosen one, Bool[B].

    The first and the last token, which frame a text, are never suspected.

    Args:
        suspicion: Float[B T], the larger the more.
        real: Bool[B T], False at the padding.
        chosen: Bool[B T].
    """
    inner = real & real.roll(-1, 1)
    inner[:, 0] = inner[:, -1] = False
    return chosen.gather(1, suspicion.masked_fill(~inner, -torch.inf).argmax(1, keepdim=True))[:, 0]


@torch.no_grad()
def surprise(model: nn.Module, ids: Tensor, real: Tensor, rows: int = 32) -> Tensor:
    """-log p of each token, by a masked language model that reads all of them. Float[B T]."""
    parts = []
    for some, there in zip(torch.split(ids, rows), torch.split(real, rows), strict=True):
        logits = word_logits(model, some, attention_mask=there)  # B T V
        parts.append(logits.logsumexp(-1) - logits.gather(-1, some[..., None])[..., 0])
    return torch.cat(parts)


def spelled(
    tokenizer: Tokenizer, ids: Tensor, suspicion: Tensor, original: Tensor
) -> tuple[list[str], list[float]]:
    """The words of a text, and of each the largest suspicion of its tokens.

    Args:
        tokenizer: of the ids.
        ids: Int[T].
        suspicion: Float[T].
        original: Int[T], the text before. Its words are counted, so that a changed text has as
            many. Special tokens are left out.
    """
    number = tokenizer.words(original)
    parts = [number == i for i in range(int(number.max()) + 1)]
    texts = [tokenizer.decode(ids[part]).strip() for part in parts]
    return texts, [float(suspicion[part].max()) for part in parts]
