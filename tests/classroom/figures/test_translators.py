"""A translator drawn: lines go where the weights are largest, shapes and sums are the model's."""

import pytest
import torch
from matplotlib.colors import same_color

from classroom import figures
from classroom.figures.style import BLUE
from course_lib import CourseError
from course_lib.families import transformer, transformer_lm


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = transformer(9, width=8, layers=2, heads=2, dropout=0.0, norm="pre")
    return transformer_lm(config, start=1).eval()


def words(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_a_blue_line_for_the_largest_weight_and_none_for_the_smallest():
    weights = [[0.7, 0.25, 0.05], [0.02, 0.08, 0.9]]
    axes = figures.alignment(weights, ["a", "b", "c"], ["x", "y"]).axes[0]
    places = {text.get_text(): text.get_position()[0] for text in axes.texts}
    blue = [line for line in axes.lines if same_color(line.get_color(), BLUE)]
    ends = [tuple(line.get_xdata()) for line in blue]
    assert ends == [(places["a"], places["x"]), (places["c"], places["y"])]
    assert len(axes.lines) == 3  # 0.05, 0.02 and 0.08 are too faint


def test_the_whole_model_has_the_shapes_of_its_tensors(model):
    ids, written = torch.tensor([[2, 3, 4, 5]]), torch.tensor([[1, 6, 7]])
    tensors = figures.translator_tensors(model, ids, written)
    shown = words(figures.translator(tensors, 2, ("source", "so far", "next")))
    for text in ("ids [1 4]", "memory [1 4 8]", "weights [1 2 3 4]", "logits [1 3 9]", "next"):
        assert text in shown


def test_a_mask_that_does_not_fit_is_refused():
    with pytest.raises(CourseError, match="cross"):
        figures.three_attentions({"cross": (torch.ones(2, 2), ["x"], ["a", "b"])}, focus=[0])


def test_lines_in_colour_go_to_all_that_the_focus_may_look_at():
    attentions = {"cross": (torch.tensor([[1, 1, 0]]), ["x"], ["a", "b", "c"])}
    axes = figures.three_attentions(attentions, focus=[0]).axes[0]
    assert sum(getattr(text, "arrow_patch", None) is not None for text in axes.texts) == 2


def test_what_the_parts_add_is_what_leaves_the_encoder(model):
    ids = torch.tensor([[2, 3, 4, 5]])
    enters, added, leaves = figures.stream_parts(model.stack.encoder, ids, place=2)
    assert list(added) == ["attention 1", "feed-forward 1", "attention 2", "feed-forward 2"]
    torch.testing.assert_close(enters + sum(added.values()), leaves)
    figure = figures.residual_stream(enters, added, token="x", shown=4)
    assert f"length {leaves.norm():.0f}" in words(figure)


def test_the_greedy_way_and_the_likeliest_way():
    follows = {
        (): {"is": 0.6, "has": 0.4},
        ("is",): {"a": 0.3, "b": 0.2},
        ("has",): {"c": 0.9, "d": 0.1},
    }
    tree = figures.grow_tree(follows.__getitem__, steps=2)
    assert tree == follows
    assert figures.two_ways(tree) == {"greedy": ("is", "a"), "likeliest": ("has", "c")}


def test_the_options_of_a_beam_know_their_fate():
    ways = [(0, 3, -1.0), (1, 4, -2.0), (0, 5, -3.0)]
    made = figures.options(ways, kept=ways[1:2], ended=ways[:1], name=str)
    assert [(option.token, option.fate) for option in made] == [
        ("3", "ended"),
        ("4", "kept"),
        ("5", "dropped"),
    ]
