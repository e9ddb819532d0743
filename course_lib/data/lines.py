"""Read the lines of a text file, compressed or not, in UTF-8, UTF-16 or UTF-32.

    list(read_lines(Path("train.tsv.gz")))    [(1, "good\\t1"), (2, "bad\\t0")]

Each line comes with its number, so that a message can name it. A file that is no text, such as an
Excel file, is refused by a sentence that says what to do.
"""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from course_lib.errors import CourseError

# Extension of a compressed file -> the function that opens it.
PACKED: dict[str, Callable[..., IO[bytes]]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}  # type: ignore[dict-item]
# The first bytes of a file (byte order mark) -> its encoding. UTF-32 must come before UTF-16: the
# mark of UTF-32 (little-endian) starts with that of UTF-16.
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# The first bytes of a file that is no text -> what it is, and what the user can do.
NO_TEXT = {
    b"PK\x03\x04": "an Excel or Word file, or an archive; save a table as CSV, unpack an archive",
    b"\xd0\xcf\x11\xe0": "an old Excel or Word file; save it as CSV or text",
    b"%PDF-": "a PDF file; save it as text",
    b"PAR1": "a Parquet file; end its name with .parquet",
    b"\x1f\x8b": "packed by gzip; end its name with .gz",
    b"BZh91AY": "packed by bzip2; end its name with .bz2",
    b"\xfd7zXZ": "packed by xz; end its name with .xz",
    b"\x28\xb5\x2f\xfd": "packed by zstd; unpack it",
    b"7z\xbc\xaf": "an archive; unpack it",
    b"Rar!": "an archive; unpack it",
    b"{\\rtf": "an RTF file; save it as text",
    b"<!DOCTYPE html": "a web page; fetch the file that it shows, or save the page as text",
    b"<html": "a web page; fetch the file that it shows, or save the page as text",
    b"version https://git-lfs": "a placeholder of Git LFS; fetch the file itself by git lfs pull",
}


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, line) for each line of a text file, from number 1, without the line's end.

    The file is UTF-8, or UTF-16 or UTF-32 with a byte order mark, which Excel's "Unicode text" has.
    A line ends with LF, CR LF (Windows) or CR (old Macs). Only one line is in memory at a time, so
    the file may be large.

    Args:
        path: a text file; one that ends in .gz, .bz2 or .xz is unpacked while it is read.

    Raises:
        CourseError: the file is empty, damaged, or no text in one of these encodings.
    """
    number = 0
    empty = True
    try:
        with PACKED.get(path.suffix.lower(), open)(path, "rb") as file:
            refuse_no_text(path, file)
            for line in _decoded(file):
                empty = empty and not line.strip()
                for part in line.rstrip("\r\n").split("\r"):
                    number += 1
                    if "\0" in part:
                        raise wrong(
                            path,
                            f"line {number}",
                            "a NUL character, so this is no UTF-8 text; save the file as UTF-8.",
                        )
                    yield number, part
    except UnicodeDecodeError as error:
        message = f"{_undecoded(error)}; save the file as UTF-8 (in Excel: CSV UTF-8)."
        raise wrong(path, f"line {number + 1}", message) from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise CourseError(f"{path} cannot be read, or is damaged or cut short ({error}).") from None
    if empty:
        raise CourseError(f"{path} is empty.")


def unpacked(path: Path) -> Path:
    """The path without the extension of a compressed file: "train.en.gz" becomes "train.en"."""
    return path.with_suffix("") if path.suffix.lower() in PACKED else path


def refuse_no_text(path: Path, file: IO[bytes]) -> None:
    """Refuse a file whose first bytes show that it is no text. Reading still starts at byte 0.

    Raises:
        CourseError: it is an Excel file, an archive, a placeholder of Git LFS or the like.
    """
    first_bytes = _peek(file)
    for signature, kind in NO_TEXT.items():
        if first_bytes.startswith(signature):
            raise CourseError(f"{path} is {kind}.")


def wrong(path: Path, location: str, message: str) -> CourseError:
    """An error that names the file and a location in it, such as "line 3"."""
    return CourseError(f"{path}, {location}: {message}")


def _decoded(file: IO[bytes]) -> Iterator[str]:
    """The lines of an open file as text, with their ends."""
    first_bytes = _peek(file)
    encoding = "utf-8"
    for mark, name in BYTE_ORDER_MARKS.items():
        if first_bytes.startswith(mark):
            encoding = name
            break  # a UTF-32 file also starts with UTF-16's mark
    if encoding in ("utf-16", "utf-32"):
        with io.TextIOWrapper(file, encoding, newline="\n") as text:
            yield from text
        return
    # Decode line by line, so that an error message can name the line.
    for raw in file:
        yield raw.decode(encoding)
        encoding = "utf-8"  # only the first line has the byte order mark


def _undecoded(error: UnicodeDecodeError) -> str:
    """What is wrong, and what character an old Windows program would have meant by this byte."""
    if error.encoding != "utf-8":
        return f"not {error.encoding.upper()} text"
    byte = error.object[error.start : error.start + 1]
    meant = byte.decode("cp1252", errors="ignore")
    windows = f", {meant!r} in Windows-1252" if meant else ""
    return f"not UTF-8 text (its byte {error.start} is 0x{byte.hex()}{windows})"


def _peek(file: IO[bytes]) -> bytes:
    """The first bytes of an open file; they stay there to be read."""
    return cast(io.BufferedReader, file).peek(64)
