"""The checks themselves: several right variants pass, every named slip is named, stubs and crashes get one sentence."""

import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from course_lib import check, corrupt
from tests.unit import finetuning_answers

NAMES = [name for name in check.__all__ if name != "Verdict"]


def run(name: str, fn: object) -> check.Verdict:
    return getattr(check, name)(fn)


# --- 01 self-attention ------------------------------------------------------------------------------------------


def attention(q, k, v):
    return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) @ v


def attention_by_einsum(q, k, v):
    scores = torch.einsum("...id,...jd->...ij", q, k) * q.size(-1) ** -0.5
    weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
    return torch.einsum("...ij,...jd->...id", weights, v)


def attention_by_loops(q, k, v):
    if q.dim() > 2:
        return torch.stack([attention_by_loops(*one) for one in zip(q, k, v, strict=True)])
    rows = []
    for query in q:
        scores = torch.stack([query.dot(key) for key in k]) / len(query) ** 0.5
        rows.append(sum(w * value for w, value in zip(scores.softmax(0), v, strict=True)))
    return torch.stack(rows)


def attention_in_double(q, k, v):
    return attention(q.double(), k.double(), v.double())


def masked(q, k, v, mask, fill=-1e30):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~mask, fill).softmax(-1) @ v


def masked_then_zero(q, k, v, mask):
    scores = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(~mask, -math.inf)
    return scores.softmax(-1).nan_to_num() @ v


def masked_and_renormalised(q, k, v, mask):
    probs = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) * mask
    return probs / probs.sum(-1, keepdim=True).clamp(min=1e-9) @ v


def split(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def heads_with(split=split, merge=merge, attend=attention, out=True):
    def run(x, wq, wk, wv, wo, heads):
        merged = merge(attend(*(split(x @ w, heads) for w in (wq, wk, wv))))
        return merged @ wo if out else merged

    return run


def heads_by_loop(x, wq, wk, wv, wo, heads):
    q, k, v = x @ wq, x @ wk, x @ wv
    return torch.cat([attention(*p) for p in zip(*(t.chunk(heads, -1) for t in (q, k, v)), strict=True)], -1) @ wo


def scaled_by(factor):
    return lambda q, k, v: (q @ k.transpose(-2, -1) * factor(q)).softmax(-1) @ v


# --- 08 GPT-1 ---------------------------------------------------------------------------------------------------


def next_token(logits, ids, keep=None):
    targets = ids[:, 1:] if keep is None else ids[:, 1:].masked_fill(~keep[:, 1:], -100)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), targets.flatten())


def next_token_by_loop(logits, ids):
    total = [-logits[b, t].log_softmax(0)[ids[b, t + 1]] for b in range(len(ids)) for t in range(ids.shape[1] - 1)]
    return sum(total) / len(total)


def shifted(logits, ids, reduction="mean", x=slice(None, -1), y=slice(1, None)):
    return F.cross_entropy(logits[:, x].flatten(0, 1), ids[:, y].flatten(), reduction=reduction)


def padded(logits, ids, keep):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def perplexity(losses, keep):
    return math.exp((losses * keep).sum() / keep.sum())


def top_k(logits, k):
    least = logits.topk(k).values[..., -1:]
    return logits.masked_fill(logits < least, -math.inf).softmax(-1)


def sampler(probs):
    return lambda x, k, t, rng: int(torch.multinomial(probs(x, k, t), 1, generator=rng))


# --- 09 BERT ----------------------------------------------------------------------------------------------------


