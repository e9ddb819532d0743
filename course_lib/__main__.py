"""`python -m course_lib`: pretrain, fine-tune and sample without a notebook. Errors are one line, exit code 1."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from course_lib.errors import CourseError

app = typer.Typer(
    name="course",
    help="Pretrained language models: train, fine-tune and sample from the command line.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
zoo_app = typer.Typer(help="The checkpoints that come with the course.", no_args_is_help=True)
app.add_typer(zoo_app, name="zoo")

Threads = Annotated[int, typer.Option(help="CPU threads; 0 = all cores.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps, or auto = the best there is.")]


@zoo_app.command("list")
def zoo_list() -> None:
    """Show what is there, its size, and how well each fills in words that stood earlier in the text."""
    from rich.console import Console
    from rich.table import Table

    from course_lib import zoo

    table = Table("name", "steps", "tokens", "scores")
    for name in zoo.names():
        card = zoo.card(name)
        scores = ", ".join(f"{key} {value:.3f}" for key, value in card["scores"].items())
        table.add_row(name, f"{card['steps']:,}", f"{card['tokens']:,}", scores)
    Console().print(table)


@zoo_app.command("check")
def zoo_check() -> None:
    """Load every checkpoint: all files whole, hashes right, all weights in place."""
    from course_lib import zoo

    for name in zoo.names():
        loaded = zoo.load(name)
        count = sum(p.numel() for p in loaded.model.parameters())
        print(f"{name}: good, {count:,} parameters")


@zoo_app.command("build")
def zoo_build(
    names: Annotated[list[str] | None, typer.Argument(help="Which to make; all if none is named.")] = None,
    work: Annotated[Path, typer.Option(help="Folder of the unfinished runs; a stopped one goes on.")] = Path(
        "build/checkpoints"
    ),
    to: Annotated[Path | None, typer.Option(help="Where the finished ones go; data/checkpoints if not given.")] = None,
    steps: Annotated[int | None, typer.Option(help="Updates, in place of the recipe's.")] = None,
    threads: Threads = 0,
    device: Device = "cpu",
) -> None:
    """Make the checkpoints again by their recipes. Takes hours on a CPU; stop and go on as you like."""
    from course_lib import recipes, zoo

    _set_threads(threads)
    for name in names or list(recipes.RECIPES):
        print(f"{name}: in {work / name}", flush=True)
        for point in recipes.build(name, work=work, to=to or zoo.FOLDER, steps=steps, device=_device(device)):
            probe = "".join(f"  {kind} {share:.0%}" for kind, share in (point.probe or {}).items())
            print(
                f"{name} step {point.step:6,}  loss {point.loss:.3f}  lr {point.lr:.1e}  "
                f"{point.tokens_per_second:6,.0f} tokens/s{probe}",
                flush=True,
            )
        print(f"{name}: written to {(to or zoo.FOLDER) / name}", flush=True)


def _set_threads(threads: int) -> None:
    if threads < 0:
        raise CourseError(f"--threads is {threads}; give 1 or more, or 0 for all cores.")
    if threads:
        import torch

        torch.set_num_threads(threads)


def _device(device: str) -> str:
    import torch

    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def main() -> None:
    """The command line; a `CourseError` becomes one line on stderr and exit code 1."""
    try:
        app()
    except CourseError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
