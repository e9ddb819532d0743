"""Adapters of the library peft on tiny public models: equal outputs, and ours load there."""

import json

import peft as public
import pytest
import torch
import transformers
from safetensors.torch import load_file, save

from course_lib import peft, zoo
from course_lib.errors import CourseError
from course_lib.families import MODEL_TYPES
from course_lib.families.gpt import gpt
from course_lib.model import heads
from course_lib.model.transformer import Transformer
from tests.parity.public import close, randomise
from tests.parity.small_models import shaken

BERT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
GPT2 = {
    "n_embd": 24,
    "n_layer": 3,
    "n_head": 2,
    "n_positions": 30,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
T5 = {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 40}
BART = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
}
CONFIGS = {
    "bert": lambda: transformers.BertConfig(
        vocab_size=60, max_position_embeddings=30, num_labels=3, **BERT
    ),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=60, num_labels=3, pad_token_id=0, **GPT2),
    "t5": lambda: transformers.T5Config(vocab_size=60, **T5),
    "bart": lambda: transformers.BartConfig(
        vocab_size=60, max_position_embeddings=30, scale_embedding=True, **BART
    ),
}
CLS, LM, SUM = "BertForSequenceClassification", "GPT2LMHeadModel", "T5ForConditionalGeneration"


def lora(task, *modules, **more):
    return public.LoraConfig(
        task_type=task,
        r=3,
        lora_alpha=5,
        target_modules=list(modules),
        init_lora_weights=False,
        **more,
    )


CASES = {
    "bert lora": (CLS, lora("SEQ_CLS", "query", "value")),
    "bert lora, more linears": (
        "BertForMaskedLM",
        lora(None, "key", "value", "output.dense", "intermediate.dense"),
    ),
    "bert lora, patterns": (
        CLS,
        lora(
            "SEQ_CLS", "query", "key", rank_pattern={"key": 5}, alpha_pattern={"layer.1.*.query": 9}
        ),
    ),
    "bert lora, pooler too": (CLS, lora("SEQ_CLS", "query", modules_to_save=["pooler.dense"])),
    "gpt2 lora": (LM, lora("CAUSAL_LM", "c_attn", fan_in_fan_out=True)),
    "gpt2 lora, every linear": (
        LM,
        lora("CAUSAL_LM", "c_attn", "c_proj", "c_fc", fan_in_fan_out=True),
    ),
    "gpt2 lora, classifier": (
        "GPT2ForSequenceClassification",
        lora("SEQ_CLS", "c_attn", fan_in_fan_out=True),
    ),
    "bert dora": (CLS, lora("SEQ_CLS", "query", "value", "output.dense", use_dora=True)),
    "gpt2 dora": (LM, lora("CAUSAL_LM", "c_attn", "c_fc", fan_in_fan_out=True, use_dora=True)),
    "t5 dora": (SUM, lora("SEQ_2_SEQ_LM", "q", "wo", use_dora=True)),
    "t5 lora": (SUM, lora("SEQ_2_SEQ_LM", "q", "v", "wo")),
    "bart lora": ("BartForConditionalGeneration", lora("SEQ_2_SEQ_LM", "q_proj", "out_proj")),
    "gpt2 prompt": (LM, public.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)),
    "bert prefix": (CLS, public.PrefixTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=4)),
    "gpt2 prefix": (LM, public.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)),
}


def model_type(architecture):
    return next(name for name in CONFIGS if architecture.lower().startswith(name))


def base(architecture):
    return randomise(getattr(transformers, architecture)(CONFIGS[model_type(architecture)]()))


@pytest.fixture
def trained(tmp_path):
    """(their model, our model, keywords) of an adapter that the library has written."""

    def make(architecture, config):
        theirs = base(architecture)
        theirs.save_pretrained(tmp_path / "base")
        torch.manual_seed(2)
        theirs = public.get_peft_model(theirs, config).eval()
        shaken(theirs)
        theirs.save_pretrained(tmp_path / "theirs")
        what = {"model_type": model_type(architecture), "architecture": architecture}
        ours = zoo.load_pretrained(tmp_path / "base", classes=3)
        return theirs, peft.load_pretrained(ours, tmp_path / "theirs", **what).eval(), what

    return make


