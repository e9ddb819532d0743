"""Right and wrong answers to lesson 10's exercises, for tests/unit/test_check.py."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from course_lib import heads, optim, spans

INF = float("inf")


# --- one label, read at [CLS] -----------------------------------------------------------------------------------


def cls_logits(h, w_pool, b_pool, w, b):
    return F.linear(torch.tanh(F.linear(h[:, 0], w_pool, b_pool)), w, b)


def cls_by_loops(h, w_pool, b_pool, w, b):
    out = []
    for row in h:
        vector = [torch.tanh(w_pool[i] @ row[0] + b_pool[i]) for i in range(len(b_pool))]
        out.append(torch.stack([sum(w[c, i] * vector[i] for i in range(len(vector))) + b[c] for c in range(len(b))]))
    return torch.stack(out)


def cls_of(vector, act=torch.tanh):
    return lambda h, wp, bp, w, b: act(vector(h) @ wp.T + bp) @ w.T + b


# --- a batch of pairs -------------------------------------------------------------------------------------------


def pair_batch(pairs, cls, sep, pad):
    width = max(len(a) + len(b) + 3 for a, b in pairs)
    ids = torch.full((len(pairs), width), pad)
    segments = torch.zeros(len(pairs), width, dtype=torch.int64)
    keep = torch.zeros(len(pairs), width, dtype=torch.bool)
    for row, (a, b) in enumerate(pairs):
        n = len(a) + len(b) + 3
        ids[row, :n] = torch.tensor([cls, *a, sep, *b, sep])
        segments[row, len(a) + 2 : n] = 1
        keep[row, :n] = True
    return ids, segments, keep


def pair_batch_by_pad_sequence(pairs, cls, sep, pad):
    ids = [torch.tensor([cls, *a, sep, *b, sep]) for a, b in pairs]
    parts = [torch.tensor([0] * (len(a) + 2) + [1] * (len(b) + 1)) for a, b in pairs]
    ones = [torch.ones(len(row)) for row in ids]

    def padded(rows, value):
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)

    return padded(ids, pad), padded(parts, 0), padded(ones, 0).bool()


def changed(change):
    return lambda *given: change(*pair_batch(*given))


# --- labels on pieces -------------------------------------------------------------------------------------------


def align(words, labels):
    out, before = [], None
    for word in words:
        out.append(labels[word] if word is not None and word != before else -100)
        before = word
    return out


def align_by_dictionary(words, labels):
    first = {}
    for place, word in enumerate(words):
        first.setdefault(word, place)
    return torch.tensor([labels[w] if w is not None and first[w] == p else -100 for p, w in enumerate(words)])


def every_piece(words, labels, special=-100):
    return [special if word is None else labels[word] for word in words]


# --- spans ------------------------------------------------------------------------------------------------------


def probabilities(logits, keep):
    start, end = logits.unbind(-1)
    return tuple(x.masked_fill(~keep, -INF).softmax(-1) for x in (start, end))


def probabilities_by_exp(logits, keep):
    weights = logits.exp() * keep[..., None]
    p = weights / weights.sum(1, keepdim=True)
    return [p[:, :, 0], p[:, :, 1]]


def both(p):
    return lambda x, keep: tuple(p(x, keep).unbind(-1))


def best_span(start, end, inside):
    best = (-INF, 0, 0)
    for i in range(len(start)):
        for j in range(i, len(end)):
            if inside[i] and inside[j]:
                best = max(best, (float(start[i] + end[j]), i, j))
    return best[1:]


def best_span_at_once(start, end, inside):
    total = (start[:, None] + end).masked_fill(~(inside[:, None] & inside), -INF)
    total = total.masked_fill(~torch.ones_like(total).bool().triu(), -INF)
    return divmod(int(total.argmax()), len(start))


def apart(start, end, inside):
    return int(start.masked_fill(~inside, -INF).argmax()), int(end.masked_fill(~inside, -INF).argmax())


def start_first(start, end, inside):
    first, _ = apart(start, end, inside)
    return first, first + int(end[first:].masked_fill(~inside[first:], -INF).argmax())


def end_first(start, end, inside):
    _, last = apart(start, end, inside)
    return int(start[: last + 1].masked_fill(~inside[: last + 1], -INF).argmax()), last


def of_pairs(scores, inside, diagonal=0):
    allowed = (inside[:, None] & inside).triu(diagonal)
    return divmod(int(scores.masked_fill(~allowed, -INF).argmax()), len(scores))


# --- frozen -----------------------------------------------------------------------------------------------------


def freeze(model):
    model.stack.requires_grad_(False)
    return [p for p in model.parameters() if p.requires_grad]


def freeze_by_name(model):
    head = []
    for name, p in model.named_parameters():
        p.requires_grad = not name.startswith("stack.")
        if p.requires_grad:
            head.append(p)
    return iter(head)


def freeze_to_optimizer(model):
    model.stack.requires_grad_(False)
    return optim.adamw(model)


def without_freezing(model):
    return [p for name, p in model.named_parameters() if not name.startswith("stack.")]


def frozen_but_listed(model):
    model.stack.requires_grad_(False)
    return list(model.parameters())


def embeddings_only(model):
    model.stack.embed.requires_grad_(False)
    return without_freezing(model)


def everything_frozen(model):
    model.requires_grad_(False)
    return without_freezing(model)


def half_a_head(model):
    return freeze(model)[:-1]


def zeroed(model):
    model.stack.requires_grad_(False)
    for p in model.stack.parameters():
        p.data.zero_()
    return without_freezing(model)


RIGHT: dict[str, list[Callable[..., Any]]] = {
    "cls_logits": [cls_logits, cls_by_loops, lambda *x: cls_logits(*(t.double() for t in x))],
    "pair_batch": [pair_batch, pair_batch_by_pad_sequence, lambda *x: list(pair_batch(*x))],
    "align_labels": [align, align_by_dictionary],
    "span_probabilities": [
        probabilities,
        probabilities_by_exp,
        both(lambda x, k: (x - 1e9 * ~k[..., None]).softmax(1)),
    ],
    "best_span": [best_span, best_span_at_once, lambda s, e, inside: spans.best(s, e, inside)],
    "freeze": [freeze, freeze_by_name, freeze_to_optimizer],
}

WRONG: dict[str, list[tuple[Callable[..., Any], str]]] = {
    "cls_logits": [
        (cls_of(lambda h: h[:, -1]), "last token, as GPT does"),
        (cls_of(lambda h: h.mean(1)), "mean over all tokens"),
        (cls_of(lambda h: h.max(1).values), "maximum over all"),
        (cls_of(lambda h: h[:, 1]), "second token"),
        (cls_of(lambda h: h), "Every token gets logits"),
        (cls_of(lambda h: h[0]), "first row of the batch"),
        (cls_of(lambda h: h[:, 0], lambda x: x), "tanh between the two"),
        (cls_of(lambda h: h[:, 0], F.relu), "not ReLU"),
        (cls_of(lambda h: h[:, 0], F.gelu), "differ"),
        (lambda h, wp, bp, w, b: h[:, 0] @ w.T + b, "pooler is left out"),
        (lambda h, wp, bp, w, b: torch.tanh(h[:, 0] @ wp + bp) @ w.T + b, "wrong way round"),
        (lambda h, wp, bp, w, b: torch.tanh(h[:, 0] @ wp.T) @ w.T, "biases are missing"),
        (lambda h, wp, bp, w, b: torch.tanh(h[:, 0] @ wp.T + bp) @ w.T, "bias b is"),
        (lambda h, wp, bp, w, b: torch.tanh(h[:, 0] @ wp.T) @ w.T + b, "bias b_pool is"),
        (lambda h, wp, bp, w, b: torch.tanh(h[:, 0] @ wp.T + bp), "class layer"),
        (lambda *x: cls_logits(*x).softmax(-1), "probabilities"),
        (lambda *x: cls_logits(*x).tanh(), "squeezed"),
        (lambda *x: F.dropout(cls_logits(*x), 0.5), "Two calls"),
    ],
    "pair_batch": [
        (changed(lambda i, s, k: (i, s * 0, k)), "segments are all 0"),
        (changed(lambda i, s, k: (i, 1 - s, k)), "wrong way round"),
        (changed(lambda i, s, k: (i, (1 - s) * k, k)), "wrong way round"),
        (changed(lambda i, s, k: (i, s + ~k, k)), "padding is in segment 1"),
        (changed(lambda i, s, k: (i, s, k | True)), "True everywhere"),
        (changed(lambda i, s, k: (i, s, ~k)), "keep is inverted"),
        (changed(lambda i, s, k: (i, s, k.long())), "torch.bool is asked for"),
        (changed(lambda i, s, k: (i, k, s)), "order is ids, segments, keep"),
        (changed(lambda i, s, k: (i, k)), "segments are missing"),
        (changed(lambda i, s, k: i), "tuple of 3"),
        (changed(lambda i, s, k: (i.flip(1), s.flip(1), k.flip(1))), "differ"),
        (lambda p, c, s, d: pair_batch([(b, a) for a, b in p], c, s, d), "changed places"),
        (lambda p, c, s, d: pair_batch(p, c, s, 0), "argument pad"),
        (lambda p, c, s, d: ([[c, *a, s, *b, s] for a, b in p], 0, 0), "torch.Tensor"),
    ],
    "align_labels": [
        (every_piece, "Every piece of a word"),
        (lambda w, x: every_piece(w, x, 0), "And: [CLS] and [SEP]"),
        (lambda w, x: [0 if p is None else y for p, y in zip(w, align(w, x), strict=True)], "are no words"),
        (lambda w, x: [0 if y == -100 else y for y in align(w, x)], "special tokens get 0"),
        (lambda w, x: [0 if y == -100 and p is not None else y for p, y in zip(w, align(w, x), strict=True)], "pieces"),
        (lambda w, x: [-1 if y == -100 else y for y in align(w, x)], "marked -1"),
        (lambda w, x: align(w[::-1], x)[::-1], "last piece"),
        (lambda w, x: [y for y in align(w, x) if y != -100], "without a label are left out"),
        (lambda w, x: [y for y, p in zip(align(w, x), w, strict=True) if p is not None], "special tokens are left out"),
        (lambda w, x: [*align(w, x)[1:], -100], "not counted"),
        (lambda w, x: x, "as they are"),
        (lambda w, x: [-100 if y == -100 else p for p, y in zip(w, align(w, x), strict=True)], "look it up"),
    ],
    "span_probabilities": [
        (both(lambda x, k: x.softmax(-1)), "wrong axis"),
        (both(lambda x, k: x.masked_fill(~k[..., None], -INF).softmax(-1)), "wrong axis"),
        (both(lambda x, k: x.softmax(0)), "over the batch"),
        (both(lambda x, k: x.softmax(1)), "Padding has a share"),
        (both(lambda x, k: x.softmax(1) * k[..., None]), "after the softmax"),
        (both(lambda x, k: x.masked_fill(~k[..., None], 0).softmax(1)), "exp(0) = 1"),
        (both(lambda x, k: x.masked_fill(k[..., None], -INF).softmax(1)), "wrong way round"),
        (both(lambda x, k: x.masked_fill(~k[..., None], -INF).log_softmax(1)), "log-probabilities"),
        (both(lambda x, k: x.sigmoid()), "sigmoid"),
        (both(lambda x, k: x.masked_fill(~k[..., None], -INF).flatten(1).softmax(1).view_as(x)), "share one softmax"),
        (lambda x, k: probabilities(x, k)[::-1], "changed places"),
        (lambda x, k: torch.stack(probabilities(x, k), -1), "one tensor"),
        (lambda x, k: tuple(p.argmax(-1) for p in probabilities(x, k)), "shape"),
    ],
    "best_span": [
        (lambda s, e, inside: (s.argmax(), e.argmax()), "And the question"),
        (apart, "chosen apart from each other"),
        (lambda *x: sorted(apart(*x)), "put in order"),
        (lambda s, e, inside: best_span(s, e, inside | True), "only tokens inside"),
        (start_first, "First the best start"),
        (end_first, "First the best end"),
        (lambda s, e, inside: best_span(e, s, inside), "changed places in the sum"),
        (lambda s, e, inside: best_span(s, e, inside)[::-1], "First and last have changed"),
        (lambda s, e, i: of_pairs(s[:, None] * e, i), "added"),
        (lambda s, e, i: of_pairs(s[:, None] + e, i, 1), "equal last"),
        (lambda s, e, i: (int((s + e).masked_fill(~i, -INF).argmax()),) * 2, "single token are found"),
        (lambda s, e, i: tuple(p - 4 for p in best_span(s, e, i)), "passage's first token"),
        (lambda s, e, i: (best_span(s, e, i)[0], best_span(s, e, i)[1] + 1), "one too far"),
        (lambda s, e, inside: math.nan, "returns"),
    ],
    "freeze": [
        (lambda model: list(model.parameters()), "Nothing is frozen"),
        (frozen_but_listed, "left in the optimizer"),
        (without_freezing, "still require gradients: they"),
        (embeddings_only, "Only a part of the body"),
        (everything_frozen, "head is frozen too"),
        (half_a_head, "A part of the head"),
        (lambda model: freeze(model) * 2, "twice"),
        (zeroed, "changes weights"),
        (lambda model: [name for name, _ in model.named_parameters()], "is a str"),
        (lambda model: freeze(heads.Tagger(model.stack, 3)), "one of its entries"),
        (lambda model: (freeze(model), model)[1], "list of parameters"),
    ],
}  # fmt: skip
