"""What a pretraining costs: every assumption is a slider, no kernel needed."""

import math
from collections.abc import Callable

from course_lib import cost
from course_lib.view.calculator import END, START, controls, placed, written
from course_lib.view.display import Html, escape
from course_lib.view.html import card, table

# Name, what stands beside it, from, to; the first four are powers of ten.
_SLIDERS = (
    ("n", "parameters", 6.0, 13.0),
    ("d", "tokens read in training", 6.0, 14.0),
    ("count", "devices", 0.0, 5.0),
    ("runs", "trainings in all, with trials and failures", 0.0, 3.0),
    ("each", "operations for each parameter and token", 1.0, 8.0),
    ("share", "share of the peak rate that is reached", 0.05, 1.0),
    ("price", "rent of a device for an hour ($)", 0.0, 12.0),
    ("overhead", "electricity of the building over that of the devices", 1.0, 2.5),
    ("grid", "grams of CO2 for a kilowatt hour", 0.0, 1000.0),
)
_ROWS = ("operations", "device-hours", "days", "rent ($)", "electricity (kWh)", "CO2 (kg)", "answers for as much")
ANSWER = 500  # tokens read and written for one answer, at 2 operations for each parameter

_SCRIPT = (
    START
    + """\
function draw() {
var device = data.devices[pick.value], at = {}, ten = {n: 1, d: 1, count: 1, runs: 1};
for (var name in bars) at[name] = ten[name] ? Math.pow(10, bars[name].value) : +bars[name].value;
at.count = Math.max(1, Math.round(at.count)); at.runs = Math.max(1, Math.round(at.runs));
var flops = at.each * at.n * at.d * at.runs, hours = flops / (device.flops * at.share) / 3600;
var kwh = hours * device.watts / 1000 * at.overhead;
var values = [flops, hours, hours / at.count / 24, hours * at.price, kwh, kwh * at.grid / 1000,
flops / (2 * at.n * data.answer)];
values.forEach(function(value, i) { shown[i].textContent = write(value); });
var says = {n: write(at.n), d: write(at.d), count: at.count.toLocaleString('en'), runs: at.runs,
each: at.each.toFixed(1), share: Math.round(100 * at.share) + '%', price: '$' + at.price.toFixed(2),
overhead: at.overhead.toFixed(2), grid: Math.round(at.grid)};
root.querySelectorAll('label output').forEach(function(out) { out.textContent = says[out.dataset.name]; });
}
"""
    + END
)


def bill_calculator(
    parameters: float,
    tokens: float,
    *,
    device: str = "A100",
    devices: int = 1,
    runs: int = 1,
    per_parameter: float = 6.0,
    utilisation: float = 0.4,
    price: float = 2.0,
    overhead: float = 1.1,
    grid: float = 400.0,
    title: str = "What does a pretraining cost?",
) -> Html:
    """Hours, money, electricity and carbon by `cost.bill`, moved by sliders; where no script runs, the first setting.

    Args:
        parameters: N, from a million to ten trillion. tokens: D, read in training, repetitions included.
        device: a name in `cost.DEVICES`. devices: that share the work. runs: trainings that are paid for.
        per_parameter: operations for each parameter and token (3 for an encoder-decoder, `cost.training_flops`).
        utilisation, price, overhead, grid: as for `cost.bill`.

    Raises:
        CourseError: no such device; a number that is not on its slider.
    """
    on = cost.device(device)
    power: Callable[[float], float] = math.log10
    start = {
        "n": power(parameters), "d": power(tokens), "count": power(devices), "runs": power(runs), "each": per_parameter,
        "share": utilisation, "price": price, "overhead": overhead, "grid": grid,
    }  # fmt: skip
    sliders = placed(_SLIDERS, start)
    flops = runs * cost.training_flops(parameters, tokens, per_parameter=per_parameter)
    how = {"utilisation": utilisation, "price": price, "overhead": overhead, "grid": grid}
    bill = cost.bill(flops, on, devices=devices, **how)
    answers = flops / cost.inference_flops(parameters, ANSWER)
    values = (flops, bill.device_hours, bill.days, bill.money, bill.kwh, bill.kg_co2, answers)
    cells = [written(value) for value in values]
    setting = (
        f"{written(parameters)} parameters, {written(tokens)} tokens, {devices:,} x {device} at {utilisation:.0%} of "
        f"peak, ${price:.2f} an hour, building factor {overhead:g}, {grid:g} g of CO2 a kWh, trainings: {runs:,}"
    )
    body = (
        f'<p style="margin:0 0 8px 0">At the start: {escape(setting)}. An answer: {ANSWER} tokens.</p>'
        '<div style="display:flex;gap:24px;flex-wrap:wrap;align-items:flex-start">'
        f"{controls(sliders, device)}"
        f"<div>{table(('it costs', ''), zip(_ROWS, cells, strict=True))}</div></div>"
    )
    kinds = {d.name: {"flops": d.flops, "watts": d.watts} for d in cost.DEVICES.values()}
    told = ", ".join(f"{name} {cell}" for name, cell in zip(_ROWS, cells, strict=True))
    return Html(card("bill", title, body, _SCRIPT, {"devices": kinds, "answer": ANSWER}), f"{title} {setting}: {told}")
