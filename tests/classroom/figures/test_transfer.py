"""Lesson 07's pictures show what they are given."""

from matplotlib.colors import to_hex

from classroom import figures
from classroom.figures.style import ORANGE


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_orange_edges_are_what_labels_train():
    (axes,) = figures.weight_origins(2).axes
    trained = sum(to_hex(patch.get_edgecolor()).upper() == ORANGE for patch in axes.patches)
    # scratch and fine-tuning: three parts and a head each; features: a head; and the legend's box
    assert trained == 4 + 4 + 1 + 1
    assert texts(axes).count("block 2") == 4


def test_frozen_layers_say_so():
    (axes,) = figures.unfreezing([[0, 0.01], [0.005, 0.01]], ["block", "head"]).axes
    assert texts(axes) == ["frozen", "0.01000", "0.00500", "0.01000"]


def test_the_dotted_level_stands_at_its_point():
    curve = ([50, 100, 200], [0.5, 0.6, 0.7]), ([0.4, 0.5, 0.6], [0.6, 0.7, 0.8])
    figure = figures.label_curves({"a": {"x": curve}, "b": {"x": curve}}, level=("x", 100))
    for axes in figure.axes:
        dotted = next(line for line in axes.lines if line.get_linestyle() == ":")
        assert list(dotted.get_xdata()) == [100, 200]
        assert [round(float(y), 6) for y in dotted.get_ydata()] == [60, 60]


def test_a_guess_is_a_line_and_percent_stay_percent():
    curve = ([8, 24], [30.0, 40.0]), ([25.0, 35.0], [35.0, 45.0])
    (axes,) = figures.label_curves({"a": {"x": curve}}, guess=12.5, scale=1).axes
    dashed = next(line for line in axes.lines if line.get_linestyle() == "--")
    solid = next(line for line in axes.lines if line.get_linestyle() == "-")
    assert [float(y) for y in dashed.get_ydata()] == [12.5, 12.5]
    assert [float(y) for y in solid.get_ydata()] == [30, 40]
    assert texts(axes) == ["guess"]
