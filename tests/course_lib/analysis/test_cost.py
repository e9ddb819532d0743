"""Costs against published figures and what PyTorch counts on small models; power laws against
straight lines.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from course_lib.analysis import capture, cost
from course_lib.errors import CourseError
from course_lib.families import preset
from course_lib.families.gpt import GPT3_SIZES, gpt3
from course_lib.model import heads, masks
from course_lib.model.cache import KVCache
from course_lib.model.config import (
    EmbedConfig,
    Global,
    Learned,
    Rope,
    StackConfig,
    T5Buckets,
    Window,
)
from course_lib.model.transformer import Transformer

# Brown et al. 2020, table D.1: millions of parameters, billions of tokens, FLOPs a parameter and
# token, FLOPs,
# petaflop/s-days.
TABLE_D1 = json.loads(Path(__file__).with_name("table_d1.json").read_text())


@pytest.mark.parametrize("name", TABLE_D1)
def test_training_compute_of_gpt3s_table(name: str) -> None:
    """To the three digits that are printed; and from our own counts."""
    millions, billions, per, flops, days = TABLE_D1[name]
    computed = cost.training_flops(millions * 1e6, billions * 1e9, per_parameter=per)
    assert computed == pytest.approx(flops, rel=5e-3) and cost.petaflop_days(
        computed
    ) == pytest.approx(days, rel=5e-3)
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
        assert (
            exact == pytest.approx(six_n + attention - outside, rel=1e-9)
            and 1.0 < exact / six_n < 1.15
        )


SMALL = {
    "embed": EmbedConfig(vocab=50),
    "width": 16,
    "layers": 3,
    "heads": 4,
    "hidden": 40,
    "position": Learned(20),
}
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
    stack = Transformer(config).eval()
    ids, memory = torch.randint(50, (1, 11)), torch.randn(1, 7, 16) if config.cross else None
    narrow = config.embed.width or config.width
    with (
        FlopCounterMode(display=False) as counter,
        torch.no_grad(),
        capture(stack, "blocks.*.attn.probs", *(["blocks.*.cross.probs"] if config.cross else [])),
    ):
        h = stack(ids, memory=memory)
        torch.nn.functional.linear(h[..., :narrow], stack.embed.tokens.weight)
    computed = cost.forward_flops(config, 11, memory=7 if config.cross else 0)
    few = cost.forward_flops(config, 11, memory=7 if config.cross else 0, outputs=2)
    assert computed - few == 9 * 2 * narrow * 50  # only the positions asked for are scored
    # Our causal attention computes the whole square and throws a triangle away.
    thrown = 4 * config.layers * config.heads * config.dh * 11 * 10 // 2 if config.causal else 0
    assert computed + thrown == counter.get_total_flops()


def test_the_cache_is_as_large_as_it_is() -> None:
    config = StackConfig(**(SMALL | {"causal": True, "head_width": 6}))
    cache = KVCache(config.layers)
    with torch.no_grad():
        Transformer(config).eval()(torch.randint(50, (2, 9)), cache=cache)
    held = sum(t.numel() * t.element_size() for layer in cache.attn for t in (layer.k, layer.v))
    assert cost.kv_cache_bytes(config, 9) == held / 2 / 2  # of one text, in half precision
    assert cost.kv_cache_bytes(gpt3(), 2048) == pytest.approx(9.66e9, rel=1e-3)


def test_parameters_of_what_is_built() -> None:
    for more in SHAPES.values():
        config = StackConfig(**(SMALL | more))
        assert cost.parameters(config) == sum(
            p.numel() for p in heads.LM(Transformer(config)).parameters()
        )
    config = preset("bert-base")
    with torch.device("meta"):
        built = heads.MLM(Transformer(config))
    assert cost.parameters(lambda: heads.MLM(Transformer(config))) == sum(
        p.numel() for p in built.parameters()
    )
    assert cost.parameters(config) < cost.parameters(lambda: heads.MLM(Transformer(config)))


def test_memory_of_training() -> None:
    assert cost.training_bytes(7.5e9) == 120e9  # Rajbhandari et al. 2020, figure 1
    assert cost.training_bytes(175e9) == pytest.approx(2.8e12)
    # LoRA's 350 GB, section 4.2
    assert cost.training_bytes(175e9, trained=18e6) == pytest.approx(350e9, rel=1e-3)


def test_a_bill_adds_up() -> None:
    on = cost.Accelerator("toy", flops=1e12, memory=1e9, watts=500)
    got = cost.bill(3.6e15 * 12, on, devices=4, utilisation=0.5, price=3.0, overhead=1.5, grid=200)
    assert got == cost.Bill(days=24 / 4 / 24, device_hours=24, kwh=18, money=72, kg_co2=3.6)


SIZES = [2e5 * 2**i for i in range(7)]


@pytest.mark.parametrize(("scale", "exponent"), [(8.8e13, 0.076), (3e7, 0.3)])
def test_an_exact_power_law_is_found(scale: float, exponent: float) -> None:
    found = cost.fit_power_law(SIZES, np.array([(scale / x) ** exponent for x in SIZES]))
    assert found.exponent == pytest.approx(exponent, rel=1e-9) and found.scale == pytest.approx(
        scale, rel=1e-6
    )
    assert found.interval == pytest.approx((exponent, exponent), abs=1e-6)
    assert found.residuals == pytest.approx([0.0] * 7, abs=1e-9)
    assert found(6.4e7) == pytest.approx((scale / 6.4e7) ** exponent)


@pytest.mark.parametrize("floor", [0.0, 1.7])
def test_an_irreducible_loss_is_found(floor: float) -> None:
    loss = [floor + (3e5 / x) ** 0.3 for x in SIZES]
    found = cost.fit_law_with_floor(SIZES, loss)
    assert found.floor == pytest.approx(floor, abs=2e-3)
    assert found.exponent == pytest.approx(0.3, abs=1e-3)
    assert found(1e9) == pytest.approx(floor + (3e5 / 1e9) ** 0.3, abs=2e-3)


def test_frontier() -> None:
    compute = [1.0, 2.0, 4.0, 1.0, 3.0, 8.0, 8.0]
    loss = [5.0, 4.0, 3.0, 4.5, 4.2, 3.0, 2.5]
    assert cost.frontier(compute, loss) == [3, 1, 2, 6]


def test_bad_input() -> None:
    config = StackConfig(**SMALL)
    for call, said in (
        (lambda: cost.forward_flops(config, 5, memory=3), "only there"),
        (
            lambda: cost.forward_flops(StackConfig(**(SMALL | SHAPES["cross-attention"])), 5),
            "only there",
        ),
        (lambda: cost.fit_power_law([1, 2], [2, 1]), "takes 3 measurements at 2"),
        (lambda: cost.fit_power_law([1, 1, 1], [4, 3, 2]), "at 2 different sizes"),
        (lambda: cost.fit_power_law([1, 2, 3], [3, 2, 0]), "all above 0"),
        (lambda: cost.fit_power_law([1, 2, 3], [1, 2, 3]), "does not fall"),
        (lambda: cost.fit_law_with_floor([1, 2, 3], [3, 2, 1]), "at least 4"),
    ):
        with pytest.raises(CourseError, match=said):
            call()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [3, 10])
def test_a_window_costs_what_its_mask_lets_through(causal: bool, length: int) -> None:
    patterns = (Global(), Window(4))
    config = StackConfig(
        EmbedConfig(7),
        width=8,
        layers=4,
        heads=2,
        hidden=16,
        position=Rope(),
        causal=causal,
        attention=patterns,
    )
    place = torch.arange(length)[None]
    seen = masks.window(place, place, 4)
    everything = torch.ones_like(seen)
    if causal:
        seen, everything = (mask & masks.causal(length) for mask in (seen, everything))
    pairs = 2 * int(seen.sum()) + 2 * int(everything.sum())
    without = cost.forward_flops(replace(config, layers=1, attention=(Global(),)), length)
    one_global = 4 * int(everything.sum()) * 8
    outside = 2 * length * 8 * 7
    expected = 4 * (without - one_global - outside) + 4 * pairs * 8 + outside
    assert cost.forward_flops(config, length) == expected
