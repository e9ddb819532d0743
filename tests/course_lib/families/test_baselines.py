"""The BiLSTM baselines: how words are framed, what each text can see of the other, and all five
kinds of task.
"""

import pytest
import torch

from course_lib.data.inputs import Frame
from course_lib.data.words import task_words, word_tokenizer
from course_lib.families import elmo
from course_lib.families.baselines import ReaderConfig, TaskModel, Words
from course_lib.training.finetune import FinetuneConfig, finetune, predict

WORDS = ["The", "dog", "cat", "barks", "sleeps", "good", "bad", "Anna", "'s", ".", "?"]
TOKENIZER = word_tokenizer(WORDS)
CONFIG = elmo.ElmoConfig(0, width=6, hidden=10, filters=((1, 4), (2, 8)), length=8, dropout=0.3)
PAIRS = {
    "pair": {"text": "The dog barks .", "pair": "Anna 's cat sleeps .", "label": 1},
    "choice": {"text": "The dog", "choices": ["barks .", "sleeps ?", "cat"], "label": 0},
    "span": {
        "text": "The dog ?",
        "pair": "Anna 's cat sleeps .",
        "answer": "cat sleeps",
        "start": 8,
    },
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
    return Words(
        TOKENIZER,
        elmo=model,
        static=vectors,
        reader=ReaderConfig(**{"cells": 5, "hidden": 7, **reader}),
    )


def batch(kind: str, *more: dict) -> dict[str, torch.Tensor]:
    frame = Frame(TOKENIZER, body().config, kind, classes=None if kind in ("choice", "span") else 3)
    made = frame.collate(frame.rows([ROWS[kind], *more]))
    return {name: value for name, value in made.items() if name != "labels"}


def test_words_are_framed_by_marks_and_keep_their_places():
    code = TOKENIZER.encode("The dog barks.", "Anna's zebra sleeps")
    assert code.tokens == [
        "<S>",
        "The",
        "dog",
        "barks",
        ".",
        "</S>",
        "<S>",
        "Anna",
        "'s",
        "<UNK>",
        "sleeps",
        "</S>",
    ]
    assert code.segments == [0] * 6 + [1] * 6 and code.offsets[1:5] == [
        (0, 3),
        (4, 7),
        (8, 13),
        (13, 14),
    ]
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
    assert torch.equal(model.spelled[ids], chars) and (model.spelled[0] == 0).all()
    with torch.no_grad():
        layers = model.eval().elmo(chars)
        assert torch.allclose(
            model(ids, attention_mask=torch.ones(1, 4, dtype=torch.bool)),
            sum(layers) / 3,
            atol=1e-6,
        )


@pytest.mark.parametrize("kind", ROWS)
def test_shapes_and_padding(kind):
    model = body(static=True).for_task(kind, None if kind in PAIRS and kind != "pair" else 3).eval()
    longer = {
        "single": {"text": "The dog sleeps ? The cat barks .", "label": 0},
        "tagging": {"tokens": ["The"] * 7, "labels": [0] * 7},
        "pair": {
            "text": "The dog sleeps ? The cat",
            "pair": "Anna The dog sleeps . The bad dog",
            "label": 1,
        },
        "choice": {
            "text": "The good dog sleeps .",
            "choices": ["The bad cat barks"] * 3,
            "label": 0,
        },
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
        second = (together["segments"] == 1) & together["attention_mask"]
        assert (two[:, ~second] < -1000).all() and (two[:, second].abs() < 100).all()
        return
    shapes = {"single": (1, 3), "pair": (1, 3), "choice": (1, 3), "tagging": (1, 5, 3)}
    assert one.shape == shapes[kind]
    assert torch.allclose(
        two[0, : one.shape[1]] if kind == "tagging" else two[0], one[0], atol=1e-5
    )


def test_the_texts_attend_to_each_other_and_not_to_padding():
    model = body().for_task("pair", 2).eval()
    other = {"text": ROWS["pair"]["text"], "pair": "The bad dog ?", "label": 0}
    firsts = []
    for some in (batch("pair"), batch("pair", other)):
        with torch.no_grad():
            (u, keep_u), (_, keep_v) = model._read_both(
                some["ids"], some["attention_mask"], some["segments"]
            )
        firsts.append(u)
        assert keep_u.sum(1).tolist() == [6] * len(u) and keep_v.sum(1).tolist() == [7, 6][: len(u)]
    # the same first text beside another second one
    assert not torch.allclose(firsts[1][0], firsts[1][1], atol=1e-6)
    assert torch.allclose(firsts[0][0], firsts[1][0], atol=1e-6)


def learnable(n: int) -> list[dict]:
    """Whether the animal is a dog."""
    animals = ["dog", "cat"]
    return [
        {"text": f"The {animals[i % 2]} {['barks', 'sleeps'][i // 2 % 2]} .", "label": i % 2}
        for i in range(n)
    ]


@pytest.mark.parametrize("frozen", [True, False])
def test_finetuning_takes_it_as_a_body(frozen):
    start = body(cells=16, hidden=16, dropout=0.0)
    before = {name: value.clone() for name, value in start.state_dict().items()}
    task = {"train": learnable(32), "test": learnable(8)}
    result = finetune(
        start,
        task,
        TOKENIZER,
        FinetuneConfig(epochs=20, lr=0.02, batch=8, frozen=frozen, classes=["cat", "dog"]),
    )
    assert result.score == 1.0 and predict(result, learnable(2)) == [0, 1]
    assert all(torch.equal(value, before[name]) for name, value in start.state_dict().items())
    assert isinstance(result.model, TaskModel)
    trained = result.model.body.state_dict()
    same = [
        torch.equal(trained[f"elmo.{name}"], value)
        for name, value in start.elmo.state_dict().items()
    ]
    assert all(same) if frozen else not any(same)
    assert not torch.equal(trained["mix.scores"], before["mix.scores"])


def test_what_is_frozen_tuned_or_fresh():
    start = body(static=True)
    ways = ({"frozen": True}, {}, {"pretrained": False})
    frozen, tuned, fresh = (start.for_task("single", 2, **how).train().body for how in ways)
    assert (
        not frozen.elmo.training and frozen.mix.training and not frozen.static.weight.requires_grad
    )
    assert tuned.elmo.training and tuned.static.weight.requires_grad
    assert torch.equal(tuned.static.weight, start.static.weight)
    assert not torch.equal(fresh.elmo.forwards[0].recurrent, start.elmo.forwards[0].recurrent)
    assert not torch.equal(fresh.static.weight, start.static.weight)
