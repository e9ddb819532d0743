"""The eight encoder families and their heads against transformers: hidden states, logits, loss,
gradients, and back.
"""

import json
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers

from course_lib import zoo
from course_lib.analysis import capture
from course_lib.errors import CourseError
from course_lib.families import bert, distilbert, electra, family, roberta
from course_lib.model.config import Global, Window
from course_lib.model.heads import MLM, RTD
from course_lib.model.transformer import Transformer
from tests.parity.public import assert_gradients, close, randomise, read, written

VOCAB, LENGTH, ROBERTA_PAD = 60, 20, 1
# Of each family: its cases, what differs in them from its values (size: width, heads, layers,
# hidden; by default
# 32, 4, 3, 64); its values; its heads beside `EVERYONES`. What is refused.
CASES, VALUES, HEADS, REFUSED = json.loads(
    Path(__file__).with_name("encoders.json").read_text()
).values()
EVERYONES = (
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)
ALL = [(family, case) for family, cases in CASES.items() for case in cases]


def public(family, case="plain", head="Model", **more):
    values = dict(CASES[family][case])
    names = ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size")
    names = ("dim", "n_heads", "n_layers", "hidden_dim") if family == "DistilBert" else names
    values |= dict(zip(names, values.pop("size", (32, 4, 3, 64)), strict=True))
    two = head in ("ForQuestionAnswering", "ForPreTraining")
    common = {"vocab_size": VOCAB, "max_position_embeddings": LENGTH, "num_labels": 2 if two else 3}
    config = getattr(transformers, f"{family}Config")(
        **common | VALUES.get(family, {}) | values | more, attn_implementation="eager"
    )
    return randomise(getattr(transformers, family + head)(config))


def theirs_on(model, batch, **more):
    """Their outputs. Positions count real tokens, as ours do: they are given where the model would
    count padding.
    """
    segments = {"token_type_ids": batch["segments"]} if "segments" in batch else {}
    if "positions" in batch:
        more |= {"position_ids": batch["positions"]}
    return model(
        input_ids=batch["ids"], attention_mask=batch["attention_mask"].long(), **segments, **more
    )


def ours_on(model, batch):
    return model(
        batch["ids"], attention_mask=batch["attention_mask"], segments=batch.get("segments")
    )


def sizes(model):
    return sum(weight.numel() for weight in model.parameters())


def framed(family, batch, case="plain", side="right"):
    """The batch as this model reads it: its padding, its segments, positions that count real
    tokens.
    """
    batch = batch | {
        "ids": batch["ids"].masked_fill(
            ~batch["attention_mask"], ROBERTA_PAD * (family == "Roberta")
        )
    }
    batch = batch if side == "right" else {key: value.flip(1) for key, value in batch.items()}
    values = VALUES.get(family, {}) | CASES[family][case]
    if family in ("DistilBert", "ModernBert") or (
        family in ("Roberta", "Deberta") and values.get("type_vocab_size", 0) < 2
    ):
        batch = {key: batch[key] for key in ("ids", "attention_mask")}
    # RoBERTa finds its positions from the ids, DeBERTa has only distances.
    if family in ("Roberta", "Deberta"):
        return batch
    return batch | {"positions": (batch["attention_mask"].long().cumsum(1) - 1).clamp(min=0)}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(("family", "case"), ALL)
def test_every_hidden_state_is_equal(family, case, side, batch, tmp_path):
    """The embedding, and what every application of a block gives (a shared block is applied many
    times).
    """
    theirs, batch = public(family, case), framed(family, batch, case, side)
    ours = read(theirs, tmp_path)
    expected = theirs_on(theirs, batch, output_hidden_states=True)
    states = []
    for part in (ours.stack.embed, *ours.stack.blocks):
        part.register_forward_hook(lambda module, inputs, output: states.append(output.detach()))
    with torch.no_grad():
        out = ours_on(ours, batch)
    attention_mask = batch["attention_mask"]
    assert len(states) == len(expected.hidden_states) == theirs.config.num_hidden_layers + 1
    if ours.stack.config.final_norm:  # their last one is normed
        states[-1] = ours.stack.norm(states[-1])
    for layer, (a, b) in enumerate(zip(states, expected.hidden_states, strict=True)):
        assert close(a[attention_mask], b[attention_mask]), layer
    # the pooler reads the first place, padding or not
    if isinstance(out, tuple) and attention_mask[:, 0].all():
        assert close(out[1], expected.pooler_output)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(("family", "case"), ALL)
