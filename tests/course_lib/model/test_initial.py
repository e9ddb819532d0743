"""The mimetic start: heads that look near, attention near the identity, positions as sinusoids."""

from dataclasses import replace

import pytest
import torch

from course_lib.analysis import capture
from course_lib.errors import CourseError
from course_lib.families import preset
from course_lib.model import initialization
from course_lib.model.config import EmbedConfig, Learned, NoPosition, StackConfig
from course_lib.model.transformer import Transformer

CONFIG = StackConfig(
    embed=EmbedConfig(vocab=11),
    position=Learned(7),
    width=12,
    layers=3,
    heads=3,
    hidden=24,
    init_std=0.02,
    dropout=0.0,
)


def stack(config: StackConfig = CONFIG) -> Transformer:
    torch.manual_seed(3)
    return Transformer(config)


def test_values_and_queries_are_handed_on_as_multiples_of_the_identity():
    model = stack(replace(CONFIG, init_std=0.001, causal=True, cross=True))
    initialization.mimetic(model, strength=0.7)
    attentions = [block.attn for block in model.blocks] + [block.cross for block in model.blocks]
    for number, attn in enumerate(attentions):
        copied = (1.0 if number == 0 else 0.7) * torch.eye(12)
        torch.testing.assert_close(attn.out.weight @ attn.v.weight, copied, atol=1e-5, rtol=0)
        if number:
            torch.testing.assert_close(
                attn.q.weight.T @ attn.k.weight, 0.7 * torch.eye(12), atol=0.02, rtol=0
            )


@pytest.mark.parametrize(
    ("name", "offsets"), [("gpt-mini", [-1, -2, -3, -4]), ("bert-mini", [-1, 1, -2, 2])]
)
def test_the_first_layers_heads_look_at_near_positions(name, offsets):
    model = stack(replace(preset(name, vocab=50), init_std=0.05))
    initialization.mimetic(model)
    with capture(model, "blocks.0.attn.probs") as seen:
        model(torch.randint(5, 50, (8, 40)))
    where = torch.arange(8, 32)
    for head, offset in enumerate(offsets):
        probs = seen["blocks.0.attn.probs"][:, head, where]  # 8 24 40
        near = sum(
            probs.gather(-1, (where + offset + d).expand(8, 24)[..., None]) for d in (-1, 0, 1)
        )
        assert near.mean() > 0.9
        assert (probs * (torch.arange(40) - where[:, None])).sum(-1).mean().sub(offset).abs() < 0.4


def test_learned_positions_start_as_scaled_sinusoids():
    model = stack()
    initialization.mimetic(model)
    angles = torch.arange(7)[:, None] * 10_000 ** (-torch.arange(0, 12, 2) / 12)
    table = model.position.table.weight
    torch.testing.assert_close(table[:, 0::2], 0.1 * angles.sin())
    torch.testing.assert_close(table[:, 1::2], 0.1 * angles.cos())
    assert table.requires_grad


def test_other_positions_are_refused_in_one_sentence():
    with pytest.raises(CourseError, match="needs learned positions"):
        initialization.mimetic(stack(replace(CONFIG, position=NoPosition())))
