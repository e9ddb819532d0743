"""The whole model: a cache changes nothing, padding changes nothing, the future is not seen, bad
input is named.
"""

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.model import config as c
from course_lib.model.cache import KVCache
from course_lib.model.config import (
    EmbedConfig,
    Global,
    Learned,
    NoPosition,
    Rope,
    StackConfig,
    Window,
)
from course_lib.model.modes import evaluating
from course_lib.model.recompute import recompute
from course_lib.model.transformer import Transformer

SCHEMES = [
    Learned(40),
    c.Sinusoidal(),
    c.Rope(),
    c.Rope(interleaved=True),
    c.T5Buckets(8, 12),
    c.Shaw(3),
    c.Alibi(),
    NoPosition(),
]
each_scheme = pytest.mark.parametrize("position", SCHEMES, ids=repr)
VOCAB = 30


def shaken(model, size=0.2):
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(size * torch.randn_like(weight))
    return model.eval()


def build(position=None, *, seed=0, **more):
    torch.manual_seed(seed)
    values = {
        "embed": EmbedConfig(VOCAB),
        "width": 16,
        "layers": 2,
        "heads": 4,
        "hidden": 24,
        "causal": True,
        "position": position or Learned(40),
    } | more
    return shaken(Transformer(StackConfig(**values)))


def left_padded():
    ids = torch.randint(VOCAB, (3, 9), generator=torch.Generator().manual_seed(1))
    attention_mask = torch.arange(9) >= torch.tensor([[0], [4], [7]])
    return ids, attention_mask


@each_scheme
@pytest.mark.parametrize("sizes", [(9,), (1,) * 9, (4, 1, 3, 1)], ids=str)
def test_cached_equals_uncached(position, sizes):
    stack = build(position)
    ids, attention_mask = left_padded()
    expected = stack(ids, attention_mask=attention_mask)
    cache, out, start = KVCache(2), [], 0
    for size in sizes:
        end = start + size
        out.append(stack(ids[:, start:end], attention_mask=attention_mask[:, :end], cache=cache))
        start = end
    assert cache.length == 9
    torch.testing.assert_close(
        torch.cat(out, dim=1)[attention_mask], expected[attention_mask], atol=1e-5, rtol=1e-4
    )


@each_scheme
@pytest.mark.parametrize("causal", [True, False])
def test_padding_on_either_side_changes_nothing(position, causal):
    stack = build(position, causal=causal)
    row = torch.randint(VOCAB, (1, 5))
    alone = stack(row)
    for attention_mask in ([1] * 5 + [0] * 3, [0] * 3 + [1] * 5):
        attention_mask = torch.tensor([attention_mask], dtype=torch.bool)
        for filler in (0, 7):
            padded = torch.full((1, 8), filler)
            padded[attention_mask] = row[0]
            torch.testing.assert_close(
                stack(padded, attention_mask=attention_mask)[attention_mask],
                alone[0],
                atol=1e-5,
                rtol=1e-4,
            )


@each_scheme
def test_a_causal_stack_does_not_see_the_future_and_a_full_one_does(position):
    ids = torch.randint(VOCAB, (2, 7))
    changed = ids.clone()
    changed[:, 4] = (changed[:, 4] + 1) % VOCAB
    causal, full = build(position), build(position, causal=False)
    torch.testing.assert_close(causal(changed)[:, :4], causal(ids)[:, :4])
    assert (causal(changed)[:, 4:] - causal(ids)[:, 4:]).abs().amin(dim=(0, 2)).gt(0).all()
    assert (full(changed)[:, :4] - full(ids)[:, :4]).abs().max() > 1e-4


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


ZEROS = torch.zeros(1, 2, dtype=torch.long)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s(torch.tensor([[1, VOCAB]])), "vocabulary has 30.*another model's tokenizer"),
        (lambda s: s(torch.tensor([[-100, 2]])), "from -100 to 2"),
        (lambda s: s(torch.zeros(1, 41, dtype=torch.long)), "reaches 41 positions.*learned 40"),
        (lambda s: s(ZEROS, attention_mask=torch.ones(1, 3)), "attention_mask has 3 columns for 2"),
        (lambda s: s(ZEROS, memory=torch.zeros(1, 2, 16)), "memory= exactly if"),
        (lambda s: build(cross=True)(ZEROS), "memory= exactly if"),
        (lambda s: s(ZEROS, segments=torch.zeros(1, 2)), "without a segment table"),
    ],
)
def test_bad_input_is_one_clear_sentence(call, message):
    with pytest.raises(CourseError, match=message):
        call(build())


def test_the_limit_counts_the_cache_but_no_padding():
    stack, cache = build(Learned(4)), KVCache(2)
    attention_mask = torch.tensor([[0, 1, 1, 1]], dtype=torch.bool)
    assert (
        stack(torch.zeros(1, 4, dtype=torch.long), attention_mask=attention_mask).isfinite().all()
    )
    stack(torch.zeros(1, 4, dtype=torch.long), cache=cache)
    with pytest.raises(CourseError, match="reaches 5 positions"):
        stack(torch.zeros(1, 1, dtype=torch.long), cache=cache)


