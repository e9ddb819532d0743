"""Public folders as they lie on the hub: heads too many or too few, wrappers, parts, old files."""

import json
import warnings
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from course_lib import zoo
from course_lib.errors import CourseError, CourseWarning
from course_lib.families import MODEL_TYPES
from course_lib.model import heads
from tests.parity.public import close, randomise
from tests.parity.small_models import answers, batch_for, same, small

BODIES = [
    (model_type, name)
    for model_type, family in MODEL_TYPES.items()
    for name, public in family.architectures.items()
    if not public.has_prefix
]
PREFIXES = ("module.", "_orig_mod.", "model.", "0.auto_model.", "module._orig_mod.", "net.")


def public(name, folder, model_type="bert", **values):
    """A random public model, written to a folder."""
    config = small(model_type)
    config.update(values)
    model = randomise(getattr(transformers, name)(config))
    model.save_pretrained(folder)
    return model


def change_weights(folder, change):
    file = folder / "model.safetensors"
    weights = load_file(file)
    weights = change(weights) or weights
    save_file(weights, file, {"format": "pt"})


def change_config(folder, *without, **values):
    path = folder / "config.json"
    fields = {k: v for k, v in json.loads(path.read_text()).items() if k not in without}
    path.write_text(json.dumps(fields | values))


# Heads


@pytest.mark.parametrize(("model_type", "name"), BODIES)
def test_a_body_is_read_from_the_files_of_every_other_class(model_type, name, tmp_path):
    """transformers' AutoModel does that every day."""
    for other in MODEL_TYPES[model_type].architectures:
        if other == name or not hasattr(transformers, other):
            continue
        theirs = public(other, tmp_path / other, model_type)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CourseWarning)
            ours = zoo.load_pretrained(tmp_path / other, architecture=name)
        body = getattr(transformers, name).from_pretrained(
            tmp_path / other, attn_implementation="eager"
        )
        rows = batch_for(theirs.config)
        mine, their_own = answers(ours, name, rows), answers(body.eval(), name, rows)
        # A pooler that the file does not have is random in theirs, and missing in ours.
        assert same(mine[:1], their_own[:1]), other


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("name", ["BertModel", "BertForTokenClassification"])
def test_what_a_wrapper_puts_in_front_comes_off(prefix, name, tmp_path):
    theirs = public(name, tmp_path)
    change_weights(tmp_path, lambda w: {prefix + key: value for key, value in w.items()})
    rows = batch_for(theirs.config)
    assert same(answers(zoo.load_pretrained(tmp_path), name, rows), answers(theirs, name, rows))


def test_wrappers_inside_of_a_name_come_off(tmp_path):
    theirs = public("GPT2LMHeadModel", tmp_path, "gpt2")

    def wrapped(weights):
        return {
            key.replace("h.", "h._checkpoint_wrapped_module.", 1): weights[key] for key in weights
        }

    change_weights(tmp_path, wrapped)
    rows = batch_for(theirs.config)
    name = "GPT2LMHeadModel"
    assert same(answers(zoo.load_pretrained(tmp_path), name, rows), answers(theirs, name, rows))


@pytest.mark.parametrize("has_prefix", [True, False])
def test_a_body_with_its_prefix_or_without(has_prefix, tmp_path):
    """GPT-2's published file has none, although its class has."""
    theirs = public("GPT2LMHeadModel", tmp_path, "gpt2")
    if not has_prefix:
        change_weights(tmp_path, lambda w: {key.removeprefix("transformer."): w[key] for key in w})
    rows = batch_for(theirs.config)
    ours = zoo.load_pretrained(tmp_path)
    assert same(answers(ours, "GPT2LMHeadModel", rows), answers(theirs, "GPT2LMHeadModel", rows))


