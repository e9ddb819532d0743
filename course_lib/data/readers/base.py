"""What all readers share: a file as numbered lines, and the sentence that says what is wrong in which line."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from course_lib.errors import CourseError

Row = dict[str, Any]
Columns = Mapping[str, str | int]  # our name -> the file's: a header's or field's name, or a column's number from 0
Placed = tuple[str, Row]  # where in the file a row stands ("line 3"), and the row
Reader = Callable[[Path, Columns | None], Iterator[Placed]]

PACKED: dict[str, Callable[..., IO[bytes]]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}  # type: ignore[dict-item]


def unpacked(path: Path) -> Path:
    """The name without .gz and the like: "train.en.gz" is a "train.en"."""
    return path.with_suffix("") if path.suffix.lower() in PACKED else path


def wrong(path: Path, place: str, message: str) -> CourseError:
    """The sentence for something wrong inside a file."""
    return CourseError(f"{path}, {place}: {message}")


def read_raw(path: Path) -> Iterator[str]:
    r"""The lines of a UTF-8 file, unpacked on the way, each ending in one \n; never the whole file at once.

    Raises:
        CourseError: there is no such file, it cannot be read, it is empty, or it is not UTF-8.
    """
    number, empty = 0, True
    try:
        with PACKED.get(path.suffix.lower(), open)(path, "rb") as file:
            for number, raw in enumerate(file, start=1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                empty = empty and not line.strip()
                yield line[:-2] + "\n" if line.endswith("\r\n") else line
    except UnicodeDecodeError as error:
        byte = f"its byte {error.start} is 0x{error.object[error.start]:02x}"
        raise wrong(path, f"line {number}", f"not UTF-8 text ({byte}); convert the file to UTF-8.") from None
    except FileNotFoundError:
        raise CourseError(f"There is no file {path}; check the path.") from None
    except IsADirectoryError:
        raise CourseError(f"{path} is a folder; name the file inside it.") from None
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise CourseError(f"{path} is damaged or cut short ({error}); fetch it again.") from None
    except OSError as error:
        raise CourseError(f"{path} cannot be read: {error.strerror or error}.") from None
    if empty:
        raise CourseError(f"{path} is empty.")


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, line without its end); raises as `read_raw` does."""
    return ((number, line.removesuffix("\n")) for number, line in enumerate(read_raw(path), start=1))


def read_file(path: str | Path) -> str:
    """A file as text, with line ends made uniform; raises as `read_raw` does."""
    return "".join(read_raw(Path(path)))
