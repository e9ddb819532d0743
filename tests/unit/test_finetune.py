"""Frames, labels and scores of the five kinds of task, for encoders and decoders."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from course_lib import heads, metrics
from course_lib.config import EmbedConfig, Learned, StackConfig
from course_lib.errors import CourseError
from course_lib.finetune import Result, features, finetune, predict, sweep
from course_lib.inputs import Frame, Kind, TaskBatches, kind_of
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer, train_bpe, train_wordpiece

WORDS = "red green blue pink grey Ann Bob Eve Tom Zoe went saw left met likes mill shop park dock farm".split()  # noqa: SIM905
TEXTS = [" ".join(random.Random(i).choices(WORDS, k=12)) + ". " for i in range(200)]
WORDPIECE, BPE = train_wordpiece(TEXTS, 90), train_bpe(TEXTS, 330)
Rows = list[dict[str, Any]]


def stack(tokenizer: Tokenizer, length: int = 32) -> Stack:
    torch.manual_seed(0)
    causal = tokenizer is BPE
    config = StackConfig(
        EmbedConfig(tokenizer.vocab.size, segments=0 if causal else 2, norm=not causal), width=32, layers=1, heads=2,
        hidden=64, position=Learned(length), causal=causal, norm="pre" if causal else "post", final_norm=causal,
        dropout=0.0, attention_dropout=0.0, init_std=0.1,
    )  # fmt: skip
    return Stack(config)


def text(rng: random.Random, k: int = 5) -> str:
    return " ".join(rng.choices(WORDS, k=k))


def single(rng: random.Random) -> dict[str, Any]:
    words = rng.choices(WORDS[:15], k=5)
    label = rng.randrange(2)
    words[rng.randrange(5)] = ("mill", "dock")[label]
    return {"text": " ".join(words), "label": label}


def pair(rng: random.Random) -> dict[str, Any]:
    row = single(rng)
    return {"text": text(rng, 3), "pair": row["text"], "label": row["label"]}


def tagging(rng: random.Random) -> dict[str, Any]:
    tokens = rng.choices(WORDS, k=6)
    return {"tokens": tokens, "labels": [1 if w in ("Ann", "Bob", "Eve", "Tom", "Zoe") else 0 for w in tokens]}


def choice(rng: random.Random) -> dict[str, Any]:
    label = rng.randrange(3)
    choices = [f"{text(rng, 2)} {'mill' if i == label else 'dock'}" for i in range(3)]
    return {"text": text(rng, 3), "choices": choices, "label": label}


def span(rng: random.Random) -> dict[str, Any]:
    words = rng.choices(WORDS[:10], k=6)
    place = rng.randrange(6)
    words[place] = "mill"
    return {"text": "saw ?", "pair": " ".join(words), "answer": "mill", "start": len(" ".join([*words[:place], ""]))}


MAKERS: dict[Kind, Callable[[random.Random], dict[str, Any]]] = {
    "single": single, "pair": pair, "tagging": tagging, "choice": choice, "span": span,
}  # fmt: skip


def rows(kind: Kind, n: int, seed: int) -> Rows:
    rng = random.Random(seed)
    return [MAKERS[kind](rng) for _ in range(n)]


def run(kind: Kind, tokenizer: Tokenizer, **options: Any) -> Result:
    task = {"train": rows(kind, 160, 0), "test": rows(kind, 40, 1)}
    names = {"classes": ["O", "B-PER"]} if kind == "tagging" else {}
    defaults: dict[str, Any] = {"epochs": 3, "lr": 1e-2, "batch": 16} | names
    return finetune(stack(tokenizer), task, tokenizer, **(defaults | options))


@pytest.mark.parametrize("tokenizer", [WORDPIECE, BPE], ids=["encoder", "decoder"])
@pytest.mark.parametrize("kind", list(MAKERS))
def test_each_kind_is_learned_by_both_kinds_of_stack(kind: Kind, tokenizer: Tokenizer) -> None:
    result = run(kind, tokenizer, epochs=6)
    assert result.score > 0.9, (kind, result.score)
    assert len(result.predictions) == len(result.truth) == 40
    default = {"tagging": "entity_f1", "span": "exact_match"}
    assert result.metric == default.get(kind, "accuracy")
    assert [step.step for step in result.history] == list(range(1, 61))
    if kind in ("single", "pair", "tagging"):
        assert all(0.8 < row["f1"] <= 1 for row in result.per_class.values())
        assert sum(row["count"] for row in result.per_class.values()) == (240 if kind == "tagging" else 40)


def test_equal_seeds_give_equal_results_and_the_stack_stays_as_it_was() -> None:
    body = stack(WORDPIECE)
    before = {name: value.clone() for name, value in body.state_dict().items()}
    task = {"train": rows("single", 40, 0), "test": rows("single", 10, 1)}
    state = torch.get_rng_state()
    runs = [finetune(body, task, WORDPIECE, epochs=1, seed=seed, dropout=0.2) for seed in (3, 3, 4)]
    losses = [[step.loss for step in run.history] for run in runs]
    assert losses[0] == losses[1] != losses[2]
    assert torch.equal(torch.get_rng_state(), state), "the caller's random numbers moved"
    assert all(torch.equal(before[name], value) for name, value in body.state_dict().items())
    assert all(p.requires_grad for p in body.parameters())


def test_frozen_trains_the_head_only_and_scratch_forgets() -> None:
    body = stack(WORDPIECE)
    task = {"train": rows("single", 40, 0), "test": rows("single", 10, 1)}
    frozen = finetune(body, task, WORDPIECE, epochs=1, lr=0.1, frozen=True)
    own = frozen.model.state_dict()
    assert all(torch.equal(value, own[f"stack.{name}"]) for name, value in body.state_dict().items())
    assert own["out.weight"].abs().max() > 0.2
    scratch = finetune(body, task, WORDPIECE, epochs=1, lr=1e-9, pretrained=False, seed=5)
    assert not torch.allclose(scratch.model.state_dict()["stack.embed.tokens.weight"], body.embed.tokens.weight)
    tuned = finetune(body, task, WORDPIECE, epochs=1, lr=1e-9)
    torch.testing.assert_close(tuned.model.state_dict()["stack.embed.tokens.weight"], body.embed.tokens.weight)


def test_best_keeps_the_epoch_with_the_best_validation_score() -> None:
    """The validation labels are swapped: the more is learned, the lower the score."""
    swapped = [row | {"label": 1 - row["label"]} for row in rows("single", 40, 1)]
    task = {"train": rows("single", 80, 0), "validation": swapped, "test": swapped}
    options: dict[str, Any] = {"epochs": 5, "lr": 3e-3, "batch": 8}
    last = finetune(stack(WORDPIECE), task, WORDPIECE, **options)
    best = finetune(stack(WORDPIECE), task, WORDPIECE, best=True, **options)
    assert len(last.validation) == 5 and last.validation == best.validation
    assert last.score == last.validation[-1]
    assert best.score == max(best.validation) > last.score
    with pytest.raises(CourseError, match="no validation rows"):
        finetune(stack(WORDPIECE), {"train": task["train"], "test": task["test"]}, WORDPIECE, best=True)


def test_scores_are_regressed() -> None:
    def score(n: int, seed: int) -> Rows:
        return [{"text": r["text"], "label": r["label"] * 2.5 + 0.5} for r in rows("single", n, seed)]

    task = {"train": score(120, 0), "test": score(30, 1)}
    result = finetune(stack(WORDPIECE), task, WORDPIECE, epochs=4, lr=1e-2, batch=16)
    assert result.metric == "pearson" and result.score > 0.9 and result.per_class == {}
    assert all(isinstance(p, float) for p in result.predictions)


def test_other_metrics_of_the_same_answers() -> None:
    result = run("span", WORDPIECE)
    assert result.by("exact_match") == result.score <= result.by("token_f1")
    assert result.by("token_f1") == metrics.token_f1(result.predictions, result.truth)
    tags = run("tagging", WORDPIECE)
    flat = [
        p == t for said, true in zip(tags.predictions, tags.truth, strict=True) for p, t in zip(said, true, strict=True)
    ]
    assert tags.by("accuracy") == sum(flat) / len(flat)


def test_a_pretrained_pooler_is_where_the_classifier_begins() -> None:
    task = {"train": rows("single", 8, 0), "test": rows("single", 4, 0)}
    options: dict[str, Any] = {"epochs": 1, "lr": 1e-9}
    model = heads.Pretraining(stack(WORDPIECE))
    given, theirs = finetune(model, task, WORDPIECE, **options).model, model.pooler.dense.weight
    torch.testing.assert_close(given.pooler.dense.weight, theirs)  # type: ignore[union-attr]
    for fresh in (
        finetune(model.stack, task, WORDPIECE, **options),
        finetune(model, task, WORDPIECE, pretrained=False, **options),
    ):
        assert not torch.allclose(fresh.model.pooler.dense.weight, theirs)  # type: ignore[union-attr]
    finetune(model, task, WORDPIECE, pool="mean", **options)  # has no pooler to begin with
    other = heads.Classifier(model.stack, 2, pooler=heads.Pooler(model.stack, torch.relu))  # DistilBERT's
    assert finetune(other, task, WORDPIECE, **options).model.pooler.activation is torch.relu  # type: ignore[union-attr]


def test_live_gets_the_steps_and_their_number_before_each_validation_is_over() -> None:
    task = {"train": rows("single", 32, 0), "validation": rows("single", 16, 2), "test": rows("single", 8, 1)}
    seen: list[tuple[int, int]] = []

    def live(steps: Any, total: int) -> list[Any]:
        return [seen.append((step.step, total)) or step for step in steps]  # type: ignore[func-returns-value]

    options: dict[str, Any] = {"epochs": 2, "batch": 8, "lr": 1e-2}
    result = finetune(stack(WORDPIECE), task, WORDPIECE, live=live, **options)
    assert seen == [(i, 8) for i in range(1, 9)]
    plain = finetune(stack(WORDPIECE), task, WORDPIECE, **options)
    assert [s.loss for s in result.history] == [s.loss for s in plain.history]
    assert result.validation == plain.validation and len(result.validation) == 2


def test_a_sweep_is_the_same_run_at_each_rate() -> None:
    task = {"train": rows("single", 40, 0), "test": rows("single", 20, 1)}
    found = sweep(stack(WORDPIECE), task, WORDPIECE, lrs=[1e-9, 1e-2], seeds=[0, 1], epochs=1)
    assert list(found) == [1e-9, 1e-2] and all(len(results) == 2 for results in found.values())
    alone = finetune(stack(WORDPIECE), task, WORDPIECE, lr=1e-2, seed=1, epochs=1)
    assert alone.predictions == found[1e-2][1].predictions
    with pytest.raises(CourseError, match="at least one learning rate"):
        sweep(stack(WORDPIECE), task, WORDPIECE, lrs=[])


def test_features_are_the_frozen_bodys_vectors() -> None:
    body = stack(WORDPIECE).train()
    texts = [text(random.Random(i), k) for i, k in enumerate((2, 9, 4, 6, 3))]
    got = features(body, texts, WORDPIECE, batch=2)
    assert got.shape == (5, 32) and not got.requires_grad and body.training
    with torch.no_grad():
        for vector, sentence in zip(got, texts, strict=True):
            torch.testing.assert_close(vector, body.eval()(torch.tensor([WORDPIECE.encode(sentence).ids]))[0].mean(0))
    first = features(heads.Pretraining(body), texts, WORDPIECE, pairs=texts[::-1], pool="first")
    code = WORDPIECE.encode(texts[1], texts[3])
    with torch.no_grad():
        torch.testing.assert_close(
            first[1], body(torch.tensor([code.ids]), segments=torch.tensor([code.segments]))[0, 0]
        )


def test_new_rows_are_predicted_as_the_test_rows_were() -> None:
    result = run("tagging", WORDPIECE)
    assert predict(result, rows("tagging", 40, 1)) == result.predictions


def test_label_names_come_from_the_dataset() -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    data = datasets.Dataset.from_list(rows("single", 20, 0), features=features)
    result = finetune(stack(WORDPIECE), {"train": data, "test": data}, WORDPIECE, epochs=1)
    assert list(result.per_class) == ["no", "yes"]


def test_a_decoder_reads_start_text_delimiter_pair_extract() -> None:
    frame = Frame(BPE, stack(BPE).config, "pair", classes=2)
    v = BPE.vocab.size
    (row,) = frame.rows([{"text": "Ann saw", "pair": "Bob left", "label": 1}])
    ids = row.ids[0]
    assert (ids[0], ids[-1]) == (v, v + 2) and ids.count(v + 1) == 1
    cut = ids.index(v + 1)
    assert BPE.decode(ids[1:cut]) == "Ann saw" and BPE.decode(ids[cut + 1 : -1]) == "Bob left"
    long = frame.layout(range(100), [1, 2, 3])
    assert len(long) == 32 and long[-4:] == [1, 2, 3, v + 2], "the longer part is the one to cut"
    assert frame.layout([1, 2, 3], range(100))[:5] == [v, 1, 2, 3, v + 1]


def test_an_encoder_reads_cls_text_sep_pair_sep() -> None:
    frame = Frame(WORDPIECE, stack(WORDPIECE).config, "pair", classes=2)
    batch = frame.collate(frame.rows(rows("pair", 4, 0)))
    assert (batch["ids"][:, 0] == WORDPIECE.vocab.cls).all()
    assert (batch["ids"] == WORDPIECE.vocab.sep).sum(1).tolist() == [2] * 4
    assert torch.equal(batch["keep"], batch["ids"] != WORDPIECE.vocab.pad)
    first = (batch["ids"] == WORDPIECE.vocab.sep).int().argmax(1)
    assert torch.equal(batch["segments"].argmax(1), first + 1)


@pytest.mark.parametrize(("tokenizer", "piece"), [(WORDPIECE, 0), (BPE, -1)], ids=["encoder", "decoder"])
def test_a_words_label_stands_at_its_first_or_last_piece(tokenizer: Tokenizer, piece: int) -> None:
    words = ["Ann", "farmgreymill", "Bob"]
    frame = Frame(tokenizer, stack(tokenizer).config, "tagging", classes=3)
    (row,) = frame.rows([{"tokens": words, "labels": [1, 2, 0]}])
    code = tokenizer.encode(words, special=tokenizer is WORDPIECE)
    shift = 0 if tokenizer is WORDPIECE else 1
    places = [i + shift for i, word in enumerate(code.words) if word == 1]
    assert len(places) > 1, "the word should have several pieces"
    assert row.label[places[piece]] == 2
    assert sorted(label for label in row.label if label >= 0) == [0, 1, 2]


@pytest.mark.parametrize("tokenizer", [WORDPIECE, BPE], ids=["encoder", "decoder"])
def test_span_labels_spell_the_answer(tokenizer: Tokenizer) -> None:
    frame = Frame(tokenizer, stack(tokenizer).config, "span")
    for row, item in zip(frame.rows(rows("span", 20, 0)), rows("span", 20, 0), strict=True):
        first, last = row.label
        assert tokenizer.decode(row.ids[0][first : last + 1]).strip() == item["answer"]
        assert row.context is not None
        places = [p for p in row.context[1][first : last + 1] if p is not None]
        assert item["pair"][places[0][0] : places[-1][1]].strip() == "mill"


def test_of_several_true_answers_any_counts() -> None:
    task = {"train": rows("span", 160, 0), "test": rows("span", 20, 1)}
    options: dict[str, Any] = {"epochs": 1, "lr": 1e-9}
    said = finetune(stack(WORDPIECE), task, WORDPIECE, **options).predictions
    wide = [item | {"answers": [item["answer"], text]} for item, text in zip(task["test"], said, strict=True)]
    result = finetune(stack(WORDPIECE), task | {"test": wide}, WORDPIECE, **options)
    assert result.predictions == said and result.score == 1
    assert result.truth[0] == [wide[0]["answer"], said[0]]


def test_cut_rows_lose_their_target_not_their_place() -> None:
    frame = Frame(WORDPIECE, stack(WORDPIECE, length=10).config, "span")
    item = {"text": "saw ?", "pair": text(random.Random(0), 30) + " mill", "answer": "mill"}
    (row,) = frame.rows([item | {"start": item["pair"].rindex("mill")}])
    assert row.label == [-100, -100] and len(row.ids[0]) == 10
    tags = Frame(WORDPIECE, stack(WORDPIECE, length=10).config, "tagging", classes=2)
    (row,) = tags.rows([{"tokens": ["Ann"] * 30, "labels": [1] * 30}])
    assert len(row.words) == len(row.truth) == 30 and row.words[-1] == -1 and len(row.ids[0]) == 10


def test_every_row_comes_once_an_epoch_and_epochs_differ() -> None:
    frame = Frame(WORDPIECE, stack(WORDPIECE).config, "single", classes=40)
    data = frame.rows([{"text": "Ann", "label": i} for i in range(37)])
    batches = TaskBatches(frame, data, 8, seed=0)
    epochs = [[int(y) for i in range(5) for y in batches[e * 5 + i]["labels"]] for e in range(2)]
    assert batches.per_epoch == 5 and epochs[0] != epochs[1]
    assert all(sorted(epoch) == list(range(37)) for epoch in epochs)


def test_kinds_by_their_columns() -> None:
    for kind in MAKERS:
        assert kind_of(rows(kind, 1, 0)[0]) == kind
    with pytest.raises(CourseError, match="make no task"):
        kind_of(["text"])


GOOD = {"train": rows("single", 4, 0), "test": rows("single", 4, 0)}


@pytest.mark.parametrize(
    ("task", "options", "words"),
    [
        ({"train": GOOD["train"]}, {}, "needs 'test' rows"),
        ({"train": [], "test": []}, {}, "no training rows"),
        (GOOD, {"classes": 1}, "only one class"),
        (GOOD | {"test": [{"text": "Ann", "label": 5}]}, {}, "label 5; the labels are 0 to 1"),
        (GOOD | {"test": [{"text": "Ann"}]}, {}, "column 'label'"),
        (GOOD, {"metric": "meteor"}, "no metric 'meteor'"),
        (GOOD, {"epochs": 0}, "at least 1"),
    ],
)
def test_bad_tasks_are_one_sentence(task: dict[str, Rows], options: dict[str, Any], words: str) -> None:
    with pytest.raises(CourseError, match=words):
        finetune(stack(WORDPIECE), task, WORDPIECE, **options)


def test_a_model_without_a_stack_is_refused() -> None:
    with pytest.raises(CourseError, match="a Linear has none"):
        finetune(torch.nn.Linear(2, 2), GOOD, WORDPIECE)


def test_a_tokenizer_of_another_model_is_refused() -> None:
    body = stack(WORDPIECE)
    other = Stack(replace(body.config, embed=replace(body.config.embed, vocab=7)))
    with pytest.raises(CourseError, match="do not belong together"):
        finetune(other, GOOD, WORDPIECE)
