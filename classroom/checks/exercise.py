"""An exercise, declared once: the right function, inputs, and the known mistakes as patches of its
source.

The lesson's check, the test of that check and the grader all read the same object:

    @exercise(
        lambda g: [(normal(g, 4),), (normal(g, 2, 3),)],           # the arguments of each call
    )
    def softmax(x):
        \"\"\"exp(x) over its sum, along the last dimension.\"\"\"
        weights = x.exp()
        return weights / weights.sum(-1, keepdim=True)

What the student reads stands in the .toml file beside the module, in the exercise's table:
`verified`, what passing proves; a sentence for each known mistake; `mistakes`, their patches; and
`right`, other right answers:

    [softmax]
    verified = "one vector and a batch"
    no_sum = "Divide by the sum of the exponentials."
    unchanged = "It returns its input."
    mistakes = '''
    no_sum: / weights.sum(-1, keepdim=True) =>
    unchanged: => x
    '''
    right = '''
    torch: => x.softmax(-1)
    '''

A line of them is `name: old => new`, several such patches joined by `&&`, or `name: => expression`
where the whole function is another, or `name: =>` with its body in the indented lines below. A name
has a line for each form of its mistake; one that ends in "..." is only proven: the hint or the
judge says its sentence."""

import ast
import inspect
import itertools
import math
import re
import textwrap
import tokenize
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from classroom.checks.base import (
    Case,
    CheckResult,
    Crash,
    WrongError,
    close,
    compare,
    difference,
    outcome,
    report,
    result,
    rng,
)
from course_lib.errors import CourseError

Function = Callable[..., Any]
Form = Callable[[Any], Any]
Arguments = Sequence[tuple[Any, ...]]
# what a variant may name, too
COMMON = {"F": F, "itertools": itertools, "math": math, "np": np, "torch": torch}


class Variant(NamedTuple):
    """Another answer: the sentence or name for it, and pieces of the right source with what stands
    there then.
    """

    says: str
    patches: tuple[tuple[str, str], ...]
    only_proven: bool = False


@dataclass(frozen=True, eq=False)
class Exercise:
    """One function that a student writes. Calling it checks the student's function and prints the
    verdict.

    Args:
        reference: the right function; its name is the exercise's, its arguments' names appear in
            sentences.
        cases: the arguments of each call, or generator -> them.
        mistakes: known wrong answers, the likeliest first. verified: what passing proves, for the
            message.
        says: sentences by name, for the judge and the hint. right: other right answers, which must
            pass.
        form: brings results into one form before they are compared.
        hint: (student's function, first case) -> a sentence to prefer to "the numbers differ", or
            "".
        judge: decides instead of the comparison on the cases: raises WrongError, may return another
            `verified`.
        together: how many mistakes at once are looked for.
        learns: the argument whose gradient must come through, or the sentence `cut_off` is said.
    """

    reference: Function
    cases: Arguments | Callable[[torch.Generator], Arguments]
    mistakes: Sequence[Variant]
    verified: str
    says: Mapping[str, str] = field(default_factory=dict)
    right: Sequence[Variant] = ()
    form: Form | None = None
    hint: Callable[[Any, Case], str] | None = None
    judge: Callable[[Any], str | None] | None = None
    together: int = 2
    learns: str = ""

    @property
    def name(self) -> str:
        """The function's name."""
        return self.reference.__name__

    def __call__(self, fn: object) -> CheckResult:
        """Check the student's function."""
        return report(self.name, lambda: (self.judge or self.compare)(fn) or self.verified)

    def use(self, fn: Function, otherwise: Function | None = None) -> Function:
        """The student's function if it passes, else the course's: `otherwise`, or the reference.
        Prints which.
        """
        with redirect_stdout(StringIO()):
            right = bool(self(fn))
        whose = "yours" if right else "the course's, until yours passes its check"
        print(f"{self.name}: {whose}")  # noqa: T201  what runs from here on
        return fn if right else otherwise or self.reference

    def compare(self, fn: object, cases: Sequence[dict[str, Any]] | None = None) -> None:
        """Raise the sentence that fits if a function differs from the right one on any case (its
        own by default).
        """
        cases = cases or self.draw()
        got = [outcome(fn, case, self.form, written=case is not cases[0]) for case in cases]
        right = [result(self.reference, case, self.form) for case in cases]
        good = [close(value, true) for value, true in zip(got, right, strict=True)]

        def otherwise() -> str:
            where = good.index(False)
            hint = self.hint(fn, cases[0]) if self.hint is not None else ""
            return hint or difference(cases[where], got[where], right[where], self.reference)

        compare(got, outcome(fn, cases[0], self.form), good, self._known(got, cases), otherwise)
        if self.learns:
            through = outcome(
                fn, cases[0] | {self.learns: cases[0][self.learns].clone().requires_grad_()}
            )
            self.refuse(not getattr(through, "requires_grad", False), "cut_off")

    def refuse(self, when: object, name: str, /, **values: object) -> None:
        """Raise the sentence of this name, with its values filled in, if `when` is true."""
        if when:
            raise WrongError(self.says[name].format(**values))

    def draw(self, seed: int = 0) -> list[dict[str, Any]]:
        """The cases, argument name -> value."""
        drawn = self.cases(rng(seed)) if callable(self.cases) else self.cases
        names = inspect.signature(self.reference).parameters
        return [dict(zip(names, values, strict=False)) for values in drawn]

    @cached_property
    def wrong(self) -> list[tuple[str, Function]]:
        """The mistakes as functions."""
        return [(mistake.says, self.variant(*mistake.patches)) for mistake in self.mistakes]

    @cached_property
    def also(self) -> list[tuple[str, Function]]:
        """The other right answers as functions, by name."""
        return [(other.says, self.variant(*other.patches)) for other in self.right]

    def variant(self, *patches: tuple[str, str]) -> Function:
        """The reference with pieces of its source replaced; with an empty piece, another body."""
        source = self._patched(patches)
        space: dict[str, Any] = COMMON | self.reference.__globals__
        exec(compile(source, f"<{self.name}>", "exec"), space)  # noqa: S102  the course's own code
        made: Function = space[self.name]
        return made

    @cached_property
    def _source(self) -> tuple[str, str]:
        """The reference's head and its body, without decorators and docstring."""
        lines = textwrap.dedent(inspect.getsource(self.reference)).splitlines(keepends=True)
        tree = ast.parse("".join(lines)).body[0]
        assert isinstance(tree, ast.FunctionDef)
        body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
        head = lines[tree.lineno - 1 : tree.body[0].lineno - 1]
        return "".join(head), unwrapped("".join(lines[body[0].lineno - 1 :]))

    def _patched(self, patches: Sequence[tuple[str, str]]) -> str:
        head, body = self._source
        source = head + body
        for old, new in patches:
            if old not in source:
                raise CourseError(
                    f"{self.name}: the solution has no {old!r} any more; mend the list of mistakes."
                )
            body = textwrap.indent(new if "\n" in new else f"return {new}", "    ")
            source = source.replace(old, new) if old else f"{head}{body}\n"
        return source

    def _known(
        self, got: Sequence[Any], cases: Sequence[Case]
    ) -> Iterator[tuple[str, Callable[[], bool]]]:
        """The mistakes one by one, then several of them together."""

        def fits(fn: Function, nan: bool = True) -> bool:
            return all(
                close(v, result(fn, case, self.form), nan=nan)
                for v, case in zip(got, cases, strict=True)
            )

        for mistake, (says, fn) in zip(self.mistakes, self.wrong, strict=True):
            if not mistake.only_proven:
                yield says, partial(fits, fn)
        if any(isinstance(value, Crash) for value in got) or all(
            close(value, got[0], nan=True) for value in got[1:]
        ):
            return  # what crashes, or says the same to everything, has no two mistakes
        slips = [m for m in self.mistakes if all(old for old, _ in m.patches) and not m.only_proven]
        for number in range(2, self.together + 1):
            for several in itertools.combinations(slips, number):
                if both := self._joined(several):
                    yield " And: ".join(m.says for m in several), partial(fits, both, nan=False)

    def _joined(self, mistakes: Sequence[Variant]) -> Function | None:
        """The reference with several mistakes; None if they touch the same piece or make no program
        together.
        """
        there, back = (
            [p for m in order for p in m.patches] for order in (mistakes, mistakes[::-1])
        )
        if len({m.says for m in mistakes}) < len(mistakes):
            return None
        try:
            return self.variant(*there) if self._patched(there) == self._patched(back) else None
        except (CourseError, SyntaxError):
            return None