def masking(
    rate=0.15,
    mask=0.8,
    random=0.1,
    special=True,
    clone=True,
    labels="right",
    ignore=-100,
    overlap="",
    generator=True,
    shared=False,
):
    """BERT's masking with one thing wrong."""

    def fn(ids, rng, vocab):
        g = {"generator": rng} if generator else {}
        x = ids.clone() if clone else ids
        original = ids.clone()
        draw = torch.rand(ids.shape[1:] if shared else ids.shape, **g).expand(ids.shape)
        at = draw < rate
        if special:
            at = at & ~torch.isin(ids, torch.tensor(vocab.special))
        fate = torch.rand(ids.shape, **g)
        masked, swapped = at & (fate < mask), at & (fate >= mask) & (fate < mask + random)
        again = torch.rand(ids.shape, **g)
        if overlap == "keras":
            masked = at & (fate < 0.9)
            swapped = masked & (again < 0.1)
            masked &= ~swapped
        elif overlap == "overwrite":
            swapped = at & (again < 0.1)
        elif overlap == "rest":
            swapped = at & ~masked & (again < 0.1)
        x[masked] = vocab.mask
        x[swapped] = torch.randint(5, vocab.size, (int(swapped.sum()),), **g)
        target = {"right": original, "corrupted": x}.get(labels, original)
        where = {"all": torch.ones_like(at), "changed": masked | swapped, "outside": ~at}.get(labels, at)
        return x, torch.where(where, target, ignore)

    return fn


def mlm(logits, ids, at):
    return F.cross_entropy(logits[at], ids[at])


def bert_input(a, b, cls, sep):
    return [cls, *a, sep, *b, sep], [0] * (len(a) + 2) + [1] * (len(b) + 1)


def pairs(half=0.5, inverted=False, other=True, order=1, generator=True):
    def fn(documents, rng, n):
        g = {"generator": rng} if generator else {}
        made = []
        for _ in range(n):
            d = int(torch.randint(len(documents), (1,), **g))
            s = int(torch.randint(len(documents[d]) - 1, (1,), **g))
            first, second, label = documents[d][s], documents[d][s + 1], 0
            if order < 0:
                first, second = second, first
            if torch.rand(1, **g).item() < half:
                e = (d + 1 + int(torch.randint(len(documents) - 1, (1,), **g))) % len(documents) if other else d
                second, label = documents[e][int(torch.randint(len(documents[e]), (1,), **g))], 1
            made.append((first, second, 1 - label if inverted else label))
        return made

    return fn


def library_masking(ids, rng, vocab):
    return corrupt.mask_tokens(ids, rng, vocab=vocab)


RIGHT: dict[str, list[Callable[..., Any]]] = {
    "accuracy": [
        lambda p, g: sum(a == b for a, b in zip(p, g, strict=True)) / len(p),
        lambda p, g: float(np.mean(np.array(p) == np.array(g))),
        lambda p, g: (torch.tensor(p) == torch.tensor(g)).float().mean(),
    ],
    "vocabulary_size": [lambda t: len(set(" ".join(t).split())), lambda t: len({w for x in t for w in x.split(" ")})],
    "label_counts": [lambda x: {k: x.count(k) for k in x}, lambda x: __import__("collections").Counter(x)],
    "softmax_attention": [
        attention,
        attention_by_einsum,
        attention_by_loops,
        attention_in_double,
        F.scaled_dot_product_attention,
        lambda q, k, v: (q / q.shape[-1] ** 0.5 @ k.mT).softmax(dim=-1).matmul(v),
    ],
    "causal_mask": [
        lambda n: torch.ones(n, n, dtype=torch.bool).tril(),
        lambda n: torch.arange(n)[:, None] >= torch.arange(n),
        lambda n: ~torch.ones(n, n).triu(1).bool(),
        lambda n: torch.tensor([[j <= i for j in range(n)] for i in range(n)]),
    ],
    "masked_attention": [masked, masked_then_zero, masked_and_renormalised],
    "split_heads": [
        split,
        lambda x, h: torch.stack(x.chunk(h, -1), 1),
        lambda x, h: x.reshape(*x.shape[:2], h, -1).permute(0, 2, 1, 3).contiguous(),
    ],
    "merge_heads": [merge, lambda x: torch.cat(list(x.unbind(1)), -1)],
    "multi_head": [heads_with(), heads_by_loop, heads_with(attend=F.scaled_dot_product_attention)],
    "gelu": [
        lambda x: x / 2 * (1 + torch.erf(x / math.sqrt(2))),
        F.gelu,
        lambda x: x * torch.distributions.Normal(0, 1).cdf(x),
    ],
    "next_token_loss": [next_token, next_token_by_loop, lambda x, ids: next_token(x.double(), ids)],
    "perplexity": [perplexity, lambda x, keep: x[keep].mean().exp()],
    "temperature": [
        lambda x, t: F.softmax(x / t, dim=-1),
        lambda x, t: (x / t).exp() / (x / t).exp().sum(-1, keepdim=True),
    ],
    "top_k": [top_k],
    "sample_top_k": [
        sampler(lambda x, k, t: top_k(x / t, k)),
        sampler(lambda x, k, t: top_k(x, k).pow(1 / t)),
        lambda x, k, t, rng: torch.multinomial(top_k(x / t, k), 1, generator=rng),
    ],
    "entailment_input": [
        lambda p, h, s, d, e: [s, *p, d, *h, e],
        lambda p, h, s, d, e: torch.tensor([s] + p + [d] + h + [e]),
    ],
    "similarity_inputs": [lambda a, b, s, d, e: ([s, *a, d, *b, e], [s, *b, d, *a, e])],
    "choice_inputs": [lambda c, n, s, d, e: [[s, *c, d, *a, e] for a in n]],
    "mask_tokens": [masking(), library_masking],
    "mlm_loss": [
        mlm,
        lambda x, ids, at: F.cross_entropy(x.flatten(0, 1), ids.masked_fill(~at, -100).flatten()),
        lambda x, ids, at: (F.cross_entropy(x.mT, ids, reduction="none") * at).sum() / at.sum(),
    ],
    "bert_input": [bert_input, lambda *x: tuple(map(torch.tensor, bert_input(*x)))],
    "nsp_pairs": [pairs(), lambda documents, rng, n: corrupt.nsp_pairs(documents, rng, n=n)],
}

