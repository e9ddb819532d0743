"""Static vectors against gensim: its run update by update, its files; GloVe by hand."""

import math

import numpy as np
import pytest
import torch

from classroom.town import World
from course_lib.analysis import analogies
from course_lib.data.words import lowercase_words
from course_lib.families import word_vectors
from course_lib.families.word_vectors import keep_probability

gensim = pytest.importorskip("gensim.models")
TOY = [
    ["a", "b", "c", "a", "d"],
    ["b", "a", "e", "d", "c", "b", "f", "a"],
    ["f", "e"],
    ["d", "a", "b"],
] * 3
LR = 0.05
# gensim looks the sigmoid up in 1,000 steps between -6 and 6, and updates nothing outside.
STEPS = 1 / (1 + np.exp(-(np.arange(1000) / 1000 * 2 - 1) * 6))


class Theirs:
    """gensim's model of a text, and the random numbers that it will draw."""

    def __init__(self, kind: str, rows: list[list[str]], *, sample: float = 0.0) -> None:
        options = {
            "vector_size": 6,
            "window": 3,
            "min_count": 1,
            "negative": 4,
            "workers": 1,
            "epochs": 1,
        }
        self.model = gensim.Word2Vec(
            **options, sg=int(kind == "skip-gram"), sample=sample, alpha=LR, min_alpha=LR
        )
        self.model.build_vocab(rows)
        self.rows = rows
        rng = np.random.default_rng(3)
        self.model.wv.vectors[:] = rng.normal(size=self.model.wv.vectors.shape) * 0.7
        self.model.syn1neg[:] = rng.normal(size=self.model.syn1neg.shape) * 0.7
        self.start = self.model.wv.vectors.copy(), self.model.syn1neg.copy()
        self.model.random = np.random.RandomState(11)

    def train(self) -> tuple[np.ndarray, np.ndarray]:
        self.model.train(self.rows, total_examples=len(self.rows), epochs=1)
        return self.model.wv.vectors, self.model.syn1neg

    def updates(self) -> list[tuple[int, list[list[int]], list[list[int]]]]:
        """What it will do, in order: the centre, lists of context words, words drawn for each
        list.
        """
        random = np.random.RandomState(11)
        state = 2**24 * random.randint(0, 2**24) + random.randint(0, 2**24)
        ids = [[self.model.wv.key_to_index[word] for word in row] for row in self.rows]
        shrunk = iter(random.randint(0, self.model.window, sum(map(len, ids))))
        table, found = self.model.cum_table, []
        for row in ids:
            for i, centre in enumerate(row):
                reach = self.model.window - next(shrunk)
                words = row[max(0, i - reach) : i] + row[i + 1 : i + 1 + reach]
                lists, drawn = [[word] for word in words] if self.model.sg else [words], []
                for _ in lists:
                    drawn.append([])
                    for _ in range(self.model.negative):
                        drawn[-1].append(
                            int(np.searchsorted(table, (state >> 16) % int(table[-1])))
                        )
                        state = (state * 25214903917 + 11) % 2**48
                found.append((centre, lists, drawn))
        return found


def looked_up(x: float) -> float | None:
    return STEPS[int((x + 6) * 83)] if -6 < x < 6 else None  # 1000 / 6 / 2 in whole numbers


