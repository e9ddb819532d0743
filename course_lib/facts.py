"""What `python -m course_lib info` shows: names and values."""

import os
import platform
from typing import Any, cast

import torch

from course_lib import __version__, zoo
from course_lib.config import flatten
from course_lib.train import has_bf16


def of_model(name: str) -> list[tuple[str, str]]:
    """What a checkpoint or a folder is made of."""
    loaded = zoo.open_model(name)
    parameters = f"{sum(p.numel() for p in loaded.model.parameters()):,}"
    facts = [("head", type(loaded.model).__name__), ("parameters", parameters)]
    facts += [(key, str(value)) for key, value in flatten(cast(Any, loaded.model.stack).config).items()]
    return facts + [(key, str(loaded.card[key])) for key in ("data", "steps", "tokens", "scores") if key in loaded.card]


def of_machine() -> list[tuple[str, str]]:
    """What this machine has."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    shipped = zoo.names() if (zoo.FOLDER / "manifest.json").exists() else []
    return [
        ("course_lib", __version__),
        ("Python", platform.python_version()),
        ("PyTorch", torch.__version__),
        ("cores", f"{os.cpu_count()}, of which PyTorch uses {torch.get_num_threads()}"),
        ("bf16 on the CPU", "yes" if has_bf16("cpu") else "no"),
        ("GPU", gpu),
        ("checkpoints", ", ".join(shipped) or f"none in {zoo.FOLDER}"),
    ]
