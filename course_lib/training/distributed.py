"""Train one model with several processes, usually one for each GPU.

A launcher starts the same command several times:

    accelerate launch --multi_gpu --num_processes 2 -m course_lib pretrain ...

Data parallel training: each process has a copy of the model and computes the gradient for its rows
of the batch, 0 to 15 of 32, say. The processes average their gradients, so all make the same
update, which a single process would make, too.

With `--use_fsdp` in place of `--multi_gpu`, each process stores only a part of every weight and of
the optimizer's state: a shard (fully sharded data parallel; ZeRO stage 3, Rajbhandari et al. 2020).
The processes put the shards together for one block at a time. This saves memory.
"""

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
# How long a process waits for the others. The main one may tokenize a large corpus meanwhile.
TIMEOUT = timedelta(days=2)


@dataclass(frozen=True)
class Processes:
    """This process among those that train together.

    All processes have to call the methods below, or those that do would wait for ever. If there is
    only one process, the methods just return its own value.

    Attributes:
        rank: the number of this process, from 0.
        world: the number of processes.
        sharded: whether the weights are in shards (FSDP).
    """

    rank: int = 0
    world: int = 1
    sharded: bool = False

    @property
    def is_main(self) -> bool:
        """Whether this is process 0, the only one that writes files."""
        return self.rank == 0

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a tensor over all processes."""
        if self.world == 1:
            return value
        total = value.clone()
        dist.all_reduce(total)
        return total / self.world

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in a list, on the main process; [] on all others."""
        if self.world == 1:
            return [value]
        values: list[Any] | None = [None] * self.world if self.is_main else None
        dist.gather_object(value, values)
        return values or []

    def broadcast(self, value: Any) -> Any:
        """The main process's value, on all processes."""
        if self.world == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def barrier(self) -> None:
        """Wait until all processes have come here, for two days if necessary."""
        # The usual barrier has the time limit of its group, ten minutes on GPUs. This one takes a
        # limit, but only a group of the backend gloo has it.
        if self.world > 1:
            dist.monitored_barrier(dist.new_group(backend="gloo", timeout=TIMEOUT), TIMEOUT)


ALONE = Processes()


def join(device: torch.device) -> tuple[Processes, torch.device]:
    """Find out which processes a launcher started, and which device this one uses.

    Args:
        device: the device in the settings. "cuda" becomes "cuda:1" in process 1.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return ALONE, device
    from accelerate import PartialState

    state = PartialState(cpu=device.type == "cpu")
    sharded = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    # A device with a number ("cuda:1"), or the CPU, is the user's choice for all processes.
    is_given = device.type == "cpu" or device.index is not None
    own_device = device if is_given else state.device
    return Processes(state.process_index, state.num_processes, sharded), own_device


def spread(
    objective: nn.Module, optimizer: torch.optim.Optimizer, processes: Processes
) -> nn.Module:
    """Make the backward pass average the gradients over the processes.

    With shards, each parameter of the model becomes a `DTensor`: this process's shard of it.

    Args:
        objective: the model and its loss, as one module.
        optimizer: with shards it gets the new parameters in place of the old ones.
        processes: the processes that train together.

    Returns:
        The module to call in place of the objective.
    """
    if processes.world == 1:
        return objective
    if not processes.sharded:
        return nn.parallel.DistributedDataParallel(objective)
    from torch.distributed.fsdp import fully_shard

    # `fully_shard` replaces the model's parameters by new ones, but the optimizer still holds the
    # old ones. So remember their names, and give the optimizer the new ones of the same names.
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


def sync_on_last(objective: nn.Module, parts: Sequence[Value]) -> Iterator[Value]:
    """Yield the parts of a batch; only the last backward pass averages over the processes.

    Gradients add up over the parts, so it is enough to average their sum once. Before the last
    part no process has to wait for another.

    Args:
        objective: the module that `spread` returned.
        parts: the parts of this process.
    """
    for number, part in enumerate(parts, start=1):
        with _gradient_sync(objective, is_on=number == len(parts)):
            yield part


def _gradient_sync(objective: nn.Module, is_on: bool) -> AbstractContextManager[object]:
    """Inside this context, a backward pass averages gradients over the processes, or does not."""
    if isinstance(objective, nn.parallel.DistributedDataParallel):
        return nullcontext() if is_on else objective.no_sync()
    if hasattr(objective, "set_requires_gradient_sync"):  # FSDP
        cast(Any, objective).set_requires_gradient_sync(is_on)
    return nullcontext()


def full_tensor(value: Tensor) -> Tensor:
    """Put a tensor together from its shards; all processes have to call this.

    A tensor that is not in shards is returned as it is.
    """
    shards: Any = value
    if hasattr(shards, "full_tensor"):  # a DTensor; importing the class would take a second
        return cast(Tensor, shards.full_tensor())
    return value


def shard_like(value: Tensor, like: Tensor) -> Tensor:
    """Cut a full tensor into shards as `like` is; if `like` is not in shards, return it as it is.

    Args:
        value: the full tensor, which every process has.
        like: a tensor of the same shape.
    """
    shards: Any = like
    if not hasattr(shards, "full_tensor"):
        return value
    from torch.distributed.tensor import distribute_tensor

    # Every process has the full tensor, so no process sends it to the others (src_data_rank=None).
    return distribute_tensor(
        value.to(shards.device), shards.device_mesh, shards.placements, src_data_rank=None
    )
