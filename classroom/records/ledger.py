"""The claims of the lessons: statements of papers and lectures that the course puts to the test.

They stand in the lessons' folders, `classroom/lessons/<name>/claims.yaml`, one entry a claim:

    id      its name: the file of its record in data/results, and where a lesson shows it the anchor
            of its section
    kind    exact: mathematics or a count, true to the last digit
            computed: a formula evaluated at full size (parameters, FLOPs, cost), without training
            measured: an experiment with small models over several seeds; what must agree is the
            direction that `shows` names, never a paper's own figure
    says    what the paper says
    shows   what the course measures or computes to find out
    paper   the paper's figures, where there are any; they stand beside ours
    note    anything else one should know about these figures
    rule    when the verdict is which (`classroom.records.rules`), written before the first run
    real    what real English says of it (data/results/real_*.json), by the same forms as the rule;
            it moves no verdict
    tried   what was tried to find out why a claim does not show
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

ClaimKind = Literal["exact", "computed", "measured"]
KINDS: tuple[str, ...] = get_args(ClaimKind)
NEEDED = ("id", "kind", "says", "shows", "rule")
ALLOWED = (*NEEDED, "paper", "note", "tried", "real")


@dataclass(frozen=True)
class Claim:
    """One entry of a claims.yaml; see above for its fields. lesson: "09_bert", by its folder."""

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
def read() -> dict[str, Claim]:
    """The claims of all lessons by their id, in the order of the course."""
    claims: dict[str, Claim] = {}
    for lesson in course.names():
        path = course.folder(lesson) / "claims.yaml"
        for found in read_file(path, lesson) if path.exists() else ():
            if found.id in claims:
                raise CourseError(
                    f"The claim {found.id!r} stands in {claims[found.id].lesson} and in {lesson};"
                    " every claim needs an id of its own."
                )
            claims[found.id] = found
    return claims


def read_file(path: Path, lesson: str) -> list[Claim]:
    """The claims of one file, in its order."""
    import yaml

    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CourseError(
            f"The claims {path} cannot be read ({error.strerror}); restore them."
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise CourseError(
            f"{path.name}{line} is not YAML: {getattr(error, 'problem', error)}."
        ) from error
    if not isinstance(entries, list) or not entries:
        raise CourseError(f"{path.name} must be a list of claims, each beginning with '- id:'.")
    claims: list[Claim] = []
    for number, entry in enumerate(entries, start=1):
        found = _claim(f"{lesson}, {path.name}", number, entry, lesson)
        if any(found.id == other.id for other in claims):
            raise CourseError(
                f"{path.name}: the id {found.id!r} stands twice; every claim needs its own."
            )
        claims.append(found)
    return claims


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


def _claim(file: str, number: int, entry: Any, lesson: str) -> Claim:
    if not isinstance(entry, dict):
        raise CourseError(
            f"{file}: entry {number} is {entry!r}; it must have the keys {', '.join(NEEDED)}."
        )
    name = f"{file}: entry {number} ({entry.get('id', 'without an id')})"
    missing = [key for key in NEEDED if key not in entry]
    if missing:
        raise CourseError(f"{name} lacks the key {missing[0]!r}.")
    unknown = [key for key in entry if key not in ALLOWED]
    if unknown:
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
    rules.check(entry["rule"], name)
    rules.check({"statements": entry["real"]} if "real" in entry else entry["rule"], name)
    return Claim(
        lesson=lesson, **entry | {key: tuple(entry.get(key, ())) for key in ("tried", "real")}
    )
