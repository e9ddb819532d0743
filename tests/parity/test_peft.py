"""Adapters of the library peft on tiny public models: equal outputs, and ours load there."""

import copy
import json

import peft as public
import pytest
import torch
import transformers

from course_lib import heads, hf, peft
from course_lib.errors import CourseError
from course_lib.generate import generate
from course_lib.models.gpt import gpt
from course_lib.peft.lora import LoRALinear
from course_lib.stack import Stack
from tests.parity.public import close, randomise

BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
GPT2 = {"n_embd": 24, "n_layer": 3, "n_head": 2, "n_positions": 30, "bos_token_id": 0, "eos_token_id": 0}
T5 = {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 40}
BART = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40}  # fmt: skip
CONFIGS = {
    "bert": lambda: transformers.BertConfig(vocab_size=60, max_position_embeddings=30, num_labels=3, **BERT),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=60, num_labels=3, pad_token_id=0, **GPT2),
    "t5": lambda: transformers.T5Config(vocab_size=60, **T5),
    "bart": lambda: transformers.BartConfig(vocab_size=60, max_position_embeddings=30, scale_embedding=True, **BART),
}
CLS, LM, SUM = "BertForSequenceClassification", "GPT2LMHeadModel", "T5ForConditionalGeneration"


def lora(task, *modules, **more):
    return public.LoraConfig(
        task_type=task, r=3, lora_alpha=5, target_modules=list(modules), init_lora_weights=False, **more
    )


def prompt(task):
    return public.PromptTuningConfig(task_type=task, num_virtual_tokens=4)


def prefix(task, **more):
    return public.PrefixTuningConfig(task_type=task, num_virtual_tokens=4, **more)


CASES = {
    "bert lora": (CLS, lora("SEQ_CLS", "query", "value")),
    "bert lora, more linears": ("BertForMaskedLM", lora(None, "key", "value", "output.dense", "intermediate.dense")),
    "bert lora, patterns": (
        CLS, lora("SEQ_CLS", "query", "key", rank_pattern={"key": 5}, alpha_pattern={"layer.1.*.query": 9}),
    ),
    "bert lora, rslora": (CLS, lora("SEQ_CLS", "value", use_rslora=True)),
    "bert lora, pooler too": (CLS, lora("SEQ_CLS", "query", modules_to_save=["pooler.dense"])),
    "gpt2 lora": (LM, lora("CAUSAL_LM", "c_attn", fan_in_fan_out=True)),
    "gpt2 lora, every linear": (LM, lora("CAUSAL_LM", "c_attn", "c_proj", "c_fc", fan_in_fan_out=True)),
    "gpt2 lora, classifier": ("GPT2ForSequenceClassification", lora("SEQ_CLS", "c_attn", fan_in_fan_out=True)),
    "t5 lora": (SUM, lora("SEQ_2_SEQ_LM", "q", "v", "wo")),
    "bart lora": ("BartForConditionalGeneration", lora("SEQ_2_SEQ_LM", "q_proj", "out_proj")),
    "bert prompt": (CLS, prompt("SEQ_CLS")),
    "bert prompt, body": ("BertModel", prompt("FEATURE_EXTRACTION")),
    "gpt2 prompt": (LM, prompt("CAUSAL_LM")),
    "t5 prompt": (SUM, prompt("SEQ_2_SEQ_LM")),
    "bart prompt": ("BartForConditionalGeneration", prompt("SEQ_2_SEQ_LM")),
    "bert prefix": (CLS, prefix("SEQ_CLS")),
    "gpt2 prefix": (LM, prefix("CAUSAL_LM")),
    "gpt2 prefix with network": (LM, prefix("CAUSAL_LM", prefix_projection=True, encoder_hidden_size=7)),
}  # fmt: skip


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
        with torch.no_grad():
            for weight in theirs.parameters():
                if weight.requires_grad:
                    weight.add_(0.2 * torch.randn(weight.shape))
        theirs.save_pretrained(tmp_path / "theirs")
        what = {"model_type": model_type(architecture), "architecture": architecture}
        ours = hf.load_pretrained(tmp_path / "base", classes=3)
        return theirs, peft.load_pretrained(ours, tmp_path / "theirs", **what).eval(), what

    return make


