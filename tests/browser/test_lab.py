"""A real JupyterLab in a real browser: a lesson opens, all its cells run, a widget moves, its
output changes.
"""

from pathlib import Path

import nbformat
import pytest
from nbformat import v4

from tools.notebooks import ROOT, lessons, scrub

pytestmark = [pytest.mark.browser, pytest.mark.timeout(0)]  # the waits below are guards enough

STATE = (Path(__file__).parent / "lab.js").read_text("utf-8")  # ready, done, errors, ran

INTERACT = """import ipywidgets

@ipywidgets.interact(n=ipywidgets.IntSlider(value=2, min=0, max=9))
def square(n):
    print("the square is", n * n)
"""


def run_all(tab, address, name, seconds):
    """Open a notebook, run all cells by the menu, wait for the last; returns the `STATE`."""
    tab.goto(f"{address}/lab/tree/{name}?reset")
    tab.wait_for_selector("#jupyterlab-splash", state="detached")
    tab.wait_for_function(f"({STATE})().ready")
    tab.get_by_role("menuitem", name="Run", exact=True).click()
    tab.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    tab.wait_for_function(f"({STATE})().done", timeout=1000 * seconds)
    return tab.evaluate(STATE)


def move_slider(tab):
    """Move the first slider one step by the keyboard; returns the output beside it before and
    after.
    """
    box = tab.locator(".widget-interact").first
    box.scroll_into_view_if_needed()
    before = shown(box)
    box.locator(".noUi-handle").first.focus()
    tab.keyboard.press("ArrowRight")
    for _ in range(1500):
        if shown(box) != before:
            break
        tab.wait_for_timeout(200)
    return before, shown(box)


def shown(box):
    """The text and the pictures of a widget's output."""
    return box.locator(".widget-output").first.evaluate(
        "e => e.innerText + [...e.querySelectorAll('img')].map(i => i.src).join()"
    )


def live_lesson():
    """The lesson with a live widget and the fewest cells."""
    found = [
        p
        for p in lessons()
        if "figures.explore(" in p.read_text("utf-8") or "interact(" in p.read_text("utf-8")
    ]
    return min(found, key=lambda p: len(nbformat.read(p, 4).cells))


def prepared(folder: Path, path: Path) -> str:
    """A copy of the lesson at smoke scale, without outputs, beside the data that it reads; its name
    in the folder.
    """
    (folder / "notebooks").mkdir()
    (folder / "data").symlink_to(ROOT / "data", target_is_directory=True)
    notebook = nbformat.read(path, 4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            if "parameters" in cell.metadata.get("tags", []):
                cell.source = cell.source.replace('SCALE = "lesson"', 'SCALE = "smoke"')
    nbformat.write(notebook, folder / "notebooks" / path.name)
    return f"notebooks/{path.name}"


def test_a_lesson_runs_and_its_widget_answers(tab, lab):
    address, folder = lab
    path = live_lesson()
    state = run_all(tab, address, prepared(folder, path), 1200)
    assert state["errors"] == [] and state["ran"] == sum(
        c.cell_type == "code" for c in nbformat.read(path, 4).cells
    )
    before, after = move_slider(tab)
    assert before and after != before


def test_a_failing_cell_is_seen(tab, lab):
    """The test above can fail: an error is reported, and an output that nothing moves does not
    change.
    """
    address, folder = lab
    # Without a kernel's name in the file, JupyterLab would ask for one.
    made = v4.new_notebook(
        cells=[v4.new_code_cell(INTERACT), v4.new_code_cell("1 / 0")], metadata=scrub.METADATA
    )
    nbformat.write(made, folder / "x.ipynb")
    state = run_all(tab, address, "x.ipynb", 600)
    assert state["errors"] == ["ZeroDivisionError: division by zero"]
    box = tab.locator(".widget-interact").first
    assert "the square is 4" in shown(box) and move_slider(tab)[1].strip() == "the square is 9"
