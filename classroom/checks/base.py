"""How a check decides and what it says.

A check runs the student's function on several inputs and compares with the right answer. If they
differ, it runs each known mistake on the same inputs: the mistake that gives the student's very
numbers is the one to name. So a check can never accept a wrong answer because of a badly guessed
diagnosis; at worst it says where the first difference is."""

import dis
import itertools
import linecache
import re
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

# argument name -> value; passed by position, so the student may name them otherwise
Case = Mapping[str, Any]
RIGHT, WRONG, EMPTY = "\x1b[32m✓\x1b[0m", "\x1b[31m✗\x1b[0m", "○"  # green, red, none


@dataclass(frozen=True)
class CheckResult:
    """What a check found. Printed once by the check; quiet as the last expression of a cell."""

    passed: bool
    message: str

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return f"CheckResult({'passed' if self.passed else 'not passed'})"

    def _ipython_display_(self) -> None:
        """Nothing: the message has been printed already."""


@dataclass(frozen=True)
class Crash:
    """An exception of the student's function, kept as its outcome."""

    error: Exception

    @property
    def line(self) -> str:
        """The student's own line at which it was raised, for a sentence; "" where there is none to
        read.
        """
        remote = getattr(self.error, "own_line", None)
        if remote is not None:  # of a function that runs elsewhere
            return f" at `{remote}`" if remote else ""
        frames = [
            f for f in traceback.extract_tb(self.error.__traceback__) if f.filename != __file__
        ]
        own = [
            f
            for f in frames
            if f.filename == frames[0].filename and linecache.getline(f.filename, f.lineno or 0)
        ]
        return f" at `{own[-1].line}`" if own else ""


class NotWrittenError(Exception):
    """The function is still a stub."""


class WrongError(Exception):
    """The answer is wrong; the message is what the student reads."""


def report(name: str, test: Callable[[], str]) -> CheckResult:
    """Run a test, print what it says behind a coloured sign; return it. The test returns what it
    verified or raises.
    """
    sign = RIGHT
    try:
        message = f"{name}: right. Verified: {test()}."
    except NotWrittenError:
        sign, message = (
            EMPTY,
            f"{name}: not written yet. It returns nothing so far; fill it in and run both cells.",
        )
    except WrongError as wrong:
        sign, message = WRONG, f"{name}: not yet. {wrong}"
    lines = (
        textwrap.fill(line, 110, subsequent_indent="  ")
        for line in f"{sign} {message}".splitlines()
    )
    print("\n".join(lines))  # noqa: T201  what the student came for
    return CheckResult(sign == RIGHT, message)


def outcome(
    fn: object, case: Case, form: Callable[[Any], Any] | None = None, written: bool = False
) -> Any:
    """The value of the student's function on one case, or the `Crash` it ended in.

    `form` brings the value into one form, so that a tuple may pass for a list, say. NotWrittenError
    where it is a stub (`...`, NotImplementedError, a body that does nothing), WrongError where it
    is no function, does something and returns nothing, or changes its inputs."""
    if fn is None or fn is ...:
        raise NotWrittenError
    if not callable(fn):
        raise WrongError(
            "Give the check the function itself, without calling it: checks.name(my_function)."
        )
    given = {name: _copy(value) for name, value in case.items()}
    value = _run(fn, given)
    if isinstance(value, Crash):
        if isinstance(value.error, NotImplementedError):
            raise NotWrittenError from None
        if isinstance(value.error, WrongError | NotWrittenError):
            raise value.error  # said by the grader's stand-in for a function that runs elsewhere
        return value
    if (value is None or value is ...) and not written:
        if value is ... or _does_nothing(fn):
            raise NotWrittenError
        raise WrongError(
            "It returns None: the `return` of its result is missing, or is not reached."
        )
    for name, before in case.items():
        if not same(given[name], before):
            raise WrongError(
                f"It changes its input `{name}` in place; work on a copy (clone, or an expression)."
            )
    return value if form is None or value is None else _run(form, {"value": value})


def answer(fn: object, case: Case) -> Any:
    """The value of the student's function on one case; WrongError if it raises."""
    value = outcome(fn, case)
    if isinstance(value, Crash):
        raise WrongError(difference(case, value, None))
    return value


def result(fn: Callable[..., Any], case: Case, form: Callable[[Any], Any] | None = None) -> Any:
    """The value of a known function on one case, or the `Crash` it ended in."""
    return _run(fn, {name: _copy(value) for name, value in case.items()}, form)


def _run(fn: Callable[..., Any], case: Case, form: Callable[[Any], Any] | None = None) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = plain(fn(*case.values()))
            return value if form is None else form(value)
    except Exception as error:  # noqa: BLE001  any error of the student's becomes one sentence
        return Crash(error)


