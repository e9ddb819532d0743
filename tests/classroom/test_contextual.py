"""Lesson 06's tasks and rivals: what is trained on, what is scored, and by what."""

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


def test_no_sentence_is_tagged_by_a_tagger_that_has_seen_it():
    rows = [[f"w{number}", "x"] for number in range(8)]
    task = contextual.Task(rows, [[1, 0]] * 8, ["", "noun"])
    layers = torch.arange(16.0)[None, :, None]  # each word is its number
    amounts = []

    def train(seen, labels, names):
        assert names == 2
        assert labels.tolist() == [1, 0] * (len(labels) // 2)
        amounts.append(len(labels) // 2)

        def tagger(asked):
            assert not set(asked.flatten().tolist()) & set(seen.flatten().tolist())
            assert asked.shape == (1, 6, 1)
            return torch.eye(2)[[1, 0, 1, 0, 1, 1]]  # five of six are right

        return tagger

    right = contextual.with_few_labels(
        task, {"numbers": layers}, train, amounts=(1, 5), draws=2, held=3
    )
    assert amounts == [1, 5, 1, 5]
    assert torch.allclose(right["numbers"], torch.full((2, 2), 100 * 5 / 6))
    assert right["counts"][1].min() > 50  # "x" is never a noun


def test_layers_have_a_vector_for_each_word():
    rows = [["The", "bank", "closed"], ["xqzxq"]]
    static, bert = contextual.static_layers(rows), contextual.bert_layers(rows)
    assert static.shape == (1, 4, 100)
    assert bert.shape[:2] == (5, 4)
    assert static[0, 3].abs().max() == 0  # unknown
    beside = contextual.static_layers(rows, window=1)
    assert torch.equal(beside[0, 1], static[0, :3].flatten())
    assert torch.equal(beside[0, 2], torch.cat([static[0, 1], static[0, 2], torch.zeros(100)]))
    assert torch.allclose(bert.std(-1, unbiased=False), torch.ones(5, 4), atol=1e-2)


def test_rivals_do_not_read_the_word_itself():
    a, b = (senses.Use("bank", "x", "noun", f"The {w} was wet.") for w in ("bank", "bank"))
    found = contextual.rivals([a, b, senses.Use("bank", "y", "noun", "bank")])
    assert torch.equal(*found["words in common"][:2])
    assert found["words in common"][2].sum() == 0
    assert found["mean of the neighbours"][2].abs().sum() == 0
    static = zoo.load("vectors-english").model
    the = static.units()[static.numbers["the"]]
    assert torch.allclose(found["the word before"][0], the, atol=1e-6)
    assert found["the word before"][2].abs().sum() == 0


def test_every_word_of_the_task_has_a_label():
    task = contextual.nouns_and_verbs()
    assert [len(row) for row in task.rows] == [len(row) for row in task.labels]
    assert {label for row in task.labels for label in row} == {0, 1, 2}
