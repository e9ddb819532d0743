"""Every field of a config.json is obeyed, harmless or refused: whatever changes the public model
changes ours in the same way, or is refused.
"""

import json
import re
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError

from course_lib import zoo
from course_lib.errors import CourseError
from course_lib.families import MODEL_TYPES
from course_lib.families.config_json import KNOWN
from course_lib.model.transformer import Transformer
from tests.parity.public import randomise
from tests.parity.small_models import SIZES, VOCAB, WIDTH, answers, batch_for, same, small

CLASSES = [  # the first class of each family, the body, in a quick run
    pytest.param(model_type, name, marks=() if number == 0 else pytest.mark.slow)
    for model_type, family in MODEL_TYPES.items()
    for number, name in enumerate(family.architectures)
    if hasattr(transformers, name)
]
# The class itself; the names of classes; what leaves the answers without names.
NOT_TRIED = ("model_type", "architectures", "id2label", "label2id", "return_dict")
# Theirs looks for the last token by its number; ours by the mask.
BY_NUMBER = {
    ("BartForSequenceClassification", "eos_token_id"),
    ("GPT2ForSequenceClassification", "pad_token_id"),
    ("OpenAIGPTForSequenceClassification", "pad_token_id"),
}
# Another value of a field that is a word or null.
OTHER = {
    "hidden_act": "relu", "hidden_activation": "relu", "activation": "relu", "afn": "relu",
    "activation_function": "relu", "feed_forward_proj": "gated-gelu", "dense_act_fn": "silu",
    "pooler_hidden_act": "relu", "classifier_activation": "relu", "classifier_pooling": "mean",
    "summary_type": "last", "summary_activation": "relu", "position_embedding_type": "relative_key",
    "problem_type": "multi_label_classification", "classifier_dropout": 0.7,
    "pos_att_type": ["c2p"], "layer_types": ["sliding_attention", "full_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 7.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5.0},
    },
}  # fmt: skip


def other(name, value):
    """A value that a field does not have."""
    if name in OTHER:
        return OTHER[name]
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return value + 0.25
    return value + 1 if isinstance(value, int) else None


def in_training(model):
    """What tells one model from another beside its weights: its parts and their dropout."""
    stacks = [m.config for m in model.modules() if isinstance(m, Transformer)]
    return re.sub(r", padding_idx=\d+", "", repr(model)), stacks


def read_theirs(name, folder):
    """Their model; None where they cannot read the file, or find no place for some weights."""
    try:
        model, info = getattr(transformers, name).from_pretrained(
            folder, attn_implementation="eager", output_loading_info=True
        )
    except (ValueError, KeyError, TypeError, RuntimeError, AttributeError, StrictDataclassError):
        return None
    lost = ("missing_keys", "unexpected_keys", "mismatched_keys")
    return None if any(info[key] for key in lost) else model.eval()


@pytest.mark.parametrize(("model_type", "name"), CLASSES)
def test_what_changes_theirs_changes_ours_or_is_refused(model_type, name, tmp_path):
    """Each field in turn has another value beside the same weights."""
    theirs = randomise(getattr(transformers, name)(small(model_type)))
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    fields = json.loads(path.read_text())
    rows = batch_for(theirs.config)
    before = answers(theirs, name, rows)
    ours = zoo.load_pretrained(tmp_path)
    assert same(answers(ours, name, rows), before)
    wrong = []
    reasons = KNOWN.harmless(model_type)
    for field, value in theirs.config.to_dict().items():
        if field in NOT_TRIED:
            continue
        value = other(field, fields.get(field, value))
        if value is None:
            continue
        path.write_text(json.dumps(fields | {field: value}))
        changed = read_theirs(name, tmp_path)
        if changed is None:
            continue
        try:
            found = zoo.load_pretrained(tmp_path)
        except CourseError:
            continue
        if (name, field) in BY_NUMBER:
            continue
        after = answers(changed, name, rows)
        if not same(answers(found, name, rows), after):
            wrong.append(f"{field}={value}: other answers")
        if reasons.get(field, "").startswith("training alone"):
            continue
        trains = in_training(changed) != in_training(theirs)
        if trains and in_training(found) == in_training(ours) and same(after, before):
            wrong.append(f"{field}={value}: trains otherwise")
    assert not wrong


