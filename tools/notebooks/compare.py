"""Compare stored outputs with fresh ones: text must be equal, numbers must agree within a
tolerance.

A cell's tags say how close its numbers have to be:

- no tag: integers equal; decimals within a thousandth (or one unit in the last printed place of a
  number with at least three digits, where rounding may fall either way)
- `loose`: the numbers come from training, which another processor repeats only roughly
- `chance`: they are a difference of trained scores, or what a half-trained model answers, and
  another processor may find quite others; the words around them are compared as loosely
- `timing`: the numbers are times or memory; only the text around them is compared
- `nbval-ignore-output`: the output is live (a widget, a sampled text); nothing is compared

Pictures are compared by presence, size and text alternative: their pixels depend on fonts.
"""

from __future__ import annotations

import base64
import difflib
import json
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

from nbformat import NotebookNode

NUMBER = re.compile(
    r"(?<![\w.])[-+−]?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
)
SPACE = re.compile(r"\s+")
# `display.identity`: a digest of the content, no number
IDENTITY = re.compile(r"\b([a-z][a-z_]*)-[0-9a-f]{10}\b")
# Where column widths follow the numbers, so do padding, rules and bars.
RULES = re.compile(r"[-=─━_]{2,}|[█▁-▇▉-▏░▒▓]+")


@dataclass(frozen=True)
class Tolerance:
    """How far a number may be off: relative, absolute; `words`: the least share of text that must
    be the same.

    picture: how far a picture's width and height may be off, relative.
    """

    relative: float = 1e-3
    absolute: float = 1e-6
    words: float = 1.0
    numbers: bool = True
    picture: float = 0.1

    def close(self, stored: str, fresh: str) -> bool:
        """True where the two printed numbers agree."""
        if stored == fresh or not self.numbers:
            return True
        a, b = _value(stored), _value(fresh)
        if self == STRICT and not set(stored + fresh) & set(".eE"):
            return a == b
        allowed = max(self.absolute, self.relative * max(abs(a), abs(b)))
        places = min(_places(stored), _places(fresh))
        if places > 0 and 10.0**-places <= 0.01 * abs(a):
            allowed = max(allowed, 1.01 * 10.0**-places)
        return abs(a - b) <= allowed


STRICT = Tolerance()
LOOSE = Tolerance(relative=0.3, absolute=0.05, words=0.6, picture=0.5)
CHANCE = Tolerance(numbers=False, words=0.6, picture=0.5)
TIMING = Tolerance(numbers=False)


def tolerance(tags: Iterable[str]) -> Tolerance:
    """The tolerance that a cell's tags ask for; the most generous wins."""
    tags = set(tags)
    return (
        TIMING
        if "timing" in tags
        else CHANCE
        if "chance" in tags
        else LOOSE
        if "loose" in tags
        else STRICT
    )


def cells(stored: NotebookNode, fresh: list[NotebookNode]) -> list[str]:
    """What differs between a stored code cell's outputs and fresh ones, both scrubbed."""
    tags = stored.metadata.get("tags", [])
    if "nbval-ignore-output" in tags:
        return []
    allowed = tolerance(tags)
    old, new = [_kind(o) for o in stored.outputs], [_kind(o) for o in fresh]
    if old != new:
        return [f"the stored outputs are {old}, the fresh ones {new}"]
    problems = []
    for one, other in zip(stored.outputs, fresh, strict=True):
        if one.output_type == "stream":
            problems += text(one.text, other.text, allowed)
        elif one.output_type == "error":
            problems += text(
                f"{one.ename}: {one.evalue}", f"{other.ename}: {other.evalue}", allowed
            )
        else:
            for mime in one.data:
                problems += _data(mime, one, other, allowed)
    return problems


