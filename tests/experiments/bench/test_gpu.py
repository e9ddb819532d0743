"""What is known of the GPU path without a GPU: each family's step, its kernels, several processes, the script."""

import json
import math

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.families import FAMILIES
from course_lib.files import COURSE
from course_lib.generation import generate
from course_lib.objectives import losses
from course_lib.training import loop
from experiments.bench import __main__ as bench
from experiments.bench import gpu, steps

every_family = pytest.mark.parametrize("family", FAMILIES)


@every_family
def test_a_step_neither_waits_for_a_gpu_nor_copies_and_recomputed_or_in_bfloat16_it_is_the_same(family):
    with steps.Crossings() as seen:
        torch.ones(2).to("meta")
    assert seen.found == {"_to_copy": 1} and steps.crossings(family) == {}
    assert steps.recomputed(family)
    assert 0 < (found := steps.bf16_error(family))["loss"] < 5e-4 and 1e-4 < found["gradients"] < 0.02


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
@every_family
def test_nor_does_it_on_a_gpu(family):
    assert steps.crossings(family, "cuda") == {} and steps.graph_breaks(family, "cuda") == 0
    assert steps.bf16_error(family, "cuda")["gradients"] < 0.02


@pytest.mark.slow
@every_family
def test_a_model_is_one_graph(family):
    assert steps.graph_breaks(family) == 0


def test_batches_are_pinned_and_sent_and_only_their_last_part_is_averaged(tmp_path):
    batch, how = steps.sent("bert")
    assert how == {(True, "cuda", True)} and batch["target_indices"].tolist() == [[0, 0, 0, 1], [1, 2, 3, 2]]
    assert steps.reductions(1, tmp_path / "one") == steps.reductions(2, tmp_path / "two") > 1


def test_a_failed_update_that_nobody_has_seen_changes_nothing(monkeypatch):
    monkeypatch.setattr(loop, "UNSEEN", {"cpu"})
    made, kept, model = [], [], steps.small("gpt")

    def loss(model, batch):
        made.append(losses.clm(model, batch))
        return made[-1] * (math.nan if len(made) == 3 else 1.0)

    run = loop.train(model, steps.batches("gpt"), loss, steps=30)
    for _ in range(loop.LOOK - 1):
        next(run)
        kept.append(model.stack.embed.tokens.weight.detach().clone())
    with pytest.raises(CourseError, match="diverged at step 3: the loss is nan"):
        next(run)
    assert not torch.equal(kept[0], kept[1]) and all(torch.equal(kept[1], late) for late in kept[2:])


def test_the_page_shows_which_kernel_each_family_can_use():
    assert steps.kernel_table() in (COURSE / "docs/architecture.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("family", ["gpt", "bart", "t5"])
def test_a_static_cache_writes_the_same(family):
    torch.manual_seed(2)
    model = steps.small(family).eval()
    for name, weight in model.named_parameters():
        weight.data *= 20 if weight.dim() > 1 and "tokens" not in name else 1
    ids = torch.randint(64, (3, 4))
    expected = generate(model, ids, max_new_tokens=7)
    if family != "gpt":
        model, ids = model.given(ids), ids.new_full((3, 1), model.stack.start)
    assert len(expected[:, -7:].unique()) > 4 and torch.equal(gpu.StaticWriter(model, ids, 7)(), expected)


@pytest.mark.slow
def test_the_script_measures_everything_at_no_size(tmp_path, monkeypatch):
    monkeypatch.setenv("OUT", str(tmp_path))
    bench.main(["--gpu", "--tiny"])
    record = json.loads((tmp_path / "bench_gpu.json").read_text())
    assert [name for name, part in record["parts"].items() if "error" in part] == record["left out"] == []
    assert len(record["parts"]) == 9 + len(FAMILIES) and record["parts"]["tests"]["code"] == 0
    assert record["parts"]["generation, batch 16"]["tokens/s"]["equal"]["static"] == 1.0
