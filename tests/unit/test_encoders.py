"""The encoders beside BERT: what they differ in, said by `diff`; disentangled attention by its own formula."""

import math

import pytest
import torch

from course_lib import config as c
from course_lib import positions
from course_lib.errors import CourseError
from course_lib.models.albert import albert_base, albert_mini, albert_xxlarge
from course_lib.models.bert import bert_base, bert_large, bert_mini
from course_lib.models.deberta import deberta_base, deberta_mini
from course_lib.models.distilbert import distilbert_base, distilbert_mini
from course_lib.models.electra import electra_base, electra_large, electra_mini, electra_small, generator
from course_lib.models.roberta import roberta_base, roberta_large, roberta_mini
from course_lib.stack import Stack

DISENTANGLED = {
    "position": ("Learned", "Disentangled"),
    "position.content_to_position": (None, True),
    "position.position_to_content": (None, True),
    "eps": (1e-12, 1e-7),
}
SHARED = {"shared": (False, True), "activation": ("gelu", "gelu_tanh")}
DIFFERENCES = [
    (bert_base, roberta_base, {"embed.vocab": (30522, 50265), "embed.segments": (2, 1), "eps": (1e-12, 1e-5)}),
    (bert_large, roberta_large, {"embed.vocab": (30522, 50265), "embed.segments": (2, 1), "eps": (1e-12, 1e-5)}),
    (bert_mini, roberta_mini, {"embed.segments": (2, 1), "eps": (1e-12, 1e-5)}),
    (bert_base, distilbert_base, {"embed.segments": (2, 0), "layers": (12, 6)}),
    (bert_mini, distilbert_mini, {"embed.segments": (2, 0), "layers": (4, 2)}),
    (
        bert_base, albert_base,
        SHARED | {
            "embed.vocab": (30522, 30000), "embed.width": (None, 128), "dropout": (0.1, 0.0),
            "attention_dropout": (0.1, 0.0),
        },
    ),
    (bert_mini, albert_mini, SHARED | {"embed.width": (None, 32)}),
    (albert_base, albert_xxlarge, {"width": (768, 4096), "heads": (12, 64), "hidden": (3072, 16384)}),
    (bert_base, electra_base, {}),
    (bert_large, electra_large, {}),
    (bert_mini, electra_mini, {}),
    (
        bert_base, electra_small,
        {"embed.width": (None, 128), "width": (768, 256), "heads": (12, 4), "hidden": (3072, 1024)},
    ),
    (
        roberta_base, deberta_base,
        DISENTANGLED | {
            "embed.segments": (1, 0), "position.length": (512, None), "position.clip": (None, 512),
            "eps": (1e-5, 1e-7),
        },
    ),
    (
        bert_mini, deberta_mini,
        DISENTANGLED | {"embed.segments": (2, 0), "position.length": (160, None), "position.clip": (None, 64)},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "difference"), DIFFERENCES)
def test_each_model_differs_as_its_card_says(one, other, difference):
    assert c.diff(one(), other()) == difference


def test_a_difference_is_told_in_the_configurations_order():
    """What belongs together stands together, also where only one of the two has it."""
    found = list(c.diff(bert_base(), deberta_base()))
    assert found == [
        "embed.vocab", "embed.segments", "position", "position.length", "position.clip",
        "position.content_to_position", "position.position_to_content", "eps",
    ]  # fmt: skip


def test_the_generator_is_a_fraction_of_its_discriminator():
    assert c.diff(electra_mini(), generator(electra_mini())) == {
        "embed.width": (None, 128), "width": (128, 32), "heads": (4, 1), "hidden": (512, 128),
    }  # fmt: skip
    assert c.diff(electra_base(), generator(electra_base(), 1 / 3)) == {
        "embed.width": (None, 768), "width": (768, 256), "heads": (12, 4), "hidden": (3072, 1024),
    }  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [{"content_to_position": False, "position_to_content": False}, {"cross": True}],
)
def test_disentangled_attention_that_cannot_be(changes):
    position = c.Disentangled(4, **{k: v for k, v in changes.items() if k != "cross"})
    with pytest.raises(CourseError, match="Disentangled attention needs"):
        c.StackConfig(
            c.EmbedConfig(9), width=8, layers=1, heads=2, hidden=8, position=position, cross="cross" in changes
        )


