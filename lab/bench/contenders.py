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
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.families import FAMILIES, public_class
from course_lib.generation import bf16_copy, generate
from course_lib.model import heads, transformer
from course_lib.model.config import StackConfig
from course_lib.objectives import OBJECTIVES, losses
from course_lib.training.loop import TrainConfig, train
from course_lib.training.settings import Precision
from course_lib.vocab import IGNORE
from lab.bench import nanogpt

Measured = dict[str, float]
GIVEN = yaml.safe_load(Path(__file__).with_name("given.yaml").read_text(encoding="utf-8"))
MASKED = 0.15  # share of masked tokens
GENERATED = 8  # rows that are continued at a time
PROMPTS: tuple[int, ...] = (1, 16)
WAYS: dict[str, dict[str, Any]] = GIVEN["ways"]  # options of both sides' `generate`
# transformers' own default cache grows; the static one has all its columns from the start.
THEIRS = ("transformers", "transformers static")
OPTIONS = {"albert": {"embed": 32}}  # of a family's configuration, beside its size


@dataclass(frozen=True)
class ModelSize:
    """A model, and its batch of B = `batch` rows of T = `tokens` tokens."""

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

    Attributes:
        rounds: processes of each contender.
        steps: that are timed, after `warmup` others.
        warmup: see there.
        new: tokens to generate.
        tiny: models of no size, for tests.
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
    if family == "electra":
        return heads.RTD(transformer.Transformer(config))
    return FAMILIES[family].model(config, 0)


def theirs(family: str, size: ModelSize) -> Any:
    """The public model of the same configuration, with random weights."""
    import transformers

    own = FAMILIES[family]
    special = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "decoder_start_token_id": 0}
    values = own.write_config(config_of(family, size)) | special
    with torch.device("meta"):
        name = public_class(ours(family, size), own) or ""
    config = transformers.AutoConfig.for_model(own.model_type, **values)
    return getattr(transformers, name)(config)


def peer(family: str, size: ModelSize) -> nanogpt.GPT:
    """nanoGPT's model, which is a GPT-2."""
    return nanogpt.GPT(size.vocab, 2 * size.tokens, size.width, size.layers, size.heads)


def batches_of(family: str, size: ModelSize) -> list[losses.Batch]:
    """Four batches of random tokens, with the labels of the family's objective."""
    rng = torch.Generator().manual_seed(0)
    shape = (size.batch, size.tokens)
    objective = FAMILIES[family].objective
    return [_labelled(torch.randint(size.vocab, shape, generator=rng), objective) for _ in range(4)]


