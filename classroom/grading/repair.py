"""Put the cells of a submission right: what to do with each, and which answers a person marks."""

import ast
import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from classroom.grading import pictures
from classroom.grading.assignment import ANSWER, Assignment
from classroom.grading.collect import LONGEST, SubmittedCell, listed

MOST_PICTURES, ROOM = 5, 1_500_000  # of an answer that are shown, and their characters in base64
LONGEST_CODE = 20_000  # characters of a cell that may be code
LINKED = re.compile(r"!\[[^\]]{0,200}\]\((?!attachment:|\(picture\))|<img ", re.IGNORECASE)


class GradingStep(NamedTuple):
    """What to do with one cell.

    Show its text, run its code, skip it, or (after running it) test a function of it. A file beside
    the notebook is shown.

    Attributes:
        do: which of them.
        source: of the cell.
        id: nbgrader's name.
        saved: what it printed when the student ran it; None where that is not known.
    """

    do: Literal["text", "run", "skip", "test", "file"]
    source: str
    id: str = ""
    saved: str | None = None


def repair(
    cells: list[SubmittedCell], assignment: Assignment
) -> tuple[list[GradingStep], list[str]]:
    """The steps of grading, and what had to be mended, for the notes.

    A student's own code stays where it stands and runs, whatever its cell is called. Cells of the
    course's (set-up and tests) are taken from the master. Missing ones are put back: tests at the
    end, the others behind the course's cell that they follow in the master.
    """
    demos = {cell.source for cell in assignment.release.cells if _is_demo(cell.metadata)}
    given = {cell.source.strip() for cell in assignment.release.cells}
    by_source = {cell.source.strip(): name for name, cell in assignment.locked.items()}
    steps: list[GradingStep] = []
    seen: set[str] = set()
    mended = _Mended()
    for cell in cells:
        source = cell.source.strip()
        name = cell.id if cell.id in assignment.locked else by_source.get(source, "")
        if cell.kind != "code":
            steps.append(GradingStep("text", cell.source, cell.id))
            if source not in given:
                mended.no_code += _answers_in_text(cell, assignment)
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
                steps.append(_course_step(name, assignment)._replace(saved=cell.saved))
        elif cell.source in demos:
            steps.append(GradingStep("skip", cell.source))
        elif source:
            steps.append(GradingStep("run", cell.source, cell.id, cell.saved))
    mended.missing = [name for name in assignment.locked if name not in seen]
    _put_back(mended.missing, steps, assignment)
    return steps, mended.notes()


@dataclass
class _Mended:
    """Cells that were not as they should be."""

    changed: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    no_code: list[str] = field(default_factory=list)
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
        if self.no_code:
            notes.append(
                f"no code cell, so it was not run: {', '.join(dict.fromkeys(self.no_code))}"
            )
        if self.long:
            notes.append(
                f"longer than {LONGEST:,} characters and was not run: {listed(self.long, 9)}"
            )
        return notes


def _is_demo(metadata: dict[str, list[str]]) -> bool:
    """Whether a cell only shows something, so that it need not run again."""
    return "demo" in metadata.get("tags", [])


def _course_step(name: str, assignment: Assignment) -> GradingStep:
    source = assignment.locked[name].source
    return GradingStep("test" if name in assignment.tests else "run", source, name)


def _put_back(missing: list[str], steps: list[GradingStep], assignment: Assignment) -> None:
    """Insert the course's cells that a submission lacks."""
    place = 0  # behind the last of the course's cells that define names
    for name in assignment.locked:
        step = _course_step(name, assignment)
        if step.do == "test":
            if name in missing:
                steps.append(step)
        elif name in missing:
            steps.insert(place, step)
            place += 1
        else:
            place = 1 + next(i for i, there in enumerate(steps) if there.id == name)


def _answers_in_text(cell: SubmittedCell, assignment: Assignment) -> list[str]:
    """The answers that stand in a cell which is not code any more."""
    if cell.id in assignment.asked:
        return [cell.id]
    return [
        name
        for name in assignment.tasks
        if re.search(rf"^[ \t]*def +{name} *\(", cell.source, re.MULTILINE)
    ]


class Answer(NamedTuple):
    """A written answer as the person who marks it sees it.

    Attributes:
        text: "" where nothing was written.
        pictures: what follows "data:image/" for each picture in it.
    """

    text: str
    pictures: tuple[str, ...] = ()


