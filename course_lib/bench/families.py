"""Every family beside its public implementation: training, peak memory, inference and generation in one process.

The public model is built from the configuration that the course writes for it (`hf`): both have the same architecture.
"""

import statistics
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from course_lib import heads, hf, losses
from course_lib.bench.contenders import Plan, Size, generation, masked, median_step, plain_loop, random_ids, status
from course_lib.config import StackConfig
from course_lib.electra import detection_loss
from course_lib.generate import bf16_copy, generate
from course_lib.losses import Batch
from course_lib.models import albert, bart, bert, deberta, distilbert, electra, gpt, roberta, t5
from course_lib.stack import Stack
from course_lib.train import Precision, train

Figures = dict[str, float]
UNITS = {  # figure: its unit; 1 where more is better
    "training": ("tokens/s", +1),
    "peak memory": ("MiB", -1),
    "inference": ("tokens/s", +1),
    "generation": ("tokens/s", +1),
}
GENERATED = 8  # rows that are continued at a time


@dataclass(frozen=True)
class Family:
    """public: type and class in transformers. target: ids -> ours, with labels."""

    public: tuple[str, str]
    config: Callable[..., StackConfig]
    head: Callable[[StackConfig], nn.Module]
    loss: losses.Loss
    target: Callable[[Tensor], dict[str, Tensor]]

    def figures(self) -> list[str]:
        """What can be measured of it."""
        return [name for name in UNITS if name != "generation" or self.loss in (losses.clm, losses.seq2seq)]

    def of(self, size: Size) -> StackConfig:
        """A configuration of this size, without dropout."""
        return replace(self.config(size), dropout=0.0, attention_dropout=0.0)

    def theirs(self, size: Size) -> Any:
        """The public model of the same configuration, with random weights."""
        import transformers

        kind, name = self.public
        config, special = self.of(size), {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
        values = hf.families()[kind].write_config(config) | special | {"decoder_start_token_id": 0}
        return getattr(transformers, name)(transformers.AutoConfig.for_model(kind, **values))


def _mlm(config: StackConfig) -> nn.Module:
    return heads.MLM(Stack(config))


def _replaced(model: nn.Module, batch: Batch) -> Tensor:
    return detection_loss(model(batch["ids"]), batch["labels"].bool())


def _itself(ids: Tensor) -> dict[str, Tensor]:
    return {"ids": ids}


def _half(ids: Tensor) -> dict[str, Tensor]:
    return {"ids": ids, "labels": ids[:, : ids.shape[1] // 2].contiguous()}


def _shaped(make: Callable[..., StackConfig], **more: Any) -> Callable[[Size], StackConfig]:
    return lambda size: make(size.vocab, **size.shape, **({"length": size.tokens} | more))


FAMILIES = {
    "GPT-2": Family(
        ("gpt2", "GPT2LMHeadModel"), lambda s: gpt.gpt(s.vocab, length=2 * s.tokens, **s.shape),
        lambda c: heads.LM(Stack(c)), losses.clm, _itself,
    ),
    "BERT": Family(("bert", "BertForMaskedLM"), _shaped(bert.bert), _mlm, losses.mlm, masked),
    "RoBERTa": Family(("roberta", "RobertaForMaskedLM"), _shaped(roberta.roberta), _mlm, losses.mlm, masked),
    "ALBERT": Family(("albert", "AlbertForMaskedLM"), _shaped(albert.albert, embed=32), _mlm, losses.mlm, masked),
    "DistilBERT": Family(
        ("distilbert", "DistilBertForMaskedLM"), _shaped(distilbert.distilbert), _mlm, losses.mlm, masked
    ),
    "ELECTRA": Family(
        ("electra", "ElectraForPreTraining"), _shaped(electra.electra), lambda c: heads.RTD(Stack(c)), _replaced,
        lambda ids: {"ids": ids, "labels": (ids % 7 == 0).long()},
    ),
    "DeBERTa": Family(
        ("deberta", "DebertaForMaskedLM"), lambda s: deberta.deberta(s.vocab, clip=s.tokens, **s.shape), _mlm,
        losses.mlm, masked,
    ),
    "BART": Family(
        ("bart", "BartForConditionalGeneration"), _shaped(bart.bart), lambda c: bart.bart_lm(c, start=0),
        losses.seq2seq, _half,
    ),
    "T5": Family(
        ("t5", "T5ForConditionalGeneration"), lambda s: t5.t5(s.vocab, hidden=4 * s.width, **s.shape),
        lambda c: t5.t5_lm(c, start=0), losses.seq2seq, _half,
    ),
}  # fmt: skip


def course(name: str, precision: Precision) -> Callable[[Plan], Figures]:
    """All figures of the course's model."""

    def contender(plan: Plan) -> Figures:
        family, size = FAMILIES[name], plan.size("S")
        batches = [family.target(ids) for ids in random_ids(size)]
        before = peak_from_here()
        model = family.head(family.of(size))
        found = _training(train(model, batches, family.loss, steps=10**6, precision=precision), size, plan, before)
        model = bf16_copy(model.eval()) if precision == "bf16" else model.eval()
        more = _decoder_ids(batches[0])
        with torch.inference_mode():
            found["inference"] = _inference(lambda: model(batches[0]["ids"], *more), size, plan)
        if "generation" in family.figures():
            new = min(plan.new, size.tokens)
            found["generation"] = generation(
                lambda ids: generate(model, ids, max_new_tokens=new, min_new_tokens=new, eos=1), size.vocab, GENERATED,
                replace(plan, new=new), prompt=size.tokens // 2, decodes=family.loss is losses.seq2seq,
            )  # fmt: skip
        return found

    return contender


def public(name: str) -> Callable[[Plan], Figures]:
    """All figures of transformers' model: the plain loop, `model(...)`, `model.generate(...)`."""

    def contender(plan: Plan) -> Figures:
        family, size = FAMILIES[name], plan.size("S")
        batches = [family.target(ids) for ids in random_ids(size)]
        family.theirs(replace(size, width=2 * size.heads, layers=1))  # what it imports is not its memory
        before = peak_from_here()
        model = family.theirs(size)
        theirs = [{"input_ids": b["ids"], "labels": b.get("labels", b["ids"])} for b in batches]
        found = _training(plain_loop(model, theirs), size, plan, before)
        model.eval()
        decoder = [{"decoder_input_ids": ids} for ids in _decoder_ids(batches[0])]
        more = decoder[0] if decoder else {}
        with torch.inference_mode():
            found["inference"] = _inference(lambda: model(input_ids=batches[0]["ids"], **more), size, plan)
        if "generation" in family.figures():
            new = min(plan.new, size.tokens)

            def run(ids: Tensor) -> Tensor:
                made: Tensor = model.generate(
                    ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=False
                )
                return made

            found["generation"] = generation(
                run, size.vocab, GENERATED, replace(plan, new=new), prompt=size.tokens // 2,
                decodes=family.loss is losses.seq2seq,
            )  # fmt: skip
        return found

    return contender


def peak_from_here() -> float:
    """MiB held now; the high-water mark begins anew (Linux; elsewhere 0)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def _training(steps: Iterator[Any], size: Size, plan: Plan, before: float) -> Figures:
    seconds = median_step(steps, replace(plan, steps=max(1, plan.steps // 2), warmup=1))
    return {"training": size.batch * size.tokens / seconds, "peak memory": status("VmHWM") - before}


def _inference(forward: Callable[[], Any], size: Size, plan: Plan) -> float:
    forward()
    seconds = []
    for _ in range(max(1, plan.steps // 2)):
        start = plan.now()
        forward()
        seconds.append(plan.now() - start)
    return size.batch * size.tokens / statistics.median(seconds)


def _decoder_ids(batch: dict[str, Tensor]) -> list[Tensor]:
    """What a decoder reads beside its source: half as much."""
    labels = batch.get("labels")
    return [labels] if labels is not None and labels.shape != batch["ids"].shape else []


AXES = {  # what grows, and through which values; else layers 4, width 128, 4 heads, 64 tokens, batch 16
    "length": ("tokens", (64, 128, 256, 512, 1024)),
    "width": ("width", (64, 128, 256, 512)),
    "batch": ("batch", (8, 16, 32, 64)),
}
GROWING = Size(layers=4, width=128, heads=4, tokens=64, batch=16, vocab=2048)


def growth(axis: str, ours: bool) -> Callable[[Plan], Figures]:
    """Milliseconds and MiB of a training step of a GPT-2 as one of its sizes grows; float32."""
    family = FAMILIES["GPT-2"]

    def contender(plan: Plan) -> Figures:
        field, values = AXES[axis]
        few = replace(plan, steps=max(1, plan.steps // 2), warmup=1)
        found: Figures = {}
        if not ours:
            family.theirs(plan.size("tiny"))
        before = peak_from_here()
        for value in values[:2] if plan.tiny else values:  # ascending: each peak is above what the one before has left
            size = replace(plan.size("tiny") if plan.tiny else GROWING, **{field: value})
            batches = [family.target(ids) for ids in random_ids(size)]
            peak_from_here()
            if ours:
                model = family.head(family.of(size))
                steps: Iterator[Any] = train(model, batches, family.loss, steps=10**6)
            else:
                steps = plain_loop(family.theirs(size), [{"input_ids": b["ids"], "labels": b["ids"]} for b in batches])
            found[f"{axis} {value}, time"] = 1000 * median_step(steps, few)
            found[f"{axis} {value}, memory"] = status("VmHWM") - before
        return found

    return contender


def growth_units(axis: str) -> dict[str, tuple[str, int]]:
    """The figures of `growth`."""
    kinds = {"time": ("ms/step", -1), "memory": ("MiB", -1)}
    return {f"{axis} {value}, {kind}": unit for value in AXES[axis][1] for kind, unit in kinds.items()}
