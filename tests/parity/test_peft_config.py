"""Every field of an adapter_config.json is obeyed, harmless or refused: an adapter with it has
peft's outputs here, or a sentence says why not.
"""

import dataclasses
import json

import peft as public
import peft.tuners.lora.config as lora_config
import pytest
import torch

from course_lib import peft, zoo
from course_lib.errors import CourseError
from tests.parity.public import close
from tests.parity.test_peft_families import IDS, base, same, shaken

# A field and a value that peft would not give it here. A field that stands nowhere fails the test.
LORA = {
    "r": 5,
    "target_modules": ["value", "key"],
    "exclude_modules": ["value"],
    "lora_alpha": 9,
    "lora_dropout": 0.3,
    "fan_in_fan_out": True,
    "bias": "all",
    "use_rslora": True,
    "modules_to_save": ["pooler.dense"],
    "init_lora_weights": "gaussian",
    "layers_to_transform": [1],
    "layers_pattern": "layer",
    "rank_pattern": {"query": 4},
    "alpha_pattern": {"1.*query": 4},
    "megatron_config": {"sequence_parallel": False},
    "megatron_core": "somewhere.core",
    "trainable_token_indices": {"word_embeddings": [3, 5]},
    "loftq_config": {"loftq_bits": 4},
    "eva_config": lora_config.EvaConfig(),
    "corda_config": lora_config.CordaConfig(),
    "lora_ga_config": lora_config.LoraGAConfig(),
    "use_dora": True,
    "velora_config": lora_config.VeloraConfig(num_groups=4),
    "alora_invocation_tokens": [9, 30],
    "use_qalora": True,
    "qalora_group_size": 8,
    "monteclora_config": lora_config.MontecloraConfig(),
    "layer_replication": [(0, 2), (1, 2)],
    "lora_bias": True,
    "target_parameters": ["word_embeddings.weight"],
    "use_bdlora": lora_config.BdLoraConfig(["query"], nblocks=2, match_strict=False),
    "arrow_config": lora_config.ArrowConfig(),
    "kasa_config": lora_config.KasaConfig(),
    "ensure_weight_tying": True,
}
ANY = {
    "task_type": "TOKEN_CLS",
    "auto_mapping": {"base_model_class": "X"},
    "peft_version": "0.1",
    "base_model_name_or_path": "somewhere",
    "revision": "main",
    "inference_mode": True,
}
FRONT = {
    "num_virtual_tokens": 3,
    "token_dim": 8,
    "num_transformer_submodules": 2,
    "num_attention_heads": 1,
    "num_layers": 1,
    "modules_to_save": ["ln_f"],
}
PROMPT = FRONT | {
    "prompt_tuning_init": "RANDOM",
    "prompt_tuning_init_text": "Hello.",
    "tokenizer_name_or_path": "gpt2",
    "tokenizer_kwargs": {"a": 1},
}
PREFIX = FRONT | {"init_weights": "zero", "encoder_hidden_size": 6, "prefix_projection": True}
METHODS = {
    "LORA": (public.LoraConfig, LORA, "bert", "BertForSequenceClassification"),
    "PROMPT_TUNING": (public.PromptTuningConfig, PROMPT, "gpt2", "GPT2LMHeadModel"),
    "PREFIX_TUNING": (public.PrefixTuningConfig, PREFIX, "gpt2", "GPT2LMHeadModel"),
}
NOT_SAVED = ("peft_type", "runtime_config")
# Whatever peft says of a field that it cannot obey here.
THEIR_ERRORS = (ValueError, TypeError, LookupError, RuntimeError, AttributeError, ImportError)
CASES = [(method, field) for method in METHODS for field in [*ANY, *METHODS[method][1]]]


def plain(method, **field):
    kind = METHODS[method][0]
    if method == "LORA":
        return kind(**{"task_type": "SEQ_CLS", "target_modules": ["query", "value"]} | field)
    return kind(**{"task_type": "CAUSAL_LM", "num_virtual_tokens": 4} | field)


def write(method, config, folder):
    """A folder that peft writes of an adapter with this configuration."""
    torch.manual_seed(2)
    theirs = public.get_peft_model(base(*METHODS[method][2:]), config)
    shaken(theirs.eval()).save_pretrained(folder)


