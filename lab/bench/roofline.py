"""How much of what the machine can do at most a figure reaches (Williams et al. 2009, the
roofline).

FLOP/s are at most min(peak, bandwidth * FLOPs a byte); peak and bandwidth are measured beside the
figures."""

from collections.abc import Iterable
from typing import Any

import torch

from course_lib.analysis.cost import forward_flops, parameters
from course_lib.families import FAMILIES
from course_lib.model.transformer import Transformer
from lab.bench.contenders import GENERATED, MASKED, WAYS, Measurement, Timing, ours


def work(measure: Measurement, name: str, contender: str, t: Timing) -> tuple[float, float] | None:
    """FLOPs and bytes that a token takes at least; None where a figure is no speed of one model.

    FLOPs: of `forward_flops`, 2 N and attention's 4 T width a layer (causal: half); training three
    times that, 6 N (Kaplan et al. 2020, section 2.1). Bytes: the N weights once for a batch;
    training 11 numbers a weight (two passes read it, the gradient is written and read, AdamW reads
    four and writes three), of an encoder-decoder that writes, half a row after half a row, its
    decoder's. Each beam is a row more. No activations."""
    figure = name.rpartition(": ")[2]
    if not measure.of or "memory" in name:
        return None
    family, size = measure.of[0], t.size(measure.of[1])
    training, writing = "training" in figure, "training" not in figure and figure != "inference"
    with torch.device("meta"):
        encoder, *decoder = (
            m.config for m in ours(family, size).modules() if isinstance(m, Transformer)
        )
    tokens = size.tokens // 2 if decoder and writing else size.tokens
    asked = (
        round(MASKED * tokens) if training and FAMILIES[family].objective == "masked" else tokens
    )
    beams = WAYS["beam"]["num_beams"] if "beam" in figure else 1
    flops = forward_flops(encoder, tokens, outputs=0 if decoder or family == "electra" else asked)
    flops = (
        flops + beams * forward_flops(decoder[0], size.tokens // 2, memory=tokens)
        if decoder
        else beams * flops
    )
    rows = int(name.rpartition("batch ")[2]) if "batch " in name else GENERATED
    numbers = parameters(decoder[0] if decoder and writing else lambda: ours(family, size)) * (
        11 if training else 1
    )
    moved = numbers / (rows if writing else size.batch * size.tokens)
    width = 2 if "bf16" in contender and not training else 4
    return flops * (3 if training else 1) / tokens, width * moved


def compare(records: Iterable[dict[str, Any]]) -> dict[str, float]:
    """The limits, in FLOP/s and bytes/s, if all are known; then each row of known work gets its
    share of them.
    """
    records = [record for record in records if "work" in record]
    found = {
        r["name"].removeprefix("limits: "): 1e9 * r["rows"][0]["median"]
        for r in records
        if r["measure"] == "limits"
    }
    for record in records if found else []:
        for row in record["rows"]:
            if it := record["work"].get(row["contender"]):
                row["FLOP/s"], row["FLOP/byte"] = row["median"] * it[0], it[0] / it[1]
                row["share"] = row["FLOP/s"] / min(
                    found[row["contender"][-4:]], found["copy"] * row["FLOP/byte"]
                )
    return found if any("share" in row for record in records for row in record["rows"]) else {}


def draw(records: Iterable[dict[str, Any]], limits: dict[str, float]) -> Any:
    """The picture: the roofs of both precisions, and every row under its own."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot(
        xscale="log", yscale="log", xlabel="FLOPs a byte, at most", ylabel="GFLOP/s"
    )
    rows = [row for record in records for row in record["rows"] if "share" in row]
    ends = [min(row["FLOP/byte"] for row in rows) / 2, max(row["FLOP/byte"] for row in rows) * 2]
    for precision, style in (("fp32", "-"), ("bf16", "--")):
        x = sorted([*ends, min(max(limits[precision] / limits["copy"], ends[0]), ends[1])])
        y = [min(limits[precision], limits["copy"] * each) / 1e9 for each in x]
        axes.plot(x, y, style, color="#5f6368", label=f"limit, {precision}")
    for name in dict.fromkeys(row["contender"] for row in rows):
        mine = [row for row in rows if row["contender"] == name]
        axes.scatter(
            [r["FLOP/byte"] for r in mine],
            [r["FLOP/s"] / 1e9 for r in mine],
            s=20,
            alpha=0.7,
            label=name,
        )
    axes.legend(loc="lower right", fontsize=8)
    return figure
