"""Load and save models in the Hugging Face layout, which `from_pretrained` of transformers reads.

    bert-base-uncased/
        config.json         {"model_type": "bert", "architectures": ["BertForMaskedLM"], ...}
        model.safetensors   {"bert.encoder.layer.0.attention.self.query.weight": ..., ...}

    model = load_pretrained("bert-base-uncased")      a heads.MLM on a Transformer
    model.stack.blocks[0].attn.q.weight               the same numbers under our name

Such a folder is called public. Its config.json names a family ("bert") and a public class of it
("BertForMaskedLM"): a body, which is our `model.stack`, and a head for one task. The tables of
`families/` say which of our fields and weights the public names mean. This file applies them in
both directions. An entry of config.json or a weight that no table has is an error.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
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
from course_lib.zoo.public_weights import (
    class_in_config,
    class_to_read,
    first_names,
    fitting_classes,
    has_whole_head,
)
from course_lib.zoo.weights import load_strictly, read_weights, weight_names

# config.json's problem_type of a classifier that may give a text several labels at once
MULTI_LABEL = "multi_label_classification"


def load_pretrained(
    source: str | Path, *, architecture: str | None = None, **build: Any
) -> nn.Module:
    """Load a public folder as a model of this course, in eval mode.

    Warnings name the weights of heads that the class does not have, the weights that are random,
    and the settings in generation_config.json that our `generate` does not follow.

    Args:
        source: the folder, or the hub's "OWNER/NAME".
        architecture: the public class to read it as, such as "BertForSequenceClassification". If
            the files lack its head, the head is random. By default the class in config.json, or
            the one whose head the files have.
        build: options for the head that override config.json, such as classes=3. A classifier or
            tagger then has no `class_names`, which are otherwise those of config.json.

    Raises:
        CourseError: the family or class is unknown, or a file does not fit.
    """
    # 1. A new model, by config.json.
    folder = hub.pretrained(source)
    fields = read_json(folder / "config.json")
    file_weights = read_weights(folder)
    with _config_errors(folder):
        family = _family(fields, file_weights)
        values = Config(renamed(fields, family.model_type))
        table_weights = public_weights.to_table_names(file_weights, family, families.MODEL_TYPES)
        weights = table_weights.weights
        name = architecture or class_to_read(class_in_config(values), family, weights)
        if name not in family.architectures:
            known = ", ".join(family.architectures)
            raise CourseError(
                f"{name!r} is no architecture of {family.model_type}; choose one of {known}."
            )
        config = family.read_config(values)
        # A wrong number in config.json must not fill the memory, so we check before building.
        _check_size(config, sum(tensor.numel() for tensor in weights.values()))
        _check_sides(values, config)
        public_class = family.architectures[name]
        ties = public_weights.ties(values, weights, family, public_class)
        options = changed(values, **build, **ties, weights=frozenset(weights))
        model = public_class.build(config, options)
        _set_multi_label(model, values)
        check_unread(values, family.model_type)

    # 2. The weights of the files, under our names.
    table = family.whole_table(name, model)
    weights = public_weights.without_other_heads(table_weights, table, model, family, str(folder))
    missing = public_weights.missing_head_weights(weights, table, model)
    # `convert` comes before the error below. If the body does not fit either, its error is the one
    # to show, because no other class would help.
    initial = public_weights.initial_head_weights(missing, table, model)
    converted = convert(weights | initial, table, model)
    if missing and architecture is None:
        raise CourseError(
            f"{folder}: the files lack the head of a {name} ({first_names(missing)}); its"
            " answers would be random. Ask for what they hold, as architecture="
            f'"{fitting_classes(family, weights)[0]}", or for a new head, as architecture="{name}".'
        )
    if missing:
        public_weights.warn_of_random(missing, str(folder))
    load_strictly(model, converted, str(folder))

    # 3. What else the folder knows of the model.
    if isinstance(model, heads.Classifier | heads.TokenClassifier) and "classes" not in build:
        model.class_names = _class_names(values)
    any_model: Any = model
    any_model.token_ids = _token_ids_in_config(fields)  # `save_pretrained` writes them again
    warn_of_settings(folder, model, fields)
    return model.eval()


def load_body(source: str | Path) -> nn.Module:
    """Load only the `Transformer` of a public folder, whatever head its class has.

    Args:
        source: the folder, or the hub's "OWNER/NAME".

    Raises:
        CourseError: the model has an encoder and a decoder.
    """
    folder = hub.pretrained(source)
    family = _family(read_json(folder / "config.json"), weight_names(folder))
    # A body alone has no prefix ("bert.") before the names of its weights.
    bodies = [
        name for name, public_class in family.architectures.items() if not public_class.has_prefix
    ]
    # A T5 has the same names with a head and without one, so none of its classes is known as a
    # body. Its body is called "T5Model", like every body.
    body = next(iter(bodies), f"{family.name.upper()}Model")
    stack: Any = load_pretrained(folder, architecture=body).stack
    if not isinstance(stack, Transformer):
        raise CourseError(
            f"{folder}: a {family.name} has an encoder and a decoder, so no single body can be"
            " loaded."
        )
    return stack


def save_pretrained(
    model: nn.Module,
    folder: str | Path,
    *,
    model_type: str | None = None,
    architecture: str | None = None,
    tokenizer: Tokenizer | None = None,
) -> None:
    """Write a public folder. transformers' `from_pretrained` loads it to the same outputs.

    Args:
        model: a head on a body.
        folder: the folder to write; it need not exist.
        model_type: the family, such as "bert". By default one that can express the model's
            configuration.
        architecture: the public class, such as "BertForMaskedLM". By default the first one with
            the model's head.
        tokenizer: also written. config.json then names its tokens for the beginning, the end and
            the padding of a text, which transformers' `generate` needs.

    Raises:
        CourseError: no public class has this head, its pooling or this configuration.
    """
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
        values |= _token_ids_of(tokenizer.vocab, has_decoder="decoder_start_token_id" in values)
    else:
        values |= _loaded_token_ids(model, family)
    values |= _labels(model)

    weights = convert_back(model.state_dict(), family.whole_table(architecture, model), model)
    file_weights = family.add_prefix(weights, architecture, model)
    with atomic_folder(folder) as new:
        (new / "model.safetensors").write_bytes(save(file_weights, metadata={"format": "pt"}))
        write_json(new / "config.json", values)
        if tokenizer is not None:
            tokenizer.save(new, segments=config.embed.segments > 1)


def whole_architecture(folder: Path) -> str | None:
    """The public class that uses all weights of a folder; None if config.json names it already.

    A published BERT calls itself "BertForMaskedLM". Its file also has the pooler and the head for
    next-sentence prediction, so it is a "BertForPreTraining". Other files have no head, and are
    read as their body.

    Args:
        folder: a public folder.
    """
    values = read_json(folder / "config.json")
    no_tensors = dict.fromkeys(weight_names(folder), torch.empty(0))  # only the names are needed
    family = _family(values, no_tensors)
    names = public_weights.to_table_names(no_tensors, family).weights.keys()
    config_class = family.architectures.get(class_in_config(values))
    if config_class is None:
        return None
    if not has_whole_head(config_class, names):
        return fitting_classes(family, names)[0]
    if config_class.head is not heads.MLM:
        return None
    for name, architecture in family.architectures.items():
        if architecture.head is heads.Pretraining:
            return name if has_whole_head(architecture, names) else None
    return None


@contextmanager
def _config_errors(folder: Path) -> Iterator[None]:
    """Raise errors of the block as a `CourseError` that names the folder's config.json."""
    path = f"{folder}/config.json"
    try:
        yield
    except CourseError as error:
        raise CourseError(f"{path}: {error}") from None
    except KeyError as error:
        raise CourseError(f"{path} has no field {error}, which its model needs.") from None
    except (TypeError, AttributeError) as error:
        raise CourseError(
            f"{path} has a field of another kind than its model needs ({error})."
        ) from None


