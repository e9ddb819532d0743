"""Static word vectors: word2vec (Mikolov et al. 2013a, 2013b) and GloVe (Pennington et al. 2014).

Differs from the 2017 Transformer by: no layers and no context; a word has one vector, whatever it
means here. Known departure of both: a step takes many centres or pairs in random order, and
computes all their gradients before it updates. The defaults are the classroom's.

Letters: N words of text, V different words, D size of a vector. word2vec: B centres, C = 2 window
positions around each, K drawn words, S = C for skip-gram and 1 for CBOW. GloVe: P pairs of words
that meet, B pairs of a step.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.errors import CourseError

UNIT = 1e-12  # the shortest vector that has a direction
MOST_UPDATES = 2  # of a drawn word in one step of word2vec, times the learning rate


class WordVectors:
    """One vector a word.

    Args:
        words: V different words.
        matrix: their vectors.
        counts: of each word in the text, if known.

    Raises:
        CourseError: a word has no vector or several.
    """

    def __init__(
        self,
        words: Sequence[str],
        matrix: Float[Tensor, "V D"],
        counts: Sequence[int] | None = None,
    ) -> None:
        self.words = list(words)
        self.matrix = matrix.float()
        self.counts = None if counts is None else list(counts)
        self.numbers = {word: i for i, word in enumerate(self.words)}
        if len({*words}) < len(matrix) or len(matrix) != len(self.words):
            raise CourseError(
                f"There are {len({*words})} words and {len(matrix)} vectors; give each word one."
            )

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.numbers

    def __getitem__(self, word: str) -> Float[Tensor, " D"]:
        if word not in self.numbers:
            raise CourseError(
                f"There is no vector for {word!r}; it is not among the {len(self)} words."
            )
        return self.matrix[self.numbers[word]]

    def table(self, words: Iterable[str], *, seed: int = 0) -> Float[Tensor, "N D"]:
        """A vector for each of these words, for a model to start from.

        Args:
            words: a word without a vector gets that of its lower case. If that is missing too, it
                gets a random vector of the same mean and spread.
            seed: of the random vectors.
        """
        words = list(words)
        rng = torch.Generator().manual_seed(seed)
        noise = torch.randn(len(words), self.matrix.shape[1], generator=rng)
        table = self.matrix.mean(0) + noise * self.matrix.std(0, unbiased=False)
        for row, word in enumerate(words):
            number = self.numbers.get(word, self.numbers.get(word.lower()))
            if number is not None:
                table[row] = self.matrix[number]
        return table

    def nearest(self, word: str, k: int = 10) -> list[tuple[str, float]]:
        """The k words with the largest cosine, and that cosine; never the word itself."""
        unit = F.normalize(self[word], dim=0, eps=UNIT)
        cosines = self.units() @ unit  # V
        cosines[self.numbers[word]] = float("-inf")
        best = cosines.topk(min(k, len(self) - 1))
        words = [self.words[i] for i in best.indices.tolist()]
        return list(zip(words, best.values.tolist(), strict=True))

    def units(self) -> Float[Tensor, "V D"]:
        """All vectors with length 1, so that a product of two is their cosine."""
        return F.normalize(self.matrix, eps=UNIT)


def load_text(path: str | Path) -> WordVectors:
    """Read word2vec's text format, or GloVe's, which lacks the first line with V and D.

    Raises:
        CourseError: a line is not a word and numbers, or lines have different lengths.
    """
    with Path(path).open(encoding="utf-8") as file:
        lines = [line.rstrip("\n ").split(" ") for line in file]
    if len(lines[0]) == 2:
        lines = lines[1:]
    try:
        matrix = torch.tensor([[float(value) for value in values] for _, *values in lines])
    except ValueError as error:
        raise CourseError(
            f"{path} is not lines of a word and as many numbers each ({error})."
        ) from None
    return WordVectors([word for word, *_ in lines], matrix)


@dataclass(frozen=True)
class CountedText:
    """A text of rows (sentences or documents), which no window crosses."""

    words: list[str]  # that are kept, the most frequent first
    counts: Int[Tensor, " V"]
    ids: Int[Tensor, " N"]  # the kept words of the text, one after another
    rows: Int[Tensor, " N"]  # the number of the row that each stands in


def count(rows: Iterable[Sequence[str]], *, least: int = 5) -> CountedText:
    """Number the words of a text.

    Args:
        rows: sentences or documents.
        least: rarer words are taken out of the text, and their neighbours move together.

    Raises:
        CourseError: fewer than two words are left.
    """
    kept_rows = list(rows)
    counted = Counter(word for row in kept_rows for word in row)
    frequent = [word for word, number in counted.items() if number >= least]
    words = sorted(frequent, key=lambda word: (-counted[word], word))
    if len(words) < 2:
        raise CourseError(
            f"Only {len(words)} words occur {least} times or more; give more text or a smaller"
            " `least`."
        )
    number_of = {word: i for i, word in enumerate(words)}
    ids = []
    row_numbers = []
    for row_number, row in enumerate(kept_rows):
        known = [number_of[word] for word in row if word in number_of]
        ids += known
        row_numbers += [row_number] * len(known)
    counts = [counted[word] for word in words]
    return CountedText(words, torch.tensor(counts), torch.tensor(ids), torch.tensor(row_numbers))


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


class Progress(NamedTuple):
    """How far training is."""

    epoch: int  # from 1
    # Mean of the epoch: a pair's in skip-gram, a centre's in CBOW, a term of J in GloVe.
    loss: float


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
        vectors = (torch.rand(words, config.size, generator=self.rng) - 0.5) / config.size
        self.inputs = F.pad(vectors, (0, 0, 0, 1))
        self.outputs = torch.zeros(words + 1, config.size)
        self.stays = stays(text.counts, config.sample)

        # Words are drawn by a point in [0, 1): `table` tells where each word's part ends.
        weights = text.counts.double() ** config.power
        self.table = (weights.cumsum(0) / weights.sum()).float()

        # The updates of a step add up, and overshoot where too many are of one word. Take those
        # that a step is expected to give a drawn word, times the learning rate: from 6 on, all
        # texts and rates tried diverge; at 3 they learn as at 0.
        same = float((weights / weights.sum()).square().sum())  # P(two drawn words are the same)
        updates_of_a_centre = config.lr * config.negative * (config.window + 1) * same
        self.batch = max(1, min(config.batch, int(MOST_UPDATES / updates_of_a_centre)))

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
                share = (epoch + done) / config.epochs
                lr = config.lr - (config.lr - config.last_lr) * share
                drawn = self.draw(len(centres))
                total += self.step(centres, contexts, drawn, lr).sum()
                if config.kind == "skip-gram":
                    losses += int((contexts < len(self.text.words)).sum())
                else:
                    losses += len(centres)
            loss = float(total) / max(1, losses)
            if not loss < 2 * math.log(2) * (1 + config.negative):  # it begins at half of that
                raise CourseError(
                    f"The loss rose to {loss:.4g} in epoch {epoch + 1}; lower the learning rate."
                )
            yield Progress(epoch + 1, loss)

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
        real = (contexts < len(self.text.words))[..., None].float()  # B C 1
        targets = torch.cat([centres[:, None], drawn], dim=1)
        others = drawn != centres[:, None]  # a drawn word that is the centre does not count
        counts = torch.cat([torch.ones_like(centres[:, None]), others], dim=1)  # B 1+K
        counts = counts[:, None].float()  # B 1 1+K
        v = F.embedding(contexts, self.inputs)  # B C D
        u = F.embedding(targets, self.outputs)  # B 1+K D
        if self.config.kind == "skip-gram":
            h = v  # B C D
            counts = counts * real
        else:
            h = v.sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)  # B 1 D
            counts = counts * real.amax(1, keepdim=True)
        scores = h @ u.transpose(1, 2).contiguous()  # B S 1+K
        loss, g = negative_sampling(scores, counts)

        g *= lr  # here and not as index_add_'s alpha, which is five times slower
        d_v = g @ u  # B S D
        if self.config.kind == "cbow":
            d_v = d_v * real  # the gradient of h for each of its words: B C D
        d_u = g.transpose(1, 2) @ h  # B 1+K D
        self.inputs.index_add_(0, contexts.flatten(), d_v.flatten(0, 1))  # repeated words add up
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


@dataclass(frozen=True)
class GloVeConfig:
    """How GloVe learns its vectors."""

    size: int = 64  # D
    window: int = 5  # words on each side
    x_max: float = 100.0  # pairs that meet so often, or more often, have the full weight f
    alpha: float = 0.75  # how fast f grows up to there
    epochs: int = 15  # passes over all pairs
    lr: float = 0.05
    batch: int = 2048  # pairs a step
    seed: int = 0


class Cooccurrences(NamedTuple):
    """Word i has word j around it x times, for every pair that meets."""

    i: Int[Tensor, " P"]
    j: Int[Tensor, " P"]
    x: Float[Tensor, " P"]


def cooccurrences(text: CountedText, window: int = 5) -> Cooccurrences:
    """How often words meet within `window` words, each time counted as 1 / distance (section 4.2).

    Args:
        text: its words and rows; no window crosses a row.
        window: words on each side.
    """
    from scipy.sparse import coo_array

    size = len(text.words)
    total = coo_array((size, size)).tocsr()
    for distance in range(1, window + 1):
        is_same_row = text.rows[distance:] == text.rows[:-distance]
        left = text.ids[:-distance][is_same_row].numpy()
        right = text.ids[distance:][is_same_row].numpy()
        weights = torch.full((len(left),), 1 / distance, dtype=torch.float64).numpy()
        total += coo_array((weights, (left, right)), shape=(size, size)).tocsr()
    both = (total + total.T).tocoo()  # to the right and to the left
    i = torch.from_numpy(both.row.astype("int64"))
    j = torch.from_numpy(both.col.astype("int64"))
    return Cooccurrences(i, j, torch.from_numpy(both.data).float())


class GloVe:
    """Word vectors whose products are the logarithms of how often words meet (equations 8 and 9).

        J    = sum over pairs of f(X_ij) (w_i . c_j + b_i + d_j - log X_ij)^2
        f(x) = min(1, (x / x_max)^alpha)

    X_ij counts the words j around a word i, one at distance n as 1 / n. A word's vector is w + c
    (section 4.2). As in the authors' program, the steps follow half of the gradient, and AdaGrad's
    sums of squares begin at 1.

    Attributes:
        w: [V, D + 1], a word's vector and, in the last column, its bias b.
        c: the same of a word around another, with its bias d.
    """

    def __init__(self, text: CountedText, config: GloVeConfig | None = None) -> None:
        self.text = text
        self.config = config or GloVeConfig()
        self.rng = torch.Generator().manual_seed(self.config.seed)
        shape = len(text.words), self.config.size + 1
        self.w = (torch.rand(shape, generator=self.rng) - 0.5) / shape[1]
        self.c = (torch.rand(shape, generator=self.rng) - 0.5) / shape[1]
        self.squares_w = torch.ones(shape)
        self.squares_c = torch.ones(shape)

    def vectors(self) -> WordVectors:
        """The vectors learned so far, without the biases."""
        matrix = (self.w + self.c)[:, :-1].clone()
        return WordVectors(self.text.words, matrix, self.text.counts.tolist())

    def train(self) -> Iterator[Progress]:
        """Train, and tell the loss after each epoch.

        Raises:
            CourseError: the loss is not finite.
        """
        pairs = cooccurrences(self.text, self.config.window)
        for epoch in range(self.config.epochs):
            total = torch.zeros(())
            order = torch.randperm(len(pairs.x), generator=self.rng)
            for done in range(0, len(order), self.config.batch):
                part = order[done : done + self.config.batch]
                total += self.step(pairs.i[part], pairs.j[part], pairs.x[part]).sum()
            loss = float(total) / len(pairs.x)
            if not loss < float("inf"):
                raise CourseError(
                    f"The loss is {loss} in epoch {epoch + 1}; lower the learning rate or the"
                    " batch."
                )
            yield Progress(epoch + 1, loss)

    def loss(
        self, i: Int[Tensor, " B"], j: Int[Tensor, " B"], x: Float[Tensor, " B"]
    ) -> Float[Tensor, " B"]:
        """Each pair's term of J (equation 8)."""
        return self._terms(i, j, x)[0]

    def step(
        self, i: Int[Tensor, " B"], j: Int[Tensor, " B"], x: Float[Tensor, " B"]
    ) -> Float[Tensor, " B"]:
        """Update both words of every pair by AdaGrad; return each pair's term of J before it."""
        loss, g, w, c = self._terms(i, j, x)
        # The derivative of w . c by w is c; the derivative by a bias is 1.
        w[:, -1] = 1.0
        c[:, -1] = 1.0
        self._adagrad(self.w, self.squares_w, i, g * c)
        self._adagrad(self.c, self.squares_c, j, g * w)
        return loss

    def _adagrad(self, table: Tensor, squares: Tensor, rows: Tensor, gradient: Tensor) -> None:
        """Update some rows of a table, each number by its gradients' size so far."""
        rates = squares.index_select(0, rows).rsqrt_().mul_(-self.config.lr)
        table.index_add_(0, rows, gradient * rates)
        squares.index_add_(0, rows, gradient.square())

    def _terms(self, i: Tensor, j: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """J's terms, half of their derivatives by the difference [B 1], and the rows of w and c."""
        w = self.w.index_select(0, i)  # B D+1
        c = self.c.index_select(0, j)
        products = (w[:, :-1] * c[:, :-1]).sum(1)
        difference = products + w[:, -1] + c[:, -1] - x.log()
        f = (x / self.config.x_max).pow(self.config.alpha).clamp(max=1)
        weighted = f * difference
        return weighted * difference, weighted[:, None], w, c
