"""Every fast path gives what the plain formula gives, and nothing needs it."""

import subprocess
import sys

import pytest
import torch

from course_lib.files import COURSE
from course_lib.model import kernels
from course_lib.model.cache import LayerCache
from course_lib.model.heads import to_vocabulary
from course_lib.model.lstm import ProjectedLSTM
from course_lib.model.norms import RMSNorm
from course_lib.objectives.losses import cross_entropy
from course_lib.peft.nf4 import QuantisedLinear
from lab.bench import steps

SEED = 0


def both(monkeypatch, compute, *leaves):
    """The results and gradients of `compute`, with kernels and by the formula."""
    found = []
    for enabled in (True, False):
        monkeypatch.setattr(kernels, "ENABLED", enabled)
        for leaf in leaves:
            leaf.grad = None
        y = compute()
        rng = torch.Generator().manual_seed(SEED)
        y.backward(torch.randn(y.shape, generator=rng).to(y.dtype))
        found.append((y.detach(), *(leaf.grad.clone() for leaf in leaves)))
    return found


def assert_equal(found, tolerance=1e-5):
    for quick, plain in zip(*found, strict=True):
        torch.testing.assert_close(quick, plain, atol=tolerance, rtol=tolerance)


@pytest.fixture
def used(monkeypatch):
    """The names of the kernels that were called."""
    names = []
    for name in (
        "rms_norm",
        "attention",
        "cross_entropy",
        "linear_cross_entropy",
        "lstm_steps",
        "linear_recomputed",
    ):
        real = getattr(kernels, name)
        monkeypatch.setattr(
            kernels, name, lambda *a, name=name, real=real, **k: names.append(name) or real(*a, **k)
        )
    return names


def test_rms_norm(monkeypatch, used):
    torch.manual_seed(SEED)
    norm = RMSNorm(24, 1e-6)
    torch.nn.init.normal_(norm.weight)
    x = (torch.randn(2, 5, 24) + 1).requires_grad_()
    assert_equal(both(monkeypatch, lambda: norm(x), x, norm.weight))
    assert used == ["rms_norm"]


@pytest.mark.parametrize("rows", [1, 7, 300])
def test_cross_entropy(monkeypatch, used, rows):
    torch.manual_seed(SEED)
    logits = (3 * torch.randn(rows, 1000)).requires_grad_()  # 300 rows are several parts
    labels = torch.randint(1000, (rows,))
    labels[::3] = -100
    assert_equal(both(monkeypatch, lambda: cross_entropy(logits, labels), logits))
    assert used == ["cross_entropy"]


@pytest.mark.parametrize("rows", [1, 7, 300])
@pytest.mark.parametrize("has_bias", [False, True])
def test_linear_cross_entropy(rows, has_bias):
    torch.manual_seed(SEED)
    h = torch.randn(rows, 16, requires_grad=True)
    weight = torch.randn(101, 16, requires_grad=True)  # 101: not a multiple of 64
    bias = torch.randn(101, requires_grad=True) if has_bias else None
    labels = torch.randint(101, (rows,))
    labels[::3] = -100
    found = []
    for is_quick in (True, False):
        if is_quick:
            loss = kernels.linear_cross_entropy(h, weight, bias, labels=labels)
        else:
            loss = cross_entropy(torch.nn.functional.linear(h, weight, bias), labels)
        leaves = [h, weight] if bias is None else [h, weight, bias]
        found.append((loss.detach(), *torch.autograd.grad(3 * loss, leaves)))
    assert_equal(found)


@pytest.mark.parametrize("family", ["gpt", "bert", "roberta", "bart", "t5"])
def test_a_models_loss_without_the_logits_of_all_positions(family, monkeypatch, used):
    found = []
    for is_quick in (True, False):
        monkeypatch.setattr(
            kernels, "use_linear_cross_entropy", lambda labels, vocab, on=is_quick: on
        )
        torch.manual_seed(SEED)
        model = steps.small(family)
        loss = steps.loss_of(family)(model, steps.batches(family)[0])
        loss.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        found.append((loss.detach(), *gradients))
        assert used.count("linear_cross_entropy") == 1
    assert_equal(found)


def test_the_loss_without_logits_keeps_the_precision_of_bfloat16():
    torch.manual_seed(SEED)
    h = torch.randn(200, 64, requires_grad=True)
    weight = torch.randn(130, 64, requires_grad=True)
    labels = torch.randint(130, (200,))
    exact = torch.autograd.grad(cross_entropy(h @ weight.t(), labels), (h, weight))
    with torch.autocast("cpu", torch.bfloat16):
        loss = kernels.linear_cross_entropy(h, weight, labels=labels)
    assert loss.dtype == torch.float32
    for quick, plain in zip(torch.autograd.grad(loss, (h, weight)), exact, strict=True):
        assert (quick - plain).norm() / plain.norm() < 0.01


