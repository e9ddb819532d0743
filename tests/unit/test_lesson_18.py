"""Lesson 18: typical slips in its answers are named, every claim is in it, its verdicts follow their rules."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from course_lib import check, cost
from course_lib.models.gpt import GPT2_SIZES, gpt2

ANSWERS = {
    "gpt2_parameters": """
def gpt2_parameters(layers, width, vocab, length):
    attention = 4 * (width * width + width)
    feed_forward = width * 4 * width + 4 * width + 4 * width * width + width
    norms = 2 * 2 * width
    return (vocab + length) * width + layers * (attention + feed_forward + norms) + 2 * width
""",
    "continuation_score": """
def continuation_score(logits, ids, start):
    log_p = logits.log_softmax(-1)
    scored = [log_p[t - 1, ids[t]] for t in range(start, len(ids))]
    return sum(scored)
""",
    "top_p": """
def top_p(logits, p):
    probs, order = logits.softmax(-1).sort(dim=-1, descending=True)
    before = probs.cumsum(-1) - probs
    kept = probs.masked_fill(before >= p, 0.0)
    kept = kept / kept.sum(-1, keepdim=True)
    return torch.zeros_like(kept).scatter(-1, order, kept)
""",
    "cached_step": """
def cached_step(q, k, v, past_k, past_v):
    keys, values = torch.cat([past_k, k]), torch.cat([past_v, v])
    weights = (q @ keys.T / q.shape[-1] ** 0.5).softmax(-1)
    return weights @ values, keys, values
