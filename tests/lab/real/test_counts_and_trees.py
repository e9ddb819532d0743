"""Counts of neighbouring words, gaps with evidence on one side, schemas, and a treebank's rules."""

import random

import pytest
import torch

from course_lib import zoo
from lab.real import gaps, ngrams, treebank, zero_shot

TEXTS = ["The dog barked loudly at him.", "The cat purred softly at him."] * 20


@pytest.fixture(scope="module")
def counts() -> ngrams.Counts:
    return ngrams.Counts(TEXTS, size=50, strength=1.0)


def test_probabilities_behind_a_word_add_up_to_one(counts):
    the = counts.numbers["the"]
    total = sum(2.718281828459045 ** counts.bigram(the, n) for n in counts.numbers.values())
    assert total == pytest.approx(1, abs=0.01)
    assert counts.bigram(the, counts.numbers["dog"]) > counts.bigram(the, counts.numbers["at"])


def test_neighbours_are_counted_on_their_side(counts):
    dog, barked = counts.numbers["dog"], counts.numbers["barked"]
    cat = counts.numbers["cat"]
    pairs = counts.pairs(3)
    assert pairs.counted([dog, cat], [barked], before=False).tolist() == [[20], [0]]
    assert pairs.counted([dog, cat], [barked], before=True).tolist() == [[0], [0]]
    values = counts.associations([dog, cat], [barked], 3, before=False)
    assert values[0] > 0 > values[1]


def test_the_evidence_of_a_gap_is_where_it_stands(counts):
    tokenizer = zoo.load("gpt-english").tokenizer
    finder = gaps.Finder(counts, [tokenizer], 2)
    choices = ("dog", "cat")
    assert finder.side(gaps.Gap("The ", " barked at him.", choices)) == "right"
    choices = ("barked", "purred")
    assert finder.side(gaps.Gap("The dog ", " at him.", choices)) == "left"
    assert finder.side(gaps.Gap("The dog ", " loudly at him.", choices)) == "both"
    assert finder.side(gaps.Gap("The cat ", " softly at him.", choices)) is None


def test_a_gap_offers_words_that_are_not_in_the_sentence():
    frequent = [f"{a}{b}" for a in "bcdfghklmnprst" for b in ("ack", "ill", "ore", "ay", "end")]
    texts = [" ".join([*frequent[:30], "house water people small", *frequent[30:]])] * 3
    counts = ngrams.Counts(texts, size=500)
    finder = gaps.Finder(counts, [], 6)
    finder.words = [word for word in counts.vocabulary if word.isalpha()]
    finder.place = {word: place for place, word in enumerate(finder.words)}
    sentence = "It was in the back of a small house that people saw the water come in."
    gap = finder.gap(sentence, random.Random(0))
    assert gap is not None and len(set(gap.choices)) == 6
    assert gap.left + gap.choices[0] + gap.right == sentence
    assert not {"back", "small", "house", "people", "water"} & set(gap.choices[1:])


def test_both_models_fill_in_what_is_plain():
    gap = gaps.Gap("He opened the ", " and went into the room.", ("door", "year", "money", "king"))
    decoder, decoder_tokens, _ = zoo.load("gpt-english")
    encoder, encoder_tokens, _ = zoo.load("bert-english")
    for values in (
        gaps.up_to_the_gap(decoder, decoder_tokens, [gap]),
        gaps.whole_sentence(decoder, decoder_tokens, [gap]),
        gaps.both_sides(encoder, encoder_tokens, [gap]),
    ):
        assert gaps.accuracy(values) == 1
        assert not gaps.is_found(values[0][::-1])


def test_a_schema_puts_each_name_in_the_pronouns_place(tmp_path):
    file = tmp_path / "schemas.txt"
    file.write_text(
        "It is said that the dog chased the cat because it was fast.\n"
        "it\nThe dog,the cat\nThe dog\n"
    )
    (choice,) = zero_shot.schemas(file)
    assert choice.prompts[0] == "It is said that the dog chased the cat because the dog"
    assert choice.continuations == (" was fast.", " was fast.") and choice.label == 0


def test_equal_values_count_half():
    assert zero_shot.accuracy([[1.0, 2.0], [3.0, 3.0], [2.0, 1.0]], [1, 0, 1]) == 0.5


ROW = {
    "tokens": ["She", "saw", "the", "old", "dog"],
    "upos": ["PRON", "VERB", "DET", "ADJ", "NOUN"],
    "heads": [1, -1, 4, 4, 1],
    "deprels": ["nsubj", "root", "det", "amod", "obj"],
}


def test_the_nearest_noun_and_verb():
    found = treebank.neighbours([ROW])
    # from the dependent: noun left, noun right, verb left, verb right; then from the governor
    assert found["det"][:, 0].tolist() == [False, True, *[False] * 6]
    assert found["obj"][:, 0].tolist() == [False, False, True, False, False, True, False, False]


def test_a_control_label_belongs_to_a_word():
    words = ["the", "dog", "the", "cat"] * 10
    drawn = treebank.control(words, ["D", "N", "D", "N"], torch.Generator().manual_seed(0))
    assert set(drawn) == {"the", "dog", "cat"} and set(drawn.values()) <= {"D", "N"}
    usual = treebank.most_frequent(["a", "a", "b"], ["X", "Y", "Y"], ["b", "new"])
    assert usual == ["Y", "Y"]
