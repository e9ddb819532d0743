"""What is known of the GPU path without a GPU: each family's step, its kernels, several processes,
the script.
"""

import json

import pytest
import torch

from course_lib.families import FAMILIES
from course_lib.model.norms import RMSNorm
from lab.bench import __main__ as bench
from lab.bench import steps
from lab.bench.contenders import loss_of


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_neither_waits_for_a_gpu_nor_copies_and_recomputed_or_in_bfloat16_it_is_the_same(
    family,
):
    with steps.Crossings() as seen:
        torch.ones(2).to("meta")
    assert seen.found == {"_to_copy": 1} and steps.crossings(family) == {}
    assert steps.recomputed(family) and steps.counting_changes(family) < 1e-6
    assert (
        0 < (found := steps.bf16_error(family))["loss"] < 5e-4 and 1e-4 < found["gradients"] < 0.02
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_norms_read_float32_under_autocast_or_a_cpu_sums_their_gradients_in_bfloat16(family):
    model, read = steps.small(family), set()
    for part in model.modules():
        if isinstance(part, torch.nn.LayerNorm | RMSNorm):
            part.register_forward_pre_hook(lambda _, given: read.add(given[0].dtype))
    with torch.autocast("cpu", torch.bfloat16):
        loss_of(family)(model, steps.batches(family)[0])
    assert read == {torch.float32}


def test_the_table_of_kernels():
    rows = steps.kernel_table().splitlines()
    assert "| bert | self | flash | memory-efficient, mask |" in rows
    assert "| gpt | self | flash, causal | flash, causal |" in rows
    assert "| t5 | decoder | memory-efficient, bias | memory-efficient, bias |" in rows


compiles = pytest.mark.skipif(
    " " in torch.__file__, reason="torch.compile's linker takes no space in PyTorch's path"
)


@compiles
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_inductor_makes_one_graph_of_every_family(family):
    assert steps.graph_breaks(family, backend="inductor") == 0


@compiles
@pytest.mark.slow
def test_the_script_measures_everything_at_no_size_and_models_are_one_graph(tmp_path, monkeypatch):
    monkeypatch.setenv("OUT", str(tmp_path))
    bench.main(["--gpu", "--tiny"])
    record = json.loads((tmp_path / "bench_gpu.json").read_text())
    assert (
        [name for name, part in record["parts"].items() if "error" in part]
        == record["left out"]
        == []
    )
    assert [record["parts"][f"family {name}"]["graph breaks"] for name in FAMILIES] == [0] * len(
        FAMILIES
    )
