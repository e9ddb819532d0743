"""Arithmetic in digits or in words: the ten tasks of Brown et al. 2020, section 3.9.1."""

import random

from course_lib.data.world.tasks.base import Example, Task

SIGNS = {"+": "plus", "-": "minus", "*": "times"}
# Name: digits of the operands, signs ("1DC" is one-digit operands with three of them: 6 + (4 * 8)).
KINDS = {
    "2D+": (2, "+"), "2D-": (2, "-"), "3D+": (3, "+"), "3D-": (3, "-"), "4D+": (4, "+"), "4D-": (4, "-"),
    "5D+": (5, "+"), "5D-": (5, "-"), "2Dx": (2, "*"), "1DC": (1, ""),
}  # fmt: skip
UNITS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
HELD = 10  # one problem in ten is met in the test split only


class Arithmetic(Task):
    """What is 48 plus 76? Every kind equally often; a problem of the test split is in no other split."""

    columns = ("text", "target", "kind")
    labels = ()
    group = len(KINDS)
    in_words = False

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        """Question `text`, its answer `target`, the kind; gold: the expression and its value."""
        kind = list(KINDS)[member]
        digits, sign = KINDS[kind]
        rng = random.Random(f"{rng.random()}/{member}")
        write = spell if self.in_words else str
        while True:
            # Operands from 0 on, as in the paper: "two digits" is 0 to 99.
            a, b, c = (rng.randrange(10**digits) for _ in range(3))
            if (split == "test") == ((a * 31 + b * 7 + c * (not sign)) % HELD == 0):
                break
        if sign:
            expression = f"{a} {sign} {b}"
            text = f"What is {write(a)} {SIGNS[sign]} {write(b)}?"
        else:
            one, two = rng.choice("+-*"), rng.choice("+-*")
            expression = f"{a} {one} ({b} {two} {c})"
            text = f"What is {write(a)} {SIGNS[one]} ({write(b)} {SIGNS[two]} {write(c)})?"
        value = _value(expression)
        return {"text": text, "target": write(value), "kind": kind, "gold": {"expression": expression, "value": value}}


class ArithmeticInWords(Arithmetic):
    """What is forty-eight plus seventy-six?"""

    in_words = True


def spell(number: int) -> str:
    """The number in words, below a million in size: "minus", "one hundred and five", "forty-eight thousand and two"."""
    if number < 0:
        return f"minus {spell(-number)}"
    if number < 20:
        return UNITS[number]
    if number < 100:
        tens, rest = divmod(number, 10)
        return TENS[tens - 2] + (f"-{UNITS[rest]}" if rest else "")
    size, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    count, rest = divmod(number, size)
    joined = "" if not rest else f" and {spell(rest)}" if rest < 100 else f" {spell(rest)}"
    return f"{spell(count)} {name}{joined}"


def _value(expression: str) -> int:
    """The value of "a + b" or "a + (b * c)"."""
    first, sign, rest = expression.split(" ", 2)
    a = int(first)
    b = _value(rest[1:-1]) if rest.startswith("(") else int(rest)
    return a + b if sign == "+" else a - b if sign == "-" else a * b
