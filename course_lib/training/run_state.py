"""The state of a training run in one safetensors file: weights, optimizer, random numbers, step.

One file and one rename: after a crash or a SIGKILL at any moment, the file is the old state or the
new one.

    model.NAME              the weights; tied weights once
    optimizer.NUMBER.NAME   what the optimizer keeps of weight NUMBER
    random.cpu              the random generators; of process 1, 1.random.cpu
    "state" in the header   everything else, as JSON"""

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

Recipe = Mapping[str, Any]  # the settings that decide a run's result
Tensors = dict[str, Tensor]

# What an optimizer keeps of a weight. Muon keeps one thing of a matrix, another of a vector.
MOMENTS = {
    "AdamW": [{"step", "exp_avg", "exp_avg_sq"}],
    "Muon": [{"momentum"}, {"step", "mean", "square"}],
}
# The JSON in the file's header, and the types of its values.
HEADER = {"step": int, "twins": dict, "kind": str, "crc": int, "recipe": dict}


def save(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    step: int,
    processes: Processes = ALONE,
    *,
    recipe: Recipe | None = None,
) -> None:
    """Write the state after `step` updates, atomically.

    All processes take part, for each has random numbers of its own and perhaps shards of the
    weights. The main one writes, with the whole state in its (CPU) memory.

    Args:
        path: the file.
        model: whose weights are kept.
        optimizer: whose moments are kept.
        step: updates done.
        processes: those that train together.
        recipe: the run's settings. A later run with other settings is refused.
    """
    twins = tied(model)
    parts = {
        f"model.{name}": value for name, value in model.state_dict().items() if name not in twins
    }
    for number, moments in optimizer.state_dict()["state"].items():
        for name, value in moments.items():
            if isinstance(value, Tensor):
                parts[f"optimizer.{number}.{name}"] = value

    tensors: Tensors = {}
    for name, value in parts.items():
        value = distributed.whole(value.detach())  # every process has to ask
        if processes.is_main:
            tensors[name] = value.cpu().contiguous()
    for rank, random in enumerate(processes.gather(_random_state())):
        for name, value in random.items():
            tensors[_of_process(rank, name)] = value
    if not processes.is_main:
        return

    header = {
        "step": step,
        "twins": twins,
        "kind": type(optimizer).__name__,
        "crc": _crc(tensors),
        "recipe": _as_json(recipe),
    }
    with atomic_path(path) as new:
        try:
            # tensor by tensor: not all of them twice in memory
            save_file(tensors, new, metadata={"state": json.dumps(header)})
        except SafetensorError as error:
            raise OSError(str(error)) from error


def load(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, processes: Processes = ALONE
) -> int:
    """Put a state into the model, the optimizer and the random generators.

    A run may be resumed by another number of processes. A new process begins with
    random numbers of its own. The learning rates and other settings stay those of `optimizer`.

    Returns:
        how many updates are done.

    Raises:
        CourseError: if the file is damaged or does not fit; then nothing has changed.
    """
    tensors, header = _read(path)
    weights = _weights(path, model, tensors, header)
    trained: list[Tensor] = []
    for group in optimizer.param_groups:
        trained += group["params"]
    moments = _moments(path, optimizer, trained, tensors, header)

    # Both fit, so now the model and the optimizer are changed. `shard_like` does nothing where
    # there are no shards.
    present = model.state_dict()
    model.load_state_dict(
        {name: distributed.shard_like(value, present[name]) for name, value in weights.items()}
    )
    for number, values in moments.items():
        for name, value in values.items():
            if value.dim():
                values[name] = distributed.shard_like(value, trained[number])
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": moments, "param_groups": groups})
    _set_random_state(tensors, processes.rank)
    return int(header["step"])


def load_model(path: Path, model: nn.Module) -> int:
    """Put the weights alone into the model, all of them, on one device.

    Returns:
        how many updates are done.
    """
    tensors, header = _read(path)
    model.load_state_dict(_weights(path, model, tensors, header))
    return int(header["step"])


def steps_done(path: Path, recipe: Recipe | None = None) -> int:
    """How many updates were made before a state was saved; only its header is read.

    Raises:
        CourseError: if the run there had another recipe. Only what both recipes name is compared.
    """
    header = _read_header(path)
    saved = header["recipe"]
    wanted = _as_json(recipe)
    differing = [name for name in saved if name in wanted and saved[name] != wanted[name]]
    if differing:
        differences = ", ".join(f"{name} {saved[name]} (here {wanted[name]})" for name in differing)
        raise CourseError(
            f"{path} is of a run with {differences}: ask for the same, name another folder, or say"
            " --afresh."
        )
    return int(header["step"])


