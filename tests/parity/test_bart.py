"""BART, its heads and Blenderbot against transformers: hidden states, logits, loss, gradients, and
back.
"""

import json
from pathlib import Path

import pytest
import torch
import transformers

from course_lib.analysis import capture
from course_lib.model.seq2seq import shift_right
from course_lib.objectives import losses
from tests.parity.public import assert_gradients, close, randomise, read, theirs_on, written

PAD, EOS = 1, 2
CONFIGS = json.loads(Path(__file__).with_name("configs.json").read_text())["bart"]
ARCHITECTURES = [
    "BartModel",
    "BartForConditionalGeneration",
    "BartForSequenceClassification",
    "BartForQuestionAnswering",
]


def public(name, architecture="BartForConditionalGeneration"):
    sizes = dict(CONFIGS[name])
    for part in ("layers", "attention_heads", "ffn_dim"):
        value = sizes.pop(part)
        sizes = {f"encoder_{part}": value, f"decoder_{part}": value} | sizes
    family = "Blenderbot" if name == "norms before" else "Bart"
    config = getattr(transformers, f"{family}Config")(
        vocab_size=60,
        max_position_embeddings=20,
        num_labels=3,
        attn_implementation="eager",
        **sizes,
    )
    model = randomise(getattr(transformers, architecture.replace("Bart", family))(config))
    if architecture == "BartForConditionalGeneration":
        model.final_logits_bias.copy_(
            torch.randn(1, 60, generator=torch.Generator().manual_seed(3))
        )
    return model


@pytest.fixture
def pair(batch):
    """Sources of 11, 7 and 2 tokens that end in eos, targets of 6, 8 and 3 behind which nothing
    counts.
    """
    lengths = torch.tensor([11, 7, 2])
    attention_mask = torch.arange(11) < lengths[:, None]
    ids = torch.randint(5, 60, (3, 11), generator=torch.Generator().manual_seed(7))
    ids[torch.arange(3), lengths - 1] = EOS
    labels = torch.randint(5, 60, (3, 8), generator=torch.Generator().manual_seed(8))
    labels = labels.masked_fill(torch.arange(8) >= torch.tensor([[6], [8], [3]]), -100)
    return {
        "ids": ids.masked_fill(~attention_mask, PAD),
        "attention_mask": attention_mask,
        "labels": labels,
    }


@pytest.mark.parametrize("name", CONFIGS)
def test_every_hidden_state_of_both_sides_is_equal(name, pair, tmp_path):
    theirs = public(name)
    ours = read(theirs, tmp_path)
    expected = theirs_on(theirs, pair, labels=pair["labels"], output_hidden_states=True)
    decoder_ids = shift_right(pair["labels"], ours.stack.start)
    with torch.no_grad(), capture(ours, "*coder.blocks.*") as seen:
        logits = ours(pair["ids"], decoder_ids, attention_mask=pair["attention_mask"])
    real = {"encoder": pair["attention_mask"], "decoder": pair["labels"] != -100}
    for side, at in real.items():
        states = expected[f"{side}_hidden_states"]
        assert len(states) == getattr(theirs.config, f"{side}_layers") + 1
        last = -1 if name == "norms before" else None  # theirs is given behind the final norm
        for layer, state in enumerate(states[1:last]):
            assert close(seen[f"{side}.blocks.{layer}"][at], state[at]), (side, layer)
    assert close(logits[real["decoder"]], expected.logits[real["decoder"]])


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_every_gradient_are_equal(name, smoothing, pair, tmp_path):
    theirs = public(name)
    ours = read(theirs, tmp_path)
    logits = theirs_on(theirs, pair, labels=pair["labels"]).logits.flatten(0, 1)
    expected = torch.nn.functional.cross_entropy(
        logits, pair["labels"].flatten(), label_smoothing=smoothing
    )
    assert_gradients(theirs, expected, ours, losses.seq2seq(ours, pair, smoothing=smoothing))


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("unequal sides", ARCHITECTURES[1]),
        ("norms before", ARCHITECTURES[1]),
        *(("other start", architecture) for architecture in ARCHITECTURES),
    ],
)
def test_outputs_are_equal_and_survive_the_way_back(name, architecture, pair, tmp_path):
    theirs = public(name, architecture)
    ours, real = read(theirs, tmp_path), pair["attention_mask"]
    decoder = (
        [shift_right(pair["ids"], ours.stack.start)]
        if architecture == "BartForConditionalGeneration"
        else []
    )
    more = {"decoder_input_ids": decoder[0]} if decoder else {}
    actual, out = ours(pair["ids"], *decoder, attention_mask=real), theirs_on(theirs, pair, **more)
    actual = actual if isinstance(actual, tuple) else (actual,)
    expected = [
        out[key]
        for key in ("last_hidden_state", "logits", "start_logits", "end_logits")
        if key in out
    ]
    for a, b in zip(actual, expected, strict=True):
        assert (
            close(a, b)
            if architecture == "BartForSequenceClassification"
            else close(a[real], b[real])
        )

    again = written(ours, theirs, tmp_path, unread=2)
    assert again.config.decoder_start_token_id == ours.stack.start
    back = theirs_on(again, pair, **more)
    assert all(
        close(back[key], value) for key, value in out.items() if isinstance(value, torch.Tensor)
    )


def test_left_padding_changes_nothing(pair, tmp_path):
    """Where the public model counts padding as positions, ours does not."""
    ours = read(public("plain", "BartForSequenceClassification"), tmp_path)
    row = pair["ids"][1:2, :7]
    padded = torch.cat([torch.full((1, 4), PAD), row], dim=1)
    assert close(ours(padded, attention_mask=torch.arange(11)[None] >= 4), ours(row))
