"""Training watched as it happens: a bar and a curve that consume train()'s records, one still picture at the end."""

import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from course_lib.view.display import escape, show
from course_lib.view.style import GREY, PALE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REFRESH = 0.3  # seconds between two pictures


class StepLike(Protocol):
    """What is needed of a training record; `course_lib.train.Step` has it."""

    @property
    def step(self) -> int: ...
    @property
    def loss(self) -> float: ...


S = TypeVar("S", bound=StepLike)


def live(
    steps: Iterable[S],
    total: int,
    *,
    title: str = "loss",
    caption: str = "",
    smooth: int | None = None,
    picture: bool = True,
) -> list[S]:
    """Run the training that `steps` yields, show progress meanwhile and the loss curve at the end.

    In a live notebook a bar and a curve are redrawn a few times a second; in a terminal a progress bar runs. With
    TQDM_DISABLE=1 (the build of stored outputs) neither is drawn, only the final picture, which holds no times.

    Args:
        steps: records with `.step` and `.loss`, for instance `train(...)`.
        total: how many steps are expected.
        smooth: running mean of the curve, by default a fiftieth of the run.
        picture: False leaves the final picture out, for several runs that are compared in one figure later.

    Returns:
        Every record, in order.
    """
    history: list[S] = list(_watched(steps, total, title))
    if picture and history:
        window = smooth if smooth is not None else max(1, len(history) // 50)
        first, last = history[0].loss, history[-1].loss
        pale = f" (pale: each step; dark: mean of the last {window})" if window > 1 else ""
        show(
            _figure(history, title, window),
            caption or f"Training loss over {len(history)} steps{pale}.",
            f"{title} against step, from {first:.2f} at step {history[0].step} to {last:.2f} at step "
            f"{history[-1].step}.",
        )
    return history


def _watched(steps: Iterable[S], total: int, title: str) -> Iterator[S]:
    if os.environ.get("TQDM_DISABLE", "") not in ("", "0"):
        yield from steps
    elif _kernel():
        yield from _in_notebook(steps, total, title)
    else:
        from tqdm import tqdm

        bar = tqdm(steps, total=total, desc=title, leave=False)
        for step in bar:
            bar.set_postfix_str(f"loss {step.loss:.3f}", refresh=False)
            yield step


def _in_notebook(steps: Iterable[S], total: int, title: str) -> Iterator[S]:
    from IPython.display import HTML, display

    handle: Any = display(HTML(""), display_id=True)  # type: ignore[no-untyped-call]
    seen: list[tuple[int, float]] = []
    began = drawn = time.monotonic()
    try:
        for step in steps:
            seen.append((step.step, step.loss))
            yield step
            now = time.monotonic()
            if now - drawn >= REFRESH:
                drawn = now
                handle.update(HTML(progress_html(seen, total, title, now - began)))  # type: ignore[no-untyped-call]
    finally:
        handle.update(HTML(""))  # type: ignore[no-untyped-call]


def progress_html(seen: list[tuple[int, float]], total: int, title: str, seconds: float) -> str:
    """The bar and the curve so far, a few kilobytes whatever the length of the run."""
    done, wide, high = len(seen), 560, 130
    left = seconds / max(1, done) * max(0, total - done)
    stride = max(1, done // 200)
    points = [*seen[::stride], seen[-1]]
    low, top = min(p[1] for p in points), max(p[1] for p in points)
    last = max(total, seen[-1][0], 1)
    path = " ".join(
        f"{50 + (wide - 60) * s / last:.1f},{10 + (high - 30) * (top - loss) / max(1e-9, top - low):.1f}"
        for s, loss in points
    )
    return (
        f'<div style="font-family:sans-serif;font-size:14px;background:#fff;color:#1b1b1b;padding:6px" role="status">'
        f'<progress max="{total}" value="{done}" style="width:{wide}px" aria-label="{escape(title)}"></progress><br>'
        f"step {done} of {total}, {escape(title)} {seen[-1][1]:.3f}, about {left:.0f} s left<br>"
        f'<svg width="{wide}" height="{high}" role="img" aria-label="loss so far">'
        f'<line x1="50" y1="{high - 18}" x2="{wide - 8}" y2="{high - 18}" stroke="{PALE}"/>'
        f'<polyline points="{path}" fill="none" stroke="#0072B2" stroke-width="2"/>'
        f'<g font-size="12" fill="{GREY}"><text x="0" y="16">{top:.2f}</text><text x="0" '
        f'y="{high - 20}">{low:.2f}</text></g>'
        "</svg></div>"
    )


def _figure(history: list[S], title: str, smooth: int) -> "Figure":
    from course_lib.view.charts import curves

    xs, ys = [float(s.step) for s in history], [s.loss for s in history]
    return curves({"": (xs, ys)}, y=title, smooth=smooth, size=(8.5, 3.8))


def explore(draw: Any, **controls: Any) -> None:
    """`ipywidgets.interact` with the course's manners: `draw(**values)` returns a figure, the first values are drawn
    as a still picture where no kernel runs. Needs a live kernel; keep a static figure beside it.

    controls: what `interact` takes, for instance `temperature=(0.1, 2.0, 0.1)`.
    """
    from ipywidgets import interact

    from course_lib.view.display import png, send

    def picture(**values: Any) -> None:
        send(
            {"image/png": png(draw(**values)), "text/plain": "[figure]"},
            {"image/png": {"alt": "redrawn at every move"}},
        )

    interact(picture, **controls)


def _kernel() -> bool:
    """True only where a front end can redraw an output: a Jupyter kernel."""
    import sys

    if "ipykernel" not in sys.modules or "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    return type(get_ipython()).__name__ == "ZMQInteractiveShell"
