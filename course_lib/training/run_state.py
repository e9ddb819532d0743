"""The state of a training run in one safetensors file: weights, optimizer, random numbers, step.

One file and one rename: after a crash or a SIGKILL at any moment, the file is the old state or the
new one."""

import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.files import atomic_path
from course_lib.model.tied import tied
from course_lib.training import distributed
from course_lib.training.distributed import ALONE, Processes

Recipe = Mapping[str, Any]  # what a run was asked for
_MOMENTS = {
    "AdamW": [{"step", "exp_avg", "exp_avg_sq"}],
    "Muon": [{"momentum"}, {"step", "mean", "square"}],
}
# of the JSON in the file's header
_SCHEMA = {"step": int, "twins": dict, "kind": str, "crc": int, "recipe": dict}


def save(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    step: int,
    processes: Processes = ALONE,
    *,
    recipe: Recipe | None = None,
) -> None:
    """Write the state after `step` updates to `path`, atomically, with the run's recipe. All
    processes take part, for each has random numbers of its own and perhaps shards of the weights;
    the main one writes, with the whole state in its (CPU) memory."""
    twins = tied(model)
    tensors = {
        f"model.{name}": value for name, value in model.state_dict().items() if name not in twins
    }
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {
            f"optimizer.{index}.{name}": value
            for name, value in state.items()
            if isinstance(value, Tensor)
        }
    whole: dict[str, Tensor] = {}
    for name, value in tensors.items():
        value = distributed.whole(value.detach())  # every process has to ask
        if processes.is_main:
            whole[name] = value.cpu().contiguous()
    for rank, random in enumerate(processes.gather(_random())):
        whole |= {_of(rank, name): state for name, state in random.items()}
    if not processes.is_main:
        return
    kind = type(optimizer).__name__
    rest = {
        "step": step,
        "twins": twins,
        "kind": kind,
        "crc": _crc(whole),
        "recipe": _plain(recipe),
    }
    with atomic_path(path) as new:
        try:
            # piece by piece: not all of it twice in memory
            save_file(whole, new, metadata={"state": json.dumps(rest)})
        except SafetensorError as error:
            raise OSError(str(error)) from error


def load(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, processes: Processes = ALONE
) -> int:
    """Put the state of `path` into the model, the optimizer and the random generators; the number
    of updates done.

    Any number of processes may go on with the run of any other; a new one begins with random
    numbers of its own. The learning rates and other settings stay those of `optimizer`. A file that
    does not fit changes nothing."""
    tensors, rest = _read(path)
    weights = _weights(path, model, tensors, rest)
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if part := re.fullmatch(r"optimizer\.(\d+)\.(.+)", name):
            state.setdefault(int(part[1]), {})[part[2]] = value
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    moved = all(
        set(values) in _MOMENTS.get(rest["kind"], [set(values)]) for values in state.values()
    )
    fits = rest["kind"] == type(optimizer).__name__ and all(
        index < len(trained)
        and v.is_floating_point()
        and (v.dim() == 0 or v.shape == trained[index].shape)
        for index, values in state.items()
        for v in values.values()
    )
    if not (fits and moved):
        raise CourseError(
            f"{path} is of another optimizer ({rest['kind']}) or trains other weights: remove it."
        )

    groups = optimizer.state_dict()["param_groups"]
    mine = model.state_dict()
    model.load_state_dict(
        {name: distributed.shard_like(value, mine[name]) for name, value in weights.items()}
    )
    for number, values in state.items():
        for key, value in values.items():
            if value.dim():
                values[key] = distributed.shard_like(value, trained[number])
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    _set_random(tensors, processes.rank)
    return int(rest["step"])


def load_model(path: Path, model: nn.Module) -> int:
    """Put the weights alone into the model, all of them, on one device; the number of updates
    done.
    """
    tensors, rest = _read(path)
    model.load_state_dict(_weights(path, model, tensors, rest))
    return int(rest["step"])


