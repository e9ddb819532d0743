"""What a lesson needs of a model is asked at once. An error names a shipped model that has it."""

import re

import pytest
import torch

from course_lib import zoo
from course_lib.data.embedders import encode
from course_lib.errors import CourseError
from course_lib.zoo import ABILITIES


@pytest.mark.parametrize("ability", ABILITIES)
def test_the_model_that_an_error_names_can_do_it(ability):
    shipped = ABILITIES[ability].example
    loaded = zoo.require(shipped, ability)
    assert ABILITIES[ability].has(loaded.model)
    assert loaded.card == zoo.card(shipped)


@pytest.mark.parametrize("ability", ABILITIES)
def test_a_model_that_cannot_do_it_is_refused(ability):
    other = "gpt-nano" if ability != "decoder" else "bert-mini"
    message = f'({ability}); {other} is a .* Set MODEL = "{ABILITIES[ability].example}"'
    with pytest.raises(CourseError, match=message.replace("(", r"\(").replace(")", r"\)")):
        zoo.require(other, ability)


def test_a_model_can_do_more_than_one_thing():
    for ability in ("encoder", "masked words", "next sentence"):
        assert zoo.require("bert-mini", ability).tokenizer
    with pytest.raises(CourseError, match="distilbert-mini is a MLM and does not"):
        zoo.require("distilbert-mini", "next sentence")


def test_an_encoder_of_sentences_gives_vectors(tmp_path):
    encoder = zoo.require("sbert-mini", "sentence encoder").model
    vectors = encode(encoder, ["Anna went home.", "Anna went."])
    assert vectors.shape == (2, encoder.model.width)
    assert torch.isfinite(vectors).all()
    # A folder without a pooling is an encoder of tokens.
    opened = zoo.open_model("bert-mini")
    zoo.save_pretrained(opened.model, tmp_path / "bert", tokenizer=opened.tokenizer)
    with pytest.raises(CourseError, match="does not"):
        zoo.require(tmp_path / "bert", "sentence encoder")
    assert zoo.require(tmp_path / "bert", "masked words").tokenizer


def test_what_there_is_not_is_said():
    with pytest.raises(
        CourseError, match=re.escape("no ability 'poems'; there are encoder, masked")
    ):
        zoo.require("bert-mini", "poems")
    with pytest.raises(CourseError, match="no checkpoint 'bert-minni'"):
        zoo.require("bert-minni", "decoder")
