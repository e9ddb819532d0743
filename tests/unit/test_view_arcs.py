"""Arcs of a head over a sentence: what is drawn is what the head looks at, coloured by the parse."""

import json
import re

import pytest
import torch

from course_lib import view
from course_lib.errors import CourseError

WORDS, GOVERNORS = ["the", "cat", "sat", "<down>"], [1, 2, -1, 2]
NEXT = torch.eye(4).roll(1, dims=1)  # everybody looks at the next word, the last at the first
WEIGHTS = torch.stack([NEXT, 0.6 * torch.eye(4) + 0.4 * NEXT.T])[:, None]  # two layers of one head


def drawn(html: str) -> dict[str, list[list[list[object]]]]:
    found = re.search(r"var data=(\{.*?\});", html)
    assert found
    return dict(json.loads(found[1].replace("\\u003c", "<").replace("\\u003e", ">")))


def test_each_word_has_the_arc_of_its_largest_weight() -> None:
    made = view.head_player(WEIGHTS, WORDS, GOVERNORS)
    one, two = drawn(made.html)["heads"]
    assert [arc[0] for arc in one] == [1, 2, 3, 0]
    assert [arc[2] for arc in one] == ["governor", "governor", "dependent", "neither"]
    assert [arc[0] for arc in two] == [3, 0, 1, 2]  # not itself, though that has more
    assert [arc[3] for arc in two] == [0.4] * 4
    assert "the > cat (at its governor)" in repr(made)
    assert made.html.count('marker-end="url(#arrow-gold)"') == 3


def test_another_head_may_come_first() -> None:
    made = view.head_player(WEIGHTS, WORDS, GOVERNORS, first=(1, 0))
    assert '<option value="1" selected>2-1</option>' in made.html
    assert "head 2-1: the > <down> (elsewhere)" in repr(made)
    with pytest.raises(CourseError, match="2 layers of 1 heads"):
        view.head_player(WEIGHTS, WORDS, GOVERNORS, first=(0, 1))


def test_what_is_written_is_escaped() -> None:
    assert "<down>" not in view.head_player(WEIGHTS, WORDS, GOVERNORS).html.partition("<script>")[0]


def test_the_figure_has_an_arc_a_word_and_one_an_arc_of_the_parse() -> None:
    figure = view.head_arcs(NEXT, WORDS, GOVERNORS, title="head 1-1")
    lines = figure.axes[0].lines
    assert len(lines) == 3 + 4
    assert len({line.get_color() for line in lines[3:]}) == 3
    assert [text.get_text() for text in figure.axes[0].texts if text.get_text()] == WORDS


def test_weights_and_parse_fit_the_words() -> None:
    with pytest.raises(CourseError, match="between the 4 words"):
        view.head_arcs(torch.ones(3, 3), WORDS, GOVERNORS)
    with pytest.raises(CourseError, match="or -1 at the root"):
        view.head_arcs(NEXT, WORDS, [1, 1, -1, 2])
