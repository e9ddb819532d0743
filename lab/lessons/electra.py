"""The experiment of lesson 14: does a discriminator catch a generator that knows English?

`distilbert-english` fills hidden tokens, and stays as it is. A discriminator learns which tokens
were replaced. Its rivals are linear models of how frequent a token is and how well it follows its
neighbour. A third linear model reads a frozen `bert-english`: the quickest discriminator that there
is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from course_lib import data, zoo
from course_lib.families.electra import Electra
from course_lib.model import heads
from course_lib.model.modes import evaluating
from course_lib.model.transformer import Transformer
from course_lib.objectives import collate, losses, seeded_generator
from course_lib.objectives.losses import Batch
from lab.lessons import Lab, Made, experiment, fit, given, linear_config

GENERATOR = "distilbert-english"
BODY = "bert-english"
STARTS = {"from bert-english": True, "from random weights": False}
GIVEN = given("electra")
SIZES: dict[str, dict[str, Any]] = GIVEN["sizes"]
RATES: dict[str, float] = GIVEN["rates"]
# Original tokens by their rank in the corpus's counts: the most frequent ones, others, rare ones.
BANDS = {"frequent": (0, 100), "middle": (100, 1000), "rare": (1000, 10**6)}
SMOOTHING = 50.0  # a pair's share leans on the token's own share as if that had been seen so often


@dataclass(frozen=True)
class Filled:
    """Rows in which the generator has filled places.

    Attributes:
        ids: Int[B T], the text with its words.
        original: Int[B T], the text before.
        chosen: Bool[B T], the places that it filled.
    """

    ids: Tensor
    original: Tensor
    chosen: Tensor

    @property
    def replaced(self) -> Tensor:
        """Bool[B T], where a token differs from the original."""
        return self.ids != self.original


class Counts:
    """How often the corpus has each token, and each token behind each other one."""

    def __init__(self, texts: Sequence[list[int]], vocab: int) -> None:
        flat = np.concatenate([np.array(text) for text in texts])
        self.vocab = vocab
        self.single = np.bincount(flat, minlength=vocab) + 1.0
        self.share = self.single / self.single.sum()
        self.pairs, self.times = np.unique(flat[:-1] * vocab + flat[1:], return_counts=True)
        self.rank = np.empty(vocab, dtype=int)
        self.rank[np.argsort(-self.single, kind="stable")] = np.arange(vocab)

    def surprise(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """-log of the share of tokens behind `before` that are `after`, smoothed."""
        wanted = before * self.vocab + after
        place = np.searchsorted(self.pairs, wanted).clip(max=len(self.pairs) - 1)
        seen = np.where(self.pairs[place] == wanted, self.times[place], 0)
        share = (seen + SMOOTHING * self.share[after]) / (self.single[before] + SMOOTHING)
        surprise: np.ndarray = -np.log(share)
        return surprise


@cache
def counts(corpus: Path, documents: int | None) -> Counts:
    """Counts of a part of the corpus that all models here have read."""
    _, tokenizer, _ = zoo.load(BODY)
    rows = data.corpus(corpus, n=documents)
    return Counts(tokenizer.ids(list(rows["text"]), max_length=10**6), tokenizer.vocab.size)


def rows_of(split: str, length: int) -> Tensor:
    """The course's own texts, cut into rows of equal length. Int[N T]."""
    _, tokenizer, _ = zoo.load(BODY)
    texts = tokenizer.ids(list(data.corpus("text", split=split)["text"]), max_length=10**6)
    flat = torch.tensor([token for text in texts for token in text])
    whole = len(flat) // length * length
    return flat[:whole].view(-1, length)


def hide(rows: Tensor, *keys: int) -> Batch:
    """Rows with 15% of their tokens hidden."""
    _, tokenizer, _ = zoo.load(BODY)
    real = torch.ones_like(rows, dtype=torch.bool)
    return collate.replaced(rows, real, seeded_generator(*keys), vocab=tokenizer.vocab)


@torch.no_grad()
def fill(model: Electra, rows: Tensor, seed: int) -> tuple[Filled, Tensor]:
    """Rows that the generator has filled, and the discriminator's logits of them, Float[B T]."""
    ids, chosen, verdicts = [], [], []
    rng = seeded_generator(seed, 3)
    with evaluating(model):
        for number, part in enumerate(torch.split(rows, 32)):
            batch = hide(part, seed, 2, number)
            out = model(batch["ids"], labels=batch["labels"], loss_mask=batch["loss_mask"], rng=rng)
            ids.append(out.ids)
            chosen.append(batch["loss_mask"])
            verdicts.append(out.verdicts)
    return Filled(torch.cat(ids), rows, torch.cat(chosen)), torch.cat(verdicts)


def detect(model: nn.Module, batch: Batch) -> Tensor:
    """The discriminator's loss alone: the generator does not learn."""
    out = model(batch["ids"], labels=batch["labels"], loss_mask=batch["loss_mask"])
    return losses.detection_loss(out.verdicts, out.replaced)


def new_model(seed: int, *, pretrained: bool) -> Electra:
    """The frozen generator and a discriminator, on bert-english's body or one of random weights."""
    torch.manual_seed(seed)
    body: Any = zoo.load(BODY).model.stack
    if not pretrained:
        body = Transformer(body.config)
    generator = zoo.load(GENERATOR).model.requires_grad_(False)
    return Electra(generator, heads.RTD(body))


