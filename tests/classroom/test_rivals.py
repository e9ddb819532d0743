"""The cheap opponents learn what they can see, and nothing else."""

from classroom import rivals


def test_ngrams_learn_a_word_that_tells_the_label() -> None:
    train = [
        {"text": f"a {word} {i}", "label": word == "good"}
        for i, word in enumerate(("good", "bad") * 6)
    ]
    test = [{"text": "so good"}, {"text": "so bad"}]
    assert rivals.ngrams(train, test) == [1, 0]


def test_the_linear_tagger_uses_capitals_and_neighbours() -> None:
    train = [
        {"tokens": ["in", "Oslo", "we", "ran"], "labels": [0, 1, 0, 0]},
        {"tokens": ["they", "met", "Ann"], "labels": [0, 0, 2]},
        {"tokens": ["in", "Bonn", "it", "rained"], "labels": [0, 1, 0, 0]},
        {"tokens": ["we", "met", "Bob"], "labels": [0, 0, 2]},
    ]
    test = [{"tokens": ["we", "met", "Eve", "in", "Rome"]}]
    assert rivals.linear_tagger(train, test) == [[0, 0, 2, 0, 1]]


def test_shared_words_ignore_case_and_signs() -> None:
    assert rivals.shared_words("The cat sat.", "the cat") == 2 / 3
    assert rivals.shared_words("", "") == 0