def _family(values: Values, names: Iterable[str]) -> Family:
    """The family of a config.json. An old one has no `model_type`, but a class or known weights."""
    model_type = values.get("model_type") or public_weights.infer_model_type(
        class_in_config(values), names, families.FAMILIES.values()
    )
    return families.family(str(model_type))


def _check_size(config: StackConfig, file_size: int) -> None:
    """Refuse a configuration of more weights than the files have.

    Counted is one matrix of each layer's feed-forward network. No model has fewer weights.
    """
    # ALBERT's layers share their weights (`config.shared`), so they count once.
    fewest = config.width * config.hidden * (1 if config.shared else config.layers)
    if fewest > file_size:
        raise CourseError(f"It asks for {fewest:,} weights and more; its files hold {file_size:,}.")


def _check_sides(values: Values, config: StackConfig) -> None:
    """Refuse an encoder or a decoder of BART or T5 alone, which transformers has as own classes."""
    is_encoder_decoder = values.get("is_encoder_decoder")
    if is_encoder_decoder is not None and is_encoder_decoder != config.cross:
        raise CourseError(
            f"Only models as published are read: is_encoder_decoder {config.cross}, not"
            f" {is_encoder_decoder}."
        )


def _set_multi_label(model: Any, values: Values) -> None:
    """Set a classifier's `multi_label` by config.json's `problem_type`.

    Raises:
        CourseError: the course does not have this kind of problem.
    """
    if type(model) not in (heads.Classifier, Seq2SeqClassifier):
        return  # a tagger or a language model has only one kind of problem
    problem = values.get("problem_type")
    classes = model.out.out_features
    if problem not in (None, "regression", "single_label_classification", MULTI_LABEL):
        raise CourseError(f"There is no problem_type {problem!r}.")
    if problem == "regression" and classes > 1:
        raise CourseError(f"Several scores at once, here {classes}, are not supported.")
    if problem == "single_label_classification" and classes == 1:
        raise CourseError("problem_type says classes, but there is only one; correct the field.")
    model.multi_label = problem == MULTI_LABEL


