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
    ours, theirs = shares.measure("gpt", Timing(tiny=True))
    for seconds in (ours, theirs):
        # transformers computes GPT-2's GELU by sums and products of its own.
        assert seconds.keys() >= {"all", "products", "attention", "norms"}
        assert 0 < seconds["products"] < seconds["all"]