def outputs(theirs, ours, batch):
    """Both sides' first output on rows padded on the right, the text's positions only."""
    ids, attention_mask = batch["ids"], batch["attention_mask"]
    options, more = {"input_ids": ids, "attention_mask": attention_mask.long()}, ()
    name = type(theirs.get_base_model()).__name__
    # for a bare body, prompts make the library drop them
    with_segments = name in (CLS, "BertForMaskedLM")
    if with_segments:
        options["token_type_ids"] = batch["segments"]
    if name.endswith("ConditionalGeneration"):
        options["decoder_input_ids"] = batch["ids"].flip(1)
        more = (batch["ids"].flip(1),)
    expected = theirs(**options)
    expected = (
        getattr(expected, "logits", None)
        if hasattr(expected, "logits")
        else expected.last_hidden_state
    )
    extra = {"segments": batch["segments"]} if with_segments else {}
    actual = ours(ids, *more, attention_mask=attention_mask, **extra)
    actual = actual[0] if isinstance(actual, tuple) else actual
    if expected.dim() == 2 or more:
        return actual, expected
    last = ids.shape[1]
    return actual[:, -last:][attention_mask], expected[:, -last:][attention_mask]


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_equal_and_survive_the_way_back(case, trained, batch, tmp_path):
    architecture, config = CASES[case]
    theirs, ours, what = trained(architecture, config)
    with torch.no_grad():
        actual, expected = outputs(theirs, ours, batch)
    assert actual.shape == expected.shape and close(actual, expected)
    plain = zoo.load_pretrained(tmp_path / "base", classes=3)
    with torch.no_grad():
        assert not close(outputs(theirs, plain, batch)[0], expected), "the adapter does nothing"

    peft.save_pretrained(ours, tmp_path / "ours", **what)
    again = public.PeftModel.from_pretrained(base(architecture), tmp_path / "ours").eval()
    with torch.no_grad():
        assert close(outputs(again, ours, batch)[1], expected)


@pytest.mark.parametrize("method", [peft.lora, peft.dora])
@pytest.mark.parametrize("pattern", ["blocks.*.attn.[qv]", "blocks.*.attn.k", "blocks.*.*.*"])
def test_our_own_gpt2_updates_load_there(method, pattern, batch, tmp_path):
    """Of q and v alone, or each with an A of its own: written as one update of c_attn with the
    summed rank.
    """
    base(LM).save_pretrained(tmp_path / "base")
    ours = shaken(method(zoo.load_pretrained(tmp_path / "base"), pattern, rank=2, alpha=3))
    peft.save_pretrained(ours, tmp_path / "ours", model_type="gpt2", architecture=LM)
    theirs = public.PeftModel.from_pretrained(base(LM), tmp_path / "ours").eval()
    again = zoo.load_pretrained(tmp_path / "base")
    peft.load_pretrained(again, tmp_path / "ours", model_type="gpt2", architecture=LM)
    with torch.no_grad():
        actual, expected = outputs(theirs, ours, batch)
        assert close(actual, expected) and close(again(batch["ids"]), ours(batch["ids"]))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("method", [peft.prefix, peft.lora])
def test_a_fine_tuned_classifier_takes_its_head_and_pooler_there(method, whole, batch, tmp_path):
    base(CLS).save_pretrained(tmp_path / "base")
    ours = zoo.load_pretrained(tmp_path / "base", classes=3)
    if whole:
        method(ours)  # the head is frozen, too; the library wants it in the file none the less
    else:
        ours.stack = method(ours.stack)  # as `finetune` does: the head stays trainable
    assert ours.pooler.dense.weight.requires_grad != whole
    peft.save_pretrained(shaken(ours), tmp_path / "ours", model_type="bert", architecture=CLS)
    theirs = public.PeftModel.from_pretrained(base(CLS), tmp_path / "ours").eval()
    with torch.no_grad():
        actual, expected = outputs(theirs, ours, batch)
    assert close(actual, expected)


