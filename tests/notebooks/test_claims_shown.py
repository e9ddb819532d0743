"""Every claim of the ledger is in its lesson, and every verdict of a live run follows a rule that stands above it."""

import re

import nbformat
import pytest

from classroom import records
from classroom.records import ledger
from tools.notebooks import lessons
from tools.notebooks.build import read

RUN = ", this run:"
# Lessons whose live runs are parts of a section and judged by the record beside them alone.
RECORDED = {path.stem for path in lessons()[:11]} - {"07_transfer"}
# Claims of other lessons whose experiment is too long to run whole in the lesson: the record alone is judged.
JUDGED_BY_RECORD = {
    "distilbert", "electra-efficiency", "bart-which-noise", "bart-classifies-too", "bart-generates",
    "t5-architectures", "t5-text-to-text", "t5-sizes",
}  # fmt: skip


def shown(cells, names, live):
    """What is missing in a lesson's cells of its claims."""
    text = "\n".join(cell.source for cell in cells)
    for claim in names:
        if f'<a id="{claim}"></a>' not in text:
            yield f"{claim}: no anchor"
        if live and f's.summary("{claim}")' not in text:
            yield f"{claim}: no record beside it"
        if live and claim not in JUDGED_BY_RECORD and not re.search(rf"{claim}[^\n]*{RUN}", text):
            yield f"{claim}: no verdict of this run"


def ruled(cells):
    """Verdicts of live runs without a rule above, or whose rule does not name what the verdict can be."""
    for i, cell in enumerate(cells):
        if cell.cell_type != "code" or RUN not in cell.source:
            continue
        rules = [c.source for c in cells[:i] if re.search(r"\brule\b", c.source, re.I) and "eproduced" in c.source]
        can_be = set(re.findall(r'"(reproduced|partly|not reproduced)"', cell.source))
        if not rules or not can_be:
            yield f"{cell.id}: no rule above it"
            continue
        yield from (f"{cell.id}: its rule does not say {word!r}" for word in can_be if word not in rules[-1].lower())


def stale(cells):
    """Claims whose record says something else than the stored output of the cell that prints it."""
    for cell in cells:
        source = cell.source if cell.cell_type == "code" else ""
        printed = re.findall(r'(?:claims|records)\.summary\("([\w-]+)"\)', source)
        text = "".join(str(output.get("text", "")) for output in cell.get("outputs", []))
        yield from (name for name in printed if name in text and records.summary(name) not in text)


@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem)
def test_the_claims_of_a_lesson(path):
    cells, names = read(path).cells, [claim.id for claim in ledger.of_lesson(path.stem)]
    assert [*shown(cells, names, path.stem not in RECORDED), *ruled(cells), *stale(cells)] == []


def test_a_stale_output_is_found():
    cell = nbformat.v4.new_code_cell('print(claims.summary("gelu"))')
    cell.outputs = [nbformat.v4.new_output("stream", text="gelu: not recorded yet")]
    assert list(stale([cell])) == ["gelu"]
    cell.outputs[0].text = records.summary("gelu") + "\n"
    assert list(stale([cell])) == []


def test_what_is_missing_is_found():
    rule = nbformat.v4.new_markdown_cell('<a id="a"></a> **The rule.** `reproduced` if all, `partly` if one.')
    run = nbformat.v4.new_code_cell('print(claims.summary("a"), "a, this run:", "reproduced" if x else "partly")')
    assert list(shown([rule, run], ["a"], live=True)) == list(ruled([rule, run])) == []
    assert len(list(shown([], ["a"], live=True))) == 3
    assert list(ruled([run, rule])) == [f"{run.id}: no rule above it"]
    rule.source = rule.source.replace("`partly`", "well")
    assert list(ruled([rule, run])) == [f"{run.id}: its rule does not say 'partly'"]
