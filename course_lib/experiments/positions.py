"""The claims of lesson 03: order from nothing but positions, what relative ones bring, what rotary ones promise."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib import config as c
from course_lib import heads, losses, optim, positions
from course_lib.claims.arms import Arm, town
from course_lib.claims.experiment import experiment
from course_lib.claims.lab import Lab, Plan, Tuning
from course_lib.claims.record import Figures
from course_lib.corrupt import generator
from course_lib.experiments import family
from course_lib.experiments.finetuning import SUITE
from course_lib.experiments.judging import above, clearly_above, gap, points
from course_lib.losses import Batch
from course_lib.stack import Stack
from course_lib.train import train

LENGTH, TIMES = 64, 4  # characters trained on, and how many times as many are read in the test
WIDTH, LAYERS, HEADS, ROWS = 64, 2, 4, 16
LR, OWN_RATE = 3e-3, 10.0  # of the model, and how much faster what a scheme owns learns
ABSOLUTE, RELATIVE = ("sinusoidal", "learned"), ("Shaw", "T5", "rotary")
RISE = 0.1  # bits a character: what a scheme may lose beyond the trained length
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


def _shuffled(position: c.PositionConfig, causal: bool, seed: int) -> float:
    """Greatest difference between shuffling the input and shuffling the output, in double precision."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {"width": 32, "layers": 2, "heads": 4, "hidden": 64, "init_std": 0.2}
    bare: dict[str, Any] = {"dropout": 0.0, "attention_dropout": 0.0}
    stack = Stack(c.StackConfig(c.EmbedConfig(100), position=position, causal=causal, **shape, **bare)).double()
    ids, order = torch.randint(100, (1, 24)), torch.randperm(24)
    with torch.no_grad():
        return float((stack(ids)[:, order] - stack(ids[:, order])).abs().max())


def _equivariance(f: Figures) -> tuple[str, str]:
    least = min(min(f[name].seeds) for name in SCHEMES if name != "none")
    without = max(f["none"].seeds)
    return "reproduced" if without < 1e-10 and least > 1e-2 else "not at this scale", (
        f"Shuffling the input shuffles the output to {without:.0e} without positions; with any of the six schemes they "
        f"differ by {least:.2f} or more. Under a causal mask, without positions, by {f['none, causal'].mean:.1f}."
    )


@experiment(
    "permutation-equivariance",
    rule="""An encoder of two layers, in double precision. Reproduced if without positions shuffling the input gives
    the shuffled output to 1e-10, and with every scheme the two differ by more than 0.01. Anything else contradicts
    it. What a causal mask changes is recorded and not judged.""",
    judge=_equivariance,
    config={"length": 24, "width": 32, "layers": 2},
)
def permutation_equivariance(lab: Lab, seed: int) -> dict[str, float]:
    """Differences for each scheme, and for a causal stack without positions."""
    values = {name: _shuffled(scheme, False, seed) for name, scheme in SCHEMES.items()}
    return values | {"none, causal": _shuffled(c.NoPosition(), True, seed)}


class Windows:
    """Batch `step`: rows of `length` + 1 consecutive tokens from anywhere in a stream Int[N]."""

    def __init__(self, stream: Tensor, length: int, rows: int, seed: int) -> None:
        self.stream, self.length, self.rows, self.seed = stream, length, rows, seed

    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""
        at = torch.randint(
            len(self.stream) - self.length, (self.rows, 1), generator=generator(self.seed, self.length, step)
        )
        return {"ids": self.stream[at + torch.arange(self.length + 1)]}


@cache
def _text() -> tuple[Tensor, Tensor, int]:
    """The town's documents as characters: training stream, held-out stream, number of characters."""
    splits = {
        split: "\n".join(town(family.WORLD).document(i, split)["text"] for i in range(count))
        for split, count in (("train", 4000), ("validation", 400))
    }
    known = {char: i for i, char in enumerate(sorted(set("".join(splits.values()))))}
    train_ids, held = (torch.tensor([known[char] for char in text]) for text in splits.values())
    return train_ids, held, len(known)


