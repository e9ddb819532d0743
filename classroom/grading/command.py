"""`python -m course_lib grade`: points and feedback for a folder of homework."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer


def grade(
    submissions: Annotated[
        Path, typer.Argument(help="A folder with a notebook, zip or folder for each student.")
    ],
    assignment: Annotated[str, typer.Option(help="hw1, or the path of a master notebook.")],
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for points, feedback and marks; what is in it is not done again."
        ),
    ],
    jobs: Annotated[int, typer.Option(help="Submissions at once.", min=1)] = 2,
    timeout: Annotated[float, typer.Option(help="Seconds for a whole submission.", min=1)] = 180,
    cell_timeout: Annotated[
        float, typer.Option(help="Seconds for one cell, or one function's test.", min=1)
    ] = 20,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Of the tests' inputs; drawn once and kept if not given.",
            min=0,
            max=10**9,
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also grade what has not changed.")
    ] = False,
    roster: Annotated[
        Path | None, typer.Option(help="The CSV that Canvas or Moodle exports.", exists=True)
    ] = None,
    due: Annotated[
        datetime | None, typer.Option(help="What is later is late.", formats=["%Y-%m-%dT%H:%M"])
    ] = None,
    late: Annotated[
        float, typer.Option(help="Percent of all points that a day late costs.", min=0, max=100)
    ] = 0,
    store: Annotated[
        str, typer.Option("--gradebook", help="nbgrader's, to fill: sqlite:///gradebook.db")
    ] = "",
    marks: Annotated[
        Path | None, typer.Option(help="A marks.csv that answers.html has saved.", exists=True)
    ] = None,
    no_box: Annotated[
        bool, typer.Option("--no-box", help="Run students' code beside your own files.")
    ] = False,
) -> None:
    """Grade a folder of homework; again after marking written answers. docs/teaching.md tells how.

    Example: python -m course_lib grade submissions/ --assignment hw1 --out grades/
    """
    from tqdm import tqdm

    from classroom.grading import box
    from classroom.grading.hand_ins import gather
    from classroom.grading.roster import Roster
    from classroom.grading.run import GradeConfig
    from classroom.grading.run import grade as run

    way = box.Sandbox("plain", "no box is wanted") if no_box else box.chosen()
    if not way.boxed:
        print(
            f"warning: {way.why}. Students' code runs with limits on time and memory only: it can"
            " read and change what you can. Grade on a machine or an account that holds nothing"
            " else.",
            file=sys.stderr,
        )
    hand_ins = gather(
        submissions,
        Roster(roster) if roster else None,
        due,
        late_percent=late,
        marks_file=marks,
        gradebook=store,
    )
    limits = box.Limits(seconds=timeout, cell_seconds=cell_timeout)
    config = GradeConfig(jobs, limits, way, seed, again)
    warnings: list[str] = []
    records = run(submissions, assignment, out, config, hand_ins=hand_ins, warn=warnings.append)
    count = len(hand_ins.entries)
    failed = 0
    for record in tqdm(records, total=count, unit="", disable=None):
        points = ""
        if record["tests"]:
            earned = sum(test["points"] for test in record["tests"].values())
            of = sum(test["of"] for test in record["tests"].values())
            points = f", {earned:g} of {of:g}"
        tqdm.write(f"{record['student']}: {record['status']}{points}")
        if record["status"] == "grader failed":
            failed += 1
    print(
        f"points in {out / 'grades.csv'}, pages in {out / 'feedback'}, to mark by hand:"
        f" {out / 'marks.csv'}"
    )
    print(f"for you: {out / 'overview.html'}, to mark in: {out / 'answers.html'}")
    if failed:
        warnings.append(
            f"the grader itself failed on {failed} of {count}; the notes say why. Call it again."
        )
    for sentence in warnings:
        print(f"warning: {sentence}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)