def text(stored: str, fresh: str, allowed: Tolerance = STRICT) -> list[str]:
    """What differs between two texts: their words, then number by number."""
    old_words, old_numbers = _split(stored)
    new_words, new_numbers = _split(fresh)
    if allowed != STRICT:
        old_words, new_words = (
            SPACE.sub(" ", RULES.sub(" ", w)).strip() for w in (old_words, new_words)
        )
    if old_words != new_words:
        same = difflib.SequenceMatcher(
            None, old_words.split(), new_words.split(), autojunk=False
        ).ratio()
        if allowed.words == 1 or same < allowed.words:
            return ["the text differs:\n" + _diff(stored, fresh)]
    if len(old_numbers) != len(new_numbers):
        return ["a number is missing or new:\n" + _diff(stored, fresh)]
    off = [(a, b) for a, b in zip(old_numbers, new_numbers, strict=True) if not allowed.close(a, b)]
    return [f"{a} is stored, {b} is fresh" for a, b in off[:5]]


def _split(raw: str) -> tuple[str, list[str]]:
    """The text with each number and the space before it replaced by one sign, and the numbers."""
    numbers = NUMBER.findall(raw)
    return re.sub(r"[ \t]*\x00", "\x00", NUMBER.sub("\x00", raw)).rstrip(), numbers


def _value(number: str) -> float:
    return float(number.replace(",", "").replace("−", "-"))


def _places(number: str) -> int:
    """Decimal places down to the last printed digit: 2 for 0.33, 5 for 1.2e-4, -3 for 12e3."""
    mantissa, _, exponent = number.lower().partition("e")
    return len(mantissa.partition(".")[2]) - int(exponent or 0)


def _kind(output: NotebookNode) -> str:
    """An output's form: the stream's name, or the sorted types that it can be shown as."""
    if output.output_type in ("stream", "error"):
        return str(output.get("name", output.output_type))
    return "+".join(sorted(output.data))


def _data(mime: str, stored: NotebookNode, fresh: NotebookNode, allowed: Tolerance) -> list[str]:
    old, new = stored.data[mime], fresh.data[mime]
    if mime == "image/png":
        alt, now = (o.metadata.get(mime, {}).get("alt") for o in (stored, fresh))
        problems = text(alt or "", now or "", allowed)
        (w, h), (w2, h2) = size(old), size(new)
        if max(abs(w - w2) / w, abs(h - h2) / h) > allowed.picture:
            problems.append(f"the picture was {w} by {h} pixels and is {w2} by {h2}")
        return problems
    if mime == "text/html":
        return text(_outline(IDENTITY.sub(r"\1", old)), _outline(IDENTITY.sub(r"\1", new)), allowed)
    if isinstance(old, str):
        return text(old, new, allowed)
    return text(json.dumps(old, sort_keys=True), json.dumps(new, sort_keys=True), allowed)


def size(png: str) -> tuple[int, int]:
    """Width and height in pixels of a base64 PNG, as its header says."""
    header = base64.b64decode(png[:64])
    width, height = struct.unpack(">II", header[16:24])
    return int(width), int(height)


def _outline(html: str) -> str:
    """HTML as one tag or text a line, without the attributes that only place or colour things."""
    outline = _Outline()
    outline.feed(html)
    return "\n".join(outline.lines)


class _Outline(HTMLParser):
    LOOKS = frozenset(
        ("style", "fill", "stroke", "d", "points", "transform", "x", "y", "x1", "x2", "y1", "y2")
    )

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kept = [f"{key}={value}" for key, value in sorted(attrs, key=str) if key not in self.LOOKS]
        self.lines.append(" ".join([f"<{tag}", *kept]) + ">")

    def handle_endtag(self, tag: str) -> None:
        self.lines.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.lines.append(data.strip())


def _diff(stored: str, fresh: str) -> str:
    lines: Any = difflib.unified_diff(
        stored.splitlines(), fresh.splitlines(), "stored", "fresh", "", "", 0, ""
    )
    return "\n".join(list(lines)[:20])
