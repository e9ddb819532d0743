"""T5 1.0 and 1.1, and T5's encoder alone, against transformers: hidden states, logits, loss, gradients, and back."""

import pytest
import torch
import transformers

from course_lib import hf, losses
from course_lib.errors import CourseError
from course_lib.models.t5 import T5_1_1_SIZES, T5_SIZES, t5_lm, t5_mini, t5_size
from course_lib.seq2seq import shift_right
from course_lib.trace import record
from tests.parity.public import close, randomise, same_weights

CONFIGS = {
    "1.0": {"d_model": 32, "d_kv": 8, "num_heads": 4, "num_layers": 3, "d_ff": 64, "feed_forward_proj": "relu"},
    "1.0, narrow heads": {
        "d_model": 24, "d_kv": 5, "num_heads": 3, "num_layers": 2, "d_ff": 40, "feed_forward_proj": "relu",
        "relative_attention_num_buckets": 8, "relative_attention_max_distance": 9, "decoder_start_token_id": 4,
    },
    "1.1": {
        "d_model": 32, "d_kv": 16, "num_heads": 3, "num_layers": 2, "d_ff": 20, "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False, "layer_norm_epsilon": 1e-5,
    },
    "tied, gated": {
        "d_model": 16, "d_kv": 4, "num_heads": 2, "num_layers": 2, "d_ff": 20, "feed_forward_proj": "gated-silu",
    },
}  # fmt: skip
LM = "T5ForConditionalGeneration"


def public(name, architecture=LM):
    untied = not CONFIGS[name].get("tie_word_embeddings", True)
    config = transformers.T5Config(
        vocab_size=60, attn_implementation="eager", **{"decoder_start_token_id": 0} | CONFIGS[name]
    )
    model = getattr(transformers, architecture)(config)
    if untied and architecture == LM:  # the library ties at construction whatever one asks for, and unties on loading
        model.lm_head.weight = torch.nn.Parameter(torch.empty(60, config.d_model))
    return randomise(model)


@pytest.fixture(params=["right", "left"])
def pair(request):
    """Sources of 11, 7 and 1 tokens padded on one side, targets of 6, 8 and 3."""
    keep = torch.arange(11) < torch.tensor([[11], [7], [1]])
    keep = keep.flip(1) if request.param == "left" else keep
    ids = torch.randint(5, 60, (3, 11), generator=torch.Generator().manual_seed(7)) * keep
    labels = torch.randint(5, 60, (3, 8), generator=torch.Generator().manual_seed(8))
    labels = labels.masked_fill(torch.arange(8) >= torch.tensor([[6], [8], [3]]), -100)
    return {"ids": ids, "keep": keep, "labels": labels}


def theirs_on(model, pair, **more):
    return model(input_ids=pair["ids"], attention_mask=pair["keep"].long(), **more)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_hidden_state_the_loss_and_every_gradient(name, pair, tmp_path):
    theirs = public(name)
    theirs.save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    expected = theirs_on(theirs, pair, labels=pair["labels"], output_hidden_states=True)
    with record(ours, "*coder.blocks.*") as seen:
        loss = losses.seq2seq(ours, pair)
    keep, real = pair["keep"], pair["labels"] != -100
    for side, states, at in (
        ("encoder", expected.encoder_hidden_states, keep), ("decoder", expected.decoder_hidden_states, real),
    ):  # fmt: skip
        assert len(states) == CONFIGS[name]["num_layers"] + 1
        for layer, state in enumerate(states[1:-1]):  # the last one is normed
            assert close(seen[f"{side}.blocks.{layer}"][at], state[at]), (side, layer)
    decoder_ids = shift_right(pair["labels"], ours.stack.start)
    assert close(ours(pair["ids"], decoder_ids, keep=keep)[real], expected.logits[real])
    assert close(loss, expected.loss)

    expected.loss.backward()
    loss.backward()
    family = hf.families()["t5"]
    grads = {n: p.grad for n, p in theirs.named_parameters()}
    translated = hf.convert(grads, hf._all_rules(family, family.architectures[LM], ours), ours.stack.config.layers)
    for weight_name, weight in ours.named_parameters():
        assert close(weight.grad, translated[weight_name]), weight_name


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("architecture", ["T5Model", "T5EncoderModel", LM])
def test_outputs_are_equal_and_survive_the_way_back(name, architecture, pair, tmp_path):
    theirs = public(name, architecture)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = hf.load_pretrained(tmp_path / "theirs")
    keep, decoder_ids = pair["keep"], shift_right(pair["labels"], 0)
    both = architecture != "T5EncoderModel"
    more = {"decoder_input_ids": decoder_ids} if both else {}
    expected = theirs_on(theirs, pair, **more)[0]
    actual = ours(pair["ids"], *more.values(), keep=keep)
    at = slice(None) if both else keep
    assert close(actual[at], expected[at])

    hf.save_pretrained(ours, tmp_path / "ours", model_type="t5", architecture=architecture)
    again, info = getattr(transformers, architecture).from_pretrained(
        tmp_path / "ours", attn_implementation="eager", output_loading_info=True
    )
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert same_weights(again, theirs) and close(theirs_on(again.eval(), pair, **more)[0][at], expected[at])
    if both:
        assert again.config.decoder_start_token_id == theirs.config.decoder_start_token_id