def trained(model: Electra, rows: Tensor, steps: int, lr: float, seed: int, batch: int) -> None:
    """Train the discriminator in place, for so many steps."""
    order = torch.randperm(len(rows), generator=seeded_generator(seed, 0))

    def make(step: int) -> Batch:
        places = torch.arange(step * batch, (step + 1) * batch) % len(rows)
        return hide(rows[order[places]], seed, 1, step)

    torch.manual_seed(seed)  # of the generator's draws
    fit(model, Made(make), detect, linear_config(steps, lr, precision="auto"))


def features(filled: Filled, known: Counts) -> dict[str, np.ndarray]:
    """What the rivals see of each token, Float[B (T-2), F]; the ends of a row are left out."""
    ids = filled.ids.numpy()
    before, token, after = ids[:, :-2], ids[:, 1:-1], ids[:, 2:]
    frequency = -np.log(known.share[token])
    # Not all is a straight line: the squares let a linear model prefer a middle.
    alone = [frequency, frequency**2]
    pairs = [known.surprise(before, token), known.surprise(token, after)]
    return {
        "frequency": np.stack([column.ravel() for column in alone], axis=-1),
        "bigrams": np.stack([column.ravel() for column in [*alone, *pairs]], axis=-1),
    }


@torch.no_grad()
def frozen_features(filled: Filled) -> np.ndarray:
    """What a frozen bert-english knows of each token: its vector, and three numbers of the
    prediction at its place. Float[B (T-2), D + 3].

    The numbers are the log-probability of the token itself, that of the best token, and the
    entropy.
    """
    model: Any = zoo.load(BODY).model
    columns = []
    with evaluating(model):
        for ids in torch.split(filled.ids, 32):
            h = model.stack(ids)  # B T D
            scores = model.head(h, model.stack.embed.tokens.weight).log_softmax(-1)  # B T V
            own = scores.gather(-1, ids[..., None])  # B T 1
            best = scores.amax(-1, keepdim=True)
            entropy = -(scores.exp() * scores).sum(-1, keepdim=True)
            columns.append(torch.cat((h, own, best, entropy), dim=-1)[:, 1:-1].flatten(0, 1))
    return torch.cat(columns).numpy()


def inside(values: Tensor) -> np.ndarray:
    """The values of all tokens but the first and last of a row."""
    return values[:, 1:-1].flatten().numpy()


def scored(verdicts: np.ndarray, filled: Filled, known: Counts) -> dict[str, float]:
    """Accuracy over all tokens, and the area under the ROC curve: over all, and by how frequent the
    original token is.

    Args:
        verdicts: above 0 = replaced.
        filled: the rows.
        known: tells the frequency.
    """
    replaced = inside(filled.replaced)
    rank = known.rank[inside(filled.original)]
    values = {
        "accuracy": float(((verdicts > 0) == replaced).mean()),
        "area": float(roc_auc_score(replaced, verdicts)),
    }
    for band, (first, end) in BANDS.items():
        at = (rank >= first) & (rank < end)
        values[f"area, {band}"] = float(roc_auc_score(replaced[at], verdicts[at]))
    return values


def rivals(train: Filled, test: Filled, known: Counts) -> dict[str, np.ndarray]:
    """The verdicts of linear models of frequency, of bigrams, and of a frozen bert-english."""
    shown, asked = features(train, known), features(test, known)
    frozen = "frozen bert-english"
    shown[frozen], asked[frozen] = frozen_features(train), frozen_features(test)
    verdicts = {}
    for name, columns in shown.items():
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))
        model.fit(columns, inside(train.replaced))
        verdicts[name] = model.decision_function(asked[name])
    return verdicts


def named(name: str, values: Mapping[str, float]) -> dict[str, float]:
    """Figures of one contender: "accuracy/bigrams"."""
    return {f"{what}/{name}": value for what, value in values.items()}


@experiment("replaced-tokens")
def replaced_tokens(lab: Lab, seed: int) -> dict[str, float]:
    """Scores of a discriminator after some steps, from two starts, and of its rivals."""
    size = SIZES[lab.plan.scale]
    known = counts(lab.public_data("english"), size["documents"])
    rows = rows_of("train", size["length"])
    texts = rows_of("test", size["length"])[: size["tests"]]

    model = new_model(seed, pretrained=True)
    train, _ = fill(model, rows[: size["rival_rows"]], seed + 1000)
    test, _ = fill(model, texts, seed)
    replaced = inside(test.replaced)
    chosen = inside(test.chosen)
    values = {
        "accuracy/always original": float((~replaced).mean()),
        "generator's hits": float((~replaced)[chosen].mean()),
    }
    for name, verdicts in rivals(train, test, known).items():
        values |= named(name, scored(verdicts, test, known))
    for start, is_pretrained in STARTS.items():
        for steps in size["steps"]:
            model = new_model(seed, pretrained=is_pretrained)
            trained(model, rows, steps, RATES[start], seed, size["rows"])
            again, logits = fill(model, texts, seed)
            assert torch.equal(again.ids, test.ids), "all are asked about the same text"
            values |= named(f"{start}, {steps} steps", scored(inside(logits), test, known))
    return values
