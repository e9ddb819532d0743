"""From the weights of a public folder to those that a model needs.

Files come under many names: inside of wrappers, with heads that the wanted class does not have, or
without the one that it has. What is left out, and what is new, is said in a warning.
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

# Parts of a name that come from a wrapper around the model: several processes, torch.compile, FSDP,
# activation checkpoints.
WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}

# Classes that transformers has renamed since files were published (t5-large, t5-3b, t5-11b).
RENAMED = {"T5WithLMHeadModel": "T5ForConditionalGeneration"}


class Stored(NamedTuple):
    """The weights of a file under the names of a family's tables.

    Attributes:
        weights: by these names.
        beside: the names of those that are surely not the body's.
    """

    weights: dict[str, Tensor]
    beside: frozenset[str]


def stored(
    weights: Mapping[str, Tensor], family: Family, model_types: Iterable[str] = ()
) -> Stored:
    """Take off what stands before the names that the tables know.

    What stands before the body's names comes off the heads' names too, but for the family's
    prefix: "model.bert.embeddings..." has the wrapper "model.".

    Args:
        weights: the weights in the file.
        family: the model's family.
        model_types: the `model_type` of every family; the weights may be those of another one.

    Raises:
        CourseError: the file holds several models, or one of another family.
    """
    plain = {_without_wrappers(name): tensor for name, tensor in weights.items()}
    wrapper = _wrapper(plain, family)
    others = set(model_types) - {family.model_type}
    for part in wrapper.split("."):
        if part in others:
            raise CourseError(
                f"model_type is {family.model_type}, but the weights are a {part}'s; correct it."
            )
    inside = {name.removeprefix(wrapper): tensor for name, tensor in plain.items()}
    names = {name: family.strip_prefix(name) for name in inside}
    beside: set[str] = set()
    if family.prefix and any(family.prefix + table in inside for table in family.token_embeddings):
        beside = {own for name, own in names.items() if not name.startswith(family.prefix)}
    return Stored({names[name]: tensor for name, tensor in inside.items()}, frozenset(beside))


def _without_wrappers(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _wrapper(names: Collection[str], family: Family) -> str:
    """What stands before the family's prefix, read off the table of token vectors."""
    for table in family.token_embeddings:
        found = {name.removesuffix(table) for name in names if name.endswith(f".{table}")}
        if table in names or family.prefix in found:
            return ""
        if len(found) > 1:
            raise CourseError(
                f"The checkpoint holds several models, under {', '.join(sorted(found))}; leave one"
                " in it."
            )
        if found:
            return found.pop().removesuffix(family.prefix)
    return ""


def model_type(named: str, names: Iterable[str], families: Iterable[Family]) -> str:
    """The model type of an old config.json, which does not say it.

    Args:
        named: the class in config.json, or "".
        names: the names of the weights.
        families: that there are.

    Raises:
        CourseError: nothing else says it either.
    """
    plain = {_without_wrappers(name) for name in names}
    known = list(families)
    for family in known:
        if named in family.architectures:
            return family.model_type
    for family in known:
        if family.prefix and family.prefix + family.token_embeddings[0] in plain:
            return family.model_type
    raise CourseError('It does not say what the model is; add its type, as "model_type": "bert".')


def architecture_named(fields: Mapping[str, Any]) -> str:
    """The first class that config.json names, by its name of today, or ""."""
    name = str((fields.get("architectures") or [""])[0])
    return RENAMED.get(name, name)


def fitting(family: Family, names: Collection[str]) -> list[str]:
    """The classes that a file fills, and that use most of it; a body if it fills no head.

    Args:
        family: the model's family.
        names: the names of the weights, as in the tables.
    """
    filled = {
        name: _used(architecture, names)
        for name, architecture in family.architectures.items()
        if fills(architecture, names)
    }
    most = max(filled.values(), default=0)
    if most > 0:
        return [name for name, used in filled.items() if used == most]
    with_output = [name for name in filled if family.architectures[name].output]
    bodies = [name for name, public in family.architectures.items() if not public.has_prefix]
    return [*with_output, *bodies][:1]


def class_of(named: str, family: Family, names: Collection[str]) -> str:
    """The class that a file is read as.

    Args:
        named: in config.json, or "".
        family: the model's family.
        names: the names of the weights, as in the tables.

    Raises:
        CourseError: config.json names none, and the weights fit several.
    """
    fit = fitting(family, names)
    if not named and len(fit) > 1:
        raise CourseError(
            f"It names no class, and the weights could be those of a {' or a '.join(fit)}; say"
            ' which under "architectures".'
        )
    return named or fit[0]


