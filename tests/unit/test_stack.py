"""The whole model: a cache changes nothing, padding changes nothing, the future is not seen, bad input is named."""

import pytest
import torch

from course_lib.attention import KVCache
from course_lib.config import Alibi, EmbedConfig, Learned, NoPosition, Rope, Shaw, Sinusoidal, StackConfig, T5Buckets
from course_lib.errors import CourseError
from course_lib.layers import RMSNorm
from course_lib.stack import Stack

SCHEMES = [
    Learned(40), Sinusoidal(), Rope(), Rope(interleaved=True), T5Buckets(8, 12), Shaw(3), Alibi(), NoPosition(),
]  # fmt: skip
each_scheme = pytest.mark.parametrize("position", SCHEMES, ids=repr)
VOCAB = 30


def build(position=None, *, seed=0, **more):
    torch.manual_seed(seed)
    values = {"embed": EmbedConfig(VOCAB), "width": 16, "layers": 2, "heads": 4, "hidden": 24, "causal": True,
              "position": position or Learned(40)} | more  # fmt: skip
    stack = Stack(StackConfig(**values))
    with torch.no_grad():
        for weight in stack.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return stack.eval().requires_grad_(False)


def left_padded():
    ids = torch.randint(VOCAB, (3, 9), generator=torch.Generator().manual_seed(1))
    keep = torch.arange(9) >= torch.tensor([[0], [4], [7]])
    return ids, keep


@each_scheme
@pytest.mark.parametrize("sizes", [(9,), (1,) * 9, (4, 1, 3, 1)], ids=str)
def test_cached_equals_uncached(position, sizes):
    stack = build(position)
    ids, keep = left_padded()
    expected = stack(ids, keep=keep)
    cache, out, start = KVCache(2), [], 0
    for size in sizes:
        end = start + size
        out.append(stack(ids[:, start:end], keep=keep[:, :end], cache=cache))
        start = end
    assert cache.length == 9
    torch.testing.assert_close(torch.cat(out, dim=1)[keep], expected[keep], atol=1e-5, rtol=1e-4)


@each_scheme
def test_cached_equals_uncached_without_padding(position):
    stack = build(position)
    ids = left_padded()[0]
    cache = KVCache(2)
    out = [stack(part, cache=cache) for part in ids.split([5, 1, 1, 2], dim=1)]
    torch.testing.assert_close(torch.cat(out, dim=1), stack(ids), atol=1e-5, rtol=1e-4)


@each_scheme
@pytest.mark.parametrize("causal", [True, False])
def test_padding_on_either_side_changes_nothing(position, causal):
    stack = build(position, causal=causal)
    row = torch.randint(VOCAB, (1, 5))
    alone = stack(row)
    for keep in ([1] * 5 + [0] * 3, [0] * 3 + [1] * 5):
        keep = torch.tensor([keep], dtype=torch.bool)
        for filler in (0, 7):
            padded = torch.full((1, 8), filler)
            padded[keep] = row[0]
            torch.testing.assert_close(stack(padded, keep=keep)[keep], alone[0], atol=1e-5, rtol=1e-4)


@each_scheme
def test_a_causal_stack_does_not_see_the_future_and_a_full_one_does(position):
    ids = torch.randint(VOCAB, (2, 7))
    changed = ids.clone()
    changed[:, 4] = (changed[:, 4] + 1) % VOCAB
    causal, full = build(position), build(position, causal=False)
    torch.testing.assert_close(causal(changed)[:, :4], causal(ids)[:, :4])
    assert (causal(changed)[:, 4:] - causal(ids)[:, 4:]).abs().amin(dim=(0, 2)).gt(0).all()
    assert (full(changed)[:, :4] - full(ids)[:, :4]).abs().max() > 1e-4


@each_scheme
def test_word_order_matters_unless_there_are_no_positions(position):
    stack = build(position, causal=False)
    ids = torch.randperm(VOCAB)[None, :6]
    moved = (stack(ids.flip(1)).flip(1) - stack(ids)).abs().max()
    assert (moved < 1e-5) == (position in (NoPosition(), Alibi()))  # ALiBi reversed is ALiBi: |i - j| is symmetric


def test_run_from_vectors_equals_ids():
    stack = build()
    ids = torch.randint(VOCAB, (2, 5))
    torch.testing.assert_close(stack.run(stack.embed.lookup(ids)), stack(ids))


def test_shared_layers_have_one_blocks_weights():
    shared, deep = build(shared=True, layers=3), build(layers=3)
    assert len(shared.blocks) == 1 and len(deep.blocks) == 3
    for block in deep.blocks:
        block.load_state_dict(shared.blocks[0].state_dict())
    rest = {n: w for n, w in shared.state_dict().items() if not n.startswith("blocks.")}
    deep.load_state_dict(rest, strict=False)
    ids = torch.randint(VOCAB, (2, 5))
    torch.testing.assert_close(shared(ids), deep(ids))
    cache = KVCache(3)
    out = [shared(part, cache=cache) for part in ids.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(out, 1), shared(ids), atol=1e-5, rtol=1e-4)


def test_narrow_embeddings_are_projected():
    stack = build(embed=EmbedConfig(VOCAB, width=6))
    assert stack.embed.tokens.weight.shape == (VOCAB, 6) and stack.position.table.weight.shape == (40, 6)
    assert stack(torch.zeros(1, 3, dtype=torch.long)).shape == (1, 3, 16)


