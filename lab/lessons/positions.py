"""The claims of lesson 03: what relative positions bring, what rotary ones promise."""

from collections import deque
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

from course_lib.model import config as c
from course_lib.model import heads, transformer
from course_lib.objectives import losses
from course_lib.training import loop, optim
from lab.lessons import Lab, Plan, experiment, small_models, town, windows

LENGTH, TIMES = 64, 4  # characters trained on, and how many times as many are read in the test
WIDTH, LAYERS, HEADS, ROWS = 64, 2, 4, 16
LR, OWN_RATE = 3e-3, 10.0  # of the model, and how much faster what a scheme owns learns
PARTS = {  # of a test's positions
    "trained length": (0, LENGTH),
    "its second half": (LENGTH // 2, LENGTH),
    "up to twice": (LENGTH, 2 * LENGTH),
    "up to four times": (2 * LENGTH, None),
}
BASES = (100.0, 10_000.0, 1_000_000.0)
SCHEMES: dict[str, c.PositionConfig] = {
    "none": c.NoPosition(),
    "sinusoidal": c.Sinusoidal(),
    "learned": c.Learned(TIMES * LENGTH),
    "Shaw": c.Shaw(16),
    "T5": c.T5Buckets(16, LENGTH // 2),
    "rotary": c.Rope(),
    "ALiBi": c.Alibi(),
}


@cache
def _text() -> tuple[Tensor, Tensor, int]:
    """The town's documents as characters: training stream, held-out stream, number of
    characters.
    """
    write = town(small_models.WORLD).document
    counts = {"train": 4000, "validation": 400}
    texts = [
        "\n".join(write(i, split)["text"] for i in range(count)) for split, count in counts.items()
    ]
    known = {char: i for i, char in enumerate(sorted(set("".join(texts))))}
    read, held = (torch.tensor([known[char] for char in text]) for text in texts)
    return read, held, len(known)


def model_of(scheme: c.PositionConfig, vocab: int) -> heads.LM:
    """The small causal model. With sinusoids the token vectors are scaled by sqrt(D), as the 2017
    Transformer's are.
    """
    embed = c.EmbedConfig(vocab, scale=WIDTH**0.5 if isinstance(scheme, c.Sinusoidal) else 1.0)
    config = c.StackConfig(
        embed,
        WIDTH,
        LAYERS,
        HEADS,
        4 * WIDTH,
        position=scheme,
        causal=True,
        norm="pre",
        final_norm=True,
        dropout=0.0,
        attention_dropout=0.0,
        init_std=0.1,
    )
    return heads.LM(transformer.Transformer(config))


def optimizer_of(model: heads.LM) -> torch.optim.Optimizer:
    """AdamW in which what the scheme owns learns `OWN_RATE` times as fast.

    A bias has to reach several units to matter in a softmax, and Adam moves a number by its rate a
    step: at the model's rate a run of some hundred steps would end before T5's buckets are of use.
    """
    own = list(model.stack.position.parameters())
    optimizer = optim.adamw(model, LR, betas=(0.9, 0.98))
    for group in optimizer.param_groups if own else ():
        group["params"] = [p for p in group["params"] if p not in set(own)]
    if own:
        optimizer.add_param_group({"params": own, "lr": OWN_RATE * LR, "weight_decay": 0.0})
    return optimizer


@torch.no_grad()
def bits(model: heads.LM, rows: Tensor) -> Tensor:
    """Loss at each position in bits, [B T], of rows Int[B T + 1]."""
    model.eval()
    parts = [
        model(part[:, :-1]).log_softmax(-1).gather(-1, part[:, 1:, None])[..., 0]
        for part in torch.split(rows, 8)
    ]
    return -torch.cat(parts) / torch.tensor(2.0).log()


@cache
def _losses(plan: Plan, seed: int) -> dict[str, float]:
    """Each scheme's loss on held-out text within the trained length, up to twice and up to four
    times of it.
    """
    stream, held, vocab = _text()
    tests = windows(held, TIMES * LENGTH, 8 * ROWS, seed, TIMES * LENGTH)[0]["ids"]
    values: dict[str, float] = {}
    for name, scheme in SCHEMES.items():
        torch.manual_seed(seed)
        model = model_of(scheme, vocab)
        schedule = optim.wsd(plan.steps, warmup=plan.steps // 10)
        batches = windows(stream, LENGTH, ROWS, seed, LENGTH)
        deque(
            loop.train(
                model,
                batches,
                losses.clm,
                loop.TrainConfig(steps=plan.steps),
                optimizer=optimizer_of(model),
                schedule=schedule,
            ),
            maxlen=0,
        )
        loss = bits(model, tests).mean(0)
        values |= {
            f"{part}/{name}": float(loss[start:end].mean()) for part, (start, end) in PARTS.items()
        }
    return values


@experiment("relative-beats-absolute")
@experiment("relative-extrapolates")
def schemes(lab: Lab, seed: int) -> dict[str, float]:
    """Loss by distance from the start, with each scheme: one training for both claims."""
    return _losses(lab.plan, seed)


def bound(base: float) -> Tensor:
    """The upper bound on similarity at distances 0 to 1,024 for a width of 128, as a share of that
    at 0: the mean size of the partial sums of the pairs' rotations, by Abel's summation (Su et al.
    2021, section 3.4.3)."""
    frequencies = base ** (-torch.arange(0, 128, 2, dtype=torch.double) / 128)
    angles = torch.arange(1025, dtype=torch.double)[:, None] * frequencies
    sums = torch.polar(torch.ones_like(angles), angles).cumsum(-1).abs().mean(-1)
    return sums / sums[0]


@experiment("rope-decay", bases=BASES)
def rope_decay(lab: Lab, seed: int) -> dict[str, float]:
    """The bound's mean by octave, and how often it rises from one distance to the next."""
    octaves = [2**i for i in range(11)]
    values: dict[str, float] = {"octaves": len(octaves) - 2}
    for base in BASES:
        curve = bound(base)
        means = torch.stack([curve[a:b].mean() for a, b in pairwise(octaves)])
        values[f"octaves that fall/{base:g}"] = float((means.diff() < 0).sum())
        values[f"neighbours that rise/{base:g}"] = float((curve.diff() > 0).double().mean())
        values |= {f"at {a}/{base:g}": float(mean) for a, mean in zip(octaves, means, strict=False)}
    return values
