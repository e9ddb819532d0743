"""Pictures that students hand in: which of them a browser may be given.

Only PNG and JPEG, told by their first bytes, and of a size that no browser chokes on.
"""

import base64
import hashlib
import re
import struct
from collections.abc import Iterator
from typing import Any

LARGEST = 3_000_000  # characters in base64
MOST_POINTS = 40_000_000  # width times height
IN_TEXT = re.compile(r"data:image/(?:png|jpe?g);base64,([A-Za-z0-9+/=\s]+)")
PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
# segments of a JPEG that hold its height and width
FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


def sound(text: Any) -> str:
    """What follows "data:image/" for a picture in base64; "" where it is none that can be shown."""
    if not isinstance(text, str) or len(text) > LARGEST:
        return ""
    try:
        raw = base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        return ""
    for kind, points in (("png", _png_points), ("jpeg", _jpeg_points)):
        if 0 < points(raw) <= MOST_POINTS:
            return f"{kind};base64,{base64.b64encode(raw).decode()}"
    return ""


def _png_points(raw: bytes) -> int:
    if not raw.startswith(PNG) or raw[12:16] != b"IHDR" or len(raw) < 24:
        return 0
    width, height = struct.unpack(">II", raw[16:24])
    return int(width * height)


def _jpeg_points(raw: bytes) -> int:
    if not raw.startswith(JPEG):
        return 0
    place = 2
    while place + 9 <= len(raw) and raw[place] == 0xFF:
        length = int.from_bytes(raw[place + 2 : place + 4], "big")
        if raw[place + 1] in FRAMES:
            height, width = struct.unpack(">HH", raw[place + 5 : place + 9])
            return int(width * height)
        place += 2 + max(2, length)
    return 0


def taken_out(source: str) -> tuple[str, list[str]]:
    """A text without the pictures that stand in it as addresses, and these."""
    found = IN_TEXT.findall(source)
    return IN_TEXT.sub("(picture)", source), found


def attached(cell: Any) -> Iterator[str]:
    """The pictures that were pasted into a text cell, in base64."""
    attachments = cell.get("attachments") if isinstance(cell, dict) else None
    for bundle in attachments.values() if isinstance(attachments, dict) else ():
        for kind, text in bundle.items() if isinstance(bundle, dict) else ():
            if isinstance(text, str) and str(kind).startswith("image/"):
                yield text


def named(pictures: list[str]) -> str:
    """A line that stands for pictures in a text; it changes with them."""
    words = [hashlib.sha256(text.encode()).hexdigest()[:8] for text in pictures]
    return f"(pictures: {', '.join(words)})"
