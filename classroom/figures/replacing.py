"""ELECTRA: the two networks and what each token passes, and a text shaded by suspicion."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from classroom.figures.style import (
    GREY,
    INK,
    TINTS,
    VERMILION,
    Numbers,
    array,
    arrow,
    canvas,
    centred,
    ink_on,
    rounded_box,
    styled,
)
from course_lib.errors import CourseError

CHARACTER, GAP = 13 * 0.602 / 72, 0.1  # inches: a letter of a token, between two boxes
# The middles of the columns of `electra_networks`: text, hidden, generator, filled, discriminator,
# answers.
COLUMNS = (0.0, 2.35, 4.75, 7.15, 9.85, 12.3)
HIGH = 0.62  # from one token to the next


@styled
def suspects(
    tokens: Sequence[str],
    suspicion: Numbers,
    changed: Sequence[bool] | None = None,
    hidden: Sequence[bool] | None = None,
    *,
    width: float = 11.4,
) -> Figure:
    """Tokens in a line that wraps, the darker the more they are suspected; percent below each.

    Args:
        tokens: as the tokenizer gives them. Special tokens are drawn like all others.
        suspicion: the probability of each that it was replaced.
        changed: those that were replaced get a thick frame.
        hidden: those that were hidden get a dashed frame, unless they were replaced.
        width: inches.
    """
    shares = array(suspicion).reshape(-1)
    framed = [False] * len(tokens) if changed is None else [bool(one) for one in changed]
    dashed = [False] * len(tokens) if hidden is None else [bool(one) for one in hidden]
    if not len(tokens) == len(shares) == len(framed) == len(dashed):
        raise CourseError(
            f"{len(tokens)} tokens, {len(shares)} probabilities, {len(framed)} answers: they must"
            " be equally many."
        )
    places, x, y = [], 0.0, 0.0
    for token in tokens:
        size = CHARACTER * max(len(token), 3) + 0.22
        if x and x + size > width:
            x, y = 0.0, y - 0.92
        places.append((x, y, size))
        x += size + GAP
    right = max(left + size for left, _, size in places)
    figure, axes = canvas(right + 0.4, 0.92 - y + 0.25)
    axes.set(xlim=(-0.1, right + 0.1), ylim=(y - 0.62, 0.3), aspect="equal")
    axes.set_axis_off()
    boxes = zip(tokens, shares, framed, dashed, places, strict=True)
    for token, share, is_changed, was_hidden, (left, middle, size) in boxes:
        fill = _heat(float(share))
        edge, line = (INK, 3.2) if is_changed else ("#9aa0a6", 1.0)
        if was_hidden and not is_changed:
            edge, line = INK, 1.8
        box = Rectangle((left, middle - 0.2), size, 0.4, facecolor=fill, edgecolor=edge, lw=line)
        if was_hidden and not is_changed:
            box.set_linestyle((0, (4, 2)))
        axes.add_patch(box)
        look = {"family": "DejaVu Sans Mono", "fontsize": 13, "color": ink_on(fill)}
        centred(axes, left + size / 2, middle - 0.01, token.replace("$", r"\$"), **look)
        below = {"fontsize": 12, "color": INK if share >= 0.5 else GREY}
        centred(axes, left + size / 2, middle - 0.39, f"{share:.0%}", **below)
    return figure


def _heat(share: float) -> str:
    """White at 0 to the palette's vermilion at 1."""
    goal = (int(VERMILION[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 + (c - 255) * share):02x}" for c in goal)


@styled
def electra_networks(
    text: Sequence[str], chosen: Sequence[bool], filled: Sequence[str], suspicion: Numbers
) -> Figure:
    """ELECTRA's two networks (Clark et al. 2020, figure 2), a line for each token.

    Args:
        text: the tokens before.
        chosen: those that are hidden.
        filled: the tokens that the discriminator reads.
        suspicion: its answer for each of them.
    """
    rows = list(zip(text, chosen, filled, array(suspicion).reshape(-1).tolist(), strict=True))
    foot = -HIGH * (len(rows) - 1)
    figure, axes = canvas(13.2, 0.62 * len(rows) + 1.75)
    first, hidden, small, read, large, answer = COLUMNS
    heads = {first: "text", hidden: "hidden", read: "filled in", answer: "replaced?"}
    for x, head in heads.items():
        centred(axes, x, 0.72, head, fontsize=15, color=INK, weight="bold")
    names = (
        (small, 1.5, "generator", "guesses", "thrown away", "yellow"),
        (large, 2.2, "discriminator", "judges", "kept", "blue"),
    )
    for x, wide, name, does, fate, tint in names:
        place, size = (x, foot / 2), (wide, 0.6 - foot)
        rounded_box(axes, place, size, does, fill=TINTS[tint], line=2, fontsize=15)
        if fate != "kept":
            axes.patches[-1].set_linestyle("--")
        centred(axes, x, 0.72, name, fontsize=15, color=INK, weight="bold")
        centred(axes, x, foot - 0.62, f"afterwards {fate}", fontsize=14, color=INK)
    for number, (before, is_hidden, after, share) in enumerate(rows):
        y = -HIGH * number
        _token(axes, first, y, before)
        _token(axes, hidden, y, "[MASK]" if is_hidden else before, "dark" if is_hidden else "plain")
        differs = after != before
        _token(axes, read, y, after, "orange" if differs else "plain")
        verdict = f"{'yes' if differs else 'no'}  {share:.0%}"
        _token(axes, answer, y, verdict, "orange" if differs else "plain")
        _pass(axes, first + 0.75, hidden - 0.75, y)
        _pass(axes, hidden + 0.75, small - 0.75, y)
        if is_hidden:  # the generator is asked here only; any other token goes round it
            arrow(axes, (small + 0.75, y), (read - 0.75, y), color=VERMILION, lw=2.6)
        else:
            ends = (small + 0.8, read - 0.8), (y, y)
            axes.plot(*ends, color=GREY, linewidth=1.1, linestyle=(0, (1, 2)), zorder=1)
        _pass(axes, read + 0.75, large - 1.1, y)
        arrow(axes, (large + 1.1, y), (answer - 0.75, y), color=VERMILION, lw=2.6)
    axes.set(xlim=(-0.85, answer + 0.95), ylim=(foot - 0.9, 1.0))
    axes.set_axis_off()
    return figure


def _token(axes: Axes, x: float, y: float, text: str, tint: str = "plain") -> None:
    corner = (x - 0.7, y - 0.22)
    axes.add_patch(Rectangle(corner, 1.4, 0.44, facecolor=TINTS[tint], edgecolor="#9aa0a6"))
    centred(axes, x, y, text.replace("$", r"\$"), fontsize=14, color=INK)


def _pass(axes: Axes, start: float, end: float, y: float) -> None:
    arrow(axes, (start, y), (end, y), color=GREY, lw=1.1)
