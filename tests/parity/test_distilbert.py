"""DistilBERT and its heads against transformers: hidden states, logits, loss, gradients, and back."""

import pytest
import torch
import transformers

from course_lib import hf
from course_lib.heads import MLM
from course_lib.models.bert import bert
from course_lib.models.distilbert import distilbert_base, distilbert_mini, student
from course_lib.seq2seq import Hidden
from course_lib.stack import Stack
from tests.parity import encoders
from tests.parity.public import close, randomise, same_weights

CONFIGS = {
    "plain": {"dim": 32, "n_heads": 4, "n_layers": 3, "hidden_dim": 64},
    "relu": {"dim": 24, "n_heads": 2, "n_layers": 2, "hidden_dim": 40, "activation": "relu"},
    "sines": {"dim": 48, "n_heads": 6, "n_layers": 2, "hidden_dim": 30, "sinusoidal_pos_embds": True},
}
HEADS = ["ForMaskedLM", "ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification", "Model"]


def public(name, architecture="DistilBertModel", **more):
    config = transformers.DistilBertConfig(
        vocab_size=encoders.VOCAB, max_position_embeddings=encoders.LENGTH, attn_implementation="eager",
        **{"num_labels": 3} | CONFIGS[name] | more,
    )  # fmt: skip
    return encoders.public(config, architecture)


@pytest.fixture
def batch(batch):
    return {key: batch[key] for key in ("ids", "keep")}


@pytest.fixture(params=["right", "left"])
def padded(request, batch):
    return encoders.with_positions(encoders.sided(batch, request.param))


@pytest.mark.parametrize("name", CONFIGS)
def test_every_hidden_state_is_equal(name, padded, tmp_path):
    encoders.assert_hidden_states(public(name), padded, tmp_path)


@pytest.mark.parametrize("name", CONFIGS)
def test_masked_lm_loss_and_every_gradient_are_equal(name, padded, tmp_path):
    theirs = public(name, "DistilBertForMaskedLM")
    theirs.distilbert.embeddings.position_embeddings.weight.requires_grad_(True)  # theirs keeps sines as they are
    encoders.assert_masked_lm(theirs, padded, tmp_path)


def test_classification_loss_and_every_gradient_are_equal(batch, tmp_path):
    encoders.assert_classifier(public("plain", "DistilBertForSequenceClassification"), batch, tmp_path)


@pytest.mark.parametrize("head", [*HEADS, "ForQuestionAnswering"])
def test_outputs_are_equal_and_survive_the_way_back(head, batch, tmp_path):
    theirs = public("plain", "DistilBert" + head, num_labels=2 if head == "ForQuestionAnswering" else 3)
    encoders.assert_way_back(theirs, batch, tmp_path)


def test_the_heads_dropout_travels(tmp_path):
    public("plain", "DistilBertForSequenceClassification", seq_classif_dropout=0.3).save_pretrained(tmp_path / "a")
    ours = hf.load_pretrained(tmp_path / "a")
    assert ours.dropout.p == 0.3
    hf.save_pretrained(
        ours, tmp_path / "b", model_type="distilbert", architecture="DistilBertForSequenceClassification"
    )
    assert transformers.DistilBertConfig.from_pretrained(tmp_path / "b").seq_classif_dropout == 0.3


def test_parameter_counts_equal_the_public_ones():
    config = transformers.DistilBertConfig()
    theirs = encoders.on_meta(lambda: transformers.DistilBertModel(config))
    assert encoders.on_meta(lambda: Hidden(Stack(distilbert_base()))) == theirs == 66_362_880


def test_a_student_begins_as_every_second_layer(batch):
    """A teacher whose other layers do nothing is equalled from the start."""
    teacher = randomise(Stack(bert(encoders.VOCAB, width=16, layers=4, heads=2, length=encoders.LENGTH)))
    for layer in (1, 3):  # a post-norm block that passes on what is normed already
        block = teacher.blocks[layer]
        with torch.no_grad():
            for linear in (block.attn.out, block.ff.down):
                linear.weight.zero_(), linear.bias.zero_()
            for before in (teacher.blocks[layer - 1].ff_norm, block.attn_norm, block.ff_norm):
                before.weight.fill_(1), before.bias.zero_()
    pupil = student(teacher).eval()
    assert pupil.config.layers == 2 and pupil.config.embed.segments == 0
    ours, theirs = (stack(batch["ids"], keep=batch["keep"])[batch["keep"]] for stack in (pupil, teacher))
    assert close(ours, theirs)
    assert student(teacher, layers=4).config.layers == 4
    pupil.blocks[0].attn.q.weight.data.zero_()
    assert teacher.blocks[0].attn.q.weight.abs().max() > 0  # a copy


def test_the_classrooms_distilbert_saves_and_loads(tmp_path):
    ours = MLM(Stack(distilbert_mini())).eval()
    hf.save_pretrained(ours, tmp_path, model_type="distilbert", architecture="DistilBertForMaskedLM")
    again = hf.load_pretrained(tmp_path)
    assert same_weights(again, ours)
    assert ours.stack.config.layers == 2