def _class_names(values: Values) -> tuple[str, ...] | None:
    """The names of the classes: {"0": "bad", "1": "good"} gives ("bad", "good").

    None if they are LABEL_0, LABEL_1, ..., which transformers writes for classes without a name.
    """
    by_number = values.get("id2label") or {}
    names = [str(by_number[number]) for number in sorted(by_number, key=int)]
    return None if names == _numbered_labels(len(names)) else tuple(names)


def _numbered_labels(count: int) -> list[str]:
    return [f"LABEL_{number}" for number in range(count)]


def _token_ids_in_config(fields: Values) -> dict[str, Any]:
    """The entries bos_token_id, eos_token_id, pad_token_id and so on of a config.json.

    decoder_start_token_id is left out: our encoder-decoders know it themselves (`stack.start`).
    """
    return {
        name: value
        for name, value in fields.items()
        if name.endswith("_token_id") and name != "decoder_start_token_id"
    }


def _config_values(
    model: nn.Module, family: Family, architecture: str, config: StackConfig
) -> dict[str, Any]:
    """The entries of config.json but for tokens and labels."""
    predicts_tokens = bool(family.architectures[architecture].output)
    is_untied = predicts_tokens and not is_tied(model)
    stack: Any = model.stack
    has_two_tables = not getattr(stack, "one_table", True)  # encoder's and decoder's
    ties = {"tie_word_embeddings": False} if is_untied or has_two_tables else {}
    return {
        **family.write_config(config),
        **ties,
        **family.architectures[architecture].write_options(model),
        "model_type": family.model_type,
        "architectures": [architecture],
    }


def _token_ids_of(vocab: Vocab, *, has_decoder: bool) -> dict[str, int | None]:
    """The tokens that begin, end and pad a text, as entries of config.json.

    Without these entries transformers assumes the ids of the published vocabulary, which may not
    exist in this one.
    """
    ids = {"bos_token_id": vocab.bos, "eos_token_id": vocab.eos}
    if vocab.pad is not None:
        ids["pad_token_id"] = vocab.pad
    if has_decoder:
        # The decoder learned to write what the tokenizer puts around a text, for example
        # [CLS] ... [SEP].
        if vocab.eos is None:
            ids["eos_token_id"] = vocab.sep
        if vocab.bos is None:
            ids["bos_token_id"] = vocab.cls
        # transformers would otherwise force the published model's first and last token.
        ids["forced_eos_token_id"] = None
        ids["forced_bos_token_id"] = None
    return ids


def _loaded_token_ids(model: nn.Module, family: Family) -> dict[str, Any]:
    """The same entries of the folder that a model was loaded from, if it was.

    A GPT without them gets null, because transformers' default is token 50256, which only the
    published GPT-2 has.
    """
    ids = {}
    if family.model_type in ("gpt2", "openai-gpt"):
        ids = {"bos_token_id": None, "eos_token_id": None}
    return ids | getattr(model, "token_ids", {})


def _labels(model: nn.Module) -> dict[str, Any]:
    """The names of a classifier's or tagger's classes, and its problem_type if that is multi-label.

    Two classes without a name give {"id2label": {0: "LABEL_0", 1: "LABEL_1"}, "label2id": ...}.
    """
    out = getattr(model, "out", None)
    if out is None:
        return {}
    names = getattr(model, "class_names", None) or _numbered_labels(out.out_features)
    problem = {"problem_type": MULTI_LABEL} if getattr(model, "multi_label", False) else {}
    return problem | {
        "id2label": dict(enumerate(names)),
        "label2id": {name: number for number, name in enumerate(names)},
    }
