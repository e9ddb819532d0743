"""What is measured, and of whom: a model of the course, or the public one of the same family, in
one process.

The public model is built from the configuration that the course writes for it, so that both have
the same weights."""

import statistics
import subprocess
import sys
import timeit
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from course_lib.errors import CourseError
from course_lib.families import FAMILIES, public_class
from course_lib.generation import bf16_copy, generate
from course_lib.model import heads, transformer
from course_lib.model.config import StackConfig
from course_lib.objectives import OBJECTIVES, losses
from course_lib.training.device import Precision
from course_lib.training.loop import TrainConfig, train
from lab.bench import nanogpt

Measured = dict[str, float]
GIVEN = yaml.safe_load(Path(__file__).with_name("given.yaml").read_text(encoding="utf-8"))
MASKED, GENERATED = 0.15, 8  # share of masked tokens; rows that are continued at a time
PROMPTS: tuple[int, ...] = (1, 16)
WAYS: dict[str, dict[str, Any]] = GIVEN["ways"]  # options of both sides' `generate`
OPTIONS = {"albert": {"embed": 32}}  # of a family's configuration, beside its size


@dataclass(frozen=True)
class ModelSize:
    """A model and its batch. tokens: T; batch: B."""

    layers: int
    width: int
    heads: int
    tokens: int
    batch: int
    vocab: int


SIZES = {name: ModelSize(**size) for name, size in GIVEN["sizes"].items()}


@dataclass(frozen=True)
class Timing:
    """How to measure.

    steps: timed ones, after `warmup`. new: tokens to generate. tiny: models of no size, for tests.
    """

    rounds: int = 3
    steps: int = 6
    warmup: int = 2
    new: int = 32
    tiny: bool = False

    def size(self, name: str) -> ModelSize:
        return SIZES["tiny" if self.tiny else name]


Contender = Callable[[Timing], Measured]


def config_of(family: str, size: ModelSize) -> StackConfig:
    """A configuration of this size, without dropout."""
    shape = {
        "width": size.width,
        "layers": size.layers,
        "heads": size.heads,
        "length": 2 * size.tokens,
    }
    config = FAMILIES[family].config(size.vocab, **shape, **OPTIONS.get(family, {}))
    return replace(config, dropout=0.0, attention_dropout=0.0)


def ours(family: str, size: ModelSize) -> nn.Module:
    """The course's model; of ELECTRA the discriminator, as the public class has it."""
    config = config_of(family, size)
    return (
        heads.RTD(transformer.Transformer(config))
        if family == "electra"
        else FAMILIES[family].model(config, 0)
    )


def theirs(family: str, size: ModelSize) -> Any:
    """The public model of the same configuration, with random weights."""
    import transformers

    found = FAMILIES[family]
    special = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "decoder_start_token_id": 0}
    values = found.write_config(config_of(family, size)) | special
    with torch.device("meta"):
        name = public_class(ours(family, size), found) or ""
    return getattr(transformers, name)(
        transformers.AutoConfig.for_model(found.model_type, **values)
    )


def peer(family: str, size: ModelSize) -> nanogpt.GPT:
    """nanoGPT's model, which is a GPT-2."""
    return nanogpt.GPT(size.vocab, 2 * size.tokens, size.width, size.layers, size.heads)


