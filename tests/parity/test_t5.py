"""T5 1.0 and 1.1 against transformers: hidden states, logits, loss, gradients, and back."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from course_lib import zoo
from course_lib.analysis import capture
from course_lib.families import preset
from course_lib.families.t5 import t5_lm
from course_lib.model.seq2seq import shift_right
from course_lib.objectives import losses
from tests.parity.public import assert_gradients, close, randomise, read, theirs_on, written

CONFIGS = json.loads(Path(__file__).with_name("configs.json").read_text())["t5"]
LM = "T5ForConditionalGeneration"


def public(name, architecture=LM):
    untied = not CONFIGS[name].get("tie_word_embeddings", True)
    config = transformers.T5Config(
        vocab_size=60, attn_implementation="eager", **{"decoder_start_token_id": 0} | CONFIGS[name]
    )
    model = getattr(transformers, architecture)(config)
    # the library ties at construction whatever one asks for, and unties on loading
    if untied and architecture == LM:
        model.lm_head.weight = torch.nn.Parameter(torch.empty(60, config.d_model))
    return randomise(model)


@pytest.fixture(params=["right", "left"])
def pair(request):
    """Sources of 11, 7 and 1 tokens padded on one side, targets of 6, 8 and 3."""
    attention_mask = torch.arange(11) < torch.tensor([[11], [7], [1]])
    attention_mask = attention_mask.flip(1) if request.param == "left" else attention_mask
    ids = torch.randint(5, 60, (3, 11), generator=torch.Generator().manual_seed(7)) * attention_mask
    labels = torch.randint(5, 60, (3, 8), generator=torch.Generator().manual_seed(8))
    labels = labels.masked_fill(torch.arange(8) >= torch.tensor([[6], [8], [3]]), -100)
    return {"ids": ids, "attention_mask": attention_mask, "labels": labels}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_hidden_state_the_loss_and_every_gradient(name, pair, tmp_path):
    theirs = public(name)
    ours = read(theirs, tmp_path)
    expected = theirs_on(theirs, pair, labels=pair["labels"], output_hidden_states=True)
    with capture(ours, "*coder.blocks.*") as seen:
        loss = losses.seq2seq(ours, pair)
    real = {"encoder": pair["attention_mask"], "decoder": pair["labels"] != -100}
    for side, at in real.items():
        states = expected[f"{side}_hidden_states"]
        assert len(states) == getattr(ours.stack, side).config.layers + 1
        for layer, state in enumerate(states[1:-1]):  # the last one is normed
            assert close(seen[f"{side}.blocks.{layer}"][at], state[at]), (side, layer)
    decoder_ids = shift_right(pair["labels"], ours.stack.start)
    logits = ours(pair["ids"], decoder_ids, attention_mask=pair["attention_mask"])
    assert close(logits[real["decoder"]], expected.logits[real["decoder"]])
    assert_gradients(theirs, expected.loss, ours, loss)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("architecture", ["T5Model", LM])
def test_outputs_are_equal_and_survive_the_way_back(name, architecture, pair, tmp_path):
    theirs = public(name, architecture)
    ours, decoder_ids = read(theirs, tmp_path), shift_right(pair["labels"], 0)
    expected = theirs_on(theirs, pair, decoder_input_ids=decoder_ids)[0]
    assert close(ours(pair["ids"], decoder_ids, attention_mask=pair["attention_mask"]), expected)
    again = written(ours, theirs, tmp_path)
    assert close(theirs_on(again, pair, decoder_input_ids=decoder_ids)[0], expected)
    assert again.config.decoder_start_token_id == theirs.config.decoder_start_token_id


def test_old_files_say_tied_and_scaled_by_one_word(pair, tmp_path):
    """Files of before 2026 have no `scale_decoder_outputs`; some hold copies of the tied
    weights.
    """
    for name in ("1.0", "1.1"):
        theirs = public(name)
        theirs.save_pretrained(tmp_path / name)
        path = tmp_path / name / "config.json"
        values = json.loads(path.read_text())
        values |= {"tie_word_embeddings": name == "1.0"}
        del values["scale_decoder_outputs"]
        path.write_text(json.dumps(values))
        weights = load_file(tmp_path / name / "model.safetensors")
        for copy in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
            weights[copy] = weights["shared.weight"].clone()
        weights.setdefault("lm_head.weight", weights["shared.weight"].clone())
        weights["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = (
            torch.zeros(32, 4)
        )
        save_file(weights, tmp_path / name / "model.safetensors")
        ours = zoo.load_pretrained(tmp_path / name)
        assert (ours.head is None, ours.scaled) == (
            (True, True) if name == "1.0" else (False, False)
        )
        decoder_ids = shift_right(pair["labels"], 0)
        expected = theirs_on(theirs, pair, decoder_input_ids=decoder_ids).logits
        assert close(
            ours(pair["ids"], decoder_ids, attention_mask=pair["attention_mask"]), expected
        )


def test_a_fresh_t5_is_far_from_uniform():
    ours = t5_lm(preset("t5-mini")).eval()
    start = losses.seq2seq(
        ours, {"ids": torch.randint(3072, (2, 9)), "labels": torch.randint(3072, (2, 7))}
    )
    assert 7 < start.item() < 12, "log(3072) is 8"