@pytest.mark.parametrize("has_bias", [False, True])
def test_padded_vocabulary(monkeypatch, has_bias):
    torch.manual_seed(SEED)
    h = torch.randn(2, 5, 16, requires_grad=True)
    weight = torch.randn(101, 16, requires_grad=True)
    bias = torch.randn(101) if has_bias else None
    widths = []
    linear = torch.nn.functional.linear
    monkeypatch.setattr(
        torch.nn.functional, "linear", lambda h, w, b: widths.append(len(w)) or linear(h, w, b)
    )
    monkeypatch.setattr(kernels, "use_padded_vocabulary", lambda h, weight: kernels.ENABLED)
    assert_equal(both(monkeypatch, lambda: to_vocabulary(h, weight, bias), h, weight))
    assert widths == [128, 101]


def test_the_bias_that_attention_hands_on_is_stored_row_by_row(monkeypatch):
    # PyTorch's memory-efficient kernel refuses another one. T5's comes out of an embedding.
    handed = []
    fused = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda q, k, v, mask, *rest, **options: (
            handed.append(mask) or fused(q, k, v, mask, *rest, **options)
        ),
    )
    for padded in (False, True):
        steps.loss_of("t5")(steps.small("t5"), steps.batches("t5", padded)[0])
    biases = [mask for mask in handed if mask is not None and mask.is_floating_point()]
    assert biases
    assert all(bias.stride(-1) == 1 for bias in biases)


@pytest.mark.parametrize("clip", [None, 0.3])
def test_lstm_steps(monkeypatch, used, clip):
    torch.manual_seed(SEED)
    lstm = ProjectedLSTM(6, 10, 4, cell_clip=clip, output_clip=clip)
    x = (3 * torch.randn(7, 3, 6)).requires_grad_()
    assert_equal(both(monkeypatch, lambda: lstm(x), x, *lstm.parameters()))
    assert used == ["lstm_steps"]


def test_a_linear_layer_whose_weight_is_made_again(monkeypatch, used):
    torch.manual_seed(SEED)
    layer = QuantisedLinear(torch.nn.Linear(64, 32))
    x = torch.randn(5, 64, requires_grad=True)
    assert_equal(both(monkeypatch, lambda: layer(x), x))
    assert used == ["linear_recomputed"]


def test_casting_once_changes_no_product(monkeypatch):
    torch.manual_seed(SEED)
    layer = torch.nn.Linear(8, 8)
    x = torch.randn(3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found = both(monkeypatch, lambda: layer(kernels.cast_once(x)), layer.weight)
        assert kernels.cast_once(x).dtype == torch.float32, "switched off by `both`"
    assert_equal(found, tolerance=0)


@pytest.mark.parametrize("columns", [0, 6, 20])
def test_a_cache_with_spare_room_holds_what_a_plain_one_holds(monkeypatch, columns):
    rng = torch.Generator().manual_seed(SEED)
    found = []
    parts = [torch.randn(2, 2, 1, size, 3, generator=rng) for size in (3, 1, 1, 4, 1)]
    for enabled in (True, False):
        monkeypatch.setattr(kernels, "ENABLED", enabled)
        cache, rows = LayerCache(capacity=columns), torch.tensor([1, 0])
        with torch.no_grad():
            for k, v in parts:
                cache.extend(k, v)
                cache.reorder(rows)
        found.append((cache.k, cache.v))
    assert_equal(found, tolerance=0)


# What carries parity: encoders, decoders, encoder-decoders, ELMo's LSTMs, a cache.
CORE = [
    "tests/parity/test_encoders.py",
    "tests/parity/test_gpt.py",
    "tests/parity/test_t5.py",
    "tests/parity/test_bart.py",
    "tests/parity/test_elmo.py",
]


@pytest.mark.slow
def test_parity_holds_with_every_kernel_switched_off(monkeypatch):
    monkeypatch.setenv("COURSE_KERNELS", "0")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", *CORE]
    done = subprocess.run(command, cwd=COURSE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_fresh_process_takes_the_switch_from_its_environment(monkeypatch):
    monkeypatch.setenv("COURSE_KERNELS", "0")
    code = "from course_lib.model import kernels; print(kernels.ENABLED)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
