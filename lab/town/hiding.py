"""What a masked model thinks of a statement: each of its words hidden in turn, and asked for (no
training).

Sums of such log probabilities are a sentence's pseudo-log-likelihood (Salazar et al. 2020, ACL,
"Masked language model scoring"). Here every word keeps its own, because one wrong word makes a
statement false, and beside it its lead over the context's other words. Eight numbers of these
(`summary`) are few enough for a linear model and 100 labels: few-shot learning by the objective of
pretraining, as in Schick and Schuetze (2021, NAACL)."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np
import torch
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from course_lib.data.tokenizers import Tokenizer
from course_lib.model import heads
from course_lib.model.modes import evaluating
from course_lib.objectives.collate import pad
from course_lib.objectives.draws import mask_id
from lab.engine import arms
from lab.engine.small_models import WORLD
from lab.town.views import Rows, View, apart, judge

KINDS = ("single", "pair", "choice")  # of the tasks that can be asked so
HOW = "stand-ins"  # part of a cell's name: asking in another way is another cell
BATCH = 256  # questions at a time
MOST = 160  # tokens of an input
LEAST = -12.0  # nats; how unlikely a word is beyond that says nothing more
AHEAD = (-8.0, 4.0)  # the same for a lead
WORD = re.compile(r"[^\W\d_]+")
# a thing or a name
CALLED = re.compile(rf"\b(?i:the|an?)\s+({WORD.pattern})|\b(?=[A-Z])({WORD.pattern})")


class _Asked(NamedTuple):
    ids: list[int]  # the input with one word hidden
    place: int  # of the word's first piece
    piece: int  # that piece
    others: list[int]  # first pieces of the words that the context has and the statement has not
    statement: int  # number of the statement


def word_scores(
    model: nn.Module, tokenizer: Tokenizer, contexts: Sequence[str], statements: Sequence[str]
) -> list[Float[Tensor, "W 2"]]:
    """Of each word of each statement (log probability, lead), read behind its context.

    All pieces of a word are hidden, its first piece counts. The lead is its log probability minus
    that of the likeliest other word that stands in the context and not in the statement; infinite
    where there is none.

    model: with an `MLM` or `Pretraining` head. contexts: "" for none; what is too long loses its
    beginning."""
    device = next(model.parameters()).device
    asked = list(_questions(tokenizer, contexts, statements))
    # Like lengths together: little padding.
    order = sorted(range(len(asked)), key=lambda i: len(asked[i].ids))
    scores: dict[int, tuple[float, float]] = {}
    with evaluating(model), torch.no_grad():
        for start in range(0, len(order), BATCH):
            numbers = order[start : start + BATCH]
            inputs = pad([asked[i].ids for i in numbers], tokenizer.vocab.padding_id)
            loss_mask = torch.zeros_like(inputs["attention_mask"])
            loss_mask[range(len(numbers)), [asked[i].place for i in numbers]] = True
            logits = heads.word_logits(
                model,
                inputs["ids"].to(device),
                attention_mask=inputs["attention_mask"].to(device),
                loss_mask=loss_mask.to(device),
            )
            log_probabilities = logits.float().log_softmax(-1).cpu()  # B V
            for i, row in zip(numbers, log_probabilities, strict=True):
                own = row[asked[i].piece].item()
                others = asked[i].others
                best_other = row[others].max().item() if others else -float("inf")
                scores[i] = (own, own - best_other)
    result: list[list[tuple[float, float]]] = [[] for _ in statements]
    for i, question in enumerate(asked):
        result[question.statement].append(scores[i])
    return [torch.tensor(words) for words in result]


def _questions(
    tokenizer: Tokenizer, contexts: Sequence[str], statements: Sequence[str]
) -> Iterator[_Asked]:
    """Each statement behind its context, once for each of its words, which is hidden."""
    vocab = tokenizer.vocab
    mask = mask_id(vocab)
    cls = [] if vocab.cls is None else [vocab.cls]
    sep = [] if vocab.sep is None else [vocab.sep]
    context_ids = tokenizer.ids(list(contexts), special=False)
    statement_ids = tokenizer.ids(list(statements), special=False)
    for number, (context, statement) in enumerate(zip(context_ids, statement_ids, strict=True)):
        words = _words(tokenizer, statement)
        context = context[max(0, len(context) + len(statement) + 2 - MOST) :]
        first_pieces = {context[word[0]] for word in _words(tokenizer, context)}
        others = sorted(first_pieces - {statement[word[0]] for word in words})
        front = [*cls, *context]
        whole = [*front, *statement, *sep]
        for word in words:
            ids = list(whole)
            for piece in word:
                ids[len(front) + piece] = mask
            yield _Asked(ids, len(front) + word[0], statement[word[0]], others, number)


def _words(tokenizer: Tokenizer, ids: list[int]) -> list[list[int]]:
    """The places of each word's pieces."""
    places: dict[int, list[int]] = {}
    for place, word in enumerate(tokenizer.words(torch.tensor(ids, dtype=torch.long)).tolist()):
        if word >= 0:
            places.setdefault(word, []).append(place)
    return list(places.values())


