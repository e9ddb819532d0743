"""The BiLSTM baselines: how words are framed, what each text can see of the other, and all five kinds of task."""

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.finetune import finetune, predict
from course_lib.inputs import Frame
from course_lib.models import elmo
from course_lib.models.baselines import Pool, ReaderConfig, TaskModel, Words, task_words, word_tokenizer

WORDS = ["The", "dog", "cat", "barks", "sleeps", "good", "bad", "Anna", "'s", ".", "?"]
TOKENIZER = word_tokenizer(WORDS)
CONFIG = elmo.ElmoConfig(0, width=6, hidden=10, filters=((1, 4), (2, 8)), length=8, dropout=0.3)
PAIRS = {
    "pair": {"text": "The dog barks .", "pair": "Anna 's cat sleeps .", "label": 1},
    "choice": {"text": "The dog", "choices": ["barks .", "sleeps ?", "cat"], "label": 0},
    "span": {"text": "The dog ?", "pair": "Anna 's cat sleeps .", "answer": "cat sleeps", "start": 8},
}
ROWS = PAIRS | {
    "single": {"text": "The dog barks .", "label": 0},
    "tagging": {"tokens": ["The", "dog", "barks"], "labels": [0, 1, 2]},
}


def body(static: bool = False, **reader) -> Words:
    torch.manual_seed(0)
    vectors = torch.randn(TOKENIZER.vocab.size, 4) if static else None
    model = elmo.Elmo(CONFIG)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return Words(TOKENIZER, elmo=model, static=vectors, reader=ReaderConfig(**{"cells": 5, "hidden": 7, **reader}))


def batch(kind: str, *more: dict) -> dict[str, torch.Tensor]:
    frame = Frame(TOKENIZER, body().config, kind, classes=None if kind in ("choice", "span") else 3)
    made = frame.collate(frame.rows([ROWS[kind], *more]))
    return {name: value for name, value in made.items() if name != "labels"}


def test_words_are_framed_by_marks_and_keep_their_places():
    code = TOKENIZER.encode("The dog barks.", "Anna's zebra sleeps")
    assert code.tokens == ["<S>", "The", "dog", "barks", ".", "</S>", "<S>", "Anna", "'s", "<UNK>", "sleeps", "</S>"]
    assert code.segments == [0] * 6 + [1] * 6
    assert code.offsets[1:5] == [(0, 3), (4, 7), (8, 13), (13, 14)]
    vocab = TOKENIZER.vocab
    assert (vocab.pad, vocab.unk, vocab.bos, vocab.eos, vocab.size) == (0, 1, 2, 3, 4 + len(WORDS))
    assert TOKENIZER.encode(["Anna", "barks"]).words == [None, 0, 1, None]


def test_a_task_s_words_are_all_words_of_all_its_texts():
    task = {"train": [ROWS["pair"], ROWS["tagging"]], "test": [ROWS["choice"]]}
    assert set(task_words(task)) == {"The", "dog", "barks", ".", "Anna", "'s", "cat", "sleeps", "?"}


def test_words_are_read_by_their_spelling():
    model = body()
    ids = torch.tensor([TOKENIZER.encode("Anna barks").ids])
    chars = elmo.characters([["Anna", "barks"]], 8)["ids"]
    assert torch.equal(model.spelled[ids], chars)
    assert (model.spelled[0] == 0).all()
    with torch.no_grad():
        layers = model.eval().elmo(chars)
        assert torch.allclose(model(ids, keep=torch.ones(1, 4, dtype=torch.bool)), sum(layers) / 3, atol=1e-6)


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("options", [{}, {"cross": False, "pool": "attention", "layers": 2}])
def test_shapes_and_padding(kind, options):
    model = body(static=True, **options).for_task(kind, None if kind in PAIRS and kind != "pair" else 3).eval()
    longer = {
        "single": {"text": "The dog sleeps ? The cat barks .", "label": 0},
        "tagging": {"tokens": ["The"] * 7, "labels": [0] * 7},
        "pair": {"text": "The dog sleeps ? The cat", "pair": "Anna The dog sleeps . The bad dog", "label": 1},
        "choice": {"text": "The good dog sleeps .", "choices": ["The bad cat barks"] * 3, "label": 0},
        "span": {
            "text": "The bad cat ? The dog",
            "pair": "The dog The dog sleeps . Anna",
            "answer": "Anna",
            "start": 25,
        },
    }[kind]
    alone, together = batch(kind), batch(kind, longer)
    assert together["ids"].shape[-1] > alone["ids"].shape[-1]
    with torch.no_grad():
        one, two = model(**alone), model(**together)
    if kind == "span":
        one, two = torch.stack(one), torch.stack(two)
        n = alone["ids"].shape[1]
        assert torch.allclose(two[:, 0, :n], one[:, 0], atol=1e-5)
        second = (together["segments"] == 1) & together["keep"]
        assert (two[:, ~second] < -1000).all() and (two[:, second].abs() < 100).all()
        return
    shapes = {"single": (1, 3), "pair": (1, 3), "choice": (1, 3), "tagging": (1, 5, 3)}
    assert one.shape == shapes[kind]
    assert torch.allclose(two[0, : one.shape[1]] if kind == "tagging" else two[0], one[0], atol=1e-5)


