"""Save files and folders atomically: a reader finds the old version or the new one, never half."""

import errno
import glob
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from course_lib.errors import CourseError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]
try:
    import msvcrt
except ImportError:  # everywhere but on Windows
    msvcrt = None  # type: ignore[assignment]

HAS_FLOCK: bool = fcntl is not None  # else the locks of Windows
SAVED = ".saved"  # a subfolder with files that `atomic_folder` has saved but not yet moved
DAY = 86400  # seconds
# Windows locks single bytes, and nobody else can read a locked one. This byte lies far behind the
# process number that a lock file holds.
LOCKED_BYTE = 2**30
# the checkout: data/, notebooks/, build/ stand beside the packages
COURSE = Path(__file__).resolve().parents[1]
# checkpoints and texts: inside an installed package (setup.py puts them there), or the checkout's
_INSTALLED = Path(__file__).resolve().parent / "shipped"
DATA = _INSTALLED if _INSTALLED.is_dir() else COURSE / "data"


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A path to write to, in a new folder beside `path`; what was written becomes `path`.

    This happens by one rename when the block ends without an error. After a crash, a full disk or a
    SIGKILL the previous file is as it was. A link stays one: the file that it names is written.

    Raises:
        CourseError: the file cannot be written.
    """
    path = Path(os.path.realpath(path))
    with _said_by_course(path), scratch_folder(path) as folder:
        written = folder / path.name
        yield written
        _secure(written)
        written.replace(path)


@contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """The same as `atomic_path`, as an open file; text is UTF-8."""
    encoding = None if "b" in mode else "utf-8"
    with atomic_path(path) as new, new.open(mode, encoding=encoding) as file:
        yield file


@contextmanager
def atomic_folder(folder: str | Path) -> Iterator[Path]:
    """A new folder to write files in; they take their places in `folder` together.

    Whoever reads `folder` by `read_json` finds all the old files or all the new ones, even if this
    process is killed. Files of other names stay.

        with atomic_folder("build/model") as new:
            write_json(new / "config.json", {})
            (new / "model.safetensors").write_bytes(b"")

    Raises:
        CourseError: the files cannot be written.
    """
    folder = Path(os.path.realpath(folder))
    with _said_by_course(folder):
        finish_save(folder)
        with scratch_folder(folder / SAVED) as scratch:
            new = scratch / "new"
            new.mkdir()
            yield new
            for file in new.rglob("*"):
                if file.is_file():
                    _secure(file)
            # From this rename on the new files count, wherever they lie.
            while True:
                try:
                    new.replace(folder / SAVED)
                    break
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                    finish_save(folder)  # of another process
        finish_save(folder)


def finish_save(folder: Path) -> None:
    """Move the files of a save that was killed in its last step to their places.

    Raises:
        CourseError: they cannot be moved.
    """
    saved = folder / SAVED
    if not saved.is_dir():
        return
    inside = _inside(saved)
    with _said_by_course(folder):
        for path in inside:
            if not path.is_dir():
                target = folder / path.relative_to(saved)
                with suppress(FileNotFoundError):  # another process was quicker
                    target.parent.mkdir(parents=True, exist_ok=True)
                    path.replace(target)
    for path in (*reversed(inside), saved):
        with suppress(OSError):  # another process has saved again: its files stay
            path.rmdir()


def _inside(saved: Path) -> list[Path]:
    """All paths in a folder. Listing starts again if another process moves files meanwhile."""
    while saved.is_dir():
        with suppress(FileNotFoundError):
            return sorted(saved.rglob("*"))
    return []


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """A new folder beside `path`, with its parents; it is removed at the end.

    Those that killed processes left are removed, too. A process that lives holds a lock on its own.
    """
    is_new = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    start = f".{path.name.lstrip('.')}."
    for leftover in path.parent.glob(f"{glob.escape(start)}*.tmp"):
        with suppress(OSError):  # its process lives, or another one removes it
            _remove_leftover(leftover)
    folder, lock = _new_folder(path.parent, start)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)
        if is_new:
            with suppress(OSError):  # something was saved in it
                path.parent.rmdir()


def _new_folder(parent: Path, start: str) -> tuple[Path, int | None]:
    """A new folder whose name begins with `start`, and its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=start, suffix=".tmp"))
        # Another process may take it for a leftover before it is locked. Then we make another one.
        with suppress(FileNotFoundError, BlockingIOError):
            lock = _lock_folder(folder)
            if folder.exists():
                return folder, lock
            if lock is not None:
                os.close(lock)


