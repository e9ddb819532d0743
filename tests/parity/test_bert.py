"""BERT and Megatron-BERT and their heads against transformers: hidden states, logits, loss, gradients, and back."""

import pytest
import torch
import torch.nn.functional as F
import transformers

from course_lib import hf
from course_lib.config import StackConfig
from course_lib.models.bert import bert_base, bert_large
from course_lib.stack import Stack
from course_lib.trace import record
from tests.parity.public import close, randomise, same_weights

CONFIGS = {
    "plain": {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 64},
    "relu": {
        "hidden_size": 24,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 40,
        "hidden_act": "relu",
    },
    "wide": {
        "hidden_size": 48,
        "num_attention_heads": 6,
        "num_hidden_layers": 2,
        "intermediate_size": 30,
        "layer_norm_eps": 1e-6,
    },
}
PAIRS = [
    "BertForMaskedLM", "BertForPreTraining", "BertForNextSentencePrediction", "BertForSequenceClassification",
    "BertForMultipleChoice", "BertForTokenClassification", "BertForQuestionAnswering", "BertModel",
]  # fmt: skip


KINDS = {"bert": "", "megatron-bert": "Megatron"}


def public(name: str, architecture: str = "BertModel", kind: str = "bert") -> torch.nn.Module:
    classes = 2 if architecture.endswith("BertForQuestionAnswering") else 3
    config = getattr(transformers, KINDS[kind] + "BertConfig")(
        vocab_size=60, max_position_embeddings=20, num_labels=classes, attn_implementation="eager", **CONFIGS[name]
    )
    return randomise(getattr(transformers, KINDS[kind] + architecture)(config))


def theirs_on(model, batch, **more):
    return model(input_ids=batch["ids"], attention_mask=batch["keep"].long(), token_type_ids=batch["segments"], **more)


def ours_on(model, batch):
    return model(batch["ids"], keep=batch["keep"], segments=batch["segments"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CONFIGS)
def test_every_hidden_state_is_equal(name, kind, batch, tmp_path):
    theirs = public(name, kind=kind)
    theirs.save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    expected = theirs_on(theirs, batch, output_hidden_states=True)
    with torch.no_grad(), record(ours, "blocks.*") as seen:
        hidden, pooled = ours_on(ours, batch)
    keep = batch["keep"]
    blocks = expected.hidden_states[1:] if kind == "bert" else expected.hidden_states[1:-1]  # the last one is normed
    for layer, state in enumerate(blocks):
        assert close(seen[f"blocks.{layer}"][keep], state[keep])
    assert close(hidden[keep], expected.last_hidden_state[keep])
    assert close(pooled, expected.pooler_output)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("architecture", PAIRS)
def test_logits_are_equal_and_survive_the_way_back(architecture, kind, batch, tmp_path):
    theirs = public("plain", architecture, kind)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = hf.load_pretrained(tmp_path / "theirs")
    if architecture == "BertForMultipleChoice":
        batch = {key: value[:, None].expand(-1, 2, -1).contiguous() for key, value in batch.items()}
    expected = [t for t in theirs_on(theirs, batch).to_tuple() if t is not None]
    actual = ours_on(ours, batch)
    actual = actual if isinstance(actual, tuple) else (actual,)
    assert len(actual) == len(expected)
    keep = batch["keep"]
    for a, b in zip(actual, expected, strict=True):
        per_token = a.shape[:2] == keep.shape and architecture != "BertForMultipleChoice"
        assert close(a[keep], b[keep]) if per_token else close(a, b)

    named = KINDS[kind] + architecture
    hf.save_pretrained(ours, tmp_path / "ours", model_type=kind, architecture=named)
    again, info = getattr(transformers, named).from_pretrained(
        tmp_path / "ours", attn_implementation="eager", output_loading_info=True
    )
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    back = [t for t in theirs_on(again.eval(), batch).to_tuple() if t is not None]
    assert same_weights(again, theirs)
    for a, b in zip(back, expected, strict=True):
        assert close(a, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CONFIGS)
def test_loss_and_every_gradient_are_equal(name, kind, batch, tmp_path):
    theirs = public(name, "BertForMaskedLM", kind)
    theirs.save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    labels = batch["ids"].masked_fill(~batch["keep"] | (batch["ids"] % 3 > 0), -100)
    at = labels != -100
    assert at.sum() > 3
    expected = theirs_on(theirs, batch, labels=labels).loss
    logits = ours(batch["ids"], keep=batch["keep"], segments=batch["segments"], at=at)
    loss = F.cross_entropy(logits, labels[at])
    assert close(loss, expected)
    expected.backward()
    loss.backward()
    family = hf.families()[kind]
    grads = {n.removeprefix("bert."): p.grad for n, p in theirs.named_parameters() if p.grad is not None}
    rules = hf._all_rules(family, family.architectures[KINDS[kind] + "BertForMaskedLM"])
    translated = hf.convert(grads, rules, ours.stack.config.layers)
    for weight_name, weight in ours.named_parameters():
        assert close(weight.grad, translated[weight_name]), weight_name


@pytest.mark.parametrize(
    ("preset", "public_config"),
    [
        (bert_base, transformers.BertConfig()),
        (
            bert_large,
            transformers.BertConfig(
                hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
            ),
        ),
    ],
)
def test_parameter_counts_equal_the_public_ones(preset, public_config):
    from course_lib.heads import Pretraining

    with torch.device("meta"):
        ours = Pretraining(Stack(preset()))
        theirs = transformers.BertForPreTraining(public_config)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


def test_a_wrong_epsilon_would_be_seen(batch, tmp_path):
    """The tolerance is fine enough: the same weights with another epsilon fail."""
    from dataclasses import replace

    theirs = public("plain")
    theirs.save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    config: StackConfig = ours.stack.config
    other = Stack(replace(config, eps=1e-3)).eval()
    other.load_state_dict(ours.stack.state_dict())
    expected = theirs_on(theirs, batch).last_hidden_state[batch["keep"]]
    assert not close(ours_on(other, batch)[batch["keep"]], expected)
