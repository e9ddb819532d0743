"""word2vec with negative sampling: skip-gram and CBOW (Mikolov et al. 2013a, 2013b).

For every word of the text, its centre's turn: the words around it should score it higher than K words drawn at random.

    skip-gram   each of them by itself:   h = v(context word)
    CBOW        all of them together:     h = mean of v(context words)
    loss        -log sigma(h . u(centre)) - sum over k of log sigma(-h . u(drawn word k))

v are the input vectors, which are kept; u the output vectors. A step takes many centres and adds up their updates.

As the authors' program does and the papers do not say: skip-gram's context words score the centre (the papers have it
the other way round; over a text these are the same pairs), CBOW hands the whole gradient of h to each context word,
not its share of the mean, a drawn word that is the centre itself is skipped, and frequent words stay with probability
sqrt(t / f) + t / f, not sqrt(t / f).

Known departures: the contexts of one centre share its K draws, which makes a step a few small matrix products (Ji et
al. 2016); centres come in random order; the gradients of a step are all taken before its updates.

Letters: V words, D size of a vector, B centres, C = 2 window places around each, K drawn words, S = C for skip-gram and
1 for CBOW.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.models.static.text import CountedText
from course_lib.models.static.vectors import WordVectors


@dataclass(frozen=True)
class Word2VecConfig:
    """How the vectors are learned.

    size: D. window: the most words looked at on each side; each centre draws 1 to `window`, so that near words count
    more. negative: K. power: words are drawn by their frequency to this power. sample: the frequency t above which
    words are thinned out, 0 for none. lr falls linearly to last_lr over all epochs. batch: the most centres a step;
    in a small vocabulary a step takes fewer (`Word2Vec.batch`).
    """

    kind: Literal["skip-gram", "cbow"] = "skip-gram"
    size: int = 64
    window: int = 5
    negative: int = 5
    power: float = 0.75
    sample: float = 1e-3
    epochs: int = 5
    lr: float = 0.025
    last_lr: float = 1e-4
    batch: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("skip-gram", "cbow"):
            raise CourseError(f"The kind is {self.kind!r}; it must be 'skip-gram' or 'cbow'.")
        for name in ("size", "window", "negative", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise CourseError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if self.sample < 0 or self.lr <= 0:
            raise CourseError(f"sample is {self.sample} and lr {self.lr}; they must not be below 0, and lr not 0.")


@dataclass(frozen=True)
class Progress:
    """After an epoch: mean loss of a centre (skip-gram: of each of its pairs), words of the text read a second."""

    epoch: int
    loss: float
    words_per_second: float


class Word2Vec:
    """Input and output vectors of a text's words, and how they learn.

    `inputs` and `outputs` have V + 1 rows: the last, zero, stands at the places of a window that hold no word.
    """

    def __init__(self, text: CountedText, config: Word2VecConfig | None = None) -> None:
        self.text, self.config = text, config or Word2VecConfig()
        self.rng = torch.Generator().manual_seed(self.config.seed)
        size, words = self.config.size, len(text.words)
        self.inputs = F.pad((torch.rand(words, size, generator=self.rng) - 0.5) / size, (0, 0, 0, 1))
        self.outputs = torch.zeros(words + 1, size)
        self.stays = stays(text.counts, self.config.sample)
        shares = text.counts.double() ** self.config.power
        self.table = (shares.cumsum(0) / shares.sum()).float()  # where each word's part of [0, 1) ends
        # The updates of a step add up at vectors that none of them has seen changed, and overshoot where too many are
        # of one word. From 6 updates at full rate on, all texts and rates tried go astray; at 3 they learn as at 0.
        meet = float((shares / shares.sum()).square().sum())  # the chance that two drawn words are the same
        rate = self.config.lr * self.config.negative * (self.config.window + 1) * meet  # of one centre
        self.batch = max(1, min(self.config.batch, int(2 / rate)))

    def vectors(self) -> WordVectors:
        """The input vectors as learned so far."""
        return WordVectors(self.text.words, self.inputs[:-1].clone(), self.text.counts.tolist())

    def train(self) -> Iterator[Progress]:
        """Learn; one record an epoch.

        Raises:
            CourseError: the loss rises, because the learning rate is too high.
        """
        config = self.config
        for epoch in range(config.epochs):
            start, total, seen = time.perf_counter(), torch.zeros(()), 0
            for done, centres, contexts in self.batches():
                share = (epoch + done) / config.epochs
                lr = config.lr - (config.lr - config.last_lr) * share
                total += self.step(centres, contexts, self.draw(len(centres)), lr).sum()
                seen += int((contexts < len(self.text.words)).sum()) if config.kind == "skip-gram" else len(centres)
            loss = float(total) / max(1, seen)
            if not loss < 2 * math.log(2) * (1 + config.negative):  # it begins at half of that
                raise CourseError(f"The loss rose to {loss:.4g} in epoch {epoch + 1}; lower the learning rate.")
            yield Progress(epoch + 1, loss, len(self.text.ids) / (time.perf_counter() - start))

    def batches(self) -> Iterator[tuple[float, Int[Tensor, " B"], Int[Tensor, "B C"]]]:
        """One pass over the text, thinned out anew: (share of it done, centres, words around each)."""
        thin = torch.rand(len(self.text.ids), generator=self.rng) < self.stays[self.text.ids]
        ids, rows = self.text.ids[thin], self.text.rows[thin]
        order = torch.randperm(len(ids), generator=self.rng)
        window = self.config.window
        reach = torch.randint(1, window + 1, (len(ids),), generator=self.rng)
        for done in range(0, len(ids), self.batch):
            at = order[done : done + self.batch]
            yield done / len(ids), ids[at], around(ids, rows, at, reach[at], window, len(self.text.words))

    def draw(self, centres: int) -> Int[Tensor, "B K"]:
        """Words by their frequency to the power `power` (2013b, section 2.2)."""
        points = torch.rand(centres, self.config.negative, generator=self.rng)
        return torch.searchsorted(self.table, points, right=True).clamp_(max=len(self.text.words) - 1)

    def step(
        self, centres: Int[Tensor, " B"], contexts: Int[Tensor, "B C"], drawn: Int[Tensor, "B K"], lr: float
    ) -> Float[Tensor, " B"]:
        """Update both tables by stochastic gradient descent. Returns each centre's loss before it, summed over its
        pairs."""
        real = (contexts < len(self.text.words))[..., None].float()  # B C 1
        targets = torch.cat([centres[:, None], drawn], dim=1)
        counts = torch.cat([torch.ones_like(centres[:, None]), drawn != centres[:, None]], dim=1)[:, None].float()
        v, u = F.embedding(contexts, self.inputs), F.embedding(targets, self.outputs)  # B C D, B 1+K D
        if self.config.kind == "skip-gram":
            h, counts = v, counts * real
        else:
            h = v.sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)
            counts = counts * real.amax(1, keepdim=True)
        loss, g = negative_sampling(h @ u.transpose(1, 2).contiguous(), counts)
        g *= lr  # here and not as index_add_'s alpha, which is five times slower
        move = g @ u if self.config.kind == "skip-gram" else (g @ u) * real
        self.inputs.index_add_(0, contexts.flatten(), move.flatten(0, 1))  # repeated words add up
        self.outputs.index_add_(0, targets.flatten(), (g.transpose(1, 2) @ h).flatten(0, 1))
        return loss


def negative_sampling(
    scores: Float[Tensor, "B S 1+K"], counts: Float[Tensor, "B #S 1+K"]
) -> tuple[Float[Tensor, " B"], Float[Tensor, "B S 1+K"]]:
    """The loss -log sigma(s_0) - sum_k log sigma(-s_k) of products s = h . u (2013b, equation 4), and minus its
    derivative by s: label minus probability. Then g u is the way down of h, and g h of u.

    counts: 1 for each product that counts, 0 for others.
    """
    labels = torch.zeros(scores.shape[-1])
    labels[0] = 1
    loss = -(F.logsigmoid(scores * (2 * labels - 1)) * counts).sum((1, 2))
    return loss, (labels - scores.sigmoid()) * counts


def stays(counts: Int[Tensor, " V"], sample: float) -> Float[Tensor, " V"]:
    """The probability that an occurrence of each word stays in the text: sqrt(t / f) + t / f, at most 1."""
    if sample == 0:
        return torch.ones(len(counts))
    ratio = sample * counts.sum() / counts.double()
    return (ratio.sqrt() + ratio).clamp(max=1).float()


def around(
    ids: Int[Tensor, " N"],
    rows: Int[Tensor, " N"],
    at: Int[Tensor, " B"],
    reach: Int[Tensor, " B"],
    window: int,
    pad: int,
) -> Int[Tensor, "B C"]:
    """The words up to `reach` places before and after each place `at`, of the same row; `pad` where there is none."""
    offsets = torch.cat([torch.arange(-window, 0), torch.arange(1, window + 1)])
    places = at[:, None] + offsets
    inside = places.clamp(0, len(ids) - 1)
    real = (places == inside) & (offsets.abs() <= reach[:, None]) & (rows[inside] == rows[at][:, None])
    return ids[inside].masked_fill_(~real, pad)