def written(
    cells: list[SubmittedCell], assignment: Assignment
) -> tuple[dict[str, Answer], list[str]]:
    """The answers that a person marks; notes.

    An answer is what the student has put into its cell and directly above and below it: text and
    pictures, and code that more text follows. Where there is nothing, all text that the student has
    added anywhere stands for it.
    """
    given = {"", ANSWER, *(cell.source.strip() for cell in assignment.release.cells)}
    course = {*assignment.locked, *assignment.asked, *assignment.tests}
    answers: dict[str, Answer] = {}
    notes: list[str] = []
    for name, part in assignment.written.items():
        around = _around(cells, name, given, course)
        here = _without_code_below([cell for cell in around if _is_own(cell, given)], name)
        answer = _answer(here)
        if any(cell.kind == "code" for cell in here):
            notes.append(f"the answer to {part.question} stands in a code cell, or beside one")
        if not answer.text:
            prose = [cell for cell in cells if _is_own(cell, given) and not _is_python(cell)]
            answer = _answer(prose)
            if answer.text:
                notes.append(
                    f"the cell for {part.question} is empty; shown is what was written into other"
                    " cells"
                )
            else:
                notes.append(f"no answer to {part.question} was found")
        handed_in = sum(len(cell.pictures) for cell in here)
        if handed_in:
            notes.append(
                f"pictures in the answer to {part.question}: {handed_in}, of which"
                f" {len(answer.pictures)} can be shown"
            )
        if len(answer.text) >= LONGEST:
            notes.append(f"the answer to {part.question} is cut after {LONGEST:,} characters")
        if LINKED.search(answer.text):
            notes.append(f"the answer to {part.question} names pictures that are not in it")
        answers[name] = answer
    return answers, notes


def _around(
    cells: list[SubmittedCell], name: str, given: set[str], course: set[str]
) -> list[SubmittedCell]:
    """The cells of an answer: its own, and the student's directly below and above it.

    Args:
        cells: of the notebook.
        name: of the answer's cell.
        given: texts that were given out.
        course: names of the course's cells of code.
    """
    belongs = [cell.id == name for cell in cells]
    own = [_is_own(cell, given) and cell.id not in course for cell in cells]
    for place in range(1, len(cells)):
        belongs[place] |= own[place] and belongs[place - 1]
    for place in reversed(range(len(cells) - 1)):
        # code above it is what was tried out before the question
        if own[place] and belongs[place + 1] and not _is_python(cells[place]):
            belongs[place] = True
    return [cell for cell, is_part in zip(cells, belongs, strict=True) if is_part]


def _without_code_below(answer: list[SubmittedCell], name: str) -> list[SubmittedCell]:
    """An answer's cells without the code at their end, which may belong to anything.

    "It falls.", `plot(x)`, "As the picture shows." stay all three; a last `y = 2` goes. The cell of
    this name is the answer's own, and stays.
    """
    end = len(answer)
    while end > 0 and answer[end - 1].id != name and _is_python(answer[end - 1]):
        end -= 1
    return answer[:end]


def _is_own(cell: SubmittedCell, given: set[str]) -> bool:
    return cell.source.strip() not in given or bool(cell.pictures)


def _is_python(cell: SubmittedCell) -> bool:
    """Whether a code cell holds code, and not prose, comments or (printed) strings only."""
    if cell.kind != "code" or len(cell.source) > LONGEST_CODE:
        return False
    lines = [line for line in cell.source.splitlines() if not line.startswith(("%", "!"))]
    try:
        tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return not all(isinstance(node, ast.Expr) and _is_text(node.value) for node in tree.body)


def _is_text(value: ast.expr) -> bool:
    """Whether an expression is a string, or prints some: `"It falls."`, `print("It falls.")`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id == "print" and all(map(_is_text, value.args))
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _answer(cells: list[SubmittedCell]) -> Answer:
    """The paragraphs of some cells, each once, and their pictures."""
    texts: dict[str, None] = {}
    shown: list[str] = []
    for cell in cells:
        text = cell.source.strip()
        if text and text != ANSWER:
            texts[text] = None
        if cell.pictures:
            texts[pictures.named(list(cell.pictures))] = None
            shown += filter(None, map(pictures.sound, cell.pictures[:MOST_PICTURES]))
    while sum(map(len, shown)) > ROOM or len(shown) > MOST_PICTURES:
        shown.pop()
    return Answer("\n\n".join(texts)[:LONGEST], tuple(shown))
