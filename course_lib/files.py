"""Files that are either the old version or the new one, never half of one."""

import glob
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from course_lib.errors import CourseError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# the checkout: data/, notebooks/, build/ stand beside the packages
COURSE = Path(__file__).resolve().parents[1]
# checkpoints and texts: inside an installed package (setup.py puts them there), or the checkout's
_INSTALLED = Path(__file__).resolve().parent / "shipped"
DATA = _INSTALLED if _INSTALLED.is_dir() else COURSE / "data"


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A path to write to, in a new folder beside `path`; what was written becomes `path`.

    This happens by one rename when the block ends without an error. After a crash, a full disk or a
    SIGKILL the previous file is as it was.

    Raises:
        CourseError: the file cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"
        ) as folder:
            written = Path(folder) / path.name
            yield written
            with written.open("r+b") as file:
                os.fsync(file.fileno())  # on the disk before it takes the place of the old one
            mask = os.umask(0o022)  # the only way to read it is to set it
            os.umask(mask)
            written.chmod(0o666 & ~mask)  # safetensors writes for the owner only
            written.replace(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CourseError(
            f"Could not write {path}: {reason}. The earlier file, if any, is unchanged."
        ) from error


@contextmanager
def atomic_folder(folder: str | Path) -> Iterator[Path]:
    """A new folder to write to, beside `folder`; its files become those of `folder`.

    This happens when the block ends without an error. A folder that is new appears whole, by one
    rename. In one that exists each file takes the place of the earlier one; other files stay. What
    a killed process left is removed. Only the folder's one writer may call this.

    Raises:
        CourseError: a file cannot be written.
    """
    folder = Path(folder)
    sweep(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp"
        ) as place:
            new = Path(place) / folder.name
            new.mkdir()
            yield new
            for file in new.iterdir():
                with file.open("r+b") as written:
                    os.fsync(written.fileno())  # on the disk before it has its name
            if folder.exists():
                for file in sorted(new.iterdir()):
                    file.replace(folder / file.name)
            else:
                new.replace(folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CourseError(
            f"Could not write {folder}: {reason}. What was there is unchanged."
        ) from error


@contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """The same as `atomic_path`, as an open file; text is UTF-8."""
    encoding = None if "b" in mode else "utf-8"
    with atomic_path(path) as new, new.open(mode, encoding=encoding) as file:
        yield file


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Keep other processes out of a folder; on Windows this does nothing.

    The system opens the lock when this process ends, even if it is killed.

    Raises:
        CourseError: another process is in the folder, or nothing can be written there.
    """
    path = Path(folder) / ".lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise CourseError(f"Could not write in {folder}: {error.strerror}.") from error
    with file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = path.read_text() or "of another name"
            raise CourseError(
                f"Process {owner} is writing in {folder}: wait for its end, stop it, or name"
                " another folder."
            ) from None
        file.truncate(0)
        print(os.getpid(), file=file, end="", flush=True)  # for the message of another process
        try:
            yield
        finally:
            with suppress(OSError):  # a folder with anything in it stays
                path.unlink()
                path.parent.rmdir()


def sweep(path: str | Path) -> None:
    """Remove what killed writers of `path` left beside it. Only its one writer may call this."""
    path = Path(path)
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink(missing_ok=True)


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as readable JSON, atomically."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    with atomic_write(path) as file:
        file.write(text + "\n")


def read_json(path: str | Path) -> Any:
    """Read a JSON file; a missing or broken one is a `CourseError` that names it."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CourseError(f"There is no file {path}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CourseError(
            f"{path} is not valid JSON ({error}); restore it or make it again."
        ) from None
