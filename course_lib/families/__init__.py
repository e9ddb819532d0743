"""The model families. All are `model.Transformer`; a family's file says how it differs.

    preset("bert-base")  # a published size; "bert-mini" is the classroom's
    family("bert").config(3072, width=128, layers=4, heads=4, length=160)
    family("gpt2") is family("gpt")

A new family needs one file, and one more entry here. ELMo, static word vectors, the LSTMs and the
baselines are not in the list, because they are no Transformers.

    transformer.py     the Transformer of 2017, with which the others are compared
    bert.py            BERT; its relatives are roberta.py, distilbert.py, albert.py, electra.py,
                       deberta.py and modernbert.py, and encoder_heads.py is shared by them
    gpt.py             GPT-1, GPT-2 and GPT-3
    bart.py, t5.py     encoder-decoder models
    sentence.py        Sentence-BERT
    lstm.py            an LSTM that reads a text; lstm_seq2seq.py is the encoder-decoder
    baselines.py       BiLSTMs over word vectors
    family.py          the class `Family`, which these files fill in
    fields.py          public config.json <-> our configuration; its tables are in fields.toml
    config_json.py     refuses a config.json with an entry that we do not know
    weight_tables.py   public names of weights <-> our names
    presets.toml       published sizes
"""

import tomllib
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from course_lib.errors import CourseError
from course_lib.families.albert import FAMILY as ALBERT
from course_lib.families.bart import BLENDERBOT_FAMILY as BLENDERBOT
from course_lib.families.bart import FAMILY as BART
from course_lib.families.bert import FAMILY as BERT
from course_lib.families.bert import MEGATRON_FAMILY as MEGATRON
from course_lib.families.deberta import FAMILY as DEBERTA
from course_lib.families.distilbert import FAMILY as DISTILBERT
from course_lib.families.electra import FAMILY as ELECTRA
from course_lib.families.family import Architecture, Family
from course_lib.families.fields import PUBLIC_ACTIVATIONS
from course_lib.families.gpt import GPT1_FAMILY as GPT1
from course_lib.families.gpt import GPT2_FAMILY as GPT2
from course_lib.families.modernbert import FAMILY as MODERNBERT
from course_lib.families.roberta import FAMILY as ROBERTA
from course_lib.families.t5 import FAMILY as T5
from course_lib.families.transformer import transformer
from course_lib.model import heads
from course_lib.model.config import Learned, StackConfig, diff
from course_lib.model.seq2seq import EncoderDecoder, Seq2SeqLM


def transformer_lm(config: StackConfig, start: int = 0) -> Seq2SeqLM:
    """The whole Transformer of 2017: encoder, decoder and output matrix.

    Args:
        config: the decoder's configuration.
        start: id of the token that the decoder begins with.
    """
    return Seq2SeqLM(EncoderDecoder(config, start=start))


# If a model fits several families equally well, `family_of` returns the first one.
_ALL = (
    BERT,
    MEGATRON,
    ROBERTA,
    ALBERT,
    DISTILBERT,
    ELECTRA,
    DEBERTA,
    MODERNBERT,
    GPT1,
    GPT2,
    BART,
    BLENDERBOT,
    T5,
)
# By our name, and by the `model_type` in config.json.
FAMILIES: dict[str, Family] = {family.name: family for family in _ALL}
MODEL_TYPES: dict[str, Family] = {family.model_type: family for family in _ALL}

# A preset's family is the first part of its name: "bert-base" is a size of `bert`.
_SIZES = tomllib.loads(Path(__file__).with_name("presets.toml").read_text("utf-8"))
_CONFIGS = {"transformer": transformer} | {name: each.config for name, each in FAMILIES.items()}
PRESETS = {name: partial(_CONFIGS[name.split("-")[0]], **size) for name, size in _SIZES.items()}


def preset(name: str, **changes: Any) -> StackConfig:
    """A configuration by its name in `presets.toml`.

    Args:
        name: for example "bert-base".
        changes: arguments of the family's function that override the preset, such as `vocab`.

    Raises:
        CourseError: there is no preset of this name.
    """
    if name not in PRESETS:
        raise CourseError(f"There is no preset {name!r}; there are {', '.join(PRESETS)}.")
    return PRESETS[name](**changes)


def family(name: str) -> Family:
    """A family by our name or by its `model_type` in config.json.

    Raises:
        CourseError: there is no such family.
    """
    if name in FAMILIES:
        return FAMILIES[name]
    if name in MODEL_TYPES:
        return MODEL_TYPES[name]
    known = ", ".join(dict.fromkeys([*FAMILIES, *MODEL_TYPES]))
    raise CourseError(f"There is no model family {name!r}; there are {known}.")


def public_class(model: nn.Module, family: Family) -> str | None:
    """The name of the first public class of a family with the model's head, or None."""
    for name, architecture in family.architectures.items():
        if architecture.head is type(model):
            return name
    return None


def check_pool(model: nn.Module, architecture: Architecture) -> None:
    """Refuse to save a classifier that pools differently from its public class.

    Raises:
        CourseError: it pools differently, so the saved model would give other logits.
    """
    if not isinstance(model, heads.Classifier):
        return
    options = architecture.read_options(model.stack, {})
    if model.pooler is not None and "pooler" in options:
        return  # the public class has a pooler, too, and config.json has an entry for the pooling
    public_pool = options.get("pool", "first")
    if model.pool != public_pool:
        raise CourseError(
            f"A classifier with the pool {model.pool!r} cannot be saved: the public class of this"
            f" model reads {public_pool!r}. Take that pool, or do not save the model."
        )


def family_of(model: nn.Module) -> Family:
    """The family in whose public format a model can be saved.

    If there are several, it is the one whose configuration of the same size differs from the
    model's in the fewest fields.

    Raises:
        CourseError: there is no such family.
    """
    config: StackConfig = model.stack.config  # type: ignore[assignment, union-attr]
    if config.activation not in PUBLIC_ACTIVATIONS:
        raise CourseError(
            f"The activation {config.activation!r} has no name in public files; add it to"
            " OUR_ACTIVATIONS in families/fields.py."
        )
    candidates = [
        candidate
        for candidate in FAMILIES.values()
        if public_class(model, candidate) and expresses(candidate, config)
    ]
    if not candidates:
        raise CourseError(
            f"No public layout has a {type(model).__name__} with this configuration; compare it"
            " with a family's by `diff(config, family(name).config(...))`."
        )
    size = {"width": config.width, "layers": config.layers, "heads": config.heads}
    # Learned.length is 512, its default: the length for a model without learned positions.
    size["length"] = config.max_length or Learned.length

    def differences(candidate: Family) -> int:
        return len(diff(config, candidate.config(config.embed.vocab, **size)))

    return min(candidates, key=differences)


def expresses(family: Family, config: StackConfig) -> bool:
    """Whether a configuration is the same after it was written to config.json and read back."""
    try:
        return family.read_config(family.write_config(config)) == config
    except (CourseError, KeyError, TypeError):
        return False
