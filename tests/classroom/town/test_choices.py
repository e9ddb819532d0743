"""Sentences with a gap: four words each, the right one first, counted rightly."""

import pytest

from classroom.town import choices
from classroom.town.choices import Question


def test_every_question_has_one_gap_and_four_words() -> None:
    asked = choices.questions()
    assert len(asked) == 308
    assert all(q.sentence.count(choices.GAP) == 1 and len(set(q.words)) == 4 for q in asked)
    assert asked[0].sentences[0] == asked[0].sentence.replace(choices.GAP, asked[0].words[0])
    assert choices.questions(every=100) == asked[::100]


def test_kinds_and_frequent_words_are_counted() -> None:
    asked = [
        Question("verb", "The dog ___.", ("barked", "sang", "flew", "wept")),
        Question("verb", "The bird ___.", ("sang", "barked", "read", "wept")),
        Question("place", "Rome is in ___.", ("Italy", "Peru", "Chile", "Cuba")),
    ]
    texts = ["She sang, he sang. It barked."]
    verb, place, every = choices.by_kind(asked, [True, False, True], texts)
    assert (verb["kind"], place["kind"], every["kind"]) == ("verb", "place", "all")
    assert verb["right (%)"][0] == 50
    assert every["right (%)"][0] == pytest.approx(200 / 3)
    assert verb["most frequent word (%)"] == 50  # "sang" is right once of two
    assert place["most frequent word (%)"] == 25  # none of the four stands there
