"""Static vectors: windows, draws and steps against plain loops, what is learned, neighbours, files,
wrong input.
"""

import pytest
import torch

from classroom.town import World
from course_lib.analysis import analogies
from course_lib.data.embedders import WordAverage
from course_lib.data.words import word_tokenizer
from course_lib.errors import CourseError
from course_lib.families import word_vectors
from course_lib.families.baselines import Words
from course_lib.families.word_vectors.word2vec import context_words

ROWS = [["a", "b", "c"], ["b", "a"], ["c"], ["d", "a", "b", "rare"]] * 2
KINDS = ["skip-gram", "cbow"]


def text(rows=ROWS):
    return word_vectors.encode_text(rows, min_count=2 if rows is ROWS else 1)


def table(seed=0):
    words = ["King", "queen", "man", "woman", "bank", "river"]
    return word_vectors.WordVectors(
        words, torch.randn(6, 4, generator=torch.Generator().manual_seed(seed)), range(6, 0, -1)
    )


def test_a_text_is_its_words_by_frequency():
    found = word_vectors.encode_text([["b", "z", "x"], ["b", "z", "b", "z"], []], min_count=2)
    assert found.words == ["b", "z"] and found.counts.tolist() == [3, 3]
    assert found.ids.tolist() == [0, 1, 0, 1, 0, 1] and found.sentence_ids.tolist() == [
        0,
        0,
        1,
        1,
        1,
        1,
    ]
    assert text().words == ["a", "b", "c", "d", "rare"]


def test_windows_stop_at_their_row_and_their_reach():
    found = text()
    n, window, pad = len(found.ids), 3, 99
    reach = torch.randint(1, window + 1, (n,), generator=torch.Generator().manual_seed(1))
    at = torch.randperm(n, generator=torch.Generator().manual_seed(2))
    made = context_words(found.ids, found.sentence_ids, at, reach[at], window, pad)
    for line, i in zip(made.tolist(), at.tolist(), strict=True):
        expected = []
        for j in range(i - window, i + window + 1):
            inside = (
                0 <= j < n
                and abs(i - j) <= reach[i]
                and found.sentence_ids[j] == found.sentence_ids[i]
            )
            expected += [] if j == i else [int(found.ids[j]) if inside else pad]
        assert line == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_adds_up_what_its_centres_would_do_alone(kind):
    found = text()
    config = word_vectors.Word2VecConfig(kind, size=6, negative=3, window=2, sample=0)

    def fresh():
        model = word_vectors.Word2Vec(found, config)
        model.outputs[:-1].normal_(generator=torch.Generator().manual_seed(4))
        return model

    whole = fresh()
    _, centres, contexts = next(whole.batches())
    drawn = whole.draw(len(centres))
    assert (drawn == centres[:, None]).any() and (contexts == len(found.words)).all(1).any()
    start = fresh()
    inputs, outputs, losses = start.inputs.clone(), start.outputs.clone(), []
    for row in range(len(centres)):
        alone = fresh()
        losses.append(
            alone.step(centres[row : row + 1], contexts[row : row + 1], drawn[row : row + 1], 0.1)
        )
        inputs += alone.inputs - start.inputs
        outputs += alone.outputs - start.outputs
    assert torch.allclose(whole.step(centres, contexts, drawn, 0.1), torch.cat(losses), atol=1e-5)
    assert torch.allclose(whole.inputs, inputs, atol=1e-5) and torch.allclose(
        whole.outputs, outputs, atol=1e-5
    )
    assert not whole.inputs[-1].any() and not whole.outputs[-1].any()
    assert not torch.allclose(whole.inputs, start.inputs, atol=1e-3)


def topics(n=150):
    """Two topics of eight words, who never meet."""
    rng = torch.Generator().manual_seed(0)
    words = [[f"{side}{i}" for i in range(8)] for side in ("left", "right")]
    return [[words[r % 2][i] for i in torch.randint(8, (12,), generator=rng)] for r in range(n)]


@pytest.mark.parametrize("kind", [*KINDS, "glove"])
def test_words_that_stand_together_come_together(kind):
    found = word_vectors.encode_text(topics())
    model = (
        word_vectors.GloVe(found, word_vectors.GloVeConfig(size=8, epochs=30, batch=32))
        if kind == "glove"
        else word_vectors.Word2Vec(
            found, word_vectors.Word2VecConfig(kind, size=8, epochs=15, lr=0.05, sample=0)
        )
    )
    losses = [progress.loss for progress in model.train()]
    assert losses[-1] < losses[0]
    vectors = model.vectors()
    for word in vectors.words:
        assert all(other[0] == word[0] for other, _ in vectors.nearest(word, 7))
    again = type(model)(found, model.config)
    list(again.train())
    assert torch.equal(again.vectors().matrix, vectors.matrix)


