"""Lessons with another model: MODEL is a folder that transformers wrote, of another size,
vocabulary and casing.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from sentence_transformers.sentence_transformer import SentenceTransformer, modules

from course_lib import data
from tests.notebooks.test_smoke import smoke
from tests.parity.public import byte_level, wordpiece
from tools.notebooks import find, lessons
from tools.notebooks.build import read
from tools.notebooks.run import declared

LESSONS = {  # and what they can be about
    "00_start_here": ["sentence"],
    "09_bert": ["bert", "roberta"],
    "10_bert_finetuning": ["bert", "distilbert"],
    "11_inside_bert": ["roberta"],
    "12_roberta": ["roberta"],
    "13_distilbert": ["bert"],
    "14_electra": ["electra"],
    "15_sbert": ["distilbert", "sentence"],
    "18_gpt2": ["gpt2"],
    "19_gpt3": ["gpt2"],
    "20_peft": ["roberta"],
}
SIZE: dict[str, int] = {"num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 120}
SIZE |= {"hidden_size": 48, "max_position_embeddings": 258}
FEED_FORWARD = {"distilbert": "hidden_dim", "gpt2": "n_inner"}  # their names of intermediate_size


def public(kind: str, folder: Path) -> str:
    """A random model with its tokenizer; ELECTRA's generator beside it; "sentence":
    sentence-transformers' own.
    """
    if kind == "sentence":
        body = modules.Transformer(public("bert", folder.with_name("sentence-body")))
        pooling = modules.Pooling(SIZE["hidden_size"], pooling_mode="mean")
        SentenceTransformer(modules=[body, pooling], device="cpu").save(str(folder))
        return str(folder)
    texts = [row["text"] for row in data.corpus("world", n=200)]
    if kind == "roberta":
        special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
        tokenizer = byte_level("RobertaTokenizer", *special, texts=texts, size=900)
    elif kind == "gpt2":
        tokenizer = byte_level("GPT2Tokenizer", "<|endoftext|>", texts=texts, size=900)
    else:
        tokenizer = wordpiece("BertTokenizer", texts, 1100, cased=True)
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, vocab_size=len(tokenizer))
    for name, value in SIZE.items():  # by the names that nearly all families know
        if name == "intermediate_size":
            name = FEED_FORWARD.get(kind, name)
        setattr(config, name, value)
    if kind == "gpt2":
        config.bos_token_id = config.eos_token_id = 0
    makers = {"": transformers.AutoModelForPreTraining}
    if kind == "electra":
        config.embedding_size = 24
        makers["-generator"] = transformers.AutoModelForMaskedLM
    for ending, maker in makers.items():
        place = folder.with_name(folder.name + ending)
        maker.from_config(config).save_pretrained(place)
        tokenizer.save_pretrained(place)
    return str(folder)


@pytest.fixture(scope="module")
def runs(background: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """Lesson and kind of model -> its run, which takes its turn: two at a time."""
    out = tmp_path_factory.mktemp("models")
    models = {
        kind: public(kind, out / kind)
        for kind in sorted({k for some in LESSONS.values() for k in some})
    }
    given = {"SCALE": "smoke", "SEED": 1, "OUT": str(out / "out")}
    return {
        (name, kind): background.submit(
            smoke, find(name), given | {"MODEL": models[kind]}, out / kind / "run"
        )
        for name, kinds in LESSONS.items()
        for kind in kinds
    }


@pytest.mark.slow
@pytest.mark.notebooks
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, kinds in LESSONS.items() for kind in kinds]
)
def test_another_model(runs: dict[tuple[str, str], Any], name: str, kind: str) -> None:
    assert runs[name, kind].result()[0].stat().st_size > 10_000


def test_which_lessons_can() -> None:
    """All whose parameters have a MODEL are tried."""
    assert {path.stem for path in lessons() if "MODEL" in declared(read(path))} == set(LESSONS)
