"""ALBERT and its heads against transformers: hidden states, logits, loss, gradients, and back."""

import pytest
import torch
import torch.nn.functional as F
import transformers

from course_lib import hf
from course_lib.heads import MLM, Pooled
from course_lib.models.albert import albert_base, albert_large, albert_mini, albert_xlarge, albert_xxlarge
from course_lib.stack import Stack
from tests.parity import encoders
from tests.parity.public import same_weights

CONFIGS = {
    "plain": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 4, "intermediate_size": 64},
    "exact gelu": {
        "hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 40,
        "hidden_act": "gelu", "layer_norm_eps": 1e-3,
    },
    "one layer": {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 1, "intermediate_size": 30},
}  # fmt: skip
HEADS = ["ForMaskedLM", "ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification", "Model"]
TWO_CLASSES = ["ForPreTraining", "ForQuestionAnswering"]


def public(name, architecture="AlbertModel", **more):
    values = {"num_labels": 3, "embedding_size": 12} | CONFIGS[name] | more
    config = transformers.AlbertConfig(
        vocab_size=encoders.VOCAB, max_position_embeddings=encoders.LENGTH, attn_implementation="eager", **values
    )
    return encoders.public(config, architecture)


@pytest.fixture(params=["right", "left"])
def padded(request, batch):
    return encoders.with_positions(encoders.sided(batch, request.param))


@pytest.mark.parametrize("name", CONFIGS)
def test_every_hidden_state_is_equal(name, padded, tmp_path):
    encoders.assert_hidden_states(public(name), padded, tmp_path)


@pytest.mark.parametrize("name", CONFIGS)
def test_masked_lm_loss_and_every_gradient_are_equal(name, padded, tmp_path):
    """The shared block's gradient is the sum over its applications."""
    encoders.assert_masked_lm(public(name, "AlbertForMaskedLM"), padded, tmp_path)


def test_classification_loss_and_every_gradient_are_equal(batch, tmp_path):
    encoders.assert_classifier(public("plain", "AlbertForSequenceClassification"), batch, tmp_path)


def test_pretraining_loss_and_every_gradient_are_equal(batch, tmp_path):
    """Masked words and sentence order together."""
    theirs = public("plain", "AlbertForPreTraining", num_labels=2)
    theirs.save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    labels, order = batch["ids"].masked_fill(~batch["keep"], -100), torch.tensor([1, 0, 1])
    expected = encoders.theirs_on(theirs, batch, labels=labels, sentence_order_label=order).loss
    words, which = encoders.ours_on(ours, batch)
    loss = F.cross_entropy(words.flatten(0, 1), labels.flatten()) + F.cross_entropy(which, order)
    encoders.assert_gradients(theirs, expected, ours, loss)


@pytest.mark.parametrize("head", HEADS + TWO_CLASSES)
def test_outputs_are_equal_and_survive_the_way_back(head, batch, tmp_path):
    theirs = public("plain", "Albert" + head, num_labels=2 if head in TWO_CLASSES else 3)
    encoders.assert_way_back(theirs, batch, tmp_path)


def test_one_block_serves_all_layers(batch, tmp_path):
    public("plain").save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    config = ours.stack.config
    assert config.shared and config.layers == 4 and len(ours.stack.blocks) == 1
    assert config.embed.width == 12 and ours.stack.embed.project.weight.shape == (32, 12)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("num_hidden_groups", 2, "all layers share one block"),
        ("inner_group_num", 2, "all layers share one block"),
        ("embedding_size", 32, "narrower than the model's width 32"),
    ],
)
def test_what_is_not_published_is_refused(field, value, message, tmp_path):
    config = public("plain").config
    setattr(config, field, value)
    assert message in encoders.refused(config, "AlbertModel", tmp_path)


@pytest.mark.parametrize(
    ("preset", "sizes", "published"),
    [
        (albert_base, (768, 12, 12, 3072), 11_683_584),
        (albert_large, (1024, 24, 16, 4096), 17_683_968),
        (albert_xlarge, (2048, 24, 16, 8192), 58_724_864),
        (albert_xxlarge, (4096, 12, 64, 16384), 222_595_584),
    ],
)
def test_parameter_counts_equal_the_public_ones(preset, sizes, published):
    width, layers, heads, hidden = sizes
    config = transformers.AlbertConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=hidden
    )
    theirs = encoders.on_meta(lambda: transformers.AlbertModel(config))
    assert encoders.on_meta(lambda: Pooled(Stack(preset()))) == theirs == published


def test_the_classrooms_albert_saves_and_loads(tmp_path):
    ours = MLM(Stack(albert_mini())).eval()
    hf.save_pretrained(ours, tmp_path, model_type="albert", architecture="AlbertForMaskedLM")
    again = hf.load_pretrained(tmp_path)
    assert same_weights(again, ours)
    assert encoders.sizes(ours) < 350_000
