"""Devices and precisions: what is chosen where nobody says."""

import pytest
import torch

from course_lib.training import device as devices


@pytest.mark.parametrize(
    ("device", "said", "chosen"),
    [
        ("cpu", None, False),  # equal on every machine
        ("cpu", "auto", True),
        ("cpu", "bf16", True),
        ("cuda", None, True),
        ("cuda", "fp32", False),
        ("mps", None, False),
        ("mps", "bf16", True),
    ],
)
def test_the_device_decides_the_precision(
    device: str, said: devices.Precision | None, chosen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "has_bf16", lambda device: device.type != "mps")
    assert devices.chosen_bf16(said, torch.device(device)) is chosen


@pytest.mark.parametrize(("instructions", "faster"), [("amx_bf16", True), ("avx512_bf16", False)])
def test_bf16_is_faster_where_there_is_amx(
    instructions: str, faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {instructions: True})
    assert devices.has_bf16("cpu") is faster
