"""Put the cells of a submission right: what to do with each, and which answers a person marks."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from classroom.grading.assignment import ANSWER, Assignment
from classroom.grading.collect import LONGEST, SubmittedCell


class GradingStep(NamedTuple):
    """What to do with one cell.

    Show its text, run its code, skip it, or (after running it) test a function of it.
    """

    do: Literal["text", "run", "skip", "test"]
    source: str
    id: str = ""


def repair(
    cells: list[SubmittedCell], assignment: Assignment
) -> tuple[list[GradingStep], list[str]]:
    """The steps of grading, and what had to be mended, for the notes.

    A student's own code stays where it stands and runs, whatever its cell is called. Cells of the
    course's (set-up and tests) are taken from the master; missing ones are put back: the set-up
    first, tests at the end.
    """
    demos = {cell.source for cell in assignment.release.cells if _is_demo(cell.metadata)}
    by_source = {cell.source.strip(): name for name, cell in assignment.locked.items()}
    steps: list[GradingStep] = []
    seen: set[str] = set()
    mended = _Mended()
    for cell in cells:
        source = cell.source.strip()
        name = cell.id if cell.id in assignment.locked else by_source.get(source, "")
        if cell.kind != "code":
            steps.append(GradingStep("text", cell.source, cell.id))
        elif len(cell.source) > LONGEST:
            steps.append(GradingStep("skip", cell.source))
            mended.long.append(f"cell {len(steps)}")
        elif name:
            if source != assignment.locked[name].source.strip():
                mended.changed.append(name)
                # a copied cell keeps its name; its code may be needed
                steps.append(GradingStep("run", cell.source))
            if name in seen:
                mended.twice.append(name)
            else:
                seen.add(name)
                steps.append(_course_step(name, assignment))
        elif cell.source in demos:
            steps.append(GradingStep("skip", cell.source))
        elif source:
            steps.append(GradingStep("run", cell.source, cell.id))
    mended.missing = [name for name in assignment.locked if name not in seen]
    for name in mended.missing:
        step = _course_step(name, assignment)
        steps.insert(len(steps) if step.do == "test" else 0, step)
    return steps, mended.notes()


@dataclass
class _Mended:
    """Cells that were not as they should be."""

    changed: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    long: list[str] = field(default_factory=list)

    def notes(self) -> list[str]:
        """A sentence about each kind that there was."""
        kinds = {
            "changed (the originals count)": self.changed,
            "there twice (they count once)": self.twice,
            "missing (put back)": self.missing,
        }
        notes = []
        for kind, names in kinds.items():
            if names:
                notes.append(f"course cells {kind}: {', '.join(names)}")
        for place in self.long[:9]:
            notes.append(f"{place} is longer than {LONGEST:,} characters and was not run")
        return notes


def _is_demo(metadata: dict[str, list[str]]) -> bool:
    """Whether a cell only shows something, so that it need not run again."""
    return "demo" in metadata.get("tags", [])


def _course_step(name: str, assignment: Assignment) -> GradingStep:
    source = assignment.locked[name].source
    return GradingStep("test" if name in assignment.tests else "run", source, name)


def written(cells: list[SubmittedCell], assignment: Assignment) -> tuple[dict[str, str], list[str]]:
    """The answers that a person marks, "" where there is none; notes.

    Where the cell of an answer is as it was given out, all text that the student has added stands
    for it.
    """
    given = {"", ANSWER, *(cell.source.strip() for cell in assignment.release.cells)}
    texts = [cell.source.strip() for cell in cells if cell.kind != "code"]
    own = _joined(text for text in texts if text not in given)
    answers: dict[str, str] = {}
    notes: list[str] = []
    for name, part in assignment.written.items():
        in_place = [cell.source.strip() for cell in cells if cell.id == name]
        answer = _joined(text for text in in_place if text not in ("", ANSWER))
        if own and not answer:
            answer = own
            notes.append(
                f"the cell for {part.question} is empty; shown is what was written into other cells"
            )
        answers[name] = answer[:LONGEST]
    return answers, notes


def _joined(texts: Iterable[str]) -> str:
    """Paragraphs of the texts, each once."""
    return "\n\n".join(dict.fromkeys(texts))
