"""Records told: one sentence, a table beside the paper's, a report of all (report.md.j2,
report.html.j2).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any

from classroom.intervals import percent
from classroom.records import public, rules
from classroom.records.figures import VERDICTS, difference, figure
from classroom.records.ledger import Claim, claim, read
from classroom.records.record import RESULTS, Record, record
from course_lib.errors import CourseError
from course_lib.files import atomic_write

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from rich.table import Table

    from classroom.figures.display import Html

NOT_YET = "not recorded yet"
COLOURS = dict(zip(VERDICTS, ("green", "yellow", "white", "red", "blue"), strict=True))


def summary(name: str, folder: str | Path = RESULTS) -> str:
    """A claim's verdict, what it rests on, and a line for each of its statements."""
    found = record(name, folder)
    if found is None:
        return f"{name}: {NOT_YET}; `python -m course_lib claims run {name}` makes the record."
    return "\n".join(
        [f"{name}: {found.verdict} ({basis(found)})", *(f"  {line}" for line in lines(found))]
    )


def lines(found: Record) -> list[str]:
    """A line for each of a record's statements; and for each that real English speaks of, which
    moves no verdict.
    """
    said = {"holds": "supports", "opposite": "contradicts"}
    real = [
        f"real English, {said.get(each.outcome, 'leaves open')}: {each.says}"
        f" ({', '.join(each.values)})"
        for each in on_english(found.id).statements
    ]
    return found.why.splitlines() + real


def on_english(name: str) -> rules.Judgement:
    """A claim's statements on real English, judged as a rule's are."""
    return rules.judge({"statements": claim(name).real}, public.figures())


def live(name: str, values: Mapping[str, float | Sequence[float]]) -> str:
    """What a lesson's own run says of a claim under the record's rule: which statements its figures
    point to.

    values: by the names of the record's figures, one or some of several seeds; a statement whose
    figures are missing is not tested."""
    seeds = {
        key: [value] if isinstance(value, float | int) else list(value)
        for key, value in values.items()
    }
    found = rules.judge(
        claim(name).rule, {key: figure(some, exact=len(some) == 1) for key, some in seeds.items()}
    )
    tested = [each for each in found.statements if each.outcome != "not tested"]
    lines = [
        f"  {'yes' if each.agrees else 'no':3} {each.says} ({', '.join(each.values)})"
        for each in tested
    ]
    count = f"{sum(each.agrees for each in tested)} of {len(tested)}"
    said = f"{name}, this run: {count} statements point the lecture's way; one run decides nothing."
    return "\n".join([said, *lines])


def basis(found: Record) -> str:
    """What a verdict rests on."""
    if found.kind != "measured":
        return found.kind
    statements = claim(found.id).rule["statements"]
    drawn = [str(number) for number, entry in enumerate(statements, start=1) if entry.get("draws")]
    if len(drawn) == len(statements):
        return f"{len(found.seeds)} draws, not trainings, mean and 95% interval"
    text = f"{len(found.seeds)} seeds, mean and 95% interval"
    if drawn:
        text += f"; draws, not trainings, in statement {', '.join(drawn)}"
    return text


def beside(
    name: str,
    rows: Mapping[str, str],
    *,
    scale: float = 1.0,
    digits: int = 2,
    folder: str | Path = RESULTS,
) -> "Html":
    """A lesson's table: chosen figures of a record; the summary's sentence if there is none.

    rows: what a row is called -> the record's figure. scale: a factor; 100 makes shares percent.
    """
    from classroom.figures.display import Html
    from classroom.figures.tables import table as drawn
    from classroom.templates import escape

    found = record(name, folder)
    if found is None:
        return Html(f"<p>{escape(summary(name, folder))}</p>", summary(name, folder))
    shown = {label: _as_shown(found, key, scale=scale) for label, key in rows.items()}
    return drawn([{name: label, "recorded": ours} for label, ours in shown.items()], digits=digits)


def recorded(
    name: str, key: str, minus: str = "", *, scale: float = 1.0, folder: str | Path = RESULTS
) -> float | tuple[float, float, float] | None:
    """A record's figure as a table shows it: (mean, low, high) of its 95% interval, one number
    where there is no interval, None where there is no record. minus: a figure to subtract, seed by
    seed. scale: a factor."""
    found = record(name, folder)
    return None if found is None else _as_shown(found, key, minus, scale)


def share(found: float, n: int) -> tuple[float, float, float]:
    """`percent` of a share of n that is known already, from 0 to 1.

    >>> share(0.19, 100) == percent([True] * 19 + [False] * 81)
    True
    """
    return percent([number < round(found * n) for number in range(n)])


