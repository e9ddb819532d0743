"""The computed claims of lessons 18, 19 and 21: how many parameters, operations and dollars, from numbers alone."""

from collections.abc import Iterable
from functools import partial

from course_lib import cost, zoo
from course_lib.claims.experiment import experiment
from course_lib.claims.lab import Lab
from course_lib.claims.ledger import published
from course_lib.claims.record import Figure, Figures
from course_lib.experiments.judging import names, percent, short
from course_lib.models.bert import bert_base, bert_large
from course_lib.models.gpt import GPT2_SIZES, GPT3_SIZES, gpt, gpt1, gpt2, gpt3

MILLION, BILLION = 1e6, 1e9
VERDICTS = ("not at this scale", "partly", "reproduced")  # if none, one or both of two statements hold


def _off(counted: Figure, said: Figure) -> float:
    """How far a count is from what a paper says, as a share of that."""
    return abs(counted.mean / said.mean - 1)


def _gpt2_sizes(f: Figures) -> tuple[str, str]:
    off = [_off(f[f"counted/{size}"], f[f"label/{size}"]) for size in GPT2_SIZES]
    verdict = "reproduced" if max(off) < 0.01 else "partly" if max(off) < 0.1 else "not at this scale"
    same = all(f[f"counted/{size}"] == f[f"transformers/{size}"] for size in GPT2_SIZES)
    tables = max(_off(f[f"with GPT-1's tables/{size}"], f[f"label/{size}"]) for size in GPT2_SIZES)
    counts = ", ".join(f"{f[f'counted/{size}'].mean:,.0f}" for size in GPT2_SIZES)
    return verdict, (
        f"{counts} parameters, {'as' if same else 'not as'} transformers counts: {min(off):.1%} to {max(off):.1%} off "
        f"the labels. With GPT-1's vocabulary and context they would be within {tables:.1%} of them."
    )


@experiment(
    "gpt2-sizes",
    rule="""reproduced if all four counts are within 1% of the labels; partly if layers and widths give models within
    10% of them; otherwise not at this scale. What transformers counts, and the counts with GPT-1's vocabulary and
    context, are recorded and not judged.""",
    judge=_gpt2_sizes,
)
def gpt2_sizes(lab: Lab, seed: int) -> dict[str, float]:
    """Counted on the meta device: ours, transformers', and with 40,478 tokens and a context of 512."""
    from transformers import GPT2Config, GPT2LMHeadModel

    values: dict[str, float] = {}
    labels = {row["layers"]: row["millions"] * MILLION for row in published("18_gpt2")["gpt2-sizes"]["rows"]}
    for size, (layers, width, heads) in GPT2_SIZES.items():
        theirs = partial(GPT2LMHeadModel, GPT2Config(n_layer=layers, n_embd=width, n_head=heads))
        old = gpt(40_478, width=width, layers=layers, heads=heads, length=512)
        values |= {
            f"label/{size}": labels[layers],
            f"counted/{size}": cost.parameters(gpt2(size)),
            f"transformers/{size}": cost.parameters(theirs),
            f"with GPT-1's tables/{size}": cost.parameters(old),
        }
    return values


def _gpt3_table(f: Figures) -> tuple[str, str]:
    off = max(_off(f[f"counted/{size}"], f[f"printed/{size}"]) for size in GPT3_SIZES)
    odd = [size for size in GPT3_SIZES if f[f"heads x head width/{size}"].mean != f[f"printed width/{size}"].mean]
    largest = [f[f"{what}/175B"].mean for what in ("counted", "training GB", "days of 1,000 V100 at 30%")]
    return VERDICTS[(off <= 0.02) + (odd == ["XL", "13B"])], (
        f"The counts are at most {off:.1%} off the printed ones; rows whose heads do not make the width: "
        f"{', '.join(odd) or 'none'}. The largest has {largest[0] / BILLION:.1f} billion parameters, takes "
        f"{largest[1]:,.0f} GB to train with Adam, and {largest[2]:.0f} days of 1,000 V100s at 30% of their peak."
    )