def test_a_small_vocabulary_takes_small_steps():
    small = word_vectors.Word2Vec(
        word_vectors.encode_text(topics()), word_vectors.Word2VecConfig(lr=0.1)
    )
    large = word_vectors.Word2Vec(word_vectors.encode_text([[str(i) for i in range(500)]] * 5))
    assert small.batch_size == 10 and large.batch_size == 256
    with pytest.raises(CourseError, match="lower the learning rate"):
        list(
            word_vectors.Word2Vec(
                word_vectors.encode_text(topics()), word_vectors.Word2VecConfig(lr=50.0)
            ).train()
        )


def test_neighbours_and_analogies():
    king, man, woman = (
        torch.tensor([1.0, 1, 0]),
        torch.tensor([0.0, 1, 0]),
        torch.tensor([0.0, 1, 1]),
    )
    matrix = torch.stack([king, man, woman, king + woman - man, torch.tensor([-1.0, 0, 0])])
    vectors = word_vectors.WordVectors(["king", "man", "woman", "queen", "mud"], matrix)
    assert [word for word, _ in vectors.nearest("king", 50)] == ["queen", "man", "woman", "mud"]
    asked = [
        analogies.AnalogyQuestion("man", "king", "woman", "queen", ("king", "mud")),
        analogies.AnalogyQuestion("man", "king", "woman", "mud", ("queen",)),
        analogies.AnalogyQuestion("man", "king", "woman", "sea"),
    ]
    found = analogies.score(vectors, asked)
    assert (found.accuracy, found.choice, found.asked) == (0.5, 0.5, 2)
    matrix = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.9, 1.0], [0.5, 1.0]])
    # c itself is nearest to b - a + c
    close = word_vectors.WordVectors(["a", "b", "c", "d"], matrix)
    found = analogies.score(close, [analogies.AnalogyQuestion("a", "b", "c", "d", ("c",))])
    assert (found.accuracy, found.choice) == (1.0, 1.0)


def test_questions_of_meaning_and_of_form(tmp_path):
    vectors = word_vectors.WordVectors(["king", "queen", "man", "woman", "men"], torch.eye(5))
    (tmp_path / "asked").write_text(
        ": family\nMan king woman queen\n\n: gram1\nman men king kings\nman men king queen\n",
        "utf-8",
    )
    asked = analogies.read_questions(tmp_path / "asked", vectors)
    assert asked["meaning"] == [analogies.AnalogyQuestion("man", "king", "woman", "queen")]
    assert asked["form"] == [analogies.AnalogyQuestion("man", "men", "king", "queen")]


def test_the_world_s_analogies_are_questions():
    rows = World(0).task("analogies", 20)
    for row, question in zip(rows, World.analogy_questions(rows), strict=True):
        said = f"{question.a} is to {question.b} as {question.c} is to"
        assert said == row["text"].lower()
        assert question.d == row["choices"][row["label"]].lower() and len(question.others) == 3
        assert question.d not in question.others


def test_a_classifier_starts_from_them():
    vectors = table()
    tokenizer = word_tokenizer(["Queen", "king", "King", "sea"])
    words = tokenizer.tokens(range(tokenizer.vocab.size))
    start = vectors.table(words, seed=3)
    number = {word: i for i, word in enumerate(words)}
    assert torch.equal(start[number["King"]], vectors["King"])
    assert torch.equal(start[number["Queen"]], vectors["queen"])
    assert not any(torch.equal(start[number["sea"]], row) for row in vectors.matrix)
    assert torch.equal(vectors.table(words, seed=3), start) and not torch.equal(
        vectors.table(words), start
    )
    body = Words(tokenizer, static=start)
    assert torch.equal(body(torch.tensor([[number["King"]]]))[0, 0], vectors["King"])
    assert torch.equal(
        WordAverage(vectors.numbers, vectors.matrix).embed(["queen"])[0], vectors["queen"]
    )


def test_wrong_input_is_one_sentence(tmp_path):
    for content in ("2 2\na 1 2\nb 1\n", "a 1 2\nb 1 x\n"):
        (tmp_path / "bad.txt").write_text(content)
        with pytest.raises(CourseError, match="is not lines of a word and as many numbers each"):
            word_vectors.load_text(tmp_path / "bad.txt")
    with pytest.raises(CourseError, match="give each word one"):
        word_vectors.WordVectors(["a", "a"], torch.ones(2, 2))
    with pytest.raises(CourseError, match="no vector for 'sea'"):
        table().nearest("sea")
    with pytest.raises(CourseError, match="None of the 1 questions"):
        analogies.score(table(), [analogies.AnalogyQuestion("x", "y", "z", "w")])
    with pytest.raises(CourseError, match="Only 0 words"):
        word_vectors.encode_text([["a"]], min_count=2)
