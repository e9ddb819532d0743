"""Costs against published figures, and against what PyTorch counts on small models."""

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from course_lib import cost, heads
from course_lib.attention import KVCache
from course_lib.config import EmbedConfig, Learned, StackConfig, T5Buckets
from course_lib.errors import CourseError
from course_lib.models.bert import bert_base
from course_lib.models.gpt import GPT3_SIZES, gpt3
from course_lib.stack import Stack
from course_lib.trace import record

# Brown et al. 2020, table D.1: millions of parameters, billions of tokens, FLOPs a parameter and token, FLOPs,
# petaflop/s-days.
TABLE_D1 = {
    "T5-Small": (60, 1000, 3, 1.80e20, 2.08e00),
    "T5-11B": (11000, 1000, 3, 3.30e22, 3.82e02),
    "BERT-Base": (109, 250, 6, 1.64e20, 1.89e00),
    "BERT-Large": (355, 250, 6, 5.33e20, 6.16e00),
    "RoBERTa-Base": (125, 2000, 6, 1.50e21, 1.74e01),
    "RoBERTa-Large": (355, 2000, 6, 4.26e21, 4.93e01),
    "Small": (125, 300, 6, 2.25e20, 2.60e00),
    "Medium": (356, 300, 6, 6.41e20, 7.42e00),
    "Large": (760, 300, 6, 1.37e21, 1.58e01),
    "XL": (1320, 300, 6, 2.38e21, 2.75e01),
    "2.7B": (2650, 300, 6, 4.77e21, 5.52e01),
    "6.7B": (6660, 300, 6, 1.20e22, 1.39e02),
    "13B": (12850, 300, 6, 2.31e22, 2.68e02),
    "175B": (174600, 300, 6, 3.14e23, 3.64e03),
}


@pytest.mark.parametrize("name", TABLE_D1)
def test_training_compute_of_gpt3s_table(name: str) -> None:
    """To the three digits that are printed; and from our own counts."""
    millions, billions, per, flops, days = TABLE_D1[name]
    computed = cost.training_flops(millions * 1e6, billions * 1e9, per_parameter=per)
    assert computed == pytest.approx(flops, rel=5e-3) and cost.petaflop_days(computed) == pytest.approx(days, rel=5e-3)
    if name in GPT3_SIZES:
        ours = cost.petaflop_days(cost.training_flops(cost.parameters(gpt3(name)), billions * 1e9))
        assert ours == pytest.approx(days, rel=5e-3)


def test_six_n_is_what_the_matrix_products_take_but_for_attention() -> None:
    for size, row in GPT3_SIZES.items():
        config = gpt3(size)
        exact = 3 * cost.forward_flops(config, 2048) / 2048
        attention = 3 * 4 * row.layers * config.width * 2049 / 2
        outside = 6 * (2048 + 13 * row.layers + 2) * config.width  # positions, biases, norms
        six_n = 6 * cost.parameters(config)
        assert exact == pytest.approx(six_n + attention - outside, rel=1e-9)
        assert 1.0 < exact / six_n < 1.15


