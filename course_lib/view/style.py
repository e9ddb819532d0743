"""One look for every figure: colours told apart by everyone (Okabe and Ito 2008), type readable from the last row."""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

INK, GREY, PALE = "#1b1b1b", "#5f6368", "#e6e8eb"
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#C44E00", "#007A5A", "#A8487E", "#B87A00", "#3A8FC2"
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK, GREY)
# Light fills under dark text, in the same order of hues.
TINTS = {
    "plain": "#f1f3f4",
    "blue": "#cfe5f5",
    "orange": "#fbdcc4",
    "green": "#c9ecdf",
    "purple": "#f0d3e3",
    "yellow": "#faf0b8",
    "dark": "#d5d8dc",
}
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (8, 2, 2, 2)), (0, (4, 1)), (0, (1, 1)))

RC: Any = {
    "figure.dpi": 110,
    "savefig.dpi": 110,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 13,
    "axes.titlesize": 14,
    "axes.labelsize": 13,
    "xtick.labelsize": 12,
    "ytick.labelsize": 12,
    "legend.fontsize": 12,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.titlelocation": "left",
    "axes.grid": False,
    "grid.color": PALE,
    "lines.linewidth": 2.2,
    "lines.markersize": 7,
    "svg.hashsalt": "course",
}

Numbers = torch.Tensor | Sequence[Any]
P = ParamSpec("P")
R = TypeVar("R")


def use() -> None:
    """Make the course's look the default for figures the student draws too."""
    import matplotlib
    from cycler import cycler

    matplotlib.rcParams.update(RC)
    matplotlib.rcParams["axes.prop_cycle"] = cycler(color=PALETTE)


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Run a drawing function inside the course's style, whatever the global style is."""

    @functools.wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        import matplotlib

        with matplotlib.rc_context(RC):
            return draw(*args, **kwargs)

    return wrapped


def canvas(width: float, height: float) -> "tuple[Figure, Axes]":
    """An empty figure (inches) with one pair of axes. Not registered anywhere, so nothing has to be closed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def array(values: Any) -> "NDArray[np.float64]":
    """Tensor, list or array -> float64 array, off the graph and off the device."""
    import numpy as np

    if isinstance(values, torch.Tensor):
        values = values.detach().to("cpu", torch.float64).numpy()
    return np.asarray(values, dtype=np.float64)
