"""`python -m course_lib zoo build`: make the shipped checkpoints again."""

from pathlib import Path
from typing import Annotated

import typer

from course_lib.commands.options import Device, Threads


def build(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which to make; all if none is named.")
    ] = None,
    work: Annotated[
        Path, typer.Option(help="Folder of the unfinished runs; a stopped one goes on.")
    ] = Path("build/checkpoints"),
    to: Annotated[
        Path | None, typer.Option(help="Where they go; data/checkpoints if not given.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Updates, in place of the recipe's.", min=1)
    ] = None,
    threads: Threads = 0,
    device: Device = "cpu",
) -> None:
    """Make the checkpoints again by their recipes. Takes hours on a CPU; stop and go on as you
    like.
    """
    from course_lib import zoo
    from lab import recipes

    for name in names or list(recipes.RECIPES):
        print(f"{name}: in {work / name}", flush=True)
        for point in recipes.build(
            name, work=work, to=to or zoo.FOLDER, steps=steps, device=device
        ):
            probe = "".join(f"  {kind} {share:.0%}" for kind, share in (point.probe or {}).items())
            print(
                f"{name} step {point.step:6,}  loss {point.loss:.3f}  lr {point.lr:.1e}  "
                f"{point.tokens / max(point.seconds, 1e-9):6,.0f} tokens/s{probe}",
                flush=True,
            )
        print(f"{name}: written to {(to or zoo.FOLDER) / name}", flush=True)