# check -> [(a wrong answer, words that the message must hold)]
WRONG: dict[str, list[tuple[Callable[..., Any], str]]] = {
    "accuracy": [
        (lambda p, g: sum(a == b for a, b in zip(p, g, strict=True)), "divide by how many"),
        (lambda p, g: sum(a != b for a, b in zip(p, g, strict=True)) / len(g), "share of errors"),
        (lambda p, g: 100 * sum(a == b for a, b in zip(p, g, strict=True)) / len(g), "percent"),
        (lambda p, g: sum(a == b for a, b in zip(p, g, strict=True)) // len(g), "fraction"),
        (lambda p, g: "0.5", "returns '0.5'"),
    ],
    "vocabulary_size": [
        (lambda t: len(" ".join(t).split()), "repeated"),
        (lambda t: len(set("".join(t))), "characters"),
        (lambda t: sum(len(set(x.split())) for x in t), "one set for all"),
        (lambda t: len(set(" ".join(t).lower().split())), "as written"),
    ],
    "label_counts": [(lambda x: len(set(x)), "number of labels"), (lambda x: dict.fromkeys(x, 1), "add up")],
    "softmax_attention": [
        (scaled_by(lambda q: 1), "not divided by sqrt(Dh)"),
        (scaled_by(lambda q: 1 / q.shape[-1]), "by Dh instead of its square root"),
        (scaled_by(lambda q: q.shape[-1] ** 0.5), "multiplied by sqrt(Dh)"),
        (lambda q, k, v: (q @ k.mT).softmax(-1) / q.shape[-1] ** 0.5 @ v, "after the softmax"),
        (lambda q, k, v: (q @ k.mT / q.shape[-1] ** 0.5).softmax(-2) @ v, "over the queries"),
        (lambda q, k, v: (q @ k.mT / q.shape[-1] ** 0.5).softmax(0) @ v, "dim=0"),
        (lambda q, k, v: (q @ k.mT / q.shape[-1] ** 0.5).softmax(1) @ v, "dim=1"),
        (lambda q, k, v: (q @ k.mT).softmax(-2) @ v, "not divided by sqrt(Dh). And: The softmax runs over the queries"),
        (lambda q, k, v: (q @ k / q.shape[-1] ** 0.5).softmax(-1) @ v, "not transposed"),
        (lambda q, k, v: (k @ q.mT / q.shape[-1] ** 0.5).softmax(-1) @ v, "changed places"),
        (lambda q, k, v: (q @ k.T / q.shape[-1] ** 0.5).softmax(-1) @ v, "k.T"),
        (lambda q, k, v: (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1), "attention weights"),
        (lambda q, k, v: q @ k.mT / q.shape[-1] ** 0.5 @ v, "softmax is missing"),
        (lambda q, k, v: (q @ k.mT / k.shape[-2] ** 0.5).softmax(-1) @ v, "number of keys"),
        (lambda q, k, v: F.dropout(attention(q, k, v)), "Two calls"),
        (lambda q, k, v: attention(q.mul_(2), k, v), "`q` in place"),
        (lambda q, k, v: attention(q, k, v).numpy(), "torch.Tensor"),
        (lambda q, k, v: attention(q, k, v) * math.nan, "NaN"),
        (lambda q, k, v: attention(q, k, v)[..., :1], "shape"),
        (lambda q, k, v: attention(q, k, v) + 0.01, "differ"),
    ],
    "causal_mask": [
        (lambda n: torch.ones(n, n).bool().tril(-1), "diagonal is left out"),
        (lambda n: torch.ones(n, n).bool().tril(1), "sees the next one"),
        (lambda n: torch.ones(n, n).bool().triu(), "transposed"),
        (lambda n: torch.ones(n, n).bool().triu(1), "inverted"),
        (lambda n: torch.ones(n, n).tril(), "floats"),
        (lambda n: torch.ones(n, n).tril().long(), "whole numbers"),
        (lambda n: torch.ones(n, n).triu(1), "with 1"),
        (lambda n: torch.full((n, n), -math.inf).triu(1), "add to the scores"),
        (lambda n: torch.ones(n, n).bool(), "nothing is masked"),
        (lambda n: torch.ones(1, n, n).bool().tril(), "shape"),
    ],
    "masked_attention": [
        (lambda q, k, v, mask: (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) * mask @ v, "after the softmax"),
        (lambda q, k, v, mask: (q @ k.mT / q.shape[-1] ** 0.5 * mask).softmax(-1) @ v, "multiplied by the mask"),
        (lambda q, k, v, mask: masked(q, k, v, ~mask), "wrong way round"),
        (lambda q, k, v, mask: attention(q, k, v), "not used"),
        (lambda q, k, v, mask: masked(q, k, v, mask, -math.inf), "no key gives NaN"),
        (lambda q, k, v, mask: masked(q * q.shape[-1] ** 0.5, k, v, mask), "not divided"),
        (lambda q, k, v, mask: masked(q, k, v, mask, -5.0), "leak"),
    ],
    "split_heads": [
        (lambda x, h: x.view(x.shape[0], h, x.shape[1], -1), "mixes positions and heads"),
        (lambda x, h: x.view(*x.shape[:2], h, -1), "each other's place"),
        (lambda x, h: x.view(*x.shape[:2], -1, h).permute(0, 3, 1, 2), "every H-th"),
    ],
    "merge_heads": [
        (lambda x: x.reshape(x.shape[0], x.shape[2], -1), "wrong order"),
        (lambda x: x.permute(0, 2, 3, 1).flatten(2), "interleaved"),
        (lambda x: x.transpose(1, 2), "flatten"),
        (lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], -1), "RuntimeError"),
    ],
    "multi_head": [
        (heads_with(merge=lambda x: x.reshape(x.shape[0], x.shape[2], -1)), "merged in the wrong order"),
        (heads_with(split=lambda x, h: x.view(x.shape[0], h, x.shape[1], -1)), "view(B, heads, T, Dh)"),
        (heads_with(attend=scaled_by(lambda q: 1)), "not divided"),
        (heads_with(out=False), "output projection"),
        (lambda x, a, b, c, d, h: heads_with()(x, a.T, b.T, c.T, d.T, h), "transposed"),
        (lambda x, a, b, c, d, h: attention(x @ a, x @ b, x @ c) @ d, "All heads are one"),
        (heads_with(split=lambda x, h: x.view(*x.shape[:2], h, -1), merge=lambda x: x.flatten(2)), "between the heads"),
    ],
    "gelu": [
        (lambda x: F.gelu(x, approximate="tanh"), "tanh"),
        (lambda x: x * torch.sigmoid(1.702 * x), "1.702"),
        (lambda x: x / 2 * (1 + torch.erf(x)), "x / sqrt(2)"),
        (lambda x: x / 2 * (1 + torch.erf(x / 2)), "square root of 2"),
        (lambda x: x * (1 + torch.erf(x / math.sqrt(2))), "half"),
        (lambda x: (1 + torch.erf(x / math.sqrt(2))) / 2, "gate"),
        (F.relu, "ReLU"),
        (F.silu, "SiLU"),
        (lambda x: F.gelu(x) * 1.01, "differ"),
    ],
    "next_token_loss": [
        (lambda x, ids: shifted(x, ids, x=slice(None), y=slice(None)), "no shift"),
        (lambda x, ids: shifted(x, ids, x=slice(1, None), y=slice(None, -1)), "wrong way"),
        (lambda x, ids: shifted(x, ids.roll(-1, 1), x=slice(None), y=slice(None)), "roll"),
        (lambda x, ids: shifted(x, ids, "sum"), "sum"),
        (padded, "Padding counts"),
        (lambda x, ids: shifted(x.softmax(-1), ids), "twice"),
        (lambda x, ids: shifted(x, ids).item(), "torch.Tensor"),
        (lambda x, ids: -shifted(x, ids), "sign"),
        (lambda x, ids, keep: next_token(x, ids, torch.cat([keep[:, :1], keep[:, :-1]], 1)), "not shifted"),
        (
            lambda x, ids, keep: torch.stack(
                [next_token(a[None], b[None], c[None]) for a, b, c in zip(x, ids, keep, strict=True)]
            ).mean(),
            "Each row",
        ),
    ],
    "perplexity": [
        (lambda x, keep: 2 ** x[keep].mean(), "base is e"),
        (lambda x, keep: x[keep].mean(), "exp is missing"),
        (lambda x, keep: ((x * keep).sum(1) / keep.sum(1)).mean().exp(), "row is averaged"),
        (lambda x, keep: ((x * keep).sum(1) / keep.sum(1)).exp().mean(), "rows' perplexities"),
        (lambda x, keep: x[keep].exp().mean(), "after the mean"),
        (lambda x, keep: x.mean().exp(), "Padding"),
    ],
    "temperature": [
        (lambda x, t: (x * t).softmax(-1), "multiplied"),
        (lambda x, t: x.softmax(-1) / t, "after the softmax"),
        (lambda x, t: x.softmax(-1), "not used"),
        (lambda x, t: (x / t).softmax(0), "dim=0"),
    ],
    "top_k": [
        (lambda x, k: -top_k(-x, k) if False else (-x).softmax(-1), "differ"),
        (lambda x, k: x.masked_fill(x > -(-x).topk(k).values[..., -1:], -math.inf).softmax(-1), "k smallest"),
        (lambda x, k: x.softmax(-1) * (x >= x.topk(k).values[..., -1:]), "renormalise"),
        (lambda x, k: x.softmax(-1), "cut off"),
        (lambda x, k: x.masked_fill(x < x.topk(k).values[..., -1:], 0).softmax(-1), "exp(0)"),
        (lambda x, k: x.topk(k).values.softmax(-1), "all V tokens"),
    ],
    "sample_top_k": [
        (sampler(lambda x, k, t: top_k(x * t, k)), "multiplied"),
        (sampler(lambda x, k, t: top_k(x, k)), "temperature is not used"),
        (sampler(lambda x, k, t: (x / t).softmax(-1)), "cut off"),
        (
            sampler(lambda x, k, t: x.masked_fill(x > -(-x).topk(k).values[-1], -math.inf).div(t).softmax(-1)),
            "smallest",
        ),
        (lambda x, k, t, rng: int(x.argmax()), "likeliest"),
        (
            lambda x, k, t, rng: int(torch.multinomial((x.topk(k).values / t).softmax(-1), 1, generator=rng)),
            "place among",
        ),
        (lambda x, k, t, rng: int(torch.multinomial(top_k(x / t, k), 1)), "generator=rng"),
        (lambda x, k, t, rng: 2.0, "whole number"),
    ],
    "entailment_input": [
        (lambda p, h, s, d, e: [s, *p, *h, e], "delimiter between"),
        (lambda p, h, s, d, e: [s, *h, d, *p, e], "premise comes first"),
        (lambda p, h, s, d, e: [*p, d, *h, e], "start token"),
        (lambda p, h, s, d, e: [s, *p, d, *h], "extract token"),
        (lambda p, h, s, d, e: [e, s, *p, d, *h], "come last"),
        (lambda p, h, s, d, e: [s, p, d, h, e], "unpack"),
    ],
    "similarity_inputs": [
        (lambda a, b, s, d, e: [s, *a, d, *b, e], "one order only"),
        (lambda a, b, s, d, e: [[s, *a, *b, e], [s, *b, *a, e]], "delimiter"),
    ],
    "choice_inputs": [
        (lambda c, n, s, d, e: [[s, *c, *a, e] for a in n], "delimiter"),
        (lambda c, n, s, d, e: [[s, *a, e] for a in n], "context is missing"),
    ],
    "mask_tokens": [
        (masking(overlap="keras"), "10% of 90%"),
        (masking(mask=0.81, random=0.10), "10% of 90%"),
        (masking(overlap="overwrite"), "overlap"),
        (masking(overlap="rest"), "10% of the 20%"),
        (masking(special=False), "Special tokens"),
        (masking(mask=1.0, random=0.0), "every chosen token is masked"),
        (masking(mask=0.8, random=0.2), "no chosen token stays"),
        (masking(mask=0.8, random=0.0), "no chosen token is replaced"),
        (masking(labels="all"), "Every position has a label"),
        (masking(ignore=0), "No label is -100"),
        (masking(labels="corrupted"), "corrupted tokens"),
        (masking(labels="changed"), "changed (90% of 15%)"),
        (masking(labels="outside"), "not chosen"),
        (masking(rate=0.15 * 0.15), "15% of 15%"),
        (masking(rate=0.3), "should be 15%"),
        (masking(clone=False), "in place"),
        (masking(generator=False), "generator=rng"),
        (masking(shared=True), "same positions"),
        (lambda ids, rng, vocab: ids, "pair (inputs, labels)"),
        (lambda ids, rng, vocab: (ids.float(), ids), "whole numbers"),
    ],
    "mlm_loss": [
        (lambda x, ids, at: F.cross_entropy(x.flatten(0, 1), ids.flatten()), "all tokens"),
        (lambda x, ids, at: F.cross_entropy(x[~at], ids[~at]), "not chosen"),
        (lambda x, ids, at: F.cross_entropy(x[at], ids[at], reduction="sum") / at.numel(), "divided by all"),
        (lambda x, ids, at: F.cross_entropy(x[at], ids[at], reduction="sum"), "sum"),
        (lambda x, ids, at: mlm(x[:, :-1], ids[:, 1:], at[:, 1:]), "shifted"),
    ],
    "bert_input": [
        (lambda a, b, c, s: ([c, *a, s, *b, s], [0] * (len(a) + 1) + [1] * (len(b) + 2)), "first [SEP]"),
        (lambda a, b, c, s: ([c, *a, s, *b, s], [0] * (len(a) + 2) + [1] * len(b) + [0]), "last [SEP]"),
        (lambda a, b, c, s: ([c, *a, s, *b], [0] * (len(a) + 2) + [1] * len(b)), "at the end"),
        (lambda a, b, c, s: ([c, *a, *b, s], [0] * (len(a) + 1) + [1] * (len(b) + 1)), "between"),
        (lambda a, b, c, s: ([c, *a, s, *b, s], [1] * (len(a) + 2) + [0] * (len(b) + 1)), "other way round"),
        (lambda a, b, c, s: ([c, *a, s, *b, s], [1] * (len(a) + 2) + [2] * (len(b) + 1)), "0 and 1"),
    ],
    "nsp_pairs": [
        (pairs(other=False), "same document"),
        (pairs(half=0.3), "should be half"),
        (pairs(inverted=True), "inverted"),
        (pairs(order=-1), "wrong order"),
        (pairs(generator=False), "generator=rng"),
        (lambda documents, rng, n: pairs()(documents, rng, n - 1), "2000 pairs were asked"),
        (lambda documents, rng, n: [("a", "b")] * n, "(first sentence"),
    ],
}
RIGHT |= finetuning_answers.RIGHT
WRONG |= finetuning_answers.WRONG
for lesson in sorted(Path(__file__).parent.glob("test_lesson_*.py")):  # the later lessons keep their answers with them
    answers = importlib.import_module(f"tests.unit.{lesson.stem}")
    right = getattr(answers, "RIGHT", [])
    for name, answer in right.items() if isinstance(right, dict) else right:
        RIGHT.setdefault(name, []).append(answer)
    for name, answer, says in getattr(answers, "WRONG", []):
        WRONG.setdefault(name, []).append((answer, says))


