"""GPT-3's eight sizes: counts against the paper's own, and its two rows that contradict themselves."""

from dataclasses import replace

import pytest

from course_lib.config import Learned, diff
from course_lib.cost import parameters
from course_lib.errors import CourseError
from course_lib.models.gpt import GPT3_SIZES, gpt2, gpt3

# Brown et al. 2020, table D.1, "Params (M)".
COUNTED = {
    "Small": 125, "Medium": 356, "Large": 760, "XL": 1320, "2.7B": 2650, "6.7B": 6660, "13B": 12850, "175B": 174600,
}  # fmt: skip


def test_all_rows_of_the_table() -> None:
    assert list(GPT3_SIZES) == list(COUNTED)
    for size, row in GPT3_SIZES.items():
        config = gpt3(size)
        assert config.layers == row.layers and config.dh == row.head_width
        assert config.width == config.heads * config.dh and config.hidden == 4 * config.width
        assert config.position == Learned(2048) and config.embed.vocab == 50257


@pytest.mark.parametrize("size", COUNTED)
def test_counts_are_the_papers(size: str) -> None:
    """Table D.1 gives counts below a billion to the million, those above to ten millions."""
    unit = 10 if COUNTED[size] > 1000 else 1
    assert round(parameters(gpt3(size)) / 1e6 / unit) * unit == COUNTED[size]


@pytest.mark.parametrize("size", COUNTED)
def test_counts_by_formula(size: str) -> None:
    """12 L D^2 for the matrices, 13 L D for biases and norms, tokens, positions, the last norm."""
    c = gpt3(size)
    d, layers = c.width, c.layers
    assert parameters(c) == 12 * layers * d * d + 13 * layers * d + (50257 + 2048) * d + 2 * d


def test_the_rows_whose_heads_do_not_make_the_width() -> None:
    wrong = [size for size, row in GPT3_SIZES.items() if row.heads * row.head_width != row.width]
    assert wrong == ["XL", "13B"]
    same = [size for size, row in GPT3_SIZES.items() if (gpt3(size).width, gpt3(size).heads) == (row.width, row.heads)]
    assert same == [size for size in GPT3_SIZES if size not in wrong]
    assert (gpt3("XL").width, gpt3("XL").heads) == (2048, 16) and (gpt3("13B").width, gpt3("13B").heads) == (5120, 40)


def test_what_is_printed_gives_another_count_than_the_papers() -> None:
    """The readings that `gpt3` turns down, by the numbers its docstring names."""
    xl, b13 = gpt3("XL"), gpt3("13B")
    as_printed = parameters(replace(xl, heads=24, head_width=128))
    assert (round(parameters(xl) / 1e6), round(as_printed / 1e6)) == (1316, 1517)
    printed = parameters(replace(b13, width=5140, hidden=4 * 5140, head_width=128))
    wide = parameters(replace(b13, width=5140, hidden=4 * 5140, heads=20, head_width=257))
    assert [round(n / 1e6) for n in (parameters(b13), printed, wide)] == [12853, 12936, 12953]


def test_what_gpt3_changes() -> None:
    """Nothing but size and context: the same block."""
    assert set(diff(gpt2("1558M"), gpt3())) == {"width", "layers", "heads", "hidden", "position.length"}


def test_bad_size() -> None:
    with pytest.raises(CourseError, match=r"GPT-3 comes as Small, .* '176B' is none"):
        gpt3("176B")
