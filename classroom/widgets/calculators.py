"""What a model takes to train and to hold, and what it costs: every assumption is a slider, no
kernel needed.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from classroom.figures.display import Html
from classroom.widgets.card import card
from course_lib.analysis import cost
from course_lib.errors import CourseError

# A slider: name, what stands beside it, from, to, at the start where no argument says it.
Slider = tuple[str, str, float, float, float]
_SCALE: tuple[Slider, ...] = (  # powers of ten
    ("n", "parameters", 6.0, 13.0, 0.0),
    ("d", "tokens read in training", 6.0, 14.0, 0.0),
    ("count", "devices", 0.0, 5.0, 0.0),
)
_SHARE: Slider = ("share", "share of the peak rate that is reached", 0.05, 1.0, 0.4)
_log10: Callable[[float], float] = math.log10


def calculator(
    parameters: float = 175e9,
    tokens: float = 300e9,
    *,
    device: str = "V100",
    devices: int = 1000,
    utilisation: float = 0.3,
    title: str = "What does it take?",
) -> Html:
    """Operations, time, electricity and memory of a training by `analysis.cost`'s formulas, moved
    by sliders.

    Where no script runs, the table shows the first setting. device: a name in `cost.DEVICES`.
    utilisation: share of the peak rate that is reached."""
    on, overhead = cost.DEVICES[device], 1.1
    flops = cost.training_flops(parameters, tokens)
    bill = cost.bill(flops, on, devices=devices, utilisation=utilisation, overhead=overhead)
    weights, full = 2 * parameters, cost.training_bytes(parameters)
    rows = {
        "FLOPs, 6 N D": written(flops),
        "petaflop/s-days": written(cost.petaflop_days(flops)),
        "days of training": written(bill.days),
        "electricity (MWh)": written(bill.kwh / 1000),
        "tokens for each parameter": written(tokens / parameters),
        "weights, 16 bits (GB)": written(weights / 1e9),
        "weights, gradients, Adam (GB)": written(full / 1e9),
        "devices to hold the weights": f"{math.ceil(weights / on.memory):,}",
        "devices to train": f"{math.ceil(full / on.memory):,}",
    }
    kinds = {
        d.name: {"flops": d.flops, "memory": d.memory, "watts": d.watts}
        for d in cost.DEVICES.values()
    }
    return _sliding(
        "calculator",
        title,
        {"devices": kinds, "unit": cost.PETAFLOP_DAY, "overhead": overhead},
        sliders=_placed((*_SCALE, _SHARE), parameters, tokens, devices, share=utilisation),
        device=device,
        setting=_setting(parameters, tokens, device, devices, utilisation),
        head="it takes",
        rows=rows,
    )


def _sliding(
    kind: str,
    title: str,
    data: object,
    *,
    setting: str,
    rows: Mapping[str, str],
    note: str = "",
    **values: object,
) -> Html:
    """A card of sliders beside a table, which the script of this kind fills anew at every move."""
    scripts = ("sliders", kind, "sliders-end")
    values |= {
        "setting": setting,
        "note": note,
        "rows": list(rows.items()),
        "devices": list(cost.DEVICES),
    }
    html = card(kind, title, data, scripts=scripts, body="calculator", **values)
    return Html(
        html, f"{title} {setting}: {', '.join(f'{name} {cell}' for name, cell in rows.items())}"
    )


def _setting(
    parameters: float, tokens: float, device: str, devices: int, utilisation: float
) -> str:
    size = f"{written(parameters)} parameters, {written(tokens)} tokens"
    return f"{size}, {devices:,} x {device} at {utilisation:.0%} of peak"


def _placed(
    sliders: Sequence[Slider], parameters: float, tokens: float, devices: int, **start: float
) -> list[tuple[str, str, float, float, float]]:
    """Each slider with where it begins."""
    start |= {"n": _log10(parameters), "d": _log10(tokens), "count": _log10(devices)}
    placed = [
        (name, text, low, high, start.get(name, value)) for name, text, low, high, value in sliders
    ]
    for _, text, low, high, value in placed:
        if not low - 1e-9 <= value <= high + 1e-9:
            raise CourseError(
                f"The slider of {text} goes from {low:g} to {high:g}; {value:.3g} is not on it."
            )
    return placed


def written(x: float) -> str:
    """A number in few figures: 3.15e23, 175 billion, 3,646, 12.5, 0.031."""
    if x >= 1e15 or 0 < x < 0.001:
        mantissa, power = f"{x:.2e}".split("e")
        return f"{mantissa}e{int(power)}"
    for size, name in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million")):
        if x >= size:
            return f"{x / size:.3g}{name}"
    if x >= 100:
        return f"{x:,.0f}"
    return f"{x:.1f}" if x >= 1 else f"{x:.3f}"
