"""Public folders in and out: the Hugging Face layout becomes a model of this course, and back.

The tables stand in `families/`, one file a family; this file only applies them, strictly in both
directions.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from course_lib import families, hub
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.families.config_json import check_unread, renamed
from course_lib.families.family import Family
from course_lib.families.fields import Values, changed
from course_lib.families.weight_tables import convert, convert_back
from course_lib.files import atomic_folder, read_json, write_json
from course_lib.known_fields import Config
from course_lib.model import heads
from course_lib.model.config import StackConfig
from course_lib.model.heads import is_tied
from course_lib.model.seq2seq import Seq2SeqClassifier
from course_lib.model.transformer import Transformer
from course_lib.vocab import Vocab
from course_lib.zoo import public_weights
from course_lib.zoo.generation_config import warn_of_settings
from course_lib.zoo.public_weights import architecture_named, class_of, fills, fitting
from course_lib.zoo.weights import load_strictly, read_weights, weight_names

MULTI_LABEL = "multi_label_classification"  # config.json's word for labels that may hold together


def load_pretrained(
    source: str | Path, *, architecture: str | None = None, **build: Any
) -> nn.Module:
    """A model of this course with the weights of a folder in the Hugging Face layout, in eval mode.

    Heads that a file has beside the class's own are left out. A warning says what is left out, and
    what is new. Another one names settings of generation that `generate` does not follow.

    Args:
        source: the folder, or the hub's "OWNER/NAME".
        architecture: the public class to read it as. A head that the file lacks is then new and
            random. By default the class that config.json names, or that the file fills.
        build: options for the head, such as classes=3. Without it a classifier's or tagger's
            `class_names` are config.json's, if it names them.

    Raises:
        CourseError: if the family or class is not known, or a file does not fit.
    """
    folder = hub.pretrained(source)
    fields = read_json(folder / "config.json")
    weights = read_weights(folder)
    try:
        family = _family(fields, weights)
        values = Config(renamed(fields, family.model_type))
        stored = public_weights.stored(weights, family, families.MODEL_TYPES)
        weights = stored.weights
        name = architecture or class_of(architecture_named(values), family, weights)
        if name not in family.architectures:
            known = ", ".join(family.architectures)
            raise CourseError(
                f"{name!r} is no architecture of {family.model_type}; choose one of {known}."
            )
        config = family.read_config(values)
        # Before a model is built that a wrong config.json makes too large.
        _check_size(config, sum(tensor.numel() for tensor in weights.values()))
        _check_sides(values, config)
        public = family.architectures[name]
        ties = public_weights.ties(values, weights, family, public)
        options = changed(values, **build, **ties, weights=frozenset(weights))
        model = public.build(config, options)
        _set_multi_label(model, values)
        check_unread(values, family.model_type)
    except CourseError as error:
        raise CourseError(f"{folder}/config.json: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        _raise_config_error(folder, error)
    table = family.whole_table(name, model)
    weights = public_weights.without_extra(stored, table, model, family, str(folder))
    absent = public_weights.absent_head(weights, table, model)
    # A body that does not fit is refused first: then no other class would help.
    new = public_weights.new_head(absent, table, model)
    converted = convert(weights | new, table, model)
    if absent and architecture is None:
        raise CourseError(
            f"{folder}: the files lack the head of a {name} ({public_weights.some(absent)}); its"
            " answers would be random. Ask for what they hold, as architecture="
            f'"{fitting(family, weights)[0]}", or for a new head, as architecture="{name}".'
        )
    if absent:
        public_weights.warn_of_new(absent, str(folder))
    load_strictly(model, converted, str(folder))
    if isinstance(model, heads.Classifier | heads.TokenClassifier) and "classes" not in build:
        model.class_names = _class_names(values)
    kept: Any = model
    kept.token_ids = _stored_token_ids(fields)  # for the next folder
    warn_of_settings(folder, model, fields)
    return model.eval()


def load_body(source: str | Path) -> nn.Module:
    """The stack below the head of a folder in the Hugging Face layout, whatever its class."""
    folder = hub.pretrained(source)
    family = _family(read_json(folder / "config.json"), weight_names(folder))
    bodies = [name for name, public in family.architectures.items() if not public.has_prefix]
    # T5's files call the body's weights the same with a head and without one.
    body = next(iter(bodies), f"{family.name.upper()}Model")
    stack: Any = load_pretrained(folder, architecture=body).stack
    if not isinstance(stack, Transformer):
        raise CourseError(f"{folder}: only one of the two sides of a {family.name} would be read.")
    return stack


def save_pretrained(
    model: nn.Module,
    folder: str | Path,
    *,
    model_type: str | None = None,
    architecture: str | None = None,
    tokenizer: Tokenizer | None = None,
) -> None:
    """Write a folder that transformers' `from_pretrained` loads to the same outputs.

    Args:
        model: a head on a stack.
        folder: made, if it is not there.
        model_type: "bert"; by default that of this configuration.
        architecture: "BertForMaskedLM"; by default that of this head.
        tokenizer: written too. config.json then says which tokens begin, end and fill a text, which
            transformers' `generate` needs.

    Raises:
        CourseError: if no public class has this head, its pool or this configuration.
    """
    from safetensors.torch import save

    folder = Path(folder)
    family = families.family_of(model) if model_type is None else families.family(model_type)
    architecture = architecture or families.public_class(model, family)
    if architecture not in family.architectures:
        unknown = architecture or type(model).__name__
        raise CourseError(f"Nothing is known of {unknown!r} in the family {family.model_type!r}.")
    config: StackConfig = model.stack.config  # type: ignore[assignment, union-attr]
    if not families.expresses(family, config):
        raise CourseError(
            f"{family.model_type} cannot express this configuration; without model_type one is"
            " found."
        )

    families.check_pool(model, family.architectures[architecture])
    values = _config_values(model, family, architecture, config)
    if tokenizer is not None:
        values |= _token_ids(values, tokenizer.vocab)
    else:
        values |= _kept_token_ids(model, family)
    values |= _labels(model)

    weights = convert_back(model.state_dict(), family.whole_table(architecture, model), model)
    named = family.add_prefix(weights, architecture, model)
    with atomic_folder(folder) as new:
        (new / "model.safetensors").write_bytes(save(named, metadata={"format": "pt"}))
        write_json(new / "config.json", values)
        if tokenizer is not None:
            tokenizer.save(new, segments=config.embed.segments > 1)


def whole_architecture(folder: Path) -> str | None:
    """The public class that leaves nothing of a folder behind; None: the one of config.json.

    Published BERTs name the masked LM, and hold the next-sentence head with its trained pooler too.
    Other files lack the head that they name.
    """
    values = read_json(folder / "config.json")
    names = dict.fromkeys(weight_names(folder), torch.empty(0))
    family = _family(values, names)
    stored = public_weights.stored(names, family).weights.keys()
    named = family.architectures.get(architecture_named(values))
    if named is None:
        return None
    if not fills(named, stored):  # a body alone, whatever config.json says
        return fitting(family, stored)[0]
    if named.head is not heads.MLM:
        return None
    for name, architecture in family.architectures.items():
        if architecture.head is heads.Pretraining:
            return name if fills(architecture, stored) else None
    return None


def _family(values: Values, names: Iterable[str]) -> Family:
    """The family of a config.json; old ones do not say it, but their class or weights do.

    Args:
        values: the entries of the config.json.
        names: the names of the weights.
    """
    model_type = values.get("model_type") or public_weights.model_type(
        architecture_named(values), names, families.FAMILIES.values()
    )
    return families.family(str(model_type))


def _check_sides(values: Values, config: StackConfig) -> None:
    """One stack or two. BART's and T5's decoders or encoders alone are other classes."""
    has_two = values.get("is_encoder_decoder")
    if has_two is not None and has_two != config.cross:
        raise CourseError(
            f"Only models as published are read: is_encoder_decoder {config.cross}, not {has_two}."
        )


def _check_size(config: StackConfig, stored: int) -> None:
    """A model has at least one matrix of the feed-forward in each layer."""
    least = config.width * config.hidden * (1 if config.shared else config.layers)
    if least > stored:
        raise CourseError(f"It asks for {least:,} weights and more; its files hold {stored:,}.")


def _raise_config_error(folder: Path, error: Exception) -> NoReturn:
    """Say what is wrong with config.json, of an error while it was read."""
    if isinstance(error, KeyError):
        raise CourseError(
            f"{folder}/config.json has no field {error}, which its model needs."
        ) from None
    raise CourseError(
        f"{folder}/config.json has a field of another kind than its model needs ({error})."
    ) from None


def _class_names(values: Values) -> tuple[str, ...] | None:
    """What config.json calls the classes; None where they are numbered only."""
    by_number = values.get("id2label") or {}
    names = [str(by_number[number]) for number in sorted(by_number, key=int)]
    numbered = [f"LABEL_{number}" for number in range(len(names))]
    return None if names == numbered else tuple(names)


def _config_values(
    model: nn.Module, family: Family, architecture: str, config: StackConfig
) -> dict[str, Any]:
    has_output = bool(family.architectures[architecture].output)
    stack: Any = model.stack
    is_untied = has_output and not is_tied(model)
    has_two_tables = not getattr(stack, "one_table", True)
    ties = {"tie_word_embeddings": False} if is_untied or has_two_tables else {}
    return {
        **family.write_config(config),
        **ties,
        **family.architectures[architecture].write_options(model),
        "model_type": family.model_type,
        "architectures": [architecture],
    }


def _set_multi_label(model: Any, values: Values) -> None:
    """Tell a classifier whether several labels may hold at once.

    Raises:
        CourseError: it is a task that the course has not.
    """
    if type(model) not in (heads.Classifier, Seq2SeqClassifier):
        return  # the other classes have one task each
    problem = values.get("problem_type")
    classes = model.out.out_features
    if problem not in (None, "regression", "single_label_classification", MULTI_LABEL):
        raise CourseError(f"There is no problem_type {problem!r}.")
    if problem == "regression" and classes > 1:
        raise CourseError(f"Several scores at once are not the course's, as here {classes}.")
    if problem == "single_label_classification" and classes == 1:
        raise CourseError("problem_type says classes, but there is only one; correct the field.")
    model.multi_label = problem == MULTI_LABEL


def _labels(model: nn.Module) -> dict[str, Any]:
    """What a classifier's or tagger's classes are called, and whether several may hold at once."""
    out = getattr(model, "out", None)
    if out is None:
        return {}
    names = getattr(model, "class_names", None)
    if names is None:
        names = [f"LABEL_{number}" for number in range(out.out_features)]
    problem = {"problem_type": MULTI_LABEL} if getattr(model, "multi_label", False) else {}
    return problem | {
        "id2label": dict(enumerate(names)),
        "label2id": {name: number for number, name in enumerate(names)},
    }


def _stored_token_ids(fields: Values) -> dict[str, Any]:
    """Which tokens begin, end and fill a text, by a config.json; a model knows its first token."""
    return {
        name: value
        for name, value in fields.items()
        if name.endswith("_token_id") and name != "decoder_start_token_id"
    }


def _kept_token_ids(model: nn.Module, family: Family) -> dict[str, Any]:
    """Those of the folder that a model came from; else none, if transformers would take others."""
    ids = {}
    if family.model_type in ("gpt2", "openai-gpt"):
        ids = {"bos_token_id": None, "eos_token_id": None}
    return ids | getattr(model, "token_ids", {})


def _token_ids(values: Values, vocab: Vocab) -> dict[str, int | None]:
    """Which tokens begin, end and fill a text, by a tokenizer.

    Without them transformers takes those of the published vocabulary, whose numbers may not even
    exist here.
    """
    ids = {"bos_token_id": vocab.bos, "eos_token_id": vocab.eos}
    if vocab.pad is not None:
        ids["pad_token_id"] = vocab.pad
    if "decoder_start_token_id" in values:
        # A text ends where the tokenizer's frame does; no end is forced on it.
        if vocab.eos is None:
            ids["eos_token_id"] = vocab.sep
        if vocab.bos is None:
            ids["bos_token_id"] = vocab.cls
        ids["forced_eos_token_id"] = None
        ids["forced_bos_token_id"] = None
    return ids
