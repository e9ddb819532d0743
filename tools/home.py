"""A home folder for Jupyter, IPython and matplotlib where the user's own cannot be written.

They keep settings, signatures and connections there. In a pool of computers the home may be full,
or only readable."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "home"
FOLDERS = {
    "JUPYTER_CONFIG_DIR": "jupyter",
    "JUPYTER_DATA_DIR": "jupyter",
    "JUPYTER_RUNTIME_DIR": "jupyter/runtime",
    "IPYTHONDIR": "ipython",
    "MPLCONFIGDIR": "matplotlib",
    "HF_HOME": "huggingface",
}


def is_writable(folder: Path) -> bool:
    """Whether a file can be made there. Only trying tells: a quota may be used up."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"one byte")
        return True
    except OSError:
        return False


def ensure() -> str | None:
    """Let this process and those that it starts use a home in build/, if theirs cannot be written.

    Returns:
        what to tell the user; None if nothing was changed.
    """
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  Path.home() fails where there is none
    if is_writable(home):
        return None
    for name, folder in FOLDERS.items():
        os.environ.setdefault(name, str(HOME / folder))
    (HOME / "matplotlib").mkdir(parents=True, exist_ok=True)
    return f"Your home folder {home} cannot be written; Jupyter keeps its files in {HOME}."
