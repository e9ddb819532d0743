"""The claims of lesson 02: a decoder trained on all positions at once, and the Transformer against
recurrence.
"""

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from course_lib import data
from course_lib.analysis import metrics
from course_lib.data.inputs import SourceTarget, TaskBatches
from course_lib.data.tokenizers import train_wordpiece
from course_lib.families import rules, transformer_lm
from course_lib.model.seq2seq import shift_right
from course_lib.objectives import losses
from course_lib.training import optim
from experiments.lessons import Lab, experiment, fit, given, probes, small_models

SIZES, LENGTH = given("transformer").values()
TESTS = ("known words", "strangers")


@experiment("parallel-training")
@torch.no_grad()
def parallel_training(lab: Lab, seed: int) -> dict[str, float]:
    """1 where the loss of one teacher-forced pass is the sum over its prefixes, in double
    precision.
    """
    torch.manual_seed(seed)
    model = transformer_lm(
        rules.transformer(50, width=32, layers=2, heads=4, dropout=0.0), start=2
    ).double()
    source, target = torch.randint(3, 50, (2, 1, LENGTH))
    read = shift_right(target, start=2)
    one = F.cross_entropy(model(source, read)[0], target[0], reduction="sum").item()
    many = sum(
        F.cross_entropy(model(source, read[:, : t + 1])[0, -1], target[0, t]).item()
        for t in range(LENGTH)
    )
    return {"agree to 1e-10": float(abs(one - many) / one < 1e-10)}


@experiment("transformer-translation")
def transformer_translation(lab: Lab, seed: int) -> dict[str, float]:
    """BLEU, size, operations and time of both models."""
    sizes, budget = SIZES[lab.plan.scale], 0.0
    values: dict[str, float] = {}
    pairs = list(
        {p["text"]: p for p in data.task("world/translation", n=sizes["pairs"], seed=seed)}.values()
    )
    known, pairs = pairs[: sizes["tests"]], pairs[sizes["tests"] :]
    strangers = list(data.task("world/translation", split="test", n=sizes["tests"], seed=seed))
    texts = [pair[side] for pair in pairs for side in ("text", "target")]
    tokenizer = train_wordpiece(texts, sizes["vocab"], lowercase=False)
    vocab, start = tokenizer.vocab.size, tokenizer.vocab.cls or 0
    config = rules.transformer(
        vocab, width=sizes["width"], layers=2, heads=4, dropout=0.0, norm="pre"
    )
    frame = SourceTarget(tokenizer, config)
    # Targets do not begin with the start token: the decoder has its own.
    taught, *tests = (
        [replace(r, label=r.label[1:]) for r in frame.rows(some)]
        for some in (pairs, known, strangers)
    )
    models: dict[str, Callable[[], nn.Module]] = {
        "Transformer": lambda: transformer_lm(config, start=start),
        "attentional LSTM": lambda: small_models.attentional_lstm(
            vocab, sizes["width"], sizes["cells"], start
        ),
    }
    for name, build in models.items():
        torch.manual_seed(seed)
        model = build()
        # in double precision, where it sees the LSTM's products
        with FlopCounterMode(display=False) as counter:
            losses.seq2seq(
                deepcopy(model).double(), frame.collate(taught[: sizes["rows"]])
            ).backward()  # type: ignore[no-untyped-call]
        cost = float(counter.get_total_flops())
        budget = budget or cost * sizes["steps"]
        steps = max(1, round(budget / cost))
        schedule = optim.wsd(steps, warmup=max(1, steps // 5), decay=0.5)
        how: dict[str, Any] = {"betas": (0.9, 0.98), "weight_decay": 0.0, "device": lab.device}
        begin, batches = time.process_time(), TaskBatches(frame, taught, sizes["rows"], seed)
        fit(model, batches, losses.seq2seq, steps, 6e-3, schedule, **how)
        values |= {
            f"seconds a step/{name}": (time.process_time() - begin) / steps,
            f"parameters/{name}": sum(p.numel() for p in model.parameters()),
            f"operations a step/{name}": cost,
        }
        for test, rows, said in zip(TESTS, tests, (known, strangers), strict=True):
            right = [tokenizer.decode(tokenizer.encode(pair["target"]).ids) for pair in said]
            values[f"BLEU/{name}/{test}"] = metrics.bleu(
                probes.answers(model, frame, rows, most=40), right
            )
    return values
