"""What travels between the grader and the box: JSON and safetensors in frames of a stated length,
never a pickle.
"""

import json
import re
import struct
from typing import IO, Any

from safetensors.torch import load, save
from torch import Tensor

HEAD = struct.Struct(">II")
LARGEST = 16 * 2**20  # bytes of one frame's part; a longer one ends the conversation
MOST_VALUES = 100_000  # beside tensors: looking at each must not cost the grader minutes
LARGEST_INTEGER = 2**63
NAME = re.compile(r"[A-Za-z_][\w.]{0,39}")

# Bound here, so that code which replaces functions in these modules does not reach the conversation
# by accident.
_dumps, _loads, _save, _load = json.dumps, json.loads, save, load


class BrokenFrameError(Exception):
    """What arrived is not a frame of ours."""


class Odd:
    """Stands for a result that is not data (a numpy array, a module, ...). Only its type's name
    travels.
    """

    def __repr__(self) -> str:
        """The same for all of one type, so that equal mistakes are said in the same words."""
        return f"<{type(self).__module__}.{type(self).__name__}>"


def write(file: IO[bytes], message: Any) -> None:
    """Send one message: anything made of tensors, numbers, text, None, lists, tuples and dicts with
    text keys.
    """
    tensors: dict[str, Tensor] = {}
    text = _dumps(_pack(message, tensors)).encode()
    blob = _save(tensors) if tensors else b""
    if len(text) > LARGEST or len(blob) > LARGEST:
        raise BrokenFrameError("the result is larger than 16 MB")
    if text.count(b",") > MOST_VALUES:
        raise BrokenFrameError(f"the result holds more than {MOST_VALUES:,} values beside tensors")
    file.write(HEAD.pack(len(text), len(blob)) + text + blob)
    file.flush()


def read(file: IO[bytes]) -> Any:
    """The next message; None at the end; BrokenFrameError where anything else has arrived."""
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    sizes = HEAD.unpack(head)
    if max(sizes) > LARGEST:
        raise BrokenFrameError("a message is too long")
    text, blob = (file.read(size) for size in sizes)
    if text.count(b",") > MOST_VALUES:
        raise BrokenFrameError("a message holds too many values")
    try:
        return _unpack(_loads(text), _load(blob) if blob else {})
    except Exception as error:  # whatever a student's process has sent
        raise BrokenFrameError("a message cannot be read") from error


def _pack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if (
        value is None
        or isinstance(value, float | str)
        or (isinstance(value, int) and abs(value) < LARGEST_INTEGER)
    ):
        return value
    if (
        isinstance(value, Tensor)
        and not value.is_sparse
        and not value.is_complex()
        and not value.is_quantized
    ):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {"$tensor": name}
    if isinstance(value, tuple):
        return {"$tuple": [_pack(item, tensors) for item in value]}
    if isinstance(value, list):
        return [_pack(item, tensors) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"$dict": {key: _pack(item, tensors) for key, item in value.items()}}
    if value is ...:
        return None
    return {"$odd": [type(value).__module__, type(value).__name__]}


def _unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, tensors) for item in value]
    if isinstance(value, int) and abs(value) >= LARGEST_INTEGER:
        return Odd()  # too large for a float, and so for a comparison
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "$tensor":
        return tensors[inner]
    if kind == "$tuple":
        return tuple(_unpack(item, tensors) for item in inner)
    if kind == "$dict":
        return {str(key): _unpack(item, tensors) for key, item in inner.items()}
    module, name = (part if NAME.fullmatch(str(part)) else "object" for part in inner)
    return type(name, (Odd,), {"__module__": module})()
