"""`python -m course_lib`: pretrain, fine-tune and sample without a notebook.

The commands stand in `course_lib/commands`. An error is one line, and the exit code is 1.
"""

import errno
import io
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NoReturn

import typer

from course_lib.commands import zoo
from course_lib.commands.fetch import fetch
from course_lib.commands.finetune import finetune, predict
from course_lib.commands.generate import generate
from course_lib.commands.info import info
from course_lib.commands.pretrain import pretrain, tokenize
from course_lib.errors import CourseError, CourseWarning
from course_lib.memory import restart_keeping_large_buffers

app = typer.Typer(
    name="course",
    help="Pretrained language models: pretrain, fine-tune and sample from the command line.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog='Start with: python -m course_lib generate gpt-english "In the kitchen"',
)
for command in (pretrain, tokenize, finetune, predict, generate, info, fetch):
    app.command()(command)
app.add_typer(zoo.app, name="zoo")


def add_commands() -> None:
    """Add the commands that other packages register under the entry point `course_lib.commands`.

    An entry is a Typer app or a function. Its name is the command's, or GROUP.NAME.
    """
    groups = {"": app, "zoo": zoo.app}
    for point in sorted(entry_points(group="course_lib.commands"), key=lambda point: point.name):
        group, _, name = point.name.rpartition(".")
        try:
            command = point.load()
        except ModuleNotFoundError:  # a command of the course, and only the library is installed
            continue
        if isinstance(command, typer.Typer):
            groups[group].add_typer(command, name=name)
        else:
            groups[group].command(name)(command)


def _show_warning(show: Callable[..., None], message: Warning, *place: Any) -> None:
    """Show a `CourseWarning` as one line, without its place in the code; others as usual."""
    if isinstance(message, CourseWarning):
        print(f"note: {message}", file=sys.stderr)
    else:
        show(message, *place)


def main() -> None:
    """The command line. A `CourseError` becomes one line on stderr and exit code 1."""
    warnings.showwarning = partial(_show_warning, warnings.showwarning)
    if sys.stderr is None:  # closed, as by `2>&-`: nobody reads it
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    if sys.stdout is None:
        # The next file that is opened would take its number, and C libraries would print into it.
        _stop("The output is closed (>&-); send it to a file, or to /dev/null.")
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is shown as \xeb; it must not end the command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        _check_folder()
        add_commands()
        app()
    except CourseError as error:
        _stop(str(error))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        # The file that the output goes to, for a folder's own files say so by a CourseError.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's last flush
        _stop("The output cannot be written: the disk is full.")


def _check_folder() -> None:
    """A `CourseError` if the current folder has been removed: torch would end the process."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise CourseError("The current folder is no longer there; go to another one.") from None


def _stop(reason: str) -> NoReturn:
    """One line on stderr, and exit code 1."""
    rank = os.environ.get("RANK", "0")  # one of several processes: accelerate launch
    who = "error" if rank == "0" else f"error in process {rank}"
    print(f"{who}: {' '.join(reason.split())}", file=sys.stderr)
    sys.exit(1)


def start() -> None:
    """`main` in a process of its own."""
    if not {"-h", "--help"}.intersection(sys.argv):  # a help text is shown before it is restarted
        restart_keeping_large_buffers()
    main()


if __name__ == "__main__":
    start()