def exact(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def by_hand(start, updates, sigmoid, *, at_once):
    """The program of Mikolov et al. in NumPy: one centre, one list of context words, one product at
    a time.

    at_once: a word drawn twice for one list has not moved between, as in a step of the course.
    """
    v, u = (table.astype(np.float64) for table in start)
    for centre, lists, drawn in updates:
        for words, others in zip(lists, drawn, strict=True):
            h, down, before = v[words].mean(0), 0.0, u.copy()
            for word, label in [
                (centre, 1.0),
                *((other, 0.0) for other in others if other != centre),
            ]:
                row = before[word] if at_once else u[word]
                probability = sigmoid(float(h @ row))
                if probability is not None:
                    g = (label - probability) * LR
                    down = down + g * row
                    u[word] = u[word] + g * h
            for word in words:
                v[word] += down
    return v, u


def in_torch(kind, theirs, batch_window=6):
    """The same by the course's step, a list of context words at a time."""
    text = word_vectors.encode_text(TOY, min_count=1)
    model = word_vectors.Word2Vec(text, word_vectors.Word2VecConfig(kind, size=6, negative=4))
    vocab = len(text.words)
    model.inputs[:vocab], model.outputs[:vocab] = (torch.tensor(table) for table in theirs.start)
    for centre, lists, drawn in theirs.updates():
        for words, others in zip(lists, drawn, strict=True):
            padded = words + [vocab] * (batch_window - len(words))
            model.step(torch.tensor([centre]), torch.tensor([padded]), torch.tensor([others]), LR)
    assert not model.inputs[vocab].any() and not model.outputs[vocab].any()
    return model.inputs[:vocab].double().numpy(), model.outputs[:vocab].double().numpy()


@pytest.mark.parametrize("kind", ["skip-gram", "cbow"])
def test_every_update_is_gensim_s(kind):
    theirs = Theirs(kind, TOY)
    table = by_hand(theirs.start, theirs.updates(), looked_up, at_once=False)
    formula = by_hand(theirs.start, theirs.updates(), exact, at_once=True)
    ours = in_torch(kind, theirs)
    for mine, stated, reference, trained, before in zip(
        ours, formula, table, theirs.train(), theirs.start, strict=True
    ):
        assert np.abs(trained - before).max() > 0.1
        assert np.allclose(reference, trained, atol=1e-5, rtol=1e-5)  # the reference is gensim
        assert np.allclose(mine, stated, atol=1e-5, rtol=1e-5)
        assert np.abs(mine - trained).max() < 0.03  # what gensim's table and its order make of it


def test_words_are_counted_thinned_and_drawn_as_gensim_does():
    world = World(0)
    rows = list(lowercase_words(world.document(i)["text"] for i in range(60)))
    text = word_vectors.encode_text(rows, min_count=2)
    model = gensim.Word2Vec(vector_size=4, min_count=2, sample=1e-3)
    model.build_vocab(rows)
    order = [model.wv.key_to_index[word] for word in text.words]
    assert len(text.words) == len(model.wv)
    assert text.counts.tolist() == [model.wv.get_vecattr(word, "count") for word in text.words]
    theirs = model.wv.expandos["sample_int"][order] / (2**32 - 1)
    assert torch.allclose(
        keep_probability(text.counts, 1e-3).double(), torch.tensor(theirs), atol=1e-6
    )
    assert (theirs < 0.5).any() and (theirs == 1).any()
    shares = np.diff(model.cum_table.astype(np.int64), prepend=0)[order] / (2**31 - 1)
    ours = word_vectors.Word2Vec(text).cumulative.diff(prepend=torch.zeros(1))
    assert torch.allclose(ours.double(), torch.tensor(shares), atol=1e-6)


def test_gensim_s_files_are_read_and_answer_the_same(tmp_path):
    rng, words = np.random.default_rng(0), [*"abcdefgh", "naïve", "don't", "."]
    theirs = gensim.KeyedVectors(5)
    theirs.add_vectors(words, rng.normal(size=(len(words), 5)).astype(np.float32))
    theirs.save_word2vec_format(str(tmp_path / "theirs.txt"))
    vectors = word_vectors.load_text(tmp_path / "theirs.txt")
    assert vectors.words == words and torch.allclose(
        vectors.matrix, torch.tensor(theirs.vectors), atol=1e-6
    )
    lines = (tmp_path / "theirs.txt").read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "glove.txt").write_text("".join(lines[1:]), "utf-8")  # GloVe's has no first line
    assert torch.equal(word_vectors.load_text(tmp_path / "glove.txt").matrix, vectors.matrix)
    found, expected = vectors.nearest("naïve", 4), theirs.most_similar("naïve", topn=4)
    assert [word for word, _ in found] == [word for word, _ in expected]
    assert np.allclose(
        [cosine for _, cosine in found], [cosine for _, cosine in expected], atol=1e-5
    )
    best = theirs.most_similar(positive=["b", "c"], negative=["a"], topn=1)[0][0]
    assert (
        analogies.score(vectors, [analogies.AnalogyQuestion("a", "b", "c", best)]).accuracy == 1.0
    )


def test_cooccurrences_are_counted_by_hand():
    text = word_vectors.encode_text(TOY, min_count=1)
    found = np.zeros((6, 6))
    number = {word: i for i, word in enumerate(text.words)}
    for row in TOY:
        for i, word in enumerate(row):
            for j, other in enumerate(row):
                if 0 < abs(i - j) <= 3:
                    found[number[word], number[other]] += 1 / abs(i - j)
    ours = word_vectors.cooccurrences(text, window=3)
    table = torch.zeros(6, 6)
    table[ours.i, ours.j] = ours.x
    assert len(ours.x) == (found > 0).sum() and torch.allclose(
        table.double(), torch.tensor(found), atol=1e-5
    )


def test_glove_s_loss_gradient_and_adagrad_by_hand():
    text = word_vectors.encode_text(TOY, min_count=1)
    pairs = word_vectors.cooccurrences(text, window=3)
    config = word_vectors.GloVeConfig(size=4, x_max=5.0)
    model = word_vectors.GloVe(text, config)
    for table in (model.w, model.c):
        table.normal_(generator=torch.Generator().manual_seed(5))
    w, c = model.w.double().numpy().copy(), model.c.double().numpy().copy()
    squares_w, squares_c = np.ones_like(w), np.ones_like(c)
    assert (pairs.x < 5).any() and (pairs.x > 5).any()
    for i, j, x in zip(pairs.i.tolist(), pairs.j.tolist(), pairs.x.tolist(), strict=True):
        difference = w[i, :4] @ c[j, :4] + w[i, 4] + c[j, 4] - math.log(x)
        weight = (x / 5) ** 0.75 if x < 5 else 1.0
        one = torch.tensor([i]), torch.tensor([j]), torch.tensor([x])
        assert math.isclose(
            float(model.loss(*one)), weight * difference**2, rel_tol=1e-4, abs_tol=1e-6
        )
        assert math.isclose(
            float(model.step(*one)), weight * difference**2, rel_tol=1e-4, abs_tol=1e-6
        )
        # Half of the derivatives by w_i, b_i and by c_j, d_j.
        down_w = weight * difference * np.append(c[j, :4], 1.0)
        down_c = weight * difference * np.append(w[i, :4], 1.0)
        w[i] -= config.lr * down_w / np.sqrt(squares_w[i])
        c[j] -= config.lr * down_c / np.sqrt(squares_c[j])
        squares_w[i] += down_w**2
        squares_c[j] += down_c**2
    assert np.allclose(model.w.numpy(), w, atol=1e-5) and np.allclose(model.c.numpy(), c, atol=1e-5)
    assert np.allclose(model.squares_w.numpy(), squares_w, rtol=1e-4)
