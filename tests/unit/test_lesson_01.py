"""Lesson 01: wrong answers are named, what it calls exact is exact."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from course_lib import check, trace
from course_lib.attention import Attention
from course_lib.config import EmbedConfig, NoPosition, StackConfig
from course_lib.files import read_json
from course_lib.stack import Stack

ROOT = Path(__file__).resolve().parents[2]


def _scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.mT / q.shape[-1] ** 0.5


WRONG: list[tuple[str, Callable[..., Any], str]] = [
    ("softmax_attention", lambda q, k, v: (q @ k.mT).softmax(-1) @ v, "sqrt(Dh)"),
    ("softmax_attention", lambda q, k, v: _scores(q, k).softmax(-2) @ v, "dim=-1"),
    ("split_heads", lambda x, heads: x.view(x.shape[0], heads, x.shape[1], -1), "mixes positions and heads"),
    ("merge_heads", lambda x: x.reshape(x.shape[0], x.shape[2], -1), "wrong order"),
    ("causal_mask", lambda n: torch.ones(n, n, dtype=torch.bool).tril(-1), "diagonal"),
    ("causal_mask", lambda n: torch.ones(n, n, dtype=torch.bool).triu(), "transposed"),
    ("masked_attention", lambda q, k, v, m: (_scores(q, k).softmax(-1) * m) @ v, "before the softmax"),
    ("masked_attention", lambda q, k, v, m: _scores(q, k).masked_fill(~m, -torch.inf).softmax(-1) @ v, "NaN"),
]


@pytest.mark.parametrize(("name", "answer", "says"), WRONG)
def test_a_wrong_answer_is_named(name: str, answer: Callable[..., Any], says: str) -> None:
    verdict = getattr(check, name)(answer)
    assert not verdict.passed
    assert says in verdict.message


def _layer(width: int, heads: int = 1) -> Attention:
    torch.manual_seed(0)
    config = StackConfig(EmbedConfig(1), width, 1, heads, 1, position=NoPosition(), dropout=0.0, attention_dropout=0.0)
    return Attention(config)


def _flops(layer: Attention, n: int, d: int) -> int:
    x = torch.randn(1, n, d)
    with torch.no_grad(), FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        layer(x, x)
    return int(counter.get_total_flops())


@pytest.mark.parametrize(("n", "d"), [(16, 32), (96, 64), (200, 16)])
@pytest.mark.parametrize("heads", [1, 4])
def test_operations_are_8nd2_plus_4n2d_whatever_the_heads(n: int, d: int, heads: int) -> None:
    assert _flops(_layer(d, heads), n, d) == 8 * n * d**2 + 4 * n**2 * d


def test_heads_cost_no_parameters() -> None:
    assert len({sum(p.numel() for p in _layer(64, heads).parameters()) for heads in (1, 2, 4, 8, 16)}) == 1


def test_without_positions_a_sentence_is_a_bag() -> None:
    layer, x = _layer(8), torch.randn(1, 6, 8)
    order = torch.tensor([2, 1, 0, 3, 4, 5])
    torch.testing.assert_close(layer(x[:, order], x[:, order]), layer(x, x)[:, order])


@torch.no_grad()
@pytest.mark.parametrize("watched", [False, True])
def test_causal_mask_is_exact_to_the_bit(watched: bool) -> None:
    torch.manual_seed(0)
    size: dict[str, Any] = {"width": 32, "layers": 3, "heads": 4, "hidden": 64}
    masked = Stack(StackConfig(EmbedConfig(50), causal=True, **size)).eval()
    unmasked = Stack(StackConfig(EmbedConfig(50), causal=False, **size)).eval()
    unmasked.load_state_dict(masked.state_dict())
    tokens, others = torch.randint(50, (2, 1, 12))

    def unchanged(stack: Stack, t: int) -> bool:
        changed = torch.cat((tokens[:, :t], others[:, t:]), dim=1)
        if not watched:
            return torch.equal(stack(tokens)[:, :t], stack(changed)[:, :t])
        with trace.record(stack, "blocks.*.attn.probs"):
            return torch.equal(stack(tokens)[:, :t], stack(changed)[:, :t])

    assert all(unchanged(masked, t) for t in range(1, 12))
    assert not any(unchanged(unmasked, t) for t in range(1, 12))


def test_the_papers_table_says_the_same_in_words_and_in_powers() -> None:
    layers = read_json(ROOT / "data" / "papers" / "01_self_attention.json")["attention-complexity"]["layers"]
    assert set(layers) == {"self-attention", "recurrence", "convolution"}
    for row in layers.values():
        for letter in "nd":
            assert (f"{letter}²" in row["complexity"]) == (row[f"slope_{letter}"] == 2)
