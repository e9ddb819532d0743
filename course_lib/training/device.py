"""The device that a model is trained on, and the precision of its matrix products.

float32 numbers have 32 bits. bfloat16 numbers have 16: the same range, fewer digits. Newer GPUs
multiply matrices in bfloat16 several times as fast, so there a training uses it:

    device = known_device("cuda")
    with autocast(device, chosen_bf16(None, device)):
        loss = model(batch)     # products in bfloat16 if the GPU has it, else all in float32
"""

from contextlib import AbstractContextManager, nullcontext

import torch

from course_lib.errors import CourseError
from course_lib.training.settings import Precision


def known_device(device: str | torch.device) -> torch.device:
    """The device of this name: "cpu", "cuda", "cuda:1" or "mps".

    Raises:
        CourseError: there is no device of this name, or this machine has no NVIDIA GPU.
    """
    try:
        known = torch.device(device)
    except RuntimeError as error:
        raise CourseError(
            f"There is no device {device!r}; use 'cpu', 'cuda', 'cuda:1' or 'mps'."
        ) from error
    if known.type == "cuda" and not torch.cuda.is_available():
        raise CourseError(
            "device is 'cuda', but PyTorch sees no NVIDIA GPU here; use device='cpu'."
        )
    return known


def has_bf16(device: str | torch.device) -> bool:
    """Whether this device computes matrix products faster in bfloat16 than in float32.

    NVIDIA GPUs since Ampere (2020) do, and CPUs with the AMX instructions. CPUs that only have
    AVX512-BF16 do not count: on Intel's it is slower than float32.
    """
    kind = torch.device(device).type
    if kind == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if kind == "cpu":
        return bool(torch.cpu.get_capabilities().get("amx_bf16"))
    return False


def chosen_bf16(precision: Precision | None, device: torch.device) -> bool:
    """Whether to train in bfloat16.

    Args:
        precision: "fp32" and "bf16" decide; "auto" takes what is faster on the device. None is
            "auto" on a GPU. On a CPU it is "fp32", because two machines should get equal results.
        device: the device that the model is trained on.
    """
    if precision is None:
        precision = "fp32" if device.type == "cpu" else "auto"
    if precision == "auto":
        return has_bf16(device)
    return precision == "bf16"


def autocast(device: torch.device, bf16: bool) -> AbstractContextManager[object]:
    """A context in which matrix products run in bfloat16, if `bf16`. Weights stay float32."""
    if not bf16:
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)