def outputs(theirs, ours, batch):
    """Both sides' first output on rows padded on the right, the text's positions only."""
    ids, keep = batch["ids"], batch["keep"]
    options, more = {"input_ids": ids, "attention_mask": keep.long()}, ()
    name = type(theirs.get_base_model()).__name__
    with_segments = name in (CLS, "BertForMaskedLM")  # for a bare body, prompts make the library drop them
    if with_segments:
        options["token_type_ids"] = batch["segments"]
    if name.endswith("ConditionalGeneration"):
        options["decoder_input_ids"] = batch["ids"].flip(1)
        more = (batch["ids"].flip(1),)
    expected = theirs(**options)
    expected = getattr(expected, "logits", None) if hasattr(expected, "logits") else expected.last_hidden_state
    extra = {"segments": batch["segments"]} if with_segments else {}
    actual = ours(ids, *more, keep=keep, **extra)
    actual = actual[0] if isinstance(actual, tuple) else actual
    if expected.dim() == 2 or more:
        return actual, expected
    last = ids.shape[1]
    return actual[:, -last:][keep], expected[:, -last:][keep]


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_equal_and_survive_the_way_back(case, trained, batch, tmp_path):
    architecture, config = CASES[case]
    theirs, ours, what = trained(architecture, config)
    with torch.no_grad():
        actual, expected = outputs(theirs, ours, batch)
    assert actual.shape == expected.shape and close(actual, expected)
    plain = hf.load_pretrained(tmp_path / "base", classes=3)
    with torch.no_grad():
        assert not close(outputs(theirs, plain, batch)[0], expected), "the adapter does nothing"

    peft.save_pretrained(ours, tmp_path / "ours", **what)
    again = public.PeftModel.from_pretrained(base(architecture), tmp_path / "ours").eval()
    with torch.no_grad():
        assert close(outputs(again, ours, batch)[1], expected)


@pytest.mark.parametrize("pattern", ["blocks.*.attn.[qv]", "blocks.*.attn.k", "blocks.*.*.*"])
def test_our_own_gpt2_updates_load_there(pattern, batch, tmp_path):
    """Of q and v alone, or each with an A of its own: written as one update of c_attn with the summed rank."""
    base(LM).save_pretrained(tmp_path / "base")
    ours = peft.lora(hf.load_pretrained(tmp_path / "base"), pattern, rank=2, alpha=3)
    torch.manual_seed(4)
    for layer in ours.modules():
        if isinstance(layer, LoRALinear):
            layer.lora.b.data.normal_()
    peft.save_pretrained(ours, tmp_path / "ours", model_type="gpt2", architecture=LM)
    theirs = public.PeftModel.from_pretrained(base(LM), tmp_path / "ours").eval()
    with torch.no_grad():
        actual, expected = outputs(theirs, ours, batch)
    assert close(actual, expected)
    again = hf.load_pretrained(tmp_path / "base")
    peft.load_pretrained(again, tmp_path / "ours", model_type="gpt2", architecture=LM)
    with torch.no_grad():
        assert close(again(batch["ids"]), ours(batch["ids"]))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("method", [peft.prefix, peft.lora])
