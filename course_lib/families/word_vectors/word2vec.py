"""word2vec: skip-gram and CBOW with negative sampling (Mikolov et al. 2013a, 2013b).

Letters: N words of running text, V words of the vocabulary, D width of a vector, B centres of a
batch, C = 2 * window context positions around each centre, K negative words for each centre.
S vectors of a centre are scored: C for skip-gram (each context word), 1 for CBOW (their mean).
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
from course_lib.families.word_vectors.progress import Progress
from course_lib.families.word_vectors.text import EncodedText
from course_lib.families.word_vectors.vectors import WordVectors

# Bound on how often a step is expected to update one negative word, times the learning rate.
# We measured it: from 6 on, training diverges with all texts and learning rates that we tried; at 3
# it learns as well as in very small batches. 2 leaves a margin.
MAX_UPDATES_TIMES_LR = 2


@dataclass(frozen=True)
class Word2VecConfig:
    """How word2vec learns its vectors.

    Attributes:
        kind: the method.
        size: width D of a vector.
        window: maximum number of context words on each side. Each centre draws its own number from
            1 to `window`, so near words are used more often.
        negative: number K of negative words that are drawn for each centre.
        power: negative words are drawn with probability proportional to count ** power.
        sample: threshold t of subsampling. Words with a higher relative frequency are dropped at
            random (`keep_probability`); 0 keeps all.
        epochs: passes over the text.
        lr: learning rate at the start; it falls linearly to `last_lr`.
        last_lr: learning rate at the end.
        batch: maximum number of centres in a batch; a small vocabulary makes batches smaller.
        seed: seed of the first vectors and of every draw.
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


