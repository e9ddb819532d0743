"""Several processes, one training run: data parallel, or weights in shards (FSDP).

`accelerate launch --multi_gpu --num_processes 2 -m course_lib pretrain ...` starts the processes
(on CPUs too, with `--device cpu` behind `pretrain`); `train()` finds itself among them. Every
process takes its rows of the same batch, so the update is that of one process alone. With
`--use_fsdp` in place of `--multi_gpu` the weights and the optimizer's moments are cut into shards,
one a process (ZeRO stage 3, Rajbhandari et al. 2020), gathered block by block."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from course_lib.model.layers import Block

Value = TypeVar("Value")
PATIENCE = timedelta(days=2)  # a corpus may take long to tokenize


@dataclass(frozen=True)
class Processes:
    """This process and how many there are. With one process, everything below does nothing.

    Attributes:
        rank: the number of this process, from 0.
        world: the number of processes.
        sharded: whether FSDP has cut the weights into shards.
    """

    rank: int = 0
    world: int = 1
    sharded: bool = False

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def mean(self, value: Tensor) -> Tensor:
        """The mean over all processes; all of them have to call this."""
        if self.world == 1:
            return value
        total = value.clone()
        dist.all_reduce(total)
        return total / self.world

    def gather(self, value: Any) -> list[Any]:
        """Every process's value, by rank; on the main process (elsewhere nothing)."""
        if self.world == 1:
            return [value]
        values: list[Any] | None = [None] * self.world if self.is_main else None
        dist.gather_object(value, values)
        return values or []

    def agree(self, value: Any) -> Any:
        """The main process's value, on all of them."""
        if self.world == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def wait(self) -> None:
        """Until all processes have come here, however long one of them takes."""
        if self.world > 1:
            dist.monitored_barrier(dist.new_group(backend="gloo", timeout=PATIENCE), PATIENCE)


ALONE = Processes()


def join(device: torch.device) -> tuple[Processes, torch.device]:
    """The processes that a launcher started, and the device of this one.

    Args:
        device: what the user asked for. "cuda" becomes "cuda:1" in process 1.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return ALONE, device
    from accelerate import PartialState

    state = PartialState(cpu=device.type == "cpu")
    sharded = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    mine = device if device.type == "cpu" or device.index is not None else state.device
    return Processes(state.process_index, state.num_processes, sharded), mine


def spread(
    objective: nn.Module, optimizer: torch.optim.Optimizer, processes: Processes
) -> nn.Module:
    """Let the backward pass average gradients over the processes.

    With shards the model's own parameters become `DTensor`s, and each process holds a part of them.

    Args:
        objective: the model and its loss.
        optimizer: gets the new parameters in place of the old ones.
        processes: those that train together.

    Returns:
        The module to call in place of the objective.
    """
    if processes.world == 1:
        return objective
    if not processes.sharded:
        return nn.parallel.DistributedDataParallel(objective)
    from torch.distributed.fsdp import fully_shard

    # `fully_shard` puts new parameters in the place of the old: find them again by their names.
    names = {id(weight): name for name, weight in objective.named_parameters()}
    groups = []
    for group in optimizer.param_groups:
        groups.append([names[id(weight)] for weight in group["params"]])
    for module in list(objective.modules()):
        if isinstance(module, Block):
            fully_shard(module)
    fully_shard(objective)
    shards = dict(objective.named_parameters())
    for group, group_names in zip(optimizer.param_groups, groups, strict=True):
        group["params"] = [shards[name] for name in group_names]
    return objective


def one_by_one(net: nn.Module, parts: Sequence[Value]) -> Iterator[Value]:
    """The parts of a batch; the backward pass of the last one averages the gradients of all.

    Before it, each process only accumulates its own, and none waits for another.
    """
    for number, part in enumerate(parts, start=1):
        with _silent(net, number < len(parts)):
            yield part


def _silent(net: nn.Module, on: bool) -> AbstractContextManager[object]:
    """Where on, a backward pass does not average gradients over the processes."""
    if isinstance(net, nn.parallel.DistributedDataParallel):
        return net.no_sync() if on else nullcontext()
    if hasattr(net, "set_requires_gradient_sync"):
        cast(Any, net).set_requires_gradient_sync(not on)  # FSDP
    return nullcontext()


def whole(value: Tensor) -> Tensor:
    """A tensor out of its shards; all processes have to ask for it."""
    shards: Any = value
    if hasattr(shards, "full_tensor"):  # a DTensor; importing the class would cost a second
        return cast(Tensor, shards.full_tensor())
    return value


def shard_like(value: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, which every process has, cut as `like` is."""
    shards: Any = like
    if not hasattr(shards, "full_tensor"):
        return value
    from torch.distributed.tensor import distribute_tensor

    # Every process has the whole value, so none sends it to the others (src_data_rank=None).
    return distribute_tensor(
        value.to(shards.device), shards.device_mesh, shards.placements, src_data_rank=None
    )