def _lock_folder(folder: Path) -> int | None:
    """Hold a lock on a folder, until the number that this returns is closed.

    Returns:
        None, if the system has no such locks.

    Raises:
        BlockingIOError: another process holds it.
    """
    if not HAS_FLOCK:  # Windows opens no folders
        return None
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if isinstance(error, BlockingIOError):
            raise
        return None  # a file system without locks
    return lock


def _remove_leftover(leftover: Path) -> None:
    """Remove what a killed process left; without locks, only what is older than a day."""
    # A date in the future comes from a clock that was set back since: such a folder is old, too.
    is_old = abs(time.time() - leftover.stat().st_mtime) > DAY
    lock = _lock_folder(leftover)
    if lock is not None or is_old:
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink()
    if lock is not None:
        os.close(lock)


def _secure(file: Path) -> None:
    """Wait until a file is on the disk, and give it the permissions of a new file."""
    with file.open("r+b") as handle:
        os.fsync(handle.fileno())
    mask = os.umask(0o022)  # the only way to read it is to set it
    os.umask(mask)
    file.chmod(0o666 & ~mask)  # safetensors writes for the owner only


@contextmanager
def _said_by_course(path: Path) -> Iterator[None]:
    """Turn an `OSError` while `path` is written into a `CourseError`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise CourseError(
            f"Could not write {path}: {reason}. What stood there, if anything, is unchanged."
        ) from error


@contextmanager
def locked(folder: str | Path, *, wait: bool = False) -> Iterator[None]:
    """Keep other processes out of a folder.

    The system opens the lock when this process ends, even if it is killed.

    Args:
        folder: made, if it is not there.
        wait: for the end of another process that is in the folder.

    Raises:
        CourseError: another process is in the folder, or nothing can be written there.
    """
    path = Path(folder) / ".lock"
    with _said_by_course(path.parent):
        file = _open_lock(path, wait)
    with file:
        with suppress(OSError):  # for the message of another process; the disk may be full
            file.truncate(0)
            os.write(file.fileno(), str(os.getpid()).encode())
        try:
            yield
        finally:
            with suppress(OSError):  # a folder with anything in it stays
                path.unlink()
                path.parent.rmdir()
    if not HAS_FLOCK:
        with suppress(OSError):  # Windows removes a file only when nobody has it open
            path.unlink()
            path.parent.rmdir()


def _open_lock(path: Path, wait: bool) -> IO[str]:
    """Open the lock file, and lock it for this process alone."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = path.open("a+")
        except FileNotFoundError:  # another process has just left, and its folder was empty
            continue
        try:
            _lock_file(file, wait)
            # Another process may have removed the file when it left, and a third made a new one.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except BlockingIOError:
            file.seek(0)
            number = file.read()  # still empty if the other process has just begun
            file.close()
            owner = f"Process {number}" if number else "Another process"
            raise CourseError(
                f"{owner} is writing in {path.parent}: wait for its end, stop it, or name another"
                " folder."
            ) from None
        except FileNotFoundError:
            pass
        file.close()


def _lock_file(file: IO[str], wait: bool) -> None:
    """Lock an open file for this process alone.

    Raises:
        BlockingIOError: another process holds the lock, and we do not wait.
    """
    if HAS_FLOCK:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    # `locking` locks a byte at the place where the file stands. It can wait itself, but only for
    # ten seconds.
    os.lseek(file.fileno(), LOCKED_BYTE, os.SEEK_SET)
    while True:
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            return
        except OSError:
            if not wait:
                raise BlockingIOError from None
            time.sleep(0.1)


def expand_home(path: str | Path) -> Path:
    """A path whose "~" is the user's home folder.

    It stays as it is where there is no such folder: for a user without one, as in a container, and
    in the name of another user who does not exist. `Path.expanduser` raises an error there.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as readable JSON, atomically."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    with atomic_write(path) as file:
        file.write(text + "\n")


def read_json(path: str | Path) -> Any:
    """Read a JSON file; a missing or broken one is a `CourseError` that names it.

    If a save of its folder was killed in its last step, that step is made first.
    """
    try:
        finish_save(Path(path).parent)
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CourseError(f"There is no file {path}.") from None
    except OSError as error:
        raise CourseError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CourseError(
            f"{path} is not valid JSON ({error}); restore it or make it again."
        ) from None
