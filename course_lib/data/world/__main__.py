"""`python -m course_lib.data.world`: proposes and checks the parses of templates, lists the tasks."""

import argparse
import sys
from pathlib import Path

from course_lib.data.world import World
from course_lib.data.world.documents import Writer
from course_lib.data.world.drafting import draft
from course_lib.data.world.grammar import Template
from course_lib.data.world.lexicon import FOLDER, Lexicon, read_table
from course_lib.data.world.tasks import TASKS
from course_lib.errors import CourseError


def missing(folder: Path) -> list[str]:
    """The templates of documents and tasks that have no row in parses.tsv; ungrammatical ones need none."""
    lexicon = Lexicon(folder=folder)
    writer = Writer(lexicon, parsed=False)
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


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m course_lib.data.world", description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="the tables (default: the course's own)")
    commands = parser.add_subparsers(dest="command", required=True)
    drafts = commands.add_parser("draft", help="propose rows of parses.tsv, for you to read and mend")
    drafts.add_argument("template", nargs="*", help="a template in quotes; none: all that have no row yet")
    commands.add_parser("check", help="say which templates have no row in parses.tsv")
    commands.add_parser("tasks", help="the table of tasks in docs/world.md")
    options = parser.parse_args(arguments)
    try:
        if options.command == "tasks":
            sys.stdout.write(task_table() + "\n")
            return 0
        texts = getattr(options, "template", []) or missing(options.folder)
        if options.command == "check":
            sys.stdout.write(("\n".join(texts) or "Every template has its parse.") + "\n")
            return int(bool(texts))
        lexicon = Lexicon(folder=options.folder)
        for text in texts:
            sys.stdout.write("\t".join((text, *draft(Template(text, lexicon)))) + "\n")
    except CourseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
