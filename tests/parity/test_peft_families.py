"""The library peft's own properties on every public class: an adapter loads to the same outputs and
trains as many weights, comes back, merges, unmerges and is exported merged.
"""

import warnings

import peft as public
import pytest
import torch
import transformers

from course_lib import peft, zoo
from course_lib.families import MODEL_TYPES
from tests.parity.public import close, randomise
from tests.parity.small_models import Rows, answers, shaken, small

IDS = torch.tensor([[5, 9, 30, 7, 8, 2]])
ROWS = Rows(IDS, torch.ones_like(IDS, dtype=torch.bool))
TASKS = {
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
}
# peft writes these whole, so it cannot update them.
HEADS = ["classifier", "pre_classifier", "qa_outputs", "score"]
SETTINGS = {
    "lora": {},
    "dora": {"use_dora": True},
    "rslora": {"use_rslora": True, "rank_pattern": {".*0.*": 4}, "alpha_pattern": {".*1.*": 7}},
    "all biases": {"bias": "all"},
    "their biases": {"bias": "lora_only"},
}
# What a quick run takes: of each family the classes that end so, with these settings.
QUICK = ("ForSequenceClassification", "LMHeadModel", "ForConditionalGeneration")
QUICK_SETTINGS = ("lora", "all biases")
CLASSES = [
    (model_type, name)
    for model_type, family in MODEL_TYPES.items()
    for name in family.architectures
    if hasattr(transformers, name)
]


def cases(settings):
    """All classes with all settings; most of them are slow."""
    found = []
    for model_type, name in CLASSES:
        for setting in settings:
            is_quick = name.endswith(QUICK) and setting in QUICK_SETTINGS
            marks = () if is_quick else pytest.mark.slow
            found.append(pytest.param(model_type, name, setting, marks=marks))
    return found


def base(model_type, name):
    """A tiny public model, the same in every call."""
    return randomise(getattr(transformers, name)(small(model_type)))


def same(ours, theirs, name):
    found = answers(ours, name, ROWS)
    # What a peft model holds has the public class; it gives the outputs by their names.
    expected = answers(getattr(theirs, "get_base_model", lambda: theirs)(), name, ROWS)
    return len(found) == len(expected) and all(map(close, found, expected))


def trained(model):
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


@pytest.mark.parametrize(("model_type", "name", "setting"), cases(SETTINGS))
def test_an_adapter_has_the_same_properties_here_and_there(model_type, name, setting, tmp_path):
    what = {"model_type": model_type, "architecture": name}
    plain = base(model_type, name)
    plain.save_pretrained(tmp_path / "base")
    task = next((task for ending, task in TASKS.items() if name.endswith(ending)), None)
    config = public.LoraConfig(
        task_type=task,
        r=3,
        lora_alpha=5,
        target_modules="all-linear",
        exclude_modules=HEADS,
        **SETTINGS[setting],
    )
    torch.manual_seed(2)
    theirs = shaken(public.get_peft_model(plain, config).eval())
    theirs.save_pretrained(tmp_path / "theirs")

    ours = zoo.load_pretrained(tmp_path / "base")
    assert not same(ours, theirs, name), "the adapter does nothing"
    peft.load_pretrained(ours, tmp_path / "theirs", **what)
    assert same(ours, theirs, name)
    assert trained(ours) == trained(theirs)

    peft.save_pretrained(ours, tmp_path / "ours", **what)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*missing adapter keys.*")
        again = public.PeftModel.from_pretrained(
            base(model_type, name), tmp_path / "ours", is_trainable=True
        ).eval()
    assert same(ours, again, name)
    assert trained(again) == trained(theirs)

    layers = peft.merge(ours)
    assert same(ours, theirs, name)
    zoo.save_pretrained(ours, tmp_path / "merged", **what)
    exported = getattr(transformers, name).from_pretrained(tmp_path / "merged").eval()
    assert same(ours, exported, name)
    peft.unmerge(ours, layers)
    assert same(ours, theirs, name)


@pytest.mark.parametrize(("model_type", "name", "setting"), cases(["lora", "dora"]))
def test_our_own_updates_load_there(model_type, name, setting, tmp_path):
    """As `finetune` does: the body has updates of q and v, the head is trained whole."""
    method = getattr(peft, setting)
    what = {"model_type": model_type, "architecture": name}
    base(model_type, name).save_pretrained(tmp_path / "base")
    ours = zoo.load_pretrained(tmp_path / "base")
    plain = answers(ours, name, ROWS)
    ours.stack = method(ours.stack, rank=2, alpha=3)
    if name.endswith(("ForMaskedLM", "ForPreTraining")):
        method(ours, "attn.k", rank=2, alpha=3)  # peft cannot train the tied output along
    shaken(ours)
    assert not all(map(close, answers(ours, name, ROWS), plain)), "the updates do nothing"
    peft.save_pretrained(ours, tmp_path / "ours", **what)
    theirs = public.PeftModel.from_pretrained(
        base(model_type, name), tmp_path / "ours", is_trainable=True
    )
    assert same(ours, theirs.eval(), name)
    again = zoo.load_pretrained(tmp_path / "base")
    peft.load_pretrained(again, tmp_path / "ours", **what)
    assert same(again, theirs, name)
    assert trained(again) == trained(theirs)