def model_of(scheme: c.PositionConfig, vocab: int) -> heads.LM:
    """The small causal model. With sinusoids the token vectors are scaled by sqrt(D), as the 2017 Transformer's are."""
    scale = WIDTH**0.5 if isinstance(scheme, c.Sinusoidal) else 1.0
    shape: dict[str, Any] = {"width": WIDTH, "layers": LAYERS, "heads": HEADS, "hidden": 4 * WIDTH}
    bare: dict[str, Any] = {"norm": "pre", "final_norm": True, "dropout": 0.0, "attention_dropout": 0.0}
    embed = c.EmbedConfig(vocab, scale=scale)
    return heads.LM(Stack(c.StackConfig(embed, position=scheme, causal=True, init_std=0.1, **shape, **bare)))


def optimizer_of(model: heads.LM) -> torch.optim.Optimizer:
    """AdamW in which what the scheme owns learns `OWN_RATE` times as fast.

    A bias has to reach several units to matter in a softmax, and Adam moves a number by its rate a step: at the
    model's rate a run of some hundred steps would end before T5's buckets are of use.
    """
    own = list(model.stack.position.parameters())
    optimizer = optim.adamw(model, LR, betas=(0.9, 0.98))
    if own:
        for group in optimizer.param_groups:
            group["params"] = [p for p in group["params"] if all(p is not q for q in own)]
        optimizer.add_param_group({"params": own, "lr": OWN_RATE * LR, "weight_decay": 0.0})
    return optimizer


@torch.no_grad()
def bits(model: heads.LM, rows: Tensor) -> Tensor:
    """Loss at each position in bits, [B T], of rows Int[B T + 1]."""
    model.eval()
    parts = []
    for part in torch.split(rows, 8):
        logits = model(part[:, :-1])
        parts.append(F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="none").view(len(part), -1))
    return torch.cat(parts) / torch.tensor(2.0).log()