# Files that lie in public repositories, each with its place and commit. An old file does not say
# its class or its type; both are said beside it.
TRUE = json.loads(Path(__file__).with_name("true_configs.json").read_text())
# Others of the best-known checkpoints, written from memory: their real files could not be had.
REMEMBERED = json.loads(Path(__file__).with_name("public_configs.json").read_text())
PUBLIC = REMEMBERED | {name: entry["fields"] for name, entry in TRUE.items()}


def shrunk(fields):
    """The same file with the sizes of `small`."""
    sizes = SIZES
    if fields.get("max_position_embeddings") == 514:  # RoBERTa's table has two rows more
        sizes = SIZES | {"max_position_embeddings": 22}
    if "n_embd" in fields:
        sizes = SIZES | {"n_inner": None}
    wide = {"local_attention": 6} if "local_attention" in fields else {}
    tokens = {name: value % VOCAB for name, value in fields.items() if _is_token(name, value)}
    return {name: sizes.get(name, value) for name, value in fields.items()} | wide | tokens


def _is_token(name, value):
    return name.endswith("_token_id") and isinstance(value, int)


@pytest.mark.parametrize("checkpoint", PUBLIC)
def test_public_checkpoints_load_as_they_lie_on_the_hub(checkpoint, tmp_path):
    fields = shrunk(PUBLIC[checkpoint])
    said = TRUE.get(checkpoint, {})
    name = said.get("class") or fields["architectures"][0]
    kind = transformers.CONFIG_MAPPING[said.get("model_type") or fields["model_type"]]
    config = kind.from_dict(dict(fields), attn_implementation="eager")
    theirs = randomise(getattr(transformers, name)(config))
    if fields.get("tie_word_embeddings") is False:  # the files of T5 1.1 hold an output matrix
        rng = torch.Generator().manual_seed(1)
        output = 0.15 * torch.randn(VOCAB, WIDTH, generator=rng)
        theirs.lm_head.weight = torch.nn.Parameter(output)
    theirs.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(fields))
    ours = zoo.load_pretrained(tmp_path)
    rows = batch_for(theirs.config)
    assert same(answers(ours, name, rows), answers(theirs, name, rows))


@pytest.mark.parametrize(
    ("checkpoint", "changes", "message"),
    [
        ("bert-base-uncased", {"position_embedding_type": "relative_key"}, "position_embedding"),
        ("bert-base-uncased", {"is_decoder": True}, "is_decoder False, not True"),
        ("bert-base-uncased", {"problem_type": "ranking"}, "problem_type single_label"),
        ("bert-base-uncased", {"model_type": "xlm-roberta"}, "no model family 'xlm-roberta'"),
        ("bert-base-uncased", {"auto_map": {"AutoModel": "x.Y"}}, "auto_map is"),
        ("bert-base-uncased", {"quantization_config": {"bits": 4}}, "quantization_config is"),
        ("bert-base-uncased", {"alibi_starting_size": 512}, "alibi_starting_size is 512"),
        ("bert-base-uncased", {"pruned_heads": {"0": [1]}}, "pruned_heads is"),
        ("deberta-base", {"model_type": "deberta-v2"}, "no model family 'deberta-v2'"),
        ("t5-small", {"model_type": "mt5"}, "no model family 'mt5'"),
        ("t5-small", {"dense_act_fn": "silu"}, "dense_act_fn is silu"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ("gpt2", {"hidden_size": 99}, "hidden_size is 99 and n_embd is 16"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention False, not True"),
        ("bart-large-cnn", {"normalize_embedding": False}, "normalize_embedding True, not False"),
        ("bart-large-cnn", {"is_encoder_decoder": False}, "is_encoder_decoder True, not False"),
        ("blenderbot-400M-distill", {"normalize_before": False}, "normalize_before True"),
        ("ModernBERT-base", {"rope_scaling": {"factor": 2.0}}, "rope_scaling is"),
        ("electra-small-discriminator", {"tie_word_embeddings": 0.5}, "tie_word_embeddings"),
    ],
)
def test_what_the_course_has_not_is_refused_for_its_field(checkpoint, changes, message, tmp_path):
    fields = shrunk(PUBLIC[checkpoint])
    kind = transformers.CONFIG_MAPPING[fields["model_type"]]
    model = getattr(transformers, fields["architectures"][0])(kind.from_dict(dict(fields)))
    model.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(fields | changes))
    with pytest.raises(CourseError, match=f"config.json: .*{re.escape(message)}"):
        zoo.load_pretrained(tmp_path)
