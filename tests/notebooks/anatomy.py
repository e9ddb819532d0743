"""What every lesson must have, as rules that can be tested: frame, exercises, pictures."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from itertools import zip_longest

from nbformat import NotebookNode

from tools.notebooks import compare, page
from tools.notebooks.run import declared
from tools.notebooks.scrub import text

PARAMETERS = {"SCALE": "lesson", "SEED": 0, "DEVICE": "auto", "OUT": ""}
CHOSEN = ("DATA", "MODEL")  # each lesson has its own
OBJECTIVES = ("You will be able to", "You need first", "Time to read", "Time to run")
LARGEST = 3_000_000  # bytes of one stored notebook
LABEL = re.compile(
    r"^`difficulty (?=[●○]{3} )●+○* · importance (?=[●○]{3} )●+○* · about \d+ minutes`$", re.M
)
TAGS = {
    "parameters",
    "exercise",
    "loose",
    "chance",
    "timing",
    "nbval-ignore-output",
    "raises-exception",
}

Rule = Callable[[NotebookNode], Iterator[str]]


def problems(notebook: NotebookNode, rules: tuple[Rule, ...] | None = None) -> list[str]:
    """Everything that is wrong with a lesson, or with a deck by its own rules, one line each; empty
    for a good one.
    """
    return [line for rule in rules or RULES for line in rule(notebook)]


def _code(notebook: NotebookNode) -> list[tuple[int, NotebookNode]]:
    return [(i, cell) for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]


def _markdown(notebook: NotebookNode) -> str:
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def frame(notebook: NotebookNode) -> Iterator[str]:
    """First a title, the table of objectives and the parameters; last what to remember and where to
    read on.
    """
    for wanted in ("What to remember", "Read on"):
        if not re.search(rf"^##+ .*{wanted}", _markdown(notebook), re.MULTILINE | re.IGNORECASE):
            yield f"there is no heading {wanted!r}"
    first = notebook.cells[0]
    if first.cell_type != "markdown" or not first.source.startswith("# "):
        yield "the first cell is not a title (# ...)"
    for row in OBJECTIVES:
        if not re.search(rf"^\|\s*\**{row}", first.source, re.MULTILINE):
            yield f"the objectives' table in the first cell has no row {row!r}"
    code = _code(notebook)
    if not code or "parameters" not in code[0][1].metadata.get("tags", []):
        yield "the first code cell is not tagged `parameters`"
        return
    given = declared(notebook)
    fixed = {name: value for name, value in given.items() if name not in CHOSEN}
    if fixed != PARAMETERS or "DATA" not in given:
        yield (
            f"the parameters are {given}, not {PARAMETERS} with DATA, and with MODEL where one can"
            " be chosen"
        )


def executed(notebook: NotebookNode, tags: Collection[str] = TAGS) -> Iterator[str]:
    """Every code cell was run once, in order, without an error or a warning; its tags are known."""
    for expected, (i, cell) in enumerate(_code(notebook), start=1):
        if cell.execution_count is None:
            yield f"cell {i} was never executed"
        elif cell.execution_count != expected:
            yield (
                f"cell {i} was executed out of order ({cell.execution_count} instead of {expected})"
            )
        for output in cell.outputs:
            if output.output_type == "error":
                yield f"cell {i} holds an error: {output.ename}"
            elif output.get("name") == "stderr":
                yield f"cell {i} holds a warning: {output.text.strip().splitlines()[-1]}"
        if cell.source.rstrip().endswith(";"):
            yield (
                f"cell {i} ends in a semicolon, which hides its value in Jupyter and not in nbval;"
                " give it a name"
            )
    for i, cell in enumerate(notebook.cells):
        if unknown := set(cell.metadata.get("tags", [])).difference(tags):
            yield f"cell {i} has unknown tags {sorted(unknown)}"


def pictures(notebook: NotebookNode) -> Iterator[str]:
    """Every picture has a text alternative of some length, and a caption under it."""
    for i, cell in _code(notebook):
        for output, below in zip_longest(cell.outputs, cell.outputs[1:], fillvalue={}):
            data, after = output.get("data", {}), below.get("data", {})
            if "image/png" in data:
                alt = output.metadata.get("image/png", {}).get("alt", "")
                if len(alt) < 20:
                    yield f"cell {i}: a figure's text alternative is {alt!r}"
                if (
                    len(after.get("text/plain", "")) < 20
                    or "text/html" not in after
                    or "image/png" in after
                ):
                    yield f"cell {i}: a figure has no caption under it"
                if min(compare.size(data["image/png"])) < 50:
                    yield f"cell {i}: a figure is smaller than 50 pixels"
            for kind, tag in re.findall(r"<(img|svg)\b([^>]*)>", data.get("text/html", "")):
                if not re.search(r"""\b(alt|aria-label|aria-hidden|aria-labelledby)=""", tag):
                    yield f"cell {i}: an <{kind}> has no text alternative"
    for alt, address in re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", _markdown(notebook)):
        if len(alt) < 20:
            yield f"the picture {address} has the text alternative {alt!r}"


def exercises(notebook: NotebookNode) -> Iterator[str]:
    """Each has its difficulty and minutes, a stub, a check, hints and the answer folded away."""
    cells = notebook.cells
    headings = [
        i
        for i, c in enumerate(cells)
        if c.cell_type == "markdown" and re.search(r"^#+ ", c.source, re.M)
    ]
    starts = [i for i in headings if re.search(r"^### +Exercise", cells[i].source, re.M)]
    for i in starts:
        after = list(cells[i + 1 : next((h for h in headings if h > i), None)])
        if not LABEL.search(cells[i].source):
            yield (
                f"cell {i}: the exercise does not say its difficulty, importance and minutes as the"
                " others do"
            )
        if not any(
            "exercise" in c.metadata.get("tags", []) or "# your code" in c.source for c in after
        ):
            yield (
                f"cell {i}: the exercise has no stub (a code cell tagged `exercise` or with `# your"
                " code`)"
            )
        if not any(c.cell_type == "code" and "checks." in c.source for c in after):
            yield f"cell {i}: the exercise has no check"
        folded = "\n".join(c.source for c in after if c.cell_type == "markdown")
        if "<summary>Hint" not in folded or "<summary>Answer" not in folded:
            yield f"cell {i}: the exercise lacks a hint or an answer, folded away"


def quizzes(notebook: NotebookNode) -> Iterator[str]:
    """Every question is shown."""
    asked = [cell for _, cell in _code(notebook) if "widgets.quiz(" in cell.source]
    if not all(cell.outputs for cell in asked):
        yield "a quiz question has no output"


def stands_alone(notebook: NotebookNode) -> Iterator[str]:
    """Nothing that is fetched from elsewhere, nothing of the machine that built it, not too
    large.
    """
    size = len(text(notebook).encode())
    if size > LARGEST:
        yield f"the notebook has {size / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f}"
    for i, cell in enumerate(notebook.cells):
        shown = [cell.source] if cell.cell_type == "markdown" else []
        for output in cell.get("outputs", []):
            shown += [
                output.get("text", ""),
                *(v for k, v in output.get("data", {}).items() if k.startswith("text/")),
            ]
        for piece in shown:
            for address in page.fetched(piece):
                yield f"cell {i} fetches {address}"
            for found in re.findall(
                r"(?<![\w.])/(?:home|root|Users|tmp|work|usr|opt|private)/[\w./-]*", piece
            ):
                yield f"cell {i} names a place on the machine that built it: {found}"


RULES: tuple[Rule, ...] = (
    frame,
    executed,
    pictures,
    exercises,
    quizzes,
    stands_alone,
)
