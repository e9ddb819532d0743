"""Lesson 10: a class read at [CLS], a batch of pairs, a frozen body, labels of words on pieces, answers as spans."""

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
    """
    last: h[:, 0] => h[:, -1]
    mean: h[:, 0] => h.mean(1)
    maximum: h[:, 0] => h.amax(1)
    second: h[:, 0] => h[:, 1]
    every_token: h[:, 0] => h
    first_row: h[:, 0] => h[0]
    no_tanh: .tanh() =>
    relu: tanh() => relu()
    no_pooler: pooled @ => h[:, 0] @
    transposed: w_pool.T => w_pool
    no_biases: + b_pool => && + b =>
    no_b: w.T + b => w.T
    no_b_pool: + b_pool =>
    probabilities: pooled @ w.T + b => (pooled @ w.T + b).softmax(-1)
    pooled: pooled @ w.T + b => pooled
    second_tanh: pooled @ w.T + b => (pooled @ w.T + b).tanh()
    """,
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
    """
    one_segment: segments, attention_mask => 0 * segments, attention_mask
    inverted_with_padding: segments, attention_mask => (1 - segments) * attention_mask, attention_mask
    inverted: segments, attention_mask => 1 - segments, attention_mask
    padding_in_1: segments, attention_mask => segments | (~attention_mask).long(), attention_mask
    all_real: segments, attention_mask => segments, torch.ones_like(attention_mask)
    inverted_mask: segments, attention_mask => segments, ~attention_mask
    no_specials: segments, attention_mask => segments, attention_mask & (ids != cls) & (ids != sep)
    mask_second: segments, attention_mask => attention_mask, segments
    no_segments: segments, attention_mask => attention_mask
    ids_only: ids, segments, attention_mask => (ids,)
    early_segment: (len(a) + 2) + [1] * (len(b) + 1) => (len(a) + 1) + [1] * (len(b) + 2)
    no_last_sep: *b, sep] => *b] && (len(b) + 1) => len(b)
    no_first_sep: *a, sep, => *a, && (len(a) + 2) => (len(a) + 1)
    no_cls: [cls, => [ && (len(a) + 2) => (len(a) + 1)
    exchanged: for a, b in pairs => for b, a in pairs
    left_padding: row + [value] * (width - len(row)) => [value] * (width - len(row)) + row && i < len => width - i <= len
    zero_padding: right(row, pad) => right(row, 0)
    """,  # noqa: E501
)
def pair_batch(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]], cls: int, sep: int, pad: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(ids Int[B T], segments Int[B T], attention_mask Bool[B T]) of [CLS] a [SEP] b [SEP].

    pairs: list of (a, b), lists of token ids. Padding at the right: id pad, segment 0, attention_mask False.
    """
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
        refuse(not isinstance(p, nn.Parameter) or id(p) not in name_of, "strange", kind=type(p).__name__)
    refuse(not kept, "changed")
    trained = {name_of[id(p)] for p in chosen}
    body = {name for name in name_of.values() if name.startswith("stack.")}
    head = set(name_of.values()) - body
    grown = {name for name, p in model.named_parameters() if p.requires_grad}
    refuse(trained & body and grown >= body, "open")
    refuse(trained & body and not grown & body, "body_listed")
    refuse(grown >= body, "body_open")
    refuse(grown & body, "body_part_open", first=min(grown & body, default=""), others=len(grown & body) - 1)
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


@exercise(
    mistakes="""
    open...: model.stack.requires_grad_(False) => pass && if not name.startswith("stack.") =>
    body_listed...: if not name.startswith("stack.") =>
    body_open...: model.stack.requires_grad_(False) => pass
    body_part_open...: model.stack.requires => model.stack.blocks.requires
    head_closed...: model.stack.requires => model.requires
    head_unlisted...: if not => if "bias" in name and not
    twice...: return [ => return 2 * [
    changed...: model.stack.requires_grad_(False) => next(model.stack.requires_grad_(False).parameters()).data.zero_()
    strange...: [p for => [name for
    no_list...: => torch.zeros(1)
    """,
    also=[
        lambda model: (
            model.stack.requires_grad_(False)
            and torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        )
    ],
    judge=_frozen,
)
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
    """
    every_piece: or word in words[:place] =>
    specials: -100 if word is None or => 0 if word is None else -100 if
    pieces_and_specials: -100 if word is None or word in words[:place] => 0 if word is None
    pieces_zero: None or word => None else 0 if word
    zeros: -100 => 0
    minus_one: -100 => -1
    last_piece: [:place] => [place + 1 :]
    left_out: enumerate(words)] => enumerate(words) if word is not None and word not in words[:place]]
    specials_left_out: enumerate(words)] => enumerate(words) if word is not None]
    no_cls: return [ => return [*[ && enumerate(words)] => enumerate(words)][1:], -100]
    dealt_out: => [-100, *labels, *[-100] * (len(words) - len(labels) - 1)]
    unchanged: => list(labels)
    word_number: labels[word] => word
    """,
    form=listed,
)
def align_labels(words: Sequence[int | None], labels: Sequence[int]) -> list[int]:
    """The list with the label of each token, at the first piece of each word, -100 elsewhere.

    words: for each token the number of its word, None at [CLS] and [SEP]. labels: one a word.
    """
    return [-100 if word is None or word in words[:place] else labels[word] for place, word in enumerate(words)]


def _read(g: Generator, b: int, t: int, padding: int) -> tuple[Tensor, Tensor]:
    attention_mask = torch.ones(b, t, dtype=torch.bool)
    attention_mask[0, t - padding :] = False
    return 2 * normal(g, b, t, 2), attention_mask


@exercise(
    lambda g: [_read(g, 2, 5, 2), _read(g, 3, 7, 2), _read(g, 2, 2, 0)],
    """
    over_start_and_end: masked.softmax(1) => logits.softmax(-1)
    over_start_and_end: masked.softmax(1) => logits.softmax(-1) * attention_mask[..., None]
    over_start_and_end: softmax(1) => softmax(-1)
    over_batch: masked.softmax(1) => logits.softmax(0)
    over_batch: softmax(1) => softmax(0)
    padding: masked.softmax => logits.softmax
    late_mask: masked.softmax(1) => logits.softmax(1) * attention_mask[..., None]
    zero_logits: -math.inf => 0
    zero_logits: masked.softmax => (logits * attention_mask[..., None]).softmax
    inverted_mask: ~attention_mask => attention_mask
    logs: softmax => log_softmax
    sigmoid: masked.softmax(1) => logits.sigmoid()
    one_softmax: masked.softmax(1) => masked.flatten(1).softmax(1).view_as(logits)
    exchanged: p[..., 0], p[..., 1] => p[..., 1], p[..., 0]
    one_tensor: p[..., 0], p[..., 1] => p
    """,
)
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
    """
    apart_and_outside: => [int(start.argmax()), int(end.argmax())]
    apart: => _apart(start, end, inside)
    ordered: => sorted(_apart(start, end, inside))
    outside: if inside[i] =>
    first_start: float(sums[pair]) => (float(start[pair[0]]), float(end[pair[1]]))
    first_end: float(sums[pair]) => (float(end[pair[1]]), float(start[pair[0]]))
    no_single: i <= j => i < j
    single_only: i <= j => i == j
    product: start[:, None] + end => start[:, None] * end
    exchanged: [first, last] => [last, first]
    from_passage: [first, last] => [first - places[0], last - places[0]]
    one_too_far: [first, last] => [first, last + 1]
    swapped_logits: start[:, None] + end => end[:, None] + start
    """,
    form=listed,
)
def best_span(start: Tensor, end: Tensor, inside: Tensor) -> list[int]:
    """(first, last): the answer with the highest start[first] + end[last].

    start, end [T]: logits. inside Bool[T]: the passage's tokens. first <= last, both inside.
    """
    sums = start[:, None] + end
    places = [i for i in range(len(start)) if inside[i]]
    first, last = max(((i, j) for i in places for j in places if i <= j), key=lambda pair: float(sums[pair]))
    return [first, last]
