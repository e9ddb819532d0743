"""What a GPU would make of a training step of every family, as far as it can be known without one.

On the device `meta` tensors have shapes and no numbers: whoever asks for one is refused, so a step
that comes through never waits for the device."""

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course_lib.families import FAMILIES
from course_lib.model.layers import Block
from course_lib.model.recompute import recompute
from course_lib.objectives import losses
from course_lib.training import guard, loop
from course_lib.training.device import autocast
from course_lib.vocab import IGNORE
from lab.bench.contenders import SIZES, ModelSize, batches_of, config_of, loss_of

COPIES = {"_to_copy", "copy_"}
LOOKS = {"_local_scalar_dense", "nonzero", "equal", "is_nonzero"}
BACKENDS = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
KERNELS = {
    "nothing": "flash",
    "is_causal": "flash, causal",
    "mask": "memory-efficient, mask",
    "bias": "memory-efficient, bias",
}


def small(family: str, size: ModelSize = SIZES["tiny"]) -> nn.Module:
    """A model of the family, without dropout; of ELECTRA both."""
    return FAMILIES[family].model(config_of(family, size), 0)


def batches(family: str, padded: bool = True) -> list[losses.Batch]:
    """Batches of two rows, the second shorter where `padded`."""
    size = SIZES["tiny"]
    attention_mask = torch.arange(size.tokens) < torch.tensor([[size.tokens], [size.tokens - 3]])
    loss_mask = torch.zeros_like(attention_mask)
    loss_mask[0, 1:4] = True
    loss_mask[1, 2] = True
    found: list[losses.Batch] = []
    for random in batches_of("bert" if family == "electra" else family, size):
        batch = dict(random)
        if padded:
            batch["attention_mask"] = attention_mask
        if "loss_mask" in batch:
            batch["loss_mask"] = loss_mask
            batch["labels"] = batch["ids"].masked_fill(~loss_mask, IGNORE)
        found.append(batch)
    return found


