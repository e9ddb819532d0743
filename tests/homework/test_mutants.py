"""Wrong answers lose the points that they should, right ones in another style keep them: what a mark is worth."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from course_lib.grade.assignment import Assignment

TASKS = Assignment("hw1").tasks


@pytest.mark.parametrize(
    ("name", "number"), [(name, i) for name, task in TASKS.items() for i in range(len(task.mistakes))]
)
def test_every_known_mistake_loses_both_tests(points, name, number):
    _, wrong = TASKS[name].wrong[number]
    assert set(points(wrong, name).values()) == {False}


# Slips that are not on the teacher's list: each loses at least the hidden test.


def attention_k_t(q, k, v, mask):
    """Right without a batch only."""
    scores = (q @ k.T / math.sqrt(q.shape[-1])).masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1).masked_fill(~mask, 0)
    return weights @ v, weights


def attention_nan_zero_output_only(q, k, v, mask):
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~mask, -torch.inf).softmax(-1)
    return (weights @ v).nan_to_num(), weights


def attention_large_but_finite(q, k, v, mask):
    """-10 is not minus infinity."""
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~mask, -10).softmax(-1)
    return weights @ v, weights


def attention_in_place(q, k, v, mask):
    q /= math.sqrt(q.shape[-1])
    weights = (q @ k.mT).masked_fill(~mask, -torch.inf).softmax(-1).masked_fill(~mask, 0)
    return weights @ v, weights


def attention_with_dropout(q, k, v, mask):
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~mask, -torch.inf).softmax(-1).masked_fill(~mask, 0)
    weights = F.dropout(weights, 0.1)
    return weights @ v, weights


def attention_numpy(q, k, v, mask):
    out, weights = TASKS["attention"].fn(q, k, v, mask)
    return out.numpy(), weights.numpy()


def attention_first_axis_only(q, k, v, mask):
    """Scaled by the width of the values."""
    weights = (q @ k.mT / math.sqrt(v.shape[-1])).masked_fill(~mask, -torch.inf).softmax(-1).masked_fill(~mask, 0)
    return weights @ v, weights


def make_mask_first_sentence(lengths, length, causal):
    mask = (torch.arange(length) < lengths[0]).expand(len(lengths), 1, length, length)
    return mask.tril() if causal else mask


def make_mask_ones(lengths, length, causal):
    """Right for full sentences only."""
    mask = torch.ones(len(lengths), 1, length, length, dtype=torch.bool)
    return mask.tril() if causal else mask


def multi_head_two(x, memory, wq, wk, wv, wo, heads, mask):
    return TASKS["multi_head"].fn(x, memory, wq, wk, wv, wo, 2, mask)


def multi_head_mask_after(x, memory, wq, wk, wv, wo, heads, mask):
    q, k, v = (y.view(*y.shape[:2], heads, -1).transpose(1, 2) for y in (x @ wq, memory @ wk, memory @ wv))
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) * mask
    return (weights @ v).transpose(1, 2).flatten(2) @ wo


def sinusoidal_degrees(positions, width, base):
    angles = torch.rad2deg(positions[:, None] * base ** (-torch.arange(0, width, 2) / width))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


def sinusoidal_numpy(positions, width, base):
    return np.asarray(TASKS["sinusoidal"].fn(positions, width, base))


def relative_clip_both_sides_of_query(q, k, v, key_table, value_table, clip):
    """Clips the places instead of the distances."""
    places = torch.arange(q.shape[-2]).clamp(max=clip)
    rows = places - places[:, None] + clip
    scores = q @ k.mT + torch.einsum("...id,ijd->...ij", q, key_table[rows])
    weights = (scores / math.sqrt(q.shape[-1])).softmax(-1)
    return weights @ v + torch.einsum("...ij,ijd->...id", weights, value_table[rows])


def rotate_wrong_pairs_right_lengths(x, positions, base):
    """Rotates, but by twice the angle."""
    return TASKS["rotate"].fn(x, 2 * positions, base)


def order_change_prophet(layers, causal, seed):
    """The prediction of somebody who did not measure."""
    return 0.5 if causal else 0.0


MUTANTS = [
    (attention_k_t, "attention"),
    (attention_nan_zero_output_only, "attention"),
    (attention_large_but_finite, "attention"),
    (attention_in_place, "attention"),
    (attention_with_dropout, "attention"),
    (attention_numpy, "attention"),
    (attention_first_axis_only, "attention"),
    (make_mask_first_sentence, "make_mask"),
    (make_mask_ones, "make_mask"),
    (multi_head_two, "multi_head"),
    (multi_head_mask_after, "multi_head"),
    (sinusoidal_degrees, "sinusoidal"),
    (sinusoidal_numpy, "sinusoidal"),
    (relative_clip_both_sides_of_query, "relative_attention"),
    (rotate_wrong_pairs_right_lengths, "rotate"),
    (order_change_prophet, "order_change"),
]


@pytest.mark.parametrize(("fn", "name"), MUTANTS, ids=lambda value: getattr(value, "__name__", ""))
def test_other_mistakes_lose_the_hidden_test(points, fn, name):
    found = points(fn, name)
    assert not next(passed for test, passed in found.items() if test.endswith("hidden"))


# Right answers in other styles.


def make_mask_loops(lengths, length, causal):
    rows = [
        [[[j < n and (j <= i or not causal) for j in range(length)] for i in range(length)]] for n in lengths.tolist()
    ]
    return torch.tensor(rows)


def attention_einsum(q, k, v, mask):
    scores = torch.einsum("...qd,...kd->...qk", q, k) * q.size(-1) ** -0.5
    exp = torch.where(mask, (scores - scores.amax(-1, keepdim=True)).exp(), 0.0)
    weights = exp / exp.sum(-1, keepdim=True).clamp(min=1e-30)
    return torch.einsum("...qk,...kv->...qv", weights, v), weights


def attention_added(q, k, v, mask):
    """In double precision, returned as a list."""
    q, k, v = q.double(), k.double(), v.double()
    weights = (
        torch.softmax(q @ k.mT / q.shape[-1] ** 0.5 + torch.zeros(mask.shape).masked_fill(~mask, -1e30), -1) * mask
    )
    return [weights @ v, weights]


def multi_head_loop(x, memory, wq, wk, wv, wo, heads, mask):
    dh = x.shape[-1] // heads
    mask = mask.expand(x.shape[0], heads, x.shape[1], memory.shape[1])
    out = []
    for h in range(heads):
        columns = slice(h * dh, (h + 1) * dh)
        q, k, v = x @ wq[:, columns], memory @ wk[:, columns], memory @ wv[:, columns]
        scores = (q @ k.mT / math.sqrt(dh)).masked_fill(~mask[:, h], -1e9)
        out.append(scores.softmax(-1) @ v)
    return torch.cat(out, -1) @ wo


def multi_head_einsum(x, memory, wq, wk, wv, wo, heads, mask):
    d = x.shape[-1]
    wq, wk, wv = (w.view(d, heads, d // heads) for w in (wq, wk, wv))
    q, k, v = (torch.einsum("btd,dhk->bhtk", a, w) for a, w in ((x, wq), (memory, wk), (memory, wv)))
    weights = (torch.einsum("bhtk,bhsk->bhts", q, k) / (d / heads) ** 0.5).masked_fill(~mask, -torch.inf).softmax(-1)
    return torch.einsum("bhts,bhsk,hkd->btd", weights, v, wo.view(heads, d // heads, d))


def sinusoidal_loops(positions, width, base):
    rows = []
    for p in positions.tolist():
        pairs = [
            (math.sin(p / base ** (2 * i / width)), math.cos(p / base ** (2 * i / width))) for i in range(width // 2)
        ]
        rows.append([x for pair in pairs for x in pair])
    return torch.tensor(rows)


def sinusoidal_filled(positions, width, base):
    out = torch.zeros(len(positions), width, dtype=torch.float64)
    rates = torch.exp(-math.log(base) * torch.arange(0, width, 2, dtype=torch.float64) / width)
    out[:, 0::2], out[:, 1::2] = torch.sin(positions.outer(rates)), torch.cos(positions.outer(rates))
    return out


def relative_loops(q, k, v, key_table, value_table, clip):
    length, width = q.shape[-2:]
    out = torch.zeros_like(q)
    for i in range(length):
        rows = [min(clip, max(-clip, j - i)) + clip for j in range(length)]
        keys = torch.stack([k[..., j, :] + key_table[r] for j, r in enumerate(rows)], -2)
        values = torch.stack([v[..., j, :] + value_table[r] for j, r in enumerate(rows)], -2)
        weights = ((keys @ q[..., i, :, None]).squeeze(-1) / width**0.5).softmax(-1)
        out[..., i, :] = (weights[..., None] * values).sum(-2)
    return out


def rotate_complex(x, positions, base):
    pairs = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2).contiguous())
    rates = base ** (-torch.arange(0, x.shape[-1], 2, dtype=torch.double) / x.shape[-1])
    turned = pairs * torch.polar(torch.ones(len(positions), len(rates), dtype=torch.double), positions.outer(rates))
    return torch.view_as_real(turned).flatten(-2)


def rotate_half(x, positions, base):
    """The form of many model files: x cos + swap(x) sin."""
    angles = (positions[:, None] / base ** (torch.arange(0, x.shape[-1], 2) / x.shape[-1])).repeat_interleave(2, -1)
    swapped = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * angles.cos() + swapped * angles.sin()


def order_change_own_draw(layers, causal, seed):
    """Other random sentences, a tensor returned, the mask made by hand: within the band."""
    torch.manual_seed(seed + 1)
    first = torch.randn(256, 10, 16) / 4
    second = first.clone()
    second[:, :9] = first[:, :9].flip(1)
    last = []
    for x in (first, second):
        for _ in range(layers):
            scores = x @ x.mT / 4
            if causal:
                scores = scores.masked_fill(torch.ones(10, 10).triu(1).bool(), -torch.inf)
            x = x + scores.softmax(-1) @ x
        last.append(x[:, -1])
    return (torch.linalg.vector_norm(last[0] - last[1], dim=-1) / torch.linalg.vector_norm(last[0], dim=-1)).mean()


VARIANTS = [
    (make_mask_loops, "make_mask"),
    (attention_einsum, "attention"),
    (attention_added, "attention"),
    (multi_head_loop, "multi_head"),
    (multi_head_einsum, "multi_head"),
    (sinusoidal_loops, "sinusoidal"),
    (sinusoidal_filled, "sinusoidal"),
    (relative_loops, "relative_attention"),
    (rotate_complex, "rotate"),
    (rotate_half, "rotate"),
    (order_change_own_draw, "order_change"),
]


@pytest.mark.parametrize(("fn", "name"), VARIANTS, ids=lambda value: getattr(value, "__name__", ""))
def test_right_answers_in_another_style_keep_all_points(points, fn, name):
    assert all(points(fn, name).values())


def test_every_question_has_a_variant_and_a_mutant():
    assert {name for _, name in VARIANTS} == {name for _, name in MUTANTS} == set(TASKS)


def test_what_is_fitted_to_the_shown_numbers_earns_nothing(points, hw1, tmp_path):
    """The release's own inputs and results, looked up."""
    from course_lib.check import homework

    path = tmp_path / "checks.json"
    path.write_text(hw1.checks(), "utf-8")
    sheet = homework.read_sheets(path)["rotate"]

    def looked_up(x, positions, base):
        for case, right in zip(sheet.cases, sheet.right, strict=True):
            if case["x"].shape == x.shape and torch.equal(case["positions"], positions):
                return right
        return torch.zeros_like(x)

    homework.compare(looked_up, sheet)  # the check is content ...
    assert not any(points(looked_up, "rotate").values())  # ... and the grader is not
