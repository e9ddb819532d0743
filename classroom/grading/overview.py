"""The page for the teacher: how a class did, what it got wrong, and which submissions are nearly
the same.
"""

import io
import itertools
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from classroom.grading.assignment import Assignment
from classroom.grading.collect import GradingRecord
from classroom.grading.hand_ins import HandIns
from classroom.grading.points import Result

Records = list[GradingRecord]
Words = tuple[str, ...]

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
RUN = 6  # words that are compared as one
FEWEST = 30  # such runs of one's own; with fewer, likeness means nothing
NEAR = 0.8  # of all runs that either has, the share in both
PAIRS = 30  # that are shown
SHOWN = 20_000  # characters of each that are shown
COMPARED = 500_000  # characters of one submission: 20 MB of signs would take minutes and gigabytes
COMMONEST = 8  # mistakes of a function that are shown


def summary(
    records: Records, assignment: Assignment, results: dict[str, Result], hand_ins: HandIns
) -> dict[str, Any]:
    """What the page shows.

    Args:
        records: of all submissions.
        assignment: which they answer.
        results: points, by a record's key.
        hand_ins: who handed in what, and when.
    """
    graded = [record for record in records if record["tests"]]
    graded_results = [results[record["key"]] for record in graded]
    full = sum(assignment.questions.values())
    sums = sorted(
        sum(points or 0 for points in result.earned.values()) for result in graded_results
    )
    return {
        "records": records,
        "results": results,
        "graded": graded_results,
        "hand_ins": hand_ins,
        "mistakes": mistakes(graded, assignment),
        "pairs": alike(graded, assignment),
        "sums": sums,
        "counts": _tenths(sums, full),
        "of": full,
        "questions": assignment.questions,
    }


def _tenths(sums: list[float], full: float) -> list[int]:
    """How many students lie in each tenth of the points; the last holds full points, too."""
    counts = [0] * 10
    for points in sums:
        counts[min(9, int(10 * points / full))] += 1
    return counts


def mistakes(records: Records, assignment: Assignment) -> dict[str, list[tuple[str, list[str]]]]:
    """For each function the mistakes that its tests found, and whose; the commonest first.

    They are the course's own sentences: what students' code raised or returned stands on their
    own pages.
    """
    # function -> sentence -> students, in order and each once
    students: dict[str, dict[str, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    for test, record in itertools.product(assignment.tests.values(), records):
        found = record["tests"].get(test.id)
        if found and not found["passed"]:
            students[test.function][str(found["mistake"])][record["student"]] = None
    commonest = {}
    for function, sentences in students.items():
        rows = [(sentence, list(names)) for sentence, names in sentences.items()]
        rows.sort(key=lambda row: -len(row[1]))
        commonest[function] = rows[:COMMONEST]
    return commonest


def alike(
    records: Records, assignment: Assignment
) -> list[tuple[float, str, list[tuple[str, str]]]]:
    """Pairs of submissions whose own code, or own words, are nearly the same, the likest first.

    What the release or the published solutions hold as well does not count.

    Returns:
        The share in common, "code" or "words", and student and text of both, for each pair.
    """
    given: set[Words] = set()
    for cell in [*assignment.release.cells, *assignment.solutions().cells]:
        given.add(words(cell.source, code=cell.cell_type == "code"))
    known = _all_runs(given)
    pairs = []
    for kind in ("code", "words"):
        own = []
        for record in records:
            texts = _code(record) if kind == "code" else _answers(record)
            split = _own_words(texts, given, code=kind == "code")
            runs = _all_runs(split.values()) - known
            if len(runs) >= FEWEST:
                own.append((runs, (record["student"], "\n\n".join(split)[:SHOWN])))
        for (one, left), (other, right) in itertools.combinations(own, 2):
            share = len(one & other) / len(one | other)
            if share >= NEAR:
                pairs.append((share, kind, [left, right]))
    return sorted(pairs, key=lambda pair: -pair[0])[:PAIRS]


def _code(record: GradingRecord) -> list[str]:
    return [str(cell["source"]) for cell in record["cells"] if cell["do"] in ("run", "file")]


def _answers(record: GradingRecord) -> list[str]:
    return [str(text) for text in record["written"].values()]


def _own_words(texts: list[str], given: set[Words], *, code: bool) -> dict[str, Words]:
    """The texts that were not given out, each with its words, as many as are compared.

    The longest are left out first, so that one of them cannot hide the others.
    """
    compared: set[str] = set()
    length = 0
    for text in sorted(texts, key=len):
        length += len(text)
        if length > COMPARED:
            break
        compared.add(text)
    own: dict[str, Words] = {}
    for text in texts:
        if text not in compared:
            continue
        split = words(text, code=code)
        if split not in given:
            own[text] = split
    return own


def words(text: str, *, code: bool) -> Words:
    """What is compared of a text: of code its tokens without comments, blank lines and
    formatting.
    """
    tokens: Words = ()
    if code:
        try:
            found = tokenize.generate_tokens(io.StringIO(text).readline)
            tokens = tuple(token.string for token in found if token.type not in LAYOUT)
        except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
            pass  # no Python: compared as words
    return tokens or tuple(re.findall(r"\w+|[^\w\s]", text.casefold()))


def _all_runs(texts: Iterable[Words]) -> set[Words]:
    """All stretches of `RUN` words in the texts."""
    runs: set[Words] = set()
    for text in texts:
        runs |= {text[start : start + RUN] for start in range(len(text) - RUN + 1)}
    return runs