SMALL = {"embed": EmbedConfig(vocab=50), "width": 16, "layers": 3, "heads": 4, "hidden": 40, "position": Learned(20)}
SHAPES = {
    "encoder": {},
    "decoder": {"causal": True},
    "gated, wide heads": {"gated": True, "head_width": 6, "bias": False, "position": T5Buckets()},
    "narrow tokens, one block": {"embed": EmbedConfig(vocab=50, width=8), "shared": True},
    "cross-attention": {"causal": True, "cross": True},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_operations_are_those_that_pytorch_counts(shape: str) -> None:
    config = StackConfig(**(SMALL | SHAPES[shape]), dropout=0.0)
    stack = Stack(config).eval()
    ids, memory = torch.randint(50, (1, 11)), torch.randn(1, 7, 16) if config.cross else None
    narrow = config.embed.width or config.width
    with (
        FlopCounterMode(display=False) as counter,
        torch.no_grad(),
        record(stack, "blocks.*.attn.probs", *(["blocks.*.cross.probs"] if config.cross else [])),
    ):
        h = stack(ids, memory=memory)
        torch.nn.functional.linear(h[..., :narrow], stack.embed.tokens.weight)
    computed = cost.forward_flops(config, 11, memory=7 if config.cross else 0)
    # Our causal attention computes the whole square and throws a triangle away.
    thrown = 4 * config.layers * config.heads * config.dh * 11 * 10 // 2 if config.causal else 0
    assert computed + thrown == counter.get_total_flops()


def test_only_the_positions_asked_for_are_scored() -> None:
    config = StackConfig(**SMALL)
    assert cost.forward_flops(config, 11) - cost.forward_flops(config, 11, outputs=2) == 9 * 2 * 16 * 50


def test_the_cache_is_as_large_as_it_is() -> None:
    config = StackConfig(**(SMALL | {"causal": True, "head_width": 6}))
    cache = KVCache(config.layers)
    with torch.no_grad():
        Stack(config).eval()(torch.randint(50, (2, 9)), cache=cache)
    held = sum(t.numel() * t.element_size() for layer in cache.own for t in (layer.k, layer.v))
    assert cost.kv_cache_bytes(config, 9, batch=2, each=4) == held
    assert cost.kv_cache_bytes(gpt3(), 2048) == pytest.approx(9.66e9, rel=1e-3)


def test_parameters_of_what_is_built() -> None:
    for more in SHAPES.values():
        config = StackConfig(**(SMALL | more))
        assert cost.parameters(config) == sum(p.numel() for p in heads.LM(Stack(config)).parameters())
    config = bert_base()
    with torch.device("meta"):
        built = heads.MLM(Stack(config))
    assert cost.parameters(lambda: heads.MLM(Stack(config))) == sum(p.numel() for p in built.parameters())
    assert cost.parameters(config) < cost.parameters(lambda: heads.MLM(Stack(config)))


def test_memory_of_training() -> None:
    assert cost.training_bytes(7.5e9) == 120e9  # Rajbhandari et al. 2020, figure 1
    assert cost.training_bytes(175e9) == pytest.approx(2.8e12)
    assert cost.training_bytes(175e9, trained=18e6) == pytest.approx(350e9, rel=1e-3)  # LoRA's 350 GB, section 4.2
    d, t, h = 12288, 2048, 96
    assert cost.activation_bytes(gpt3(), t, batch=2) == 2 * t * d * 96 * (34 + 5 * h * t // d)
    assert cost.activation_bytes(gpt3(), t, fused=True) == t * d * 96 * 34


def test_published_times() -> None:
    flops = cost.training_flops(174.6e9, 300e9)
    one = cost.bill(flops, cost.device("V100"), utilisation=28 / 125)  # "355 GPU years" at 28 teraflop/s
    assert one.days / 365 == pytest.approx(355, rel=0.01)
    # Narayanan et al. 2021, section 5.1: 34 days on 1,024 A100s at 140 teraflop/s, one more forward pass being made.
    again = cost.training_flops(175e9, 300e9, per_parameter=8)
    many = cost.bill(again, cost.device("A100"), devices=1024, utilisation=140 / 312)
    assert many.days == pytest.approx(34, rel=0.01)


def test_a_bill_adds_up() -> None:
    on = cost.Device("toy", flops=1e12, memory=1e9, bandwidth=1e9, watts=500)
    got = cost.bill(3.6e15 * 12, on, devices=4, utilisation=0.5, price=3.0, overhead=1.5, grid=200)
    assert got == cost.Bill(days=24 / 4 / 24, device_hours=24, kwh=18, money=72, kg_co2=3.6)


def test_a_step_waits_for_memory_or_for_arithmetic() -> None:
    config, on = gpt3("6.7B"), cost.device("A100")
    weights = cost.parameters(config)
    alone, many = (cost.step_seconds(config, on, length=100, batch=n) for n in (1, 1000))
    assert alone == pytest.approx((weights * 2 + cost.kv_cache_bytes(config, 100)) / on.bandwidth)
    assert many == pytest.approx(1000 * cost.inference_flops(weights) / on.flops, rel=0.01)
    assert many < 20 * alone  # a thousand texts share the arrival of the weights
    assert cost.step_seconds(config, on, length=100, devices=2) == alone / 2


def test_175_billion_weights_need_five_devices() -> None:
    assert cost.devices_needed(2 * cost.parameters(gpt3()), cost.device("A100")) == 5
    assert cost.devices_needed(80e9, cost.device("A100")) == 1


def test_bad_input() -> None:
    config, on = StackConfig(**SMALL), cost.device("A100")
    for call, said in (
        (lambda: cost.training_flops(1e9, 0), "tokens is 0"),
        (lambda: cost.training_flops(math.nan, 1), "parameters is nan"),
        (lambda: cost.forward_flops(config, 5, memory=3), "only there"),
        (lambda: cost.forward_flops(StackConfig(**(SMALL | SHAPES["cross-attention"])), 5), "only there"),
        (lambda: cost.kv_cache_bytes(config, 0), "length is 0"),
        (lambda: cost.training_bytes(1e9, trained=2e9), "at most all"),
        (lambda: cost.bill(1e20, on, utilisation=40), "utilisation up to 1"),
        (lambda: cost.device("TPU"), "no device 'TPU'"),
    ):
        with pytest.raises(CourseError, match=said):
            call()
