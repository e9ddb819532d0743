"""Static vectors: windows, draws and steps against plain loops, what is learned, neighbours, files, wrong input."""

import math

import pytest
import torch

from course_lib.data.world import World
from course_lib.errors import CourseError
from course_lib.models import static
from course_lib.models.baselines import Words, word_tokenizer
from course_lib.models.sentence import WordAverage
from course_lib.models.static.word2vec import around, negative_sampling, stays

ROWS = [["a", "b", "c"], ["b", "a"], ["c"], ["d", "a", "b", "rare"]] * 2
KINDS = ["skip-gram", "cbow"]


def text(rows=ROWS):
    return static.count(rows, least=2 if rows is ROWS else 1)


def table(seed=0):
    words = ["King", "queen", "man", "woman", "bank", "river"]
    return static.WordVectors(words, torch.randn(6, 4, generator=torch.Generator().manual_seed(seed)), range(6, 0, -1))


def test_a_text_is_its_words_by_frequency():
    found = static.count([["b", "z", "x"], ["c", "z", "b", "z"], []], least=1, most=3)
    assert found.words == ["z", "b", "c"]
    assert found.counts.tolist() == [3, 2, 1]
    assert found.ids.tolist() == [1, 0, 2, 0, 1, 0]
    assert found.rows.tolist() == [0, 0, 1, 1, 1, 1]
    assert list(static.sentences(["Anna's dog."], lower=False)) == [["Anna", "'s", "dog", "."]]
    assert text().words == ["a", "b", "c", "d", "rare"]


def test_windows_stop_at_their_row_and_their_reach():
    found = text()
    n, window, pad = len(found.ids), 3, 99
    reach = torch.randint(1, window + 1, (n,), generator=torch.Generator().manual_seed(1))
    at = torch.randperm(n, generator=torch.Generator().manual_seed(2))
    made = around(found.ids, found.rows, at, reach[at], window, pad)
    for line, i in zip(made.tolist(), at.tolist(), strict=True):
        expected = []
        for j in range(i - window, i + window + 1):
            inside = 0 <= j < n and abs(i - j) <= reach[i] and found.rows[j] == found.rows[i]
            expected += [] if j == i else [int(found.ids[j]) if inside else pad]
        assert line == expected


def test_near_words_count_more_and_thinning_is_drawn_anew():
    found = text([["x", "y"] * 2000])
    model = static.Word2Vec(found, static.Word2VecConfig(window=4, sample=0, size=2))
    held = torch.zeros(8)
    for _, _, contexts in model.batches():
        held += (contexts < 2).float().sum(0)
    share = held / len(found.ids)
    assert torch.allclose(share, torch.tensor([0.25, 0.5, 0.75, 1, 1, 0.75, 0.5, 0.25]), atol=0.03)
    thin = static.Word2Vec(found, static.Word2VecConfig(sample=0.1, size=2))
    sizes = [sum(len(centres) for _, centres, _ in thin.batches()) for _ in range(2)]
    expected = 4000 * float(stays(found.counts, 0.1)[0])
    assert sizes[0] != sizes[1] and all(abs(size - expected) < 5 * math.sqrt(expected) for size in sizes)


def test_words_are_drawn_by_the_power_of_their_frequency():
    found = text([["a"] * 810 + ["b"] * 160 + ["c"] * 16 + ["d"]])
    model = static.Word2Vec(found, static.Word2VecConfig(negative=50, size=2))
    drawn = model.draw(2000).flatten().bincount(minlength=4) / 100_000
    shares = torch.tensor([810.0, 160, 16, 1]) ** 0.75
    assert torch.allclose(drawn, shares / shares.sum(), atol=0.006)
    kept = stays(torch.tensor([9000, 990, 10]), 1e-3)
    assert torch.allclose(kept, torch.tensor([math.sqrt(10 / 9000) + 10 / 9000, math.sqrt(10 / 990) + 10 / 990, 1.0]))