def test_masked_lm_loss_and_every_gradient_are_equal(family, case, side, batch, tmp_path):
    theirs = public(family, case, "ForMaskedLM")
    if family == "DistilBert":  # theirs keeps sines as they are
        theirs.distilbert.embeddings.position_embeddings.weight.requires_grad_(True)
    batch = framed(family, batch, case, side)
    ours = read(theirs, tmp_path)
    labels = batch["ids"].masked_fill(~batch["attention_mask"] | (batch["ids"] % 3 > 0), -100)
    at = labels != -100
    assert at.sum() > 3
    out = theirs_on(theirs, batch, labels=labels)
    logits = ours(
        batch["ids"],
        attention_mask=batch["attention_mask"],
        segments=batch.get("segments"),
        loss_mask=at,
    )
    assert close(logits, out.logits[at])
    assert_gradients(theirs, out.loss, ours, F.cross_entropy(logits, labels[at]))


@pytest.mark.parametrize("family", CASES)
def test_classification_loss_and_every_gradient_are_equal(family, batch, tmp_path):
    theirs, batch = public(family, head="ForSequenceClassification"), framed(family, batch)
    ours = read(theirs, tmp_path)
    labels = torch.tensor([2, 0, 1])
    out, logits = theirs_on(theirs, batch, labels=labels), ours_on(ours, batch)
    assert close(logits, out.logits)
    assert_gradients(theirs, out.loss, ours, F.cross_entropy(logits, labels))


@pytest.mark.parametrize(
    ("family", "case", "head"),
    [(family, "plain", head) for family in CASES for head in (*EVERYONES, *HEADS[family])]
    + [(family, case, "Model") for family, case in ALL if case != "plain"]
    + [("Electra", "narrow", head) for head in (*EVERYONES, *HEADS["Electra"])],
)
def test_outputs_are_equal_and_survive_the_way_back(family, case, head, batch, tmp_path):
    batch = {key: value for key, value in framed(family, batch, case).items() if key != "positions"}
    theirs = public(family, case, head)
    attention_mask = batch["attention_mask"]
    if is_choice := type(theirs).__name__.endswith("ForMultipleChoice"):
        batch = {key: value[:, None].expand(-1, 2, -1).contiguous() for key, value in batch.items()}

    def at_real(x):
        return x[attention_mask] if x.shape[:2] == attention_mask.shape and not is_choice else x

    ours = read(theirs, tmp_path)
    with torch.no_grad():
        expected = [at_real(t) for t in theirs_on(theirs, batch).to_tuple() if t is not None]
        actual = ours_on(ours, batch)
    actual = [at_real(t) for t in (actual if isinstance(actual, tuple) else (actual,))]
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert a.shape == b.shape and close(a, b)

    unread = theirs.config.pad_token_id + 1 if theirs.config.model_type == "roberta" else 0
    again = written(ours, theirs, tmp_path, unread)
    with torch.no_grad():
        back = [at_real(t) for t in theirs_on(again, batch).to_tuple() if t is not None]
    assert all(close(a, b) for a, b in zip(back, expected, strict=True))
    assert zoo.load_pretrained(tmp_path / "ours").stack.config == ours.stack.config
    names = [set(zoo.read_weights(tmp_path / kind)) for kind in ("theirs", "ours")]
    assert names[0] == names[1]


@pytest.mark.parametrize("family", ["Bert", "Albert"])
def test_pretraining_loss_and_every_gradient_are_equal(family, batch, tmp_path):
    """Masked words and the second task together: neighbours (BERT), order (ALBERT)."""
    theirs, batch = public(family, head="ForPreTraining"), framed(family, batch)
    ours = read(theirs, tmp_path)
    labels, second = (
        batch["ids"].masked_fill(~batch["attention_mask"], -100),
        torch.tensor([1, 0, 1]),
    )
    name = "sentence_order_label" if family == "Albert" else "next_sentence_label"
    expected = theirs_on(theirs, batch, labels=labels, **{name: second}).loss
    words, which = ours_on(ours, batch)
    loss = F.cross_entropy(words.flatten(0, 1), labels.flatten()) + F.cross_entropy(which, second)
    assert_gradients(theirs, expected, ours, loss)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("case", CASES["Electra"])
def test_the_discriminators_loss_and_every_gradient_are_equal(case, side, batch, tmp_path):
    theirs, batch = public("Electra", case, "ForPreTraining"), framed("Electra", batch, case, side)
    ours = read(theirs, tmp_path)
    attention_mask, replaced = batch["attention_mask"], (batch["ids"] % 3 == 0).long()
    out, logits = theirs_on(theirs, batch, labels=replaced), ours_on(ours, batch)
    assert close(logits[attention_mask], out.logits[attention_mask])
    loss = F.binary_cross_entropy_with_logits(
        logits[attention_mask], replaced[attention_mask].float()
    )
    assert_gradients(theirs, out.loss, ours, loss)


