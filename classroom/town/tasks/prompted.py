"""What a prompt asks of a language model (after Brown et al. 2020): arithmetic (section 3.9.1); and
in context, where words of two kinds are each given a colour that stands for their kind, another one
in every prompt. In the control the examples' colours are random (after Min et al. 2022), so that
only guessing is left."""

import operator
import random
from functools import partial

from classroom.town.facts import held_out, until
from classroom.town.lexicon import FOLDER
from classroom.town.tasks.base import Example, TownTask
from course_lib.files import read_json

SIGNS = {"+": "plus", "-": "minus", "*": "times"}
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
# Digits of the operands, sign; "1DC" is three operands of one digit: 6 + (4 * 8).
KINDS = ("2D+", "2D-", "3D+", "3D-", "4D+", "4D-", "5D+", "5D-", "2Dx", "1DC")
UNITS: list[str]
TENS: list[str]
# zero to nineteen; twenty, thirty, ... ninety
UNITS, TENS = read_json(FOLDER / "numbers.json").values()
HELD = 10  # one problem in ten is met in the test split only


class Arithmetic(TownTask):
    """What is 48 plus 76? Every kind equally often; a problem of the test split is in no other
    split.
    """

    columns = ("text", "target", "kind")
    labels = ()
    group = len(KINDS)
    in_words = False

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        kind = KINDS[member]
        digits = int(kind[0])
        sign = {"x": "*", "C": ""}.get(kind[-1], kind[-1])  # C: composite, with two signs
        rng = random.Random(f"{rng.random()}/{member}")
        write = spell if self.in_words else str
        while True:
            # Operands from 0 on, as in the paper: "two digits" is 0 to 99.
            a, b, c = (rng.randrange(10**digits) for _ in range(3))
            if (split == "test") == ((a * 31 + b * 7 + c * (not sign)) % HELD == 0):
                break
        if sign:
            expression = f"{a} {sign} {b}"
            value = OPERATIONS[sign](a, b)
            text = f"What is {write(a)} {SIGNS[sign]} {write(b)}?"
        else:
            outer, inner = rng.choice("+-*"), rng.choice("+-*")
            expression = f"{a} {outer} ({b} {inner} {c})"
            value = OPERATIONS[outer](a, OPERATIONS[inner](b, c))
            text = f"What is {write(a)} {SIGNS[outer]} ({write(b)} {SIGNS[inner]} {write(c)})?"
        return {
            "text": text,
            "target": write(value),
            "kind": kind,
            "gold": {"expression": expression, "value": value},
        }


class ArithmeticInWords(Arithmetic):
    """What is forty-eight plus seventy-six?"""

    in_words = True


def spell(number: int) -> str:
    """The number in words, below a million in size: "minus", "one hundred and five", "forty-eight
    thousand and two".
    """
    if number < 0:
        return f"minus {spell(-number)}"
    if number < 20:
        return UNITS[number]
    if number < 100:
        tens, rest = divmod(number, 10)
        return TENS[tens - 2] + (f"-{UNITS[rest]}" if rest else "")
    size, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    count, rest = divmod(number, size)
    words = f"{spell(count)} {name}"
    if rest == 0:
        return words
    return f"{words} and {spell(rest)}" if rest < 100 else f"{words} {spell(rest)}"


SHOTS = 6  # examples in a prompt, three of each kind
POOLS = ("animal", "job", "food", "object", "feel", "kin")


class InContext(TownTask):
    """The owl is red. The soup is blue. ... The horse is - red or blue?"""

    columns = ("text", "answer", "choices", "label")
    labels = ("first", "second")
    true_examples = True

    def make(self, rng: random.Random, member: int, split: str) -> Example:
        pools = self.lexicon.pools
        kinds = rng.sample(POOLS, 2)
        colours = rng.sample([" ".join(item[""][0]) for item in pools["adj.colour"].items], 2)
        asked = rng.randrange(2)
        shown = [n % 2 for n in range(SHOTS)]
        rng.shuffle(shown)
        words: list[str] = []
        for kind in (*shown, asked):
            # the asked word is held out in the test split
            new = split == "test" and len(words) == SHOTS
            names = [
                " ".join(item[""][0])
                for i, item in enumerate(pools[kinds[kind]].items)
                if held_out(i) == new
            ]
            words.append(until(partial(rng.choice, names), lambda word: word not in words))
        said = shown if self.true_examples else [rng.randrange(2) for _ in shown]
        named = [
            f"{word} man" if kinds[kind] == "feel" else word
            for kind, word in zip((*shown, asked), words, strict=True)
        ]
        lines = [
            f"The {word} is {colours[label]}." for label, word in zip(said, named, strict=False)
        ]
        lines.append(f"The {named[-1]} is")
        choices = colours if rng.random() < 0.5 else colours[::-1]
        gold = {"kinds": kinds, "colours": colours, "asked": words[-1]}
        answer = colours[asked]
        return {
            "text": " ".join(lines),
            "answer": answer,
            "choices": choices,
            "label": choices.index(answer),
            "gold": gold,
        }


class InContextRandom(InContext):
    """The control: the examples' colours are random, so that they tell nothing."""

    true_examples = False
