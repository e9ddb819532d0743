"""Lessons 07 to 21 with another model or other texts: what a network would bring, from local
folders.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from course_lib import zoo
from course_lib.data.tokenizers import add_sentinels, train_wordpiece
from course_lib.families.albert import albert
from course_lib.families.bart import bart, bart_lm
from course_lib.families.t5 import t5, t5_lm
from course_lib.model.heads import MLM
from course_lib.model.transformer import Transformer
from tests.classroom.checks.lessons import cells_of, own_labels, public, run_cells, started

pytestmark = pytest.mark.slow
HUB = pytest.mark.parametrize("form", ["hub:{}", "{}"])


def small_public_bert(folder: Path, layers: int) -> str:
    """By transformers itself."""
    _, tokenizer, _ = zoo.load("bert-mini")
    torch.manual_seed(0)
    size = {
        "hidden_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    model = transformers.BertForPreTraining(
        transformers.BertConfig(vocab_size=tokenizer.vocab.size, **size)
    )
    model.save_pretrained(folder)
    tokenizer.save(folder)
    return str(folder)


def working(lesson: str) -> list[str]:
    """All cells behind the first but quizzes and the exercises' checks."""
    ids = dict.fromkeys(re.sub(r"_\d$", "", cell.id) for cell in cells_of(lesson))
    left_out = ("quiz-", "parameters", "start")
    return [
        i
        for i in ids
        if not i.startswith(left_out) and (i.endswith("-stub") or not i.startswith("ex-"))
    ]


SIZE: dict[str, Any] = {"width": 16, "layers": 1, "heads": 2}
# a lesson's cell; the model's type and head, how it is built for so many tokens; what is said how
# often
PUBLIC = [
    (
        "12_roberta",
        "ask",
        "albert",
        "AlbertForMaskedLM",
        lambda n: MLM(Transformer(albert(n, embed=8, **SIZE))),
        "%",
        2,
    ),
    (
        "16_bart",
        "public",
        "bart",
        "BartForConditionalGeneration",
        lambda n: bart_lm(bart(n, **SIZE), start=3),
        "\n",
        1,
    ),
    (
        "17_t5",
        "public-ask",
        "t5",
        "T5ForConditionalGeneration",
        lambda n: t5_lm(t5(n, hidden=32, **SIZE)),
        " -> ",
        4,
    ),
]


@HUB
@pytest.mark.parametrize(("lesson", "cell", "kind", "head", "build", "says", "often"), PUBLIC)
def test_a_public_model(
    lesson: str,
    cell: str,
    kind: str,
    head: str,
    build: Any,
    says: str,
    often: int,
    form: str,
    tmp_path: Path,
    capsys: Any,
) -> None:
    words = train_wordpiece(
        ["Nadia bought the lamp. Paul bought the coin in 2017."] * 3, 200, lowercase=False
    )
    torch.manual_seed(0)
    words = add_sentinels(words) if kind == "t5" else words
    folder = public(tmp_path, build(words.vocab.size), words, kind, head)
    place = form.format(folder)
    space = started(lesson, tmp_path, **({"MODEL": place} if lesson == "12_roberta" else {}))
    capsys.readouterr()
    run_cells(
        lesson, space, cell, swap={} if "MODEL" in space else {'PUBLIC = ""': f'PUBLIC = "{place}"'}
    )
    said = capsys.readouterr().out
    assert said.count(says) == often and "nothing is fetched" not in said


def test_10_a_folder_of_labels(tmp_path: Path) -> None:
    folder = own_labels(tmp_path)
    space = started("10_bert_finetuning", tmp_path, "remarks", source=folder)
    assert space["classes"] == ["bad", "good"]
    assert all(text.startswith("mine dev") for text in space["tests"]["text"]), (
        "a test set has no labels"
    )


def test_20_a_folder_of_labels(tmp_path: Path) -> None:
    space = started("20_peft", tmp_path, "task", source=own_labels(tmp_path))
    assert space["task"]["train"].features["label"].names == ["bad", "good"]
    assert all(text.startswith("mine dev") for text in space["task"]["test"]["text"])


def test_07_a_folder_of_labels(tmp_path: Path) -> None:
    task = started("07_transfer", tmp_path, source=own_labels(tmp_path, rows=90))["task"]
    assert task.names == ["bad", "good"]
    assert all(row["text"].startswith("mine train") for row in task.train)
    assert all(row["text"].startswith("mine dev") for row in task.test)


