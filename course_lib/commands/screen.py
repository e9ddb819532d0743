"""What commands show: a progress bar on stderr, tables on stdout."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_lib.training.loop import Step


@contextmanager
def progress(steps: int) -> "Iterator[Callable[[Step], Step]]":
    """A bar on stderr with loss, speed and time left; it yields a function for each step."""
    from tqdm import tqdm

    # With a delay nothing is drawn before the first step, so an early error stands alone on the
    # screen. mininterval=0 draws the bar after every step.
    with tqdm(total=steps, unit="step", dynamic_ncols=True, delay=1e-3, mininterval=0) as bar:

        def show(step: "Step") -> "Step":
            bar.set_postfix_str(
                f"loss {step.loss:.3f}, {step.tokens / step.seconds:,.0f} tokens/s", refresh=False
            )
            bar.update(step.step - bar.n)  # by more than 1 at first, if the run was resumed
            return step

        yield show


def print_table(rows: Iterable[Sequence[str]], *columns: str) -> None:
    """A table on the screen; without names of columns it has no header."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, show_header=bool(columns))
    for row in rows:
        table.add_row(*row)
    Console().print(table)
