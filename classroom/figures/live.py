"""Training watched as it happens: a bar and a curve that consume train()'s records, one still
picture at the end.
"""

import os
import time
from collections.abc import Iterable, Iterator
from functools import wraps
from typing import Any

from tqdm import tqdm

from classroom.figures.charts import curves
from classroom.figures.display import png, send, shell, show
from classroom.figures.style import GREY, PALE
from classroom.templates import environment

REFRESH = 0.3  # seconds between two pictures


def train_with_progress(
    steps: Iterable[Any],
    total: int,
    *,
    label: str = "loss",
    caption: str = "",
    picture: bool = True,
) -> list[Any]:
    """Run the training that `steps` yields, show progress meanwhile and the loss curve at the end.

    In a live notebook a bar and a curve are redrawn a few times a second; in a terminal a progress
    bar runs. With TQDM_DISABLE=1 (the build of stored outputs) neither is drawn, only the final
    picture, which holds no times.

    Args:
        steps: records with `.step` and `.loss`, for instance `train(...)`; they are returned.
            total: how many.
        picture: False leaves the final picture out, for several runs that are compared in one
            figure later.
    """
    history = list(_watched(steps, total, label))
    if picture and history:
        window = max(1, len(history) // 50)
        pale = f" (pale: each step; dark: mean of the last {window})" if window > 1 else ""
        first, last = (f"{step.loss:.2f} at step {step.step}" for step in (history[0], history[-1]))
        losses = [float(step.step) for step in history], [step.loss for step in history]
        show(
            curves({"": losses}, y=label, smooth=window, size=(8.5, 3.8)),
            caption or f"Training loss over {len(history)} steps{pale}.",
            f"{label} against step, from {first} to {last}.",
        )
    return history


def _watched(steps: Iterable[Any], total: int, label: str) -> Iterator[Any]:
    if os.environ.get("TQDM_DISABLE", "") not in ("", "0"):
        yield from steps
    elif type(shell()).__name__ == "ZMQInteractiveShell":  # a front end that can redraw an output
        yield from _in_notebook(steps, total, label)
    else:
        bar = tqdm(steps, total=total, desc=label, leave=False)
        for step in bar:
            bar.set_postfix_str(f"loss {step.loss:.3f}", refresh=False)
            yield step


def _in_notebook(steps: Iterable[Any], total: int, label: str) -> Iterator[Any]:
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
                handle.update(HTML(progress_html(seen, total, label, now - began)))  # type: ignore[no-untyped-call]
    finally:
        handle.update(HTML(""))  # type: ignore[no-untyped-call]


def progress_html(seen: list[tuple[int, float]], total: int, label: str, seconds: float) -> str:
    """The bar and the curve so far, a few kilobytes whatever the length of the run."""
    done, wide, high = len(seen), 560, 130
    left = seconds / max(1, done) * max(0, total - done)
    stride = max(1, done // 200)
    points = [*seen[::stride], seen[-1]]
    low, top = min(p[1] for p in points), max(p[1] for p in points)
    across, down = (wide - 60) / max(total, seen[-1][0], 1), (high - 30) / max(1e-9, top - low)
    return (
        environment("classroom.figures")
        .get_template("progress.html")
        .render(
            total=total,
            done=done,
            label=label,
            loss=seen[-1][1],
            left=left,
            wide=wide,
            high=high,
            low=low,
            top=top,
            points=[(50 + across * step, 10 + down * (top - loss)) for step, loss in points],
            PALE=PALE,
            GREY=GREY,
        )
    )


def explore(draw: Any, **controls: Any) -> None:
    """`ipywidgets.interact` of a figure that `draw(**values)` returns. Needs a live kernel: keep a
    static figure beside it. controls: what `interact` takes, for instance `temperature=(0.1, 2.0,
    0.1)`; they begin at `draw`'s defaults."""
    from ipywidgets import interact

    @wraps(draw)
    def picture(**values: Any) -> None:
        drawn = {"image/png": png(draw(**values)), "text/plain": "[figure]"}
        send(drawn, {"image/png": {"alt": "redrawn at every move"}})

    interact(picture, **controls)