TREEBANK = """1\tThe\t_\tDET\t_\t_\t3\tdet\t_\t_
2\told\t_\tADJ\t_\t_\t3\tamod\t_\t_
3\tdog\t_\tNOUN\t_\t_\t4\tnsubj\t_\t_
4\tsaw\t_\tVERB\t_\t_\t0\troot\t_\t_
5\ta\t_\tDET\t_\t_\t6\tdet\t_\t_
6\tcat\t_\tNOUN\t_\t_\t4\tobj\t_\t_

"""


def test_11_a_public_model_and_a_treebank(tmp_path: Path) -> None:
    model = small_public_bert(tmp_path / "model", layers=3)
    (tmp_path / "small.conllu").write_text(TREEBANK * 40, "utf-8")
    ids = working("11_inside_bert")
    space = started(
        "11_inside_bert",
        tmp_path,
        *ids[ids.index("sentence") : ids.index("rivals-table") + 1],
        source=tmp_path / "small.conllu",
        MODEL=model,
    )
    assert (space["LAYERS"], space["HEADS"]) == (3, 2)
    assert space["row"]["tokens"] == ["The", "old", "dog", "saw", "a", "cat"]
    assert space["offset"] == -2 and space["by_offset"] == 1  # the objects'


OWN_TEXTS = [  # a lesson's cells, and where the texts are then
    ("12_roberta", ["text"], lambda space: space["texts"]),
    ("13_distilbert", ["rows"], lambda space: space["others"]),
    ("14_electra", ["texts", "one-row"], lambda space: space["texts"]),
    ("16_bart", ["sentences"], lambda space: space["texts"]),
    (
        "19_gpt3",
        ["ex-induction-stub", "twice", "find", "circuit-real", "text"],
        lambda space: space["texts"],
    ),
]


@pytest.mark.parametrize(("lesson", "cells", "found"), OWN_TEXTS)
def test_texts_of_ones_own(lesson: str, cells: list[str], found: Any, tmp_path: Path) -> None:
    pages = [
        f"My own page says the {word} again, naïve 🙂. " * 5
        for word in ("lamp", "coin", "shelf", "mill") * 10
    ]
    (tmp_path / "train.jsonl").write_text(
        "\n".join(json.dumps({"text": page}) for page in pages), "utf-8"
    )
    texts = found(started(lesson, tmp_path, *cells, source=tmp_path))
    assert texts and all("own page" in text.lower() for text in texts)


def test_15_another_encoder_and_texts(tmp_path: Path) -> None:
    """A folder of one's own is searched, trained on, and opened by sentence-transformers."""
    model = small_public_bert(tmp_path / "model", layers=2)
    (tmp_path / "texts").mkdir()
    for split in ("train", "test"):
        pages = [
            f"Title {split} {i}. The {'old ' * (i % 7)} mill number {i} stands by the river of"
            f" {i}. " * 2
            for i in range(30)
        ]
        (tmp_path / "texts" / f"{split}.jsonl").write_text(
            "\n".join(json.dumps({"text": page}) for page in pages), "utf-8"
        )
    space = started(
        "15_sbert", tmp_path, *working("15_sbert"), source=tmp_path / "texts", MODEL=model
    )
    assert space["vectors"].shape == (len(space["paragraphs"]), 32)
    assert all(query.startswith("Title test") for query in space["questions"])
    assert len(space["hits"]) == 3


def test_19_a_public_model(tmp_path: Path) -> None:
    """A public GPT-2 answers by the student's prompts, and its heads are found."""
    shipped = zoo.load("gpt-english")
    folder = public(tmp_path / "gpt2", shipped.model, shipped.tokenizer, "gpt2", "GPT2LMHeadModel")
    ids = working("19_gpt3")
    cells = (
        "rule",
        "ask",
        "accuracy",
        *ids[ids.index("ex-induction-stub") : ids.index("remove") + 1],
    )
    space = started("19_gpt3", tmp_path, "ex-prompt-stub", "ex-scores-stub", *cells, MODEL=folder)
    assert (space["previous"], space["finders"][0]) == ((0, 1), (3, 0))
    assert [row["switched off"] for row in space["rows"][:2]] == ["none", "4-1 and 4-3"]
    assert not {(3, 0), (3, 2)} & {head for pair in space["pairs"] for head in pair}


def test_21_reviews_of_ones_own(tmp_path: Path) -> None:
    """Labelled texts of one's own take the place of the course's."""
    for split in ("train", "test"):
        rows = [{"text": f"{split} {i}", "label": ["bad", "good"][i % 2]} for i in range(20)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    space = started("21_choosing", tmp_path, source=tmp_path)
    assert [row.answer for row in space["reviews"]] == [f"train {i}" for i in range(20)]
