"""Weights from a folder: every way a folder can be wrong is one clear sentence, and no model is
half-loaded.
"""

import json
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from safetensors.torch import load_file, save_file

from course_lib import zoo
from course_lib.errors import CourseError
from course_lib.families.bert import bert
from course_lib.families.fields import PUBLIC_ACTIVATIONS
from course_lib.model.config import Activation, Pool
from course_lib.model.heads import MLM
from course_lib.model.layers import ACTIVATIONS
from course_lib.model.transformer import Transformer
from course_lib.zoo.sentence_folders import POOLS

IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
SIZES = {"width": 16, "layers": 2, "heads": 2, "length": 10}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return MLM(Transformer(bert(20, **SIZES))).eval()


@pytest.fixture
def folder(model, tmp_path):
    zoo.save_pretrained(
        model, tmp_path / "model", model_type="bert", architecture="BertForMaskedLM"
    )
    return tmp_path / "model"


def change_weights(folder, change):
    file = folder / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file)


def test_every_activation_and_pool_has_its_function_and_its_public_name() -> None:
    assert ACTIVATIONS.keys() == set(get_args(Activation)) == PUBLIC_ACTIVATIONS.keys()
    assert set(POOLS.values()) == set(get_args(Pool))


def test_an_activation_without_a_public_name_is_named(model, tmp_path, monkeypatch) -> None:
    monkeypatch.delitem(PUBLIC_ACTIVATIONS, "gelu")
    with pytest.raises(CourseError, match="The activation 'gelu' has no name in public files"):
        zoo.save_pretrained(model, tmp_path / "model")


NAME = "bert.encoder.layer.1.output.dense.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop(NAME), r"lacks 1 weights.*encoder\.layer\.1\.output\.dense\.weight"),
        (
            lambda w: w.update({"bert.encoder.layer.1.extra": torch.ones(2)}),
            r"holds encoder\.layer\.1\.extra",
        ),
        (
            lambda w: w.update({NAME.replace("1", "7"): w[NAME].clone()}),
            r"holds encoder\.layer\.7\.output",
        ),
        (
            lambda w: w.update({NAME: torch.ones(3, 3)}),
            r"blocks\.1\.ff\.down\.weight has shape \[3, 3\].*\[16, 64\]",
        ),
    ],
    ids=["missing", "unknown", "one layer too many", "shape"],
)
def test_weights_that_do_not_fit(folder, change, message):
    change_weights(folder, change)
    with pytest.raises(CourseError, match=message):
        zoo.load_pretrained(folder)


def test_files_that_are_cut_short_or_pickled(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(
        CourseError, match=r"model\.safetensors cannot be read.*damaged or cut short"
    ):
        zoo.load_pretrained(folder)
    file.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"not opened")
    with pytest.raises(CourseError, match="no safetensors file; pickled weights are not opened"):
        zoo.load_pretrained(folder)


def test_a_model_too_large_for_memory(folder, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10_000))
    with pytest.raises(
        CourseError, match=r"GB of weights need twice as much memory; 0\.0 GB are free"
    ):
        zoo.load_pretrained(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"config\.json is not valid JSON"),
        (
            json.dumps({"model_type": "bert", "architectures": ["BertModel"]}),
            "has no field 'vocab_size'",
        ),
        (None, r"no file .*config\.json"),
    ],
)
def test_config_files_that_are_none(folder, content, message):
    (folder / "config.json").unlink()
    if content is not None:
        (folder / "config.json").write_text(content)
    with pytest.raises(CourseError, match=message):
        zoo.load_pretrained(folder)


def test_old_names_and_buffers_in_parts(model, folder):
    """Norms called gamma and beta, a buffer that later versions leave out, the file cut in
    three.
    """

    def rename(weights):
        for name in list(weights):
            if "LayerNorm" in name:
                old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                    "LayerNorm.bias", "LayerNorm.beta"
                )
                weights[old] = weights.pop(name)
        assert sum("gamma" in n for n in weights) == 6
        weights["bert.embeddings.position_ids"] = torch.arange(10)[None]

    change_weights(folder, lambda w: w.update({n: t.half() for n, t in w.items()}))
    loaded = zoo.load_pretrained(folder)
    assert not loaded.training and {p.dtype for p in loaded.parameters()} == {torch.float32}
    zoo.save_pretrained(model, folder)
    change_weights(folder, rename)
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    (folder / "model.safetensors").unlink()
    for n in range(3):
        save_file(
            {name: weights[name] for name in names[n::3]},
            folder / f"model-0000{n + 1}-of-00003.safetensors",
        )
    assert torch.equal(zoo.load_pretrained(folder)(IDS), model(IDS))
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CourseError, match=r"lacks .* weights"):
        zoo.load_pretrained(folder)


def test_saving_refuses_what_the_public_model_cannot_say(model, tmp_path):
    with pytest.raises(CourseError, match="Nothing is known of 'BertForTea'"):
        zoo.save_pretrained(model, tmp_path / "x", model_type="bert", architecture="BertForTea")
    with pytest.raises(CourseError, match="cannot express this configuration"):
        zoo.save_pretrained(
            model, tmp_path / "x", model_type="gpt2", architecture="GPT2LMHeadModel"
        )
    with pytest.raises(
        CourseError, match=r"no weight .*, which the public layout needs|No rule says"
    ):
        zoo.save_pretrained(
            model, tmp_path / "x", model_type="bert", architecture="BertForQuestionAnswering"
        )
    assert not (tmp_path / "x").exists()
