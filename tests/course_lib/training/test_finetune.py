"""Frames, labels and scores of the five kinds of task, for encoders and decoders."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib import zoo
from course_lib.data.inputs import Frame
from course_lib.data.tokenizers import Tokenizer, train_bpe, train_wordpiece
from course_lib.errors import CourseError, CourseWarning
from course_lib.families import family
from course_lib.files import read_json
from course_lib.model import heads
from course_lib.model.config import EmbedConfig, Kind, Learned, Pool, StackConfig
from course_lib.model.transformer import Transformer
from course_lib.training import task_data
from course_lib.training.finetune import (
    FinetuneConfig,
    Live,
    Result,
    finetune,
    load,
    predict,
)
from course_lib.training.finetune_config import CONFIG_FILE

WORDS = [
    *("red", "green", "blue", "pink", "grey", "Ann", "Bob", "Eve", "Tom", "Zoe"),
    *("went", "saw", "left", "met", "likes", "mill", "shop", "park", "dock", "farm"),
]
TEXTS = [" ".join(random.Random(i).choices(WORDS, k=12)) + ". " for i in range(200)]
WORDPIECE, BPE = train_wordpiece(TEXTS, 90), train_bpe(TEXTS, 330)
Rows = list[dict[str, Any]]


def stack(tokenizer: Tokenizer, length: int = 32) -> Transformer:
    torch.manual_seed(0)
    causal = tokenizer is BPE
    config = StackConfig(
        EmbedConfig(tokenizer.vocab.size, segments=0 if causal else 2, norm=not causal),
        width=32,
        layers=1,
        heads=2,
        hidden=64,
        position=Learned(length),
        causal=causal,
        norm="pre" if causal else "post",
        final_norm=causal,
        dropout=0.0,
        attention_dropout=0.0,
        init_std=0.1,
    )
    return Transformer(config)


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
    return {
        "tokens": tokens,
        "labels": [1 if w in ("Ann", "Bob", "Eve", "Tom", "Zoe") else 0 for w in tokens],
    }


def choice(rng: random.Random) -> dict[str, Any]:
    label = rng.randrange(3)
    choices = [f"{text(rng, 2)} {'mill' if i == label else 'dock'}" for i in range(3)]
    return {"text": text(rng, 3), "choices": choices, "label": label}


def span(rng: random.Random) -> dict[str, Any]:
    words = rng.choices(WORDS[:10], k=6)
    place = rng.randrange(6)
    words[place] = "mill"
    return {
        "text": "saw ?",
        "pair": " ".join(words),
        "answer": "mill",
        "start": len(" ".join([*words[:place], ""])),
    }


MAKERS: dict[Kind, Callable[[random.Random], dict[str, Any]]] = {
    "single": single,
    "pair": pair,
    "tagging": tagging,
    "choice": choice,
    "span": span,
}


def rows(kind: Kind, n: int, seed: int) -> Rows:
    rng = random.Random(seed)
    return [MAKERS[kind](rng) for _ in range(n)]


GOOD = {"train": rows("single", 40, 0), "test": rows("single", 10, 1)}


def run(kind: Kind, tokenizer: Tokenizer, live: Live | None = None, **options: Any) -> Result:
    task = {"train": rows(kind, 160, 0), "test": rows(kind, 40, 1)}
    names = {"classes": ["O", "B-PER"]} if kind == "tagging" else {}
    defaults: dict[str, Any] = {"epochs": 3, "lr": 1e-2, "batch": 16} | names
    return finetune(
        stack(tokenizer), task, tokenizer, FinetuneConfig(**defaults | options), live=live
    )


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
        assert sum(row["count"] for row in result.per_class.values()) == (
            240 if kind == "tagging" else 40
        )


def test_equal_seeds_give_equal_results_and_the_stack_stays_as_it_was() -> None:
    body = stack(WORDPIECE)
    before = {name: value.clone() for name, value in body.state_dict().items()}
    state = torch.get_rng_state()
    runs = [
        finetune(
            body,
            GOOD,
            WORDPIECE,
            FinetuneConfig(epochs=1, seed=seed, dropout=0.2),
        )
        for seed in (3, 3, 4)
    ]
    losses = [[step.loss for step in run.history] for run in runs]
    assert losses[0] == losses[1] != losses[2]
    assert torch.equal(torch.get_rng_state(), state), "the caller's random numbers moved"
    assert all(torch.equal(before[name], value) for name, value in body.state_dict().items())
    assert all(p.requires_grad for p in body.parameters())


def test_frozen_trains_the_head_only_and_scratch_forgets() -> None:
    body = stack(WORDPIECE)
    frozen = finetune(body, GOOD, WORDPIECE, FinetuneConfig(epochs=1, lr=0.1, frozen=True))
    own = frozen.model.state_dict()
    assert all(
        torch.equal(value, own[f"stack.{name}"]) for name, value in body.state_dict().items()
    )
    assert own["out.weight"].abs().max() > 0.2
    scratch = finetune(
        body, GOOD, WORDPIECE, FinetuneConfig(epochs=1, lr=1e-9, pretrained=False, seed=5)
    )
    assert not torch.allclose(
        scratch.model.state_dict()["stack.embed.tokens.weight"], body.embed.tokens.weight
    )
    tuned = finetune(body, GOOD, WORDPIECE, FinetuneConfig(epochs=1, lr=1e-9))
    torch.testing.assert_close(
        tuned.model.state_dict()["stack.embed.tokens.weight"], body.embed.tokens.weight
    )


def test_scores_are_regressed_and_a_saved_score_is_a_score(tmp_path: Path) -> None:
    def score(n: int, seed: int) -> Rows:
        return [
            {"text": r["text"], "label": r["label"] * 2.5 + 0.5} for r in rows("single", n, seed)
        ]

    task = {"train": score(120, 0), "test": score(30, 1)}
    result = finetune(
        stack(WORDPIECE),
        task,
        WORDPIECE,
        FinetuneConfig(epochs=4, lr=1e-2, batch=16, out=tmp_path),
    )
    assert read_json(tmp_path / CONFIG_FILE)["epochs"] == 4
    assert result.metric == "pearson" and result.score > 0.9 and result.per_class == {}
    assert predict(tmp_path, [{"text": row["text"]} for row in task["test"]]) == pytest.approx(
        result.predictions
    )


def test_a_pretrained_pooler_is_where_the_classifier_begins() -> None:
    options: dict[str, Any] = {"epochs": 1, "lr": 1e-9}
    model = heads.Pretraining(stack(WORDPIECE))
    theirs = model.pooler.dense.weight

    def pooler(model: Any, **more: Any) -> Any:
        return finetune(model, GOOD, WORDPIECE, FinetuneConfig(**options, **more)).model.pooler

    torch.testing.assert_close(pooler(model).dense.weight, theirs)
    for fresh in (pooler(model.stack), pooler(model, pretrained=False)):
        assert not torch.allclose(fresh.dense.weight, theirs)
    finetune(
        model, GOOD, WORDPIECE, FinetuneConfig(pool="mean", **options)
    )  # has no pooler to begin with
    # DistilBERT's
    other = heads.Classifier(model.stack, 2, pooler=heads.Pooler(model.stack, torch.relu))
    assert pooler(other).activation is torch.relu


def test_live_gets_the_steps_and_their_number_and_changes_nothing() -> None:
    task = {
        "train": rows("single", 32, 0),
        "validation": rows("single", 16, 2),
        "test": rows("single", 8, 1),
    }
    seen: list[tuple[int, int]] = []

    def live(steps: Any, total: int) -> list[Any]:
        return [seen.append((step.step, total)) or step for step in steps]  # type: ignore[func-returns-value]

    options: dict[str, Any] = {"epochs": 2, "batch": 8, "lr": 1e-2}
    result, plain = (
        finetune(stack(WORDPIECE), task, WORDPIECE, FinetuneConfig(**options), **how)
        for how in ({"live": live}, {})
    )
    assert seen == [(i, 8) for i in range(1, 9)]
    assert [s.loss for s in result.history] == [s.loss for s in plain.history]
    assert result.validation == plain.validation and len(result.validation) == 2


def test_a_decoder_reads_start_text_delimiter_pair_extract() -> None:
    frame = Frame(BPE, stack(BPE).config, "pair", classes=2)
    v = BPE.vocab.size
    (row,) = frame.rows([{"text": "Ann saw", "pair": "Bob left", "label": 1}])
    ids = row.ids[0]
    assert (ids[0], ids[-1]) == (v, v + 2) and ids.count(v + 1) == 1
    cut = ids.index(v + 1)
    assert BPE.decode(ids[1:cut]) == "Ann saw" and BPE.decode(ids[cut + 1 : -1]) == "Bob left"
    short, long = BPE.ids(["Ann saw"])[0], "Bob left " * 40
    for text, pair, kept in (
        ("Ann saw", long, [v, *short, v + 1]),
        (long, "Ann saw", [v + 1, *short, v + 2]),
    ):
        (row,) = frame.rows([{"text": text, "pair": pair, "label": 1}])
        ids = row.ids[0] if text == "Ann saw" else row.ids[0][-len(kept) :]
        assert len(row.ids[0]) == 32 and ids[: len(kept)] == kept, (
            "the longer part is the one to cut"
        )


@pytest.mark.parametrize(
    ("tokenizer", "piece"), [(WORDPIECE, 0), (BPE, -1)], ids=["encoder", "decoder"]
)
def test_a_words_label_stands_at_its_first_or_last_piece(tokenizer: Tokenizer, piece: int) -> None:
    words = ["Ann", "farmgreymill", "Bob"]
    frame = Frame(tokenizer, stack(tokenizer).config, "tagging", classes=3)
    (row,) = frame.rows([{"tokens": words, "labels": [1, 2, 0]}])
    code = tokenizer.encode(words, special=tokenizer is WORDPIECE)
    shift = 0 if tokenizer is WORDPIECE else 1
    places = [i + shift for i, word in enumerate(code.words) if word == 1]
    assert len(places) > 1, "the word should have several pieces"
    assert row.label[places[piece]] == 2 and sorted(label for label in row.label if label >= 0) == [
        0,
        1,
        2,
    ]


def test_of_several_true_answers_any_counts() -> None:
    task = {"train": rows("span", 160, 0), "test": rows("span", 20, 1)}
    options: dict[str, Any] = {"epochs": 1, "lr": 1e-9}
    said = finetune(stack(WORDPIECE), task, WORDPIECE, FinetuneConfig(**options)).predictions
    wide = [
        item | {"answers": [item["answer"], text]}
        for item, text in zip(task["test"], said, strict=True)
    ]
    result = finetune(stack(WORDPIECE), task | {"test": wide}, WORDPIECE, FinetuneConfig(**options))
    assert (
        result.predictions == said
        and result.score == 1
        and result.truth[0] == [wide[0]["answer"], said[0]]
    )


def test_cut_rows_lose_their_target_not_their_place() -> None:
    frame = Frame(WORDPIECE, stack(WORDPIECE, length=10).config, "span")
    item = {"text": "saw ?", "pair": text(random.Random(0), 30) + " mill", "answer": "mill"}
    (row,) = frame.rows([item | {"start": item["pair"].rindex("mill")}])
    assert row.label == [-100, -100] and len(row.ids[0]) == 10
    tags = Frame(WORDPIECE, stack(WORDPIECE, length=10).config, "tagging", classes=2)
    (row,) = tags.rows([{"tokens": ["Ann"] * 30, "labels": [1] * 30}])
    assert len(row.words) == len(row.truth) == 30 and row.words[-1] == -1 and len(row.ids[0]) == 10


LABELS = {"label", "labels", "answer", "start"}


@pytest.mark.parametrize("kind", list(MAKERS))
def test_a_saved_model_answers_new_rows_without_labels(kind: Kind, tmp_path: Path) -> None:
    names = {"classes": ["no", "yes"]} if kind in ("single", "pair") else {}
    result = run(kind, WORDPIECE, epochs=1, out=tmp_path, **names)
    unlabelled = [{k: v for k, v in row.items() if k not in LABELS} for row in rows(kind, 40, 1)]
    assert predict(result, unlabelled) == result.predictions
    assert (
        predict(tmp_path, unlabelled) == result.predictions and load(tmp_path).names == result.names
    )


@pytest.mark.parametrize("name", ["bert", "electra", "distilbert", "gpt"])
@pytest.mark.parametrize("kind", ["single", "pair"])
def test_a_saved_model_answers_in_transformers_as_here(
    kind: Kind, name: str, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    task = {"train": rows(kind, 160, 0), "test": rows(kind, 40, 1)}
    tokenizer = BPE if name == "gpt" else WORDPIECE
    size = {"width": 32, "layers": 1, "heads": 2, "length": 32} | (
        {"embed": 16} if name == "electra" else {}
    )
    body = Transformer(family(name).config(tokenizer.vocab.size, **size))
    options: dict[str, Any] = {"epochs": 2, "lr": 1e-2, "batch": 16, "dropout": 0.0}
    result = finetune(
        body, task, tokenizer, FinetuneConfig(out=tmp_path, classes=["no", "yes"], **options)
    )
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.config.id2label == {0: "no", 1: "yes"}
    asked = rows(kind, 40, 1)
    texts = [[row[key] for row in asked] for key in ("text", "pair") if key in asked[0]]
    batch = result.frame.collate(result.frame.rows(asked))
    with torch.no_grad():
        said = theirs(**words(*texts, padding=True, return_tensors="pt")).logits
        mine = result.model(**{name: value for name, value in batch.items() if name != "labels"})
    assert said.argmax(-1).tolist() == result.predictions == predict(tmp_path, asked)
    torch.testing.assert_close(said, mine, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "auto"),
    [("tagging", "AutoModelForTokenClassification"), ("span", "AutoModelForQuestionAnswering")],
)
@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_a_saved_tagger_and_reader_answer_in_transformers_as_here(
    name: str, kind: Kind, auto: str, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    task = {"train": rows(kind, 80, 0), "test": rows(kind, 20, 1)}
    config = family(name).config(WORDPIECE.vocab.size, width=32, layers=2, heads=2, length=32)
    options: dict[str, Any] = {"epochs": 1, "lr": 1e-2, "batch": 16, "out": tmp_path}
    result = finetune(Transformer(config), task, WORDPIECE, FinetuneConfig(**options))
    theirs = getattr(transformers, auto).from_pretrained(tmp_path).eval()
    batch = result.frame.collate(result.frame.rows(rows(kind, 20, 1)))
    real = batch["attention_mask"]
    segments = {"token_type_ids": batch["segments"]} if "segments" in batch else {}
    with torch.no_grad():
        expected = theirs(input_ids=batch["ids"], attention_mask=real.long(), **segments)
        actual = result.model(**{key: x for key, x in batch.items() if key != "labels"})
    if kind == "tagging":
        torch.testing.assert_close(actual[real], expected.logits[real], atol=1e-5, rtol=1e-5)
    else:
        start, end = actual
        torch.testing.assert_close(start[real], expected.start_logits[real], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(end[real], expected.end_logits[real], atol=1e-5, rtol=1e-5)
    assert predict(tmp_path, rows(kind, 20, 1)) == result.predictions


@pytest.mark.parametrize(("name", "tokenizer"), [("bert", WORDPIECE), ("gpt", BPE)])
@pytest.mark.parametrize("pool", ["mean", "max"])
def test_what_cannot_be_saved_is_said_before_the_training(
    name: str, tokenizer: Tokenizer, pool: Pool, tmp_path: Path
) -> None:
    size = {"width": 16, "layers": 1, "heads": 2, "length": 32}
    body = Transformer(family(name).config(tokenizer.vocab.size, **size))
    seen: list[Any] = []

    def live(steps: Any, total: int) -> Any:
        return map(seen.append, steps)

    options: dict[str, Any] = {"epochs": 1, "pool": pool}
    with pytest.raises(CourseError, match=f"the pool '{pool}' cannot be saved"):
        finetune(body, GOOD, tokenizer, FinetuneConfig(out=tmp_path, **options), live=live)
    assert not seen
    result = finetune(body, GOOD, tokenizer, FinetuneConfig(**options))
    with pytest.raises(CourseError, match=f"the pool '{pool}' cannot be saved"):
        result.save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_only_a_fine_tuned_model_predicts(tmp_path: Path) -> None:
    zoo.save_pretrained(heads.MLM(stack(WORDPIECE)), tmp_path, tokenizer=WORDPIECE)
    with pytest.raises(CourseError, match="is not fine-tuned"):
        predict(tmp_path, rows("single", 2, 0))


def test_another_models_tokenizer_of_equal_size_is_refused() -> None:
    model, own, _ = zoo.load("bert-mini")
    other, task = (
        zoo.load("gpt-mini").tokenizer,
        {name: rows("single", 4, 0) for name in ("train", "test")},
    )
    assert len(other) == len(own)
    for body in (model, model.stack):
        with pytest.raises(CourseError, match="use that one"):
            finetune(body, task, other)


@pytest.mark.parametrize(
    ("names", "metric"),
    [
        (["O", "B-PER", "I-PER"], "entity_f1"),
        (["O", "I-PER"], "entity_f1"),  # CoNLL 2003's own tags
        (["O", "U-PER"], "entity_f1"),
        (["O", "B", "I"], "entity_f1"),
        (["NOUN", "VERB"], "accuracy"),
    ],
)
def test_tags_of_entities_are_scored_as_entities(names: list[str], metric: str) -> None:
    labels = list(range(len(names)))
    rows = [{"tokens": [f"w{i}" for i in labels], "labels": labels}]
    tokenizer = WORDPIECE
    config = family("bert").config(tokenizer.vocab.size, width=8, layers=1, heads=2, length=32)
    model = Transformer(config)
    task = {"train": rows, "test": rows}
    once = FinetuneConfig(classes=names, epochs=1)
    assert finetune(model, task, tokenizer, once).metric == metric


NAMES = {"tagging": ["O", "B-X", "I-X"], "single": ["a", "b", "c"], "score": None, "span": None}
MISFITS = [
    ("single", "token_f1"),
    ("single", "pearson"),
    ("single", "entity_f1"),
    ("single", "f1"),  # of three classes
    ("tagging", "pearson"),
    ("score", "accuracy"),
    ("span", "accuracy"),
]


@pytest.mark.parametrize(("kind", "metric"), MISFITS)
def test_a_metric_of_other_answers_is_refused_before_training(kind: str, metric: str) -> None:
    names = NAMES[kind]
    made = {
        "tagging": {"tokens": ["a"], "labels": [0]},
        "single": {"text": "a", "label": 0},
        "score": {"text": "a", "label": 0.5},
        "span": {"text": "a", "pair": "b", "answer": "b", "start": 0},
    }[kind]
    task = {"train": [made], "test": [made]}
    body = Transformer(stack(WORDPIECE).config)
    config = FinetuneConfig(classes=names, metric=metric, epochs=1)
    with pytest.raises(CourseError, match=r"does not fit the task's answers|take macro_f1"):
        task_data.prepare(task, WORDPIECE, body, config)


def test_a_correlation_of_one_row_is_refused_before_training() -> None:
    rows = [{"text": "a", "label": 0.5}, {"text": "b", "label": 1.5}]
    body = Transformer(stack(WORDPIECE).config)
    with pytest.raises(CourseError, match="A correlation needs two test rows or more"):
        task_data.prepare({"train": rows, "test": rows[:1]}, WORDPIECE, body, FinetuneConfig())


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["O", "B-X", "I-X"], "1 of 2 train sentences have tags that do not follow one another"),
        (["O", "B_X", "I_X"], "The tag 'B_X' looks like one of entities, which is written B-PER"),
        (["O", "X-B", "X-I"], "The tag 'X-B' looks like one of entities"),
    ],
)
def test_odd_tags_are_named_before_training(names: list[str], said: str) -> None:
    rows = [{"tokens": ["a", "b"], "labels": labels} for labels in ([1, 2], [0, 2])]
    body = Transformer(stack(WORDPIECE).config)
    with pytest.warns(CourseWarning, match=said):
        task_data.prepare(
            {"train": rows, "test": rows[:1]}, WORDPIECE, body, FinetuneConfig(classes=names)
        )