def test_every_check_is_tried() -> None:
    assert set(RIGHT) == set(NAMES) == set(WRONG)


@pytest.mark.parametrize(("name", "fn"), [(n, f) for n in RIGHT for f in RIGHT[n]])
def test_right_answers_pass(name: str, fn: Callable[..., Any]) -> None:
    verdict = run(name, fn)
    assert verdict.passed, verdict.message
    assert verdict.message.startswith(f"{name}: right. Verified: ")


@pytest.mark.parametrize(("name", "fn", "words"), [(n, f, w) for n in WRONG for f, w in WRONG[n]])
def test_wrong_answers_are_named(name: str, fn: Callable[..., Any], words: str) -> None:
    verdict = run(name, fn)
    assert not verdict.passed
    assert verdict.message.startswith(f"{name}: not yet. ")
    assert words.lower() in verdict.message.lower(), verdict.message


def not_implemented(*_: object) -> None:
    raise NotImplementedError


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stub", [lambda *_: None, lambda *_: ..., not_implemented, None, ...])
def test_stub_is_not_written_yet(name: str, stub: object) -> None:
    verdict = run(name, stub)
    assert not verdict.passed
    assert "not written yet" in verdict.message


def crashes(*_: object) -> None:
    raise KeyError("lost\nsecond line")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (crashes, "KeyError"),
        (lambda *_: object(), ""),
        (lambda *_: "text", ""),
        (lambda *_: {}, ""),
        (lambda *_: [], ""),
        (lambda *_: (), ""),
        (lambda *_: torch.zeros(0), ""),
        (lambda *_: torch.full((2, 2), math.nan), ""),
        (lambda *_: (None, None), ""),
        (lambda *_: -1, ""),
        (torch.zeros(2), "function itself"),
        (lambda: 1, "TypeError"),
    ],
)
def test_nonsense_gets_one_sentence(name: str, fn: object, words: str) -> None:
    verdict = run(name, fn)
    assert not verdict.passed
    assert words in verdict.message, verdict.message
    assert "\n" not in verdict.message and len(verdict.message) < 400


def test_verdict_is_quiet_and_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = check.accuracy(lambda p, g: 0.5)
    assert capsys.readouterr().out == verdict.message + "\n"
    assert verdict._ipython_display_() is None and not verdict
    assert repr(verdict) == "Verdict(not passed)"


def test_checks_leave_the_random_state_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    for name in NAMES:
        run(name, RIGHT[name][0])
        run(name, lambda *_: None)
    assert torch.equal(before, torch.get_rng_state())