class Word2Vec:
    """Skip-gram and CBOW with negative sampling (2013b, section 2.2).

    The context words should give the centre a higher score than K random words, the negatives.

        skip-gram   each context word alone:      h = v(context word)
        CBOW        all context words together:   h = mean of v(context words)
        loss        -log sigma(h . u(centre)) - sum over k of log sigma(-h . u(negative word k))

    v are the input vectors and u the output vectors; only v is used after training. As in the
    authors' program, skip-gram's context words score the centre, CBOW adds the whole gradient of h
    to each context word, and a negative word that equals the centre is skipped.

    Known departure: all context words of a centre share its K negative words (Ji et al. 2016).

    Attributes:
        inputs: [V + 1, D], the vectors v. The last row is zero, for positions without a word.
        outputs: [V + 1, D], the vectors u, with the same last row.
    """

    def __init__(self, text: EncodedText, config: Word2VecConfig | None = None) -> None:
        config = config or Word2VecConfig()
        self.text = text
        self.config = config
        self.rng = torch.Generator().manual_seed(config.seed)
        words = len(text.words)
        # Inputs start small and random, outputs at zero, as in the authors' program.
        vectors = (torch.rand(words, config.size, generator=self.rng) - 0.5) / config.size
        self.inputs = F.pad(vectors, (0, 0, 0, 1))  # V+1 D
        self.outputs = torch.zeros(words + 1, config.size)
        self.keep_probabilities = keep_probability(text.counts, config.sample)

        # Word i owns the part of [0, 1) that ends at cumulative[i]; a random point draws a word.
        weights = text.counts.double() ** config.power
        self.cumulative = (weights.cumsum(0) / weights.sum()).float()  # V
        self.batch_size = self._batch_size(weights / weights.sum())

    def vectors(self) -> WordVectors:
        """The vectors learned so far."""
        return WordVectors(self.text.words, self.inputs[:-1].clone(), self.text.counts.tolist())

    def train(self) -> Iterator[Progress]:
        """Train, and yield the mean loss after each epoch.

        Raises:
            CourseError: the loss rises far above its start.
        """
        config = self.config
        for epoch in range(config.epochs):
            total = torch.zeros(())
            terms = 0  # number of losses summed in `total`
            for done, centres, contexts in self.batches():
                negatives = self.draw(len(centres))
                lr = self._learning_rate(epoch + done)
                total += self.step(centres, contexts, negatives, lr).sum()
                if config.kind == "skip-gram":  # one loss for each pair of centre and context word
                    terms += int((contexts < len(self.text.words)).sum())
                else:  # one loss for each centre
                    terms += len(centres)
            loss = float(total) / max(1, terms)
            # Training starts at half of this bound: the outputs are zero, so each of the 1 + K
            # probabilities is 1/2 and costs log 2.
            if not loss < 2 * math.log(2) * (1 + config.negative):
                raise CourseError(
                    f"The loss rose to {loss:.4g} in epoch {epoch + 1}; lower the learning rate."
                )
            yield Progress(epoch + 1, loss)

    def batches(self) -> Iterator[tuple[float, Int[Tensor, " B"], Int[Tensor, "B C"]]]:
        """One pass over the text: yields (finished share of the pass, centres, context words).

        Each pass drops other occurrences of the frequent words (2013b, section 2.3).
        """
        keep_probabilities = self.keep_probabilities[self.text.ids]  # N
        is_kept = torch.rand(len(self.text.ids), generator=self.rng) < keep_probabilities
        ids = self.text.ids[is_kept]
        sentence_ids = self.text.sentence_ids[is_kept]
        order = torch.randperm(len(ids), generator=self.rng)
        window = self.config.window
        widths = torch.randint(1, window + 1, (len(ids),), generator=self.rng)
        pad = len(self.text.words)  # the number of the zero row
        for start in range(0, len(ids), self.batch_size):
            positions = order[start : start + self.batch_size]
            contexts = context_words(ids, sentence_ids, positions, widths[positions], window, pad)
            yield start / len(ids), ids[positions], contexts

    def draw(self, centres: int) -> Int[Tensor, "B K"]:
        """K negative words for each centre, by count ** power (2013b, section 2.2)."""
        points = torch.rand(centres, self.config.negative, generator=self.rng)  # B K
        words = torch.searchsorted(self.cumulative, points, right=True)
        # The last cumulative probability may be rounded to less than 1, and a point lie above it.
        return words.clamp_(max=len(self.text.words) - 1)

    def step(
        self,
        centres: Int[Tensor, " B"],
        contexts: Int[Tensor, "B C"],
        negatives: Int[Tensor, "B K"],
        lr: float,
    ) -> Float[Tensor, " B"]:
        """One update of the input and output vectors, by gradient descent.

        Args:
            centres: the words to predict.
            contexts: the words around each centre; V where there is none.
            negatives: K random words for each centre, which should get low scores.
            lr: learning rate.

        Returns:
            Each centre's loss before the update, summed over its pairs.
        """
        # 1. The words to score: the centre first, then the negatives. A negative word that equals
        #    the centre is masked.
        targets = torch.cat([centres[:, None], negatives], dim=1)  # B 1+K
        is_other = negatives != centres[:, None]
        mask = torch.cat([torch.ones_like(centres[:, None]), is_other], dim=1)  # B 1+K
        mask = mask[:, None].float()  # B 1 1+K
        u = F.embedding(targets, self.outputs)  # B 1+K D

        # 2. The vectors that score them: each context word, or the mean of all context words.
        is_word = (contexts < len(self.text.words))[..., None].float()  # B C 1
        v = F.embedding(contexts, self.inputs)  # B C D
        if self.config.kind == "skip-gram":
            h = v  # B C D
            mask = mask * is_word
        else:
            words = is_word.sum(1, keepdim=True)  # B 1 1
            h = v.sum(1, keepdim=True) / words.clamp(min=1)  # B 1 D
            mask = mask * is_word.amax(1, keepdim=True)

        # 3. The loss, and minus its gradient with respect to the scores.
        scores = h @ u.transpose(1, 2).contiguous()  # B S 1+K
        loss, g = negative_sampling(scores, mask)

        # 4. The update. We multiply by the learning rate here, because index_add_ with its
        #    argument alpha takes five times as long.
        g *= lr
        d_v = g @ u  # B S D
        if self.config.kind == "cbow":
            d_v = d_v * is_word  # each context word gets the gradient of h: B C D
        d_u = g.transpose(1, 2) @ h  # B 1+K D
        # index_add_ adds both updates where a word occurs twice.
        self.inputs.index_add_(0, contexts.flatten(), d_v.flatten(0, 1))
        self.outputs.index_add_(0, targets.flatten(), d_u.flatten(0, 1))
        return loss

    def _batch_size(self, probabilities: Float[Tensor, " V"]) -> int:
        """Centres in a batch, so that training does not diverge.

        A batch adds up the updates of all its centres. In a small vocabulary many of them change
        the same word, and their sum overshoots.

        Args:
            probabilities: with which each word is drawn as a negative word.
        """
        config = self.config
        same = float(probabilities.square().sum())  # P(two drawn words are the same)
        # A centre has window + 1 context words on average, because its width is drawn.
        of_one_centre = config.lr * config.negative * (config.window + 1) * same
        return max(1, min(config.batch, int(MAX_UPDATES_TIMES_LR / of_one_centre)))

    def _learning_rate(self, epochs: float) -> float:
        """The learning rate after so many epochs, parts of epochs included; it falls linearly."""
        config = self.config
        return config.lr - (config.lr - config.last_lr) * (epochs / config.epochs)


