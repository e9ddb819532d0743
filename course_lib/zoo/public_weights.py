"""Choose the weights of a public folder that a model needs, and the class to read them as.

The files of one family differ. A BERT may come as

    bert.embeddings.word_embeddings.weight           in a BertForMaskedLM, with the prefix "bert."
    embeddings.word_embeddings.weight                a BertModel: the body alone, without the prefix
    module.bert.embeddings.word_embeddings.weight    saved while several processes trained it

The tables of `families/` know the second form. `to_table_names` makes it of all three. The other
functions compare the names with a class, such as `BertForMaskedLM`: does the file have its whole
head (the weights above the body)? Has it heads that the class does not use? Whatever is left out or
stays random is named in a warning.
"""

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from course_lib.errors import CourseError, CourseWarning
from course_lib.families.family import Architecture, Family
from course_lib.families.fields import Values
from course_lib.families.weight_tables import Table, written_out

# Parts of a name that come from a wrapper around the model: DistributedDataParallel, torch.compile,
# FSDP, activation checkpointing.
WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}

# Classes that transformers has renamed since files were published (t5-large, t5-3b, t5-11b).
RENAMED = {"T5WithLMHeadModel": "T5ForConditionalGeneration"}


class PublicWeights(NamedTuple):
    """The weights of a file under the names of a family's tables.

    Attributes:
        weights: table name -> tensor.
        outside_body: the names that lack the prefix in a file whose body has it. They belong to
            heads: "cls.predictions.bias" beside "bert.embeddings...".
    """

    weights: dict[str, Tensor]
    outside_body: frozenset[str]


def to_table_names(
    file_weights: Mapping[str, Tensor], family: Family, model_types: Iterable[str] = ()
) -> PublicWeights:
    """Remove wrappers and the family's prefix from the names of a file's weights.

    "model.bert.embeddings.LayerNorm.gamma" becomes "embeddings.LayerNorm.weight". The head's
    "model.cls.predictions.bias" becomes "cls.predictions.bias".

    Args:
        file_weights: name in the file -> tensor.
        family: the model's family.
        model_types: the model types of all families. If a wrapper has another one's name, the
            file holds another model than config.json says.

    Raises:
        CourseError: the file holds several models, or one of another family.
    """
    plain = {_without_wrappers(name): tensor for name, tensor in file_weights.items()}
    wrapper = _outer_prefix(plain, family)
    other_types = set(model_types) - {family.model_type}
    for part in wrapper.split("."):
        if part in other_types:
            raise CourseError(
                f"model_type is {family.model_type}, but the weights are a {part}'s; correct it."
            )
    inner = {name.removeprefix(wrapper): tensor for name, tensor in plain.items()}
    table_names = {name: family.strip_prefix(name) for name in inner}
    outside_body: set[str] = set()
    body_has_prefix = any(family.prefix + tokens in inner for tokens in family.token_embeddings)
    if family.prefix and body_has_prefix:
        for name, table_name in table_names.items():
            if not name.startswith(family.prefix):
                outside_body.add(table_name)
    weights = {table_names[name]: tensor for name, tensor in inner.items()}
    return PublicWeights(weights, frozenset(outside_body))