@pytest.mark.parametrize("case", ["gpt2 lora", "gpt2 dora"])
def test_a_merged_model_is_the_one_that_peft_merges(case, trained, tmp_path):
    theirs, ours, what = trained(*CASES[case])
    peft.merge(ours)
    zoo.save_pretrained(ours, tmp_path / "merged", **what)
    merged = theirs.merge_and_unload().state_dict()
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "merged").state_dict()
    assert merged.keys() == again.keys() and all(
        close(again[name], merged[name]) for name in merged
    )


@pytest.mark.parametrize("case", ["gpt2 lora", "gpt2 dora"])
def test_training_goes_on_as_in_the_library(case, trained, batch):
    """q, k and v share one A there and here: after three updates both still say the same."""
    theirs, ours, _ = trained(*CASES[case])
    ids = batch["ids"][:, :6].clamp(min=1)
    for name, weight in theirs.named_parameters():
        weight.requires_grad_("lora_" in name)
    both = [
        torch.optim.Adam([w for w in m.parameters() if w.requires_grad], lr=0.01)
        for m in (theirs, ours)
    ]
    for _ in range(3):
        theirs(input_ids=ids, labels=ids).loss.backward()
        logits = ours(ids)
        torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()
        ).backward()
        for optimizer in both:
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        actual, expected = outputs(theirs, ours, batch)
        assert close(actual, expected) and not close(
            actual, outputs(trained(*CASES[case])[0], ours, batch)[1]
        )


def change(folder, **values):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_foreign_adapters_are_refused(tmp_path):
    what = {"model_type": "bert", "architecture": "BertModel"}
    theirs = base("BertModel")
    theirs.save_pretrained(tmp_path / "base")
    public.get_peft_model(theirs, lora(None, "query")).save_pretrained(tmp_path / "bert")
    public.get_peft_model(base("BertModel"), lora(None, "word_embeddings")).save_pretrained(
        tmp_path / "words"
    )
    for name, method in {"gpt2": peft.lora, "prompt": peft.prompt, "prefix": peft.prefix}.items():
        model = method(heads.LM(Transformer(gpt(60, width=24, layers=2, heads=2, length=30))))
        peft.save_pretrained(model, tmp_path / name, model_type="gpt2", architecture=LM)
    ours = zoo.load_pretrained(tmp_path / "base")
    before = list(ours.state_dict())

    def refused(folder, match, **other):
        with pytest.raises(CourseError, match=match):
            peft.load_pretrained(ours, tmp_path / folder, **(what | other))
        assert list(ours.state_dict()) == before

    refused("gpt2", r"update of transformer.h.\d.attn.c_attn does not fit this model")
    refused("prompt", "a pooler would read the prompt")
    refused("prefix", "96 numbers a row; this model takes 128")
    refused("nowhere", "no file")
    refused("words", "updates of other things than Linears")
    refused("bert", "Nothing is known", architecture="BertForHouses")
    change(tmp_path / "bert", use_dora=True)  # but the folder has no lengths of rows
    refused("bert", "of another form than B A")
    change(tmp_path / "bert", use_dora=False, use_qalora=True)
    refused("bert", "use_qalora False, not True")
    change(tmp_path / "bert", use_qalora=False, r=5)
    refused("bert", r"rank of encoder.layer.\d.attention.self.query is 5 .* and 3 in the file")
    change(tmp_path / "bert", r=3, exclude_modules="encoder.layer.1.*")
    refused("bert", "update of encoder.layer.1.attention.self.query, but .* leaves it out")
    change(tmp_path / "bert", exclude_modules=None, init_lora_weights="pissa")
    refused("bert", "init_lora_weights is pissa, which changes the base")
    change(tmp_path / "bert", init_lora_weights=True, sparkle=3)
    refused("bert", "sparkle is 3, and the course does not know what that changes")
    change(tmp_path / "prompt", peft_type="IA3")
    (tmp_path / "prompt" / "adapter_model.safetensors").write_bytes(save({}))
    refused("prompt", "holds IA3; the course reads LORA")