def compare(
    got: Sequence[Any],
    again: Any,
    good: Sequence[bool],
    known: Iterable[tuple[str, Callable[[], bool]]],
    otherwise: Callable[[], str],
) -> None:
    """Raise the sentence that fits as a `WrongError`, unless all results are right.

    got: the student's result on every case; again: on the first case, once more; good: is each
    right? known: (sentence, does this mistake give the student's very results?), the likeliest
    first; otherwise: if none does."""
    if isinstance(again, torch.Tensor | float | int | list | tuple) and not close(
        again, got[0], nan=True
    ):
        raise WrongError(
            "Two calls with the same input give two results; is there a dropout or an unseeded draw"
            " in it?"
        )
    if not all(good):
        raise WrongError(next((says for says, fits in known if fits()), "") or otherwise())


def difference(case: Case, value: Any, true: Any, named: object = None) -> str:
    """One sentence about how `value` differs from `true`: raised, type, shape, dtype, NaN, or
    numbers.

    named: a function whose docstring names the parts of a result, "(ids, segments) of ...".
    """
    where = f"on {describe(case)}"
    if isinstance(value, Crash):
        text = str(value.error).strip().split("\n")[0]
        return f"It raises {type(value.error).__name__}{value.line} {where}: {text}"
    if isinstance(true, torch.Tensor):
        return _tensor_difference(where, value, true)
    if (
        isinstance(true, tuple | list)
        and isinstance(value, tuple | list)
        and len(value) == len(true)
    ):
        names = dict(enumerate(parts(named, len(true))))
        if names and any(close(other, true) for other in itertools.permutations(value)):
            return (
                "The parts of what it returns have changed places; return"
                f" ({', '.join(names.values())})."
            )
        for index, (v, t) in enumerate(zip(value, true, strict=True)):
            if not close(v, t):
                name = f" (`{names[index]}`)" if index in names else ""
                if isinstance(t, torch.Tensor | tuple | list):
                    return (
                        f"Part {index}{name} of what it returns is wrong. {difference(case, v, t)}"
                    )
                return (
                    f"Place {index}{name} of what it returns holds {v!r} instead of {t!r}, {where}."
                )
    if isinstance(true, tuple | list):
        length = f" of {len(value)}" if isinstance(value, tuple | list) else ""
        kind = "list" if isinstance(true, list) else "tuple"
        return (
            f"It should return a {kind} of {len(true)}, and returns {_a(value)}{length}, {where}."
        )
    if (
        isinstance(true, float)
        and isinstance(value, int | float | torch.Tensor)
        and not isinstance(value, bool)
    ):
        return f"It returns {_scalar(value)}, and the right value is {true:.6g}, {where}."
    if isinstance(value, str) and isinstance(true, str):
        unlike = (i for i, (a, b) in enumerate(zip(value, true, strict=False)) if a != b)
        at = next(unlike, min(len(value), len(true)))
        return (
            f"From character {at} on it returns {short(value[at:])}, and {short(true[at:])} is"
            f" right, {where}."
        )
    return f"It returns {short(value)}, and the right answer is {short(true)}, {where}."


def parts(fn: object, count: int) -> list[str]:
    """What the function's docstring calls the parts of its result, if there are so many: "(ids,
    segments) of ...".
    """
    found = re.search(r"(?:^|: )\(([^()]+)\)", (getattr(fn, "__doc__", None) or "").strip())
    names = [part.split()[0] for part in found[1].split(",") if part.split()] if found else []
    return names if len(names) == count and all(map(str.isidentifier, names)) else []


def _tensor_difference(where: str, value: Any, true: torch.Tensor) -> str:
    if not isinstance(value, torch.Tensor):
        extra = (
            " Without .item(), so that it can be differentiated."
            if isinstance(value, float)
            else ""
        )
        return f"It should return a torch.Tensor, and returns {_a(value)}, {where}.{extra}"
    if value.shape != true.shape:
        return (
            f"The result has shape {list(value.shape)}; it should have {list(true.shape)}, {where}."
        )
    if _kind(value) != _kind(true) and close(value.to(true.dtype), true):
        return (
            f"The values are right, but their type is {value.dtype} and {true.dtype} is asked for,"
            f" {where}."
        )
    if _kind(value) == "float" and bool(value.isnan().any()) and not bool(true.isnan().any()):
        return f"The result holds NaN, {where}; is there a 0/0 or a softmax over nothing but -inf?"
    a, b = value.detach().double(), true.double()
    gap = (a - b).abs().nan_to_num(nan=float("inf"))
    place = [int(i) for i in np.unravel_index(int(gap.argmax()), gap.shape)]
    there = f" at index {place}" if place else ""
    return (
        f"The numbers differ{there}: {a[tuple(place)]:.4g} where {b[tuple(place)]:.4g} is right,"
        f" {where}."
    )