def _without_wrappers(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _outer_prefix(names: Collection[str], family: Family) -> str:
    """What is before the family's prefix: "model." of "model.bert.embeddings...", else "".

    Every file has a token embedding, so its name shows the prefix.
    """
    for tokens in family.token_embeddings:
        prefixes = {name.removesuffix(tokens) for name in names if name.endswith(f".{tokens}")}
        if tokens in names or family.prefix in prefixes:
            return ""
        if len(prefixes) > 1:
            raise CourseError(
                f"The checkpoint holds several models, under {', '.join(sorted(prefixes))}; leave"
                " one in it."
            )
        if prefixes:
            return prefixes.pop().removesuffix(family.prefix)
    return ""


def infer_model_type(
    class_name: str, weight_names: Iterable[str], families: Iterable[Family]
) -> str:
    """The model type ("bert") of an old config.json that has no entry `model_type`.

    Args:
        class_name: the class in config.json, or "".
        weight_names: the names of the weights in the file.
        families: all families.

    Raises:
        CourseError: neither the class nor the names belong to a family.
    """
    plain = {_without_wrappers(name) for name in weight_names}
    families = list(families)
    for family in families:
        if class_name in family.architectures:
            return family.model_type
    for family in families:
        if family.prefix and family.prefix + family.token_embeddings[0] in plain:
            return family.model_type
    raise CourseError('It does not say what the model is; add its type, as "model_type": "bert".')


def class_in_config(fields: Mapping[str, Any]) -> str:
    """The first class that config.json names ("BertForMaskedLM"), or ""."""
    name = str((fields.get("architectures") or [""])[0])
    return RENAMED.get(name, name)


def class_to_read(config_class: str, family: Family, weights: Collection[str]) -> str:
    """The class that a file is read as: the one in config.json, else the one whose head it has.

    Args:
        config_class: the class in config.json, or "".
        family: the model's family.
        weights: the table names of the weights.

    Raises:
        CourseError: config.json names no class, and the file has the heads of several.
    """
    fitting = fitting_classes(family, weights)
    if not config_class and len(fitting) > 1:
        raise CourseError(
            f"It names no class, and the weights could be those of a {' or a '.join(fitting)}; say"
            ' which under "architectures".'
        )
    return config_class or fitting[0]


def fitting_classes(family: Family, weights: Collection[str]) -> list[str]:
    """The classes whose whole head is in a file. Of several heads, those with the most weights.

    Without any head it is one class: a language model whose output matrix is the token embedding
    (GPT-2's head has no weights of its own), else the body.

    Args:
        family: the model's family.
        weights: the table names of the weights.
    """
    head_sizes = {
        name: _head_weights(architecture, weights)
        for name, architecture in family.architectures.items()
        if has_whole_head(architecture, weights)
    }
    largest = max(head_sizes.values(), default=0)
    if largest > 0:
        return [name for name, size in head_sizes.items() if size == largest]
    language_models = [name for name in head_sizes if family.architectures[name].output]
    bodies = [
        name for name, architecture in family.architectures.items() if not architecture.has_prefix
    ]
    return [*language_models, *bodies][:1]


def has_whole_head(architecture: Architecture, weights: Collection[str]) -> bool:
    """Whether a file has every weight of a class's head.

    A head whose table depends on the model cannot be checked before there is a model. It counts as
    whole.
    """
    if callable(architecture.table):
        return True
    needed = {row.ours for row in written_out(architecture.table).values() if row.ours}
    return _head_weights(architecture, weights) == len(needed)


def _head_weights(architecture: Architecture, weights: Collection[str]) -> int:
    """How many of our head's weights are in a file. Two public names of one weight count once."""
    if callable(architecture.table):
        return 0
    rows = written_out(architecture.table)
    return len({row.ours for name, row in rows.items() if row.ours and name in weights})


def ties(
    values: Values, weights: dict[str, Tensor], family: Family, architecture: Architecture
) -> dict[str, bool]:
    """Whether the output matrix is the token embedding, and encoder and decoder share one.

    As in transformers, two names mean two matrices if config.json says so or if the file has
    different numbers under them. For BERT:

        "cls.predictions.decoder.weight"            config.json         result
        not in the file                             -                   tied
        in the file, equal to the token embedding   -                   tied
        in the file, different                      -                   not tied
        in the file, equal or not                   tie_word_embeddings: false   not tied
        not in the file                             tie_word_embeddings: false   CourseError

    Args:
        values: the entries of config.json.
        weights: table name -> tensor. If the token embedding is missing, it is added here from its
            other names.
        family: the model's family.
        architecture: the class that is read.

    Returns:
        "tied" and "one_table", for `Architecture.build`.

    Raises:
        CourseError: config.json asks for an output matrix that the file does not have.
    """
    tokens, *sides = family.token_embeddings  # the sides: an encoder's and a decoder's own
    output = next(iter(architecture.output), "")
    for name in (*sides, output):
        if name in weights:
            weights.setdefault(tokens, weights[name])
    # With a single name nothing can be tied or untied, so config.json is not asked.
    should_tie = architecture.read_tied(values, weights) if sides or output else True

    def is_own(name: str) -> bool:
        return name in weights and not (should_tie and torch.equal(weights[name], weights[tokens]))

    one_table = not any(is_own(side) for side in sides)
    if not output:
        return {"one_table": one_table}
    if not should_tie and output not in weights:
        raise CourseError(
            f"tie_word_embeddings is false, but the files hold no output matrix {output}, so that"
            " its answers would be random; correct the field."
        )
    if not one_table and tokens in weights:
        # transformers' output then reads the shared table, which neither side uses. Here it becomes
        # an output matrix of its own.
        weights.setdefault(output, weights[tokens])
        return {"tied": False, "one_table": False}
    return {"tied": not is_own(output), "one_table": one_table}


def without_other_heads(
    table_weights: PublicWeights, table: Table, model: nn.Module, family: Family, source: str
) -> dict[str, Tensor]:
    """The weights without those of heads that the model lacks. A warning names what is left out.

    A weight that belongs to no head stays, and `convert` refuses it.

    Args:
        table_weights: the weights of the file, from `to_table_names`.
        table: the table of the model's class.
        model: the model to load into.
        family: the model's family.
        source: the folder, for the warning.
    """
    weights = table_weights.weights
    head_names = table_weights.outside_body | _head_names(family)
    used = written_out(table, model)
    unused = sorted(name for name in weights if name not in used and name in head_names)
    if unused:
        _warn(
            f"{source}: {first_names(unused)} left out; a {type(model).__name__} has no place for"
            " it."
        )
    return {name: tensor for name, tensor in weights.items() if name not in unused}


def _head_names(family: Family) -> set[str]:
    """The table names of all weights that any class of a family has outside its body."""
    tables = [family.pooler]
    for architecture in family.architectures.values():
        tables.append(architecture.output)
        if not callable(architecture.table):
            tables.append(architecture.table)
    return {name for table in tables for name in written_out(table)}


def missing_head_weights(
    weights: Mapping[str, Tensor], table: Table, model: nn.Module
) -> list[str]:
    """The table names of the weights of a model's head that a file lacks."""
    rows = written_out(table, model)
    present = {row.ours for name, row in rows.items() if name in weights}
    missing: dict[tuple[str, ...], str] = {}
    for name, row in rows.items():
        is_head = bool(row.ours) and not row.ours[0].startswith("stack.")
        if is_head and row.ours not in present:
            missing.setdefault(row.ours, name)  # of two names for one weight, the first
    return list(missing.values())


def initial_head_weights(missing: list[str], table: Table, model: nn.Module) -> dict[str, Tensor]:
    """The random weights of a new model's head in their public form, for what a file lacks."""
    rows = written_out(table, model)
    initial = model.state_dict()
    weights = {}
    for name in missing:
        # One public weight may hold several of ours, such as GPT-2's q, k and v.
        joined = torch.cat([initial[ours] for ours in rows[name].ours])
        weights[name] = rows[name].to_public(joined)
    return weights


def warn_of_random(missing: list[str], source: str) -> None:
    """Warn of weights that a file lacks, so that they are random."""
    _warn(f"{source}: {first_names(missing)} new and random; train the model before you ask it.")


def first_names(names: Sequence[str]) -> str:
    """The first three names, and how many more there are.

    >>> first_names(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _warn(sentence: str) -> None:
    # 4 calls up is the caller of `load_pretrained`.
    warnings.warn(sentence, CourseWarning, stacklevel=4)