@cache
def _scores(plan: Plan, seed: int) -> dict[str, float]:
    """Each scheme's loss on held-out text within the trained length, up to twice and up to four times of it."""
    stream, held, vocab = _text()
    tests = Windows(held, TIMES * LENGTH, 8 * ROWS, seed)[0]["ids"]
    values: dict[str, float] = {}
    for name, scheme in SCHEMES.items():
        torch.manual_seed(seed)
        model = model_of(scheme, vocab)
        schedule = optim.stable(plan.steps, warmup=plan.steps // 10)
        batches = Windows(stream, LENGTH, ROWS, seed)
        for _ in train(model, batches, losses.clm, optimizer_of(model), schedule, steps=plan.steps):
            pass
        loss = bits(model, tests).mean(0)
        values |= {
            f"trained length/{name}": float(loss[:LENGTH].mean()),
            f"its second half/{name}": float(loss[LENGTH // 2 : LENGTH].mean()),
            f"up to twice/{name}": float(loss[LENGTH : 2 * LENGTH].mean()),
            f"up to four times/{name}": float(loss[2 * LENGTH :].mean()),
        }
    return values


def _beats(f: Figures) -> tuple[str, str]:
    name = "trained length/{}".format
    pairs = [(worse, better) for worse in ABSOLUTE for better in RELATIVE]
    clear = [clearly_above(f, name(worse), name(better)) for worse, better in pairs]
    ahead = [above(f, name(worse), name(better)) for worse, better in pairs]
    verdict = "reproduced" if all(clear) else "partly" if sum(ahead) > len(pairs) / 2 else "not at this scale"
    said = ", ".join(f"{each} {f[name(each)].mean:.2f}" for each in (*ABSOLUTE, *RELATIVE, "none", "ALiBi"))
    return verdict, f"Bits a held-out character at the trained length: {said}."


SETTING = {
    "model": f"{LAYERS} layers of {WIDTH}, causal, characters of the town's documents, {LENGTH} a row, {ROWS} rows",
    "departures": f"what a scheme owns learns {OWN_RATE:.0f} times as fast; with sinusoids the token vectors are "
    "scaled by sqrt(D); T5's buckets reach half of the trained length",
}


@experiment(
    "relative-beats-absolute",
    rule="""The same causal model with each scheme, loss on held-out text at the trained length. Reproduced if Shaw's,
    T5's and rotary positions each have a lower loss than sinusoidal and than learned ones, with 95% intervals of the
    six paired differences above zero. Partly if most of the six means say so.""",
    judge=_beats,
    config=SETTING,
)
def relative_beats_absolute(lab: Lab, seed: int) -> dict[str, float]:
    """Loss at the trained length with each scheme."""
    return {name: value for name, value in _scores(lab.plan, seed).items() if name.startswith("trained length/")}


def _extrapolates(f: Figures) -> tuple[str, str]:
    rise = {name: gap(f, f"up to four times/{name}", f"its second half/{name}").mean for name in SCHEMES}
    holds = {name: value < RISE for name, value in rise.items()}
    absolute, relative = [holds[name] for name in ABSOLUTE], [holds[name] for name in RELATIVE]
    fits = all(relative) and not any(absolute)
    better = sum(relative) / len(relative) > sum(absolute) / len(absolute)
    said = ", ".join(f"{name} {rise[name]:+.2f}" for name in SCHEMES)
    return "reproduced" if fits else "partly" if better else "not at this scale", (
        f"Bits a character from two to four times the trained length, minus those within it: {said}."
    )


@experiment(
    "relative-extrapolates",
    rule="""The same models on texts four times as long as those of training: the loss beyond twice the trained length
    against that in the second half of the trained length. A scheme holds if it loses less than 0.1 bits a character.
    Reproduced if Shaw's, T5's and rotary positions hold and sinusoidal and learned ones do not; partly if a larger
    share of the relative than of the absolute ones holds.""",
    judge=_extrapolates,
    config=SETTING,
)
def relative_extrapolates(lab: Lab, seed: int) -> dict[str, float]:
    """Loss by distance from the start, with each scheme."""
    return {name: value for name, value in _scores(lab.plan, seed).items() if not name.startswith("trained length/")}


def forms(x: Tensor, place: int, base: float = 10_000.0) -> dict[str, Tensor]:
    """A vector [Dh] turned by its place, in three ways of writing it (Su et al. 2021, equations 13, 15 and 34)."""
    frequencies = base ** (-torch.arange(0, len(x), 2, dtype=x.dtype) / len(x))
    angles = place * frequencies
    complex_form = torch.view_as_complex(x.view(-1, 2)) * torch.polar(torch.ones_like(angles), angles)
    cos, sin = angles.cos(), angles.sin()
    blocks = torch.stack((cos, -sin, sin, cos), -1).view(-1, 2, 2)
    a, b = x[0::2], x[1::2]
    return {
        "complex": torch.view_as_real(complex_form).flatten(),
        "blocks": torch.block_diag(*blocks) @ x,  # type: ignore[no-untyped-call]
        "elementwise": torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(),
    }


def _relative(f: Figures) -> tuple[str, str]:
    worst = {name: max(figure.seeds) for name, figure in f.items()}
    held = all(value < 1e-9 for name, value in worst.items() if name != "another distance")
    told = min(f["another distance"].seeds) > 1e-3
    exact = max(value for name, value in worst.items() if name != "another distance")
    return "reproduced" if held and told else "not at this scale", (
        f"Shifting query and key together changes no score by more than {exact:.0e}; the complex, the matrix and the "
        "elementwise form, and the library's, agree as far."
    )


@experiment(
    "rope-relative",
    rule="""In double precision, random vectors of width 64, 200 pairs of places and shifts. Reproduced if shifting
    both places changes no score by 1e-9, the three forms and the library's agree to 1e-9, and moving the key alone
    does change the score. Anything else contradicts it.""",
    judge=_relative,
    config={"width": 64, "pairs": 200},
)
def rope_relative(lab: Lab, seed: int) -> dict[str, float]:
    """Greatest differences over random places and shifts."""
    rng = generator(seed)
    rope = positions.Rope(c.Rope(interleaved=True), 64).double()
    rope.frequencies = 10_000.0 ** (-torch.arange(0, 64, 2, dtype=torch.double) / 64)
    values = {"shift": 0.0, "forms": 0.0, "library": 0.0, "another distance": torch.inf}
    for _ in range(200):
        q, k = torch.randn(2, 64, dtype=torch.double, generator=rng)
        m, n, shift = (int(place) for place in torch.randint(0, 2000, (3,), generator=rng))
        written = forms(q, m)
        turned, key = written["complex"], forms(k, n)["complex"]
        score = turned @ key
        both = forms(q, m + shift)["complex"] @ forms(k, n + shift)["complex"]
        apart = [(written[name] - turned).abs().max() for name in ("blocks", "elementwise")]
        now = {
            "shift": (both - score).abs(),
            "forms": max(apart),
            "library": (_rotate(rope, q, m) - turned).abs().max(),
        }
        values |= {name: max(values[name], float(value)) for name, value in now.items()}
        alone = (turned @ forms(k, n + 1)["complex"] - score).abs()
        values["another distance"] = min(values["another distance"], float(alone))
    return values


def _rotate(rope: positions.Rope, x: Tensor, place: int) -> Tensor:
    return rope.rotate(x.view(1, 1, 1, -1), torch.tensor([[place]])).flatten()


def bound(base: float, width: int = 128, reach: int = 1024) -> Tensor:
    """The upper bound on similarity at distances 0 to `reach`, as a share of that at 0 (Su et al. 2021, section 3.4.3).

    Mean size of the partial sums of the pairs' rotations, by Abel's summation.
    """
    frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.double) / width)
    angles = torch.arange(reach + 1, dtype=torch.double)[:, None] * frequencies
    sums = torch.polar(torch.ones_like(angles), angles).cumsum(-1).abs().mean(-1)
    return sums / sums[0]


def _decay(f: Figures) -> tuple[str, str]:
    falls = {base: f[f"octaves that fall/{base:g}"].mean == f["octaves"].mean for base in BASES}
    waves = f["neighbours that rise/10000"].mean
    said = ", ".join(f"{f[f'at 512/{base:g}'].mean:.2f} with base {base:,.0f}" for base in BASES)
    verdict = "reproduced" if falls[10_000.0] else "partly" if any(falls.values()) else "not at this scale"
    return verdict, (
        f"Mean of the bound from 512 to 1,024, as a share of that at 0: {said}. It falls from octave to octave of "
        f"distance, not from word to word: {100 * waves:.0f}% of the single steps rise."
    )


@experiment(
    "rope-decay",
    rule="""The paper's upper bound at width 128. Reproduced if with base 10,000 its mean over each octave of
    distance, from 1 to 1,024, is below that of the octave before. Partly if so with another base only.""",
    judge=_decay,
    config={"width": 128, "bases": BASES},
)
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


def _encoders(plan: Plan, seed: int) -> dict[str, Arm]:
    """BERT with learned and with rotary positions, both from noise: the mimetic start is made for a learned table."""
    bert = replace(family.bert_arm(plan, seed), mimetic=0.0, keep=())
    assert isinstance(bert.model, c.StackConfig)
    return {"BERT": bert, "RoFormer": replace(bert, model=replace(bert.model, position=c.Rope()))}


def _mixed(f: Figures) -> tuple[str, str]:
    better = [task for task in SUITE if above(f, f"RoFormer/{task}", f"BERT/{task}")]
    worse = [task for task in SUITE if above(f, f"BERT/{task}", f"RoFormer/{task}")]
    whole = gap(f, "RoFormer/average", "BERT/average")
    clear = whole.interval is not None and not whole.interval[0] <= 0 <= whole.interval[1]
    verdict = "reproduced" if better and worse and not clear else "partly" if better and worse else "not at this scale"
    return verdict, (
        f"RoFormer's mean is higher on {', '.join(better) or 'no task'}, BERT's on {', '.join(worse) or 'no task'}; "
        f"on average RoFormer is {points(whole)} ahead."
    )


@experiment(
    "roformer-table",
    rule="""The same small encoder pretrained with learned and with rotary positions, fine-tuned on the suite. Mixed,
    and so reproduced, if RoFormer has the higher mean on one task or more, BERT on one or more, and the 95% interval
    of the difference of their averages contains zero; partly if it does not.""",
    judge=_mixed,
    needs=lambda plan, seed: list(_encoders(plan, seed).values()),
    config={"tasks": SUITE, "start": "both from noise, without the mimetic start of the other arms"},
)
def roformer_table(lab: Lab, seed: int) -> dict[str, float]:
    """Test scores of both on every task, and their averages."""
    values: dict[str, float] = {}
    for name, arm in _encoders(lab.plan, seed).items():
        for task in SUITE:
            values[f"{name}/{task}"] = lab.score(Tuning(arm, task, seed))
        values[f"{name}/average"] = sum(values[f"{name}/{task}"] for task in SUITE) / len(SUITE)
    return values