def test_the_scale_counts_the_terms():
    def factor(**how):
        position = c.Disentangled(4, **how)
        return c.StackConfig(c.EmbedConfig(9), width=8, layers=1, heads=2, hidden=8, position=position).score_factor

    assert factor() == pytest.approx(1 / math.sqrt(3 * 4))
    assert factor(content_to_position=False) == factor(position_to_content=False) == pytest.approx(1 / math.sqrt(2 * 4))
    assert bert_base().score_factor == 1 / math.sqrt(64)


def small(clip=3, **how) -> c.StackConfig:
    return c.StackConfig(
        c.EmbedConfig(9),
        width=8,
        layers=2,
        heads=2,
        hidden=8,
        position=c.Disentangled(clip, **how),
        dropout=0.0,
        init_std=0.5,
    )


@pytest.mark.parametrize("clip", [1, 3, 30])
def test_disentangled_scores_against_a_double_loop(clip):
    """Equation 4 with delta of equation 3, both terms at the same distance, as the published models have it."""
    config = small(clip)
    scheme, own = positions.build(config), positions.in_layer(config)
    q_pos, k_pos = torch.tensor([[3, 4], [0, 6]]), torch.tensor([[0, 1, 2, 3, 4, 5, 6]]).expand(2, -1)
    q, k = torch.randn(2, 2, 2, 4), torch.randn(2, 2, 7, 4)
    found = scheme.scores(q, q_pos, k_pos, k, own)
    keys, queries = (linear(scheme.table.weight).view(2 * clip, 2, 4) for linear in (own.k, own.q))
    for b in range(2):
        for h in range(2):
            for i in range(2):
                for j in range(7):
                    distance = int(q_pos[b, i] - k_pos[b, j])
                    delta = 0 if distance <= -clip else 2 * clip - 1 if distance >= clip else distance + clip
                    expected = q[b, h, i] @ keys[delta, h] + k[b, h, j] @ queries[delta, h] / math.sqrt(12)
                    torch.testing.assert_close(found[b, h, i, j], expected)


def test_disentangled_attention_knows_distances_only():
    """The same tokens further to the right are the same; farther than clip, all distances are one."""
    torch.manual_seed(0)
    stack = Stack(small()).eval()
    ids = torch.tensor([[1, 2, 3, 4]])
    padded = torch.cat((torch.zeros(1, 3, dtype=torch.long), ids), dim=1)
    shifted = stack(padded, keep=torch.tensor([[False] * 3 + [True] * 4]))[:, 3:]
    torch.testing.assert_close(shifted, stack(ids), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(stack(ids.flip(1)).flip(1), stack(ids), atol=1e-3)


def test_keys_have_no_bias_and_every_layer_its_own_projections():
    stack = Stack(small(content_to_position=False))
    names = dict(stack.named_parameters())
    assert "blocks.0.attn.k.bias" not in names and "blocks.0.attn.q.bias" in names
    assert "blocks.1.attn.position.q.bias" in names and "blocks.1.attn.position.k.weight" not in names
    assert not any(".attn.position." in name for name, _ in Stack(bert_mini(9)).named_parameters())


def test_disentangled_attention_goes_on_from_a_cache():
    from dataclasses import replace

    from course_lib.attention import KVCache

    torch.manual_seed(0)
    stack = Stack(replace(small(), causal=True)).eval()
    ids, cache = torch.tensor([[1, 2, 3, 4, 5, 6]]), KVCache(2)
    with torch.no_grad():
        whole = stack(ids)
        parts = torch.cat([stack(ids[:, a:b], cache=cache) for a, b in ((0, 3), (3, 4), (4, 6))], dim=1)
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=1e-5)
