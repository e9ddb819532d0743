"""Attention: the fused kernel, the explicit path and a naive loop give the same, and so do their gradients."""

import math

import pytest
import torch

from course_lib import attention, config, masks, positions
from course_lib.attention import Attention, KVCache, LayerCache, Where
from course_lib.trace import record

SCHEMES = [
    config.NoPosition(), config.Rope(), config.Rope(interleaved=True), config.T5Buckets(8, 6), config.Shaw(2),
    config.Alibi(),
]  # fmt: skip
B, T, D, H = 2, 6, 16, 4


def build(position=None, **more):
    torch.manual_seed(0)
    stack = config.StackConfig(
        config.EmbedConfig(5), width=D, layers=1, heads=H, hidden=8, position=position or config.NoPosition(),
        attention_dropout=0.0, **more,
    )  # fmt: skip
    module, scheme = Attention(stack), positions.build(stack)
    for weight in scheme.parameters():
        torch.nn.init.normal_(weight)
    pos = torch.arange(T)[None]
    return module, Where(scheme, pos, pos)


def naive(module, where, x, mask):
    """Equation 1 as loops over rows, heads, queries and keys, with the scheme's four seams."""
    pos = where.position
    split = lambda y: y.view(B, T, H, D // H).transpose(1, 2)  # noqa: E731
    q, k, v = (split(layer(x)) for layer in (module.q, module.k, module.v))
    q, k = pos.rotate(q, where.q_pos), pos.rotate(k, where.k_pos)
    bias = pos.scores(q / math.sqrt(D // H), where.q_pos, where.k_pos)
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
    out = out + pos.values(probs, where.q_pos, where.k_pos)
    return module.out(out.transpose(1, 2).flatten(2)), probs


MASKS = {
    "everyone": torch.ones(1, 1, T, T, dtype=torch.bool),
    "causal": masks.causal(T),
    "padded": masks.causal(T) & masks.padding(torch.tensor([[1] * T, [1] * (T - 2) + [0] * 2])),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_fused_explicit_and_naive_are_equal(scheme, mask):
    module, where = build(scheme)
    x, mask = torch.randn(B, T, D), MASKS[mask]
    with torch.no_grad():
        expected, weights = naive(module, where, x, mask)
        unwatched = module(x, x, mask=mask, where=where)
        with record(torch.nn.ModuleDict({"attn": module}), "attn.probs", "attn.scores") as seen:
            watched = module(x, x, mask=mask, where=where)
    torch.testing.assert_close(unwatched, expected)
    torch.testing.assert_close(watched, expected)
    torch.testing.assert_close(seen["attn.probs"], weights)
    torch.testing.assert_close(seen["attn.scores"].softmax(-1), weights)


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_is_causal_says_the_causal_mask(scheme, monkeypatch):
    module, where = build(scheme)
    x = torch.randn(B, T, D)
    expected = module(x, x, mask=masks.causal(T), where=where)
    for slower in (False, True):
        monkeypatch.setattr(attention, "_fused_is_slower", lambda q, k, slower=slower: slower)
        torch.testing.assert_close(module(x, x, is_causal=True, where=where), expected)


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_both_paths_have_the_same_gradients(scheme, monkeypatch):
    module, where = build(scheme)
    x, grads = torch.randn(B, T, D), []
    for slower in (False, True):
        monkeypatch.setattr(attention, "_fused_is_slower", lambda q, k, slower=slower: slower)
        module.zero_grad()
        leaf = x.clone().requires_grad_()
        module(
            leaf, leaf, mask=MASKS["padded"], where=Where(where.position, where.q_pos, where.k_pos)
        ).square().sum().backward()
        grads.append([leaf.grad, *(p.grad.clone() for p in module.parameters())])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_the_fused_kernel_is_used_when_nobody_watches(monkeypatch):
    module, where = build()
    calls = []
    real = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(attention.F, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or real(*a, **k))
    x = torch.randn(B, T, D)
    module(x, x, where=where)
    assert len(calls) == 1
    with record(torch.nn.ModuleDict({"attn": module}), "attn.probs"):
        module(x, x, where=where)
    assert len(calls) == 1, "watched probabilities must be formed"
    module.to(torch.bfloat16)(x.bfloat16(), x.bfloat16(), where=where)
    assert len(calls) == 1, "bfloat16 learns faster on the explicit path"
    with torch.no_grad():
        module(x.bfloat16(), x.bfloat16(), where=where)
    assert len(calls) == 2


def test_scale_is_an_option():
    x = torch.randn(B, T, D)
    scaled, where = build()
    plain, _ = build(scale=False)
    with torch.no_grad():
        plain.q.weight.mul_((D // H) ** -0.5)
        plain.q.bias.mul_((D // H) ** -0.5)
    torch.testing.assert_close(plain(x, x, where=where), scaled(x, x, where=where))


def test_a_row_that_may_see_nobody_gives_no_nan():
    module, where = build()
    x = torch.randn(B, T, D)
    nobody = masks.causal(T) & masks.padding(torch.tensor([[0] * 3 + [1] * 3, [1] * T]))
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            assert module(x, x, mask=nobody, where=where).isfinite().all()
    with torch.no_grad(), record(torch.nn.ModuleDict({"attn": module}), "attn.probs"):
        assert module(x, x, mask=nobody, where=where).isfinite().all()


def test_dropout_acts_in_training_only(monkeypatch):
    module, where = build()
    module.dropout = 0.5
    x = torch.randn(B, T, D)
    for slower in (False, True):
        monkeypatch.setattr(attention, "_fused_is_slower", lambda q, k, slower=slower: slower)
        assert not torch.equal(module.train()(x, x, where=where), module(x, x, where=where))
        assert torch.equal(module.eval()(x, x, where=where), module(x, x, where=where))


def kv(t, seed, grad=False):
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(1, 2, t, 3, generator=rng).requires_grad_(grad) for _ in range(2)]


@pytest.mark.parametrize("grad", [False, True])
def test_a_cache_holds_everything_in_order(grad):
    cache, parts = LayerCache(), [kv(t, t) for t in (3, 1, 1, 4, 1, 2)]
    with torch.set_grad_enabled(grad):
        for n, (k, v) in enumerate(parts):
            keys, values = cache.extend(k, v)
            assert torch.equal(keys, torch.cat([p[0] for p in parts[: n + 1]], dim=2))
            assert torch.equal(values, torch.cat([p[1] for p in parts[: n + 1]], dim=2))


def test_extending_a_copy_leaves_the_original_and_the_other_way_round():
    cache = KVCache(1)
    with torch.no_grad():
        for n in range(3):
            cache.own[0].extend(*kv(2, n))
        before = cache.own[0].k.clone()
        copy = cache.copy()
        copy.own[0].extend(*kv(1, 7))
        cache.own[0].extend(*kv(1, 8))
    assert cache.length == copy.length == 7
    assert torch.equal(copy.own[0].k[:, :, :6], before) and torch.equal(cache.own[0].k[:, :, :6], before)
    assert torch.equal(copy.own[0].k[:, :, 6:], kv(1, 7)[0]) and torch.equal(cache.own[0].k[:, :, 6:], kv(1, 8)[0])


def test_a_replaced_tensor_is_extended_not_the_old_room():
    cache = LayerCache()
    with torch.no_grad():
        for n in range(3):
            cache.extend(*kv(2, n))
        other = kv(6, 9)
        cache.k, cache.v = other
        keys, _ = cache.extend(*kv(1, 3))
    assert torch.equal(keys[:, :, :6], other[0])


def test_gradients_flow_into_a_cached_prefix():
    prefix = kv(2, 0, grad=True)
    cache = LayerCache()
    cache.extend(*prefix)
    loss = torch.zeros(())
    for n in range(3):
        keys, values = cache.extend(*kv(1, n))
        loss = loss + keys.square().sum() + 2 * values.sum()  # squaring keeps the keys for the backward pass
    loss.backward()
    torch.testing.assert_close(prefix[0].grad, 3 * 2 * prefix[0].detach())
    torch.testing.assert_close(prefix[1].grad, torch.full_like(prefix[1], 6.0))


def test_reorder_repeats_and_permutes_rows():
    cache = KVCache(1)
    rows = [torch.full((1, 1, 2, 1), float(n)) for n in range(3)]
    with torch.no_grad():
        cache.own[0].extend(torch.cat(rows), torch.cat(rows))
        cache.own[0].extend(torch.cat(rows)[:, :, :1], torch.cat(rows)[:, :, :1])
        cache.reorder(torch.tensor([2, 0, 0, 1]))
        keys, _ = cache.own[0].extend(torch.ones(4, 1, 1, 1), torch.ones(4, 1, 1, 1))
    assert keys[:, 0, :, 0].tolist() == [[2, 2, 2, 1], [0, 0, 0, 1], [0, 0, 0, 1], [1, 1, 1, 1]]
