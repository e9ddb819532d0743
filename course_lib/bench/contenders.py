"""What is measured: each contender is a function from a `Plan` to one figure, run in a process of its own."""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from course_lib import losses
from course_lib.errors import CourseError
from course_lib.generate import bf16_copy, generate
from course_lib.heads import LM, MLM
from course_lib.models.bert import bert
from course_lib.models.gpt import gpt, gpt2
from course_lib.stack import Stack
from course_lib.train import train

MASKED = 0.15


@dataclass(frozen=True)
class Size:
    """A model and its batch. tokens: T; batch: B."""

    layers: int
    width: int
    heads: int
    tokens: int
    batch: int
    vocab: int

    @property
    def shape(self) -> dict[str, Any]:
        return {"width": self.width, "layers": self.layers, "heads": self.heads}


SIZES = {
    "S": Size(layers=4, width=128, heads=4, tokens=64, batch=64, vocab=2048),
    "M": Size(layers=4, width=256, heads=4, tokens=128, batch=32, vocab=8192),
    "tiny": Size(layers=1, width=16, heads=2, tokens=8, batch=2, vocab=64),
}


@dataclass(frozen=True)
class Plan:
    """How to measure.

    clock: "wall", or "cpu" (seconds of processor time) for a machine that others use too, which is fair for one thread
    only. steps: timed ones, after `warmup`. new: tokens to generate. tiny: models of no size, for tests.
    """

    rounds: int = 3
    steps: int = 6
    warmup: int = 2
    new: int = 32
    threads: int = 0
    clock: str = "wall"
    tiny: bool = False

    def now(self) -> float:
        return time.perf_counter() if self.clock == "wall" else time.process_time()

    def size(self, name: str) -> Size:
        return SIZES["tiny" if self.tiny else name]


Contender = Callable[[Plan], float]


# Training ----------------------------------------------------------------------------------------------------------


def train_gpt(name: str, precision: str) -> Contender:
    """Tokens a second of the course's `train()` on a GPT."""

    def contender(plan: Plan) -> float:
        size = plan.size(name)
        model = LM(Stack(gpt(size.vocab, length=size.tokens, dropout=0.0, **size.shape)))
        return _ours(model, [{"ids": ids} for ids in random_ids(size)], losses.clm, precision, size, plan)

    return contender


def train_bert(name: str, precision: str) -> Contender:
    """Tokens a second of the course's `train()` on a BERT: logits at the masked positions only."""

    def contender(plan: Plan) -> float:
        size = plan.size(name)
        model = MLM(Stack(bert(size.vocab, length=size.tokens, dropout=0.0, **size.shape)))
        return _ours(model, [masked(ids) for ids in random_ids(size)], losses.mlm, precision, size, plan)

    return contender


def _ours(
    model: nn.Module, batches: list[dict[str, Tensor]], loss: losses.Loss, precision: Any, size: Size, plan: Plan
) -> float:
    # train() reads the list over and over.
    steps = train(model, batches, loss, steps=10**6, precision=precision)
    return size.batch * size.tokens / median_step(steps, plan)


def loop_gpt(name: str) -> Contender:
    """Tokens a second of transformers' GPT-2 in the plain loop that its documentation shows."""

    def contender(plan: Plan) -> float:
        size = plan.size(name)
        batches = [{"input_ids": ids, "labels": ids} for ids in random_ids(size)]
        return size.batch * size.tokens / median_step(plain_loop(_public_gpt(size), batches), plan)

    return contender


def loop_bert(name: str) -> Contender:
    """Tokens a second of transformers' BertForMaskedLM in a plain loop: logits at every position."""

    def contender(plan: Plan) -> float:
        import transformers

        size = plan.size(name)
        config = transformers.BertConfig(
            vocab_size=size.vocab, hidden_size=size.width, num_hidden_layers=size.layers,
            num_attention_heads=size.heads, intermediate_size=4 * size.width, max_position_embeddings=size.tokens,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        batches = [{"input_ids": b["ids"], "labels": b["labels"]} for b in map(masked, random_ids(size))]
        steps = plain_loop(transformers.BertForMaskedLM(config), batches)
        return size.batch * size.tokens / median_step(steps, plan)

    return contender


def trainer_gpt(name: str) -> Contender:
    """Tokens a second of transformers' Trainer on its GPT-2."""

    def contender(plan: Plan) -> float:
        import transformers

        ticks: list[float] = []

        class Tick(transformers.TrainerCallback):
            def on_step_end(self, *args: Any, **kwargs: Any) -> None:
                ticks.append(plan.now())

        size, steps = plan.size(name), plan.warmup + plan.steps
        rows = [{"input_ids": row, "labels": row} for ids in random_ids(size) for row in ids]
        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(
                folder, per_device_train_batch_size=size.batch, max_steps=steps, use_cpu=True, report_to="none",
                save_strategy="no", logging_strategy="no", disable_tqdm=True, dataloader_pin_memory=False,
            )  # fmt: skip
            model = _public_gpt(size)
            transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[Tick()]).train()
        each = [b - a for a, b in zip(ticks[plan.warmup - 1 : -1], ticks[plan.warmup :], strict=True)]
        return size.batch * size.tokens / statistics.median(each)

    return contender


