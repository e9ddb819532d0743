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


def test_a_word_in_an_odd_place_surprises() -> None:
    model, tokenizer, _ = zoo.load("bert-english")
    one = odd_words.choose_one(tokenizer, TEXTS, torch.Generator().manual_seed(0))
    seen = odd_words.surprise(model.eval(), one.ids, one.real)
    of = tokenizer.encode("of").ids[1]
    odd = odd_words.surprise(model, one.ids.masked_fill(one.chosen, of), one.real)
    assert seen.shape == one.ids.shape
    assert bool((odd[one.chosen] > seen[one.chosen]).all())


def test_pairs_suspect_a_token_beside_strange_neighbours() -> None:
    tokenizer = zoo.load("bert-english").tokenizer
    pairs = odd_words.Pairs(tokenizer, TEXTS)
    right, wrong = (
        torch.tensor([tokenizer.encode(text).ids])
        for text in ("The old dog slept by the door .", "The old dog town by the door .")
    )
    inside = pairs(wrong)[0, 1:-1]
    assert inside.argmax() == 3 and inside[3] > pairs(right)[0, 4]


def test_words_are_spelled_whole_with_their_largest_suspicion() -> None:
    tokenizer = zoo.load("bert-english").tokenizer
    ids = torch.tensor(tokenizer.encode("He likes rhubarb .").ids)
    words, suspicion = odd_words.spelled(tokenizer, ids, torch.arange(len(ids)).float(), ids)
    assert words == ["He", "likes", "rhubarb", "."]
    assert suspicion[-1] == len(ids) - 2 and suspicion[2] == len(ids) - 3
    changed = ids.clone()
    changed[2] = ids[4]  # a token that goes on with a word
    assert len(odd_words.spelled(tokenizer, changed, suspicion=ids.float(), original=ids)[0]) == 4
