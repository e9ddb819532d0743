"""What comes out of grading: a table of points, a page for each student, a page of written answers, a table of marks.

What students wrote is shown as text only: no HTML, script or picture format of theirs but PNG reaches a browser.
"""

import base64
import csv
import html
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.files import atomic_write
from course_lib.grade.assignment import Assignment

Record = dict[str, Any]
Marks = dict[tuple[str, str], tuple[float | None, str]]  # (key, cell) -> points (None: not marked yet), comment

GRADES, MARKS, ANSWERS = "grades.csv", "marks.csv", "answers.html"
MARK_COLUMNS = ["student", "key", "cell", "points", "of", "comment"]
SHOWN = 400_000  # characters of one feedback page's cells

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width"><title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b }}
table {{ border-collapse: collapse; margin: 1rem 0 }}
td, th {{ border: 1px solid #bbb; padding: .2rem .6rem; text-align: left }} td.n {{ text-align: right }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; margin: .4rem 0; padding: .5rem; background: #f4f4f4 }}
pre.out {{ background: #fff; border-left: 3px solid #ccc }}
pre.err {{ background: #fff5f5; border-left: 3px solid #b00 }} .text {{ white-space: pre-wrap; color: #444 }}
.good, .bad {{ padding: .4rem .7rem; border-radius: .3rem; margin: .4rem 0 }}
.good {{ background: #e7f5e9 }} .bad {{ background: #fdecea }} img {{ max-width: 100% }}
</style></head><body>
{body}
</body></html>
"""


def points(record: Record, assignment: Assignment, marks: Marks) -> dict[str, float | None]:
    """Points of each question; None: still to be marked by hand, or nothing could be graded."""
    result: dict[str, float | None] = dict.fromkeys(assignment.questions)
    if not record["tests"]:
        return result
    for name, test in assignment.tests.items():
        result[test.question] = (result[test.question] or 0.0) + record["tests"][name]["points"]
    for name, part in assignment.written.items():
        mark, _ = marks.get((record["key"], name), (None, ""))
        if mark is None and not record["written"].get(name):
            mark = 0.0  # nothing was written
        result[part.question] = None if mark is None else (result[part.question] or 0.0) + mark
    return result


def write(records: list[Record], assignment: Assignment, out: Path) -> None:
    """Write or refresh everything in `out`. Marks and comments in marks.csv are kept.

    Raises:
        CourseError: marks.csv holds something that is no mark; nothing is written then.
    """
    marks = read_marks(out / MARKS, assignment)
    _write_csv(out / MARKS, MARK_COLUMNS, _mark_rows(records, assignment, marks))
    columns = ["student", "status", *assignment.questions, "total", "of", "notes"]
    _write_csv(out / GRADES, columns, (_grade_row(record, assignment, marks) for record in records))
    with atomic_write(out / ANSWERS) as file:
        file.write(_answers(records, assignment))
    for record in records:
        with atomic_write(out / "feedback" / f"{record['key']}.html") as file:
            file.write(feedback(record, assignment, marks))


def read_marks(path: Path, assignment: Assignment) -> Marks:
    """The marks that a person has entered, as a spreadsheet may have saved them (commas or semicolons, 7.5 or 7,5).

    Raises:
        CourseError: names the line that cannot be read.
    """
    if not path.exists():
        return {}
    text = path.read_text("utf-8-sig", errors="replace")
    first = text.partition("\n")[0]
    rows = csv.DictReader(io.StringIO(text), delimiter=";" if first.count(";") > first.count(",") else ",")
    marks: Marks = {}
    for number, row in enumerate(rows, 2):
        if any(row.get(column) is None for column in MARK_COLUMNS):
            raise CourseError(f"{path.name}, line {number}: a column is missing; there are {', '.join(MARK_COLUMNS)}.")
        said = row["points"].strip().replace(",", ".")
        part = assignment.written.get(row["cell"])
        if part is None:
            raise CourseError(f"{path.name}, line {number}: {assignment.name} has no cell {row['cell']!r} to mark.")
        try:
            mark = float(said) if said else None
        except ValueError:
            mark = -1.0
        if mark is not None and not 0 <= mark <= part.points:
            raise CourseError(f"{path.name}, line {number}: {said!r} is not a number from 0 to {part.points:g}.")
        marks[row["key"], row["cell"]] = mark, row["comment"]
    return marks


def feedback(record: Record, assignment: Assignment, marks: Marks) -> str:
    """The student's page: points, what the tests found, the notebook as it ran. No hidden test is in it."""
    earned = points(record, assignment, marks)
    head = [f"<h1>{assignment.name}: {_text(record['student'])}</h1>", f"<p>Status: {_text(record['status'])}.</p>"]
    head += [f"<p>Note: {_text(note)}.</p>" for note in record["notes"]]
    if record["tests"]:
        rows = [(q, _number(earned[q], "to be marked"), f"{of:g}") for q, of in assignment.questions.items()]
        rows.append(("total", _total(earned), f"{sum(assignment.questions.values()):g}"))
        lines = (f"<tr><td>{q}</td><td class=n>{p}</td><td class=n>{of}</td></tr>" for q, p, of in rows)
        head.append(f"<table><tr><th>question</th><th>points</th><th>of</th></tr>{''.join(lines)}</table>")
    for name, part in assignment.written.items():
        _, comment = marks.get((record["key"], name), (None, ""))
        if comment:
            head.append(f"<p>On your answer to {part.question}: {_text(comment)}</p>")
    return PAGE.format(title=_text(f"{assignment.name} {record['student']}"), body="\n".join([*head, *_cells(record)]))


def _cells(record: Record) -> Iterable[str]:
    room = SHOWN
    for cell in record["cells"]:
        parts = []
        if cell["do"] == "text":
            parts.append(f'<div class="text">{_text(cell["source"])}</div>')
        else:
            parts.append(f"<pre>{_text(cell['source'])}</pre>")
        parts += [_output(output) for output in cell["outputs"]]
        if test := record["tests"].get(cell["id"]):
            kind = "good" if test["passed"] else "bad"
            earned = f"{test['points']:g} of {test['of']:g}"
            parts.append(f'<div class="{kind}"><b>{earned}</b> · {_text(test["says"])}</div>')
        room -= sum(map(len, parts))
        if room < 0:
            yield "<p>(The rest is too long to be shown.)</p>"
            return
        yield from parts


def _output(output: Any) -> str:
    """One output; anything that is not as it should be becomes nothing."""
    if not isinstance(output, dict):
        return ""
    if output.get("output_type") == "error":
        lines = output.get("traceback")
        return f'<pre class="err">{_text(str(lines[0]) if isinstance(lines, list) and lines else "")}</pre>'
    if output.get("output_type") == "stream":
        return f'<pre class="out">{_text(_settled(str(output.get("text", ""))))}</pre>'
    data = output.get("data")
    if not isinstance(data, dict):
        return ""
    if isinstance(picture := data.get("image/png"), str):
        try:
            raw = base64.b64decode("".join(picture.split()), validate=True)
        except ValueError:
            raw = b""
        if raw.startswith(b"\x89PNG"):
            return f'<img alt="drawn by this cell" src="data:image/png;base64,{base64.b64encode(raw).decode()}">'
    return f'<pre class="out">{_text(str(data.get("text/plain", "")))}</pre>'


def _settled(text: str) -> str:
    """Text as a screen shows it in the end: a progress bar's last state."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def _answers(records: list[Record], assignment: Assignment) -> str:
    """All written answers, question by question, to mark in one sitting; students without an answer are left out."""
    body = [f"<h1>{assignment.name}: written answers</h1>", f"<p>Points and comments go into {MARKS}.</p>"]
    for name, part in assignment.written.items():
        body.append(f"<h2>{part.question}, {part.points:g} points</h2>")
        for record in records:
            if answer := record["written"].get(name):
                body.append(f"<h3>{_text(record['student'])}</h3>")
                body.append(f'<p>{len(answer.split())} words</p><div class="text">{_text(answer)}</div>')
    return PAGE.format(title=f"{assignment.name}: written answers", body="\n".join(body))


def _mark_rows(records: list[Record], assignment: Assignment, marks: Marks) -> Iterable[list[str]]:
    names = {record["key"]: record["student"] for record in records}
    wanted = [(r["key"], name) for r in records for name in assignment.written if r["written"].get(name)]
    wanted += [place for place, said in marks.items() if place not in wanted and said != (None, "")]
    for key, name in wanted:
        mark, comment = marks.get((key, name), (None, ""))
        yield [names.get(key, ""), key, name, _number(mark), f"{assignment.written[name].points:g}", comment]


def _grade_row(record: Record, assignment: Assignment, marks: Marks) -> list[str]:
    earned = points(record, assignment, marks)
    numbers = [*map(_number, earned.values()), _total(earned), f"{sum(assignment.questions.values()):g}"]
    return [record["student"], record["status"], *numbers, "; ".join(record["notes"])]


def _total(earned: dict[str, float | None]) -> str:
    """All points together; "" while something is still to be marked."""
    return "" if None in earned.values() else f"{sum(p or 0.0 for p in earned.values()):g}"


def _write_csv(path: Path, columns: list[str], rows: Iterable[list[str]]) -> None:
    """A table that spreadsheets open rightly: with a byte-order mark, and no cell that looks like a formula to them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([[_harmless(cell) for cell in row] for row in rows])
    with atomic_write(path) as file:
        file.write("\ufeff" + text.getvalue())


def _harmless(cell: str) -> str:
    cell = " ".join(cell.split())
    return "'" + cell if cell.startswith(("=", "+", "-", "@")) else cell


def _number(value: float | None, none: str = "") -> str:
    return none if value is None else f"{value:g}"


def _text(value: str) -> str:
    """Text for a page, without control characters."""
    return html.escape(re.sub(r"\x1b\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f]", "", value))