class Crossings(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts copies between two devices and looks from the host at a device's numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        devices = _devices((args, kwargs))
        if name in LOOKS and devices - {"cpu"}:
            self.found[name] += 1
        out = func(*args, **(kwargs or {}))
        if name in COPIES and len(devices | _devices(out)) > 1:
            self.found[name] += 1
        return out


def _devices(values: Any) -> set[str]:
    """The kinds of devices that the tensors in these values are on."""
    return {leaf.device.type for leaf in tree_leaves(values) if isinstance(leaf, Tensor)}


class Still(torch.optim.Optimizer):
    """Changes nothing, in a fused kernel as it were: `meta` has no numbers to change."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), {"lr": 1e-3, "fused": True})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Leave the weights as they are."""


def crossings(family: str, device: str = "meta", steps: int = 3) -> dict[str, int]:
    """Copies and looks in the steps after the first: whole steps of the loop, from its batch to the
    optimizer. `meta` is treated as a GPU is, where the guard looks rarely.
    """
    with torch.device(device):
        model = small(family)
    is_gpu = device.startswith("cuda")
    config = loop.TrainConfig(
        steps=steps + 2,
        device=device,
        precision="bf16" if is_gpu else "fp32",
        accumulate=2,
    )
    optimizer = None if is_gpu else Still(model)
    with (
        patch.object(guard, "ASYNCHRONOUS", {"cuda", "meta"}),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        run = loop.train(model, batches(family), loss_of(family), config, optimizer=optimizer)
        next(run)
        if is_gpu:
            torch.cuda.set_sync_debug_mode("warn")
        with Crossings() as seen:
            for _ in range(steps):
                next(run)
        if is_gpu:
            torch.cuda.set_sync_debug_mode("default")
    found = dict(seen.found)
    waits = sum("synchronizing" in str(each.message) for each in warned)
    if waits:
        found["waits"] = waits
    return found


def counting_changes(family: str) -> float:
    """Relative difference of a loss with `losses.with_target_index` to the loss without."""
    torch.manual_seed(0)
    model = small(family)
    batch = batches(family)[0]
    values = []
    for given in (batch, losses.with_target_index(batch)):
        torch.manual_seed(1)  # ELECTRA draws
        values.append(loss_of(family)(model, given).item())
    return abs(values[1] / values[0] - 1)


def graph_breaks(family: str, device: str = "cpu", backend: str = "aot_eager") -> int:
    """How often torch.compile has to leave its graph, forward and backward. The graph holds the
    model, its head and the loss, as in a training.
    """
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    objective = loop.ModelWithLoss(small(family).to(device), loss_of(family))
    objective.compile(backend=backend)
    for batch in batches(family)[:2]:
        moved = {name: x.to(device) for name, x in losses.with_target_index(batch).items()}
        objective(moved).backward()
    return sum(counters["graph_break"].values()) + (counters["stats"]["unique_graphs"] != 1)


def bf16_error(family: str, device: str = "cpu") -> dict[str, float]:
    """Of bfloat16 against float32: relative difference of the loss, and of all gradients as one
    vector.
    """
    values, gradients = [], []
    for bf16 in (False, True):
        torch.manual_seed(0)
        model = small(family).to(device)
        batch = {name: x.to(device) for name, x in batches(family)[0].items()}
        torch.manual_seed(1)  # ELECTRA draws
        with autocast(torch.device(device), bf16):
            value = loss_of(family)(model, batch)
        value.backward()  # type: ignore[no-untyped-call]
        values.append(value.detach())
        gradients.append(_gradient(model))
    loss, loss_bf16 = values
    gradient, gradient_bf16 = gradients
    return {
        "loss": ((loss - loss_bf16).abs() / loss).item(),
        "gradients": ((gradient - gradient_bf16).norm() / gradient.norm()).item(),
    }


def _gradient(model: nn.Module) -> Tensor:
    """All gradients of a model as one vector."""
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def recomputed(family: str) -> bool:
    """Whether blocks that are computed again in the backward pass, with dropout, give the same bits
    of gradients.
    """
    calls, gradients = [], []
    for again in (False, True):
        torch.manual_seed(0)
        model = small(family).train()
        called: list[nn.Module] = []  # the feed-forward layers, in the order of their calls
        for part in model.modules():
            if isinstance(part, Block):
                part.dropout.p = 0.3
                part.ff.register_forward_pre_hook(partial(_note, called))
        if again:
            recompute(model)
        torch.manual_seed(1)
        loss_of(family)(model, batches(family)[0]).backward()  # type: ignore[no-untyped-call]
        gradients.append(_gradient(model))
        calls.append(len(called))
    return torch.equal(*gradients) and calls[1] == 2 * calls[0] > 0


def _note(called: list[nn.Module], module: nn.Module, inputs: Any) -> None:
    called.append(module)


def attention_calls(family: str, padded: bool) -> dict[str, str]:
    """What each kind of attention hands to PyTorch's fused kernels: nothing, is_causal, a mask or a
    bias.
    """
    tokens = SIZES["tiny"].tokens
    kinds = {(tokens, tokens): "self", (tokens // 2, tokens // 2): "decoder"}
    found: dict[str, str] = {}

    def record(
        q: Tensor, k: Tensor, v: Tensor, mask: Any, dropout: float, is_causal: bool, **options: Any
    ) -> Tensor:
        if mask is not None:
            handed = "mask" if mask.dtype == torch.bool else "bias"
        else:
            handed = "is_causal" if is_causal else "nothing"
        found[kinds.get((q.shape[2], k.shape[2]), "cross")] = handed
        return fused(q, k, v, mask, dropout, is_causal, **options)

    fused = F.scaled_dot_product_attention
    with patch.object(F, "scaled_dot_product_attention", record):
        loss_of(family)(small(family), batches(family, padded)[0])
    return found


def kernel_table() -> str:
    """Which fused attention kernel each family can use in training, as docs/performance.md shows
    it.
    """
    lines = ["| family | attention | rows of one length | padded rows |", "|---|---|---|---|"]
    for family in FAMILIES:
        whole, padded = attention_calls(family, False), attention_calls(family, True)
        for kind in whole:
            kernels = f"{KERNELS[whole[kind]]} | {KERNELS[padded[kind]]}"
            lines.append(f"| {family} | {kind} | {kernels} |")
    return "\n".join(lines) + "\n"


def accepted(family: str, device: str = "cuda") -> list[str]:
    """The kernels that do a padded step of the family, each tried alone; all are tried on a GPU
    only.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    # In bfloat16 the kernels want heads of a multiple of 8 numbers. ELECTRA's generator is a
    # quarter as wide as the model.
    model = small(family, replace(SIZES["tiny"], width=128, heads=4)).to(device)
    indexed = losses.with_target_index(batches(family)[0])
    batch: Mapping[str, Tensor] = {name: x.to(device) for name, x in indexed.items()}
    able = []
    for name in BACKENDS:
        try:
            with warnings.catch_warnings(), sdpa_kernel([getattr(SDPBackend, name)]):
                warnings.simplefilter("ignore")
                with torch.autocast(torch.device(device).type, torch.bfloat16):
                    value = loss_of(family)(model, batch)
                value.backward()  # type: ignore[no-untyped-call]
            able.append(name)
        except RuntimeError:
            continue
    return able
