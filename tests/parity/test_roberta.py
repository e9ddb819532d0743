"""RoBERTa and its heads against transformers: hidden states, logits, loss, gradients, and back."""

import pytest
import torch
import transformers

from course_lib import hf
from course_lib.heads import MLM
from course_lib.models.roberta import roberta_base, roberta_large, roberta_mini
from course_lib.stack import Stack
from tests.parity import encoders
from tests.parity.public import same_weights

PAD = 1
CONFIGS = {
    "plain": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 64},
    "eps": {
        "hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 40,
        "layer_norm_eps": 1e-3,
    },
    "two segments": {
        "hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2, "intermediate_size": 30,
        "type_vocab_size": 2,
    },
}  # fmt: skip
HEADS = ["ForMaskedLM", "ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification", "Model"]


def public(name, architecture="RobertaModel", **more):
    values = {"type_vocab_size": 1, "layer_norm_eps": 1e-5, "num_labels": 3} | CONFIGS[name] | more
    config = transformers.RobertaConfig(
        vocab_size=encoders.VOCAB, max_position_embeddings=encoders.LENGTH + 2, attn_implementation="eager", **values
    )
    return encoders.public(config, architecture)


@pytest.fixture(params=["right", "left"])
def padded(request, batch):
    """Padding is where the ids are <pad>: the public model counts positions by them."""
    return encoders.sided(batch, request.param, PAD)


def of(name, padded):
    """Segments are read where the model has two of them."""
    return padded if name == "two segments" else {key: padded[key] for key in ("ids", "keep")}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_hidden_state_is_equal(name, padded, tmp_path):
    encoders.assert_hidden_states(public(name), of(name, padded), tmp_path)


@pytest.mark.parametrize("name", CONFIGS)
def test_masked_lm_loss_and_every_gradient_are_equal(name, padded, tmp_path):
    encoders.assert_masked_lm(public(name, "RobertaForMaskedLM"), of(name, padded), tmp_path)


def test_classification_loss_and_every_gradient_are_equal(batch, tmp_path):
    batch = of("plain", encoders.sided(batch, "right", PAD))
    encoders.assert_classifier(public("plain", "RobertaForSequenceClassification"), batch, tmp_path)


@pytest.mark.parametrize("head", [*HEADS, "ForQuestionAnswering"])
def test_outputs_are_equal_and_survive_the_way_back(head, batch, tmp_path):
    theirs = public("plain", "Roberta" + head, num_labels=2 if head == "ForQuestionAnswering" else 3)
    encoders.assert_way_back(theirs, of("plain", encoders.sided(batch, "right", PAD)), tmp_path)


def test_two_position_rows_are_dropped(tmp_path):
    theirs = public("plain")
    theirs.save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    table = theirs.embeddings.position_embeddings.weight
    assert ours.stack.config.position.length == len(table) - 2 == encoders.LENGTH
    assert torch.equal(ours.stack.position.table.weight, table[2:])


def test_the_heads_dropout_travels(tmp_path):
    public("plain", "RobertaForSequenceClassification", classifier_dropout=0.25).save_pretrained(tmp_path / "theirs")
    ours = hf.load_pretrained(tmp_path / "theirs")
    assert ours.dropout.p == ours.pooler.dropout.p == 0.25
    hf.save_pretrained(ours, tmp_path / "ours", model_type="roberta", architecture="RobertaForSequenceClassification")
    assert transformers.RobertaConfig.from_pretrained(tmp_path / "ours").classifier_dropout == 0.25


@pytest.mark.parametrize(("field", "value"), [("hidden_act", "relu"), ("pad_token_id", 0)])
def test_what_is_not_published_is_refused(field, value, tmp_path):
    config = public("plain").config
    setattr(config, field, value)
    assert "Only RoBERTa as published is read" in encoders.refused(config, "RobertaModel", tmp_path)


@pytest.mark.parametrize(
    ("preset", "sizes", "published"),
    [
        (roberta_base, (768, 12, 12, 3072), 124_697_433),
        (roberta_large, (1024, 24, 16, 4096), 355_412_057),
    ],
)
def test_parameter_counts_equal_the_public_ones(preset, sizes, published):
    width, layers, heads, hidden = sizes
    config = transformers.RobertaConfig(
        vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, hidden_size=width, num_hidden_layers=layers,
        num_attention_heads=heads, intermediate_size=hidden,
    )  # fmt: skip
    theirs = encoders.on_meta(lambda: transformers.RobertaForMaskedLM(config))
    assert encoders.on_meta(lambda: MLM(Stack(preset()))) + 2 * width == theirs == published


def test_the_classrooms_roberta_saves_and_loads(tmp_path):
    ours = MLM(Stack(roberta_mini())).eval()
    hf.save_pretrained(ours, tmp_path, model_type="roberta", architecture="RobertaForMaskedLM")
    again = hf.load_pretrained(tmp_path)
    assert same_weights(again, ours)
    assert encoders.sizes(ours) < 1_500_000
