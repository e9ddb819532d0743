"""The command `info`: describe a model, or this machine."""

import json
import os
import platform
from typing import Annotated, Any

import typer

from course_lib.commands.screen import print_table


def info(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="model",
            help="A model's name or folder. By default the command describes this machine.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, for other programs to read.")
    ] = False,
) -> None:
    """Describe a model, or this machine."""
    # Importing torch takes seconds, so it is done here: `--help` does not need it.
    import torch

    from course_lib import __version__, zoo
    from course_lib.training.device import has_bf16

    if source:
        _show(zoo.facts(source), as_json)
        return
    machine = {
        "course_lib": __version__,
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "cores": f"{os.cpu_count()}, of which PyTorch uses {torch.get_num_threads()}",
        "bf16 on the CPU": "yes" if has_bf16("cpu") else "no",
        "GPU": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }
    _show(machine, as_json)


def _show(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        # A configuration may hold objects that JSON does not have, such as attention patterns.
        # `default=str` writes them as text.
        print(json.dumps(facts, indent=1, ensure_ascii=False, default=str))
    else:
        print_table((name, _text(value)) for name, value in facts.items())


def _text(value: Any) -> str:
    """A value as the table shows it: 11,094,784 for 11094784."""
    # Not `isinstance`: a bool is an int, too, and True would be shown as 1.
    return f"{value:,}" if type(value) is int else str(value)
