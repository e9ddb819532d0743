"""A claim that a lesson names has its record beside it, and no lesson has a rule of its own beside
the ledger's.
"""

import re

import nbformat
import pytest

from classroom import records
from classroom.records import ledger
from classroom.records.figures import VERDICTS
from tools.notebooks import lessons
from tools.notebooks.build import read

# Lessons whose live runs are parts of a section and judged by the record beside them alone.
RECORDED = {path.stem for path in lessons()[:11]} | {"15_sbert"}
RECORDED |= {"11_inside_bert", "12_roberta", "13_distilbert", "14_electra", "16_bart"}
RECORDED |= {"17_t5", "18_gpt2", "19_gpt3", "20_peft"}
# Claims of other lessons whose experiment is too long to run whole in the lesson, or is there no
# more.
JUDGED_BY_RECORD = {
    "bart-generates",
    "t5-text-to-text",
}


def shown(cells, names, live):
    """What is missing in a lesson's cells of its claims."""
    text = "\n".join(cell.source for cell in cells)
    for claim in names:
        if f'<a id="{claim}"></a>' not in text:
            continue
        if live and f'records.summary("{claim}")' not in text:
            yield f"{claim}: no record beside it"
        if live and claim not in JUDGED_BY_RECORD and f'records.live("{claim}"' not in text:
            yield f"{claim}: not what this run says"


def own_rules(cells):
    """Code cells that make a verdict themselves."""
    words = "|".join([*VERDICTS, "not at this scale", "not reproduced"])
    for cell in cells:
        if cell.cell_type == "code" and re.search(rf"""["']({words})["']""", cell.source):
            yield f"{cell.id}: a verdict beside the ledger's rule"


def stale(cells):
    """Claims whose record says something else than the stored output of the cell that prints it."""
    for cell in cells:
        source = cell.source if cell.cell_type == "code" else ""
        printed = re.findall(r'records\.summary\("([\w-]+)"\)', source)
        text = "".join(str(output.get("text", "")) for output in cell.get("outputs", []))
        yield from (name for name in printed if name in text and records.summary(name) not in text)


@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem)
def test_the_claims_of_a_lesson(path):
    cells, names = read(path).cells, [claim.id for claim in ledger.of_lesson(path.stem)]
    assert [*shown(cells, names, path.stem not in RECORDED), *own_rules(cells), *stale(cells)] == []


def test_a_stale_output_is_found():
    cell = nbformat.v4.new_code_cell('print(records.summary("gelu-converges"))')
    cell.outputs = [nbformat.v4.new_output("stream", text="gelu-converges: not recorded yet")]
    assert list(stale([cell])) == ["gelu-converges"]
    cell.outputs[0].text = records.summary("gelu-converges") + "\n"
    assert list(stale([cell])) == []


def test_what_is_missing_is_found():
    told = nbformat.v4.new_markdown_cell('<a id="a"></a> What the lecture says.')
    run = nbformat.v4.new_code_cell(
        'print(records.live("a", {"x": 1}), records.summary("a"), sep="\\n")'
    )
    assert list(shown([told, run], ["a"], live=True)) == list(own_rules([told, run])) == []
    assert len(list(shown([told], ["a"], live=True))) == 2
    assert list(shown([], ["a"], live=True)) == []
    run.source = 'verdict = "reproduced" if x else "partly"'
    assert list(own_rules([run])) == [f"{run.id}: a verdict beside the ledger's rule"]
