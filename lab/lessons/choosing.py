"""The claim of lesson 21: what pretraining costs."""

from course_lib.analysis import cost
from course_lib.families import preset
from lab.lessons import Lab, experiment, papers

MIDDLE = "as if all had 512"  # lengths of the texts that a published model read


@experiment("pretraining-cost")
def pretraining_cost(lab: Lab, seed: int) -> dict[str, float]:
    """The lecture's dollars, hours times the nearest list price, shares of the peak, and today's
    dollars.
    """
    said = papers("21_choosing")["pretraining-cost"]
    values: dict[str, float] = {}
    for name, used in said["hardware"].items():
        hours, dollars = used["devices"] * used["days"] * 24, said["dollars"][name]
        listed = min(
            said["prices"][used["kind"]].values(), key=lambda price: abs(price - dollars / hours)
        )
        values |= {f"the lecture says/{name}": dollars, f"device-hours/{name}": hours}
        values[f"hours x list price/{name}"] = hours * listed
    for name in ("BERT-base", "BERT-large"):
        used, counted = said["hardware"][name], cost.parameters(preset(name.lower()))
        operations = cost.training_flops(counted, said["tokens"][MIDDLE])
        # a device has four chips
        peak = 4 * used["devices"] * said["peak of a v2 chip"] * used["days"] * 86_400
        values[f"share of peak, {MIDDLE}/{name}"] = operations / peak
        values[f"today, one A100/{name}"] = cost.bill(operations, cost.DEVICES["A100"]).money
    return values
