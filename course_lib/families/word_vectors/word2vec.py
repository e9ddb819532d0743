"""word2vec: skip-gram and CBOW with negative sampling (Mikolov et al. 2013a, 2013b).

Letters: N words of text, V different words, D size of a vector, B centres of a step, C = 2 window
positions around each, K drawn words. S vectors of a centre are scored: C for skip-gram, 1 for CBOW.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.families.word_vectors.text import CountedText, Progress
from course_lib.families.word_vectors.vectors import WordVectors

MOST_UPDATES = 2  # of a drawn word in one step, times the learning rate


@dataclass(frozen=True)
class Word2VecConfig:
    """How word2vec learns its vectors."""

    kind: Literal["skip-gram", "cbow"] = "skip-gram"
    size: int = 64  # D
    # The most words on each side. Each centre draws from 1 to `window`, so near words count more.
    window: int = 5
    negative: int = 5  # K
    power: float = 0.75  # words are drawn by their frequency to this power
    sample: float = 1e-3  # the frequency t above which words are thinned out, 0 for none
    epochs: int = 5  # passes over the text
    lr: float = 0.025  # learning rate at the start; it falls linearly
    last_lr: float = 1e-4  # learning rate at the end
    batch: int = 256  # the most centres a step; in a small vocabulary a step takes fewer
    seed: int = 0


class Word2Vec:
    """Skip-gram and CBOW with negative sampling (2013b, section 2.2).

    The words around a centre should score it higher than K drawn words.

        skip-gram   each of them by itself:   h = v(context word)
        CBOW        all of them together:     h = mean of v(context words)
        loss        -log sigma(h . u(centre)) - sum over k of log sigma(-h . u(drawn word k))

    v are the input vectors, which are kept; u the output vectors. As in the authors' program,
    skip-gram's context words score the centre, CBOW gives the whole gradient of h to each context
    word, a drawn word that is the centre is skipped, and frequent words stay with the probability
    sqrt(t / f) + t / f.

    Known departure: the contexts of a centre share its K draws (Ji et al. 2016).

    Attributes:
        inputs: [V + 1, D]; the last row, zero, is for positions without a word.
        outputs: the same of u.
    """

    def __init__(self, text: CountedText, config: Word2VecConfig | None = None) -> None:
        config = config or Word2VecConfig()
        self.text = text
        self.config = config
        self.rng = torch.Generator().manual_seed(config.seed)
        words = len(text.words)
        # Inputs start small and random, outputs at zero, as in the authors' program.
        vectors = (torch.rand(words, config.size, generator=self.rng) - 0.5) / config.size
        self.inputs = F.pad(vectors, (0, 0, 0, 1))  # V+1 D
        self.outputs = torch.zeros(words + 1, config.size)
        self.stays = stays(text.counts, config.sample)

        # Words are drawn by a point in [0, 1): `table` tells where each word's part ends.
        weights = text.counts.double() ** config.power
        self.table = (weights.cumsum(0) / weights.sum()).float()  # V
        self.batch = self._batch(weights / weights.sum())

    def _batch(self, probabilities: Float[Tensor, " V"]) -> int:
        """How many centres a step takes, by the probability of each word to be drawn.

        The updates of a step add up, and overshoot where too many are of one word. Take those that
        a step is expected to give a drawn word, times the learning rate: from 6 on, all texts and
        rates tried diverge; at 3 they learn as at 0.
        """
        config = self.config
        same = float(probabilities.square().sum())  # P(two drawn words are the same)
        updates_of_a_centre = config.lr * config.negative * (config.window + 1) * same
        return max(1, min(config.batch, int(MOST_UPDATES / updates_of_a_centre)))

    def vectors(self) -> WordVectors:
        """The vectors learned so far."""
        return WordVectors(self.text.words, self.inputs[:-1].clone(), self.text.counts.tolist())

    def train(self) -> Iterator[Progress]:
        """Train, and tell the loss after each epoch.

        Raises:
            CourseError: the loss rises far above its start.
        """
        config = self.config
        for epoch in range(config.epochs):
            total = torch.zeros(())
            losses = 0  # how many are in `total`
            for done, centres, contexts in self.batches():
                drawn = self.draw(len(centres))
                total += self.step(centres, contexts, drawn, self._lr(epoch + done)).sum()
                if config.kind == "skip-gram":  # a loss for each pair
                    losses += int((contexts < len(self.text.words)).sum())
                else:  # a loss for each centre
                    losses += len(centres)
            loss = float(total) / max(1, losses)
            # It begins at half of this: all 1 + K probabilities are 1/2.
            if not loss < 2 * math.log(2) * (1 + config.negative):
                raise CourseError(
                    f"The loss rose to {loss:.4g} in epoch {epoch + 1}; lower the learning rate."
                )
            yield Progress(epoch + 1, loss)

    def _lr(self, epochs: float) -> float:
        """The learning rate after so many passes over the text; it falls linearly."""
        config = self.config
        return config.lr - (config.lr - config.last_lr) * (epochs / config.epochs)

    def batches(self) -> Iterator[tuple[float, Int[Tensor, " B"], Int[Tensor, "B C"]]]:
        """One pass over the text in batches: (share of it done, centres, words around each).

        Frequent words are thinned out anew at each pass (2013b, section 2.3).
        """
        stays = torch.rand(len(self.text.ids), generator=self.rng) < self.stays[self.text.ids]
        ids = self.text.ids[stays]
        rows = self.text.rows[stays]
        order = torch.randperm(len(ids), generator=self.rng)
        window = self.config.window
        reach = torch.randint(1, window + 1, (len(ids),), generator=self.rng)
        for done in range(0, len(ids), self.batch):
            places = order[done : done + self.batch]
            pad = len(self.text.words)  # the row of zeros
            contexts = around(ids, rows, places, reach[places], window, pad)
            yield done / len(ids), ids[places], contexts

    def draw(self, centres: int) -> Int[Tensor, "B K"]:
        """Words by their frequency to the power `power` (2013b, section 2.2)."""
        points = torch.rand(centres, self.config.negative, generator=self.rng)  # B K
        words = torch.searchsorted(self.table, points, right=True)
        return words.clamp_(max=len(self.text.words) - 1)  # rounding may pass the last word

    def step(
        self,
        centres: Int[Tensor, " B"],
        contexts: Int[Tensor, "B C"],
        drawn: Int[Tensor, "B K"],
        lr: float,
    ) -> Float[Tensor, " B"]:
        """Update both tables.

        Args:
            centres: the words to predict.
            contexts: the words around each; V where there is none.
            drawn: K words for each centre that should score lower.
            lr: learning rate.

        Returns:
            Each centre's loss before the update, summed over its pairs.
        """
        # 1. The words to score: the centre first, then the drawn ones. A drawn word that is the
        #    centre does not count.
        targets = torch.cat([centres[:, None], drawn], dim=1)  # B 1+K
        is_other = drawn != centres[:, None]
        counts = torch.cat([torch.ones_like(centres[:, None]), is_other], dim=1)  # B 1+K
        counts = counts[:, None].float()  # B 1 1+K
        u = F.embedding(targets, self.outputs)  # B 1+K D

        # 2. What scores them: each context word by itself, or their mean.
        is_word = (contexts < len(self.text.words))[..., None].float()  # B C 1
        v = F.embedding(contexts, self.inputs)  # B C D
        if self.config.kind == "skip-gram":
            h = v  # B C D
            counts = counts * is_word
        else:
            words = is_word.sum(1, keepdim=True)  # B 1 1
            h = v.sum(1, keepdim=True) / words.clamp(min=1)  # B 1 D
            counts = counts * is_word.amax(1, keepdim=True)

        # 3. The loss, and minus its derivative by each score.
        scores = h @ u.transpose(1, 2).contiguous()  # B S 1+K
        loss, g = negative_sampling(scores, counts)

        # 4. A step down. The rate is multiplied here, because index_add_'s alpha is five times
        #    slower.
        g *= lr
        d_v = g @ u  # B S D
        if self.config.kind == "cbow":
            d_v = d_v * is_word  # each context word gets the gradient of h: B C D
        d_u = g.transpose(1, 2) @ h  # B 1+K D
        # A word that stands there twice gets both updates.
        self.inputs.index_add_(0, contexts.flatten(), d_v.flatten(0, 1))
        self.outputs.index_add_(0, targets.flatten(), d_u.flatten(0, 1))
        return loss


def negative_sampling(
    scores: Float[Tensor, "B S 1+K"], counts: Float[Tensor, "B #S 1+K"]
) -> tuple[Float[Tensor, " B"], Float[Tensor, "B S 1+K"]]:
    """The loss -log sigma(s_0) - sum over k of log sigma(-s_k) (2013b, equation 4).

    Args:
        scores: the products s = h . u, the centre's first.
        counts: 1 where a score counts, 0 where not.

    Returns:
        The loss, and g, minus its derivative by s: label minus probability. g u is the step down
        for h, and g h for u.
    """
    labels = torch.zeros(scores.shape[-1])
    labels[0] = 1
    signs = 2 * labels - 1  # 1 for the centre, -1 for drawn words
    terms = F.logsigmoid(scores * signs) * counts  # B S 1+K
    loss = -terms.sum((1, 2))
    g = (labels - scores.sigmoid()) * counts
    return loss, g


def stays(counts: Int[Tensor, " V"], sample: float) -> Float[Tensor, " V"]:
    """The probability that a word stays in the text: sqrt(t / f) + t / f, at most 1.

    Args:
        counts: of each word.
        sample: t, 0 to keep all words.
    """
    if sample == 0:
        return torch.ones(len(counts))
    ratio = sample * counts.sum() / counts.double()  # t / f
    return (ratio.sqrt() + ratio).clamp(max=1).float()


def around(
    ids: Int[Tensor, " N"],
    rows: Int[Tensor, " N"],
    places: Int[Tensor, " B"],
    reach: Int[Tensor, " B"],
    window: int,
    pad: int,
) -> Int[Tensor, "B C"]:
    """The words around each place in the text.

    Args:
        ids: the words of the text.
        rows: the row of each word, which no window crosses.
        places: of the centres.
        reach: of each centre, the farthest place that counts.
        window: the largest reach.
        pad: stands where there is no word.
    """
    offsets = torch.cat([torch.arange(-window, 0), torch.arange(1, window + 1)])  # C
    neighbours = places[:, None] + offsets  # B C
    inside = neighbours.clamp(0, len(ids) - 1)
    is_inside = neighbours == inside
    is_near = offsets.abs() <= reach[:, None]
    is_same_row = rows[inside] == rows[places][:, None]
    real = is_inside & is_near & is_same_row
    return ids[inside].masked_fill_(~real, pad)
