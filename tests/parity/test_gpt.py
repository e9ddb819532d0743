"""GPT-1 and GPT-2 against transformers: hidden states, logits, loss, gradients, and back."""

import pytest
import torch
import torch.nn.functional as F
import transformers

from course_lib import hf
from course_lib.heads import LM
from course_lib.models.gpt import GPT2_SIZES, gpt1, gpt2
from course_lib.stack import Stack
from course_lib.trace import record
from tests.parity.public import close, randomise, same_weights

SIZES = {"small": (32, 4, 3), "narrow": (24, 2, 2), "many heads": (48, 8, 2)}
KINDS = {
    "gpt2": (transformers.GPT2Config, "GPT2LMHeadModel", "GPT2Model"),
    "openai-gpt": (transformers.OpenAIGPTConfig, "OpenAIGPTLMHeadModel", "OpenAIGPTModel"),
}


def public(kind: str, size: str, architecture: str | None = None, **more) -> torch.nn.Module:
    config_class, lm, _ = KINDS[kind]
    width, heads, layers = SIZES[size]
    config = config_class(
        vocab_size=60, n_positions=20, n_embd=width, n_head=heads, n_layer=layers, bos_token_id=1, eos_token_id=1,
        pad_token_id=0, attn_implementation="eager", **more,
    )  # fmt: skip
    return randomise(getattr(transformers, architecture or lm)(config))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_hidden_states_logits_and_the_way_back(kind, size, batch, tmp_path):
    theirs = public(kind, size)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = hf.load_pretrained(tmp_path / "theirs")
    keep = batch["keep"]
    expected = theirs(input_ids=batch["ids"], attention_mask=keep.long(), output_hidden_states=True)
    with torch.no_grad(), record(ours, "blocks.*") as seen:
        logits = ours(batch["ids"], keep=keep)
    assert close(logits[keep], expected.logits[keep])
    inner = expected.hidden_states[1:-1] if kind == "gpt2" else expected.hidden_states[1:]
    assert len(inner) >= 1
    for layer, state in enumerate(inner):
        assert close(seen[f"blocks.{layer}"][keep], state[keep])

    hf.save_pretrained(ours, tmp_path / "ours", model_type=kind, architecture=KINDS[kind][1])
    again, info = getattr(transformers, KINDS[kind][1]).from_pretrained(
        tmp_path / "ours", attn_implementation="eager", output_loading_info=True
    )
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    back = again.eval()(input_ids=batch["ids"], attention_mask=keep.long()).logits
    assert same_weights(again, theirs) and close(back[keep], expected.logits[keep])


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_every_gradient_are_equal(kind, batch, tmp_path):
    theirs = public(kind, "small")
    theirs.save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    keep = batch["keep"]
    labels = batch["ids"].masked_fill(~keep, -100)
    expected = theirs(input_ids=batch["ids"], attention_mask=keep.long(), labels=labels).loss
    logits = ours(batch["ids"], keep=keep)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    assert close(loss, expected)
    expected.backward()
    loss.backward()
    family = hf.families()[kind]
    grads = {n.removeprefix("transformer."): p.grad for n, p in theirs.named_parameters()}
    rules = hf._all_rules(family, family.architectures[KINDS[kind][1]])
    translated = hf.convert(grads, rules, ours.stack.config.layers)
    for name, weight in ours.named_parameters():
        assert close(weight.grad, translated[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_saved_alone_loads_too(kind, batch, tmp_path):
    theirs = public(kind, "small", KINDS[kind][2])
    theirs.save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    keep = batch["keep"]
    expected = theirs(input_ids=batch["ids"], attention_mask=keep.long()).last_hidden_state
    assert close(ours.stack(batch["ids"], keep=keep)[keep], expected[keep])


@pytest.mark.parametrize("architecture", ["GPT2ForSequenceClassification", "OpenAIGPTForSequenceClassification"])
def test_classification_reads_the_last_real_token(architecture, batch, tmp_path):
    kind = "gpt2" if architecture.startswith("GPT2") else "openai-gpt"
    theirs = public(kind, "small", architecture, num_labels=3)
    theirs.save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    expected = theirs(input_ids=batch["ids"], attention_mask=batch["keep"].long()).logits
    assert expected.shape == (3, 3)
    assert close(ours(batch["ids"], keep=batch["keep"]), expected)


def test_left_padding_changes_nothing(batch, tmp_path):
    theirs = public("gpt2", "small")
    theirs.save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    row = batch["ids"][1, :7]
    padded = torch.cat([torch.zeros(4, dtype=torch.long), row])[None]
    keep = torch.arange(11)[None] >= 4
    assert close(ours(padded, keep=keep)[0, 4:], ours(row[None])[0])


def test_parameter_counts_equal_the_public_ones():
    for size in GPT2_SIZES:
        layers, width, heads = GPT2_SIZES[size]
        with torch.device("meta"):
            ours = LM(Stack(gpt2(size)))
            theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=layers, n_embd=width, n_head=heads))
        assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    with torch.device("meta"):
        ours = LM(Stack(gpt1()))
        theirs = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig())
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
