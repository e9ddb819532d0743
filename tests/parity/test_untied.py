"""Output matrices that are not the table of token vectors, of every class that has one."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from course_lib import zoo
from course_lib.errors import CourseError
from course_lib.families import MODEL_TYPES
from course_lib.model.heads import is_tied
from tests.parity.public import close, randomise
from tests.parity.small_models import VOCAB, answers, batch_for, same, small

CLASSES = [
    (model_type, name)
    for model_type, family in MODEL_TYPES.items()
    for name, architecture in family.architectures.items()
    if architecture.output
]
# T5's files say with this field whether hidden states are scaled; the matrix is one that differs.
NOT_T5 = [(model_type, name) for model_type, name in CLASSES if model_type != "t5"]


def untied(model_type, name):
    """A public model whose output matrix and bias are its own; so are the tables of its sides."""
    config = small(model_type)
    config.tie_word_embeddings = False
    model = getattr(transformers, name)(config)
    output = model.get_output_embeddings()
    output.weight = torch.nn.Parameter(output.weight.clone())
    return randomise(model)


@pytest.mark.parametrize(("model_type", "name"), CLASSES)
def test_an_output_matrix_of_its_own_is_read_and_written(model_type, name, tmp_path):
    theirs = untied(model_type, name)
    theirs.save_pretrained(tmp_path)
    ours = zoo.load_pretrained(tmp_path)
    assert not is_tied(ours)
    rows = batch_for(theirs.config)
    expected = answers(theirs, name, rows)
    assert same(answers(ours, name, rows), expected)

    zoo.save_pretrained(ours, tmp_path / "again", model_type=model_type, architecture=name)
    again, info = getattr(transformers, name).from_pretrained(
        tmp_path / "again", attn_implementation="eager", output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert same(answers(again.eval(), name, rows), expected)
    assert same(answers(zoo.load_pretrained(tmp_path / "again"), name, rows), expected)


@pytest.mark.parametrize(("model_type", "name"), CLASSES)
def test_a_matrix_that_differs_counts_whatever_the_file_says(model_type, name, tmp_path):
    """transformers ties nothing that differs in the file."""
    untied(model_type, name).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": True}))
    theirs = getattr(transformers, name).from_pretrained(tmp_path, attn_implementation="eager")
    rows = batch_for(theirs.config)
    assert same(
        answers(zoo.load_pretrained(tmp_path), name, rows), answers(theirs.eval(), name, rows)
    )


@pytest.mark.parametrize(("model_type", "name"), NOT_T5)
def test_a_matrix_that_is_missing_is_not_guessed(model_type, name, tmp_path):
    theirs = untied(model_type, name)
    theirs.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    output = next(iter(MODEL_TYPES[model_type].architectures[name].output))
    del weights[output]
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(CourseError, match=f"the files hold no output matrix {output}"):
        zoo.load_pretrained(tmp_path)


@pytest.mark.parametrize("model_type", ["bart", "blenderbot", "t5"])
@pytest.mark.parametrize("kept", ["encoder.embed_tokens.weight", "lm_head.weight"])
def test_the_table_is_found_under_another_name(model_type, kept, tmp_path):
    """safetensors keeps one name of a shared tensor, and not always the same one."""
    family = MODEL_TYPES[model_type]
    name = next(name for name in family.architectures if name.endswith("Generation"))
    theirs = randomise(getattr(transformers, name)(small(model_type)))
    theirs.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    prefix = "" if kept == "lm_head.weight" else family.prefix
    weights[prefix + kept] = weights.pop(f"{family.prefix}shared.weight")
    save_file(weights, file, {"format": "pt"})
    rows = batch_for(theirs.config)
    ours = zoo.load_pretrained(tmp_path)
    assert is_tied(ours)
    assert same(answers(ours, name, rows), answers(theirs, name, rows))


@pytest.mark.parametrize(("model_type", "name"), NOT_T5)
def test_an_own_matrix_is_trained_apart_from_the_table(model_type, name, tmp_path):
    untied(model_type, name).save_pretrained(tmp_path)
    ours = zoo.load_pretrained(tmp_path)
    own = [
        n for n, weight in ours.named_parameters() if weight.shape[0] == VOCAB and n[:4] == "head"
    ]
    assert any(n.endswith(("head.weight", "output.weight")) for n in own)


def test_a_shipped_checkpoint_may_have_one(tmp_path):
    untied("gpt2", "GPT2LMHeadModel").save_pretrained(tmp_path)
    ours = zoo.load_pretrained(tmp_path)
    zoo.export("tiny", ours.half().float(), zoo.load("gpt-mini").tokenizer, {}, tmp_path / "zoo")
    again = zoo.load("tiny", folder=tmp_path / "zoo").model
    ids = torch.tensor([[5, 9, 30]])
    assert close(again(ids), ours(ids))