def summary(scores: Float[Tensor, "W 2"]) -> Float[Tensor, "8"]:
    """Eight numbers for a classifier: of a statement's log probabilities and of its leads the mean
    and the least three.

    Where there are fewer than three words, the greatest value stands for the missing ones.
    """
    likely, lead = scores[:, 0].clamp(min=LEAST), scores[:, 1].clamp(*AHEAD)
    return torch.cat(
        [likely.mean()[None], _least(likely, 0.0), lead.mean()[None], _least(lead, AHEAD[1])]
    )


def _least(values: Tensor, missing: float) -> Tensor:
    return torch.cat([values, values.new_full((3,), missing)]).sort().values[:3]


def stand_ins(
    tokenizer: Tokenizer, texts: Sequence[str], names: Sequence[str], things: Sequence[str]
) -> list[str]:
    """The texts with another name for who and what is called by a word in several pieces, the same
    one throughout.

    Who is meant decides, not what they are called (Hermann et al. 2015, NeurIPS, who number the
    entities of a text). A word with a capital is a name, one behind an article a thing. The new
    word, of names or things, follows from the old one; if the texts, a context and its statement,
    have it already, the next free one is taken."""
    called = dict.fromkeys(
        next(filter(None, match)) for text in texts for match in CALLED.findall(text)
    )
    whole = set(whole_words(tokenizer, list(called)))
    taken, new = {word.lower() for text in texts for word in WORD.findall(text)}, dict[str, str]()
    for word in called:
        if word in whole or word.lower() in new:
            continue
        pool = names if word[0].isupper() else things
        start = crc32(word.lower().encode())
        free = (pool[(start + i) % len(pool)] for i in range(len(pool)))
        found = next(name for name in free if name.lower() not in taken)
        taken.add(found.lower())
        new[word.lower()] = found
    return [WORD.sub(lambda match: new.get(match[0].lower(), match[0]), text) for text in texts]


def whole_words(tokenizer: Tokenizer, words: Sequence[str]) -> list[str]:
    """Those of the words that are one token, and a known one."""
    tokens = tokenizer.ids(list(words), special=False)
    return [
        word
        for word, ids in zip(words, tokens, strict=True)
        if len(ids) == 1 and ids[0] != tokenizer.vocab.unk
    ]


def asked_score(view: View, train: Rows, test: Rows, x: np.ndarray, x_test: np.ndarray) -> float:
    """The test score of a linear model of `features`: x of the training rows, x_test of the test
    rows.
    """
    linear = RidgeCV() if view.metric == "pearson" else LogisticRegression(max_iter=500)
    return judge(view, make_pipeline(StandardScaler(), linear), train, test, x, x_test)


def features(rows: Rows, model: nn.Module, tokenizer: Tokenizer) -> np.ndarray:
    """Of each text, or of each pair (a choice with its text is one), eight numbers: the words of
    the shorter side are hidden, read behind the longer one. Which side that is, is the task's, not
    the row's."""
    pairs = apart(rows)
    statements = [row.get("text", "") for row in pairs]
    contexts = [row.get("pair", "") for row in pairs]
    if 0 < sum(map(len, contexts)) <= sum(map(len, statements)):
        contexts, statements = statements, contexts

    people = whole_words(tokenizer, arms.town(WORLD).names("people"))
    objects = whole_words(tokenizer, arms.town(WORLD).names("objects"))
    for i, both in enumerate(zip(contexts, statements, strict=True)):
        contexts[i], statements[i] = stand_ins(tokenizer, both, people, objects)
    scores = word_scores(model, tokenizer, contexts, statements)
    return np.stack([summary(words).numpy() for words in scores])