def exercise(
    cases: Arguments | Callable[[torch.Generator], Arguments] = (), **options: Any
) -> Callable[[Function], Exercise]:
    """Make the decorated function, which is the right answer, an `Exercise`; `options` are the
    fields of it.
    """

    def declared(fn: Function) -> Exercise:
        says = dict(_tables(inspect.getfile(fn))[fn.__name__])
        mistakes, right = parse(says.pop("mistakes", ""), says), parse(says.pop("right", ""))
        made = Exercise(fn, cases, mistakes, says["verified"], says, right, **options)
        object.__setattr__(made, "__doc__", fn.__doc__)  # what `checks.name?` shows
        return made

    return declared


@cache
def _tables(module: str) -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(module).with_suffix(".toml").read_text("utf-8"))


def parse(text: str, says: Mapping[str, str] | None = None) -> list[Variant]:
    """Variants from lines `name: old => new && old => new`; without `says` each says its name."""
    found = []
    for line in filter(None, re.split(r"\n(?=\S)", text.strip())):
        name, _, patches = line.partition(": ")
        pairs = [part.partition("=>") for part in patches.split("&&")]
        patched = tuple((old.strip(), textwrap.dedent(new).strip()) for old, _, new in pairs)
        sentence = name if says is None else says[name.removesuffix("...")]
        found.append(Variant(sentence, patched, name.endswith("...")))
    return found


def unwrapped(source: str) -> str:
    """Source with every statement on one line, so that a mistake is found however the formatter
    broke the line. A comma that the formatter put before a closing bracket goes as well.

    >>> unwrapped("f(\\n    a,\\n    b,\\n)\\n")
    'f(a, b)\\n'
    """
    lines = source.splitlines(keepends=True)
    joins: list[int] = []  # numbers of the lines that go on in the next one
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if (
            token.type == tokenize.NL
            and token.line.strip()
            and not token.line.lstrip().startswith("#")
        ):
            joins.append(token.start[0])
    for number in reversed(joins):
        left, right = lines[number - 1].rstrip(), lines[number].lstrip()
        if left.endswith(("(", "[", "{")):
            gap = ""
        elif right.startswith((")", "]", "}")):
            left, gap = left.removesuffix(","), ""
        else:
            gap = " "
        lines[number - 1 : number + 1] = [left + gap + right]
    return "".join(lines)
