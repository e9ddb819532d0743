"""Configurations: data that says a whole model, round trips through JSON, and can be compared."""

import dataclasses
import json

import pytest

from course_lib.errors import CourseError
from course_lib.families import preset
from course_lib.families.gpt import gpt1, gpt2
from course_lib.model import config as c

SCHEMES = [
    c.NoPosition(),
    c.Learned(7),
    c.Sinusoidal(500.0),
    c.Rope(base=99.0, interleaved=True),
    c.T5Buckets(8, 20, False),
    c.Shaw(3),
    c.Alibi(),
    c.Disentangled(9, position_to_content=False),
]
MINIS = [preset("bert-mini", vocab=50), preset("gpt-mini", vocab=50)]
PRESETS = [preset("bert-base"), preset("bert-large"), gpt1(), gpt2("355M"), *MINIS]


def small(**changes) -> c.StackConfig:
    values = {
        "embed": c.EmbedConfig(vocab=11),
        "width": 8,
        "layers": 2,
        "heads": 2,
        "hidden": 16,
    } | changes
    return c.StackConfig(**values)


@pytest.mark.parametrize("config", [*(small(position=p) for p in SCHEMES), *PRESETS])
def test_json_round_trip(config):
    assert c.from_dict(json.loads(json.dumps(c.to_dict(config)))) == config


def test_every_field_survives_the_round_trip():
    other = {
        "position": c.Alibi(),
        "causal": True,
        "attention": (c.Window(4), c.Global()),
        "norm": "pre",
        "first_norm": False,
        "final_norm": True,
        "rms": True,
        "eps": 1e-3,
        "bias": False,
        "activation": "silu",
        "gated": True,
        "head_width": 6,
        "scale": False,
        "cross": True,
        "shared": True,
        "dropout": 0.3,
        "attention_dropout": 0.2,
        "activation_dropout": 0.1,
        "embed_dropout": 0.4,
        "init_std": 0.5,
        "scaled_init": True,
    }
    config = small(embed=c.EmbedConfig(11, width=4, segments=2, norm=True, scale=2.0), **other)
    plain = small()
    unchanged = [
        f.name
        for f in dataclasses.fields(config)
        if getattr(config, f.name) == getattr(plain, f.name)
    ]
    assert unchanged == ["width", "layers", "heads", "hidden"], (
        "a field was added: change it here too"
    )
    assert c.from_dict(c.to_dict(config)) == config


def test_diff_says_exactly_what_differs():
    assert c.diff(small(), small()) == {}
    assert c.diff(small(), small(layers=3, causal=True)) == {
        "layers": (2, 3),
        "causal": (False, True),
    }
    assert c.diff(small(), small(embed=c.EmbedConfig(12))) == {"embed.vocab": (11, 12)}
    found = c.diff(small(position=c.Learned(7)), small(position=c.Shaw(3)))
    assert found == {
        "position": ("Learned", "Shaw"),
        "position.length": (7, None),
        "position.clip": (None, 3),
    }


def test_patterns_survive_the_round_trip_and_a_file_without_them_means_the_default():
    patterns = (c.Global(), c.Window(8, rope_base=10.0))
    config = small(position=c.Rope(), attention=patterns)
    assert c.from_dict(json.loads(json.dumps(c.to_dict(config)))) == config
    assert c.diff(config, small(position=c.Rope()))["attention"] == (patterns, (c.Global(),))
    assert "attention" not in c.to_dict(small())


def test_the_longest_sequence_is_what_learned_positions_allow():
    assert small(position=c.Learned(7)).max_length == 7
    assert small(position=c.Rope()).max_length is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 3}, "width 8 does not divide into 3 heads"),
        ({"layers": 0}, "at least 1"),
        ({"width": 6, "position": c.Rope()}, "head width 3 must be even"),
        ({"norm": "both"}, "'pre' or 'post', not 'both'"),
        ({"activation": "swish"}, "no activation 'swish'; there are relu, gelu"),
        ({"dropout": 1.5}, "from 0 to 1, not 1.5"),
        ({"attention": ()}, "one pattern at least"),
        ({"attention": (c.Global(rope_base=9.0),)}, "needs a stack with the positions Rope"),
    ],
)
def test_impossible_sizes_are_refused_when_said(changes, message):
    with pytest.raises(CourseError, match=message):
        small(**changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.pop("width"), "width"),
        (lambda v: v["position"].pop("kind"), "kind"),
        (lambda v: v["embed"].update(colour="red"), "colour"),
        (lambda v: v["position"].update(kind="Compass"), "Compass"),
    ],
)
def test_a_stored_config_that_does_not_fit(change, message):
    values = c.to_dict(small())
    change(values)
    with pytest.raises(CourseError, match=message):
        c.from_dict(values)