def _read_header(path: Path) -> dict[str, Any]:
    """The JSON of the file's header, all of the right types."""
    try:
        with safe_open(path, framework="pt") as file:
            header: dict[str, Any] = json.loads((file.metadata() or {}).get("state", "{}"))
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    fits = isinstance(header, dict) and all(
        type(header.get(name)) is kind for name, kind in HEADER.items()
    )
    if not fits or header["step"] < 0:
        raise CourseError(
            f"{path} is not a training state of this course; remove it or name another file."
        )
    return header


def _read(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """The tensors and the header, after the checksum has been compared."""
    header = _read_header(path)
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            tensors = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    if _crc(tensors) != header["crc"]:
        raise _damaged(path, "its checksum is wrong")
    generators = [name for name in tensors if name.endswith(".random.cpu")]
    try:
        for name in ("random.cpu", *generators):
            torch.Generator().set_state(tensors[name])
    except (KeyError, RuntimeError, TypeError) as error:
        raise _damaged(path, "its random numbers are missing or odd") from error
    return tensors, header


def _damaged(path: Path, why: str) -> CourseError:
    return CourseError(f"The checkpoint {path} is damaged ({why}); remove it to start afresh.")


def _as_json(recipe: Recipe | None) -> dict[str, Any]:
    """A recipe as JSON gives it back: tuples are lists, paths are texts."""
    return dict(json.loads(json.dumps(dict(recipe or {}), default=str)))


def _weights(path: Path, model: nn.Module, tensors: Tensors, header: dict[str, Any]) -> Tensors:
    """The model's weights, the tied ones under each of their names."""
    weights = {
        name.removeprefix("model."): value
        for name, value in tensors.items()
        if name.startswith("model.")
    }
    for name, twin in header["twins"].items():
        if str(twin) in weights:
            weights[name] = weights[twin]

    saved = _shapes(weights)
    needed = _shapes(model.state_dict())
    names = saved.keys() | needed.keys()
    differing = sorted(name for name in names if saved.get(name) != needed.get(name))
    if differing:
        name = differing[0]
        raise CourseError(
            f"{path} belongs to another model: {name} is {saved.get(name, 'missing')} there and"
            f" {needed.get(name, 'missing')} here ({len(differing)} such in all); remove it or name"
            " another file."
        )
    return weights


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Shape and type of each tensor, as a text that can be compared and shown."""
    return {name: f"{tuple(value.shape)} of {value.dtype}" for name, value in tensors.items()}


def _moments(
    path: Path,
    optimizer: torch.optim.Optimizer,
    trained: list[Tensor],
    tensors: Tensors,
    header: dict[str, Any],
) -> dict[int, Tensors]:
    """What the optimizer keeps, by the number of the weight."""
    moments: dict[int, Tensors] = {}
    for name, value in tensors.items():
        match = re.fullmatch(r"optimizer\.(\d+)\.(.+)", name)
        if match:
            moments.setdefault(int(match[1]), {})[match[2]] = value

    fits = header["kind"] == type(optimizer).__name__
    for number, values in moments.items():
        known = MOMENTS.get(header["kind"], [set(values)])
        fits = fits and set(values) in known and number < len(trained)
        for value in values.values():
            # a number, such as the step, or one number for each of the weight's
            has_shape = value.dim() == 0 or (fits and value.shape == trained[number].shape)
            fits = fits and value.is_floating_point() and has_shape
    if not fits:
        raise CourseError(
            f"{path} is of another optimizer ({header['kind']}) or trains other weights: remove it."
        )
    return moments


def _random_state() -> Tensors:
    """The state of this process's random generators."""
    states = {"random.cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for index, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"random.cuda.{index}"] = state
    return states


def _set_random_state(tensors: Tensors, rank: int) -> None:
    """Restore this process's random generators; seed them where fewer processes saved the state."""
    name = _of_process(rank, "random.cpu")
    if name not in tensors:
        # New numbers, but the same ones whenever the run goes on from this state.
        torch.set_rng_state(tensors["random.cpu"])
        torch.manual_seed(int(torch.randint(2**62, ())) + rank)
        return
    torch.set_rng_state(tensors[name])
    on_gpus = sorted(name for name in tensors if name.startswith(_of_process(rank, "random.cuda.")))
    if on_gpus and torch.cuda.device_count() == len(on_gpus):
        torch.cuda.set_rng_state_all([tensors[name] for name in on_gpus])


def _of_process(rank: int, name: str) -> str:
    """The name of a process's tensor in the file."""
    return f"{rank}.{name}" if rank else name


def _crc(tensors: Tensors) -> int:
    """A checksum of all names and all bytes."""
    crc = 0
    for name in sorted(tensors):
        crc = zlib.crc32(name.encode(), crc)
        content = tensors[name].reshape(-1).view(torch.uint8).numpy().data
        crc = zlib.crc32(content, crc)
    return crc
