"""`python -m course_lib claims`: which claims there are, what became of them, and how to find out
again.

A command imports what it needs when it runs, so that `--help` is quick.
"""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from course_lib.commands.options import Device
from course_lib.errors import CourseError

app = typer.Typer(help="The lectures' claims: list, run, report.", no_args_is_help=True)

_Scale = Literal["smoke", "cpu", "gpu"]
_Lesson = Annotated[str | None, typer.Option(help="Only this lesson's: 09_bert or 09.")]
_Results = Annotated[
    Path | None, typer.Option(help="Folder of the records; data/results if not given.")
]


@app.command("list")
def show(lesson: _Lesson = None, out: _Results = None) -> None:
    """Show the claims, which of them have a record, and its verdict."""
    import rich

    from classroom.records import ledger, report
    from classroom.records.record import RESULTS

    chosen = ledger.read() if lesson is None else {each.id for each in ledger.of_lesson(lesson)}
    rows = [row for row in report.overview(out or RESULTS) if row[0].id in chosen]
    rich.print(report.rich_table(rows, why=False), report.tally(rows), sep="\n")


@app.command("run")
def run_claims(
    ids: Annotated[
        list[str] | None, typer.Argument(help="Claims, as `claims list` names them.")
    ] = None,
    lesson: _Lesson = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All claims that have an experiment.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each measured claim; 3 at scale cpu.", min=1)
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Processes side by side, of one thread each.", min=1)
    ] = 1,
    device: Device = "cpu",
    scale: Annotated[
        _Scale, typer.Option(help="smoke: seconds, proves the path; cpu; gpu: larger models.")
    ] = "cpu",
    out: _Results = None,
    work: Annotated[
        Path, typer.Option(help="Folder of pretrained arms and finished seeds.")
    ] = Path("build"),
    public: Annotated[
        Path | None,
        typer.Option("--data", help="Folder of public data sets, for the claims that read one."),
    ] = None,
) -> None:
    """Make records anew. Stop it when you like; the same command goes on where it was.

    Example: python -m course_lib claims run gelu-converges bert-size --jobs 2
    """
    from classroom.records import ledger, report
    from classroom.records.record import RESULTS
    from lab.engine import run
    from lab.engine.lab import PLANS

    chosen = list(ids or [])
    if lesson is not None:
        chosen += [each.id for each in ledger.of_lesson(lesson)]
    elif everything:
        chosen += list(ledger.read())
    if not chosen:
        raise CourseError(
            "Name the claims to run, or say --lesson 09_bert or --all; `claims list` shows them."
        )
    settings = run.RunSettings(
        plan=PLANS[scale],
        seeds=seeds,
        device=device,
        out=out or RESULTS,
        work=work / "claims",
        arms=work / "arms",
        public=public,
    )
    for done in run.run(list(dict.fromkeys(chosen)), settings, jobs=jobs):
        print(f"{done.what}: {done.seconds:.0f} s", flush=True)
        if done.record is not None:
            print(report.summary(done.record.id, settings.out), flush=True)


@app.command("judge")
def judge(out: _Results = None) -> None:
    """Apply the ledger's rules to every record's figures again."""
    from classroom.records import report
    from classroom.records.record import RESULTS, write
    from lab.engine.run import judge_again

    folder = out or RESULTS
    for entry, record in report.overview(folder):
        if record is None:
            continue
        again = judge_again(record)
        if again != record:
            write(again, folder)
            print(f"{entry.id}: {record.verdict}, now {again.verdict}")


@app.command("report")
def tell(
    to: Annotated[
        Path | None, typer.Option(help="Write it to this .md or .html file as well.")
    ] = None,
    out: _Results = None,
) -> None:
    """Show all records with their reasons."""
    import rich

    from classroom.records import report
    from classroom.records.record import RESULTS

    rows = report.overview(out or RESULTS)
    rich.print(
        report.rich_table([row for row in rows if row[1] is not None]), report.tally(rows), sep="\n"
    )
    if to is not None:
        print(f"written to {report.save(to, out or RESULTS)}", file=sys.stderr)