def mean(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean of values and the ends of its 95% interval (Student's t).

    >>> mean([1.0, 2.0, 3.0])
    (2.0, -0.48..., 4.48...)
    """
    found = figure(values)
    return found.mean, *found.ends


def resampled(right: "ArrayLike", times: int = 2000) -> tuple[float, float, float]:
    """The mean of a table of right answers in percent, with the 95% interval that other samples of
    training texts and other test texts would give.

    Both are drawn anew with replacement (the pigeonhole bootstrap of Owen 2007). For a paired
    comparison the table holds differences: 1 where only the one is right, -1 where only the other.

    Args:
        right: [samples, tests].
        times: how often.

    Returns:
        (mean, low, high).
    """
    import numpy as np

    values = np.asarray(right, dtype=float)
    samples, tests = values.shape
    rng = np.random.default_rng(0)
    row_shares = rng.multinomial(samples, np.full(samples, 1 / samples), times) / samples
    column_shares = rng.multinomial(tests, np.full(tests, 1 / tests), times) / tests
    means = ((row_shares @ values) * column_shares).sum(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return 100 * float(values.mean()), 100 * float(low), 100 * float(high)


def by_seed(
    name: str,
    rows: Mapping[str, Sequence[str]],
    *,
    scale: float = 1.0,
    folder: str | Path = RESULTS,
) -> dict[str, list[float]]:
    """For bars with intervals: of each row the values of all seeds, averaged over its figures.

    Args:
        name: of the claim.
        rows: what a row is called -> the record's figures.
        scale: a factor; 100 makes shares percent.
        folder: of the records.

    Raises:
        CourseError: there is no record, or it has no such figure.
    """
    found = record(name, folder)
    if found is None:
        raise CourseError(summary(name, folder))
    values = {}
    for label, keys in rows.items():
        absent = [key for key in keys if key not in found.figures]
        if absent:
            raise CourseError(f"The record of {name} has no figure {absent[0]!r}.")
        seeds = zip(*(found.figures[key].seeds for key in keys), strict=True)
        values[label] = [scale * sum(of_seed) / len(keys) for of_seed in seeds]
    return values


def curve(
    name: str, points: Mapping[float, str], *, folder: str | Path = RESULTS
) -> tuple[tuple[list[float], list[float]], tuple[list[float], list[float]]]:
    """For a line with its interval: the means of some figures, and the ends of their 95% intervals.

    Args:
        name: of the claim.
        points: x -> the record's figure.
        folder: of the records.

    Returns:
        ((x, means), (lower ends, upper ends)), a line and a band of `figures.curves`.

    Raises:
        CourseError: there is no record, or it has no such figure.
    """
    found = record(name, folder)
    if found is None:
        raise CourseError(summary(name, folder))
    absent = [key for key in points.values() if key not in found.figures]
    if absent:
        raise CourseError(f"The record of {name} has no figure {absent[0]!r}.")
    chosen = [found.figures[key] for key in points.values()]
    ends = [figure.ends for figure in chosen]
    line = (list(points), [figure.mean for figure in chosen])
    return line, ([low for low, _ in ends], [high for _, high in ends])


def _as_shown(
    found: Record, key: str, minus: str = "", scale: float = 1.0
) -> float | tuple[float, float, float]:
    absent = [each for each in (key, minus) if each and each not in found.figures]
    if absent:
        raise CourseError(
            f"The record of {found.id} has no figure {absent[0]!r}; it has"
            f" {', '.join(found.figures)}."
        )
    figure = difference(found.figures[key], found.figures[minus]) if minus else found.figures[key]
    low, high = figure.ends
    if isclose(low, high):
        return figure.mean * scale
    return figure.mean * scale, low * scale, high * scale


def flat(paper: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """The lecture's figures, in whatever shape the ledger has them, as (name, value) pairs.

    >>> flat({"BERT": {"MNLI": 84.6, "span": [1, 2]}})
    [('BERT/MNLI', 84.6), ('BERT/span/1', 1), ('BERT/span/2', 2)]
    """
    if paper is None:
        return []
    if isinstance(paper, Mapping):
        pairs = [(str(key), value) for key, value in paper.items()]
    elif isinstance(paper, list):
        pairs = [(str(number), value) for number, value in enumerate(paper, start=1)]
    else:
        return [(prefix, paper)]
    return [
        item for key, value in pairs for item in flat(value, f"{prefix}/{key}" if prefix else key)
    ]


def overview(folder: str | Path = RESULTS) -> list[tuple[Claim, Record | None]]:
    """Every claim of the ledger with its record."""
    if not Path(folder).is_dir():
        raise CourseError(f"There is no folder {folder} of records.")
    return [(found, record(name, folder)) for name, found in read().items()]


def tally(rows: list[tuple[Claim, Record | None]]) -> str:
    """How many of which verdict.

    >>> tally([])
    '0 of 0 claims recorded'
    """
    counts: Counter[str] = Counter(found.verdict for _, found in rows if found)
    text = f"{sum(counts.values())} of {len(rows)} claims recorded"
    verdicts = [f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]]
    return f"{text}: {', '.join(verdicts)}" if verdicts else text


def rich_table(rows: list[tuple[Claim, Record | None]], *, why: bool = True) -> "Table":
    """For the terminal."""
    from rich.table import Table

    shown = Table("lesson", "claim", "kind", "verdict", "why" if why else "seeds")
    for entry, found in rows:
        verdict = "–" if found is None else f"[{COLOURS[found.verdict]}]{found.verdict}[/]"
        last = ""
        if found is not None:
            last = found.why if why else str(len(found.seeds))
        shown.add_row(entry.lesson[:2], entry.id, entry.kind, verdict, last)
    return shown


def save(path: str | Path, folder: str | Path = RESULTS) -> Path:
    """Write all records with rules, figures and what was tried, as HTML or Markdown."""
    import jinja2

    path = Path(path)
    rows = overview(folder)
    kind = {".md": "md", ".html": "html", ".htm": "html"}.get(path.suffix)
    if kind is None:
        raise CourseError(f"A report is an .md or an .html file, not {path.name}.")
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("classroom.records", "."),
        autoescape=kind == "html",
        keep_trailing_newline=True,
    )
    text = templates.get_template(f"report.{kind}.j2").render(
        rows=rows, tally=tally(rows), basis=basis, flat=flat, lines=lines
    )
    with atomic_write(path) as file:
        file.write(text)
    return path