@pytest.mark.parametrize("fails", [False, True])
def test_evaluating_returns_each_part_to_its_own_mode(fails):
    model = build().train()
    model.blocks[0].eval()  # frozen by whoever trains the rest
    before = [part.training for part in model.modules()]
    try:
        with evaluating(model):
            assert not any(part.training for part in model.modules())
            if fails:
                raise ValueError
    except ValueError:
        assert fails
    assert (
        [part.training for part in model.modules()] == before and True in before and False in before
    )


def test_under_autocast_a_block_casts_what_it_reads_once():
    block, seen = build().blocks[0], []
    for part in (block.attn.q, block.attn.k, block.attn.v):
        part.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.autocast("cpu", torch.bfloat16):
        block(torch.randn(1, 3, 16))
    assert seen[0] is seen[1] is seen[2] and seen[0].dtype == torch.bfloat16


def test_recomputing_blocks_gives_the_same_gradients_to_the_last_bit():
    """With dropout: the second pass draws what the first drew."""
    gradients, calls = [], []
    for again in (False, True):
        model = build(dropout=0.3).train()
        if again:
            recompute(model)
        count = []
        model.blocks[0].ff.register_forward_pre_hook(lambda *_, count=count: count.append(1))
        torch.manual_seed(1)
        model(torch.arange(8).view(2, 4)).square().sum().backward()
        gradients.append([weight.grad for weight in model.parameters()])
        calls.append(len(count))
    assert calls == [1, 2]
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
    assert model.state_dict().keys() == build().state_dict().keys()


PATTERNS = (Global(), Window(2, rope_base=50.0), Window(1, rope_base=50.0))


@pytest.mark.parametrize("causal", [True, False])
def test_each_layer_has_the_window_of_its_pattern(causal):
    """What a token reads is found by changing each token in turn."""
    for pattern in (Window(2), Window(1), Global()):
        stack = build(Rope(), layers=1, causal=causal, attention=(pattern,))
        ids = torch.randint(VOCAB, (1, 9))
        size = pattern.size if isinstance(pattern, Window) else 9
        for changed in range(9):
            other = ids.clone()
            other[0, changed] = (other[0, changed] + 1) % VOCAB
            differs = (stack(other) - stack(ids)).abs().amax(-1)[0] > 1e-6
            for at in range(9):
                reads = abs(at - changed) <= size and not (causal and changed > at)
                assert bool(differs[at]) == reads


def test_layers_repeat_the_patterns_and_rotate_by_their_own_base():
    config = build(Rope(), layers=5, attention=PATTERNS).config
    assert [config.pattern(layer) for layer in range(5)] == [*PATTERNS, *PATTERNS[:2]]
    ids = torch.randint(VOCAB, (2, 9))
    own = build(Rope(base=7.0), attention=(Global(rope_base=50.0),))
    stacks = build(Rope(base=50.0), attention=(Global(),))
    assert torch.equal(own(ids), stacks(ids))
    assert not torch.allclose(own(ids), build(Rope(base=7.0))(ids), atol=1e-3)


@pytest.mark.parametrize("sizes", [(1,) * 9, (4, 1, 3, 1)], ids=str)
def test_windows_with_a_cache_and_with_padding(sizes):
    stack = build(Rope(), layers=3, attention=PATTERNS)
    ids, attention_mask = left_padded()
    expected = stack(ids, attention_mask=attention_mask)
    alone = stack(ids[2:, 7:])
    torch.testing.assert_close(expected[2:, 7:], alone, atol=1e-5, rtol=1e-4)
    cache, out, start = KVCache(3), [], 0
    for size in sizes:
        end = start + size
        out.append(stack(ids[:, start:end], attention_mask=attention_mask[:, :end], cache=cache))
        start = end
    torch.testing.assert_close(
        torch.cat(out, dim=1)[attention_mask], expected[attention_mask], atol=1e-5, rtol=1e-4
    )


def test_layers_of_one_pattern_share_their_mask_and_positions():
    stack, seen = build(Rope(), layers=4, attention=PATTERNS[:2]), []
    for block in stack.blocks:
        block.register_forward_pre_hook(lambda _, x, given: seen.append(given), with_kwargs=True)
    stack(torch.randint(VOCAB, (1, 6)))
    for name in ("mask", "positions"):
        assert seen[0][name] is seen[2][name] and seen[1][name] is seen[3][name]
        assert seen[0][name] is not seen[1][name]


def test_the_first_block_may_have_no_attention_norm():
    names = build(norm="pre", first_norm=False).state_dict().keys()
    assert not any(name.startswith("blocks.0.attn_norm") for name in names)
    assert "blocks.1.attn_norm.weight" in names