def fills(architecture: Architecture, names: Collection[str]) -> bool:
    """Whether a file holds the whole head of a class. A body that may lack its pooler has none."""
    if callable(architecture.table):
        return True
    needed = {row.ours for row in written_out(architecture.table).values() if row.ours}
    return _used(architecture, names) == len(needed)


def _used(architecture: Architecture, names: Collection[str]) -> int:
    """How many weights of the head a file holds."""
    if callable(architecture.table):
        return 0
    rows = written_out(architecture.table)
    return len({row.ours for public, row in rows.items() if row.ours and public in names})


def ties(
    values: Values, weights: dict[str, Tensor], family: Family, architecture: Architecture
) -> dict[str, bool]:
    """Whether the output matrix is the table of token vectors, and both sides have one table.

    As in transformers, a second name means a tensor of its own where config.json says so, or where
    the file has two that differ. A missing table is filled in from its other names.

    Returns:
        "tied" and "one_table", for `Architecture.build`.

    Raises:
        CourseError: config.json asks for an output matrix that the file does not hold.
    """
    table, *sides = family.token_embeddings
    output = next(iter(architecture.output), "")
    for name in (*sides, output):
        if name in weights:
            weights.setdefault(table, weights[name])
    # Where there is one name only, nothing can be tied.
    said = architecture.read_tied(values, weights) if sides or output else True

    def is_own(name: str) -> bool:
        return name in weights and not (said and torch.equal(weights[name], weights[table]))

    one_table = not any(is_own(side) for side in sides)
    if not output:
        return {"one_table": one_table}
    if not said and output not in weights:
        raise CourseError(
            f"tie_word_embeddings is false, but the files hold no output matrix {output}, so that"
            " its answers would be random; correct the field."
        )
    if not one_table and table in weights:  # theirs then reads the shared table, which no side has
        weights.setdefault(output, weights[table])
        return {"tied": False, "one_table": False}
    return {"tied": not is_own(output), "one_table": one_table}


def without_extra(
    stored: Stored, table: Table, model: nn.Module, family: Family, source: str
) -> dict[str, Tensor]:
    """The weights but those of heads that the model does not have, which a warning names.

    Args:
        stored: the weights.
        table: the model's table of names.
        model: that they are for.
        family: the model's family.
        source: the folder, for the warning.
    """
    heads = stored.beside | _head_names(family)
    places = written_out(table, model)
    extra = sorted(name for name in stored.weights if name not in places and name in heads)
    if extra:
        _warn(f"{source}: {some(extra)} left out; a {type(model).__name__} has no place for it.")
    return {name: tensor for name, tensor in stored.weights.items() if name not in extra}


def _head_names(family: Family) -> set[str]:
    """The public names of all weights that a family has outside of its body."""
    tables = [family.pooler]
    for architecture in family.architectures.values():
        tables.append(architecture.output)
        if not callable(architecture.table):
            tables.append(architecture.table)
    return {name for table in tables for name in written_out(table)}


def absent_head(weights: Mapping[str, Tensor], table: Table, model: nn.Module) -> list[str]:
    """The public names of the weights of a model's head that a file lacks."""
    rows = written_out(table, model)
    present = {row.ours for public, row in rows.items() if public in weights}
    absent: dict[tuple[str, ...], str] = {}
    for public, row in rows.items():
        is_head = bool(row.ours) and not row.ours[0].startswith("stack.")
        if is_head and row.ours not in present:
            absent.setdefault(row.ours, public)  # of two public names, the first
    return list(absent.values())


def new_head(absent: list[str], table: Table, model: nn.Module) -> dict[str, Tensor]:
    """The model's own weights, which are random, for what a file lacks."""
    rows = written_out(table, model)
    own = model.state_dict()
    weights = {}
    for public in absent:
        joined = torch.cat([own[ours] for ours in rows[public].ours])
        weights[public] = rows[public].to_public(joined)
    return weights


def warn_of_new(absent: list[str], source: str) -> None:
    """Warn of weights that a file lacks, and that are random now."""
    _warn(f"{source}: {some(absent)} new and random; train the model before you ask it.")


def some(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _warn(sentence: str) -> None:
    warnings.warn(sentence, CourseWarning, stacklevel=4)
