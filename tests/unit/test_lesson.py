"""A lesson's parameters: each wrong one gives one sentence that begins with its name; right ones seed and pick."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from course_lib import CourseError, lesson


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scale": "huge"}, "SCALE is 'huge'; it must be one of smoke, lesson, cpu, gpu."),
        ({"scale": 3}, "SCALE is 3"),
        ({"seed": -1}, "SEED is -1"),
        ({"seed": 2**32}, "SEED is 4294967296"),
        ({"seed": "0"}, "SEED is '0'"),
        ({"seed": True}, "SEED is True"),
        ({"device": "tpu"}, "DEVICE is 'tpu'"),
        ({"device": None}, "DEVICE is None"),
        ({"data": ""}, "DATA is ''"),
        ({"data": "hub:"}, "DATA is 'hub:'"),
        ({"data": "/no/such/folder"}, "DATA is '/no/such/folder', which is neither"),
        ({"out": 3}, "OUT is 3"),
        ({"out": __file__}, "which is a file"),
    ],
)
def test_a_wrong_parameter_is_one_sentence(change: dict[str, object], words: str) -> None:
    with pytest.raises(CourseError) as caught:
        lesson.start(**change)  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_gpu_is_named() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(CourseError, match=r'^SCALE is "gpu" but PyTorch sees no GPU'):
        lesson.start("gpu")
    with pytest.raises(CourseError, match=r"^DEVICE is 'cuda' but PyTorch sees 0 GPUs"):
        lesson.start(device="cuda")
    assert lesson.start("gpu", device="cpu").device == torch.device("cpu")


@pytest.mark.parametrize(
    ("scale", "all_four", "two"), [("smoke", 1, 1), ("lesson", 2, 2), ("cpu", 3, 2), ("gpu", 4, 2)]
)
def test_pick_falls_back_to_the_next_smaller_scale(scale: str, all_four: int, two: int) -> None:
    run = lesson.start(scale, device="cpu")
    assert run.pick(smoke=1, lesson=2, cpu=3, gpu=4) == all_four
    assert run.pick(smoke=1, lesson=2) == two
    assert run.pick(smoke=1, lesson=2, cpu=3) == (3 if scale in ("cpu", "gpu") else two)
    assert run.pick(smoke=0, lesson=0, cpu=0) == 0


def test_seeds_everything() -> None:
    def draws() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    lesson.start("smoke", 7)
    first = draws()
    lesson.start("smoke", 7)
    assert draws() == first
    lesson.start("smoke", 8)
    assert all(a != b for a, b in zip(draws(), first, strict=True))


def test_generators_are_fresh_and_independent() -> None:
    run = lesson.start("smoke", 3)
    a, b, c = (torch.rand(4, generator=g) for g in (run.generator(), run.generator(), run.generator(1)))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_paths_lie_in_the_out_folder(tmp_path: Path) -> None:
    run = lesson.start(out=str(tmp_path / "a b"))
    path = run.path("sub/model.safetensors")
    assert path == tmp_path / "a b" / "sub" / "model.safetensors"
    assert path.parent.is_dir()
    assert lesson.start().out.parts[-2:] == ("build", "out")


def test_data_may_be_a_path_or_the_hub(tmp_path: Path) -> None:
    for data in ("world", "docs", "hub:imdb", str(tmp_path)):
        assert lesson.start(data=data).data == data


def test_threads_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        lesson.start()
        assert torch.get_num_threads() == 1
        monkeypatch.delenv("OMP_NUM_THREADS")
        lesson.start()
        assert 1 <= torch.get_num_threads() <= 4
    finally:
        torch.set_num_threads(before)
