"""The ledger, data/claims.yaml: every statement of the lectures that the course puts to the
test.
"""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from classroom import course
from classroom.records import rules
from course_lib.errors import CourseError
from course_lib.files import DATA

LEDGER = DATA / "claims.yaml"

ClaimKind = Literal["exact", "computed", "measured"]
KINDS: tuple[str, ...] = get_args(ClaimKind)
NEEDED = ("id", "lesson", "kind", "says", "shows", "rule")
ALLOWED = (*NEEDED, "paper", "note", "tried", "real")


@dataclass(frozen=True)
class Claim:
    """One row of the ledger.

    id: its name. lesson: where it is tested live. kind: "exact", "computed" or "measured". says:
    the lecture's words. shows: what the course measures. paper: the lecture's figures, in whatever
    shape they have; None without any. rule: when the verdict is which (`classroom.records.rules`),
    written before the first run. tried: what was tried to
        find out why it does not show. real: statements on data/results/real_*.json, which are no
        part of the rule.
    """

    id: str
    lesson: str
    kind: ClaimKind
    says: str
    shows: str
    rule: dict[str, Any]
    paper: Any = None
    note: str = ""
    tried: tuple[str, ...] = ()
    real: tuple[dict[str, Any], ...] = ()


@cache
def read(path: Path = LEDGER) -> dict[str, Claim]:
    """The claims of a ledger by their id, in its order."""
    import yaml

    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CourseError(
            f"The ledger {path} cannot be read ({error.strerror}); restore it."
        ) from error
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where else ""
        raise CourseError(
            f"{path.name}{line} is not YAML: {getattr(error, 'problem', error)}."
        ) from error
    if not isinstance(entries, list) or not entries:
        raise CourseError(f"{path.name} must be a list of claims, each beginning with '- id:'.")
    claims: dict[str, Claim] = {}
    for number, entry in enumerate(entries, start=1):
        found = _claim(path.name, number, entry)
        if found.id in claims:
            raise CourseError(
                f"{path.name}: the id {found.id!r} stands twice; every claim needs its own."
            )
        claims[found.id] = found
    return claims


def published(lesson: str) -> dict[str, Any]:
    """The papers' figures of a lesson, by claim."""
    return course.papers(lesson)


def claim(name: str) -> Claim:
    """The claim of this id."""
    claims = read()
    if name not in claims:
        like = get_close_matches(name, claims, n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(like)}?" if like else "`claims list` shows all."
        raise CourseError(f"There is no claim {name!r}; {hint}")
    return claims[name]


def of_lesson(name: str) -> list[Claim]:
    """The claims of a lesson, by its name or number ("09_bert", "09")."""
    lesson = course.find(name)
    return [found for found in read().values() if found.lesson == lesson]


def _claim(file: str, number: int, entry: Any) -> Claim:
    if not isinstance(entry, dict):
        raise CourseError(
            f"{file}: entry {number} is {entry!r}; it must have the keys {', '.join(NEEDED)}."
        )
    name = f"{file}: entry {number} ({entry.get('id', 'without an id')})"
    if missing := [key for key in NEEDED if key not in entry]:
        raise CourseError(f"{name} lacks the key {missing[0]!r}.")
    if unknown := [key for key in entry if key not in ALLOWED]:
        raise CourseError(
            f"{name} has the unknown key {unknown[0]!r}; there are {', '.join(ALLOWED)}."
        )
    for key in (*NEEDED[:-1], "note"):
        if not isinstance(entry.get(key, ""), str) or entry.get(key) == "":
            raise CourseError(f"{name}: {key} is {entry[key]!r}; it must be a text.")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", entry["id"]):
        raise CourseError(f"{name}: an id has small letters and digits, joined by single hyphens.")
    if entry["kind"] not in KINDS:
        raise CourseError(
            f"{name}: kind is {entry['kind']!r}; it must be one of {', '.join(KINDS)}."
        )
    if entry["lesson"] not in course.names():
        raise CourseError(f"{name}: there is no lesson {entry['lesson']!r}.")
    rules.check(entry["rule"], name)
    rules.check({"statements": entry["real"]} if "real" in entry else entry["rule"], name)
    return Claim(**entry | {key: tuple(entry.get(key, ())) for key in ("tried", "real")})
