"""Mixing of tasks: the rates by hand, draws that keep them, batches that are a function of the step."""

import math
from collections import Counter

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.inputs import Row
from course_lib.mixing import Draws, MixedBatches, MixedTasks, equal, proportional, rates, temperature_scaled


def test_examples_proportional_by_hand() -> None:
    assert proportional([10, 30, 60]) == [0.1, 0.3, 0.6]
    assert proportional([10, 30, 60], limit=30) == pytest.approx([1 / 7, 3 / 7, 3 / 7])
    assert proportional([10, 30, 60], limit=1) == pytest.approx([1 / 3] * 3)
    assert equal([10, 30, 60]) == [1 / 3] * 3


def test_temperature_by_hand() -> None:
    assert temperature_scaled([100, 900], 2) == pytest.approx([1 / 4, 3 / 4])
    assert temperature_scaled([100, 900], 1) == pytest.approx(proportional([100, 900]))
    assert temperature_scaled([100, 900], 1e9) == pytest.approx([0.5, 0.5])
    assert temperature_scaled([100, 900, 10**6], 2, limit=900) == pytest.approx([1 / 7, 3 / 7, 3 / 7])
    shares = [temperature_scaled([1, 99], t)[0] for t in (1, 2, 4, 8)]
    assert shares == sorted(shares) and shares[-1] < 0.5


def test_rates_by_name() -> None:
    sizes = [5, 50]
    assert rates(sizes) == proportional(sizes)
    assert rates(sizes, "temperature", temperature=4, limit=9) == temperature_scaled(sizes, 4, limit=9)
    assert rates(sizes, "equal") == equal(sizes)


def test_draws_keep_the_rates_and_count_up() -> None:
    draws = Draws([0.7, 0.25, 0.05], seed=3)
    n = 6000
    seen = [draws[i] for i in range(n)]
    counts: Counter[int] = Counter()
    for task, number in seen:
        assert number == counts[task], "a batch of a source was left out or came twice"
        counts[task] += 1
    for task, p in enumerate((0.7, 0.25, 0.05)):
        assert abs(counts[task] / n - p) < 4 * math.sqrt(p * (1 - p) / n)
    fresh = Draws([0.7, 0.25, 0.05], seed=3)
    assert [fresh[i] for i in (5000, 7, 2048, 1023)] == [seen[i] for i in (5000, 7, 2048, 1023)]
    assert [Draws([0.7, 0.25, 0.05], seed=4)[i] for i in range(20)] != seen[:20]


class Counting:
    """Batch k of a source says its name and k."""

    def __init__(self, name: int) -> None:
        self.name = name

    def __getitem__(self, step: int):
        return {"ids": torch.tensor([[self.name, step]])}


def test_batches_of_several_sources() -> None:
    mixed = MixedBatches([Counting(0), [Counting(1)[9], Counting(1)[8]]], [0.5, 0.5], seed=1)
    seen = [mixed[step]["ids"][0].tolist() for step in range(40)]
    assert [k for name, k in seen if name == 0] == list(range(sum(name == 0 for name, _ in seen)))
    assert [k for name, k in seen if name == 1][:4] == [9, 8, 9, 8], "a list comes round"
    assert mixed[17]["ids"][0].tolist() == seen[17]


class Plain:
    def collate(self, rows):
        return {"ids": torch.tensor([row.ids[0] for row in rows])}


def tasks() -> dict[str, list[Row]]:
    return {
        name: [Row([[t, i]], [[0, 0]], 0) for i in range(n)] for t, (name, n) in enumerate({"a": 3, "b": 7}.items())
    }


def test_rows_of_several_tasks_in_one_batch() -> None:
    mixed = MixedTasks(Plain(), tasks(), [0.5, 0.5], batch=8, seed=2)
    seen = [row for step in range(30) for row in mixed[step]["ids"].tolist()]
    for task, size in enumerate((3, 7)):
        order = [i for t, i in seen if t == task]
        for start in range(0, len(order) - size, size):
            assert sorted(order[start : start + size]) == list(range(size)), "a row came twice before all had come"
        assert abs(len(order) / len(seen) - 0.5) < 4 * math.sqrt(0.25 / len(seen))
    assert len({tuple(i for t, i in seen if t == 1)[k : k + 7] for k in range(0, 70, 7)}) > 3, "never shuffled"
    assert any(len({t for t, _ in mixed[step]["ids"].tolist()}) == 2 for step in range(5))
    fresh = MixedTasks(Plain(), tasks(), [0.5, 0.5], batch=8, seed=2)
    assert fresh[25]["ids"].tolist() == mixed[25]["ids"].tolist()
    assert {name for name, _ in mixed.rows(0)} <= {"a", "b"}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: proportional([]), "at least one example"),
        (lambda: proportional([3, 0]), "at least one example"),
        (lambda: proportional([3], limit=0), "limit is 0"),
        (lambda: temperature_scaled([3], 0), "above 0"),
        (lambda: rates([3], "fair"), "no mixing 'fair'"),
        (lambda: Draws([0.5, 0.6], 0), "add up to 1"),
        (lambda: MixedBatches([Counting(0)], [0.5, 0.5]), "1 sources came with 2 rates"),
        (lambda: MixedTasks(Plain(), tasks(), [1.0], batch=2), "2 tasks came with 1 rates"),
        (lambda: MixedTasks(Plain(), {"a": []}, [1.0], batch=2), "'a' has no rows"),
    ],
)
def test_bad_input_is_one_sentence(call, words: str) -> None:
    with pytest.raises(CourseError, match=words):
        call()