""",
}


def answer(name: str, *swap: str) -> Any:
    """The answer; `swap`: a piece of it, what to write instead."""
    source = ANSWERS[name]
    for old, new in zip(swap[::2], swap[1::2], strict=True):
        assert old in source
        source = source.replace(old, new)
    space: dict[str, Any] = {"torch": torch, "F": F}
    exec(source, space)
    return space[name]


# The answers with one slip each, and a word of the sentence that must name it.
SLIPS = [
    ("gpt2_parameters", ("(vocab + length)", "(2 * vocab + length)"), "tied"),
    ("gpt2_parameters", ("(vocab + length)", "vocab"), "positions are missing"),
    ("gpt2_parameters", ("(vocab + length)", "length"), "token vectors are missing"),
    ("gpt2_parameters", (" + 2 * width\n", "\n"), "last norm"),
    ("gpt2_parameters", (" + norms", ""), "blocks' norms"),
    ("gpt2_parameters", (" + norms", "", " + 2 * width\n", "\n"), "norms are missing: each block"),
    ("gpt2_parameters", ("norms = 2 * 2", "norms = 2"), "one norm in your count"),
    ("gpt2_parameters", ("norms = 2 * 2", "norms = 2", " + 2 * width\n", " + width\n"), "shifts"),
    ("gpt2_parameters", ("width * width + width)", "width * width)", "4 * width + 4 * width + 4", "4 * width + 4",
                         "width * width + width\n", "width * width\n"), "9 width"),
    ("gpt2_parameters", ("attention = 4", "attention = 3"), "four matrices"),
    ("gpt2_parameters", ("width + 4 * width + 4", "width + width + 4"), "way up"),
    ("gpt2_parameters", (" + 4 * width * width + width\n", "\n"), "two matrices"),
    ("gpt2_parameters", ("layers * (", "("), "one block"),
    ("continuation_score", ("t - 1, ids", "t, ids"), "no shift"),
    ("continuation_score", ("t - 1, ids", "t + 1, ids", "len(ids))", "len(ids) - 1)"), "wrong way"),
    ("continuation_score", ("range(start", "range(1"), "prompt is scored too"),
    ("continuation_score", ("range(start", "range(start + 1"), "first token is left out"),
    ("continuation_score", ("range(start", "range(max(1, start - 1)"), "One token of the prompt"),
    ("continuation_score", ("sum(scored)", "sum(scored) / len(scored)"), "mean"),
    ("continuation_score", ("log_softmax", "softmax"), "added up; take their logarithms"),
    ("continuation_score", ("return sum", "return -sum"), "sign"),
    ("continuation_score", (".log_softmax(-1)", ""), "without log_softmax"),
    ("continuation_score", ("log_softmax(-1)", "log_softmax(0)"), "over the positions"),
    ("continuation_score", ("sum(scored)", "torch.stack(scored)"), "one number a"),
    ("top_p", ("before >= p", "probs.cumsum(-1) > p"), "reaches p is cut off"),
    ("top_p", ("before >= p", "probs.cumsum(-1) >= p"), "reaches p is cut off"),
    ("top_p", ("before >= p", "before - probs.roll(1, -1) >= p"), "One token too many"),
    ("top_p", ("    kept = kept / kept.sum(-1, keepdim=True)\n", ""), "sum to 1"),
    ("top_p", ("descending=True", "descending=False"), "least likely"),
    ("top_p", ("torch.zeros_like(kept).scatter(-1, order, kept)", "kept"), "come back sorted"),
    ("top_p", ("before >= p", "probs < p"), "by itself"),
    ("top_p", ("before >= p", "probs < 1 - p"), "above 1 - p"),
    ("top_p", ("before >= p", "before > 9"), "Nothing is cut off"),
    ("top_p", ("before >= p", "(before[:1] if before.dim() > 1 else before) >= p"), "first row"),
    ("cached_step", ("q @ keys.T", "q @ past_k.T", "weights @ values", "weights @ past_v"), "does not see itself"),
    ("cached_step", ("[past_k, k]", "[k, past_k]", "[past_v, v]", "[v, past_v]"), "in front"),
    ("cached_step", (" / q.shape[-1] ** 0.5", ""), "not divided"),
    ("cached_step", ("q.shape[-1]", "len(keys)"), "of the length"),
    ("cached_step", ("softmax(-1)", "softmax(0)"), "dim=0"),
    ("cached_step", ("values, keys, values", "values, past_k, past_v"), "old keys and values"),
    ("cached_step", ("values, keys, values", "values, values, keys"), "wrong order"),
    ("cached_step", ("weights @ values, keys, values", "weights @ values"), "Only the output"),
    ("cached_step", ("[past_k, k]", "[past_k, q]"), "stored in place"),
]  # fmt: skip


RIGHT = {name: answer(name) for name in ANSWERS}
WRONG = [(name, answer(name, *swap), says) for name, swap, says in SLIPS]


@pytest.mark.parametrize(("name", "swap", "says"), SLIPS)
def test_a_slip_is_named(name: str, swap: tuple[str, ...], says: str) -> None:
    verdict = getattr(check, name)(answer(name, *swap))
    assert not verdict.passed
    assert says in verdict.message, verdict.message


def _nucleus_by_loop(logits: Any, p: float) -> Any:
    out = torch.zeros_like(logits)
    for row, probs in zip(out.view(-1, logits.shape[-1]), logits.softmax(-1).view(-1, logits.shape[-1]), strict=True):
        total = 0.0
        for i in probs.argsort(descending=True).tolist():
            if total >= p:
                break
            row[i], total = probs[i], total + float(probs[i])
        row /= row.sum()
    return out


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("gpt2_parameters", lambda n, d, v, t: n * (12 * d * d + 13 * d) + (v + t + 2) * d),
        ("continuation_score", lambda x, ids, s: -F.cross_entropy(x[s - 1 : -1], ids[s:], reduction="sum").item()),
        ("top_p", _nucleus_by_loop),
        ("cached_step", lambda q, k, v, past_k, past_v: (
            F.scaled_dot_product_attention(q, torch.vstack([past_k, k]), torch.vstack([past_v, v])),
            torch.vstack([past_k, k]), torch.vstack([past_v, v]),
        )),
    ],
)  # fmt: skip
def test_another_right_answer_passes(name: str, other: Any) -> None:
    assert getattr(check, name)(other).passed


def test_a_check_leaves_the_students_random_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    for name in ANSWERS:
        getattr(check, name)(lambda *_: None)
    assert torch.equal(torch.rand(4), expected)


def test_the_answer_counts_what_the_library_counts() -> None:
    for name, (layers, width, _) in GPT2_SIZES.items():
        assert answer("gpt2_parameters")(layers, width, 50257, 1024) == cost.parameters(gpt2(name))