def _labelled(ids: Tensor, objective: str) -> losses.Batch:
    """The tokens, Int[B T], with the labels of an objective."""
    if objective == "causal":
        return {"ids": ids}
    if objective == "replaced":
        return {"ids": ids, "labels": (ids % 7 == 0).long()}
    if objective == "masked":
        masked = torch.rand(ids.shape, generator=torch.Generator().manual_seed(1)) < MASKED
        return {
            "ids": ids.masked_fill(masked, 4),
            "labels": ids.masked_fill(~masked, IGNORE),
            "loss_mask": masked,
        }
    # An encoder-decoder writes as many tokens as half of what it reads.
    return {"ids": ids, "labels": ids[:, : ids.shape[1] // 2].contiguous()}


def their_steps(
    model: Any, batches: Sequence[losses.Batch], device: str = "cpu", bf16: bool = False
) -> Iterator[Any]:
    """The training loop that transformers' documentation shows.

    Args:
        model: of transformers.
        batches: ours; a causal model's labels are its tokens.
        device: where it is trained.
        bf16: by autocast, with the fused update.

    Yields:
        the loss of a step.
    """
    inputs = []
    for batch in batches:
        labels = batch.get("labels", batch["ids"])
        inputs.append({"input_ids": batch["ids"].to(device), "labels": labels.to(device)})
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


def training_loss(family: str) -> losses.Loss:
    """The same, but of ELECTRA the discriminator's alone, as the public class has it."""
    return _discriminator_loss if family == "electra" else loss_of(family)


def _discriminator_loss(model: nn.Module, batch: losses.Batch) -> Tensor:
    """ELECTRA's without its generator, as the public class has it."""
    return losses.detection_loss(model(batch["ids"]), batch["labels"])


def train_figures(
    side: str, family: str, size: ModelSize, precision: Precision, timing: Timing
) -> tuple[Any, Measured]:
    """A trained model, and its figures: tokens a second, and MiB that the work added at its peak to
    what its imports hold.
    """
    batches = batches_of(family, size)
    if side == "transformers":
        # What it imports is not its memory: a small model imports all.
        theirs(family, replace(size, width=2 * size.heads, layers=1))
    with suppress(OSError):  # the high-water mark begins anew (Linux; elsewhere 0)
        Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")

    model: Any
    steps: Iterator[Any]
    if side == "transformers":
        model = theirs(family, size)
        steps = their_steps(model, batches)
    elif side == "nanoGPT":
        model = peer(family, size)
        data = torch.cat([batch["ids"].flatten() for batch in batches])
        steps = nanogpt.train(model, data, size.batch, size.tokens, precision == "bf16")
    else:
        model = ours(family, size)
        loss = training_loss(family)
        steps = train(model, batches, loss, TrainConfig(steps=10**6, precision=precision))
    seconds = median_of(lambda: next(steps), timing.steps, timing.warmup)
    return model, {
        "training": size.batch * size.tokens / seconds,
        "peak memory": status("VmHWM") - before,
    }


def every_figure(side: str, precision: Precision, family: str, timing: Timing) -> Measured:
    """Training, peak memory, inference and, where the family writes, generation."""
    size = timing.size("S")
    timing = replace(timing, steps=max(1, timing.steps // 2), warmup=1)
    model, figures = train_figures(side, family, size, precision, timing)
    model.eval()
    if precision == "bf16":
        model = bf16_copy(model)

    batch = batches_of(family, size)[0]
    inputs = {"input_ids": batch["ids"]}
    if loss_of(family) is losses.seq2seq:
        inputs["decoder_input_ids"] = batch["labels"]
    if side == "transformers":
        forward = partial(model, **inputs)
    else:
        forward = partial(model, *inputs.values())
    with torch.inference_mode():
        figures["inference"] = size.batch * size.tokens / median_of(forward, timing.steps, 1)

    if writes(family):
        timing = replace(timing, new=min(timing.new, size.tokens))
        prompt = size.tokens // 2
        figures["generation"] = generation(side, model, size.vocab, GENERATED, prompt, timing)
    return figures


def one_figure(
    side: str, precision: Precision, figure: str, family: str, size: str, timing: Timing
) -> Measured:
    """Training or peak memory alone, with all steps."""
    _, figures = train_figures(side, family, timing.size(size), precision, timing)
    return {figure: figures[figure]}


def reader(side: str, precision: Precision, family: str, size: ModelSize) -> Any:
    """A model that is not trained, in eval mode, with weights of this precision."""
    if side in THEIRS:
        model = theirs(family, size).eval()
        return model.to(torch.bfloat16) if precision == "bf16" else model
    model = ours(family, size).eval()
    return bf16_copy(model) if precision == "bf16" else model


def writer(side: str, precision: Precision, batch: int, timing: Timing) -> Measured:
    """New tokens a second of a GPT-2 of 124M random weights, greedily, with its cache."""
    size = timing.size("GPT-2")
    model = reader(side, precision, "gpt", size)
    new = min(timing.new, 2 * size.tokens - 8)
    timing = replace(timing, steps=max(1, timing.steps // 2), new=new)
    prompt = min(16, size.tokens)
    return {"generation": generation(side, model, size.vocab, batch, prompt, timing)}


def every_way(side: str, precision: Precision, family: str, size: str, timing: Timing) -> Measured:
    """New tokens a second of a small model, for each way to choose them and each number of
    prompts.
    """
    shape = timing.size(size)
    model = reader(side, precision, family, shape)
    timing = replace(timing, steps=max(1, timing.steps // 2), new=min(timing.new, shape.tokens))
    prompt = shape.tokens // 2
    figures = {}
    for way, options in WAYS.items():
        for batch in PROMPTS:
            speed = generation(side, model, shape.vocab, batch, prompt, timing, **options)
            figures[f"{way}, batch {batch}"] = speed
    return figures


def generation(
    side: str, model: Any, vocab: int, batch: int, prompt: int, timing: Timing, **options: Any
) -> float:
    """New tokens a second, greedily or as the options say, which both sides understand."""
    length = {"max_new_tokens": timing.new, "min_new_tokens": timing.new}
    options = length | {"do_sample": False} | options
    ids = torch.randint(vocab, (batch, prompt), generator=torch.Generator().manual_seed(0))
    if side == "transformers static":
        options["cache_implementation"] = "static"
    if side in THEIRS:
        run = partial(model.generate, ids, attention_mask=torch.ones_like(ids), **options)
    else:
        run = partial(generate, model, ids, eos=1, **options)
    # An encoder-decoder begins with its start token, the others with the prompt.
    if run().shape[1] not in (prompt + timing.new, 1 + timing.new):
        raise CourseError(
            "A contender stopped before the asked number of tokens: the measure would be unfair."
        )
    return batch * timing.new / median_of(run, timing.steps)


def importing(statement: str, timing: Timing) -> Measured:
    """CPU seconds of an import in a fresh interpreter."""
    code = f"import time; t = time.process_time(); {statement}; print(time.process_time() - t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {"import": float(done.stdout)}


def limits(timing: Timing) -> Measured:
    """What the machine does at most, the best of several: products of square matrices in GFLOP/s, a
    copy of what no cache holds in GB/s, read and written."""
    side = 64 if timing.tiny else 2048
    repeat = 2 + timing.steps
    figures: Measured = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        a, b = torch.randn(2, side, side).to(dtype)
        seconds = min(timeit.repeat(partial(torch.mm, a, b), number=1, repeat=repeat))
        figures[name] = 2e-9 * side**3 / seconds
    x, y = torch.ones(2, 16 * side**2)  # 256 MiB each
    seconds = min(timeit.repeat(partial(y.copy_, x), number=1, repeat=repeat))
    figures["copy"] = 2e-9 * x.nbytes / seconds
    return figures


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
    for line in lines:
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024  # the kernel says KiB
    return 0.0


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
WRITERS = BOTH_HALVED | {
    "transformers static fp32": ("transformers static", "fp32"),
    "transformers static bf16": ("transformers static", "bf16"),
}
PEERS = SIDES | {name: tuple(name.split()) for name in ("nanoGPT fp32", "nanoGPT bf16")}


@dataclass(frozen=True)
class Measurement:
    """Figures of several contenders.

    Attributes:
        figures: name -> unit.
        contenders: name -> what measures it.
        against: the contender by which the others are divided.
        part: of the bench. The core's measures are records under their own name; others are one
            record for each figure.
        of: family and size of the model, by which work is counted.
    """

    figures: Mapping[str, str]
    contenders: Mapping[str, Contender]
    against: str = "transformers fp32"
    part: str = "core"
    of: tuple[str, str] | None = None


def measures() -> dict[str, Measurement]:
    """Everything that is measured, by name."""
    machine = Measurement(
        {"fp32": "GFLOP/s", "bf16": "GFLOP/s", "copy": "GB/s"},
        {"machine": limits},
        against="machine",
        part="limits",
    )
    found = {"limits": machine}

    for name, (figure, family, size) in GIVEN["training"].items():
        sides = PEERS if family == "gpt" else SIDES
        found[name] = Measurement(
            {figure: UNITS[figure]},
            _contenders(sides, one_figure, figure, family, size),
            of=(family, size),
        )
    for batch in PROMPTS:
        found[f"generation, batch {batch}"] = Measurement(
            {"generation": "tokens/s"},
            _contenders(WRITERS, writer, batch),
            of=("gpt", "GPT-2"),
        )
    ways = {f"{way}, batch {batch}": "tokens/s" for way in WAYS for batch in PROMPTS}
    for name, (family, size) in GIVEN["generation"].items():
        found[name] = Measurement(
            ways,
            _contenders(BOTH_HALVED, every_way, family, size),
            part="generation",
            of=(family, size),
        )
    imports = {name: partial(importing, statement) for name, statement in GIVEN["imports"].items()}
    found["import"] = Measurement({"import": "CPU s"}, imports, against="torch")
    for family, name in NAMES.items():
        figures = dict(UNITS)
        if not writes(family):
            del figures["generation"]
        found[name] = Measurement(
            figures,
            _contenders(SIDES, every_figure, family),
            part="families",
            of=(family, "S"),
        )
    return found


def _contenders(
    sides: Mapping[str, tuple[str, ...]], measure: Callable[..., Measured], *about: Any
) -> dict[str, Contender]:
    """Each side's contender: `measure` of (side, precision, *about, timing)."""
    return {name: partial(measure, *side, *about) for name, side in sides.items()}
