"""The one exception a user of the course should ever have to read."""

import inspect
import math
import numbers
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

NUMBERS: dict[Any, Any] = {int: numbers.Integral, float: numbers.Real}
SAID = {int: "a whole number", float: "a finite number", str: "a text", type(None): "None"}


class CourseError(ValueError):
    """Bad input, said in one sentence: what was wrong, where, and what to do about it."""


def check_type(name: str, value: object, kind: Any) -> None:
    """A CourseError unless the value is of the kind that an annotation says, lists and the like
    without what is inside. Annotations as text, and all but unions, `Literal` and classes, fit
    everything."""
    if not _is(value, kind):
        raise CourseError(f"{name} is {f'{value!r:.60}'}; it must be {_said(kind)}.")


def _said(kind: Any) -> str:
    parts = [repr(one) if isinstance(one, str) else _said(one) for one in get_args(kind)]
    if get_origin(kind) in (Union, UnionType, Literal):
        return " or ".join(parts)
    return SAID.get(kind, getattr(get_origin(kind) or kind, "__name__", str(kind)))


def _is(value: Any, kind: Any) -> bool:
    origin = get_origin(kind) or kind
    if kind in (Any, inspect.Parameter.empty):
        return True
    if origin in (Union, UnionType):
        return any(_is(value, one) for one in get_args(kind))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if origin in NUMBERS:
        return (
            isinstance(value, NUMBERS[origin])
            and not isinstance(value, bool)
            and math.isfinite(value)
        )
    origin = getattr(origin, "array_type", origin)  # jaxtyping's
    return (
        value is None
        if origin is None
        else not isinstance(origin, type) or isinstance(value, origin)
    )