def test_a_fine_tuned_classifier_takes_its_head_and_pooler_there(method, whole, batch, tmp_path):
    base(CLS).save_pretrained(tmp_path / "base")
    ours = hf.load_pretrained(tmp_path / "base", classes=3)
    if whole:
        method(ours)  # the head is frozen, too; the library wants it in the file none the less
    else:
        ours.stack = method(ours.stack)  # as `finetune` does: the head stays trainable
    torch.manual_seed(4)
    for weight in ours.parameters():
        if weight.requires_grad:
            weight.data.add_(0.2 * torch.randn_like(weight))
    assert ours.pooler.dense.weight.requires_grad != whole
    peft.save_pretrained(ours, tmp_path / "ours", model_type="bert", architecture=CLS)
    theirs = public.PeftModel.from_pretrained(base(CLS), tmp_path / "ours").eval()
    with torch.no_grad():
        actual, expected = outputs(theirs, ours, batch)
    assert close(actual, expected)


def test_updates_of_different_rank_and_strength_become_one(batch, tmp_path):
    base(LM).save_pretrained(tmp_path / "base")
    ours = hf.load_pretrained(tmp_path / "base")
    peft.lora(ours, "blocks.*.attn.q", rank=2, alpha=3, dropout=0.3)
    peft.lora(ours, "blocks.1.attn.v", rank=4, alpha=1, dropout=0.3)
    torch.manual_seed(4)
    for layer in ours.modules():
        if isinstance(layer, LoRALinear):
            layer.lora.b.data.normal_()
    peft.save_pretrained(ours, tmp_path / "ours", model_type="gpt2", architecture=LM, base="tiny")
    values = json.loads((tmp_path / "ours" / "adapter_config.json").read_text())
    assert values["fan_in_fan_out"] and values["base_model_name_or_path"] == "tiny" and values["lora_dropout"] == 0.3
    assert values["r"] == 2 and values["rank_pattern"] == {"transformer.h.1.attn.c_attn": 6}
    theirs = public.PeftModel.from_pretrained(base(LM), tmp_path / "ours").eval()
    with torch.no_grad():
        actual, expected = outputs(theirs, ours, batch)
    assert close(actual, expected)
    again = hf.load_pretrained(tmp_path / "base")
    peft.load_pretrained(again, tmp_path / "ours", model_type="gpt2", architecture=LM)
    assert again.stack.blocks[0].attn.k.lora.dropout.p == 0.3 and not again.training


def test_a_merged_model_is_the_one_that_peft_merges(trained, tmp_path):
    theirs, ours, what = trained(*CASES["gpt2 lora"])
    peft.merge(ours)
    hf.save_pretrained(ours, tmp_path / "merged", **what)
    merged = theirs.merge_and_unload().state_dict()
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "merged").state_dict()
    assert merged.keys() == again.keys()
    assert all(close(again[name], merged[name]) for name in merged)


@pytest.mark.parametrize("case", ["gpt2 lora", "gpt2 prefix", "gpt2 prompt"])
def test_generated_tokens_are_equal(case, trained):
    theirs, ours, _ = trained(*CASES[case])
    ids = torch.randint(1, 60, (3, 5), generator=torch.Generator().manual_seed(5))
    theirs.generation_config.eos_token_id = None
    expected = theirs.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=9, do_sample=False, pad_token_id=0
    )
    actual = generate(ours, ids, max_new_tokens=9)
    assert torch.equal(actual, expected[:, -14:])


def test_loss_gradients_of_the_updates_are_equal(trained, batch):
    theirs, ours, _ = trained(*CASES["gpt2 lora"])
    ids = batch["ids"][:, :6].clamp(min=1)
    theirs.requires_grad_(True)
    theirs(input_ids=ids, labels=ids).loss.backward()
    logits = ours(ids)
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    found = dict(theirs.named_parameters())
    for layer, block in enumerate(ours.stack.blocks):
        name = f"base_model.model.transformer.h.{layer}.attn.c_attn.lora_{{}}.default.weight"
        parts = [block.attn.q.lora, block.attn.k.lora, block.attn.v.lora]
        assert close(torch.cat([part.b.grad for part in parts]), found[name.format("B")].grad)
        assert close(sum(part.a.grad for part in parts), found[name.format("A")].grad)


