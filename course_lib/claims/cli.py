"""`python -m course_lib claims`: which claims there are, what became of them, and how to find out again."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from course_lib.claims.record import RESULTS
from course_lib.errors import CourseError

app = typer.Typer(help="The lectures' claims: list, run, report.", no_args_is_help=True)

Scale = Literal["smoke", "cpu", "gpu"]
Lesson = Annotated[str | None, typer.Option(help="Only this lesson's: 09_bert or 09.")]
Results = Annotated[Path | None, typer.Option(help="Folder of the records; data/results if not given.")]


@app.command("list")
def show(lesson: Lesson = None, out: Results = None) -> None:
    """Show the claims, which of them have a record, and its verdict."""
    from rich.console import Console

    from course_lib.claims import ledger, report

    rows = report.overview(out or RESULTS)
    if lesson is not None:
        chosen = {each.id for each in ledger.of_lesson(lesson)}
        rows = [row for row in rows if row[0].id in chosen]
    console = Console()
    console.print(report.rich_table(rows, why=False))
    console.print(report.tally(rows))


@app.command("run")
def run_claims(
    ids: Annotated[list[str] | None, typer.Argument(help="Claims, as `claims list` names them.")] = None,
    lesson: Lesson = None,
    everything: Annotated[bool, typer.Option("--all", help="All claims that have an experiment.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Runs of each measured claim; 3 at scale cpu.", min=1)] = None,
    jobs: Annotated[int, typer.Option(help="Processes side by side, of one thread each.", min=1)] = 1,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto = the best there is.")] = "cpu",
    scale: Annotated[Scale, typer.Option(help="smoke: seconds, proves the path; cpu; gpu: larger models.")] = "cpu",
    out: Results = None,
    work: Annotated[Path, typer.Option(help="Folder of pretrained arms and finished seeds.")] = Path("build"),
) -> None:
    """Make records anew. Stop it when you like; the same command goes on where it was.

    Example: python -m course_lib claims run gelu-converges bert-size --jobs 2
    """
    from course_lib.claims import experiment, ledger, run
    from course_lib.claims.lab import PLANS

    chosen = list(ids or [])
    if everything or lesson is not None:
        found = ledger.of_lesson(lesson) if lesson is not None else list(ledger.read().values())
        chosen += [each.id for each in found if experiment.find(each.id) is not None]
    if not chosen:
        raise CourseError("Name the claims to run, or say --lesson 09_bert or --all; `claims list` shows them.")
    where = run.Bench(
        plan=PLANS[scale], seeds=seeds, device=device_of(device), out=out or RESULTS,
        work=work / "claims", arms=work / "arms",
    )  # fmt: skip
    for done in run.run(list(dict.fromkeys(chosen)), where, jobs=jobs):
        print(f"{done.what}: {done.seconds:.0f} s", flush=True)
        if done.record is not None:
            print(f"  {done.record.id}: {done.record.verdict}. {done.record.why}", flush=True)


@app.command("report")
def tell(
    to: Annotated[Path | None, typer.Option(help="Write it to this .md or .html file as well.")] = None,
    out: Results = None,
) -> None:
    """Show all records with their reasons."""
    from rich.console import Console

    from course_lib.claims import report

    rows = report.overview(out or RESULTS)
    console = Console()
    console.print(report.rich_table([row for row in rows if row[1] is not None]))
    console.print(report.tally(rows))
    if to is not None:
        print(f"written to {report.save(to, out or RESULTS)}", file=sys.stderr)


def device_of(name: str) -> str:
    """ "auto" to the best device there is."""
    import torch

    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