@pytest.mark.parametrize(("family", "changes", "message"), REFUSED)
def test_what_is_not_published_is_refused(family, changes, message, tmp_path):
    config = public(family).config
    for field, value in changes.items():
        setattr(config, field, value)
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(CourseError, match=re.escape(message)):
        zoo.load_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("family", "field"), [("Roberta", "classifier_dropout"), ("DistilBert", "seq_classif_dropout")]
)
def test_the_heads_dropout_travels(family, field, tmp_path):
    public(family, head="ForSequenceClassification", **{field: 0.3}).save_pretrained(
        tmp_path / "theirs"
    )
    ours = zoo.load_pretrained(tmp_path / "theirs")
    assert ours.dropout.p == 0.3
    zoo.save_pretrained(ours, tmp_path / "ours", model_type=family.lower())
    assert getattr(transformers.AutoConfig.from_pretrained(tmp_path / "ours"), field) == 0.3


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_modernberts_classifier_reads_one_token_or_the_mean(pooling, batch, tmp_path):
    theirs = public("ModernBert", head="ForSequenceClassification", classifier_pooling=pooling)
    batch = framed("ModernBert", batch)
    ours = read(theirs, tmp_path)
    with torch.no_grad():
        expected = theirs_on(theirs, batch).logits
        assert close(ours_on(ours, batch), expected)
        again = written(ours, theirs, tmp_path)
        assert close(theirs_on(again, batch).logits, expected)


def test_a_modernbert_as_its_published_config_says_it():
    """The files on the hub name two bases and every n-th layer; they list no layer types."""
    values = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 5}
    values |= {"num_attention_heads": 4, "intermediate_size": 48}
    values |= {"global_attn_every_n_layers": 3, "local_attention": 8}
    values |= {"global_rope_theta": 500.0, "local_rope_theta": 70.0}
    config = family("modernbert").read_config(values)
    assert config.position.base == 500.0
    near = Window(4, rope_base=70.0)
    assert [config.pattern(layer) for layer in range(5)] == [Global(), near, near, Global(), near]


def test_the_published_names_of_debertas_masked_lm_head_are_read(batch, tmp_path):
    theirs = public("Deberta", head="ForMaskedLM", legacy=False)
    theirs.save_pretrained(tmp_path)
    assert any(name.startswith("lm_predictions.") for name in zoo.read_weights(tmp_path))
    ours, batch = zoo.load_pretrained(tmp_path), framed("Deberta", batch)
    real = batch["attention_mask"]
    assert close(ours_on(ours, batch)[real], theirs_on(theirs, batch).logits[real])


def test_watched_and_fused_disentangled_attention_are_one(batch, tmp_path):
    ours, batch = read(public("Deberta"), tmp_path), framed("Deberta", batch)
    fused = ours_on(ours, batch)
    with capture(ours, "blocks.*.attn.probs") as seen:
        watched = ours_on(ours, batch)
    assert close(fused[batch["attention_mask"]], watched[batch["attention_mask"]])
    assert torch.allclose(seen["blocks.0.attn.probs"].sum(-1), torch.ones(3, 4, 11))


def test_a_student_begins_as_every_second_layer(batch):
    """A teacher whose other layers do nothing is equalled from the start."""
    teacher = randomise(Transformer(bert.bert(VOCAB, width=16, layers=4, heads=2, length=LENGTH)))
    for layer in (1, 3):  # a post-norm block that passes on what is normed already
        block = teacher.blocks[layer]
        with torch.no_grad():
            for linear in (block.attn.out, block.ff.down):
                linear.weight.zero_(), linear.bias.zero_()
            for before in (teacher.blocks[layer - 1].ff_norm, block.attn_norm, block.ff_norm):
                before.weight.fill_(1), before.bias.zero_()
    pupil = distilbert.student(teacher).eval()
    assert pupil.config.layers == 2 and pupil.config.embed.segments == 0
    real = batch["attention_mask"]
    ours, theirs = (stack(batch["ids"], attention_mask=real)[real] for stack in (pupil, teacher))
    assert close(ours, theirs) and distilbert.student(teacher, layers=4).config.layers == 4
    assert (
        distilbert.student(
            Transformer(roberta.roberta(VOCAB, width=16, layers=2, heads=2))
        ).config.embed.segments
        == 1
    )
    pupil.blocks[0].attn.q.weight.data.zero_()
    assert teacher.blocks[0].attn.q.weight.abs().max() > 0  # a copy


def small():
    return electra.electra(VOCAB, width=16, layers=2, heads=4, length=LENGTH)


def test_generator_and_discriminator_share_one_embedding():
    first, second = electra.pair(small())
    other, ours = first.stack, second.stack
    assert other.config.width == 4
    assert other.embed.tokens is ours.embed.tokens and other.embed.segments is ours.embed.segments
    assert other.embed.norm is ours.embed.norm and other.position is ours.position
    assert other.embed.project.weight.shape == (4, 16) and ours.config.embed.width is None
    alone = sizes(RTD(Transformer(small()))) + sizes(MLM(Transformer(electra.generator(small()))))
    assert sizes(torch.nn.ModuleList((first, second))) == alone - 16 * (VOCAB + LENGTH + 4)
