"""Wrong answers lose the points that they should, right ones in another style keep them: what a mark is worth."""

import pytest
import torch

from classroom.checks import homework
from classroom.grading.assignment import Assignment

TASKS = Assignment("hw1").tasks


# Slips that are not on the teacher's list, as patches of the solution: each loses at least the hidden test.
MASKED = "weights = weights.masked_fill(~mask, 0.0)"
FUSED = "F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=q.shape[-1] ** -0.5)"
RETURNS = "return weights @ v, weights"
MUTANTS = {
    "attention: NaN to zero, in the output only": [
        (MASKED, "pass"),
        (RETURNS, "return (weights @ v).nan_to_num(), weights"),
    ],
    "attention: in place": [
        (" / math.sqrt(q.shape[-1])", ""),
        ("scores = q", "q /= math.sqrt(q.shape[-1])\n    scores = q"),
    ],
    "attention: numpy": [(RETURNS, "return (weights @ v).numpy(), weights.numpy()")],
    "make_mask: right for full sentences only": [
        ("places < lengths[:, None]", "(places < length).expand(len(lengths), -1)")
    ],
    "multi_head: mask after": [(FUSED, "((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) * mask) @ v")],
    "sinusoidal: degrees": [("base**-steps", "torch.rad2deg(base**-steps)")],
    "relative_attention: clips places": [("torch.arange(q.shape[-2])", "torch.arange(q.shape[-2]).clamp(max=clip)")],
    "rotate: twice the angle": [("positions[:, None]", "2 * positions[:, None]")],
    "order_change: a prophet who did not measure": [("", "0.5 if causal else 0.0")],
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_other_mistakes_lose_the_hidden_test(points, mutant):
    name = mutant.partition(":")[0]
    found = points(TASKS[name].exercise.variant(*MUTANTS[mutant]), name)
    assert not next(passed for test, passed in found.items() if test.endswith("hidden"))


# Right answers in other styles, or patches that make such of the solution.


def attention_einsum(q, k, v, mask):
    scores = torch.einsum("...qd,...kd->...qk", q, k) * q.size(-1) ** -0.5
    exp = torch.where(mask, (scores - scores.amax(-1, keepdim=True)).exp(), 0.0)
    weights = exp / exp.sum(-1, keepdim=True).clamp(min=1e-30)
    return torch.einsum("...qk,...kv->...qv", weights, v), weights


def rotate_complex(x, positions, base):
    pairs = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2).contiguous())
    rates = base ** (-torch.arange(0, x.shape[-1], 2, dtype=torch.double) / x.shape[-1])
    turned = pairs * torch.polar(torch.ones(len(positions), len(rates), dtype=torch.double), positions.outer(rates))
    return torch.view_as_real(turned).flatten(-2)


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


RIGHT = {
    "make_mask": [
        ("places < lengths[:, None]", "torch.stack([places < n for n in lengths.tolist()])"),
        ("mask & (places[:, None] >= places)", "mask.float().tril().bool()"),
    ],
    "attention": attention_einsum,
    "multi_head": [(FUSED, "(q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -1e9).softmax(-1) @ v")],
    "sinusoidal": [("base**-steps", "torch.exp(-steps.double() * math.log(base))")],
    "relative_attention": [
        ('torch.einsum("...id,ijd->...ij", q, key_table[rows])', "(key_table[rows] @ q[..., None]).squeeze(-1)"),
        ('torch.einsum("...ij,ijd->...id", weights, value_table[rows])', "(weights[..., None] * value_table[rows]).sum(-2)"),  # noqa: E501
    ],
    "rotate": rotate_complex,
    "order_change": order_change_own_draw,
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers_in_another_style_keep_all_points(points, name):
    style = RIGHT[name]
    assert all(points(style if callable(style) else TASKS[name].exercise.variant(*style), name).values())


def test_every_question_has_a_variant_and_a_mutant():
    assert set(RIGHT) == {name.partition(":")[0] for name in MUTANTS} == set(TASKS)


def test_what_is_fitted_to_the_shown_numbers_earns_nothing(points, hw1, tmp_path):
    """The release's own inputs and results, looked up."""
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
