"""The state of a training run in one safetensors file: weights, optimizer, random numbers, step.

One file and one rename: after a crash or a SIGKILL at any moment, the file is the old state or the new one.
"""

import json
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.files import atomic_write

_KEYS = {"step", "twins", "kind", "optimizer", "crc"}  # of the JSON in the file's header


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Write the state after `step` updates to `path`, atomically."""
    tensors, twins = _weights(model)
    scalars: dict[str, dict[str, Any]] = {}
    for index, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{name}"] = value
            else:
                scalars.setdefault(str(index), {})[name] = value
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        tensors |= {f"random.cuda.{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    kind = type(optimizer).__name__
    rest = {"step": step, "twins": twins, "kind": kind, "optimizer": scalars, "crc": _crc(tensors)}
    with atomic_write(path, "wb") as file:
        file.write(to_bytes(tensors, metadata={"state": json.dumps(rest)}))


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Put the state of `path` into the model, the optimizer and the random generators; the number of updates
    done.

    The learning rates and other settings stay those of `optimizer`: a resumed run may be given more steps.

    Raises:
        CourseError: damaged file, not a training state, or one of another model or optimizer. Nothing is
            changed then.
    """
    tensors, rest = _read(path)
    model_state = {name[6:]: value for name, value in tensors.items() if name.startswith("model.")}
    model_state |= {name: model_state[twin] for name, twin in rest["twins"].items()}
    _same(path, model, model_state)
    state: dict[int, dict[str, Any]] = {int(i): dict(values) for i, values in rest["optimizer"].items()}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            state.setdefault(int(index), {})[key] = value
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    fits = rest["kind"] == type(optimizer).__name__ and all(
        index < len(trained) and (not isinstance(v, Tensor) or v.dim() == 0 or v.shape == trained[index].shape)
        for index, values in state.items()
        for v in values.values()
    )
    if not fits:
        raise CourseError(
            f"{path} was written with another optimizer ({rest['kind']}, or other parameters trained); "
            "remove it to start afresh."
        )

    groups = optimizer.state_dict()["param_groups"]
    model.load_state_dict(model_state)
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    torch.set_rng_state(tensors["random.cpu"])
    devices = [tensors[name] for name in sorted(tensors) if name.startswith("random.cuda.")]
    if devices and torch.cuda.device_count() == len(devices):
        torch.cuda.set_rng_state_all(devices)
    return int(rest["step"])


def _weights(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Each tensor once, by its first name; and for the other names of tied tensors, that first name."""
    tensors: dict[str, Tensor] = {}
    twins: dict[str, str] = {}
    first: dict[tuple[Any, ...], str] = {}
    for name, value in model.state_dict().items():
        place = (value.data_ptr(), value.shape, value.stride(), value.dtype)
        if value.numel() and place in first:
            twins[name] = first[place]
        else:
            first[place] = name
            tensors[f"model.{name}"] = value
    return tensors, twins


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            rest: dict[str, Any] = json.loads((file.metadata() or {}).get("state", "{}"))
            if not rest.keys() >= _KEYS:
                raise CourseError(f"{path} is not a training state of this course; remove it or name another file.")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CourseError(f"The checkpoint {path} is damaged ({error}); remove it to start afresh.") from error
    if _crc(tensors) != rest["crc"]:
        raise CourseError(f"The checkpoint {path} is damaged (its checksum is wrong); remove it to start afresh.")
    return tensors, rest


def _same(path: Path, model: nn.Module, state: dict[str, Tensor]) -> None:
    mine = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    theirs = {name: tuple(value.shape) for name, value in state.items()}
    odd = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
    if odd:
        name = odd[0]
        raise CourseError(
            f"{path} belongs to another model: {name} is {theirs.get(name, 'missing')} there and "
            f"{mine.get(name, 'missing')} here ({len(odd)} such in all); remove it or name another file."
        )


def _crc(tensors: dict[str, Tensor]) -> int:
    crc = 0
    for name in sorted(tensors):
        crc = zlib.crc32(name.encode(), crc)
        crc = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, crc)
    return crc
