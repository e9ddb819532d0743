"""Position schemes against their formulas, written as loops, and against transformers'
functions.
"""

import math

import pytest
import torch

from course_lib.model import config as c
from course_lib.model import positions

WHERE = torch.tensor([[0, 1, 2, 5, 11]])


def test_rope_angles_are_the_papers():
    rope = positions.RopePosition(c.Rope(base=100.0, interleaved=True), 4)
    x = torch.tensor([1.0, 0.0, 1.0, 0.0])[None, None, None]
    found = rope.rotate(x, torch.tensor([[3]]))[0, 0, 0].tolist()
    slow = 3 * 100 ** (-2 / 4)
    assert found == pytest.approx(
        [math.cos(3), math.sin(3), math.cos(slow), math.sin(slow)], abs=1e-6
    )


def test_the_two_layouts_of_rope_are_one_permutation_apart():
    x = torch.randn(2, 3, 5, 8)
    # first components of all pairs, then second ones
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    pairs = positions.RopePosition(c.Rope(interleaved=True), 8).rotate(x, WHERE)
    halves = positions.RopePosition(c.Rope(interleaved=False), 8).rotate(x[..., order], WHERE)
    torch.testing.assert_close(pairs[..., order], halves)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("buckets", "reach"), [(32, 128), (8, 20), (16, 64)])
def test_t5_buckets_equal_transformers(bidirectional, buckets, reach):
    from transformers.models.t5.modeling_t5 import T5Attention

    scheme = positions.T5BucketsPosition(
        c.T5Buckets(buckets, reach), heads=2, causal=not bidirectional
    )
    distance = torch.arange(-300, 301)
    expected = T5Attention._relative_position_bucket(distance, bidirectional, buckets, reach)
    assert torch.equal(scheme.bucket(distance), expected)
    assert scheme.bucket(distance).unique().numel() == (
        buckets if not bidirectional else buckets - 1
    )


@pytest.mark.parametrize("heads", [1, 2, 4, 6, 8, 12, 16, 20])
def test_alibi_slopes_equal_transformers(heads):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    expected = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads, torch.float32)[:, 0, 1]
    torch.testing.assert_close(positions.AlibiPosition(heads).slopes, expected)


def test_alibi_penalty_grows_with_distance_on_both_sides():
    found = positions.AlibiPosition(2).scores(None, WHERE, WHERE)
    distance = (WHERE[0] - WHERE[0][:, None]).abs()
    torch.testing.assert_close(found, -torch.stack([2.0**-4 * distance, 2.0**-8 * distance])[None])


def test_shaw_against_a_double_loop():
    clip, dh = 2, 4
    scheme = positions.ShawPosition(c.Shaw(clip), dh)
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
                    torch.testing.assert_close(
                        scores[b, h, i, j], q[b, h, i] @ scheme.key_table.weight[row]
                    )
                    total += probs[b, h, i, j] * scheme.value_table.weight[row]
                torch.testing.assert_close(values[b, h, i], total)