def _public_gpt(size: Size) -> Any:
    import transformers

    config = transformers.GPT2Config(
        vocab_size=size.vocab, n_positions=size.tokens, n_embd=size.width, n_layer=size.layers, n_head=size.heads,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def plain_loop(model: Any, batches: list[dict[str, Tensor]]) -> Iterator[float]:
    """The training loop that transformers' documentation shows."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    while True:
        for batch in batches:
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            yield loss.item()


def random_ids(size: Size) -> list[Tensor]:
    """Four batches of random tokens."""
    rng = torch.Generator().manual_seed(0)
    return [torch.randint(size.vocab, (size.batch, size.tokens), generator=rng) for _ in range(4)]


def masked(ids: Tensor) -> dict[str, Tensor]:
    """ids with masks, their labels, and where they are."""
    at = torch.rand(ids.shape, generator=torch.Generator().manual_seed(1)) < MASKED
    return {"ids": ids.masked_fill(at, 4), "labels": ids.masked_fill(~at, -100), "at": at}


def median_step(steps: Iterator[Any], plan: Plan) -> float:
    """Seconds of a step."""
    for _ in range(plan.warmup):
        next(steps)
    seconds = []
    for _ in range(plan.steps):
        start = plan.now()
        next(steps)
        seconds.append(plan.now() - start)
    return statistics.median(seconds)


# Generation --------------------------------------------------------------------------------------------------------


def generate_ours(batch: int, bf16: bool) -> Contender:
    """New tokens a second of the course's greedy `generate` with its cache, 124M random weights."""

    def contender(plan: Plan) -> float:
        config = gpt(64, width=16, layers=1, heads=2, length=128) if plan.tiny else gpt2("124M")
        model = LM(Stack(config)).eval()
        model = bf16_copy(model) if bf16 else model
        return generation(lambda ids: generate(model, ids, max_new_tokens=plan.new), config.embed.vocab, batch, plan)

    return contender


def generate_theirs(batch: int, bf16: bool) -> Contender:
    """The same of transformers' `generate`."""

    def contender(plan: Plan) -> float:
        import transformers

        tiny: Any = {"vocab_size": 64, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
        config = transformers.GPT2Config(**(tiny if plan.tiny else {}))
        model: Any = transformers.GPT2LMHeadModel(config)
        model.eval().to(torch.bfloat16 if bf16 else torch.float32)

        def run(ids: Tensor) -> Any:
            return model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=plan.new, min_new_tokens=plan.new,
                do_sample=False, pad_token_id=0,
            )  # fmt: skip

        return generation(run, config.vocab_size, batch, plan)

    return contender


def generation(
    run: Callable[[Tensor], Tensor], vocab: int, batch: int, plan: Plan, prompt: int = 16, decodes: bool = False
) -> float:
    """New tokens a second. decodes: what comes out is a target of an encoder-decoder, and not the prompt continued."""
    ids = torch.randint(vocab, (batch, prompt), generator=torch.Generator().manual_seed(0))
    if run(ids).shape != (batch, (1 if decodes else prompt) + plan.new):
        raise CourseError("A contender stopped before the asked number of tokens: the measure would be unfair.")
    seconds = []
    for _ in range(max(1, plan.steps // 2)):
        start = plan.now()
        run(ids)
        seconds.append(plan.now() - start)
    return batch * plan.new / statistics.median(seconds)


# Memory and imports ------------------------------------------------------------------------------------------------


def peak_memory(work: Contender, needs: str) -> Contender:
    """MiB that the work adds at its peak to what its imports hold (resident set, Linux; elsewhere 0)."""

    def contender(plan: Plan) -> float:
        __import__(needs, fromlist=["GPT2LMHeadModel", "GPT2Config"]).__dict__.get("GPT2LMHeadModel")
        before = status("VmRSS")
        work(plan)
        return status("VmHWM") - before

    return contender


def status(field: str) -> float:
    """MiB, from /proc: getrusage would also count what the parent held before exec."""
    file = Path("/proc/self/status")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(field + ":")), 0.0)


def importing(statement: str) -> Contender:
    """CPU seconds of an import in a fresh interpreter."""

    def contender(plan: Plan) -> float:
        code = f"import time; t = time.process_time(); {statement}; print(time.process_time() - t)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return float(done.stdout)

    return contender