def steps_done(path: Path, recipe: Recipe | None = None) -> int:
    """How many updates the state of `path` has behind it, by its header alone; a CourseError if the
    run there has another recipe."""
    rest = _read(path, header=True)[1]
    there, here = rest["recipe"], _plain(recipe)
    if odd := [name for name in there if name in here and there[name] != here[name]]:
        said = ", ".join(f"{name} {there[name]} (here {here[name]})" for name in odd)
        raise CourseError(
            f"{path} is of a run with {said}: ask for the same, name another folder, or say"
            " --afresh."
        )
    return int(rest["step"])


def _read(path: Path, *, header: bool = False) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors (none by the header alone) and the rest of a state, all of the right types."""
    try:
        with safe_open(path, framework="pt") as file:
            rest = json.loads((file.metadata() or {}).get("state", "{}"))
            tensors = {} if header else {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise CourseError(
            f"The checkpoint {path} is damaged ({error}); remove it to start afresh."
        ) from error
    rest = {"recipe": {}, **rest} if isinstance(rest, dict) else {}  # older files have none
    if any(type(rest.get(key)) is not kind for key, kind in _SCHEMA.items()) or rest["step"] < 0:
        raise CourseError(
            f"{path} is not a training state of this course; remove it or name another file."
        )
    if not header:
        damage = "" if _crc(tensors) == rest["crc"] else "its checksum is wrong"
        try:
            for name in {"random.cpu", *(name for name in tensors if name.endswith(".random.cpu"))}:
                torch.Generator().set_state(tensors[name])
        except (KeyError, RuntimeError, TypeError):
            damage = damage or "its random numbers are missing or odd"
        if damage:
            raise CourseError(
                f"The checkpoint {path} is damaged ({damage}); remove it to start afresh."
            )
    return tensors, rest


def _plain(recipe: Recipe | None) -> dict[str, Any]:
    """As JSON gives it back."""
    return dict(json.loads(json.dumps(dict(recipe or {}), default=str)))


def _weights(
    path: Path, model: nn.Module, tensors: dict[str, Tensor], rest: dict[str, Any]
) -> dict[str, Tensor]:
    weights = {name[6:]: value for name, value in tensors.items() if name.startswith("model.")}
    weights |= {name: weights[twin] for name, twin in rest["twins"].items() if str(twin) in weights}
    theirs, mine = (
        {name: f"{tuple(value.shape)} of {value.dtype}" for name, value in state.items()}
        for state in (weights, model.state_dict())
    )
    odd = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
    if odd:
        name = odd[0]
        raise CourseError(
            f"{path} belongs to another model: {name} is {theirs.get(name, 'missing')} there and"
            f" {mine.get(name, 'missing')} here ({len(odd)} such in all); remove it or name another"
            " file."
        )
    return weights


def _random() -> dict[str, Tensor]:
    """The state of this process's random generators."""
    states = {"random.cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states |= {
            f"random.cuda.{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())
        }
    return states


def _set_random(tensors: dict[str, Tensor], rank: int) -> None:
    if _of(rank, "random.cpu") not in tensors:  # fewer processes wrote it
        torch.set_rng_state(tensors["random.cpu"])
        torch.manual_seed(int(torch.randint(2**62, ())) + rank)
        return
    torch.set_rng_state(tensors[_of(rank, "random.cpu")])
    devices = [
        tensors[name] for name in sorted(tensors) if name.startswith(_of(rank, "random.cuda."))
    ]
    if devices and torch.cuda.device_count() == len(devices):
        torch.cuda.set_rng_state_all(devices)


def _of(rank: int, name: str) -> str:
    return f"{rank}.{name}" if rank else name


def _crc(tensors: dict[str, Tensor]) -> int:
    crc = 0
    for name in sorted(tensors):
        crc = zlib.crc32(
            tensors[name].reshape(-1).view(torch.uint8).numpy().data, zlib.crc32(name.encode(), crc)
        )
    return crc
