"""`info`."""

import os
import platform
from typing import Annotated

import typer

from course_lib.commands.screen import print_table


def info(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A checkpoint or folder. By default the command describes this machine."
        ),
    ] = None,
) -> None:
    """Describe a model, or this machine."""
    import torch

    from course_lib import __version__, zoo
    from course_lib.training.device import has_bf16

    if model:
        print_table(zoo.facts(model))
        return
    machine = {
        "course_lib": __version__,
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "cores": f"{os.cpu_count()}, of which PyTorch uses {torch.get_num_threads()}",
        "bf16 on the CPU": "yes" if has_bf16("cpu") else "no",
        "GPU": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }
    print_table(machine.items())
