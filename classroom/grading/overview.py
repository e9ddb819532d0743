"""The page for the teacher: how a class did, what it got wrong, and which submissions are nearly
the same.
"""

import io
import itertools
import re
import tokenize
from collections import defaultdict
from typing import Any

from classroom.grading.assignment import Assignment
from classroom.grading.collect import GradingRecord
from classroom.grading.roster import Handed

Records = list[GradingRecord]
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
# words that are compared as one; such runs of one's own, else likeness means nothing
RUN, FEWEST = 6, 30
# of all runs that either has, in both; what is shown, and how much of each
NEAR, PAIRS, SHOWN = 0.8, 30, 20_000
COMPARED = 500_000  # characters of one submission: 20 MB of signs would take minutes and gigabytes


def summary(
    records: Records, assignment: Assignment, results: dict[str, Any], handed: Handed
) -> dict[str, Any]:
    """What the page shows. results: of each key, see `report.write`."""
    graded = [record for record in records if record["tests"]]
    mine = [results[record["key"]] for record in graded]
    full = sum(assignment.questions.values())
    shown = {"records": records, "results": results, "mine": mine, "handed": handed}
    sums = sorted(sum(filter(None, result.earned.values())) for result in mine)
    counts = [sum(min(9, int(10 * each / full)) == tenth for each in sums) for tenth in range(10)]
    found = {"mistakes": mistakes(graded, assignment), "pairs": alike(graded, assignment)}
    return (
        shown
        | found
        | {"sums": sums, "counts": counts, "of": full, "questions": assignment.questions}
    )


def mistakes(records: Records, assignment: Assignment) -> dict[str, list[tuple[str, list[str]]]]:
    """For each function the sentences that its tests said, and to whom; the commonest first."""
    said: dict[str, dict[str, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    for test, record in itertools.product(assignment.tests.values(), records):
        if (found := record["tests"].get(test.id)) and not found["passed"]:
            said[test.function][str(found["says"])][record["student"]] = None
    every = {name: [(says, [*who]) for says, who in of.items()] for name, of in said.items()}
    return {name: sorted(of, key=lambda each: -len(each[1]))[:8] for name, of in every.items()}


def alike(
    records: Records, assignment: Assignment
) -> list[tuple[float, str, list[tuple[str, str]]]]:
    """Pairs of submissions whose own code, or own words, are nearly the same (share, "code" or
    "words", student and text of both), the likest first. What the release or the published
    solutions hold as well does not count."""
    cells = [*assignment.release.cells, *assignment.solutions().cells]
    given = {words(cell.source, code=cell.cell_type == "code") for cell in cells}
    known = set().union(*map(_runs, given))
    pairs = []
    for kind in ("code", "words"):
        own = []
        for record in records:
            code = [str(cell["source"]) for cell in record["cells"] if cell["do"] == "run"]
            texts = code if kind == "code" else [str(text) for text in record["written"].values()]
            ends = itertools.accumulate(map(len, texts))
            texts = [text for text in texts if next(ends) <= COMPARED]
            found = {
                text: split
                for text in texts
                if (split := words(text, code=kind == "code")) not in given
            }
            runs = set().union(*map(_runs, found.values())) - known
            own += [(runs, (record["student"], "\n\n".join(found)[:SHOWN]))] * (len(runs) >= FEWEST)
        for (one, left), (other, right) in itertools.combinations(own, 2):
            if (share := len(one & other) / len(one | other)) >= NEAR:
                pairs.append((share, kind, [left, right]))
    return sorted(pairs, key=lambda pair: -pair[0])[:PAIRS]


def words(text: str, *, code: bool) -> tuple[str, ...]:
    """What is compared of a text: of code its tokens without comments, blank lines and
    formatting.
    """
    try:
        found = tokenize.generate_tokens(io.StringIO(text if code else "").readline)
        tokens = tuple(token.string for token in found if token.type not in LAYOUT)
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
        tokens = ()
    return tokens or tuple(re.findall(r"\w+|[^\w\s]", text.casefold()))


def _runs(found: tuple[str, ...]) -> set[tuple[str, ...]]:
    return {found[place : place + RUN] for place in range(len(found) - RUN + 1)}
