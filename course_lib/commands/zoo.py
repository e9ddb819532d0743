"""The commands `zoo list` and `zoo check`: the checkpoints that come with the course."""

import typer

from course_lib.commands.screen import print_table

app = typer.Typer(help="The checkpoints that come with the course.", no_args_is_help=True)


@app.command("list")
def show() -> None:  # a function called `list` would hide Python's
    """List the checkpoints, with the steps, tokens and scores of each."""
    # Importing torch takes seconds, so it is done here: `--help` does not need it.
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
    # Importing torch takes seconds, so it is done here: `--help` does not need it.
    from course_lib import zoo

    for name in zoo.names():
        # `facts` loads the model, and raises an error if anything is wrong.
        print(f"{name}: good, {zoo.facts(name)['parameters']:,} parameters")