def test_the_way_down_is_minus_the_gradient():
    torch.manual_seed(0)
    scores = torch.randn(3, 4, 6, requires_grad=True)
    counts = (torch.rand(3, 4, 6) < 0.7).float()
    loss, down = negative_sampling(scores, counts)
    stated = -(scores[..., 0].sigmoid().log() * counts[..., 0]).sum(1)
    stated = stated - ((-scores[..., 1:]).sigmoid().log() * counts[..., 1:]).sum((1, 2))
    assert torch.allclose(loss, stated, atol=1e-5)
    stated.sum().backward()
    assert torch.allclose(down, -scores.grad, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_adds_up_what_its_centres_would_do_alone(kind):
    found = text()
    config = static.Word2VecConfig(kind, size=6, negative=3, window=2, sample=0)

    def fresh():
        model = static.Word2Vec(found, config)
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
        losses.append(alone.step(centres[row : row + 1], contexts[row : row + 1], drawn[row : row + 1], 0.1))
        inputs += alone.inputs - start.inputs
        outputs += alone.outputs - start.outputs
    assert torch.allclose(whole.step(centres, contexts, drawn, 0.1), torch.cat(losses), atol=1e-5)
    assert torch.allclose(whole.inputs, inputs, atol=1e-5) and torch.allclose(whole.outputs, outputs, atol=1e-5)
    assert not whole.inputs[-1].any() and not whole.outputs[-1].any()
    assert not torch.allclose(whole.inputs, start.inputs, atol=1e-3)


def test_a_drawn_word_that_is_the_centre_is_skipped():
    found = text()
    one, two = (static.Word2Vec(found, static.Word2VecConfig(size=4, negative=2)) for _ in range(2))
    centre, context = torch.tensor([1]), torch.tensor([[0] + [len(found.words)] * 9])
    one.step(centre, context, torch.tensor([[1, 2]]), 0.1)
    loss = two.step(centre, context, torch.tensor([[1, 1]]), 0.1)
    assert math.isclose(float(loss), math.log(2), rel_tol=1e-4)
    assert torch.equal(one.outputs[1], two.outputs[1]) and not two.outputs[2].any() and one.outputs[2].any()


def topics(n=150):
    """Two topics of eight words, who never meet."""
    rng = torch.Generator().manual_seed(0)
    words = [[f"{side}{i}" for i in range(8)] for side in ("left", "right")]
    return [[words[r % 2][i] for i in torch.randint(8, (12,), generator=rng)] for r in range(n)]


@pytest.mark.parametrize("kind", [*KINDS, "glove"])
def test_words_that_stand_together_come_together(kind):
    found = static.count(topics())
    model = (
        static.GloVe(found, static.GloVeConfig(size=8, epochs=30, batch=32))
        if kind == "glove"
        else static.Word2Vec(found, static.Word2VecConfig(kind, size=8, epochs=15, lr=0.05, sample=0))
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
    small = static.Word2Vec(static.count(topics()), static.Word2VecConfig(lr=0.1))
    large = static.Word2Vec(static.count([[str(i) for i in range(500)]] * 5))
    assert small.batch == 10 and large.batch == 256
    with pytest.raises(CourseError, match="lower the learning rate"):
        list(static.Word2Vec(static.count(topics()), static.Word2VecConfig(lr=50.0)).train())


def test_neighbours_and_analogies():
    king, man, woman = torch.tensor([1.0, 1, 0]), torch.tensor([0.0, 1, 0]), torch.tensor([0.0, 1, 1])
    matrix = torch.stack([king, man, woman, king + woman - man, torch.tensor([-1.0, 0, 0])])
    vectors = static.WordVectors(["king", "man", "woman", "queen", "mud"], matrix)
    assert vectors.analogy("man", "king", "woman")[0][0] == "queen"
    assert [word for word, _ in vectors.nearest("king", 4)] == ["queen", "man", "woman", "mud"]
    assert [word for word, _ in vectors.nearest(matrix[0] * 3, 2)] == ["king", "queen"]
    assert len(vectors.nearest("king", 50, leave_out=["mud"])) == 3
    assert math.isclose(vectors.nearest("king", 1)[0][1], vectors.similarity("king", "queen"), rel_tol=1e-6)
    asked = [
        static.Question("man", "king", "woman", "queen", "royal", ("king", "mud")),
        static.Question("man", "king", "woman", "mud", "none", ("queen",)),
        static.Question("man", "king", "woman", "sea", "none"),
    ]
    found = static.analogies(vectors, asked)
    assert (found.accuracy, found.choice, found.asked) == (0.5, 0.5, 2)
    assert found.by_relation == {"royal": 1.0, "none": 0.0}
    matrix = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.9, 1.0], [0.5, 1.0]])
    close = static.WordVectors(["a", "b", "c", "d"], matrix)
    target = close["b"] / close["b"].norm() - close["a"] + close["c"] / close["c"].norm()
    assert close.nearest(target, 1)[0][0] == "c" and close.analogy("a", "b", "c")[0][0] == "d"
    found = static.analogies(close, [static.Question("a", "b", "c", "d", others=("c",))])
    assert (found.accuracy, found.choice) == (1.0, 1.0)
    pairs = [("king", "man"), ("king", "mud"), ("king", "queen")]
    assert static.similarity(vectors, pairs, [2, 0, 5]) == pytest.approx(1.0)
    assert static.similarity(vectors, pairs, [2, 5, 0]) == pytest.approx(-1.0)


