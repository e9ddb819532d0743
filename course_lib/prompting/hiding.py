"""What a masked model thinks of a statement: each of its words hidden in turn, and asked for (no training).

Sums of such log probabilities are a sentence's pseudo-log-likelihood (Wang and Cho 2019, NeuralGen; Salazar et al.
2020, ACL, "Masked language model scoring"). Here every word keeps its own, because one wrong word makes a statement
false, and beside it stands its lead: would the model rather say another word of the context in this place?

A name that the model has never read is in pieces, and it neither expects nor copies them; `stand_ins` calls such people
and things by names that it knows.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple
from zlib import crc32

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.corrupt.base import mask_of
from course_lib.data.batches import pad
from course_lib.errors import CourseError
from course_lib.prompting.scoring import reading
from course_lib.tokenizers import Tokenizer

LEAST = -12.0  # nats; how unlikely a word is beyond that says nothing more
AHEAD = (-8.0, 4.0)  # the same for a lead
WORD = re.compile(r"[^\W\d_]+")
CALLED = re.compile(rf"\b(?i:the|an?)\s+({WORD.pattern})|\b(?=[A-Z])({WORD.pattern})")  # a thing or a name


class _Asked(NamedTuple):
    ids: list[int]  # the input with one word hidden
    place: int  # of the word's first piece
    piece: int  # that piece
    others: list[int]  # first pieces of the words that the context has and the statement has not
    statement: int  # number of the statement


def word_scores(
    model: nn.Module,
    tokenizer: Tokenizer,
    contexts: Sequence[str],
    statements: Sequence[str],
    *,
    batch: int = 256,
    most: int = 160,
) -> list[Float[Tensor, "W 2"]]:
    """Of each word of each statement (log probability, lead), read behind its context.

    All pieces of a word are hidden, its first piece counts. The lead is its log probability minus that of the
    likeliest other word that stands in the context and not in the statement; infinite where there is none.

    Args:
        model: an `MLM` or `Pretraining` head. contexts: texts, "" for none. most: tokens of an input; what is too long
            loses the context's beginning.

    Raises:
        CourseError: a tokenizer without a mask token, or a statement without a word.
    """
    device = next(model.parameters()).device
    asked = list(_questions(tokenizer, contexts, statements, most))
    order = iter(sorted(range(len(asked)), key=lambda i: len(asked[i].ids)))  # like lengths together: little padding
    found: dict[int, tuple[float, float]] = {}
    with reading(model):
        while some := list(islice(order, batch)):
            inputs = pad([asked[i].ids for i in some], tokenizer.vocab.pad or 0)
            at = torch.zeros_like(inputs["keep"])
            at[range(len(some)), [asked[i].place for i in some]] = True
            logits = model(inputs["ids"].to(device), keep=inputs["keep"].to(device), at=at.to(device))
            logits = logits[0] if isinstance(logits, tuple) else logits
            for i, logs in zip(some, logits.float().log_softmax(-1).cpu(), strict=True):
                own = logs[asked[i].piece].item()
                rival = logs[asked[i].others].max().item() if asked[i].others else -float("inf")
                found[i] = (own, own - rival)
    result: list[list[tuple[float, float]]] = [[] for _ in statements]
    for i, question in enumerate(asked):
        result[question.statement].append(found[i])
    return [torch.tensor(words) for words in result]


def _questions(tokenizer: Tokenizer, contexts: Sequence[str], statements: Sequence[str], most: int) -> Iterator[_Asked]:
    vocab, hidden = tokenizer.vocab, mask_of(tokenizer.vocab)
    given, said = (tokenizer.ids(list(texts), special=False) for texts in (contexts, statements))
    for number, (context, statement) in enumerate(zip(given, said, strict=True)):
        words = _words(tokenizer, statement)
        if not words:
            raise CourseError(f"Statement {number} is {statements[number]!r}: there is no word to hide.")
        context = context[max(0, len(context) + len(statement) + 2 - most) :]
        told = {context[word[0]] for word in _words(tokenizer, context)} - {statement[word[0]] for word in words}
        front = [*([] if vocab.cls is None else [vocab.cls]), *context]
        whole = [*front, *statement, *([] if vocab.sep is None else [vocab.sep])]
        for word in words:
            ids = list(whole)
            for piece in word:
                ids[len(front) + piece] = hidden
            yield _Asked(ids, len(front) + word[0], statement[word[0]], sorted(told), number)


def _words(tokenizer: Tokenizer, ids: list[int]) -> list[list[int]]:
    """The places of each word's pieces."""
    places: dict[int, list[int]] = {}
    for place, word in enumerate(tokenizer.words(torch.tensor(ids, dtype=torch.long)).tolist()):
        if word >= 0:
            places.setdefault(word, []).append(place)
    return list(places.values())


def summary(scores: Float[Tensor, "W 2"]) -> Float[Tensor, "8"]:
    """Eight numbers for a classifier: of a statement's log probabilities and of its leads the mean and the least three.

    Where there are fewer than three words, the greatest value stands for the missing ones.
    """
    likely, lead = scores[:, 0].clamp(min=LEAST), scores[:, 1].clamp(*AHEAD)
    return torch.cat([likely.mean()[None], _least(likely, 0.0), lead.mean()[None], _least(lead, AHEAD[1])])


def _least(values: Tensor, missing: float) -> Tensor:
    return torch.cat([values, values.new_full((3,), missing)]).sort().values[:3]


def stand_ins(tokenizer: Tokenizer, texts: Sequence[str], names: Sequence[str], things: Sequence[str]) -> list[str]:
    """The texts with another name for who and what is called by a word in several pieces, the same one throughout.

    Who is meant decides, not what they are called (Hermann et al. 2015, NeurIPS, who number the entities of a text). A
    word with a capital is a name, one behind an article a thing. The new word follows from the old one; if the texts
    have it already, the next free one is taken.

    Args:
        texts: what is read together, a context and its statement.
        names: stand-ins for names, things: for things; `whole_words` finds some that the model knows.

    Raises:
        CourseError: there are more words in pieces than stand-ins.
    """
    called = dict.fromkeys(next(filter(None, match)) for text in texts for match in CALLED.findall(text))
    whole = set(whole_words(tokenizer, list(called)))
    taken, new = {word.lower() for text in texts for word in WORD.findall(text)}, dict[str, str]()
    for word in called:
        if word in whole or word.lower() in new:
            continue
        pool = names if word[0].isupper() else things
        start = crc32(word.lower().encode())
        free = (pool[(start + i) % len(pool)] for i in range(len(pool)))
        found = next((name for name in free if name.lower() not in taken), None)
        if found is None:
            raise CourseError(f"There is no stand-in left for {word!r}: the {len(pool)} that were given are all taken.")
        taken.add(found.lower())
        new[word.lower()] = found
    return [WORD.sub(lambda match: new.get(match[0].lower(), match[0]), text) for text in texts]


def whole_words(tokenizer: Tokenizer, words: Sequence[str]) -> list[str]:
    """Those of the words that are one token, and a known one."""
    tokens = tokenizer.ids(list(words), special=False)
    return [word for word, ids in zip(words, tokens, strict=True) if len(ids) == 1 and ids[0] != tokenizer.vocab.unk]
