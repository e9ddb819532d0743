"""The page for the teacher: how a class did, what it got wrong, and which submissions are nearly the same."""

import io
import itertools
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from classroom.grading.assignment import Assignment
from classroom.grading.collect import GradingRecord
from classroom.grading.roster import Handed

if TYPE_CHECKING:
    from classroom.grading.report import Result

LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
RUN = 6  # words of code, or of an answer, that are compared as one
FEWEST = 30  # such runs of their own, else likeness means nothing
NEAR = 0.8  # of all runs that either has are in both
PAIRS = 30  # that are shown
SHOWN = 20_000  # characters of each side

Runs = set[tuple[str, ...]]
Said = tuple[str, list[str]]  # a sentence, and to whom


def summary(
    records: list[GradingRecord], assignment: Assignment, results: "dict[str, Result]", handed: Handed
) -> dict[str, Any]:
    """What the page shows."""
    graded = [record for record in records if record["tests"]]
    so_far = [sum(filter(None, results[record["key"]].earned.values())) for record in graded]
    open_ = sum(results[record["key"]].total is None for record in graded)
    of = sum(assignment.questions.values())
    steps = [0] * 10
    for each in so_far:
        steps[min(9, int(10 * each / of))] += 1
    questions = []
    for question, full in assignment.questions.items():
        earned = [got for record in graded if (got := results[record["key"]].earned[question]) is not None]
        if earned:
            numbers = (fmean(earned), full, fmean(earned) / full, sum(each >= full for each in earned))
            questions.append((question, *numbers, sum(each == 0 for each in earned), len(earned)))
    came = {row for record in records if (row := handed.of(record["key"]).row) is not None}
    people = range(len(handed.roster.rows)) if handed.roster else ()
    return {
        "statuses": Counter(record["status"] for record in records).most_common(),
        "odd": [record for record in records if record["status"] != "graded"],
        "bars": [(f"{n * of / 10:g} to {(n + 1) * of / 10:g}", c, c / max(1, *steps)) for n, c in enumerate(steps)],
        "middle": (fmean(so_far), median(so_far)) if so_far else None,
        "count": len(graded),
        "open": open_,
        "questions": questions,
        "mistakes": list(_mistakes(graded, assignment)),
        "late": [(r, results[r["key"]], found) for r in records if (found := handed.of(r["key"])).days or found.notes],
        "absent": [handed.roster.name(row) for row in people if handed.roster and row not in came],
        "said": handed.said,
        "pairs": alike(graded, assignment),
    }


def _mistakes(records: list[GradingRecord], assignment: Assignment) -> Iterable[tuple[str, list[Said]]]:
    """For each function the sentences that its tests said, and to whom, the commonest first."""
    for function in dict.fromkeys(test.function for test in assignment.tests.values()):
        said: dict[str, dict[str, None]] = defaultdict(dict)
        for record, test in itertools.product(records, assignment.tests.values()):
            found = record["tests"].get(test.id)
            if test.function == function and found and not found["passed"]:
                said[str(found["says"])][record["student"]] = None
        if said:
            yield function, sorted(((says, [*who]) for says, who in said.items()), key=lambda each: -len(each[1]))[:8]


def alike(records: list[GradingRecord], assignment: Assignment) -> list[dict[str, Any]]:
    """Pairs of submissions whose own code, or own words, are nearly the same, the likest first. What the release or the
    published solutions hold as well does not count."""
    given = [cell for book in (assignment.release, assignment.solutions()) for cell in book.cells]
    sources = {tuple(words(cell.source, code=cell.cell_type == "code")) for cell in given}
    known = set().union(*map(_runs, sources))
    kinds: dict[str, list[tuple[str, str, Runs]]] = {"code": [], "words": []}
    for record in records:
        code = [str(cell["source"]) for cell in record["cells"] if cell["do"] == "run"]
        for kind, texts in (("code", code), ("words", [str(text) for text in record["written"].values()])):
            split = [(text, tuple(words(text, code=kind == "code"))) for text in texts]
            own = [(text, found) for text, found in split if found and found not in sources]
            runs = set().union(*(_runs(found) for _, found in own)) - known
            if len(runs) >= FEWEST:
                kinds[kind].append((record["student"], "\n\n".join(text for text, _ in own)[:SHOWN], runs))
    pairs: list[dict[str, Any]] = []
    for kind, found in kinds.items():
        for one, other in itertools.combinations(found, 2):
            both = len(one[2] & other[2])
            share = both / (len(one[2]) + len(other[2]) - both)
            if share >= NEAR:
                pairs.append({"kind": kind, "share": share, "sides": [one[:2], other[:2]]})
    return sorted(pairs, key=lambda pair: -pair["share"])[:PAIRS]


def words(text: str, *, code: bool) -> list[str]:
    """What is compared of a text: of code its tokens without comments, blank lines and formatting."""
    if code:
        try:
            tokens = tokenize.generate_tokens(io.StringIO(text).readline)
            return [token.string for token in tokens if token.type not in LAYOUT]
        except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
            text = re.sub(r"#.*", "", text)
    return re.findall(r"\w+|[^\w\s]", text if code else text.casefold())


def _runs(found: Iterable[str]) -> Runs:
    every = tuple(found)
    return {every[place : place + RUN] for place in range(len(every) - RUN + 1)}
