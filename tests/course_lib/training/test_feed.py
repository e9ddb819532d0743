"""Batches on their way: read ahead beside a GPU, pinned, sent without waiting, cut into parts."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.errors import CourseError
from course_lib.objectives import losses
from course_lib.objectives.losses import Batch, with_target_index
from course_lib.training import distributed
from course_lib.training.distributed import Processes
from course_lib.training.feed import Feed, in_round_widths, micro_batches
from course_lib.training.loop import ModelWithLoss
from course_lib.training.optim import adamw
from course_lib.vocab import IGNORE
from lab.bench import steps
from tests.course_lib.training.test_train import BATCHES, tiny

META = torch.device("meta")  # stands in for a GPU: not the CPU, and tensors can be moved there


def test_beside_a_gpu_the_next_batch_is_read_ahead() -> None:
    asked = []

    class Source:
        def __getitem__(self, step: int, /) -> Batch:
            asked.append(step)
            return {"ids": torch.full((2, 3), step)}

    coming = Feed(Source(), tiny(), META).of_steps(range(4, 8))
    [(first, weight)], tokens = next(coming)
    assert first["ids"].is_meta and (weight, tokens) == (1.0, 6)
    next(coming)
    # the third at the latest when the second has come
    assert asked[:3] == [4, 5, 6] or asked == [4, 5]
    assert len(list(coming)) == 2 and asked == [4, 5, 6, 7]


def test_ids_beyond_the_vocabulary_are_refused_before_a_gpu_sees_them() -> None:
    feed = Feed([{"ids": torch.tensor([[-1, 3]])}], tiny(), META)
    with pytest.raises(CourseError, match=r"run from -1 to 3, but .* has 11"):
        next(feed.of_steps(range(1)))


def test_batches_are_pinned_and_sent_without_waiting() -> None:
    sent = set[tuple[bool, str, bool]]()

    def to(x: Any, device: torch.device, non_blocking: bool) -> Any:
        sent.add((getattr(x, "pinned", False), device.type, non_blocking))
        return x

    def pin(x: Any) -> Any:
        x.pinned = True
        return x

    at = torch.tensor([[False, True, True, False], [True, False, False, False]])
    batch = {"ids": torch.ones(2, 4, dtype=torch.int64), "labels": torch.where(at, 1, -100)}
    batch["loss_mask"] = at
    with patch.object(Tensor, "pin_memory", pin), patch.object(Tensor, "to", to):
        [(part, _)], _ = Feed([batch], tiny(), torch.device("cuda")).of_step(0)
    assert sent == {(True, "cuda", True)}
    # The host has counted where the targets are, for counting waits for the device.
    assert part["target_indices"].tolist() == [[0, 0, 1], [1, 2, 0]]


class Reductions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what several processes add up."""

    found = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found += "reduce" in func.__name__
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("family", ["bert", "gpt", "electra", "deberta", "bart", "t5"])
def test_rows_of_a_round_width_have_the_same_loss_and_gradients(family: str) -> None:
    batch = dict(steps.batches(family)[0])
    if "loss_mask" in batch:
        batch["labels"] = batch["ids"].masked_fill(~batch["loss_mask"], IGNORE)
    has_targets = "labels" in batch and batch["labels"].shape != batch["ids"].shape
    found = []
    for given in (batch, in_round_widths(batch, has_targets=has_targets, multiple=7)):
        torch.manual_seed(0)
        model = steps.small(family)
        torch.manual_seed(1)
        loss = steps.loss_of(family)(model, with_target_index(given))
        loss.backward()  # type: ignore[no-untyped-call]
        found.append([loss, *(p.grad for p in model.parameters() if p.grad is not None)])
    assert given["ids"].shape[1] == 14
    if has_targets:
        assert given["labels"].shape[1] == 7
    for wide, narrow in zip(*found, strict=True):
        torch.testing.assert_close(wide, narrow, atol=1e-5, rtol=1e-5)


def test_labels_of_a_span_keep_their_width() -> None:
    ids = torch.ones(3, 5, dtype=torch.long)
    batch = {"ids": ids, "attention_mask": ids.bool(), "labels": torch.zeros(3, 2).long()}
    padded = in_round_widths(batch)
    assert padded["ids"].shape == (3, 16)
    assert padded["attention_mask"].sum() == 15
    assert torch.equal(padded["labels"], batch["labels"])
    assert in_round_widths(batch, 9)["ids"].shape == (3, 9), "the model has 9 positions"


def test_only_the_last_part_of_a_batch_is_averaged(tmp_path: Path) -> None:
    found = []
    for count in (1, 2):
        meet = f"file://{tmp_path / str(count)}"
        dist.init_process_group("gloo", init_method=meet, rank=0, world_size=1)
        try:
            model = tiny()
            objective = ModelWithLoss(model, losses.clm)
            net = distributed.spread(objective, adamw(model), Processes(0, 2))
            parts = [*micro_batches(BATCHES[0], count)]
            with Reductions() as seen:  # type: ignore[no-untyped-call]
                for part in distributed.sync_on_last(net, parts):
                    net(part.batch).backward()
            # or it ends the group while it holds Python's lock, for which a thread may wait
            del net
        finally:
            dist.destroy_process_group()
        found.append(seen.found)
    assert found[0] == found[1] > 0