def test_the_weights_of_another_family_or_of_two_models_are_refused(tmp_path):
    public("BertModel", tmp_path)
    change_weights(tmp_path, lambda w: {f"electra.{key}": w[key] for key in w})
    with pytest.raises(CourseError, match="model_type is bert, but the weights are a electra's"):
        zoo.load_pretrained(tmp_path)
    public("BertModel", tmp_path)
    change_weights(
        tmp_path, lambda w: {f"{side}.{key}": w[key].clone() for key in w for side in "ab"}
    )
    with pytest.raises(CourseError, match=r"holds several models, under a\., b\.; leave one"):
        zoo.load_pretrained(tmp_path)


def test_what_is_left_out_is_said(tmp_path):
    theirs = public("BertForTokenClassification", tmp_path)
    extra = {
        "bert.pooler.dense.weight": torch.ones(16, 16),
        "bert.pooler.dense.bias": torch.ones(16),
        "crf.transitions": torch.ones(2, 2),
    }
    change_weights(tmp_path, lambda w: w | extra)
    rows = batch_for(theirs.config)
    with pytest.warns(CourseWarning, match=r"crf\.transitions, pooler\.dense\.bias.* left out"):
        ours = zoo.load_pretrained(tmp_path)
    name = "BertForTokenClassification"
    assert same(answers(ours, name, rows), answers(theirs, name, rows))


def test_a_head_that_is_missing_is_new_only_if_it_is_asked_for(tmp_path):
    body = public("BertModel", tmp_path)
    change_config(tmp_path, architectures=["BertForSequenceClassification"])
    with pytest.raises(
        CourseError,
        match=r'lack the head of a BertForSequenceClassification \(classifier.*"BertModel"',
    ):
        zoo.load_pretrained(tmp_path)
    with pytest.warns(CourseWarning, match=r"classifier\.bias.*new and random; train the model"):
        ours = zoo.load_pretrained(
            tmp_path, architecture="BertForSequenceClassification", classes=3
        )
    assert isinstance(ours, heads.Classifier) and ours.out.out_features == 3
    rows = batch_for(body.config)
    states = answers(body, "BertModel", rows)[0]
    assert close(ours.stack(rows.ids, attention_mask=rows.mask)[rows.mask], states)
    # What asks for no head takes what there is.
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    assert isinstance(zoo.open_model(tmp_path).model, heads.Pooled)


@pytest.mark.parametrize("pad", [0, 3])
def test_a_roberta_with_another_pad_is_read_once_its_table_is_moved(pad, tmp_path):
    config = small("roberta")
    config.pad_token_id = pad
    theirs = randomise(transformers.RobertaModel(config))
    theirs.save_pretrained(tmp_path)
    with pytest.raises(CourseError, match=rf"pad_token_id is {pad}.* has {pad + 1} unused rows"):
        zoo.load_pretrained(tmp_path)

    # What the message advises gives the same answers.
    name = "embeddings.position_embeddings.weight"
    used = load_file(tmp_path / "model.safetensors")[name][pad + 1 :]
    change_weights(tmp_path, lambda w: w | {name: torch.cat((torch.zeros(2, used.shape[1]), used))})
    change_config(tmp_path, pad_token_id=1, max_position_embeddings=len(used) + 2)
    ours = zoo.load_pretrained(tmp_path)
    ids = torch.arange(5, 12)[None]
    assert close(ours.stack(ids), theirs(ids).last_hidden_state)


def test_a_class_is_advised_only_where_its_body_is_there(tmp_path):
    """NVIDIA's BERT calls two of its Linears dense_act, one in the body and one in the head."""
    public("BertForMaskedLM", tmp_path)
    files = load_file(tmp_path / "model.safetensors")
    renamed = {
        name.replace("transform.dense.", "transform.dense_act."): files[name] for name in files
    }
    change_weights(tmp_path, lambda w: renamed)
    with (
        pytest.warns(CourseWarning),
        pytest.raises(CourseError, match='as architecture="BertModel"'),
    ):
        zoo.load_pretrained(tmp_path)
    with pytest.warns(CourseWarning, match="left out"):
        zoo.load_pretrained(tmp_path, architecture="BertModel")

    both = {
        name.replace("intermediate.dense.", "intermediate.dense_act."): weight
        for name, weight in renamed.items()
    }
    change_weights(tmp_path, lambda w: both)
    with pytest.warns(CourseWarning), pytest.raises(CourseError) as refusal:
        zoo.load_pretrained(tmp_path)
    message = str(refusal.value)
    assert "dense_act.bias and " in message and "not those of transformers" in message
    assert "architecture" not in message

    without = {name: weight for name, weight in renamed.items() if ".layer.0.output." not in name}
    change_weights(tmp_path, lambda w: without)
    with pytest.warns(CourseWarning), pytest.raises(CourseError, match="lacks 4 weights"):
        zoo.load_pretrained(tmp_path)


