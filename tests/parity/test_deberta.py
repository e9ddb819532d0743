"""DeBERTa's disentangled attention and its heads against transformers: hidden states, loss, gradients, and back."""

import pytest
import torch
import transformers

from course_lib import hf
from course_lib.config import Disentangled
from course_lib.heads import MLM
from course_lib.models.deberta import deberta_base, deberta_large, deberta_mini
from course_lib.seq2seq import Hidden
from course_lib.stack import Stack
from tests.parity import encoders
from tests.parity.public import close, same_weights

CONFIGS = {
    "plain": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 64},
    "clipped at 3": {
        "hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 40,
        "max_relative_positions": 3, "type_vocab_size": 2, "layer_norm_eps": 1e-3,
    },
    "clipped at 1": {
        "hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 40,
        "max_relative_positions": 1,
    },
    "only content to position": {
        "hidden_size": 18, "num_attention_heads": 6, "num_hidden_layers": 2, "intermediate_size": 30,
        "pos_att_type": ["c2p"],
    },
    "only position to content": {
        "hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2, "intermediate_size": 30,
        "pos_att_type": "p2c", "hidden_act": "relu", "max_relative_positions": 6,
    },
}  # fmt: skip
HEADS = ["ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "Model"]


def public(name, architecture="DebertaModel", **more):
    values = {"num_labels": 3, "pos_att_type": "c2p|p2c", "relative_attention": True, "position_biased_input": False}
    config = transformers.DebertaConfig(
        vocab_size=encoders.VOCAB, max_position_embeddings=encoders.LENGTH, attn_implementation="eager",
        **values | CONFIGS[name] | more,
    )  # fmt: skip
    return encoders.public(config, architecture)


def of(name, batch):
    """Segments are read where the model has them."""
    return batch if "type_vocab_size" in CONFIGS[name] else {key: batch[key] for key in ("ids", "keep")}


@pytest.fixture(params=["right", "left"])
def padded(request, batch):
    """Only distances count, so padding may stand on either side as it is."""
    return encoders.sided(batch, request.param)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_hidden_state_is_equal(name, padded, tmp_path):
    encoders.assert_hidden_states(public(name), of(name, padded), tmp_path)


@pytest.mark.parametrize("name", CONFIGS)
def test_masked_lm_loss_and_every_gradient_are_equal(name, padded, tmp_path):
    encoders.assert_masked_lm(public(name, "DebertaForMaskedLM"), of(name, padded), tmp_path)


def test_classification_loss_and_every_gradient_are_equal(batch, tmp_path):
    encoders.assert_classifier(public("plain", "DebertaForSequenceClassification"), of("plain", batch), tmp_path)


@pytest.mark.parametrize("name", ["plain", "clipped at 3", "only content to position", "only position to content"])
def test_every_scheme_survives_the_way_back(name, batch, tmp_path):
    encoders.assert_way_back(public(name), of(name, batch), tmp_path)


@pytest.mark.parametrize("head", HEADS)
def test_outputs_are_equal_and_survive_the_way_back(head, batch, tmp_path):
    theirs = public("plain", "Deberta" + head, num_labels=2 if head == "ForQuestionAnswering" else 3)
    encoders.assert_way_back(theirs, of("plain", batch), tmp_path)


def test_the_published_names_of_the_masked_lm_head_are_read(batch, tmp_path):
    theirs = public("plain", "DebertaForMaskedLM", legacy=False)
    theirs.save_pretrained(tmp_path)
    assert any(name.startswith("lm_predictions.") for name in hf._read_weights(tmp_path))
    ours, batch = hf.load_pretrained(tmp_path), of("plain", batch)
    keep = batch["keep"]
    assert close(encoders.ours_on(ours, batch)[keep], encoders.theirs_on(theirs, batch).logits[keep])


def test_watched_and_fused_attention_are_one(batch, tmp_path):
    from course_lib.trace import record

    public("plain").save_pretrained(tmp_path)
    ours, batch = hf.load_pretrained(tmp_path), of("plain", batch)
    fused = encoders.ours_on(ours, batch)
    with record(ours, "blocks.*.attn.probs") as seen:
        watched = encoders.ours_on(ours, batch)
    assert close(fused[batch["keep"]], watched[batch["keep"]])
    assert torch.allclose(seen["blocks.0.attn.probs"].sum(-1), torch.ones(3, 4, 11))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relative_attention": False}, "relative_attention true"),
        ({"position_biased_input": True}, "position_biased_input false"),
        ({"talking_head": True}, "no talking_head"),
        ({"pos_att_type": ["p2p", "c2p"]}, "pos_att_type has 'p2p'"),
        ({"pos_att_type": []}, "needs content_to_position"),
    ],
)
def test_what_is_not_published_is_refused(changes, message, tmp_path):
    config = public("plain").config
    for field, value in changes.items():
        setattr(config, field, value)
    assert message in encoders.refused(config, "DebertaModel", tmp_path)


@pytest.mark.parametrize(
    ("preset", "sizes", "published"),
    [(deberta_base, (768, 12, 12, 3072), 138_601_728), (deberta_large, (1024, 24, 16, 4096), 405_163_008)],
)
def test_parameter_counts_equal_the_public_ones(preset, sizes, published):
    width, layers, heads, hidden = sizes
    config = transformers.DebertaConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=hidden,
        relative_attention=True, position_biased_input=False, pos_att_type="c2p|p2c",
    )  # fmt: skip
    theirs = encoders.on_meta(lambda: transformers.DebertaModel(config))
    assert encoders.on_meta(lambda: Hidden(Stack(preset()))) == theirs == published


def test_the_classrooms_deberta_saves_and_loads(tmp_path):
    ours = MLM(Stack(deberta_mini())).eval()
    assert ours.stack.config.position == Disentangled(64)
    hf.save_pretrained(ours, tmp_path, model_type="deberta", architecture="DebertaForMaskedLM")
    again = hf.load_pretrained(tmp_path)
    assert same_weights(again, ours)
