"""Attention: the fused kernel, the explicit path and a naive loop give the same, and so do their
gradients.
"""

import math

import pytest
import torch

from course_lib.analysis import capture
from course_lib.model import attention, config, kernels, masks, positions
from course_lib.model.attention import Attention, PositionInfo
from course_lib.model.cache import LayerCache

SCHEMES = [
    config.NoPosition(),
    config.Rope(),
    config.Rope(interleaved=True),
    config.T5Buckets(8, 6),
    config.Shaw(2),
    config.Alibi(),
]
B, T, D, H = 2, 6, 16, 4


def build(position=None, **more):
    torch.manual_seed(0)
    stack = config.StackConfig(
        config.EmbedConfig(5),
        width=D,
        layers=1,
        heads=H,
        hidden=8,
        position=position or config.NoPosition(),
        attention_dropout=0.0,
        **more,
    )
    module, scheme = Attention(stack), positions.build(stack)
    for weight in scheme.parameters():
        torch.nn.init.normal_(weight)
    pos = torch.arange(T)[None]
    return module, PositionInfo(scheme, pos, pos)


def naive(module, info, x, mask):
    """Equation 1 as loops over rows, heads, queries and keys, with the scheme's four seams."""
    pos = info.scheme
    split = lambda y: y.view(B, T, H, D // H).transpose(1, 2)  # noqa: E731
    q, k, v = (split(layer(x)) for layer in (module.q, module.k, module.v))
    q, k = pos.rotate(q, info.queries), pos.rotate(k, info.keys)
    bias = pos.scores(q / math.sqrt(D // H), info.queries, info.keys)
    probs = torch.zeros(B, H, T, T)
    out = torch.zeros(B, H, T, D // H)
    for b in range(B):
        for h in range(H):
            for i in range(T):
                seen = [j for j in range(T) if mask.expand(B, H, T, T)[b, h, i, j]]
                scores = torch.stack([q[b, h, i] @ k[b, h, j] / math.sqrt(D // H) for j in seen])
                if bias is not None:
                    scores = scores + bias.expand(B, H, T, T)[b, h, i, seen]
                weights = scores.exp() / scores.exp().sum()
                for weight, j in zip(weights, seen, strict=True):
                    probs[b, h, i, j] = weight
                    out[b, h, i] += weight * v[b, h, j]
    out = out + pos.values(probs, info.queries, info.keys)
    return module.out(out.transpose(1, 2).flatten(2)), probs


MASKS = {
    "everyone": torch.ones(1, 1, T, T, dtype=torch.bool),
    "causal": masks.causal(T),
    "per head": torch.cat([masks.causal(T), torch.eye(T, dtype=torch.bool)[None, None]] * 2, dim=1),
    "padded": masks.causal(T) & masks.padding(torch.tensor([[1] * T, [1] * (T - 2) + [0] * 2])),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_fused_explicit_and_naive_are_equal(scheme, mask):
    module, info = build(scheme)
    x, mask = torch.randn(B, T, D), MASKS[mask]
    with torch.no_grad():
        expected, weights = naive(module, info, x, mask)
        unwatched = module(x, x, mask=mask, positions=info)
        with capture(torch.nn.ModuleDict({"attn": module}), "attn.probs", "attn.scores") as seen:
            watched = module(x, x, mask=mask, positions=info)
    torch.testing.assert_close(unwatched, expected)
    torch.testing.assert_close(watched, expected)
    torch.testing.assert_close(seen["attn.probs"], weights)
    torch.testing.assert_close(seen["attn.scores"].softmax(-1), weights)


@pytest.mark.parametrize(
    "options", [{"mask": MASKS["padded"]}, {"is_causal": True}], ids=["mask", "is_causal"]
)
@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_both_paths_have_the_same_outputs_and_gradients(scheme, options, monkeypatch):
    module, info = build(scheme)
    x, found = torch.randn(B, T, D), []
    for enabled in (True, False):
        monkeypatch.setattr(kernels, "ENABLED", enabled)
        module.zero_grad()
        leaf = x.clone().requires_grad_()
        out = module(
            leaf, leaf, positions=PositionInfo(info.scheme, info.queries, info.keys), **options
        )
        out.square().sum().backward()
        found.append([out, leaf.grad, *(p.grad.clone() for p in module.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    if "is_causal" in options:
        torch.testing.assert_close(found[0][0], module(x, x, mask=MASKS["causal"], positions=info))


def test_the_fused_kernel_is_used_when_nobody_watches(monkeypatch):
    module, info = build()
    calls = []
    real = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda *a, **k: calls.append(1) or real(*a, **k),
    )
    x = torch.randn(B, T, D)
    module(x, x, positions=info)
    assert len(calls) == 1
    with capture(torch.nn.ModuleDict({"attn": module}), "attn.probs"):
        module(x, x, positions=info)
    assert len(calls) == 1, "watched probabilities must be formed"
    module.to(torch.bfloat16)(x.bfloat16(), x.bfloat16(), positions=info)
    assert len(calls) == 1, "bfloat16 learns faster on the explicit path"
    with torch.no_grad():
        module(x.bfloat16(), x.bfloat16(), positions=info)
    assert len(calls) == 2


def test_a_row_that_may_see_nobody_gives_no_nan():
    module, info = build()
    x = torch.randn(B, T, D)
    nobody = masks.causal(T) & masks.padding(torch.tensor([[0] * 3 + [1] * 3, [1] * T]))
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            assert module(x, x, mask=nobody, positions=info).isfinite().all()
    with torch.no_grad(), capture(torch.nn.ModuleDict({"attn": module}), "attn.probs"):
        assert module(x, x, mask=nobody, positions=info).isfinite().all()


def test_dropout_acts_in_training_only(monkeypatch):
    module, info = build()
    module.dropout = 0.5
    x = torch.randn(B, T, D)
    for enabled in (True, False):
        monkeypatch.setattr(kernels, "ENABLED", enabled)
        assert not torch.equal(module.train()(x, x, positions=info), module(x, x, positions=info))
        assert torch.equal(module.eval()(x, x, positions=info), module(x, x, positions=info))


@pytest.mark.parametrize("grad", [False, True])
def test_a_cache_holds_everything_in_order(grad):
    cache, parts = LayerCache(), [torch.randn(2, 1, 2, t, 3).unbind() for t in (3, 1, 1, 4, 1, 2)]
    with torch.set_grad_enabled(grad):
        for n, (k, v) in enumerate(parts):
            keys, values = cache.extend(k, v)
            assert torch.equal(keys, torch.cat([p[0] for p in parts[: n + 1]], dim=2))
            assert torch.equal(values, torch.cat([p[1] for p in parts[: n + 1]], dim=2))


def test_the_public_function_is_pytorchs_and_hands_out_its_weights():
    rng = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(2, 3, n, 5, generator=rng) for n in (4, 6, 6))
    mask, bias = torch.rand(2, 1, 4, 6, generator=rng) < 0.7, torch.randn(3, 4, 6, generator=rng)
    mask[..., 0] = True
    added = bias + torch.zeros(2, 1, 4, 6).masked_fill(~mask, -torch.inf)
    y, weights = attention.scaled_dot_product_attention(q, k, v, mask=mask, bias=bias)
    torch.testing.assert_close(
        y, torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=added)
    )
    torch.testing.assert_close(weights @ v, y)
    assert (weights[~mask.expand_as(weights)] == 0).all()
    half, _ = attention.scaled_dot_product_attention(q, k, v, scale=0.5, on_probs=torch.zeros_like)
    assert (half == 0).all()


def test_a_prefix_is_full_inside_and_causal_after():
    found = masks.prefix(torch.tensor([0, 2, 4]), 4)[:, 0]
    for row, length in enumerate([0, 2, 4]):
        for i in range(4):
            for j in range(4):
                assert bool(found[row, i, j]) == (j <= i or j < length)