@experiment(
    "gpt3-table",
    rule="""Every count is within 2% of the printed one, and exactly the two rows XL and 13B contradict themselves
    (heads times head width is not the width): reproduced; one of the two: partly; otherwise not at this scale.""",
    judge=_gpt3_table,
    config={"tokens": 300 * BILLION, "XL": "taken with 16 heads", "13B": "taken with a width of 5,120"},
)
def gpt3_table(lab: Lab, seed: int) -> dict[str, float]:
    """Parameters, operations, memory and days of the eight rows; the widths that they print."""
    values: dict[str, float] = {}
    for size, row in GPT3_SIZES.items():
        config = gpt3(size)
        counted = cost.parameters(config)
        operations = cost.training_flops(counted, 300 * BILLION)
        values |= {
            f"printed/{size}": row.parameters,
            f"counted/{size}": counted,
            f"printed width/{size}": row.width,
            f"heads x head width/{size}": row.heads * row.head_width,
            f"operations/{size}": operations,
            f"weights GB/{size}": 2 * counted / BILLION,
            f"training GB/{size}": cost.training_bytes(counted) / BILLION,
            f"cache GB/{size}": cost.kv_cache_bytes(config, 2048) / BILLION,
            f"days of 1,000 V100 at 30%/{size}": cost.bill(
                operations, cost.device("V100"), devices=1000, utilisation=0.3
            ).days,
        }
    return values


SMALL, LARGE = published("19_gpt3")["training-compute"]["states"]["pair"]
DAYS, PARAMETERS = "petaflop/s-days/{}".format, "parameters/{}".format


def _compute(f: Figures) -> tuple[str, str]:
    near = all(abs(f[DAYS(name)].mean / 50 - 1) <= 0.15 for name in (SMALL, LARGE))
    times = f[PARAMETERS(LARGE)].mean / f[PARAMETERS(SMALL)].mean
    return VERDICTS[near + (times >= 9)], (
        f"{SMALL} took {f[DAYS(SMALL)].mean:.0f} petaflop/s-days, {LARGE} {f[DAYS(LARGE)].mean:.0f}; it is "
        f"{times:.1f} times larger."
    )


@experiment(
    "training-compute",
    rule="""Both are within 15% of 50 petaflop/s-days, and the one has nine times or more the parameters of the other:
    reproduced; one of the two: partly; otherwise not at this scale.""",
    judge=_compute,
    config={"GPU": "A100 at 40% of its peak", "GPT-1's tokens": "100 billion, our estimate"},
)
def training_compute(lab: Lab, seed: int) -> dict[str, float]:
    """6 N D of the published models, of GPT-1 and of the course's own, and hours of one A100."""
    models = {name: row[:3] for name, row in published("19_gpt3")["training-compute"]["rows"].items()}
    mini, tokens = zoo.load("gpt-mini")[0], zoo.card("gpt-mini")["tokens"]
    models["GPT-1"] = [cost.parameters(gpt1()) / MILLION, 100, 6]
    models["gpt-mini"] = [cost.parameters(mini.stack.config) / MILLION, tokens / BILLION, 6]
    values: dict[str, float] = {}
    for name, (millions, billions, each) in models.items():
        operations = cost.training_flops(millions * MILLION, billions * BILLION, per_parameter=each)
        values |= {
            PARAMETERS(name): millions * MILLION,
            DAYS(name): cost.petaflop_days(operations),
            f"hours of one A100/{name}": cost.bill(operations, cost.device("A100")).device_hours,
        }
    return values


def _comparison(f: Figures) -> tuple[str, str]:
    systems = names(f, "counted")
    near = [name for name in systems if _off(f[f"counted/{name}"], f[f"the lecture says/{name}"]) <= 0.05]
    verdict = "reproduced" if near == systems else "partly" if near else "not at this scale"
    told = ", ".join(f"{name} {f[f'counted/{name}'].mean / MILLION:,.0f}M" for name in systems)
    return verdict, f"Counted from layers, width and context: {told}. The other two are estimates and not judged."