def change(folder, **values):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_foreign_adapters_are_refused(tmp_path):
    what = {"model_type": "bert", "architecture": "BertModel"}
    theirs = base("BertModel")
    theirs.save_pretrained(tmp_path / "base")
    public.get_peft_model(theirs, lora(None, "query")).save_pretrained(tmp_path / "bert")
    gpt2 = peft.lora(heads.LM(Stack(gpt(60, width=24, layers=2, heads=2, length=30))), rank=2)
    peft.save_pretrained(gpt2, tmp_path / "gpt2", model_type="gpt2", architecture=LM)
    peft.save_pretrained(
        peft.prompt(heads.LM(Stack(gpt(60, width=24, layers=2, heads=2, length=30))), 3),
        tmp_path / "prompt", model_type="gpt2", architecture=LM,
    )  # fmt: skip
    ours = hf.load_pretrained(tmp_path / "base")
    before = list(ours.state_dict())

    def refused(folder, match, **other):
        with pytest.raises(CourseError, match=match):
            peft.load_pretrained(ours, tmp_path / folder, **(what | other))
        assert list(ours.state_dict()) == before

    refused("gpt2", r"update of transformer.h.\d.attn.c_attn, which this model has not")
    refused("prompt", r"prompt_embeddings is \[3, 24\], but this model takes 32")
    refused("nowhere", "no file")
    refused("bert", "Nothing is known", architecture="BertForHouses")
    change(tmp_path / "bert", use_dora=True)
    refused("bert", "use_dora")
    change(tmp_path / "bert", use_dora=False, peft_type="IA3")
    refused("bert", "holds IA3; the course reads LORA")
    change(tmp_path / "bert", peft_type="LORA")
    narrow = heads.Pooled(Stack(hf.families()["bert"].read_config(CONFIGS["bert"]().to_dict() | {"hidden_size": 16})))
    with pytest.raises(CourseError, match="is for 32 inputs and 32 outputs"):
        peft.load_pretrained(narrow, tmp_path / "bert", **what)
    peft.load_pretrained(ours, tmp_path / "bert", **what)
    with pytest.raises(CourseError, match="begin with the bare base"):
        peft.load_pretrained(ours, tmp_path / "bert", **what)


def test_prefixes_of_encoder_decoders_stay_here(tmp_path):
    t5 = hf.families()["t5"]
    ours = t5.architectures[SUM].build(t5.read_config(CONFIGS["t5"]().to_dict()), {"weights": frozenset()})
    what = {"model_type": "t5", "architecture": SUM}
    theirs = public.get_peft_model(base(SUM), prefix("SEQ_2_SEQ_LM"))
    theirs.save_pretrained(tmp_path / "theirs")
    with pytest.raises(CourseError, match="the same rows of its prefix"):
        peft.load_pretrained(ours, tmp_path / "theirs", **what)
    ours.stack.decoder = peft.prefix(ours.stack.decoder, 2)
    with pytest.raises(CourseError, match="the same rows of its prefix"):
        peft.save_pretrained(ours, tmp_path / "ours", **what)


def test_what_the_library_cannot_say_is_not_written(tmp_path):
    config = CONFIGS["bert"]()
    bert = heads.Pooled(Stack(hf.families()["bert"].read_config(config.to_dict())))
    what = {"model_type": "bert", "architecture": "BertModel"}
    with pytest.raises(CourseError, match="Only a model with LoRA updates"):
        peft.save_pretrained(bert, tmp_path, **what)
    both = peft.adapters(peft.lora(heads.Pooled(copy.deepcopy(bert.stack))), 2)
    with pytest.raises(CourseError, match=r"adapter.down.weight is trained, but `peft` has no place"):
        peft.save_pretrained(both, tmp_path, **what)
    with pytest.raises(CourseError, match="whole=True"):
        peft.save_pretrained(peft.prompt(bert, 2), tmp_path, **what)
    assert not list(tmp_path.iterdir())