@pytest.mark.parametrize("case", ["bert lora", "gpt2 prefix"])
def test_a_second_adapter_is_refused_until_the_first_is_merged(case, trained, tmp_path):
    _, ours, what = trained(*CASES[case])
    before = list(ours.state_dict())
    with pytest.raises(CourseError, match=r"has an adapter already\. Merge the first one .* again"):
        peft.load_pretrained(ours, tmp_path / "theirs", **what)
    assert list(ours.state_dict()) == before
    if "lora" in case:
        peft.merge(ours)
        peft.load_pretrained(ours, tmp_path / "theirs", **what)
        assert list(ours.state_dict()) == before


def test_a_pickled_adapter_is_not_read(trained, tmp_path):
    _, _, what = trained(*CASES["bert lora"])
    weights = tmp_path / "theirs" / "adapter_model.safetensors"
    torch.save(load_file(weights), weights.with_suffix(".bin"))
    ours = zoo.load_pretrained(tmp_path / "base", classes=3)
    peft.load_pretrained(ours, tmp_path / "theirs", **what)  # the pickle beside it is no matter

    weights.unlink()
    ours = zoo.load_pretrained(tmp_path / "base", classes=3)
    with pytest.raises(CourseError, match=r"adapter_model\.bin only.* does not read it"):
        peft.load_pretrained(ours, tmp_path / "theirs", **what)
    # What the message advises helps.
    by_theirs = public.PeftModel.from_pretrained(base(what["architecture"]), tmp_path / "theirs")
    by_theirs.save_pretrained(tmp_path / "new")
    peft.load_pretrained(ours, tmp_path / "new", **what)


def test_what_the_library_cannot_say_is_not_written(tmp_path):
    def bert(head=heads.Pooled):
        return head(Transformer(MODEL_TYPES["bert"].read_config(CONFIGS["bert"]().to_dict())))

    def training(model, *names):
        for name in names:
            model.get_parameter(name).requires_grad_(True)
        return model

    some_biases = training(peft.lora(bert()), "stack.blocks.0.attn_norm.bias")
    behind_a_prefix = training(peft.prefix(bert()), "stack.blocks.0.attn_norm.bias")
    tied_head = training(peft.lora(bert(heads.MLM)), "head.bias", "head.dense.weight")
    tokens = training(peft.lora(bert(heads.MLM)), "stack.embed.tokens.weight")
    two_fold = training(peft.lora(bert()), "stack.blocks.0.attn.q.base.weight")
    for model, words in [
        (some_biases, "attention.output.LayerNorm.bias is trained alone"),
        (behind_a_prefix, "only LoRA trains biases alone"),
        (tied_head, "cls.predictions.bias is trained alone"),
        (tokens, "new token vectors leave the output matrix"),
        (two_fold, "attention.self.query whole, so it cannot have an update"),
        (bert(), "Only a model with LoRA updates"),
        (
            peft.adapters(peft.lora(bert()), 2),
            r"adapter.down.\w+ is trained, but `peft` has no place",
        ),
        (peft.prompt(bert(), 2), "a pooler would read the prompt"),
        (
            peft.dora(peft.lora(bert(), "attn.q"), "attn.v"),
            "all updates of a model are DoRA's or none",
        ),
    ]:
        name = "BertForMaskedLM" if isinstance(model, heads.MLM) else "BertModel"
        with pytest.raises(CourseError, match=words):
            peft.save_pretrained(model, tmp_path, model_type="bert", architecture=name)
    assert not list(tmp_path.iterdir())
