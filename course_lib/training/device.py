"""Where a model is trained, and in which precision."""

from contextlib import AbstractContextManager, nullcontext

import torch

from course_lib.errors import CourseError
from course_lib.training.settings import Precision


def known_device(device: str | torch.device) -> torch.device:
    """The device of this name.

    Raises:
        CourseError: if there is none of this name, or no NVIDIA GPU here.
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
    """Whether matrix products in bfloat16 are faster here than in float32.

    They are on NVIDIA GPUs from Ampere on, and on processors with AMX. AVX512-BF16 alone does not
    count: on Intel's processors it is slower than float32.
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
        precision: None is "auto" on a GPU and "fp32" on a CPU, where equal runs on two machines
            matter more.
        device: where the model is trained.
    """
    if precision is None:
        precision = "fp32" if device.type == "cpu" else "auto"
    if precision == "auto":
        return has_bf16(device)
    return precision == "bf16"


def autocast(device: torch.device, bf16: bool) -> AbstractContextManager[object]:
    """Inside, matrix products run in bfloat16 where `bf16`; weights and updates stay float32."""
    if not bf16:
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)
