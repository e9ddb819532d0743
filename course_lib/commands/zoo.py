"""`zoo list` and `zoo check`."""

import typer

from course_lib.commands.screen import print_table

app = typer.Typer(help="The checkpoints that come with the course.", no_args_is_help=True)


@app.command("list")
def show() -> None:
    """List the checkpoints, with the steps, tokens and scores of each."""
    from course_lib import zoo

    rows = []
    for name in zoo.names():
        card = zoo.card(name)
        scores = ", ".join(f"{key} {value:.3f}" for key, value in card["scores"].items())
        rows.append([name, f"{card['steps']:,}", f"{card['tokens']:,}", scores])
    print_table(rows, "name", "steps", "tokens", "scores")


@app.command("check")
def check() -> None:
    """Load every checkpoint: all files whole, hashes right, all weights in place."""
    from course_lib import zoo

    for name in zoo.names():
        print(f"{name}: good, {zoo.facts(name)['parameters']:,} parameters")
