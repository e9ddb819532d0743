"""Options that several commands share, and how the fields of a config become options."""

import inspect
import os
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from course_lib.errors import CourseError

# More threads than cores are allowed, but starting many thousands would kill the process.
MOST_THREADS = max(256, os.cpu_count() or 1)
Command = TypeVar("Command", bound=Callable[..., None])


def options_of(config: type[Any]) -> Callable[[Command], Command]:
    """A decorator: the command's `**options` are the settings of a config.

    Each field that is made by `settings.setting` becomes an option of the command. A parameter that
    the command names itself stays as it is there.
    """

    def with_options(command: Command) -> Command:
        signature = inspect.signature(command)
        parameters = dict(signature.parameters)
        del parameters["options"]
        types = get_type_hints(config)
        for field in fields(config):
            if "help" in field.metadata and field.name not in parameters:
                parameters[field.name] = _option(field, types[field.name])
        # Typer reads the options from here.
        command.__signature__ = signature.replace(parameters=list(parameters.values()))  # type: ignore[attr-defined]
        return command

    return with_options


def _option(field: Field[Any], type_: Any) -> inspect.Parameter:
    """The parameter that Typer makes an option of."""
    about = field.metadata
    flag = about["flag"]
    if flag is None and field.default is False:
        # By itself Typer would add a --no-... to a flag, and here it says what is the default.
        flag = "--" + field.name.replace("_", "-")
    option = typer.Option(
        *([flag] if flag else []), help=about["help"], min=about["at_least"], max=about["at_most"]
    )
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=field.default,
        annotation=Annotated[type_, option],
    )


def set_threads(threads: int) -> int:
    """Set the number of CPU threads that torch uses; 0 leaves the choice to torch."""
    if threads > MOST_THREADS:
        raise CourseError(f"--threads {threads} is too much; this machine has {os.cpu_count()}.")
    if threads:
        import torch

        torch.set_num_threads(threads)
    return threads


def device_named(device: str) -> str:
    """The device that "auto" means here."""
    import torch

    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def named(out: Path | None) -> Path | None:
    """Refuse `--out ""`. `Path("")` is the current folder, which the run would fill with files."""
    if out == Path():
        raise CourseError("--out is empty; name a folder.")
    return out


# What `--data` takes.
SOURCES = "A text file or folder, docs, hub:NAME, or an installed source"
Model = Annotated[
    str,
    typer.Argument(help="A shipped checkpoint (see `zoo list`), a folder, or hub:NAME@REVISION."),
]
Threads = Annotated[
    int, typer.Option(help="Number of CPU threads. 0 uses all cores.", min=0, callback=set_threads)
]
Device = Annotated[
    str,
    typer.Option(
        help="cpu, cuda, mps, or auto for the fastest of them here.", callback=device_named
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        help="Seed of the random draws. Equal seeds give equal results.", min=0, max=2**63 - 1
    ),
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        help="The course's columns and the file's: text=review,label=stars. In a file without a"
        " header columns have numbers."
    ),
]