def batches_of(family: str, size: ModelSize) -> list[losses.Batch]:
    """Four batches of random tokens, with the labels of the family's objective."""
    made, rng = list[losses.Batch](), torch.Generator().manual_seed(0)
    for _ in range(4):
        ids = torch.randint(size.vocab, (size.batch, size.tokens), generator=rng)
        at = torch.rand(ids.shape, generator=torch.Generator().manual_seed(1)) < MASKED
        labelled: dict[str, losses.Batch] = {
            "masked": {
                "ids": ids.masked_fill(at, 4),
                "labels": ids.masked_fill(~at, -100),
                "loss_mask": at,
            },
            "replaced": {"ids": ids, "labels": (ids % 7 == 0).long()},
            "causal": {"ids": ids},
        }
        halves = {"ids": ids, "labels": ids[:, : ids.shape[1] // 2].contiguous()}
        made.append(labelled.get(FAMILIES[family].objective, halves))
    return made


def their_steps(
    model: Any, batches: Sequence[losses.Batch], device: str = "cpu", bf16: bool = False
) -> Iterator[Any]:
    """The training loop that transformers' documentation shows; bf16: by autocast, with the fused
    update.
    """
    inputs = [
        {"input_ids": b["ids"].to(device), "labels": b.get("labels", b["ids"]).to(device)}
        for b in batches
    ]
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-3, fused=bf16 or None)
    while True:
        for batch in inputs:
            with torch.autocast(device, torch.bfloat16, enabled=bf16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            yield loss.detach()


def loss_of(family: str) -> losses.Loss:
    """What the family learns from."""
    return OBJECTIVES[FAMILIES[family].objective].loss


def train_figures(
    side: str, family: str, size: ModelSize, precision: Precision, t: Timing
) -> tuple[Any, Measured]:
    """A trained model, tokens a second, and MiB that the work added at its peak to what its imports
    hold.
    """
    batches = batches_of(family, size)
    if side == "transformers":
        # what it imports is not its memory
        theirs(family, replace(size, width=2 * size.heads, layers=1))
    with suppress(OSError):  # the high-water mark begins anew (Linux; elsewhere 0)
        Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    model: Any = {"transformers": theirs, "nanoGPT": peer}.get(side, ours)(family, size)
    steps: Iterator[Any]
    if side == "transformers":
        steps = their_steps(model, batches)
    elif side == "nanoGPT":
        data = torch.cat([batch["ids"].flatten() for batch in batches])
        steps = nanogpt.train(model, data, size.batch, size.tokens, precision == "bf16")
    else:
        loss = loss_of(family)
        if family == "electra":  # the discriminator alone
            loss = lambda model, batch: losses.detection_loss(model(batch["ids"]), batch["labels"])  # noqa: E731
        steps = train(model, batches, loss, TrainConfig(steps=10**6, precision=precision))
    seconds = median_of(lambda: next(steps), t.steps, t.warmup)
    return model, {
        "training": size.batch * size.tokens / seconds,
        "peak memory": status("VmHWM") - before,
    }


def every_figure(side: str, precision: Precision, family: str, t: Timing) -> Measured:
    """Training, peak memory, inference and, where the family writes, generation."""
    size, t = t.size("S"), replace(t, steps=max(1, t.steps // 2), warmup=1)
    model, found = train_figures(side, family, size, precision, t)
    model = bf16_copy(model.eval()) if precision == "bf16" else model.eval()
    batch = batches_of(family, size)[0]
    decoder = [batch["labels"]] if loss_of(family) is losses.seq2seq else []
    names = ("input_ids", "decoder_input_ids")
    forward = partial(model, batch["ids"], *decoder)
    if side == "transformers":
        forward = partial(model, **dict(zip(names, (batch["ids"], *decoder), strict=False)))
    with torch.inference_mode():
        found["inference"] = size.batch * size.tokens / median_of(forward, t.steps, 1)
    if writes(family):
        short = replace(t, new=min(t.new, size.tokens))
        found["generation"] = generation(
            side, model, size.vocab, GENERATED, size.tokens // 2, short
        )
    return found


def one_figure(
    side: str, precision: Precision, figure: str, family: str, size: str, t: Timing
) -> Measured:
    """Training or peak memory alone, with all steps."""
    return {figure: train_figures(side, family, t.size(size), precision, t)[1][figure]}


def reader(side: str, precision: Precision, family: str, size: ModelSize) -> Any:
    """A model that is not trained, its weights halved where asked."""
    if side == "transformers":
        return (
            theirs(family, size).eval().to(torch.bfloat16 if precision == "bf16" else torch.float32)
        )
    return (
        bf16_copy(ours(family, size).eval()) if precision == "bf16" else ours(family, size).eval()
    )


def writer(side: str, precision: Precision, batch: int, t: Timing) -> Measured:
    """New tokens a second of a GPT-2 of 124M random weights, greedily, with its cache."""
    size = t.size("GPT-2")
    model = reader(side, precision, "gpt", size)
    short = replace(t, steps=max(1, t.steps // 2), new=min(t.new, 2 * size.tokens - 8))
    return {"generation": generation(side, model, size.vocab, batch, min(16, size.tokens), short)}


def every_way(side: str, precision: Precision, family: str, size: str, t: Timing) -> Measured:
    """New tokens a second of a small model, for each way to choose them and each number of
    prompts.
    """
    shape = t.size(size)
    model = reader(side, precision, family, shape)
    t = replace(t, steps=max(1, t.steps // 2), new=min(t.new, shape.tokens))
    run = partial(generation, side, model, shape.vocab, prompt=shape.tokens // 2, t=t)
    return {f"{way}, batch {n}": run(batch=n, **how) for way, how in WAYS.items() for n in PROMPTS}


def generation(
    side: str, model: Any, vocab: int, batch: int, prompt: int, t: Timing, **how: Any
) -> float:
    """New tokens a second, greedily or as the options say, which both sides understand."""
    options: dict[str, Any] = {
        "max_new_tokens": t.new,
        "min_new_tokens": t.new,
        "do_sample": False,
    } | how
    ids = torch.randint(vocab, (batch, prompt), generator=torch.Generator().manual_seed(0))
    if side == "transformers":
        run = partial(model.generate, ids, attention_mask=torch.ones_like(ids), **options)
    else:
        run = partial(generate, model, ids, eos=1, **options)
    # an encoder-decoder begins with its start token
    if run().shape[1] not in (prompt + t.new, 1 + t.new):
        raise CourseError(
            "A contender stopped before the asked number of tokens: the measure would be unfair."
        )
    return batch * t.new / median_of(run, t.steps)


def importing(statement: str, t: Timing) -> Measured:
    """CPU seconds of an import in a fresh interpreter."""
    code = f"import time; t = time.process_time(); {statement}; print(time.process_time() - t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {"import": float(done.stdout)}


def limits(t: Timing) -> Measured:
    """What the machine does at most, the best of several: products of square matrices in GFLOP/s, a
    copy of what no cache holds in GB/s, read and written."""
    side, found = 64 if t.tiny else 2048, Measured()
    for name, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        a, b = torch.randn(2, side, side).to(kind)
        found[name] = (
            2e-9
            * side**3
            / min(timeit.repeat(partial(torch.mm, a, b), number=1, repeat=2 + t.steps))
        )
    x, y = torch.ones(2, 16 * side**2)  # 256 MiB each
    found["copy"] = (
        2e-9 * x.nbytes / min(timeit.repeat(partial(y.copy_, x), number=1, repeat=2 + t.steps))
    )
    return found


def writes(family: str) -> bool:
    """Whether the family's models generate text."""
    return loss_of(family) in (losses.clm, losses.seq2seq)


def median_of(run: Callable[[], Any], times: int, warmup: int = 0) -> float:
    """Seconds of one run."""
    for _ in range(warmup):
        run()
    return statistics.median(timeit.repeat(run, number=1, repeat=times))


def status(field: str) -> float:
    """MiB, from /proc: getrusage would also count what the parent held before exec."""
    file = Path("/proc/self/status")
    lines = file.read_text().splitlines() if file.exists() else []
    return next(
        (int(line.split()[1]) / 1024 for line in lines if line.startswith(field + ":")), 0.0
    )


PARTS = ("core", "families", "generation")
UNITS = {
    "training": "tokens/s",
    "peak memory": "MiB",
    "inference": "tokens/s",
    "generation": "tokens/s",
}
NAMES: dict[str, str] = GIVEN["names"]
SIDES = {name: tuple(name.split()) for name in ("transformers fp32", "course fp32", "course bf16")}
BOTH_HALVED = SIDES | {"transformers bf16": ("transformers", "bf16")}
PEERS = SIDES | {name: tuple(name.split()) for name in ("nanoGPT fp32", "nanoGPT bf16")}


@dataclass(frozen=True)
class Measurement:
    """Figures of several contenders: name -> unit.

    against: the contender by which the others are divided. part: the core's measures are records
    under their own name, the others' one for each figure. of: family and size of the model, by
    which work is counted."""

    figures: Mapping[str, str]
    contenders: Mapping[str, Contender]
    against: str = "transformers fp32"
    part: str = "core"
    of: tuple[str, str] | None = None


def measures() -> dict[str, Measurement]:
    """Everything that is measured, by name."""

    def of(
        sides: Mapping[str, tuple[str, ...]], make: Callable[..., Measured], *what: Any
    ) -> dict[str, Contender]:
        return {name: partial(make, *side, *what) for name, side in sides.items()}

    reach = {"fp32": "GFLOP/s", "bf16": "GFLOP/s", "copy": "GB/s"}
    found = {"limits": Measurement(reach, {"machine": limits}, against="machine", part="limits")}
    for name, (figure, family, size) in GIVEN["training"].items():
        sides = of(PEERS if family == "gpt" else SIDES, one_figure, figure, family, size)
        found[name] = Measurement({figure: UNITS[figure]}, sides, of=(family, size))
    for batch in (1, 16):
        sides = of(BOTH_HALVED, writer, batch)
        found[f"generation, batch {batch}"] = Measurement(
            {"generation": "tokens/s"}, sides, of=("gpt", "GPT-2")
        )
    ways = {f"{way}, batch {n}": "tokens/s" for way in WAYS for n in PROMPTS}
    for name, what in GIVEN["generation"].items():
        found[name] = Measurement(
            ways, of(BOTH_HALVED, every_way, *what), part="generation", of=tuple(what)
        )
    imports = {name: partial(importing, statement) for name, statement in GIVEN["imports"].items()}
    found["import"] = Measurement({"import": "CPU s"}, imports, against="torch")
    for family, name in NAMES.items():
        figures = {
            figure: unit
            for figure, unit in UNITS.items()
            if figure != "generation" or writes(family)
        }
        found[name] = Measurement(
            figures, of(SIDES, every_figure, family), part="families", of=(family, "S")
        )
    return found