@experiment(
    "gpt-comparison",
    rule="""The three published sizes, counted from the lecture's layers, width and context, are within 5% of what it
    says: reproduced; one or two of them: partly; otherwise not at this scale. The estimates cannot be checked.""",
    judge=_comparison,
)
def gpt_comparison(lab: Lab, seed: int) -> dict[str, float]:
    """What the lecture says of all five, and the counts of the three that are published."""
    rows = published("19_gpt3")["gpt-comparison"]["rows"]
    unit = {"M": MILLION, "B": BILLION, "T": 1e12}
    said = {name: row[0].rstrip("+") for name, row in rows.items()}
    values = {f"the lecture says/{name}": float(size[:-1]) * unit[size[-1]] for name, size in said.items()}
    configs = {"GPT-1": gpt1(), "GPT-2": gpt2("1558M"), "GPT-3": gpt3()}
    return values | {f"counted/{name}": cost.parameters(config) for name, config in configs.items()}


def _nearest(price: float, prices: Iterable[float]) -> float:
    return min(prices, key=lambda listed: abs(listed - price))


MIDDLE, BERTS = "as if all had 512", {"BERT-base": bert_base, "BERT-large": bert_large}


def _pretraining_cost(f: Figures) -> tuple[str, str]:
    off = max(_off(f[f"hours x list price/{name}"], f[f"the lecture says/{name}"]) for name in names(f, "device-hours"))
    share = [f[f"share of peak, {MIDDLE}/{name}"].mean for name in BERTS]
    today = " and ".join(f"${short(f[f'today, one A100/{name}'].mean)}" for name in BERTS)
    return VERDICTS[(off <= 0.1) + all(0.1 <= part <= 1 for part in share)], (
        f"Every bill is within {off:.0%} of its device-hours times a price of the list; the BERTs' operations are "
        f"{percent(share[0])} and {percent(share[1])} of what their devices could do. On an A100 at 40% of its peak, "
        f"at $2 an hour, they cost {today} today."
    )


@experiment(
    "pretraining-cost",
    rule="""Each of the lecture's bills is within 10% of its device-hours times one price of the list; and, with the
    tokens as if all texts had 512, both BERTs need between 10% and 100% of their devices' peak. Both: reproduced; one:
    partly; otherwise not at this scale.""",
    judge=_pretraining_cost,
    config={"today": "A100, 40% of its peak, $2 an hour, the tokens as if all texts had 512"},
)
def pretraining_cost(lab: Lab, seed: int) -> dict[str, float]:
    """The lecture's dollars, hours times the nearest list price, shares of the peak, and today's dollars."""
    said = published("21_choosing")["pretraining-cost"]
    values: dict[str, float] = {}
    for name, used in said["hardware"].items():
        hours, dollars = used["devices"] * used["days"] * 24, said["dollars"][name]
        listed = _nearest(dollars / hours, said["prices"][used["kind"]].values())
        values |= {
            f"the lecture says/{name}": dollars,
            f"device-hours/{name}": hours,
            f"hours x list price/{name}": hours * listed,
        }
    readings = {how: tokens for how, tokens in said["tokens"].items() if how != "source"}
    for name, build in BERTS.items():
        used, counted = said["hardware"][name], cost.parameters(build())
        peak = 4 * used["devices"] * said["peak of a v2 chip"] * used["days"] * 86_400  # a device has four chips
        for how, tokens in readings.items():
            values[f"share of peak, {how}/{name}"] = cost.training_flops(counted, tokens) / peak
        now = cost.bill(cost.training_flops(counted, readings[MIDDLE]), cost.device("A100"))
        values[f"today, one A100/{name}"] = now.money
    return values