def test_the_world_s_analogies_are_questions():
    rows = World(0).task("analogies", 20)
    for row, question in zip(rows, static.questions(rows), strict=True):
        said = f"{question.a} is to {question.b} as {question.c} is to"
        assert said == row["text"].lower()
        assert question.d == row["choices"][row["label"]].lower() and len(question.others) == 3
        assert question.d not in question.others and question.relation == row["relation"]
    with pytest.raises(CourseError, match="is no analogy"):
        static.questions([{"text": "a b", "choices": ["c"], "label": 0}])


def test_a_classifier_starts_from_them():
    vectors = table()
    tokenizer = word_tokenizer(["Queen", "king", "King", "sea"])
    words = tokenizer.tokens(range(tokenizer.vocab.size))
    start = vectors.table(words, seed=3)
    number = {word: i for i, word in enumerate(words)}
    assert torch.equal(start[number["King"]], vectors["King"])
    assert torch.equal(start[number["Queen"]], vectors["queen"])
    assert not any(torch.equal(start[number["sea"]], row) for row in vectors.matrix)
    assert torch.equal(vectors.table(words, seed=3), start) and not torch.equal(vectors.table(words), start)
    body = Words(tokenizer, static=start)
    assert torch.equal(body(torch.tensor([[number["King"]]]))[0, 0], vectors["King"])
    assert torch.equal(WordAverage(vectors.numbers, vectors.matrix).embed(["queen"])[0], vectors["queen"])


def test_unknown_words_have_the_spread_of_the_known():
    vectors = static.WordVectors(["a", "b"], torch.tensor([[3.0, 0.0], [5.0, 0.2]]))
    drawn = vectors.table([f"x{i}" for i in range(2000)])
    assert torch.allclose(drawn.mean(0), torch.tensor([4.0, 0.1]), atol=0.1)
    assert torch.allclose(drawn.std(0), torch.tensor([1.0, 0.1]), atol=0.1)


def test_folders_and_text_files(tmp_path):
    vectors = table()
    back = static.load(static.save(vectors, tmp_path / "folder"))
    assert back.words == vectors.words and back.counts == vectors.counts
    assert torch.equal(back.matrix, vectors.matrix)
    half = static.load(static.save(vectors, tmp_path / "half", half=True))
    assert half.matrix.dtype == torch.float32 and torch.equal(half.matrix, vectors.matrix.half().float())
    static.save_text(vectors, tmp_path / "v.txt")
    assert (tmp_path / "v.txt").read_text("utf-8").startswith("6 4\nKing ")
    assert torch.equal(static.load_text(tmp_path / "v.txt").matrix, vectors.matrix)
    (tmp_path / "glove.txt").write_text("a 1 2\nb 3 4.5\n")
    assert static.load_text(tmp_path / "glove.txt")["b"].tolist() == [3.0, 4.5]


def test_wrong_input_is_one_sentence(tmp_path):
    for content, said in {
        "2 2\na 1 2\n": "announces 2 words and has 1",
        "2 2\na 1 2\nb 1\n": "Line 3",
        "a 1 2\nb 1 x\n": "Line 2",
        "": "Line 1",
    }.items():
        (tmp_path / "bad.txt").write_text(content)
        with pytest.raises(CourseError, match=said):
            static.load_text(tmp_path / "bad.txt")
    with pytest.raises(CourseError, match="cannot be read"):
        static.load_text(tmp_path / "none.txt")
    with pytest.raises(CourseError, match="no file"):
        static.load(tmp_path)
    static.save(table(), tmp_path)
    (tmp_path / "vectors.safetensors").write_bytes(b"no")
    with pytest.raises(CourseError, match="no word vectors that can be read"):
        static.load(tmp_path)
    with pytest.raises(CourseError, match="cannot hold 'a b'"):
        static.save_text(static.WordVectors(["a b"], torch.ones(1, 2)), tmp_path / "x.txt")
    with pytest.raises(CourseError, match="come twice"):
        static.WordVectors(["a", "a"], torch.ones(2, 2))
    with pytest.raises(CourseError, match="give one a word"):
        static.WordVectors(["a"], torch.ones(2, 2))
    with pytest.raises(CourseError, match="no vector for 'sea'"):
        table().nearest("sea")
    with pytest.raises(CourseError, match="None of the 1 questions"):
        static.analogies(table(), [static.Question("x", "y", "z", "w")])
    with pytest.raises(CourseError, match="Only 0 words"):
        static.count([["a"]], least=2)
    with pytest.raises(CourseError, match="lists of words"):
        static.count(["a text", "and another"])
    with pytest.raises(CourseError, match="skip-gram"):
        static.Word2VecConfig("glove")
    with pytest.raises(CourseError, match="window is 0"):
        static.Word2VecConfig(window=0)
    with pytest.raises(CourseError, match="No two words"):
        list(static.GloVe(static.count([["a"], ["b"]], least=1)).train())
