"""How much of what the machine can do at most a figure reaches (Williams et al. 2009, the
roofline).

FLOP/s are at most min(peak, bandwidth * FLOPs a byte); peak and bandwidth are measured beside the
figures.

FLOPs of a token: those of `forward_flops`, 2 N and attention's 4 T width a layer (causal: half).
Training takes three times as many, 6 N (Kaplan et al. 2020, section 2.1).
Bytes: the N weights, once for a batch. Training moves 11 numbers a weight: two passes read it, the
gradient is written and read, and AdamW reads four numbers and writes three. Activations are left
out."""

from collections.abc import Iterable
from typing import Any

import torch

from course_lib.analysis.cost import forward_flops, parameters
from course_lib.families import FAMILIES
from course_lib.model.transformer import Transformer
from lab.bench.contenders import GENERATED, MASKED, WAYS, Measurement, Timing, ours

TRAINING_FLOPS = 3  # forward passes that a training step costs
TRAINING_NUMBERS = 11  # that a training step moves for a weight


def work(
    measure: Measurement, name: str, contender: str, timing: Timing
) -> tuple[float, float] | None:
    """FLOPs and bytes that a token takes at least; None where a figure is no speed of one model.

    Args:
        measure: what the figure belongs to.
        name: of the figure's record, as "BERT: training".
        contender: whose precision counts.
        timing: says how large the model is.
    """
    if measure.of is None or "memory" in name:
        return None
    family, size_name = measure.of
    size = timing.size(size_name)
    with torch.device("meta"):
        model = ours(family, size)
    stacks = [part.config for part in model.modules() if isinstance(part, Transformer)]
    encoder = stacks[0]
    decoder = stacks[1] if len(stacks) > 1 else None

    figure = name.rpartition(": ")[2]
    is_training = "training" in figure
    is_writing = not is_training and figure != "inference"
    # An encoder-decoder that writes reads half a row, and then writes the other half.
    tokens = size.tokens // 2 if decoder and is_writing else size.tokens

    # The logits: an encoder-decoder's are the decoder's, ELECTRA's discriminator has none, and a
    # masked model learns from the masked tokens' alone.
    outputs = tokens
    if is_training and FAMILIES[family].objective == "masked":
        outputs = round(MASKED * tokens)
    if decoder or family == "electra":
        outputs = 0
    beams = WAYS["beam"]["num_beams"] if "beam" in figure else 1
    flops = forward_flops(encoder, tokens, outputs=outputs)
    if decoder:
        # The source is read once, whatever the number of beams.
        flops += beams * forward_flops(decoder, size.tokens // 2, memory=tokens)
    else:
        flops *= beams
    if is_training:
        flops *= TRAINING_FLOPS

    # Weights are read once for all tokens of a batch, or, in writing, once for each new token.
    numbers = parameters(decoder if decoder and is_writing else lambda: ours(family, size))
    if is_training:
        numbers *= TRAINING_NUMBERS
    together = size.batch * size.tokens
    if is_writing:
        together = int(name.rpartition("batch ")[2]) if "batch " in name else GENERATED
    width = 2 if "bf16" in contender and not is_training else 4
    return flops / tokens, width * numbers / together


def compare(records: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Give each row of known work its share of the machine's limits.

    Args:
        records: of the bench; their rows are changed in place.

    Returns:
        the limits, in FLOP/s and bytes/s; none if they, or all rows' work, are unknown.
    """
    records = [record for record in records if "work" in record]
    limits: dict[str, float] = {}
    for record in records:
        if record["measure"] == "limits":
            limit = record["name"].removeprefix("limits: ")
            limits[limit] = 1e9 * record["rows"][0]["median"]
    if not limits:
        return {}

    compared = False
    for record in records:
        for row in record["rows"]:
            least = record["work"].get(row["contender"])
            if not least:
                continue
            flops, moved = least
            precision = row["contender"][-4:]  # "fp32" or "bf16"
            row["FLOP/s"] = row["median"] * flops
            row["FLOP/byte"] = flops / moved
            roof = min(limits[precision], limits["copy"] * row["FLOP/byte"])
            row["share"] = row["FLOP/s"] / roof
            compared = True
    return limits if compared else {}


def draw(records: Iterable[dict[str, Any]], limits: dict[str, float]) -> Any:
    """The picture: the roofs of both precisions, and every row under its own."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot(
        xscale="log", yscale="log", xlabel="FLOPs a byte, at most", ylabel="GFLOP/s"
    )
    rows = [row for record in records for row in record["rows"]]
    rows = [row for row in rows if "share" in row]
    intensities = [row["FLOP/byte"] for row in rows]
    left = min(intensities) / 2
    right = max(intensities) * 2
    for precision, style in (("fp32", "-"), ("bf16", "--")):
        # The roof bends where the peak, and no more the bandwidth, is the limit.
        bend = min(max(limits[precision] / limits["copy"], left), right)
        x = [left, bend, right]
        y = [min(limits[precision], limits["copy"] * intensity) / 1e9 for intensity in x]
        axes.plot(x, y, style, color="#5f6368", label=f"limit, {precision}")
    for name in dict.fromkeys(row["contender"] for row in rows):
        own = [row for row in rows if row["contender"] == name]
        x = [row["FLOP/byte"] for row in own]
        y = [row["FLOP/s"] / 1e9 for row in own]
        axes.scatter(x, y, s=20, alpha=0.7, label=name)
    axes.legend(loc="lower right", fontsize=8)
    return figure
