"""Lesson 06's tasks and rivals: what is trained on, what is scored, and by what."""

import pytest
import torch

from classroom import contextual
from classroom.town import senses
from course_lib import zoo


def test_the_uses_of_two_senses():
    uses = senses.sentences()
    assert len(uses) == 108
    assert senses.differing(uses) == {"light", "play", "watch", "park"}
    for use in uses:
        assert use.text.lower().replace(".", " ").replace(",", " ").split().count(use.word) == 1
    for word in {use.word for use in uses}:
        found = [use.sense for use in uses if use.word == word]
        assert sorted(map(found.count, found)) == [6] * 12


def test_biases_among_the_weights_change_nothing():
    conv, x = torch.nn.Conv1d(3, 4, 2), torch.randn(5, 7, 3)
    [weight] = contextual.with_biases([conv])
    padded = torch.nn.functional.pad(x, (0, 1), value=1.0).transpose(1, 2)
    answers = torch.nn.functional.conv1d(padded, weight)
    assert torch.allclose(answers, conv(x.transpose(1, 2)), atol=1e-6)


def test_each_half_predicts_from_its_side():
    def said(half):  # its word and its guesses, best first
        return half[0], [word for word, _ in half[1]]

    bilm, vocabulary, _ = zoo.load("elmo-english")
    first = contextual.guesses(bilm, vocabulary, "I ___ like to go home.")
    other = contextual.guesses(bilm, vocabulary, "I ___ it.")
    assert said(first["forward"]) == said(other["forward"])
    assert said(first["backward"]) != said(other["backward"])
    assert first["added"][1][0][0] == "would"


@pytest.fixture
def task():
    rows = [["a", "b"], ["c"], ["d", "e", "f"]]
    parts = [[True, False, False], [False, True, True]]
    return contextual.Task(rows, [[1, 0], [1], [2, 0, 0]], ["O", "B-X", "I-X"], parts, whole=False)


def test_no_word_is_tagged_by_a_tagger_that_has_seen_it(task):
    layers = torch.arange(6.0)[None, :, None]  # each word is its number

    def train(seen, labels, names):
        assert names == 3
        assert len(labels) == seen.shape[1]

        def tagger(asked):
            assert not set(asked.flatten().tolist()) & set(seen.flatten().tolist())
            return torch.eye(3)[asked[0, :, 0].long() % 3]

        return tagger

    said, taggers = contextual.tagged(task, layers, train)
    assert said == [[0, 1], [2], [0, 1, 2]]
    assert len(taggers) == 2


def test_scores_of_words_and_of_whole_names(task):
    said = [[1, 0], [1], [2, 0, 1]]
    assert contextual.score(task, said)[0] == pytest.approx(100 * 5 / 6)
    whole = task._replace(whole=True, labels=[[1, 2], [1], [0, 0, 0]])
    share, low, high = contextual.score(whole, [[1, 0], [1], [0, 0, 0]])
    assert share == pytest.approx(50.0)  # one of two names, one of them cut short
    assert low <= share <= high
    only_first = whole._replace(parts=[[True, False, False]])
    assert contextual.score(only_first, [[1, 0], [1], [0, 0, 0]])[0] == 0


def test_layers_have_a_vector_for_each_word():
    rows = [["The", "bank", "closed"], ["xqzxq"]]
    static, bert = contextual.static_layers(rows), contextual.bert_layers(rows)
    assert static.shape == (1, 4, 100)
    assert bert.shape[:2] == (5, 4)
    assert static[0, 3].abs().max() == 0  # unknown
    assert torch.allclose(bert.std(-1, unbiased=False), torch.ones(5, 4), atol=1e-2)


def test_rivals_do_not_read_the_word_itself():
    a, b = (senses.Use("bank", "x", "noun", f"The {w} was wet.") for w in ("bank", "bank"))
    found = contextual.rivals([a, b, senses.Use("bank", "y", "noun", "bank")])
    assert torch.equal(*found["words in common"][:2])
    assert found["words in common"][2].sum() == 0
    assert found["mean of the neighbours"][2].abs().sum() == 0


def test_the_tasks_are_scored_where_nothing_was_trained():
    nouns, names = contextual.nouns_and_verbs(), contextual.names()
    assert [sum(of) for of in zip(*nouns.parts, strict=True)] == [1] * len(nouns.rows)
    assert sum(names.parts[0]) == 121
    assert contextual.score(names, names.labels)[0] == 100
    counted = contextual.counted(nouns)
    assert contextual.score(nouns, counted)[0] > 80
