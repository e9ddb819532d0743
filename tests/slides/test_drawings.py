"""The drawings that the deck brought into `course_lib.view`: what they show is what they were given."""

import pytest
import torch

from course_lib import view
from course_lib.errors import CourseError
from course_lib.view.trees import probability

TABLE = {(): {"a": 0.6, "b": 0.4}, ("a",): {"x": 0.5, "y": 0.5}, ("b",): {"x": 0.9, "y": 0.1}}


def texts(figure):
    return [t.get_text() for axes in figure.axes for t in axes.texts]


def test_block_names_every_part_twice():
    names = texts(view.block())
    for part in ("attention", "feed-forward"):
        assert names.count(part) == 2
    assert names.count("norm") == names.count("+") == 4


def test_stacks_differ_in_mask_and_cross_attention():
    names = texts(view.stacks())
    assert (names.count("attention"), names.count("causal attention"), names.count("cross-attention")) == (2, 2, 1)


def test_arrows_stand_where_they_are_given():
    figure = view.arrows({"one": {"q": torch.tensor([0.0, 1.0])}, "two": {"q": [1, 0], "k": [0, -1]}})
    assert [axes.get_title(loc="center") for axes in figure.axes] == ["one", "two"]
    tips = [t.xy for t in figure.axes[1].texts if not t.get_text()]
    assert tips == [(1.0, 0.0), (0.0, -1.0)]
    label = next(t for t in figure.axes[0].texts if t.get_text() == "q")
    assert label.get_position()[1] > 1 > label.get_position()[0]
    with pytest.raises(CourseError, match="two numbers; 'q' has 3"):
        view.arrows({"one": {"q": [1, 2, 3]}})
    with pytest.raises(CourseError, match="at least one panel"):
        view.arrows({})


def test_signed_map_has_white_at_zero():
    figure = view.signed_map(torch.tensor([[-1.0, 0.0, 3.0]]))
    assert figure.axes[0].images[0].get_clim() == (-3.0, 3.0)
    with pytest.raises(CourseError, match=r"shape \[2\]"):
        view.signed_map(torch.ones(2))


def test_number_map_writes_every_number():
    assert texts(view.number_map({"d": [[0, 1], [-1, 0]]})) == ["0", "+1", "-1", "0"]


def test_search_tree_multiplies_along_its_branches():
    assert probability(TABLE, ("b", "x")) == pytest.approx(0.36)
    shown = texts(view.search_tree(TABLE, {"best": ("b", "x")}))
    assert "0.360   best" in shown
    assert shown.count("0.300") == 2
    with pytest.raises(CourseError, match="may come first"):
        view.search_tree({})


def test_slides_show_more_pixels_of_the_same_figure():
    from course_lib.view.display import png
    from tools.notebooks.compare import size

    figure = view.signed_map([[1.0, -1.0]], size=(2, 1))
    (narrow, _), (wide, _) = size(png(figure)), size(png(figure, dpi=220))
    assert wide == pytest.approx(2 * narrow, rel=0.05)