@pytest.mark.parametrize("name", ["1.0", "1.1"])
def test_the_encoder_of_a_whole_model_alone(name, pair, tmp_path):
    theirs = public(name)
    theirs.save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path, architecture="T5EncoderModel")
    expected = theirs.encoder(input_ids=pair["ids"], attention_mask=pair["keep"].long()).last_hidden_state
    assert close(ours(pair["ids"], keep=pair["keep"])[pair["keep"]], expected[pair["keep"]])


def test_the_decoder_does_not_see_the_future(pair, tmp_path):
    public("1.0").save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    decoder_ids = shift_right(pair["labels"], 0)
    other = decoder_ids.clone()
    other[:, 5:] = 9
    for decoder_keep in (None, torch.ones_like(decoder_ids, dtype=torch.bool)):
        first, second = (
            ours(pair["ids"], d, keep=pair["keep"], decoder_keep=decoder_keep) for d in (decoder_ids, other)
        )
        assert close(first[:, :5], second[:, :5])
        assert not close(first[:, 5:], second[:, 5:])


def test_one_table_of_distances_serves_all_layers_of_a_stack():
    ours = t5_lm(t5_mini(vocab=50))
    tables = [name for name, _ in ours.named_parameters() if "position" in name]
    assert tables == ["stack.encoder.position.table.weight", "stack.decoder.position.table.weight"]
    assert ours.stack.encoder.position.bidirectional and not ours.stack.decoder.position.bidirectional


@pytest.mark.parametrize("change", [{"scaled": True}, {"eps": 1e-3}])
def test_a_wrong_scale_or_epsilon_would_be_seen(change, pair, tmp_path):
    from dataclasses import replace

    from course_lib.seq2seq import EncoderDecoder, Seq2SeqLM

    theirs = public("1.1")
    theirs.save_pretrained(tmp_path)
    ours = hf.load_pretrained(tmp_path)
    config = replace(ours.stack.config, **{k: v for k, v in change.items() if k == "eps"})
    other = Seq2SeqLM(EncoderDecoder(config), tied=False, scaled=change.get("scaled", False)).eval()
    other.load_state_dict(ours.state_dict())
    decoder_ids = shift_right(pair["labels"], 0)
    assert not close(
        other(pair["ids"], decoder_ids, keep=pair["keep"]), ours(pair["ids"], decoder_ids, keep=pair["keep"])
    )


def test_old_files_say_tied_and_scaled_by_one_word(pair, tmp_path):
    """Files of before 2026 have no `scale_decoder_outputs`; some hold copies of the tied weights."""
    import json

    from safetensors.torch import load_file, save_file

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
        weights["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.zeros(32, 4)
        save_file(weights, tmp_path / name / "model.safetensors")
        ours = hf.load_pretrained(tmp_path / name)
        assert (ours.head is None, ours.scaled) == ((True, True) if name == "1.0" else (False, False))
        decoder_ids = shift_right(pair["labels"], 0)
        expected = theirs_on(theirs, pair, decoder_input_ids=decoder_ids).logits
        assert close(ours(pair["ids"], decoder_ids, keep=pair["keep"]), expected)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("size", ["small", "base", "large"])
def test_parameter_counts_equal_the_public_ones(version, size):
    width, layers, heads, hidden, head_width = (T5_SIZES if version == "1.0" else T5_1_1_SIZES)[size]
    config = transformers.T5Config(
        d_model=width, num_layers=layers, num_heads=heads, d_ff=hidden, d_kv=head_width,
        feed_forward_proj="relu" if version == "1.0" else "gated-gelu",
    )  # fmt: skip
    with torch.device("meta"):
        ours, theirs = t5_lm(t5_size(size, version)), transformers.T5ForConditionalGeneration(config)
    untied = 0 if version == "1.0" else ours.head.weight.numel()
    assert sum(p.numel() for p in ours.parameters()) - untied == sum(p.numel() for p in theirs.parameters())


def test_the_classrooms_t5_saves_and_loads(tmp_path):
    ours = t5_lm(t5_mini()).eval()
    hf.save_pretrained(ours, tmp_path, model_type="t5", architecture=LM)
    again = hf.load_pretrained(tmp_path)
    assert again.stack.config == ours.stack.config
    assert same_weights(again, ours)
    start = losses.seq2seq(ours, {"ids": torch.randint(3072, (2, 9)), "labels": torch.randint(3072, (2, 7))})
    assert 7 < start.item() < 12, "a fresh T5 is far from uniform: log(3072) is 8"


def test_a_size_that_is_none():
    with pytest.raises(CourseError, match=r"no T5 1\.0 'huge'"):
        t5_size("huge")
