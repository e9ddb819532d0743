"""Sentence vectors: order, padding, anything with `embed`, batches for training, and what is refused."""

import math
from itertools import pairwise

import pytest
import torch

from course_lib import losses
from course_lib.config import EmbedConfig, Learned, StackConfig
from course_lib.data.world import World
from course_lib.errors import CourseError
from course_lib.heads import Classifier
from course_lib.models import sentence as sbert
from course_lib.models.sentence import Dense, Normalize, Sentence, SentenceEncoder, TextBatches, WordAverage, encode
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer, train_wordpiece

TEXTS = ["the cat sat on the mat", "a dog", "the old dog sat on the old mat all day", "cat", "a cat sat"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_wordpiece([" ".join(TEXTS)] * 5, 80)


def stack(vocab: int, dropout: float = 0.0, causal: bool = False) -> Stack:
    torch.manual_seed(0)
    return Stack(
        StackConfig(
            EmbedConfig(vocab), width=8, layers=1, heads=2, hidden=16, position=Learned(64), dropout=dropout,
            attention_dropout=dropout, causal=causal, init_std=0.5,
        )
    )  # fmt: skip


def encoder(tokenizer: Tokenizer, **options: object) -> SentenceEncoder:
    return SentenceEncoder(Sentence(stack(len(tokenizer), **options)), tokenizer)  # type: ignore[arg-type]


class Counting:
    """An embedder of one's own: the number of letters and of words."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def embed(self, texts: list[str]) -> torch.Tensor:
        self.seen.append(list(texts))
        return torch.tensor([[len(text), text.count(" ") + 1] for text in texts])


def test_encode_takes_anything_with_embed_and_sorts_by_length(capsys: pytest.CaptureFixture[str]) -> None:
    own = Counting()
    made = encode(own, TEXTS, batch=2, progress=True)
    assert made.dtype == torch.float32 and made.tolist() == [[len(t), len(t.split())] for t in TEXTS]
    assert [len(t) for batch in own.seen for t in batch] == sorted(map(len, TEXTS), reverse=True)
    assert [len(batch) for batch in own.seen] == [2, 2, 1] and "batch" in capsys.readouterr().err
    assert encode(own, TEXTS, normalize=True).norm(dim=-1) == pytest.approx(torch.ones(5))


@pytest.mark.parametrize("pool", ["mean", "first", "max", "last"])
def test_a_text_alone_has_the_vector_it_has_in_a_batch(pool: str, tokenizer: Tokenizer) -> None:
    model = Sentence(stack(len(tokenizer)), pool, [Dense(8, 6), Normalize()])  # type: ignore[arg-type]
    texts = SentenceEncoder(model, tokenizer)
    together = encode(texts, TEXTS, batch=5)
    torch.testing.assert_close(together, torch.cat([encode(texts, [text]) for text in TEXTS]))
    assert together.shape == (5, model.width) == (5, 6)
    torch.testing.assert_close(together.norm(dim=-1), torch.ones(5))


def test_encoding_is_without_dropout_and_leaves_the_mode_alone(tokenizer: Tokenizer) -> None:
    model = encoder(tokenizer, dropout=0.5)
    model.model.train()
    assert torch.equal(encode(model, TEXTS), encode(model, TEXTS)) and model.model.training
    assert not encode(model, TEXTS).requires_grad and model.embed(TEXTS).requires_grad


def test_word_averages() -> None:
    table = WordAverage({"cat": 0, "dog": 1}, torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
    made = encode(table, ["A cat, a DOG, a cat!", "nothing", "dog"])
    torch.testing.assert_close(made, torch.tensor([[2 / 3, 1.0], [0.0, 0.0], [0.0, 3.0]]))


def test_sts_is_spearman_of_the_cosines() -> None:
    table = WordAverage({"a": 0, "b": 1, "c": 2}, torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 5.0]]))
    labels = [5.0, 3.0, 0.0]
    assert sbert.sts(table, ["a"] * 3, ["a", "b", "c"], labels) == pytest.approx(1)
    assert sbert.sts(table, ["a"] * 3, ["c", "b", "a"], labels) == pytest.approx(-1)
    rows = World(seed=0).task("similarity", 30)
    same = Counting()
    score = sbert.sts(same, [r["text"] for r in rows], [r["pair"] for r in rows], [r["label"] for r in rows])
    assert -1 <= score <= 1
    with pytest.raises(CourseError, match="second texts"):
        sbert.sts(table, ["a"], [], [])


def test_losses_by_hand() -> None:
    a, p, n = torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 5.5]])
    assert sbert.triplet_loss(a, p, n).item() == pytest.approx(0.5)
    assert sbert.triplet_loss(a, p, 2 * n).item() == 0
    u, v = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]])
    assert sbert.cosine_loss(u, v, torch.ones(1)).item() == pytest.approx((1 - math.sqrt(0.5)) ** 2)
    # two orthogonal pairs: each query's own text has cosine 1, the other's 0
    pairs = torch.eye(2)[:, None].expand(2, 2, 2)
    assert sbert.ranking_loss(pairs, scale=2).item() == pytest.approx(math.log(1 + math.exp(-2)))
    # with one negative of its own, equal to its positive, a half is the best
    three = torch.cat([pairs, pairs[:, 1:]], dim=1)
    assert sbert.ranking_loss(three, scale=50).item() == pytest.approx(math.log(2), abs=1e-6)
    assert sbert.ranking_loss(three, scale=50, symmetric=True).item() == pytest.approx(math.log(2) / 2, abs=1e-6)


def test_fingerprints_tell_models_apart(tokenizer: Tokenizer) -> None:
    def mark(**options: object) -> str:
        model = Sentence(stack(len(tokenizer)), **options.pop("model", {}))  # type: ignore[arg-type]
        return SentenceEncoder(model, tokenizer, **options).fingerprint()  # type: ignore[arg-type]

    plain = mark()
    assert plain == mark()
    others = [
        mark(model={"pool": "max"}), mark(model={"top": [Normalize()]}), mark(max_length=8), mark(prompt="q: "),
        mark(model={"top": [Dense(8, 8)]}), mark(model={"top": [Dense(8, 8, activation="relu")]}),
    ]  # fmt: skip
    changed = encoder(tokenizer)
    with torch.no_grad():
        next(changed.model.parameters())[0, 0] += 1e-3
    assert len({plain, *others, changed.fingerprint()}) == 8
    table = {"a": 0}
    assert WordAverage(table, torch.ones(1, 2)).fingerprint() != WordAverage(table, torch.ones(2, 1)).fingerprint()


def test_batches_of_the_worlds_tasks() -> None:
    world = World(seed=0)
    nli, scored, asked = (world.task(name, 10) for name in ("nli", "similarity", "retrieval"))
    learned = train_wordpiece([row[c] for row in nli + scored for c in ("text", "pair")], 400)
    torch.manual_seed(0)
    model = Sentence(stack(len(learned)))
    batches = TextBatches(nli, learned, batch=4, max_length=40)
    assert batches[0]["ids"].shape[:2] == (4, 2) and batches[2]["ids"].shape[:2] == (2, 2)
    assert sorted(torch.cat([batches[i]["labels"] for i in range(3)]).tolist()) == sorted(r["label"] for r in nli)
    assert torch.equal(batches[1]["ids"], TextBatches(nli, learned, batch=4, max_length=40)[1]["ids"])
    assert batches[0]["ids"].shape != batches[3]["ids"].shape or batches[0]["ids"].ne(batches[3]["ids"]).any()
    assert losses.classification(sbert.PairClassifier(model, 3), batches[0]).isfinite()
    scores = TextBatches(scored, learned, batch=10, best=5)[0]
    assert sorted(scores["labels"].tolist()) == pytest.approx(sorted(r["label"] / 5 for r in scored))
    assert sbert.cosine_regression(model, scores).isfinite()
    searches = TextBatches(asked, learned, batch=5, max_length=64)[0]
    assert searches["ids"].shape[:2] == (5, 5) and sbert.ranking(model, searches).isfinite()


def test_training_goes_through_train(tokenizer: Tokenizer) -> None:
    """The objectives are losses like the others: `train` takes them, in parts too."""
    from course_lib import optim
    from course_lib.train import train

    rows = [{"query": t, "positive": p, "negatives": []} for t, p in pairwise(TEXTS)]
    model = Sentence(stack(len(tokenizer)))
    steps = train(
        model, TextBatches(rows, tokenizer, batch=4), sbert.ranking, optim.adamw(model, 1e-2),
        optim.cosine(12, warmup=1), steps=12, accumulate=2,
    )  # fmt: skip
    values = [step.loss for step in steps]
    assert values[-1] < values[0]


def test_cross_scores_keep_the_order_and_work_in_batches(tokenizer: Tokenizer) -> None:
    model = Classifier(stack(len(tokenizer), dropout=0.5), 2).train()
    pairs = TEXTS[::-1]
    scores = sbert.cross_scores(model, tokenizer, TEXTS, pairs, batch=2)
    assert scores.shape == (5, 2) and model.training
    for i in range(5):
        torch.testing.assert_close(
            sbert.cross_scores(model, tokenizer, TEXTS[i : i + 1], pairs[i : i + 1])[0], scores[i]
        )


def test_bad_input(tokenizer: Tokenizer) -> None:
    body = stack(len(tokenizer))
    for call, message in (
        (lambda: Sentence(body, "median"), "'median'"),  # type: ignore[arg-type]
        (lambda: Sentence(body, top=[Dense(9, 3)]), "takes 9 values, but gets 8"),
        (lambda: Dense(8, 3, activation="square"), "'square'"),
        (lambda: sbert.PairClassifier(Sentence(body), 3, []), "must be some of"),
        (lambda: sbert.PairClassifier(Sentence(body), 3, ["u", "w"]), "must be some of"),  # type: ignore[list-item]
        (lambda: encode(Counting(), []), "at least one"),
        (lambda: encode(Counting(), "text"), "list of texts"),
        (lambda: encode(Counting(), TEXTS, batch=0), "batch is 0"),
        (lambda: TextBatches([], tokenizer), "no rows"),
        (lambda: TextBatches([{"text": "a"}], tokenizer), "'pair'"),
        (lambda: sbert.text_batch(tokenizer, [["a"], ["a", "b"]], 8), "equally many"),
        (lambda: sbert.cross_scores(Classifier(body, 1), tokenizer, [], []), "at least one pair"),
    ):
        with pytest.raises(CourseError, match=message):
            call()

    class Wrong:
        def embed(self, texts: list[str]) -> torch.Tensor:
            return torch.zeros(1, 3)

    with pytest.raises(CourseError, match=r"\[1, 3\] tensor for 5 texts"):
        encode(Wrong(), TEXTS)
