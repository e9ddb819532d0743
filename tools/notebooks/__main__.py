"""The command line: python -m tools.notebooks build | run | site."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from course_lib.errors import CourseError
from tools import home
from tools.notebooks import ROOT, find, lessons
from tools.notebooks.build import build as build_one

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False
)
Names = Annotated[
    list[str] | None, typer.Argument(help="lessons such as 09_bert or 09; all if none is named")
]


@app.command()
def build(names: Names = None) -> None:
    """Execute lessons and store them with their outputs."""
    for path in [find(name) for name in names] if names else lessons():
        measure = build_one(path)
        print(
            f"{path.stem}: built in {measure.seconds:.0f} s, {measure.peak_mb:.0f} MB", flush=True
        )


@app.command()
def run(
    name: Annotated[
        str, typer.Argument(help="a lesson such as 09_bert; all if none is named")
    ] = "",
    scale: Annotated[
        str, typer.Option(help="smoke (seconds), lesson (a minute), cpu (an hour), gpu")
    ] = "lesson",
    seed: Annotated[int, typer.Option(help="random seed")] = 0,
    data: Annotated[
        str, typer.Option(help="in place of a lesson's own: world, text, a path, or hub:NAME")
    ] = "",
    model: Annotated[
        str, typer.Option(help="in place of a lesson's own: a shipped name, a folder, or hub:NAME")
    ] = "",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    out: Annotated[Path, typer.Option(help="folder for the results")] = ROOT / "build",
    again: Annotated[
        bool, typer.Option(help="all lessons: keep nothing of a run that was broken off")
    ] = False,
) -> None:
    """Execute a lesson without a screen into a folder, as a notebook and an offline page; or all,
    into a site.
    """
    from tools.notebooks.run import run as run_one
    from tools.notebooks.whole import run_all

    chosen = {"DATA": data, "MODEL": model}
    given = {"SCALE": scale, "SEED": seed, "DEVICE": device}
    given |= {name: value for name, value in chosen.items() if value}
    if not name:
        print(run_all(given, out, again=again, progress=sys.stderr.isatty()))
        return
    executed, web = run_one(find(name), given, out)
    print(f"{executed}\n{web}")


@app.command()
def site(
    out: Annotated[Path, typer.Option(help="folder for the pages")] = ROOT / "build" / "site",
) -> None:
    """The lessons as they are stored and the library's API, as offline pages with an index.

    No lesson is executed.
    """
    from tools.notebooks.site import build as build_site

    stored = {path.stem: path for path in lessons()}
    print(build_site(out, stored, with_api=True))


def main() -> None:
    """Run the command; a problem is one sentence and exit status 1."""
    try:
        home.ensure()
        app()
    except CourseError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
