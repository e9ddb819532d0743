"""The primer: facts said again and again, nothing that training hides."""

import random
import re
from typing import Any

import pytest

from classroom.town import World, primer
from classroom.town.facts import held_out, held_pair

WORLD = World(0)
PEOPLE = {person[""][0][0]: i for i, person in enumerate(WORLD.lexicon.people)}
TOWNS = {town[""][0][0] for town in WORLD.lexicon.towns}
THINGS = {" ".join(thing[""][0]): i for i, thing in enumerate(WORLD.lexicon.objects)}


@pytest.mark.parametrize("level", [1, 2])
def test_pages_say_their_facts_again_and_nothing_about_others(level: int) -> None:
    again, facts = 0, 0
    for index in range(200):
        page = WORLD.primer(index, level)
        assert page["text"] == " ".join(page["sentences"])
        said = {word for fact in page["facts"] for part in fact for word in part.split()}
        for fact in page["facts"]:
            facts += 1
            again += max(len(re.findall(rf"\b{part}\b", page["text"])) for part in fact) > 1
        named = set(re.findall(r"\w+", page["text"])) & (PEOPLE.keys() - TOWNS)
        assert named <= said, (index, named - said)
    assert again / facts > 0.9


def test_level_1_has_one_verb_and_pairs_of_a_person_and_a_thing() -> None:
    for index in range(200):
        page = WORLD.primer(index, 1)
        pairs = [(person, verb, thing) for person, verb, thing in page["facts"] if verb != "at"]
        assert 3 <= len(pairs) <= 6 and len({verb for _, verb, _ in pairs}) == 1
        owner = {thing: person for person, _, thing in pairs}
        for sentence in page["sentences"]:
            (thing,) = {t for t in owner if re.search(rf"\b{t}\b", sentence)}
            assert owner[thing] in sentence


def _said(page: dict[str, Any]) -> list[int]:
    """How often each thing of a page of level 1 is named."""
    things = [thing for _, verb, thing in page["facts"] if verb != "at"]
    return [len(re.findall(rf"\b{thing}\b", page["text"])) for thing in things]


def test_without_rounds_what_the_others_are_does_not_tell_which_fact_is_said() -> None:
    spread = {
        rounds: [
            max(said) - min(said)
            for said in (_said(WORLD.primer(i, 1, rounds=rounds)) for i in range(200))
        ]
        for rounds in (True, False)
    }
    # a round says each once: whoever sees the rest knows the one that is missing
    assert max(spread[True]) == 1
    assert sum(difference > 1 for difference in spread[False]) > 100
    lengths = [len(WORLD.primer(i, 1, rounds=False)["text"].split()) for i in range(200)]
    assert min(lengths) < 50 and max(lengths) > 85
    assert min(min(_said(WORLD.primer(i, 1, rounds=False))) for i in range(200)) == 1


@pytest.mark.parametrize("level", [1, 2])
def test_what_training_hides_is_not_in_the_primer(level: int) -> None:
    met = 0
    for index in range(600):
        page = WORLD.primer(index, level)
        for person, relation, thing in page["facts"]:
            if person in PEOPLE:
                assert not held_out(PEOPLE[person])
            if person in PEOPLE and thing in THINGS and relation not in ("at", "is"):
                met += 1
                assert not held_pair(PEOPLE[person], THINGS[thing]) and not held_out(THINGS[thing])
    assert met > 100


@pytest.mark.parametrize("level", [1, 2])
def test_made_up_names_stand_everywhere_for_a_share_of_the_names(level: int) -> None:
    known = made = 0
    for index in range(200):
        plain = WORLD.primer(index, level, rounds=False)
        page = WORLD.primer(index, level, rounds=False, made_up=0.5)
        assert page["text"] == " ".join(page["sentences"]) and len(page["sentences"]) == len(
            plain["sentences"]
        )
        swapped = {
            old: new
            for before, after in zip(plain["facts"], page["facts"], strict=True)
            for old, new in zip(before[::2], after[::2], strict=True)
        }
        for old, new in swapped.items():
            known, made = known + (old == new), made + (old != new)
            assert (old == new) or not re.search(rf"\b{old}\b", page["text"])
            assert (old[0] in "aeiou") == (new[0] in "aeiou") or old[0].isupper()
            assert old[0].isupper() == new[0].isupper()
            assert len(re.findall(rf"\b{new}\b", page["text"])) >= len(
                re.findall(rf"\b{old}\b", plain["text"])
            )
    assert 0.4 < made / (made + known) < 0.6 and WORLD.primer(
        3, level, made_up=0.0
    ) == WORLD.primer(3, level)


def test_no_part_of_another_word_is_taken_for_a_name() -> None:
    (sentence,), ((who, _, what),) = primer._renamed(
        random.Random(0), ["Ann saw an owl in the bowl ."], [("Ann", "saw", "owl")], 1.0
    )
    assert sentence == f"{who} saw an {what} in the bowl ." and {who, what}.isdisjoint(
        {"Ann", "owl"}
    )
