"""Save the state of a training run in a file, so that a stopped run can resume.

The state is all that the next step depends on: weights, the optimizer's running means, random
generators and the number of steps. It is one safetensors file, a dict of tensors and a header:

    model.embed.tokens.weight     a weight; one that several layers share (tied) is saved once
    optimizer.0.exp_avg           a running mean that the optimizer keeps for its weight number 0
    random.cpu, random.cuda.0     random generators; 1.random.cpu is that of process 1
    "state" in the header         all other values, as JSON: see `HEADER`

The file is written under another name and then renamed. So after a crash at any moment it holds
either the old state or the new one.
"""

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

Recipe = Mapping[str, Any]  # the settings that decide a run's result, such as {"lr": 0.001}
Tensors = dict[str, Tensor]

# The values that each optimizer keeps for a weight (its moments). Muon keeps the first set for a
# matrix and the second for other weights.
MOMENTS = {
    "AdamW": [{"step", "exp_avg", "exp_avg_sq"}],
    "Muon": [{"momentum"}, {"step", "mean", "square"}],
}
# The entries of the JSON in the header, and their types.
HEADER = {
    "step": int,  # number of updates
    "tied_to": dict,  # further name of a tied weight -> its first name; both without "model."
    "optimizer": str,  # name of the optimizer's class
    "crc": int,  # checksum of all tensors
    "recipe": dict,  # see `Recipe`
}
OLD_NAMES = {"twins": "tied_to", "kind": "optimizer"}  # as older files call these entries


def save(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    step: int,
    processes: Processes = ALONE,
    *,
    recipe: Recipe | None = None,
) -> None:
    """Save the state after `step` updates.

    If several processes train together, all of them must call this: each has random generators of
    its own, and perhaps only a shard (a part) of each weight. The main process writes the file and
    needs CPU memory for the whole state.

    Args:
        path: the file to write.
        model: the model.
        optimizer: the optimizer.
        step: number of updates so far.
        processes: the processes that train together.
        recipe: the run's settings. A run with other settings cannot resume from this file.

    Raises:
        OSError: the file cannot be written.
    """
    tied_to = tied(model)
    own: Tensors = {}  # what this process has of the weights and moments, perhaps only shards
    for name, value in model.state_dict().items():
        if name not in tied_to:  # a tied weight is saved once, under its first name
            own[f"model.{name}"] = value
    for number, moments in optimizer.state_dict()["state"].items():
        for name, value in moments.items():
            if isinstance(value, Tensor):
                own[f"optimizer.{number}.{name}"] = value

    tensors: Tensors = {}
    for name, value in own.items():
        value = distributed.full_tensor(value.detach())  # every process has to call this
        if processes.is_main:
            tensors[name] = value.cpu().contiguous()
    for rank, random in enumerate(processes.gather(_random_state())):
        for name, value in random.items():
            tensors[_name_for(rank, name)] = value
    if not processes.is_main:
        return

    header = {
        "step": step,
        "tied_to": tied_to,
        "optimizer": type(optimizer).__name__,
        "crc": _crc(tensors),
        "recipe": _as_json(recipe),
    }
    with atomic_path(path) as new:
        try:
            # This writes one tensor after the other. `safetensors.torch.save` would first copy them
            # all in memory.
            save_file(tensors, new, metadata={"state": json.dumps(header)})
        except SafetensorError as error:
            raise OSError(str(error)) from error


def load(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, processes: Processes = ALONE
) -> int:
    """Load a state into the model, the optimizer and the random generators.

    The number of processes may have changed: a new process gets a new random generator. The
    learning rate and other settings of `optimizer` stay as they are.

    Args:
        path: the file.
        model: a model of the same architecture.
        optimizer: an optimizer of the same class, for the same weights.
        processes: the processes that train together.

    Returns:
        The number of updates so far.

    Raises:
        CourseError: the file is damaged or belongs to another model; then nothing has changed.
    """
    tensors, header = _read(path)
    weights = _weights(path, model, tensors, header)
    trained: list[Tensor] = []
    for group in optimizer.param_groups:
        trained += group["params"]
    moments = _moments(path, optimizer, trained, tensors, header)

    # Everything has been checked, so now the model and the optimizer may change. If this training
    # uses shards, `shard_like` cuts each tensor as the model's are cut.
    present = model.state_dict()
    model.load_state_dict(
        {name: distributed.shard_like(value, present[name]) for name, value in weights.items()}
    )
    for number, values in moments.items():
        for name, value in values.items():
            if value.dim():  # the step is a single number, which is never cut
                values[name] = distributed.shard_like(value, trained[number])
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": moments, "param_groups": groups})
    _set_random_state(tensors, processes.rank)
    return int(header["step"])


def load_model(path: Path, model: nn.Module) -> int:
    """Load only the weights, without optimizer and random generators, for example to test a model.

    Returns:
        The number of updates that the weights have had.
    """
    tensors, header = _read(path)
    model.load_state_dict(_weights(path, model, tensors, header))
    return int(header["step"])


def steps_done(path: Path, recipe: Recipe | None = None) -> int:
    """The number of updates of a saved state. This reads only the header, so it is fast.

    Args:
        path: the file.
        recipe: the settings of the run that wants to resume.

    Raises:
        CourseError: a setting that both recipes have differs.
    """
    header = _read_header(path)
    saved = header["recipe"]
    wanted = _as_json(recipe)
    differing = [name for name in saved if name in wanted and saved[name] != wanted[name]]
    if differing:
        differences = ", ".join(f"{name} {saved[name]} (here {wanted[name]})" for name in differing)
        raise CourseError(
            f"{path} is of a run with {differences}: use the same settings, choose another folder,"
            " or start afresh (resume=False, on the command line --afresh)."
        )
    return int(header["step"])


