"""The one exception a user of the course should ever have to read."""

import functools
import inspect
import math
import numbers
from collections.abc import Callable
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

P = ParamSpec("P")
R = TypeVar("R")
NUMBERS: dict[Any, Any] = {int: numbers.Integral, float: numbers.Real}
SAID = {int: "a whole number", float: "a finite number", str: "a text", type(None): "None"}


class CourseError(ValueError):
    """Bad input, said in one sentence: what was wrong, where, and what to do about it."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function; an argument of another type than the signature says, or a number that is not
    finite, is a CourseError that names it."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        for name, value in signature.bind(*args, **options).arguments.items():
            check_type(f"{function.__name__}: {name}", value, signature.parameters[name].annotation)
        return function(*args, **options)

    return call


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
