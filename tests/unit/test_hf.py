"""Weights from a folder: every way a folder can be wrong is one clear sentence, and no model is half-loaded."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from course_lib import hf
from course_lib.errors import CourseError
from course_lib.heads import LM, MLM, Classifier
from course_lib.models.bert import bert
from course_lib.models.gpt import gpt
from course_lib.stack import Stack

IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
SIZES = {"width": 16, "layers": 2, "heads": 2, "length": 10}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return MLM(Stack(bert(20, **SIZES))).eval()


@pytest.fixture
def folder(model, tmp_path):
    hf.save_pretrained(model, tmp_path / "model", model_type="bert", architecture="BertForMaskedLM")
    return tmp_path / "model"


def change_weights(folder, change):
    file = folder / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file)


def change_config(folder, **values):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_round_trip_is_exact(model, folder):
    loaded = hf.load_pretrained(folder)
    assert not loaded.training
    assert torch.equal(loaded(IDS), model(IDS))


@pytest.mark.parametrize(
    ("norm", "model_type", "architecture"),
    [("post", "openai-gpt", "OpenAIGPTLMHeadModel"), ("pre", "gpt2", "GPT2LMHeadModel")],
)
def test_round_trip_of_gpts(norm, model_type, architecture, tmp_path):
    model = LM(Stack(gpt(20, norm=norm, **SIZES))).eval()
    hf.save_pretrained(model, tmp_path, model_type=model_type, architecture=architecture)
    assert torch.equal(hf.load_pretrained(tmp_path)(IDS), model(IDS))


def test_number_of_classes_travels_in_the_config(tmp_path):
    model = Classifier(Stack(bert(20, **SIZES)), 5).eval()
    hf.save_pretrained(model, tmp_path, model_type="bert", architecture="BertForSequenceClassification")
    assert torch.equal(hf.load_pretrained(tmp_path)(IDS), model(IDS))


NAME = "bert.encoder.layer.1.output.dense.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop(NAME), r"lacks 1 weights.*encoder\.layer\.1\.output\.dense\.weight"),
        (lambda w: w.update({"bert.encoder.layer.1.extra": torch.ones(2)}), r"holds encoder\.layer\.1\.extra"),
        (lambda w: w.update({NAME.replace("1", "7"): w[NAME].clone()}), r"blocks\.7\.ff\.down\.weight has no place"),
        (lambda w: w.update({NAME: torch.ones(3, 3)}), r"blocks\.1\.ff\.down\.weight has shape \[3, 3\].*\[16, 64\]"),
    ],
    ids=["missing", "unknown", "one layer too many", "shape"],
)
def test_weights_that_do_not_fit(folder, change, message):
    change_weights(folder, change)
    with pytest.raises(CourseError, match=message):
        hf.load_pretrained(folder)


def test_a_config_larger_than_the_weights(folder):
    change_config(folder, num_hidden_layers=3)
    with pytest.raises(CourseError, match=r"lacks 16 weights.*encoder\.layer\.2"):
        hf.load_pretrained(folder)


def test_a_truncated_file(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CourseError, match=r"model\.safetensors cannot be read.*damaged or cut short"):
        hf.load_pretrained(folder)


def test_pickled_weights_are_never_opened(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"not opened")
    with pytest.raises(CourseError, match="no safetensors file; pickled weights are not opened"):
        hf.load_pretrained(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "mystery"}, "model type 'mystery' is not one of the course's.*bert"),
        ({"model_type": None}, "model type None"),
        ({"architectures": ["BertForTea"]}, "architecture 'BertForTea' is not known for bert; choose one of"),
        ({"architectures": None}, "architecture '' is not known"),
        ({"hidden_act": "swoosh"}, "Activation 'swoosh'"),
        ({"num_attention_heads": 3}, "does not divide into 3 heads"),
        ({"position_embedding_type": "relative_key"}, "Only BERT as published"),
    ],
)
def test_configs_that_are_not_understood(folder, values, message):
    change_config(folder, **values)
    with pytest.raises(CourseError, match=message):
        hf.load_pretrained(folder)


def test_no_folder_no_config_broken_config(folder, tmp_path):
    with pytest.raises(CourseError, match="no folder"):
        hf.load_pretrained(tmp_path / "nowhere")
    (folder / "config.json").write_text("{")
    with pytest.raises(CourseError, match=r"config\.json is not valid JSON"):
        hf.load_pretrained(folder)
    (folder / "config.json").unlink()
    with pytest.raises(CourseError, match=r"no file .*config\.json"):
        hf.load_pretrained(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.popitem(),
        lambda w: w.update(extra=torch.ones(1)),
        lambda w: w.update({"head.bias": torch.ones(3)}),
    ],
    ids=["missing", "extra", "shape"],
)
def test_a_model_is_loaded_whole_or_not_at_all(model, change):
    before = {n: w.clone() for n, w in model.state_dict().items()}
    weights = {n: torch.full_like(w, 9.0) for n, w in before.items()}
    change(weights)
    with pytest.raises(CourseError, match="somewhere: "):
        hf.load_strictly(model, weights, "somewhere")
    assert all(torch.equal(w, before[n]) for n, w in model.state_dict().items())


def test_old_names_of_norm_weights(model, folder):
    def rename(weights):
        for name in list(weights):
            if "LayerNorm" in name:
                old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
                weights[old] = weights.pop(name)
        assert sum("gamma" in n for n in weights) == 6

    change_weights(folder, rename)
    assert torch.equal(hf.load_pretrained(folder)(IDS), model(IDS))


def test_buffers_of_older_files_are_dropped(model, folder):
    change_weights(folder, lambda w: w.update({"bert.embeddings.position_ids": torch.arange(10)[None]}))
    assert torch.equal(hf.load_pretrained(folder)(IDS), model(IDS))


def shard(folder) -> None:
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    (folder / "model.safetensors").unlink()
    for n in range(3):
        save_file({name: weights[name] for name in names[n::3]}, folder / f"model-0000{n + 1}-of-00003.safetensors")


def test_a_sharded_folder(model, folder):
    shard(folder)
    assert torch.equal(hf.load_pretrained(folder)(IDS), model(IDS))


def test_a_shard_is_missing(folder):
    shard(folder)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CourseError, match=r"lacks .* weights"):
        hf.load_pretrained(folder)


def test_half_precision_files_load_as_float32(model, folder):
    change_weights(folder, lambda w: w.update({n: t.half() for n, t in w.items()}))
    loaded = hf.load_pretrained(folder)
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}
    torch.testing.assert_close(loaded(IDS), model(IDS), atol=1e-2, rtol=1e-2)


def test_saving_refuses_what_the_public_model_cannot_say(model, tmp_path):
    with pytest.raises(CourseError, match="Nothing is known of 'BertForTea'"):
        hf.save_pretrained(model, tmp_path / "x", model_type="bert", architecture="BertForTea")
    with pytest.raises(CourseError, match="cannot express this configuration"):
        hf.save_pretrained(model, tmp_path / "x", model_type="gpt2", architecture="GPT2LMHeadModel")
    with pytest.raises(CourseError, match=r"no weight .*, which the public layout needs|No rule says"):
        hf.save_pretrained(model, tmp_path / "x", model_type="bert", architecture="BertForQuestionAnswering")
    assert not (tmp_path / "x").exists()


def test_a_config_without_a_needed_field_is_one_sentence(tmp_path):
    from course_lib.files import write_json

    write_json(tmp_path / "config.json", {"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 10})
    with pytest.raises(CourseError, match="hidden_size"):
        hf.load_pretrained(tmp_path)