def negative_sampling(
    scores: Float[Tensor, "B S 1+K"], mask: Float[Tensor, "B #S 1+K"]
) -> tuple[Float[Tensor, " B"], Float[Tensor, "B S 1+K"]]:
    """The loss -log sigma(s_0) - sum over k of log sigma(-s_k) (2013b, equation 4).

    Args:
        scores: the products s = h . u; the centre's score comes first.
        mask: 1 for the scores that count, 0 for the others.

    Returns:
        The loss, and g, minus its derivative by s: label minus probability. g u is the descent
        direction of h, and g h that of u.
    """
    labels = torch.zeros(scores.shape[-1])
    labels[0] = 1
    signs = 2 * labels - 1  # 1 for the centre, -1 for negative words
    terms = F.logsigmoid(scores * signs) * mask  # B S 1+K
    loss = -terms.sum((1, 2))
    g = (labels - scores.sigmoid()) * mask
    return loss, g


def keep_probability(counts: Int[Tensor, " V"], sample: float) -> Float[Tensor, " V"]:
    """The probability with which subsampling keeps an occurrence of each word.

    It is sqrt(t / f) + t / f, at most 1, where f is the word's relative frequency. The formula is
    that of the authors' program; the paper has 1 - sqrt(t / f) for dropping (2013b, equation 5).

    Args:
        counts: how often each word of the vocabulary occurs.
        sample: the threshold t; 0 keeps all words.
    """
    if sample == 0:
        return torch.ones(len(counts))
    ratio = sample * counts.sum() / counts.double()  # t / f
    return (ratio.sqrt() + ratio).clamp(max=1).float()


def context_words(
    ids: Int[Tensor, " N"],
    sentence_ids: Int[Tensor, " N"],
    positions: Int[Tensor, " B"],
    widths: Int[Tensor, " B"],
    window: int,
    pad: int,
) -> Int[Tensor, "B C"]:
    """The words in the window around each centre.

    >>> ids, sentence_ids = torch.tensor([5, 6, 7, 8]), torch.tensor([0, 0, 0, 1])
    >>> positions, widths = torch.tensor([1, 2]), torch.tensor([1, 2])
    >>> context_words(ids, sentence_ids, positions, widths, window=2, pad=9).tolist()
    [[9, 5, 7, 9], [5, 6, 9, 9]]

    Args:
        ids: the running text.
        sentence_ids: the sentence of each word; words of another sentence are padded.
        positions: where the centres are in the text.
        widths: how many words on each side of a centre are used; the rest of `window` is padded.
        window: the largest possible width.
        pad: the id for a position without a context word.
    """
    offsets = torch.cat([torch.arange(-window, 0), torch.arange(1, window + 1)])  # C
    neighbours = positions[:, None] + offsets  # B C
    clamped = neighbours.clamp(0, len(ids) - 1)  # positions outside the text are padded below
    is_inside = neighbours == clamped
    is_near = offsets.abs() <= widths[:, None]
    is_same_sentence = sentence_ids[clamped] == sentence_ids[positions][:, None]
    is_context = is_inside & is_near & is_same_sentence
    return ids[clamped].masked_fill_(~is_context, pad)
