"""What a model takes to train and to hold: sliders for parameters, tokens and devices, no kernel needed."""

import math
from collections.abc import Mapping, Sequence

from course_lib import cost
from course_lib.errors import CourseError
from course_lib.view.display import Html, escape
from course_lib.view.html import card, table

Slider = tuple[str, str, float, float, float]  # name, what stands beside it, from, to, where it begins
# Name, what stands beside it, from, to; all but the utilisation are powers of ten.
_SLIDERS = (
    ("n", "parameters", 6.0, 13.0),
    ("d", "tokens read in training", 6.0, 14.0),
    ("count", "devices", 0.0, 5.0),
    ("share", "share of the peak rate that is reached", 0.05, 1.0),
)
_ROWS = (
    "operations, 6 N D", "petaflop/s-days", "days of training", "electricity (MWh)", "tokens for each parameter",
    "weights, 16 bits (GB)", "weights, gradients, Adam (GB)", "devices to hold the weights", "devices to train",
)  # fmt: skip

# What a calculator's script holds before and behind its function draw(), which fills the table from the controls.
START = """
var bars = {}, shown = root.querySelectorAll('td');
root.querySelectorAll('input').forEach(function(bar) { bars[bar.name] = bar; });
var pick = root.querySelector('select');
function write(x) {
if (x >= 1e15 || (x > 0 && x < 0.001)) return x.toExponential(2).replace('e+', 'e');
var named = [[1e12, ' trillion'], [1e9, ' billion'], [1e6, ' million']];
for (var i = 0; i < 3; i++) if (x >= named[i][0]) return +(x / named[i][0]).toPrecision(3) + named[i][1];
if (x >= 100) return Math.round(x).toString().replace(/\\B(?=(\\d{3})+$)/g, ',');
return x >= 1 ? x.toFixed(1) : x.toFixed(3);
}
"""
END = """\
root.querySelectorAll('input,select').forEach(function(part) { part.addEventListener('input', draw); });
root.querySelector('.controls').hidden = false;
draw();
"""
_SCRIPT = (
    START
    + """\
function draw() {
var device = data.devices[pick.value], share = +bars.share.value;
var n = Math.pow(10, bars.n.value), d = Math.pow(10, bars.d.value);
var count = Math.max(1, Math.round(Math.pow(10, bars.count.value)));
var flops = 6 * n * d, hours = flops / (device.flops * share) / 3600;
var values = [flops, flops / data.unit, hours / count / 24, hours * device.watts * data.overhead / 1e6, d / n,
2 * n / 1e9, 16 * n / 1e9, Math.ceil(2 * n / device.memory), Math.ceil(16 * n / device.memory)];
values.forEach(function(value, i) { shown[i].textContent = i > 6 ? write(Math.max(value, 1)).replace('.0', '')
: write(value); });
var says = {n: write(n), d: write(d), count: count.toLocaleString('en'), share: Math.round(100 * share) + '%'};
root.querySelectorAll('label output').forEach(function(out) { out.textContent = says[out.dataset.name]; });
}
"""
    + END
)


def calculator(
    parameters: float = 175e9,
    tokens: float = 300e9,
    *,
    device: str = "V100",
    devices: int = 1000,
    utilisation: float = 0.3,
    title: str = "What does it take?",
) -> Html:
    """Operations, time, electricity and memory of a training by `course_lib.cost`'s formulas, moved by sliders.

    Where no script runs, the table shows the first setting.

    Args:
        parameters: N, from a million to ten trillion. tokens: D, read in training. device: a name in `cost.DEVICES`.
        devices: that share the work. utilisation: share of the peak rate that is reached.

    Raises:
        CourseError: no such device; a number that is not on its slider.
    """
    on, overhead = cost.device(device), 1.1
    powers = {"n": parameters, "d": tokens, "count": devices}
    start = {name: math.log10(value) for name, value in powers.items()} | {"share": utilisation}
    sliders = placed(_SLIDERS, start)
    flops = cost.training_flops(parameters, tokens)
    bill = cost.bill(flops, on, devices=devices, utilisation=utilisation, overhead=overhead)
    full = cost.training_bytes(parameters)
    values = (flops, cost.petaflop_days(flops), bill.days, bill.kwh / 1000, tokens / parameters)
    cells = [written(value) for value in (*values, 2 * parameters / 1e9, full / 1e9)]
    cells += [f"{cost.devices_needed(size, on):,}" for size in (2 * parameters, full)]
    work = f"{devices:,} x {device} at {utilisation:.0%} of peak"
    setting = f"{written(parameters)} parameters, {written(tokens)} tokens, {work}"
    body = (
        f'<p style="margin:0 0 8px 0">At the start: {escape(setting)}.</p>'
        '<div style="display:flex;gap:24px;flex-wrap:wrap;align-items:flex-start">'
        f"{controls(sliders, device)}<div>{table(('it takes', ''), zip(_ROWS, cells, strict=True))}</div></div>"
    )
    kinds = {d.name: {"flops": d.flops, "memory": d.memory, "watts": d.watts} for d in cost.DEVICES.values()}
    data = {"devices": kinds, "unit": cost.PETAFLOP_DAY, "overhead": overhead}
    told = ", ".join(f"{name} {cell}" for name, cell in zip(_ROWS, cells, strict=True))
    return Html(card("calculator", title, body, _SCRIPT, data), f"{title} {setting}: {told}")


def placed(sliders: Sequence[tuple[str, str, float, float]], start: Mapping[str, float]) -> list[Slider]:
    """Each slider with where it begins.

    Raises:
        CourseError: a number that is not on its slider.
    """
    for name, text, low, high in sliders:
        if not low - 1e-9 <= start[name] <= high + 1e-9:
            raise CourseError(f"The slider of {text} goes from {low:g} to {high:g}; {start[name]:.3g} is not on it.")
    return [(*row, start[row[0]]) for row in sliders]


def controls(sliders: Sequence[Slider], device: str) -> str:
    """A menu of the devices, and the sliders."""
    bars = "".join(
        f'<label style="display:block;margin:4px 0">{text}: <output data-name="{name}"></output><input type="range" '
        f'name="{name}" min="{low}" max="{high}" step="any" value="{start:.12g}" aria-label="{text}" '
        'style="width:100%;accent-color:#0072B2"></label>'
        for name, text, low, high, start in sliders
    )
    options = "".join(f"<option{' selected' if name == device else ''}>{name}</option>" for name in cost.DEVICES)
    return (
        '<div class="controls" hidden style="flex:1 1 18em"><label>device <select aria-label="device" '
        f'style="font:inherit;padding:3px">{options}</select></label>{bars}</div>'
    )


def written(x: float) -> str:
    """A number in few figures: 3.15e23, 175 billion, 3,646, 12.5, 0.031."""
    if x >= 1e15 or 0 < x < 0.001:
        mantissa, power = f"{x:.2e}".split("e")
        return f"{mantissa}e{int(power)}"
    for size, name in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million")):
        if x >= size:
            return f"{x / size:.3g}{name}"
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}" if x >= 1 else f"{x:.3f}"
