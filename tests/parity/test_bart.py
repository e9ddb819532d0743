"""BART and its heads against transformers: hidden states, logits, loss, gradients, and back."""

import pytest
import torch
import transformers

from course_lib import hf, losses
from course_lib.models.bart import bart_base, bart_large, bart_lm, bart_mini
from course_lib.seq2seq import shift_right
from course_lib.trace import record
from tests.parity.public import close, randomise, same_weights

PAD, EOS = 1, 2
CONFIGS = {
    "plain": {"d_model": 32, "layers": 3, "attention_heads": 4, "ffn_dim": 64},
    "scaled relu": {
        "d_model": 24, "layers": 2, "attention_heads": 2, "ffn_dim": 40, "activation_function": "relu",
        "scale_embedding": True,
    },
    "other start": {
        "d_model": 48, "layers": 2, "attention_heads": 6, "ffn_dim": 30, "activation_function": "gelu_new",
        "decoder_start_token_id": 4,
    },
}  # fmt: skip
ARCHITECTURES = [
    "BartModel", "BartForConditionalGeneration", "BartForSequenceClassification", "BartForQuestionAnswering",
]  # fmt: skip


def public(name, architecture="BartForConditionalGeneration"):
    sizes = dict(CONFIGS[name])
    for part in ("layers", "attention_heads", "ffn_dim"):
        value = sizes.pop(part)
        sizes |= {f"encoder_{part}": value, f"decoder_{part}": value}
    config = transformers.BartConfig(
        vocab_size=60, max_position_embeddings=20, num_labels=3, attn_implementation="eager", **sizes
    )
    model = randomise(getattr(transformers, architecture)(config))
    if architecture == "BartForConditionalGeneration":
        model.final_logits_bias.copy_(torch.randn(1, 60, generator=torch.Generator().manual_seed(3)))
    return model


@pytest.fixture
def pair(batch):
    """Sources of 11, 7 and 2 tokens that end in eos, targets of 6, 8 and 3 behind which nothing counts."""
    lengths = torch.tensor([11, 7, 2])
    keep = torch.arange(11) < lengths[:, None]
    ids = torch.randint(5, 60, (3, 11), generator=torch.Generator().manual_seed(7))
    ids[torch.arange(3), lengths - 1] = EOS
    labels = torch.randint(5, 60, (3, 8), generator=torch.Generator().manual_seed(8))
    labels = labels.masked_fill(torch.arange(8) >= torch.tensor([[6], [8], [3]]), -100)
    return {"ids": ids.masked_fill(~keep, PAD), "keep": keep, "labels": labels}


