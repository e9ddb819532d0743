"""Position schemes against their formulas, written as loops, and against transformers' functions."""

import math

import pytest
import torch

from course_lib import config as c
from course_lib import positions
from course_lib.errors import CourseError

WHERE = torch.tensor([[0, 1, 2, 5, 11]])


def test_sinusoidal_formula():
    width = 6
    found = positions.Sinusoidal(c.Sinusoidal(), width).embed(WHERE)
    for n, pos in enumerate(WHERE[0].tolist()):
        for i in range(width // 2):
            angle = pos / 10000 ** (2 * i / width)
            assert found[0, n, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert found[0, n, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_sinusoidal_of_odd_width():
    assert positions.Sinusoidal(c.Sinusoidal(), 5).embed(WHERE).shape == (1, 5, 5)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_scores_depend_on_the_distance_only(interleaved):
    rope = positions.Rope(c.Rope(interleaved=interleaved), 8)
    rng = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 8, generator=rng)

    def score(i, j):
        return (rope.rotate(q, torch.tensor([[i]])) * rope.rotate(k, torch.tensor([[j]]))).sum().item()

    for i, j in [(3, 1), (4, 4), (2, 9)]:
        assert score(i, j) == pytest.approx(score(i + 17, j + 17), abs=1e-5)
    assert abs(score(3, 1) - score(3, 2)) > 1e-3
    assert abs(score(3, 1) - score(1, 3)) > 1e-3


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_turns_without_stretching_and_leaves_position_zero(interleaved):
    rope = positions.Rope(c.Rope(interleaved=interleaved), 8)
    x = torch.randn(2, 3, 5, 8)
    turned = rope.rotate(x, WHERE)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(turned[:, :, 0], x[:, :, 0])


def test_rope_angles_are_the_papers():
    rope = positions.Rope(c.Rope(base=100.0, interleaved=True), 4)
    x = torch.tensor([1.0, 0.0, 1.0, 0.0])[None, None, None]
    found = rope.rotate(x, torch.tensor([[3]]))[0, 0, 0].tolist()
    slow = 3 * 100 ** (-2 / 4)
    assert found == pytest.approx([math.cos(3), math.sin(3), math.cos(slow), math.sin(slow)], abs=1e-6)


def test_the_two_layouts_of_rope_are_one_permutation_apart():
    x = torch.randn(2, 3, 5, 8)
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])  # first components of all pairs, then second ones
    pairs = positions.Rope(c.Rope(interleaved=True), 8).rotate(x, WHERE)
    halves = positions.Rope(c.Rope(interleaved=False), 8).rotate(x[..., order], WHERE)
    torch.testing.assert_close(pairs[..., order], halves)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("buckets", "reach"), [(32, 128), (8, 20), (16, 64)])
def test_t5_buckets_equal_transformers(bidirectional, buckets, reach):
    from transformers.models.t5.modeling_t5 import T5Attention

    scheme = positions.T5Buckets(c.T5Buckets(buckets, reach), heads=2, causal=not bidirectional)
    distance = torch.arange(-300, 301)
    expected = T5Attention._relative_position_bucket(distance, bidirectional, buckets, reach)
    assert torch.equal(scheme.bucket(distance), expected)
    assert scheme.bucket(distance).unique().numel() == (buckets if not bidirectional else buckets - 1)


def test_t5_direction_can_be_chosen_against_the_stack():
    scheme = positions.T5Buckets(c.T5Buckets(8, 20, bidirectional=True), heads=2, causal=True)
    assert scheme.bucket(torch.tensor([3])) != scheme.bucket(torch.tensor([-3]))


def test_t5_bias_is_read_from_the_table():
    scheme = positions.T5Buckets(c.T5Buckets(8, 20), heads=3, causal=True)
    found = scheme.scores(None, WHERE, WHERE)
    assert found.shape == (1, 3, 5, 5)
    for head in range(3):
        for i, q in enumerate(WHERE[0]):
            for j, k in enumerate(WHERE[0]):
                assert found[0, head, i, j] == scheme.table.weight[scheme.bucket(k - q), head]


def test_alibi_slopes():
    assert positions.Alibi.geometric(8) == [2.0**-n for n in range(1, 9)]
    assert positions.Alibi.geometric(4) == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]


@pytest.mark.parametrize("heads", [1, 2, 4, 6, 8, 12, 16, 20])
def test_alibi_slopes_equal_transformers(heads):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    expected = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads, torch.float32)[:, 0, 1]
    torch.testing.assert_close(positions.Alibi(heads).slopes, expected)


def test_alibi_penalty_grows_with_distance_on_both_sides():
    found = positions.Alibi(2).scores(None, WHERE, WHERE)
    assert found.shape == (1, 2, 5, 5)
    slopes = [2.0**-4, 2.0**-8]
    for head in range(2):
        for i, q in enumerate(WHERE[0].tolist()):
            for j, k in enumerate(WHERE[0].tolist()):
                assert found[0, head, i, j].item() == pytest.approx(-slopes[head] * abs(q - k))


def test_shaw_against_a_double_loop():
    clip, dh = 2, 4
    scheme = positions.Shaw(c.Shaw(clip), dh)
    q_pos, k_pos = torch.tensor([[3, 4], [0, 9]]), torch.tensor([[0, 1, 4, 7], [2, 0, 1, 9]])
    q, probs = torch.randn(2, 3, 2, dh), torch.rand(2, 3, 2, 4)
    scores, values = scheme.scores(q, q_pos, k_pos), scheme.values(probs, q_pos, k_pos)
    assert scores.shape == (2, 3, 2, 4) and values.shape == (2, 3, 2, dh)
    for b in range(2):
        for h in range(3):
            for i in range(2):
                total = torch.zeros(dh)
                for j in range(4):
                    row = max(-clip, min(clip, int(k_pos[b, j] - q_pos[b, i]))) + clip
                    torch.testing.assert_close(scores[b, h, i, j], q[b, h, i] @ scheme.key_table.weight[row])
                    total += probs[b, h, i, j] * scheme.value_table.weight[row]
                torch.testing.assert_close(values[b, h, i], total)


def test_learned_is_a_table_with_an_end():
    scheme = positions.Learned(c.Learned(6), 4)
    assert torch.equal(scheme.embed(torch.tensor([[0, 5]]))[0, 1], scheme.table.weight[5])
    with pytest.raises(CourseError, match="reaches 7 positions, but this model has learned 6"):
        scheme.embed(torch.arange(7)[None])
    with pytest.raises(CourseError, match="reaches 12 positions"):
        scheme.embed(torch.tensor([[11]]))


def test_the_base_class_says_nothing():
    none = positions.Position()
    x = torch.randn(1, 2, 5, 4)
    assert none.embed(WHERE) == 0.0 and none.values(x, WHERE, WHERE) == 0.0
    assert none.scores(x, WHERE, WHERE) is None
    assert none.rotate(x, WHERE) is x


@pytest.mark.parametrize(
    ("scheme", "kind"),
    [
        (c.Learned(9), positions.Learned), (c.Sinusoidal(), positions.Sinusoidal), (c.Rope(), positions.Rope),
        (c.T5Buckets(), positions.T5Buckets), (c.Shaw(), positions.Shaw), (c.Alibi(), positions.Alibi),
        (c.NoPosition(), positions.Position), (c.Disentangled(), positions.Disentangled),
    ],
)  # fmt: skip
def test_build_gives_the_scheme_that_the_config_names(scheme, kind):
    config = c.StackConfig(c.EmbedConfig(5), width=8, layers=1, heads=2, hidden=8, position=scheme)
    assert type(positions.build(config)) is kind
