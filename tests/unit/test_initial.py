"""The mimetic start: attention near the identity, positions as sinusoids, and what that is for."""

import torch

from course_lib import initial
from course_lib.config import EmbedConfig, Learned, NoPosition, StackConfig
from course_lib.stack import Stack

LEARNED = Learned(7)


def stack(position=LEARNED, **changes) -> Stack:
    torch.manual_seed(3)
    values = {"width": 12, "layers": 2, "heads": 3, "hidden": 24, "init_std": 0.02, "dropout": 0.0} | changes
    return Stack(StackConfig(embed=EmbedConfig(vocab=11), position=position, **values))


def test_value_then_output_is_a_multiple_of_the_identity():
    model = stack()
    initial.mimetic(model, attention=0.4)
    for block in model.blocks:
        found = block.attn.out.weight @ block.attn.v.weight
        torch.testing.assert_close(found, 0.4 * torch.eye(12), atol=1e-5, rtol=0)


def test_query_and_key_agree_up_to_noise():
    model = stack(init_std=0.001)
    initial.mimetic(model, attention=0.7)
    for block in model.blocks:
        found = block.attn.q.weight.T @ block.attn.k.weight
        torch.testing.assert_close(found, 0.7 * torch.eye(12), atol=0.02, rtol=0)
        assert not torch.equal(block.attn.q.weight, block.attn.k.weight)


def test_layers_match_and_copy_in_rotations_of_their_own():
    model = stack()
    initial.mimetic(model)
    a, b = (block.attn for block in model.blocks)
    assert not torch.allclose(a.v.weight, b.v.weight, atol=0.1)
    assert not torch.allclose(a.v.weight, a.q.weight, atol=0.1)


def test_learned_positions_start_as_scaled_sinusoids():
    model = stack()
    initial.mimetic(model, positions=0.5)
    angles = torch.arange(7)[:, None] * 10_000 ** (-torch.arange(0, 12, 2) / 12)
    table = model.position.table.weight
    torch.testing.assert_close(table[:, 0::2], 0.5 * angles.sin())
    torch.testing.assert_close(table[:, 1::2], 0.5 * angles.cos())
    assert table.requires_grad


def test_another_position_scheme_keeps_its_parameters():
    model = stack(NoPosition())
    initial.mimetic(model)
    assert not list(model.position.parameters())


def test_the_seed_decides():
    first, second = stack(), stack()
    for model in (first, second):
        torch.manual_seed(5)
        initial.mimetic(model)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