@pytest.mark.parametrize(("model_type", "name"), BODIES)
def test_a_body_may_lack_its_pooler(model_type, name, tmp_path):
    theirs = public(name, tmp_path, model_type)
    change_weights(tmp_path, lambda w: {key: w[key] for key in w if not key.startswith("pooler.")})
    rows = batch_for(theirs.config)
    ours = zoo.load_pretrained(tmp_path)
    assert same(answers(ours, name, rows)[:1], answers(theirs, name, rows)[:1])
    zoo.save_pretrained(ours, tmp_path / "again", model_type=model_type, architecture=name)
    again = zoo.load_pretrained(tmp_path / "again")
    assert same(answers(again, name, rows)[:1], answers(theirs, name, rows)[:1])


# Old files

# Families in which a classifier has the same weights as a chooser or a tagger.
HAVE_TWINS = ("bert", "megatron-bert", "albert", "distilbert", "modernbert")


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_files_that_name_no_class_are_what_they_hold(model_type, tmp_path):
    for name in MODEL_TYPES[model_type].architectures:
        twins = ("MultipleChoice", "BertForTokenClassification", "BertForQuestionAnswering")
        twins = twins if model_type == "modernbert" else twins[:1]
        if not hasattr(transformers, name) or name.endswith(twins):
            continue
        theirs = public(name, tmp_path / name, model_type)
        change_config(tmp_path / name, "architectures")
        rows = batch_for(theirs.config)
        if name.endswith("SequenceClassification") and model_type in HAVE_TWINS:
            with pytest.raises(CourseError, match=f"could be those of a {name} or a .*; say which"):
                zoo.load_pretrained(tmp_path / name)
            continue
        named = {"architecture": name} if name == "T5Model" else {}
        ours = zoo.load_pretrained(tmp_path / name, **named)
        assert same(answers(ours, name, rows), answers(theirs, name, rows)), name


@pytest.mark.parametrize(
    ("model_type", "name"),
    [
        ("bert", "BertForMaskedLM"),
        ("roberta", "RobertaForMaskedLM"),
        ("distilbert", "DistilBertForMaskedLM"),
        ("gpt2", "GPT2LMHeadModel"),
        ("openai-gpt", "OpenAIGPTLMHeadModel"),
    ],
)
@pytest.mark.parametrize("dropped", [("model_type",), ("model_type", "architectures")])
def test_old_files_without_a_model_type(model_type, name, dropped, tmp_path):
    theirs = public(name, tmp_path, model_type)
    change_config(tmp_path, *dropped)
    rows = batch_for(theirs.config)
    assert same(answers(zoo.load_pretrained(tmp_path), name, rows), answers(theirs, name, rows))


def test_a_class_that_was_renamed_since(tmp_path):
    """The published t5-large, t5-3b and t5-11b name their class so."""
    theirs = public("T5ForConditionalGeneration", tmp_path, "t5")
    change_config(tmp_path, architectures=["T5WithLMHeadModel"])
    rows = batch_for(theirs.config)
    name = "T5ForConditionalGeneration"
    assert same(answers(zoo.load_pretrained(tmp_path), name, rows), answers(theirs, name, rows))


