"""Gaps at words: where they are, who fills them, and a network whose top is new."""

import pytest
import torch

from classroom import gaps, lesson
from classroom.gaps import Gap
from course_lib import zoo

TEXT = "the old man sat down at the table by the window and read the letter"


@pytest.fixture(scope="module")
def bert():
    return zoo.load("bert-english")[:2]


@pytest.fixture(scope="module")
def gpt():
    return zoo.load("gpt-english")[:2]


def test_a_gap_is_one_word_for_all_and_keeps_both_sides(bert, gpt):
    found = gaps.word_gaps(f"{TEXT} x1.", [bert[1], gpt[1]], every=1, side=2)
    assert found[0] == Gap("the old", "man", "sat down")
    assert gaps.word_gaps("a b incomprehensibilities c d", [bert[1]], every=1, side=2) == []


def test_only_the_encoder_uses_the_right_side(bert, gpt):
    one = [Gap("He put the", "key", "in his pocket and locked the door.")]
    assert gaps.filled(*bert, one) == 100
    other = [Gap("He put the", "key", "on, for his head was cold.")]
    assert gaps.filled(*bert, other) == 0
    assert gaps.filled(*gpt, one) == gaps.filled(*gpt, other)
    assert gaps.filled(*bert, one, left_only=True) == gaps.filled(*bert, other, left_only=True)


def test_counts_take_both_neighbours_and_else_add_the_shares():
    text = "a cat sat . a dog sat . a dog sat . the cow ran"
    assert gaps.counted(text, [Gap("a", "dog", "sat")]) == 100
    assert gaps.counted(text, [Gap("the", "cow", "sat")]) == 100  # 1 behind `the`, 2/3 for dog
    assert gaps.counted(text, [Gap("no", "cow", "match"), Gap("a", "cat", "sat")]) == 0


def test_pieces_are_drawn_from_the_text_by_step(bert, tmp_path):
    run = lesson.start("smoke", 0, "cpu", "text", str(tmp_path))
    first, second = gaps.token_pieces(TEXT * 9, bert[1], run, 2, rows=3, length=7)
    assert first.shape == (3, 7)
    assert not torch.equal(first, second)
    assert torch.equal(first, gaps.token_pieces(TEXT * 9, bert[1], run, 1, rows=3, length=7)[0])


@pytest.mark.parametrize("name", ["bert", "gpt"])
def test_a_new_top_is_random_and_only_it_will_train(name, request):
    model = request.getfixturevalue(name)[0]
    new = gaps.new_top(model)
    old = dict(model.named_parameters())
    trains = {key for key, weight in new.named_parameters() if weight.requires_grad}
    assert trains
    assert all(key.startswith(("stack.blocks.3.", "stack.norm.", "head.")) for key in trains)
    for key, weight in new.named_parameters():
        if key not in trains or "norm" in key:
            assert torch.equal(weight, old[key]), key
        elif weight.dim() == 2:
            assert not torch.equal(weight, old[key]), key
    assert all(weight.requires_grad for weight in model.parameters())