def _read_header(path: Path) -> dict[str, Any]:
    try:
        with safe_open(path, framework="pt") as file:
            header: dict[str, Any] = json.loads((file.metadata() or {}).get("state", "{}"))
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from error
    if isinstance(header, dict):
        header = {OLD_NAMES.get(name, name): value for name, value in header.items()}
    # `isinstance` would also take True for an int.
    fits = isinstance(header, dict) and all(
        type(header.get(name)) is expected for name, expected in HEADER.items()
    )
    if not fits or header["step"] < 0:
        raise CourseError(
            f"{path} is not a training state of this course; remove it or name another file."
        )
    return header


def _read(path: Path) -> tuple[Tensors, dict[str, Any]]:
    header = _read_header(path)
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            tensors = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    if _crc(tensors) != header["crc"]:
        raise _damaged(path, "its checksum is wrong")
    of_others = [name for name in tensors if name.endswith(".random.cpu")]  # of processes 1, 2, ...
    try:
        for name in ("random.cpu", *of_others):
            # This generator is thrown away: it raises an error if the state is not valid.
            torch.Generator().set_state(tensors[name])
    except (KeyError, RuntimeError, TypeError) as error:
        raise _damaged(path, "its random numbers are missing or odd") from error
    return tensors, header


def _damaged(path: Path, why: str) -> CourseError:
    return CourseError(f"The checkpoint {path} is damaged ({why}); remove it to start afresh.")


def _as_json(recipe: Recipe | None) -> dict[str, Any]:
    """A recipe as it comes back from JSON, for comparing: (0.9, 0.98) becomes [0.9, 0.98]."""
    return dict(json.loads(json.dumps(dict(recipe or {}), default=str)))


def _weights(path: Path, model: nn.Module, tensors: Tensors, header: dict[str, Any]) -> Tensors:
    """The model's weights by name. A tied weight appears under each of its names."""
    weights = {
        name.removeprefix("model."): value
        for name, value in tensors.items()
        if name.startswith("model.")
    }
    for name, first_name in header["tied_to"].items():
        # The checksum does not cover the header, so there may be anything in it.
        if isinstance(first_name, str) and first_name in weights:
            weights[name] = weights[first_name]

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
    """The shape and type of each tensor, as a text for an error message."""
    return {name: f"{tuple(value.shape)} of {value.dtype}" for name, value in tensors.items()}


def _moments(
    path: Path,
    optimizer: torch.optim.Optimizer,
    trained: list[Tensor],
    tensors: Tensors,
    header: dict[str, Any],
) -> dict[int, Tensors]:
    """The optimizer's moments: number of the weight -> name -> value."""
    moments: dict[int, Tensors] = {}
    for name, value in tensors.items():
        match = re.fullmatch(r"optimizer\.(\d+)\.(.+)", name)
        if match:
            moments.setdefault(int(match[1]), {})[match[2]] = value

    saved_by = header["optimizer"]
    if saved_by != type(optimizer).__name__ or not _fit(moments, trained, MOMENTS.get(saved_by)):
        raise CourseError(
            f"{path} is of another optimizer ({saved_by}) or trains other weights: remove it."
        )
    return moments


def _fit(moments: dict[int, Tensors], trained: list[Tensor], known: list[set[str]] | None) -> bool:
    """Whether the moments can be those of the trained weights.

    Args:
        moments: number of the weight -> name -> value.
        trained: the weights.
        known: the sets of names that the optimizer may keep for a weight. None: it is not in
            `MOMENTS` (SGD, for example), so any names are accepted.
    """
    for number, values in moments.items():
        if number >= len(trained):
            return False
        if known is not None and set(values) not in known:
            return False
        for value in values.values():
            if not value.is_floating_point():
                return False
            # The step is a single number. All other moments have the shape of the weight.
            if value.dim() > 0 and value.shape != trained[number].shape:
                return False
    return True


def _random_state() -> Tensors:
    states = {"random.cpu": torch.get_rng_state()}
    # A run on the CPU must not start CUDA, which takes time and GPU memory.
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for index, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"random.cuda.{index}"] = state
    return states


def _set_random_state(tensors: Tensors, rank: int) -> None:
    """Restore the random generators of this process.

    On a machine with another number of GPUs, the generators of the GPUs stay as they are. The run
    then continues with other random numbers there, and no error is raised.
    """
    name = _name_for(rank, "random.cpu")
    if name not in tensors:
        # The run had fewer processes. Seed this one's generator by a number that the main process's
        # generator draws, so that every resume from this file does the same.
        torch.set_rng_state(tensors["random.cpu"])
        torch.manual_seed(int(torch.randint(2**62, ())) + rank)
        return
    torch.set_rng_state(tensors[name])

    prefix = _name_for(rank, "random.cuda.")
    on_gpus = [name for name in tensors if name.startswith(prefix)]
    # Sort by number: as a text, "random.cuda.10" comes before "random.cuda.2".
    on_gpus.sort(key=lambda name: int(name.removeprefix(prefix)))
    if on_gpus and torch.cuda.device_count() == len(on_gpus):
        torch.cuda.set_rng_state_all([tensors[name] for name in on_gpus])


def _name_for(rank: int, name: str) -> str:
    """The name in the file: "random.cpu" for the main process, "1.random.cpu" for process 1."""
    return f"{rank}.{name}" if rank else name


def _crc(tensors: Tensors) -> int:
    """A checksum (CRC-32) of all names and all bytes: it shows whether the file is damaged."""
    crc = 0
    for name in sorted(tensors):
        crc = zlib.crc32(name.encode(), crc)
        content = tensors[name].reshape(-1).view(torch.uint8).numpy().data
        crc = zlib.crc32(content, crc)
    return crc
