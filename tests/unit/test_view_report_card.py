"""The report card and the bill's calculator: whole as text, the same numbers as the library, refusals in a sentence."""

import pytest

from course_lib import cost, view
from course_lib.errors import CourseError
from course_lib.view.calculator import written

ROWS = [
    view.ReportEntry("lora", "20_peft", "measured", "W0 + BA <thin>", "partly", "3 seeds", "1/3", "20_peft.ipynb#lora"),
    view.ReportEntry("gelu", "08_gpt1", "exact", "x Phi(x)", "", "shown live in lesson 08"),
]  # fmt: skip


def test_the_card_holds_every_claim_and_guesses_none() -> None:
    shown = view.report_card(ROWS)
    assert "2 claims: 1 partly, 1 not recorded yet" in shown._repr_html_()
    assert "20 lora: partly (3 seeds)" in repr(shown)
    assert "08 gelu: not recorded yet (shown live in lesson 08)" in repr(shown)
    html = shown._repr_html_()
    assert 'href="20_peft.ipynb#lora"' in html and "&lt;thin&gt;" in html and "<thin>" not in html
    assert html.count("<a href") == 1
    with pytest.raises(CourseError, match="at least one claim"):
        view.report_card([])


def test_the_bill_is_the_librarys() -> None:
    how = {"utilisation": 0.3, "price": 3.0, "overhead": 1.2, "grid": 300.0}
    shown = view.bill_calculator(110e6, 137e9, device="H100", devices=8, runs=2, **how)
    bill = cost.bill(2 * cost.training_flops(110e6, 137e9), cost.device("H100"), devices=8, **how)
    assert f"rent ($) {bill.money:.0f}" in repr(shown) and f"device-hours {bill.device_hours:.0f}" in repr(shown)
    assert f"electricity (kWh) {written(bill.kwh)}" in repr(shown) and f"CO2 (kg) {written(bill.kg_co2)}" in repr(shown)


@pytest.mark.parametrize(
    ("given", "says"), [({"device": "abacus"}, "no device"), ({"price": 100.0}, "slider of rent"),
                        ({"per_parameter": 0.5}, "slider of operations")]
)  # fmt: skip
def test_what_is_not_on_a_slider_is_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(CourseError, match=says):
        view.bill_calculator(1e9, 1e10, **given)  # type: ignore[arg-type]
