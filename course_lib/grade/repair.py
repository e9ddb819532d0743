"""Bring a handed-in notebook back into the order that grading needs: every test once, as the course has it."""

from dataclasses import dataclass
from typing import Literal

from course_lib.grade.assignment import ANSWER, Assignment
from course_lib.grade.collect import Cell


@dataclass(frozen=True)
class Step:
    """What to do with one cell: show its text, run its code, or (after running it) test a function of it."""

    do: Literal["text", "run", "skip", "test"]
    source: str
    id: str = ""


def repair(cells: list[Cell], assignment: Assignment) -> tuple[list[Step], list[str]]:
    """The steps of grading, and what had to be mended, for the notes.

    A student's own code stays where it stands and runs, whatever its cell is called. Cells of the course's (set-up and
    tests) are taken from the master; missing ones are put back: the set-up first, tests at the end.
    """
    demos = {cell.source for cell in assignment.release.cells if "demo" in cell.metadata.get("tags", [])}
    by_source = {cell.source.strip(): name for name, cell in assignment.locked.items()}
    steps: list[Step] = []
    seen: set[str] = set()
    changed: list[str] = []
    twice: list[str] = []
    for cell in cells:
        name = cell.id if cell.id in assignment.locked else by_source.get(cell.source.strip(), "")
        if cell.kind != "code":
            steps.append(Step("text", cell.source, cell.id))
        elif name:
            ours = assignment.locked[name].source
            if cell.source.strip() != ours.strip():  # a copied cell keeps its name; its code may be needed
                changed.append(name)
                steps.append(Step("run", cell.source))
            if name in seen:
                twice.append(name)
                continue
            seen.add(name)
            steps.append(Step("test" if name in assignment.tests else "run", ours, name))
        elif cell.source in demos:
            steps.append(Step("skip", cell.source))
        elif cell.source.strip():
            steps.append(Step("run", cell.source, cell.id))
    missing = [name for name in assignment.locked if name not in seen]
    for name in missing:
        step = Step("test" if name in assignment.tests else "run", assignment.locked[name].source, name)
        steps.insert(len(steps) if step.do == "test" else 0, step)
    said = {
        "changed (the originals count)": changed,
        "there twice (they count once)": twice,
        "missing (put back)": missing,
    }
    return steps, [f"course cells {what}: {', '.join(names)}" for what, names in said.items() if names]


def written(cells: list[Cell], assignment: Assignment) -> dict[str, str]:
    """The answers that a person marks; "" where there is none."""
    texts: dict[str, str] = {}
    for name in assignment.written:
        found = [cell.source.strip() for cell in cells if cell.id == name]
        texts[name] = "\n\n".join(dict.fromkeys(text for text in found if text and text != ANSWER))
    return texts