def close(value: Any, true: Any, *, nan: bool = False) -> bool:
    """Equal for a check: same structure, shape, kind of number or of error; floats to 1e-4
    relative, 1e-5 absolute.

    Any float type passes for another, any integer type for another. `nan`: NaN equals NaN.
    """
    if isinstance(value, Crash) or isinstance(true, Crash):
        both = isinstance(value, Crash) and isinstance(true, Crash)
        return both and (type(value.error), str(value.error)) == (type(true.error), str(true.error))
    if isinstance(true, torch.Tensor):
        if (
            not isinstance(value, torch.Tensor)
            or value.shape != true.shape
            or _kind(value) != _kind(true)
        ):
            return False
        a, b = value.detach().cpu().double(), true.detach().cpu().double()
        return torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=nan)
    if isinstance(true, tuple | list):
        same_kind = isinstance(value, tuple | list) and len(value) == len(true)
        return same_kind and all(close(v, t, nan=nan) for v, t in zip(value, true, strict=True))
    if isinstance(true, float):
        if isinstance(value, torch.Tensor):
            value = value.detach().item() if value.numel() == 1 and value.dim() == 0 else None
        number = isinstance(value, int | float) and not isinstance(value, bool)
        # inf equals inf
        near = number and (value == true or abs(value - true) <= 1e-5 + 1e-4 * abs(true))
        return near or (number and nan and value != value and true != true)
    try:
        return bool(value == true)
    except (RuntimeError, ValueError, TypeError):
        return False


def plain(value: Any) -> Any:
    """NumPy's numbers as Python's, in lists and tuples too; anything else as it is."""
    if isinstance(value, np.generic):
        return value.item()
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


def same(a: Any, b: Any) -> bool:
    """Bit for bit the same value; generators and other objects always count as the same."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return (
            a.shape == b.shape
            and a.dtype == b.dtype
            and torch.equal(a.nan_to_num(), b.nan_to_num())
        )
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return isinstance(b, torch.Generator) or bool(a == b)


def describe(case: Case) -> str:
    """'q [2 3 4], k [2 5 4], heads 4': shapes of tensors, values of the rest."""
    parts = []
    for name, value in case.items():
        if isinstance(value, torch.Tensor):
            few = _kind(value) != "float" and value.numel() <= 12
            parts.append(
                f"{name} = {value.tolist()}"
                if few
                else f"{name} [{' '.join(map(str, value.shape))}]"
            )
        elif not isinstance(value, torch.Generator):
            parts.append(f"{name} {short(value)}")
    return ", ".join(parts)


def rng(seed: int) -> torch.Generator:
    """A generator of its own, so that a check neither reads nor moves the student's random
    state.
    """
    return torch.Generator().manual_seed(seed)


def normal(generator: torch.Generator, *shape: int) -> torch.Tensor:
    """Normal numbers."""
    return torch.randn(shape, generator=generator)


def integers(g: torch.Generator, most: int, *shape: int) -> torch.Tensor:
    """Whole numbers from 0 to below `most`."""
    return torch.randint(most, shape, generator=g)


def row_mask(*lengths: int) -> torch.Tensor:
    """The attention_mask of rows of these lengths, Bool[B T], padded on the right."""
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def listed(value: Any) -> Any:
    """Tuples and tensors of ids as lists."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [listed(item) for item in value]
    return value


def _does_nothing(fn: object) -> bool:
    """Is the function's body empty: `...`, `pass`, a docstring?"""
    steps = (
        {step.opname for step in dis.get_instructions(fn.__code__)}
        if hasattr(fn, "__code__")
        else {""}
    )
    return steps <= {"RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST"}


def _copy(value: Any) -> Any:
    if isinstance(value, torch.Generator):
        return torch.Generator().set_state(value.get_state())
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, list | tuple):
        return type(value)(_copy(item) for item in value)
    return value.copy() if isinstance(value, dict | set) else value


def _kind(value: torch.Tensor) -> str:
    if value.dtype == torch.bool:
        return "bool"
    return "float" if value.is_floating_point() else "int"


def _scalar(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {list(value.shape)}" if value.dim() else f"{value.item():.6g}"
    return f"{value:.6g}"


def _a(value: Any) -> str:
    name = f"{type(value).__module__}.{type(value).__name__}".replace("builtins.", "")
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def short(value: Any) -> str:
    """The value on one line, cut to 60 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
