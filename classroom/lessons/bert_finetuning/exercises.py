"""Lesson 10: a class read at [CLS], a batch of pairs, a frozen body, labels of words on pieces,
answers as spans.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from classroom.checks.base import answer, listed, normal
from classroom.checks.exercise import exercise


@exercise(
    lambda g: [
        (normal(g, b, t, d), normal(g, d, d), normal(g, d), normal(g, c, d), normal(g, c))
        for b, t, d, c in ((2, 6, 4, 3), (3, 5, 4, 4), (1, 4, 5, 2))
    ],
)
def cls_logits(h: Tensor, w_pool: Tensor, b_pool: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Class logits [B C]: BERT's pooler on [CLS], then one linear layer.

    h [B T D]; w_pool [D D], b_pool [D], w [C D], b [C] as in nn.Linear, an output a row.
    """
    pooled = (h[:, 0] @ w_pool.T + b_pool).tanh()
    return pooled @ w.T + b


@exercise(
    [
        ([([11, 12, 13], [21]), ([31], [41, 42])], 2, 3, 0),
        ([([11], [21, 22]), ([31, 32, 33, 34], [41, 42, 43]), ([51], [61])], 101, 102, 9),
    ],
)
def pair_batch(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]], cls: int, sep: int, pad: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(ids Int[B T], segments Int[B T], attention_mask Bool[B T]) of [CLS] a [SEP] b [SEP].

    pairs: list of (a, b), lists of token ids. Padding at the right: id pad, segment 0,
    attention_mask False."""
    rows = [([cls, *a, sep, *b, sep], [0] * (len(a) + 2) + [1] * (len(b) + 1)) for a, b in pairs]
    width = max(len(row) for row, _ in rows)

    def right(row: list[int], value: int) -> list[int]:
        return row + [value] * (width - len(row))

    ids = torch.tensor([right(row, pad) for row, _ in rows])
    segments = torch.tensor([right(parts, 0) for _, parts in rows])
    attention_mask = torch.tensor([[i < len(row) for i in range(width)] for row, _ in rows])
    return ids, segments, attention_mask


def _frozen(fn: object) -> None:
    from course_lib.families.bert import bert
    from course_lib.model.heads import Classifier, TokenClassifier
    from course_lib.model.transformer import Transformer

    for head, classes in ((TokenClassifier, 3), (Classifier, 2)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = head(Transformer(bert(20, width=8, layers=2, heads=2, length=8)), classes)
            before = {name: value.clone() for name, value in model.state_dict().items()}
            chosen = _parameters(answer(fn, {"model": model}))
        kept = all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
        _judge_frozen(model, chosen, kept)


def _judge_frozen(model: nn.Module, chosen: list[Any], kept: bool) -> None:
    refuse = freeze.refuse
    name_of = {id(p): name for name, p in model.named_parameters()}
    for p in chosen:
        refuse(
            not isinstance(p, nn.Parameter) or id(p) not in name_of,
            "strange",
            kind=type(p).__name__,
        )
    refuse(not kept, "changed")
    trained = {name_of[id(p)] for p in chosen}
    body = {name for name in name_of.values() if name.startswith("stack.")}
    head = set(name_of.values()) - body
    grown = {name for name, p in model.named_parameters() if p.requires_grad}
    refuse(trained & body and grown >= body, "open")
    refuse(trained & body and not grown & body, "body_listed")
    refuse(grown >= body, "body_open")
    refuse(
        grown & body,
        "body_part_open",
        first=min(grown & body, default=""),
        others=len(grown & body) - 1,
    )
    refuse(head - grown, "head_closed", first=min(head - grown, default=""))
    refuse(head - trained, "head_unlisted", missing=", ".join(sorted(head - trained)[:3]))
    refuse(len(chosen) != len(trained), "twice")


def _parameters(value: Any) -> list[Any]:
    """What the student lists: parameters, named parameters, or an optimizer's."""
    if isinstance(value, torch.optim.Optimizer):
        return [p for group in value.param_groups for p in group["params"]]
    no_list = isinstance(value, Tensor | str) or not isinstance(value, Iterable)
    freeze.refuse(no_list, "no_list", kind=type(value).__name__)
    return list(value)


@exercise(judge=_frozen)
def freeze(model: nn.Module) -> list[nn.Parameter]:
    """The parameters to be trained; the body (model.stack) is frozen, the head is not."""
    model.stack.requires_grad_(False)
    return [p for name, p in model.named_parameters() if not name.startswith("stack.")]


@exercise(
    [
        ([None, 0, 1, 1, 1, 2, None], [3, 5, 4]),
        ([None, 0, 0, 1, 2, 3, 3, None, None], [1, 0, 2, 6]),
        ([None, 0, 1, None], [7, 2, 4]),  # the third word was cut off
    ],
    form=listed,
)
def align_labels(words: Sequence[int | None], labels: Sequence[int]) -> list[int]:
    """The list with the label of each token, at the first piece of each word, -100 elsewhere.

    words: for each token the number of its word, None at [CLS] and [SEP]. labels: one a word.
    """
    return [
        -100 if word is None or word in words[:place] else labels[word]
        for place, word in enumerate(words)
    ]


def _read(g: Generator, b: int, t: int, padding: int) -> tuple[Tensor, Tensor]:
    attention_mask = torch.ones(b, t, dtype=torch.bool)
    attention_mask[0, t - padding :] = False
    return 2 * normal(g, b, t, 2), attention_mask


@exercise(lambda g: [_read(g, 2, 5, 2), _read(g, 3, 7, 2), _read(g, 2, 2, 0)])
def span_probabilities(logits: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
    """(start, end), both [B T]: two softmaxes over the positions, padding 0.

    logits [B T 2], start and end in the last dimension; attention_mask Bool[B T].
    """
    masked = logits.masked_fill(~attention_mask[..., None], -math.inf)
    p = masked.softmax(1)
    return p[..., 0], p[..., 1]


def _passage(g: Generator, number: int) -> tuple[Tensor, Tensor, Tensor]:
    """[CLS] question [SEP] passage [SEP] padding, logits that are high outside the passage too."""
    inside = torch.zeros(12, dtype=torch.bool)
    inside[4 : 9 + number % 3] = True
    start, end = 2 * normal(g, 2, 12)
    if number % 2:
        start[-1] += 4
        end[1] += 4
    return start, end, inside


def _apart(start: Tensor, end: Tensor, inside: Tensor) -> list[int]:
    return [int(x.masked_fill(~inside, -math.inf).argmax()) for x in (start, end)]


@exercise(
    lambda g: [_passage(g, number) for number in range(14)],
    form=listed,
)
def best_span(start: Tensor, end: Tensor, inside: Tensor) -> list[int]:
    """(first, last): the answer with the highest start[first] + end[last].

    start, end [T]: logits. inside Bool[T]: the passage's tokens. first <= last, both inside.
    """
    sums = start[:, None] + end
    places = [i for i in range(len(start)) if inside[i]]
    first, last = max(
        ((i, j) for i in places for j in places if i <= j), key=lambda pair: float(sums[pair])
    )
    return [first, last]