def test_embedding_scale_and_segments():
    stack = build(embed=EmbedConfig(VOCAB, segments=2, scale=3.0), position=NoPosition())
    ids, segments = torch.tensor([[4, 5]]), torch.tensor([[0, 1]])
    seen = []
    handle = stack.embed.register_forward_hook(lambda m, i, o: seen.append(o))
    stack(ids, segments=segments)
    stack(ids)
    handle.remove()
    tokens = 3.0 * stack.embed.tokens.weight[ids]
    torch.testing.assert_close(seen[0], tokens + stack.embed.segments.weight[segments])
    torch.testing.assert_close(seen[1], tokens + stack.embed.segments.weight[0])


def test_rms_norm_formula():
    norm = RMSNorm(4, eps=0.1)
    norm.weight.data = torch.tensor([1.0, 2.0, 3.0, 4.0])
    x = torch.randn(3, 4)
    expected = norm.weight * x / (x.pow(2).mean(-1, keepdim=True) + 0.1).sqrt()
    torch.testing.assert_close(norm(x), expected)


def test_gated_feed_forward():
    ff = build(gated=True, activation="silu").blocks[0].ff
    x = torch.randn(2, 3, 16)
    torch.testing.assert_close(ff(x), ff.down(torch.nn.functional.silu(ff.gate(x)) * ff.up(x)))


def test_pre_and_post_norm_stand_where_the_papers_put_them():
    x = torch.randn(2, 3, 16)
    for norm in ("pre", "post"):
        block = build(norm=norm, causal=False, position=NoPosition()).blocks[0]
        if norm == "pre":
            h = x + block.attn(block.attn_norm(x), block.attn_norm(x))
            expected = h + block.ff(block.ff_norm(h))
        else:
            h = block.attn_norm(x + block.attn(x, x))
            expected = block.ff_norm(h + block.ff(h))
        torch.testing.assert_close(block(x), expected)


def test_scaled_init_is_smaller_into_the_residual():
    torch.manual_seed(0)
    config = StackConfig(EmbedConfig(5), width=64, layers=8, heads=2, hidden=128, scaled_init=True)
    stack = Stack(config)
    block = stack.blocks[0]
    for weight in (block.attn.out.weight, block.ff.down.weight):
        assert weight.std().item() == pytest.approx(0.02 / 4, rel=0.1)
    assert block.ff.up.weight.std().item() == pytest.approx(0.02, rel=0.1)


@pytest.fixture
def decoder():
    return build(cross=True)


def test_cross_attention_reads_the_real_part_of_the_memory_only(decoder):
    ids, memory = torch.randint(VOCAB, (2, 4)), torch.randn(2, 5, 16)
    real = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
    base = decoder(ids, memory=memory, memory_mask=real)
    noisy = memory.clone()
    noisy[1, 3:] += 5
    torch.testing.assert_close(decoder(ids, memory=noisy, memory_mask=real), base)
    noisy[1, 2] += 5
    assert (decoder(ids, memory=noisy, memory_mask=real)[1] - base[1]).abs().max() > 1e-3


def test_a_decoder_with_memory_is_causal_and_cached_equals_uncached(decoder):
    """More than one target token: with one, a decoder that sees the future looks right."""
    ids, memory = torch.randint(VOCAB, (2, 5)), torch.randn(2, 3, 16)
    expected = decoder(ids, memory=memory)
    cache = KVCache(2)
    out = [decoder(part, memory=memory, cache=cache) for part in ids.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(out, 1), expected, atol=1e-5, rtol=1e-4)
    assert cache.cross[0].k.shape[2] == 3, "the memory is cached once"


def test_a_second_backward_through_the_same_stack_works():
    stack = build().requires_grad_(True)
    ids = torch.randint(VOCAB, (1, 4))
    stack(ids).sum().backward()
    stack(ids).sum().backward()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s(torch.tensor([[1, VOCAB]])), "vocabulary has 30.*another model's tokenizer"),
        (lambda s: s(torch.tensor([[-100, 2]])), "from -100 to 2"),
        (lambda s: s(torch.zeros(1, 41, dtype=torch.long)), "reaches 41 positions.*learned 40"),
        (lambda s: s(torch.zeros(1, 2, dtype=torch.long), keep=torch.ones(1, 3)), "keep has 3 columns.*are 2"),
        (lambda s: s(torch.zeros(1, 2, dtype=torch.long), memory=torch.zeros(1, 2, 16)), "without cross-attention"),
        (lambda s: s(torch.zeros(1, 2, dtype=torch.long), segments=torch.zeros(1, 2)), "without a segment table"),
    ],
)
def test_bad_input_is_one_clear_sentence(call, message):
    with pytest.raises(CourseError, match=message):
        call(build())


def test_a_decoder_without_its_memory_says_so(decoder):
    with pytest.raises(CourseError, match="pass memory="):
        decoder(torch.zeros(1, 2, dtype=torch.long))


def test_a_sequence_over_the_limit_through_the_cache():
    stack, cache = build(), KVCache(2)
    stack(torch.zeros(1, 40, dtype=torch.long), cache=cache)
    with pytest.raises(CourseError, match="reaches 41 positions"):
        stack(torch.zeros(1, 1, dtype=torch.long), cache=cache)


def test_padding_does_not_count_towards_the_limit():
    stack = build(Learned(4))
    keep = torch.tensor([[0, 1, 1, 1]], dtype=torch.bool)
    assert stack(torch.zeros(1, 4, dtype=torch.long), keep=keep).isfinite().all()