def test_a_file_that_nothing_tells_apart_says_what_to_add(tmp_path):
    public("BertModel", tmp_path)
    change_config(tmp_path, "model_type", "architectures")
    with pytest.raises(CourseError, match='add its type, as "model_type": "bert"'):
        zoo.load_pretrained(tmp_path)


# Several files


def in_parts(folder, count=3):
    """The weights in parts with an index, as transformers writes large models."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    where = {}
    for number in range(count):
        part = f"model-{number + 1:05}-of-{count:05}.safetensors"
        some = {name: weights[name] for name in sorted(weights)[number::count]}
        save_file(some, folder / part, {"format": "pt"})
        where |= dict.fromkeys(some, part)
    index = {"metadata": {"total_size": 1}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_parts_are_read_together_and_one_that_is_missing_is_named(tmp_path):
    theirs = public("BertModel", tmp_path)
    in_parts(tmp_path)
    rows = batch_for(theirs.config)
    expected = answers(theirs, "BertModel", rows)
    assert same(answers(zoo.load_pretrained(tmp_path), "BertModel", rows), expected)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CourseError, match=r"lacks model-00002-of-00003\.safetensors, one of the 3"):
        zoo.load_pretrained(tmp_path)


def test_of_several_files_the_one_that_transformers_reads(tmp_path):
    """The old parts of an earlier model, a backup, half a precision."""
    public("BertModel", tmp_path)
    in_parts(tmp_path)
    last = randomise(transformers.BertModel(small("bert")), seed=5)
    last.save_pretrained(tmp_path / "last")
    (tmp_path / "last" / "model.safetensors").rename(tmp_path / "model.safetensors")
    save_file({"x": torch.zeros(2)}, tmp_path / "model.step-10.safetensors")
    theirs = transformers.BertModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    rows = batch_for(last.config)
    assert same(answers(theirs, "BertModel", rows), answers(last, "BertModel", rows))
    with pytest.warns(
        CourseWarning, match=r"read model\.safetensors, but not model-00001-of"
    ) as told:
        ours = zoo.load_pretrained(tmp_path)
    assert "model.step-10.safetensors" in str(told[0].message)
    assert same(answers(ours, "BertModel", rows), answers(last, "BertModel", rows))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {"x": "../secret.safetensors"}}, "does not say which file"),
        ({"weight_map": ["model.safetensors"]}, "does not say which file"),
        ({}, "does not say which file"),
    ],
)
def test_an_index_that_is_none(index, message, tmp_path):
    public("BertModel", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CourseError, match=message):
        zoo.load_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["pytorch_model.bin"],
            r"pickled weights are not opened.*pytorch_model\.bin.*save_pretrained",
        ),
        (["model.fp16.safetensors"], r"no model\.safetensors, but model\.fp16\.safetensors; call"),
        ([], r"holds no weights: no model\.safetensors"),
    ],
)
def test_a_folder_without_the_file_says_what_to_do(names, message, tmp_path):
    public("BertModel", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    for name in names:
        (tmp_path / name).write_bytes(b"not opened")
    with pytest.raises(CourseError, match=message):
        zoo.load_pretrained(tmp_path)


# Saving


def saved(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_save_that_fails_changes_nothing(tmp_path, monkeypatch):
    public("BertModel", tmp_path / "first")
    public("BertForMaskedLM", tmp_path / "second")
    zoo.save_pretrained(zoo.load_pretrained(tmp_path / "first"), tmp_path / "out")
    before = saved(tmp_path / "out")
    tokenizer = zoo.load("bert-mini").tokenizer
    monkeypatch.setattr(
        type(tokenizer), "save", lambda *_, **__: Path("/no/such/place").read_bytes()
    )
    other = zoo.load_pretrained(tmp_path / "second")
    for folder in ("out", "new"):
        with pytest.raises(CourseError, match=r"Could not write .*is unchanged"):
            zoo.save_pretrained(other, tmp_path / folder, tokenizer=tokenizer)
    assert saved(tmp_path / "out") == before
    assert not (tmp_path / "new").exists()