def outcome(method, folder):
    """What becomes of a folder here, if peft can load it: "equal", "refused" or "other"."""
    model_type, name = METHODS[method][2:]
    try:
        theirs = public.PeftModel.from_pretrained(base(model_type, name), folder).eval()
        expected = theirs(IDS).logits
    except THEIR_ERRORS:
        return "peft refuses"
    base(model_type, name).save_pretrained(folder / "base")
    ours = zoo.load_pretrained(folder / "base")
    try:
        peft.load_pretrained(ours, folder, model_type=model_type, architecture=name)
    except CourseError:
        return "refused"
    with torch.no_grad():
        found = ours(IDS)
    return "equal" if close(found, expected[..., -found.shape[-2] :, :]) else "other"


@pytest.mark.parametrize("method", METHODS)
def test_every_field_is_tried(method):
    fields = {field.name for field in dataclasses.fields(METHODS[method][0])}
    assert fields - set(NOT_SAVED) == (ANY | METHODS[method][1]).keys()


@pytest.mark.parametrize(("method", "field"), CASES)
def test_an_adapter_trained_with_a_field(method, field, tmp_path):
    value = (ANY | METHODS[method][1])[field]
    try:
        write(method, plain(method, **{field: value}), tmp_path)
    except THEIR_ERRORS:
        pytest.skip("peft does not train one with this field alone, or not here")
    assert outcome(method, tmp_path) != "other"


@pytest.mark.parametrize(("method", "field"), CASES)
def test_a_file_with_a_field_changed(method, field, tmp_path):
    value = (ANY | METHODS[method][1])[field]
    write(method, plain(method), tmp_path)
    assert outcome(method, tmp_path) == "equal"
    path = tmp_path / "adapter_config.json"
    if dataclasses.is_dataclass(value):
        value = dataclasses.asdict(value)
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    assert outcome(method, tmp_path) != "other"


@pytest.mark.parametrize(
    ("beginning", "more", "expected"),
    [
        (True, {}, "equal"),
        (False, {}, "equal"),
        ("gaussian", {}, "equal"),
        ("orthogonal", {}, "equal"),
        ("eva", {}, "equal"),
        ("mica", {}, "equal"),
        ("pissa", {}, "refused"),
        ("pissa_niter_4", {}, "refused"),
        ("olora", {}, "refused"),
        ("OLoRA", {}, "refused"),
    ],
)
def test_an_update_that_began_in_another_way(beginning, more, expected, tmp_path):
    config = plain("LORA", r=4, init_lora_weights=beginning, **more)
    write("LORA", config, tmp_path)
    assert outcome("LORA", tmp_path) == expected


@pytest.mark.parametrize(
    ("model_type", "name", "table"),
    [
        ("gpt2", "GPT2LMHeadModel", "wte"),
        ("t5", "T5ForConditionalGeneration", "shared"),
        ("bart", "BartForConditionalGeneration", "shared"),
        ("bert", "BertForMaskedLM", "word_embeddings"),
        ("bart", "BartModel", "shared"),
        ("bert", "BertForTokenClassification", "word_embeddings"),
    ],
)
@pytest.mark.parametrize("are_tied", [True, False])
def test_trained_token_vectors(model_type, name, table, are_tied, tmp_path):
    """peft leaves the output matrix as it was, if the table has a name that it does not know."""
    theirs = base(model_type, name)
    theirs.save_pretrained(tmp_path / "base")
    config = public.LoraConfig(
        target_modules="all-linear",
        exclude_modules=["classifier"],
        modules_to_save=[table],
        ensure_weight_tying=are_tied,
    )
    theirs = shaken(public.get_peft_model(theirs, config).eval())
    theirs.save_pretrained(tmp_path / "theirs")
    ours = zoo.load_pretrained(tmp_path / "base")
    what = {"model_type": model_type, "architecture": name}
    if not name.endswith("TokenClassification"):
        with pytest.raises(CourseError, match="here both are one"):
            peft.load_pretrained(ours, tmp_path / "theirs", **what)
        return
    peft.load_pretrained(ours, tmp_path / "theirs", **what)
    assert same(ours, theirs, name)
    peft.save_pretrained(ours, tmp_path / "ours", **what)
    again = public.PeftModel.from_pretrained(base(model_type, name), tmp_path / "ours").eval()
    assert same(ours, again, name)
