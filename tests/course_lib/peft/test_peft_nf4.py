"""NF4: the levels of the paper's table, the nearest of them, double quantisation, bits, a Linear to
learn through.
"""

import pytest
import torch

from course_lib.peft import nf4

TABLE = [
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
]


def weights(*shape, seed=0):
    return 0.02 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_the_levels_are_the_papers_table():
    """Dettmers et al. 2023, appendix E: equal to the last bit."""
    assert torch.equal(nf4.levels(), torch.tensor(TABLE))


def test_each_weight_becomes_its_nearest_level_times_its_blocks_largest():
    x = weights(3, 128)
    q = nf4.quantise(x)
    table = torch.tensor(TABLE)
    for number, block in enumerate(x.flatten().split(64)):
        relative = block / block.abs().max()
        nearest = (relative[:, None] - table).abs().argmin(dim=1)
        pairs = q.codes[32 * number : 32 * (number + 1)].long()
        assert torch.equal(torch.stack((pairs // 16, pairs % 16), dim=1).flatten(), nearest)


def test_levels_times_a_scale_come_back():
    """Values that are levels are kept, up to the scales' own rounding; one scale for all has
    none.
    """
    x = torch.tensor(TABLE).repeat(64) * 0.3
    torch.testing.assert_close(nf4.dequantise(nf4.quantise(x), x.shape), x, atol=1e-7, rtol=1e-6)


def test_scales_are_kept_in_fp8_less_their_mean():
    x = weights(600, 64) * torch.linspace(0.5, 2, 600)[:, None]
    q = nf4.quantise(x)
    largest = x.abs().amax(dim=1)
    assert (
        q.maxima.dtype == torch.float8_e4m3fn
        and q.maxima.shape == (600,)
        and q.scales.shape == (3,)
    )
    assert torch.allclose(q.mean, largest.mean())
    found = nf4.dequantise(q, x.shape).abs().amax(dim=1)
    deviation = (largest - largest.mean()).abs()
    assert (found - largest).abs().max() <= deviation.max() / 16 + 1e-7  # three bits of mantissa
    assert ((found - largest).abs() <= deviation / 16 + 1e-6).all()


def test_a_weight_takes_4_127_bits():
    x = weights(512, 512)
    bits = (nf4.quantise(x).bits - 32) / x.numel()  # the mean is one number for all
    assert bits == 4 + 8 / 64 + 32 / (64 * 256) and round(bits, 3) == 4.127


@pytest.mark.parametrize("shape", [(1,), (5, 7), (64,), (65,), (3, 64 * 256), (1, 64 * 256 + 1)])
def test_any_shape_comes_back(shape):
    x = weights(*shape)
    found = nf4.dequantise(nf4.quantise(x), x.shape)
    assert (
        found.shape == x.shape
        and found.dtype == torch.float32
        and (found - x).abs().max() <= 0.2 * x.abs().max()
    )


def test_zeros_stay_zeros():
    x = weights(4, 64)
    # the second so that a zero block's maximum is not rounded to 0 itself
    x[1], x[2] = 0.0, 50 * x[2]
    found = nf4.dequantise(nf4.quantise(x), x.shape)
    assert not found[1].any() and torch.isfinite(found).all()
    assert not nf4.dequantise(nf4.quantise(torch.zeros(4, 64)), (4, 64)).any()


def quantised(seed=0):
    torch.manual_seed(seed)
    linear = torch.nn.Linear(24, 10)
    return linear, nf4.QuantisedLinear(linear)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_quantised_linear_multiplies_and_passes_the_gradient_with_the_float_matrix(dtype):
    _, layer = quantised()
    layer.bias.data = layer.bias.data.to(dtype)
    x = torch.randn(3, 4, 24, dtype=dtype, requires_grad=True)
    y = x.detach().clone().requires_grad_(True)
    expected = y @ layer.weight.to(dtype).T + layer.bias
    found = layer(x)
    torch.testing.assert_close(found, expected)
    assert found.dtype == dtype
    found.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_the_float_matrix_is_not_kept_for_the_backward_pass():
    _, layer = quantised()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.shape) or x, lambda x: x):
        layer(torch.randn(2, 24, requires_grad=True))
    assert kept == []


def test_the_weight_is_no_parameter_and_is_saved_in_four_bits(tmp_path):
    linear, layer = quantised()
    assert [name for name, _ in layer.named_parameters()] == ["bias"]
    stored = {name: x.dtype for name, x in layer.state_dict().items()}
    assert (
        stored["codes"] == torch.uint8
        and len(layer.codes) == 128
        and torch.equal(layer.bias, linear.bias)
    )
    other = quantised(seed=1)[1]
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.weight, layer.weight)
