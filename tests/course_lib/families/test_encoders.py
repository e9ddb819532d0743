"""The encoders beside BERT: what they differ in, said by `diff`; the scale of disentangled
scores.
"""

import math

import pytest

from course_lib.families import preset
from course_lib.families.electra import generator
from course_lib.model import config as c

DISENTANGLED = {
    "position": ("Learned", "Disentangled"),
    "position.content_to_position": (None, True),
    "position.position_to_content": (None, True),
    "eps": (1e-5, 1e-7),
}
ALBERT = {
    "shared": (False, True),
    "activation": ("gelu", "gelu_tanh"),
    "embed.vocab": (30522, 30000),
    "embed.width": (None, 128),
    "dropout": (0.1, 0.0),
    "attention_dropout": (0.1, 0.0),
}
DEBERTA = DISENTANGLED | {
    "embed.segments": (1, 0),
    "position.length": (512, None),
    "position.clip": (None, 512),
}


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        (
            "bert-base",
            "roberta-base",
            {"embed.vocab": (30522, 50265), "embed.segments": (2, 1), "eps": (1e-12, 1e-5)},
        ),
        ("bert-base", "distilbert-base", {"embed.segments": (2, 0), "layers": (12, 6)}),
        ("bert-base", "albert-base", ALBERT),
        ("bert-base", "electra-base", {}),
        ("bert-mini", "electra-mini", {}),
        ("roberta-base", "deberta-base", DEBERTA),
    ],
)
def test_each_model_differs_as_its_card_says(one, other, difference):
    assert c.diff(preset(one), preset(other)) == difference


def test_the_generator_is_a_fraction_of_its_discriminator():
    assert c.diff(preset("electra-mini"), generator(preset("electra-mini"))) == {
        "embed.width": (None, 128),
        "width": (128, 32),
        "heads": (4, 1),
        "hidden": (512, 128),
    }
    assert c.diff(preset("electra-base"), generator(preset("electra-base"), 1 / 3)) == {
        "embed.width": (None, 768),
        "width": (768, 256),
        "heads": (12, 4),
        "hidden": (3072, 1024),
    }


def test_the_scale_counts_the_terms():
    def factor(**how):
        position = c.Disentangled(4, **how)
        return c.StackConfig(
            c.EmbedConfig(9), width=8, layers=1, heads=2, hidden=8, position=position
        ).score_factor

    assert factor() == pytest.approx(1 / math.sqrt(3 * 4))
    assert (
        factor(content_to_position=False)
        == factor(position_to_content=False)
        == pytest.approx(1 / math.sqrt(2 * 4))
    )
    assert preset("bert-base").score_factor == 1 / math.sqrt(64)