def theirs_on(model, pair, **more):
    return model(input_ids=pair["ids"], attention_mask=pair["keep"].long(), **more)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_hidden_state_of_both_sides_is_equal(name, pair, tmp_path):
    theirs = public(name)
    theirs.save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    expected = theirs_on(theirs, pair, labels=pair["labels"], output_hidden_states=True)
    decoder_ids = shift_right(pair["labels"], ours.stack.start)
    with torch.no_grad(), record(ours, "*coder.blocks.*") as seen:
        logits = ours(pair["ids"], decoder_ids, keep=pair["keep"])
    keep, real = pair["keep"], pair["labels"] != -100
    for side, states, at in (
        ("encoder", expected.encoder_hidden_states, keep), ("decoder", expected.decoder_hidden_states, real),
    ):  # fmt: skip
        assert len(states) == CONFIGS[name]["layers"] + 1
        for layer, state in enumerate(states[1:]):
            assert close(seen[f"{side}.blocks.{layer}"][at], state[at]), (side, layer)
    assert close(logits[real], expected.logits[real])


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_every_gradient_are_equal(name, smoothing, pair, tmp_path):
    theirs = public(name)
    theirs.save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    out = theirs_on(theirs, pair, labels=pair["labels"])
    expected = out.loss
    if smoothing:
        flat = out.logits.flatten(0, 1), pair["labels"].flatten()
        expected = torch.nn.functional.cross_entropy(*flat, label_smoothing=smoothing)
    loss = losses.seq2seq(ours, pair, smoothing=smoothing)
    assert close(loss, expected)
    expected.backward()
    loss.backward()
    family = hf.families()["bart"]
    grads = {n.removeprefix("model."): p.grad for n, p in theirs.named_parameters() if p.grad is not None}
    rules = hf._all_rules(family, family.architectures["BartForConditionalGeneration"], ours)
    translated = hf.convert(grads | {"final_logits_bias": torch.zeros(1, 60)}, rules, ours.stack.config.layers)
    for weight_name, weight in ours.named_parameters():
        assert close(weight.grad, translated[weight_name]), weight_name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_outputs_are_equal_and_survive_the_way_back(architecture, pair, tmp_path):
    theirs = public("other start", architecture)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = hf.load_pretrained(tmp_path / "theirs")
    keep = pair["keep"]
    if architecture == "BartForConditionalGeneration":
        more = {"decoder_input_ids": shift_right(pair["ids"], 4)}
        actual, expected = ours(pair["ids"], more["decoder_input_ids"], keep=keep), theirs_on(theirs, pair, **more)[0]
        actual, expected = (actual[keep],), (expected[keep],)
    else:
        more = {}
        actual, out = ours(pair["ids"], keep=keep), theirs_on(theirs, pair)
        actual = actual if isinstance(actual, tuple) else (actual,)
        expected = [
            value for key, value in out.items() if key in ("last_hidden_state", "logits", "start_logits", "end_logits")
        ]
        if architecture != "BartForSequenceClassification":
            actual, expected = [a[keep] for a in actual], [e[keep] for e in expected]
    assert len(actual) == len(expected) > 0
    for a, b in zip(actual, expected, strict=True):
        assert close(a, b)

    hf.save_pretrained(ours, tmp_path / "ours", model_type="bart", architecture=architecture)
    again, info = getattr(transformers, architecture).from_pretrained(
        tmp_path / "ours", attn_implementation="eager", output_loading_info=True
    )
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert same_weights(again, theirs, unread=2) and again.config.decoder_start_token_id == 4
    if architecture == "BartForSequenceClassification":
        again.config.eos_token_id = EOS
    for a, b in zip(
        theirs_on(again.eval(), pair, **more).to_tuple(), theirs_on(theirs, pair, **more).to_tuple(), strict=True
    ):
        if isinstance(b, torch.Tensor):
            assert close(a, b)


def test_a_longer_target_changes_no_earlier_position(pair, tmp_path):
    """The decoder does not see the future, with and without a padding mask."""
    public("plain").save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    decoder_ids = shift_right(pair["ids"], 2)
    other = decoder_ids.clone()
    other[:, 5:] = 9
    for decoder_keep in (None, torch.ones_like(pair["keep"])):
        first, second = (
            ours(pair["ids"], d, keep=pair["keep"], decoder_keep=decoder_keep) for d in (decoder_ids, other)
        )
        assert close(first[:, :5], second[:, :5])
        assert not close(first[:, 5:], second[:, 5:])


def test_left_padding_changes_nothing(pair, tmp_path):
    """Where the public model counts padding as positions, ours does not."""
    public("plain", "BartForSequenceClassification").save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    row = pair["ids"][1:2, :7]
    padded = torch.cat([torch.full((1, 4), PAD), row], dim=1)
    assert close(ours(padded, keep=torch.arange(11)[None] >= 4), ours(row))


def test_two_sides_of_different_size_are_refused(tmp_path):
    from course_lib.errors import CourseError

    config = transformers.BartConfig(
        vocab_size=60, d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8,
    )  # fmt: skip
    transformers.BartModel(config).save_pretrained(tmp_path)
    with pytest.raises(CourseError, match="equally large are read; layers differ"):
        hf.load_pretrained(tmp_path)


@pytest.mark.parametrize(("preset", "sizes"), [(bart_base, (6, 12, 3072, 768)), (bart_large, (12, 16, 4096, 1024))])
def test_parameter_counts_equal_the_public_ones(preset, sizes):
    layers, heads, hidden, width = sizes
    config = transformers.BartConfig(
        encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=heads, decoder_attention_heads=heads,
        encoder_ffn_dim=hidden, decoder_ffn_dim=hidden, d_model=width,
    )  # fmt: skip
    with torch.device("meta"):
        ours, theirs = bart_lm(preset()), transformers.BartForConditionalGeneration(config)
    offset_rows = 2 * 2 * width  # the two rows in front of each position table
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters()) - offset_rows


def test_the_classrooms_bart_saves_and_loads(tmp_path):
    ours = bart_lm(bart_mini()).eval()
    hf.save_pretrained(ours, tmp_path, model_type="bart", architecture="BartForConditionalGeneration")
    again = hf.load_pretrained(tmp_path)
    assert same_weights(again, ours)
    assert sum(p.numel() for p in ours.parameters()) < 2_500_000
