"""GPT-1 and GPT-2 against transformers: hidden states, logits, loss, gradients, and back."""

import pytest
import torch
import transformers

from course_lib.analysis import capture
from course_lib.data.tokenizers import train_bpe
from course_lib.families.gpt import gpt
from course_lib.files import read_json
from course_lib.model import heads
from course_lib.model.transformer import Transformer
from course_lib.objectives import losses
from course_lib.training.finetune import FinetuneConfig, finetune, load, predict
from tests.parity.public import assert_gradients, close, randomise, read, theirs_on, written

SIZES = {"small": (32, 4, 3), "narrow": (24, 2, 2), "many heads": (48, 8, 2)}
KINDS = ["GPT2", "OpenAIGPT"]


def public(kind, size="small", head="LMHeadModel", **more):
    width, heads, layers = SIZES[size]
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=60,
        n_positions=20,
        n_embd=width,
        n_head=heads,
        n_layer=layers,
        bos_token_id=1,
        eos_token_id=1,
        pad_token_id=0,
        attn_implementation="eager",
        **({"n_inner": 20} if (kind, size) == ("GPT2", "narrow") else {}),
        **more,
    )
    return randomise(getattr(transformers, kind + head)(config))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_hidden_states_logits_gradients_and_the_way_back(kind, size, batch, tmp_path):
    theirs, real = public(kind, size), batch["attention_mask"]
    ours = read(theirs, tmp_path)
    expected = theirs_on(
        theirs, batch, output_hidden_states=True, labels=batch["ids"].masked_fill(~real, -100)
    )
    with torch.no_grad(), capture(ours, "blocks.*") as seen:
        logits = ours(batch["ids"], attention_mask=real)
    assert close(logits[real], expected.logits[real])
    # GPT-2's last is normed
    inner = expected.hidden_states[1:-1] if kind == "GPT2" else expected.hidden_states[1:]
    assert len(inner) >= 1
    for layer, state in enumerate(inner):
        assert close(seen[f"blocks.{layer}"][real], state[real])
    back = theirs_on(written(ours, theirs, tmp_path), batch).logits
    assert close(back[real], expected.logits[real])
    assert_gradients(theirs, expected.loss, ours, losses.clm(ours, batch))


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_saved_alone_loads_too(kind, batch, tmp_path):
    theirs, real = public(kind, head="Model"), batch["attention_mask"]
    state = read(theirs, tmp_path).stack(batch["ids"], attention_mask=real)
    assert close(state[real], theirs_on(theirs, batch).last_hidden_state[real])


@pytest.mark.parametrize("kind", KINDS)
def test_classification_reads_the_last_real_token(kind, batch, tmp_path):
    theirs = public(kind, head="ForSequenceClassification", num_labels=3)
    expected = theirs_on(theirs, batch).logits
    assert expected.shape == (3, 3)
    assert close(
        read(theirs, tmp_path)(batch["ids"], attention_mask=batch["attention_mask"]), expected
    )


def test_left_padding_changes_nothing(batch, tmp_path):
    ours, row = read(public("GPT2"), tmp_path), batch["ids"][1, :7]
    padded = torch.cat([torch.zeros(4, dtype=torch.long), row])[None]
    attention_mask = torch.arange(11)[None] >= 4
    assert close(ours(padded, attention_mask=attention_mask)[0, 4:], ours(row[None])[0])


@pytest.mark.parametrize("size", SIZES)
def test_a_tagger_of_gpt2(size, batch, tmp_path):
    """Logits, loss and every gradient, and back; OpenAI's GPT has no such public class."""
    theirs = public("GPT2", size, head="ForTokenClassification", num_labels=3)
    real = batch["attention_mask"]
    labels = (batch["ids"] % 3).masked_fill(~real, -100)
    batch = {"ids": batch["ids"], "attention_mask": real}
    ours = read(theirs, tmp_path)
    out = theirs_on(theirs, batch, labels=labels)
    logits = ours(batch["ids"], attention_mask=real)
    assert close(logits[real], out.logits[real])
    back = theirs_on(written(ours, theirs, tmp_path), batch).logits
    assert close(back[real], out.logits[real])
    assert_gradients(
        theirs, out.loss, ours, losses.classification(ours, batch | {"labels": labels})
    )


@pytest.mark.parametrize(
    ("fields", "rate"),
    [
        ({}, 0.1),
        ({"hidden_dropout": 0.3}, 0.3),
        ({"hidden_dropout": 0.3, "classifier_dropout": 0.0}, 0.0),
    ],
)
def test_the_dropout_of_a_tagger_has_two_names(fields, rate, tmp_path):
    theirs = public("GPT2", head="ForTokenClassification", num_labels=3, **fields)
    assert read(theirs, tmp_path).dropout.p == theirs.dropout.p == rate


def test_a_decoder_is_tuned_to_tag_and_saved_as_gpt2(tmp_path):
    tokenizer = train_bpe(["Ann met Bob in the park and Eve saw Tom at the mill"] * 5, 300)
    row = {"tokens": ["Ann", "met", "Bob"], "labels": [1, 0, 1]}
    other = {"tokens": ["the", "park", "Eve"], "labels": [0, 0, 1]}
    task = {"train": [row, other] * 8, "test": [row, other]}
    torch.manual_seed(0)
    config = gpt(tokenizer.vocab.size, width=32, layers=1, heads=2, length=20, dropout=0.0)
    tuning = FinetuneConfig(epochs=12, batch=4, lr=3e-3, classes=["O", "NAME"], out=tmp_path)
    result = finetune(heads.LM(Transformer(config)), task, tokenizer, tuning)
    assert result.score == 1.0
    assert read_json(tmp_path / "config.json")["architectures"] == ["GPT2ForTokenClassification"]
    assert predict(tmp_path, [row]) == [["NAME", "O", "NAME"]]
    theirs = transformers.GPT2ForTokenClassification.from_pretrained(tmp_path).eval()
    code = load(tmp_path).frame.tokenizer.encode(row["tokens"])
    with torch.no_grad():
        ids = torch.tensor([code.ids])
        assert close(load(tmp_path).model(ids), theirs(ids).logits)
