"""Sentences with one word chosen, and whether it is the most suspected one."""

import pytest
import torch

from classroom import odd_words
from course_lib import zoo
from course_lib.errors import CourseError

TEXTS = ["The old dog slept by the door of the house .", "It was raining again in the town today ."]


def test_sentences_have_a_length_and_stand_once() -> None:
    long = [f"One two three four five six seven {i}." for i in range(25)]
    documents = [" ".join(long) + " Too short.\n" + long[0], f"Nine nine nine. {long[3]}"]
    assert odd_words.sentences(documents) == long


def test_of_a_text_with_hardly_any_sentences_all_are_taken() -> None:
    assert odd_words.sentences(["Too short. Too short.", "No"]) == ["Too short."] * 2
    with pytest.raises(CourseError, match="no sentences"):
        odd_words.sentences(["No", "Not one."])


def test_one_whole_word_is_chosen_and_any_can_be() -> None:
    tokenizer = zoo.load("bert-english").tokenizer
    drawn = set()
    for seed in range(30):
        one = odd_words.choose_one(tokenizer, TEXTS, torch.Generator().manual_seed(seed))
        assert one.chosen.sum(1).tolist() == [1, 1] and bool((one.real | ~one.chosen).all())
        drawn |= set(tokenizer.tokens(one.ids[one.chosen]))
    assert {"old", "dog", "town"} <= drawn
    assert drawn.isdisjoint({".", "[CLS]", "[SEP]"})
    assert not any(token.startswith("##") for token in drawn)


def test_only_words_inside_the_text_are_suspected() -> None:
    real = torch.tensor([[True] * 5, [True] * 4 + [False]])
    suspicion = torch.tensor([[9.0, 1, 3, 2, 9], [9.0, 2, 1, 9, 9]])  # frame and padding are high
    chosen = torch.tensor([[0, 0, 1, 0, 0], [0, 0, 1, 0, 0]]).bool()
    assert odd_words.points_at(suspicion, real, chosen).tolist() == [True, False]


def test_only_whole_words_have_a_frequency() -> None:
    tokenizer = zoo.load("bert-english").tokenizer
    counts = odd_words.frequencies(tokenizer, TEXTS)
    the = tokenizer.encode("the").ids[1]
    assert counts[the] == 3
    assert counts[tokenizer.vocab.cls] == 0 == counts[tokenizer.encode(".").ids[1]]


def test_a_hidden_token_surprises_more_than_one_in_sight() -> None:
    model, tokenizer, _ = zoo.load("bert-english")
    one = odd_words.choose_one(tokenizer, TEXTS, torch.Generator().manual_seed(0))
    seen = odd_words.surprise(model.eval(), one.ids, one.real)
    hidden = odd_words.surprise_hidden(model, one.ids, one.real, tokenizer.vocab)
    inside = one.real.clone()
    assert seen.shape == hidden.shape == one.ids.shape
    assert hidden[inside].mean() > seen[inside].mean() + 1
    alone = one.ids[1:, : int(one.real[1].sum())]
    whole = torch.ones_like(alone, dtype=torch.bool)
    again = odd_words.surprise_hidden(model, alone, whole, tokenizer.vocab)
    assert torch.allclose(again, hidden[1:, : alone.shape[1]], atol=1e-4)  # padding says nothing