@pytest.mark.parametrize("cross", [True, False])
def test_each_text_is_read_by_itself_unless_they_attend(cross):
    model = body(cross=cross).for_task("pair", 2).eval()
    other = {"text": ROWS["pair"]["text"], "pair": "The bad dog ?", "label": 0}
    firsts = []
    for some in (batch("pair"), batch("pair", other)):
        with torch.no_grad():
            (u, keep), (_, keep_v), places = model._both(some["ids"], some["keep"], some["segments"])
        firsts.append(u)
        assert keep.sum(1).tolist() == [6] * len(u)
        assert keep_v.sum(1).tolist() == [7, 6][: len(u)]
        assert places[0, 6] == 0
    same = torch.allclose(firsts[1][0], firsts[1][1], atol=1e-6)
    assert same is not cross
    assert torch.allclose(firsts[0][0], firsts[1][0], atol=1e-6)  # padding of the second text is not attended to


def test_the_span_s_scores_stand_at_the_second_text_s_words():
    model = body(cross=False).for_task("span", None).eval()
    some = batch("span")
    with torch.no_grad():
        start, _ = model(**some)
        (u, keep_u), (v, _), _ = model._both(some["ids"], some["keep"], some["segments"])
        question = model.pool(u, keep_u)[:, None].expand_as(v)
        expected = model.out(torch.cat([v, question], dim=-1))[0, :, 0]
    first = int((some["segments"] == 0).sum())
    assert first == 5
    assert torch.allclose(start[0, first:], expected, atol=1e-6)


def test_a_pair_is_judged_by_both_vectors_their_difference_and_their_product():
    model, seen = body().for_task("pair", 2).eval(), []
    model.out.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    some = batch("pair")
    with torch.no_grad():
        model(**some)
        (u, keep_u), (v, keep_v), _ = model._both(some["ids"], some["keep"], some["segments"])
        a, b = model.pool(u, keep_u), model.pool(v, keep_v)
    for found, expected in zip(seen[0].chunk(4, dim=-1), (a, b, (a - b).abs(), a * b), strict=True):
        assert torch.allclose(found, expected)


def test_pooling():
    h, keep = torch.tensor([[[1.0, -5.0], [3.0, -7.0], [9.0, 9.0]]]), torch.tensor([[True, True, False]])
    assert Pool(2, "max")(h, keep).tolist() == [[3.0, -5.0]]
    pool = Pool(2, "attention")
    with torch.no_grad():
        pool.score.weight.copy_(torch.tensor([[1.0, 0.0]]))
    share = torch.tensor([1.0, 3.0]).softmax(0)
    assert torch.allclose(pool(h, keep), (share[:, None] * h[0, :2]).sum(0)[None])


def learnable(n: int) -> list[dict]:
    """Whether the animal is a dog."""
    animals = ["dog", "cat"]
    return [{"text": f"The {animals[i % 2]} {['barks', 'sleeps'][i // 2 % 2]} .", "label": i % 2} for i in range(n)]


@pytest.mark.parametrize("frozen", [True, False])
def test_finetuning_takes_it_as_a_body(frozen):
    start = body(cells=16, hidden=16, dropout=0.0)
    before = {name: value.clone() for name, value in start.state_dict().items()}
    task = {"train": learnable(32), "test": learnable(8)}
    result = finetune(start, task, TOKENIZER, epochs=20, lr=0.02, batch=8, frozen=frozen, classes=2)
    assert result.score == 1.0
    assert predict(result, learnable(2)) == [0, 1]
    assert all(torch.equal(value, before[name]) for name, value in start.state_dict().items())
    assert isinstance(result.model, TaskModel)
    trained = result.model.body.state_dict()
    same = [torch.equal(trained[f"elmo.{name}"], value) for name, value in start.elmo.state_dict().items()]
    assert all(same) if frozen else not any(same)
    assert not torch.equal(trained["mix.scores"], before["mix.scores"])


def test_frozen_elmo_drops_nothing_and_static_vectors_stay():
    frozen = body(static=True).for_task("single", 2, frozen=True).train()
    assert not frozen.body.elmo.training and frozen.body.mix.training
    assert not frozen.body.static.weight.requires_grad
    tuned = body(static=True).for_task("single", 2).train()
    assert tuned.body.elmo.training and tuned.body.static.weight.requires_grad


def test_without_pretraining_the_weights_are_fresh():
    start = body(static=True)
    fresh = start.for_task("single", 2, pretrained=False, dropout=0.0).body
    assert not torch.equal(fresh.elmo.forwards[0].recurrent, start.elmo.forwards[0].recurrent)
    assert not torch.equal(fresh.static.weight, start.static.weight)
    assert torch.equal(start.for_task("single", 2).body.static.weight, start.static.weight)


def test_wrong_input_is_one_sentence():
    with pytest.raises(CourseError, match="ELMo, static vectors, or both"):
        Words(TOKENIZER)
    with pytest.raises(CourseError, match="static vectors for"):
        Words(TOKENIZER, static=torch.zeros(3, 2))
    with pytest.raises(CourseError, match="no second text"):
        body().for_task("pair", 2)(**batch("single"))
    with pytest.raises(CourseError, match="do not belong together"):
        finetune(body(), {"train": learnable(4), "test": learnable(4)}, word_tokenizer(["a"]), classes=2)
