"""`python -m classroom.town`: lists the tasks, and the templates without a parse."""

import argparse
import sys
from pathlib import Path

from classroom.town import World
from classroom.town.documents import Writer
from classroom.town.lexicon import FOLDER, Lexicon, read_table
from classroom.town.tasks import TASKS


def unparsed_templates(folder: Path = FOLDER) -> list[str]:
    """The templates of documents and tasks that have no row in parses.tsv; ungrammatical ones need
    none.
    """
    lexicon = Lexicon(folder=folder)
    writer = Writer(lexicon)
    for task in TASKS.values():
        task(writer)
    pairs = read_table("pairs.tsv", ("rule", "split", "good", "bad"), folder)
    exempt = {row["bad"] for row in pairs} - {row["good"] for row in pairs}
    return [text for text, parsed in lexicon.compiled.items() if not parsed and text not in exempt]


def task_table() -> str:
    """The tasks as a table in Markdown, from their classes; docs/world.md holds it."""
    lines = ["| task | columns | labels | what |", "|---|---|---|---|"]
    for name, task in TASKS.items():
        columns = ", ".join(f"`{column}`" for column in task.columns)
        labels = ", ".join(task.labels) if len(task.labels) < 5 else f"{len(task.labels)} classes"
        lines.append(f"| `{name}` | {columns} | {labels} | {World.describe(name)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m classroom.town", description=__doc__)
    parser.add_argument("command", choices=("tasks", "check"))
    parser.add_argument(
        "--folder",
        type=Path,
        default=FOLDER,
        help="the tables to check (default: the course's own)",
    )
    options = parser.parse_args()
    lines = [task_table()] if options.command == "tasks" else unparsed_templates(options.folder)
    sys.stdout.writelines(f"{line}\n" for line in lines)
