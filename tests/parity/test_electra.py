"""ELECTRA's two models and its heads against transformers: hidden states, logits, loss, gradients, and back."""

import pytest
import torch
import torch.nn.functional as F
import transformers

from course_lib import hf
from course_lib.errors import CourseError
from course_lib.heads import MLM, RTD
from course_lib.models import electra
from course_lib.models.electra import generator, pair
from course_lib.stack import Stack
from tests.parity import encoders
from tests.parity.public import close, same_weights

CONFIGS = {
    "plain": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 64},
    "narrow": {
        "hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 40,
        "embedding_size": 10,
    },
    "wide": {
        "hidden_size": 18, "num_attention_heads": 6, "num_hidden_layers": 2, "intermediate_size": 30,
        "embedding_size": 48, "layer_norm_eps": 1e-3,
    },
}  # fmt: skip
HEADS = [
    "ForPreTraining", "ForMaskedLM", "ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification",
    "Model",
]  # fmt: skip


def public(name, architecture="ElectraModel", **more):
    values = {"num_labels": 3, "embedding_size": CONFIGS[name]["hidden_size"]} | CONFIGS[name] | more
    config = transformers.ElectraConfig(
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
def test_the_generators_loss_and_every_gradient_are_equal(name, padded, tmp_path):
    encoders.assert_masked_lm(public(name, "ElectraForMaskedLM"), padded, tmp_path)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_discriminators_loss_and_every_gradient_are_equal(name, padded, tmp_path):
    theirs = public(name, "ElectraForPreTraining")
    theirs.save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    keep, replaced = padded["keep"], (padded["ids"] % 3 == 0).long()
    out, logits = encoders.theirs_on(theirs, padded, labels=replaced), encoders.ours_on(ours, padded)
    assert close(logits[keep], out.logits[keep])
    loss = F.binary_cross_entropy_with_logits(logits[keep], replaced[keep].float())
    encoders.assert_gradients(theirs, out.loss, ours, loss)


def test_classification_loss_and_every_gradient_are_equal(batch, tmp_path):
    encoders.assert_classifier(public("narrow", "ElectraForSequenceClassification"), batch, tmp_path)


@pytest.mark.parametrize("name", ["plain", "narrow"])
@pytest.mark.parametrize("head", [*HEADS, "ForQuestionAnswering"])
def test_outputs_are_equal_and_survive_the_way_back(name, head, batch, tmp_path):
    theirs = public(name, "Electra" + head, num_labels=2 if head == "ForQuestionAnswering" else 3)
    encoders.assert_way_back(theirs, batch, tmp_path)


def test_what_is_not_published_is_refused(tmp_path):
    config = public("plain").config
    config.hidden_act = "relu"
    assert "Only ELECTRA as published is read" in encoders.refused(config, "ElectraModel", tmp_path)


SMALL, BASE, LARGE = (256, 12, 4, 1024, 128), (768, 12, 12, 3072, 768), (1024, 24, 16, 4096, 1024)


def public_config(width, layers, heads, hidden, embed):
    return transformers.ElectraConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=hidden,
        embedding_size=embed,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("preset", "sizes", "published"),
    [
        (electra.electra_small, SMALL, 13_549_057),
        (electra.electra_base, BASE, 109_483_009),
        (electra.electra_large, LARGE, 335_142_913),
    ],
)
def test_the_discriminators_counts_equal_the_public_ones(preset, sizes, published):
    theirs = encoders.on_meta(lambda: transformers.ElectraForPreTraining(public_config(*sizes)))
    assert encoders.on_meta(lambda: RTD(Stack(preset()))) == theirs == published


@pytest.mark.parametrize(
    ("preset", "times", "sizes"),
    [
        (electra.electra_small, 1 / 4, (64, 12, 1, 256, 128)),
        (electra.electra_base, 1 / 3, (256, 12, 4, 1024, 768)),
        (electra.electra_large, 1 / 4, (256, 24, 4, 1024, 1024)),
    ],
)
def test_the_generators_counts_equal_the_public_ones(preset, times, sizes):
    theirs = encoders.on_meta(lambda: transformers.ElectraForMaskedLM(public_config(*sizes)))
    assert encoders.on_meta(lambda: MLM(Stack(generator(preset(), times)))) == theirs


def small():
    return electra.electra(encoders.VOCAB, width=16, layers=2, heads=4, length=encoders.LENGTH)


def test_generator_and_discriminator_share_one_embedding():
    first, second = pair(small())
    other, ours = first.stack, second.stack
    assert other.config.width == 4
    assert other.embed.tokens is ours.embed.tokens and other.embed.segments is ours.embed.segments
    assert other.embed.norm is ours.embed.norm and other.position is ours.position
    assert other.embed.project.weight.shape == (4, 16) and ours.embed.project is None
    alone = encoders.sizes(RTD(Stack(small()))) + encoders.sizes(MLM(Stack(generator(small()))))
    assert encoders.sizes(torch.nn.ModuleList((first, second))) == alone - 16 * (encoders.VOCAB + encoders.LENGTH + 4)


def test_both_losses_reach_the_shared_embedding(batch):
    torch.manual_seed(0)
    models = [model.eval() for model in pair(small())]
    table, gradients = models[1].stack.embed.tokens.weight, []
    for model in models:
        encoders.ours_on(model, batch)[batch["keep"]].square().sum().backward()
        gradients.append(table.grad.clone())
        table.grad = None
    for model in models:
        encoders.ours_on(model, batch)[batch["keep"]].square().sum().backward()
    assert all(g.abs().max() > 0 for g in gradients)
    assert close(table.grad, gradients[0] + gradients[1])


def test_both_parts_are_saved_as_public_models(batch, tmp_path):
    """Each on its own, as the published ones are; the shared vectors stand in both."""
    torch.manual_seed(0)
    for part, architecture in zip(pair(small()), ("ElectraForMaskedLM", "ElectraForPreTraining"), strict=True):
        hf.save_pretrained(part.eval(), tmp_path / architecture, model_type="electra", architecture=architecture)
        theirs = getattr(transformers, architecture).from_pretrained(tmp_path / architecture).eval()
        keep = batch["keep"]
        assert close(encoders.ours_on(part, batch)[keep], encoders.theirs_on(theirs, batch).logits[keep])


@pytest.mark.parametrize("change", [{"length": 9}, {"width": 20}])
def test_embeddings_of_different_sizes_cannot_be_shared(change):
    sizes = {"width": 16, "length": encoders.LENGTH} | change
    other = electra.electra(encoders.VOCAB, layers=2, heads=4, **sizes)
    with pytest.raises(CourseError, match="cannot share"):
        pair(small(), other)


def test_the_classrooms_electra(tmp_path):
    first, second = pair(electra.electra_mini())
    assert second.stack.config.width == 128 and first.stack.config.width == 32
    hf.save_pretrained(second, tmp_path, model_type="electra", architecture="ElectraForPreTraining")
    again = hf.load_pretrained(tmp_path)
    assert same_weights(again, second)
