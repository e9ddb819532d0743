"""docs/evidence.md: what the course's own models show, written from the records.

The sentences stand in evidence.md.j2. Its numbers come from data/results by three functions: `ours`
gives a figure with its interval, `verdict` a claim's verdict, `seeds` how many runs it rests on."""

from functools import partial
from pathlib import Path

from classroom.records import report
from classroom.records.figures import difference
from classroom.records.ledger import claim
from classroom.records.record import RESULTS, record

NOT_YET = "not measured yet"


def markdown(folder: str | Path = RESULTS) -> str:
    """The page, with the records of a folder."""
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("classroom.records", "."),
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    rows = report.overview(folder)
    return templates.get_template("evidence.md.j2").render(
        rows=[(entry, found) for entry, found in rows if found is not None],
        missing=[entry for entry, found in rows if found is None],
        tally=report.tally(rows),
        ours=partial(ours, folder=folder),
        verdict=partial(verdict, folder=folder),
        seeds=partial(seeds, folder=folder),
        has=lambda name: record(name, folder) is not None,
        planned=planned,
        cell=_cell,
    )


def ours(
    name: str,
    figure: str,
    minus: str = "",
    *,
    scale: float = 100.0,
    digits: int = 1,
    folder: str | Path = RESULTS,
) -> str:
    """A record's figure, "83.4 ± 1.2"; a claim without a record is not measured yet.

    Args:
        name: the claim.
        figure: the name of the figure.
        minus: a figure that is subtracted, seed by seed.
        scale: a factor; 100 makes shares percent.
        digits: behind the point.
        folder: of the records.
    """
    found = record(name, folder)
    if found is None:
        return NOT_YET
    shown = found.figures[figure]
    if minus:
        shown = difference(shown, found.figures[minus])
    text = f"{shown.mean * scale:.{digits}f}"
    if shown.interval is None or shown.interval[0] == shown.interval[1]:
        return text
    half = (shown.interval[1] - shown.interval[0]) / 2 * scale
    return f"{text} ± {half:.{digits}f}"


def verdict(name: str, folder: str | Path = RESULTS) -> str:
    """A claim's verdict, or that it has none yet."""
    claim(name)  # a wrong name is an error, not a missing record
    found = record(name, folder)
    return NOT_YET if found is None else found.verdict


def planned(name: str) -> str:
    """A sentence in place of figures that are not there yet."""
    claim(name)
    return f"Our own experiment, `{name}`, is planned and not run yet."


def seeds(name: str, folder: str | Path = RESULTS) -> str:
    """How many runs a record rests on: "5 trainings", "10 draws"."""
    found = record(name, folder)
    if found is None:
        return NOT_YET
    if found.kind != "measured":
        return found.kind
    drawn = all(entry.get("draws") for entry in claim(name).rule["statements"])
    return f"{len(found.seeds)} {'draws' if drawn else 'seeds'}"


def _cell(text: str) -> str:
    """A text that does not break a table."""
    return text.replace("|", "\\|").replace("\n", " ")
