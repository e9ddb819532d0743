"""The kernels that both sides of a training call are told from each library's own part."""

from lab.bench import shares
from lab.bench.contenders import Timing


def test_kinds_of_kernels():
    assert shares.kind_of("aten::addmm") == "products"
    assert shares.kind_of("aten::_scaled_dot_product_flash_attention_for_cpu") == "attention"
    assert shares.kind_of("aten::gelu_backward") == "activations"
    assert shares.kind_of("aten::native_layer_norm") == "norms"
    assert shares.kind_of("aten::copy_") is None


def test_both_sides_compute_the_same_kinds():
    ours, theirs = shares.measure("gpt", Timing(tiny=True), "fp32")
    for seconds in (ours, theirs):
        # transformers computes GPT-2's GELU by sums and products of its own.
        assert seconds.keys() >= {"all", "products", "attention", "norms"}
        assert 0 < seconds["products"] < seconds["all"]


def test_a_step_in_bfloat16_is_profiled_as_such(monkeypatch):
    asked = []
    monkeypatch.setattr(shares, "has_bf16", lambda device: True)
    monkeypatch.setattr(
        shares,
        "measure",
        lambda family, timing, precision: (
            asked.append((family, precision))
            or ({"all": 4.0, "products": 2.0}, {"all": 6.0, "products": 2.0})
        ),
    )
    first, second = shares.report(Timing(tiny=True)).split("\n\n")
    assert first.startswith("| share of our step in fp32 |")
    assert second.startswith("| share of our step in bf16 |")
    assert second.splitlines()[2].endswith("| 50% | 0% | 0% | 0% | 50% | 50% | 1.50 | 3.00 |")
    assert asked == [(family, p) for p in ("fp32", "bf16") for family in shares.NAMES]
