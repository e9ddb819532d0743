"""Static word vectors: word2vec (Mikolov et al. 2013a, 2013b) and GloVe (Pennington et al. 2014).

Differs from the 2017 Transformer by: no layers and no context; a word has one vector, whatever it
means here. Known departure of both: a step takes many centres or pairs, in random order, whose
gradients are all taken before its updates. The defaults are the classroom's.

Letters: N words of text, V different words, D size of a vector; word2vec: B centres, C = 2 window
places around each, K drawn words, S = C for skip-gram and 1 for CBOW; GloVe: P pairs of words that
meet, B pairs of a step."""

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


class WordVectors:
    """One vector a word. counts: of each word in the text, if known."""

    def __init__(
        self,
        words: Sequence[str],
        matrix: Float[Tensor, "V D"],
        counts: Sequence[int] | None = None,
    ) -> None:
        self.words, self.matrix = list(words), matrix.float()
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
        """A vector a word, for a model to start from: a word's own, or that of its lower case; the
        others draw one of these vectors' mean and spread, by `seed`."""
        words = list(words)
        drawn = torch.randn(
            len(words), self.matrix.shape[1], generator=torch.Generator().manual_seed(seed)
        )
        found = self.matrix.mean(0) + drawn * self.matrix.std(0, unbiased=False)
        for row, word in enumerate(words):
            number = self.numbers.get(word, self.numbers.get(word.lower()))
            if number is not None:
                found[row] = self.matrix[number]
        return found

    def nearest(self, word: str, k: int = 10) -> list[tuple[str, float]]:
        """The k words with the largest cosine, and that cosine; never the word itself."""
        cosines = self.units() @ F.normalize(self[word], dim=0, eps=UNIT)
        cosines[self.numbers[word]] = float("-inf")
        best = cosines.topk(min(k, len(self) - 1))
        return [
            (self.words[i], cosine)
            for i, cosine in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def units(self) -> Float[Tensor, "V D"]:
        return F.normalize(self.matrix, eps=UNIT)


def load_text(path: str | Path) -> WordVectors:
    """Read word2vec's text format, or GloVe's, which has no first line (of V and D) of its own."""
    with Path(path).open(encoding="utf-8") as file:
        lines = [line.rstrip("\n ").split(" ") for line in file]
    lines = lines[1:] if len(lines[0]) == 2 else lines
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
    """Number the words of a text. Those rarer than `least` are taken out of it, and their
    neighbours move together.
    """
    kept_rows = list(rows)
    counted = Counter(word for row in kept_rows for word in row)
    words = sorted((w for w, n in counted.items() if n >= least), key=lambda w: (-counted[w], w))
    if len(words) < 2:
        raise CourseError(
            f"Only {len(words)} words occur {least} times or more; give more text or a smaller"
            " `least`."
        )
    number = {word: i for i, word in enumerate(words)}
    pairs = [(number[word], r) for r, row in enumerate(kept_rows) for word in row if word in number]
    ids, places = torch.tensor(pairs).unbind(1)
    return CountedText(
        words, torch.tensor([counted[w] for w in words]), ids.contiguous(), places.contiguous()
    )


@dataclass(frozen=True)
class Word2VecConfig:
    """How the vectors are learned. lr falls linearly to last_lr over all epochs."""

    kind: Literal["skip-gram", "cbow"] = "skip-gram"
    size: int = 64  # D
    # the most words on each side; each centre draws 1 to `window`, so that near words count more
    window: int = 5
    negative: int = 5  # K
    power: float = 0.75  # words are drawn by their frequency to this power
    sample: float = 1e-3  # the frequency t above which words are thinned out, 0 for none
    epochs: int = 5
    lr: float = 0.025
    last_lr: float = 1e-4
    batch: int = 256  # the most centres a step; in a small vocabulary a step takes fewer
    seed: int = 0


class Progress(NamedTuple):
    """An epoch's mean loss of a centre (skip-gram: of each of its pairs; GloVe: the mean term of
    J).
    """

    epoch: int
    loss: float


class Word2Vec:
    """Skip-gram and CBOW with negative sampling: the words around a centre should score it higher
    than K drawn words.

        skip-gram   each of them by itself:   h = v(context word)
        CBOW        all of them together:     h = mean of v(context words)
        loss        -log sigma(h . u(centre)) - sum over k of log sigma(-h . u(drawn word k))

    v are the input vectors, which are kept; u the output vectors. As the authors' program does:
    skip-gram's context words score the centre, CBOW hands the whole gradient of h to each context
    word, a drawn word that is the centre is skipped, frequent words stay with probability sqrt(t /
    f) + t / f. Known departure: the contexts of a centre share its K draws (Ji et al. 2016).
    `inputs` and `outputs` have V + 1 rows: the last, zero, is for places without a word."""

    def __init__(self, text: CountedText, config: Word2VecConfig | None = None) -> None:
        self.text, self.config = text, config or Word2VecConfig()
        self.rng = torch.Generator().manual_seed(self.config.seed)
        size, words = self.config.size, len(text.words)
        self.inputs = F.pad(
            (torch.rand(words, size, generator=self.rng) - 0.5) / size, (0, 0, 0, 1)
        )
        self.outputs = torch.zeros(words + 1, size)
        self.stays = stays(text.counts, self.config.sample)
        shares = text.counts.double() ** self.config.power
        # where each word's part of [0, 1) ends
        self.table = (shares.cumsum(0) / shares.sum()).float()
        # The updates of a step add up, and overshoot where too many are of one word. From 6 at full
        # rate on, all texts and rates tried go astray; at 3 they learn as at 0.
        meet = float((shares / shares.sum()).square().sum())  # that two drawn words are the same
        # of one centre
        rate = self.config.lr * self.config.negative * (self.config.window + 1) * meet
        self.batch = max(1, min(self.config.batch, int(2 / rate)))

    def vectors(self) -> WordVectors:
        return WordVectors(self.text.words, self.inputs[:-1].clone(), self.text.counts.tolist())

    def train(self) -> Iterator[Progress]:
        config = self.config
        for epoch in range(config.epochs):
            total, seen = torch.zeros(()), 0
            for done, centres, contexts in self.batches():
                share = (epoch + done) / config.epochs
                lr = config.lr - (config.lr - config.last_lr) * share
                total += self.step(centres, contexts, self.draw(len(centres)), lr).sum()
                seen += (
                    int((contexts < len(self.text.words)).sum())
                    if config.kind == "skip-gram"
                    else len(centres)
                )
            loss = float(total) / max(1, seen)
            if not loss < 2 * math.log(2) * (1 + config.negative):  # it begins at half of that
                raise CourseError(
                    f"The loss rose to {loss:.4g} in epoch {epoch + 1}; lower the learning rate."
                )
            yield Progress(epoch + 1, loss)

    def batches(self) -> Iterator[tuple[float, Int[Tensor, " B"], Int[Tensor, "B C"]]]:
        """One pass over the text, thinned out anew: (share of it done, centres, words around
        each).
        """
        thin = torch.rand(len(self.text.ids), generator=self.rng) < self.stays[self.text.ids]
        ids, rows = self.text.ids[thin], self.text.rows[thin]
        order = torch.randperm(len(ids), generator=self.rng)
        window = self.config.window
        reach = torch.randint(1, window + 1, (len(ids),), generator=self.rng)
        for done in range(0, len(ids), self.batch):
            at = order[done : done + self.batch]
            contexts = around(ids, rows, at, reach[at], window, len(self.text.words))
            yield done / len(ids), ids[at], contexts

    def draw(self, centres: int) -> Int[Tensor, "B K"]:
        """Words by their frequency to the power `power` (2013b, section 2.2)."""
        points = torch.rand(centres, self.config.negative, generator=self.rng)
        return torch.searchsorted(self.table, points, right=True).clamp_(
            max=len(self.text.words) - 1
        )

    def step(
        self,
        centres: Int[Tensor, " B"],
        contexts: Int[Tensor, "B C"],
        drawn: Int[Tensor, "B K"],
        lr: float,
    ) -> Float[Tensor, " B"]:
        """Update both tables; each centre's loss before it, summed over its pairs."""
        real = (contexts < len(self.text.words))[..., None].float()  # B C 1
        targets = torch.cat([centres[:, None], drawn], dim=1)
        others = drawn != centres[:, None]
        counts = torch.cat([torch.ones_like(centres[:, None]), others], dim=1)  # B 1+K
        counts = counts[:, None].float()  # B 1 1+K
        v = F.embedding(contexts, self.inputs)  # B C D
        u = F.embedding(targets, self.outputs)  # B 1+K D
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
    """The loss -log sigma(s_0) - sum_k log sigma(-s_k) of products s = h . u (2013b, equation 4),
    and minus its derivative by s: label minus probability. Then g u is the way down of h, and g h
    of u. counts: 1 or 0."""
    labels = torch.zeros(scores.shape[-1])
    labels[0] = 1
    loss = -(F.logsigmoid(scores * (2 * labels - 1)) * counts).sum((1, 2))
    return loss, (labels - scores.sigmoid()) * counts


def stays(counts: Int[Tensor, " V"], sample: float) -> Float[Tensor, " V"]:
    """The probability that an occurrence of each word stays in the text: sqrt(t / f) + t / f, at
    most 1.
    """
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
    """The words up to `reach` places before and after each place `at`, of the same row; `pad` where
    there is none.
    """
    offsets = torch.cat([torch.arange(-window, 0), torch.arange(1, window + 1)])
    places = at[:, None] + offsets
    inside = places.clamp(0, len(ids) - 1)
    real = (
        (places == inside) & (offsets.abs() <= reach[:, None]) & (rows[inside] == rows[at][:, None])
    )
    return ids[inside].masked_fill_(~real, pad)


@dataclass(frozen=True)
class GloVeConfig:
    """size: D. window: words looked at on each side. x_max, alpha: of f. batch: pairs a step."""

    size: int = 64
    window: int = 5
    x_max: float = 100.0
    alpha: float = 0.75
    epochs: int = 15
    lr: float = 0.05
    batch: int = 2048
    seed: int = 0


class Cooccurrences(NamedTuple):
    """Word i has word j around it x times, for every pair that meets."""

    i: Int[Tensor, " P"]
    j: Int[Tensor, " P"]
    x: Float[Tensor, " P"]


def cooccurrences(text: CountedText, window: int = 5) -> Cooccurrences:
    """How often words meet within `window` places on either side, each time as 1 / distance
    (section 4.2).
    """
    from scipy.sparse import coo_array

    size = len(text.words)
    total = coo_array((size, size)).tocsr()
    for distance in range(1, window + 1):
        same = text.rows[distance:] == text.rows[:-distance]
        left, right = text.ids[:-distance][same].numpy(), text.ids[distance:][same].numpy()
        weights = torch.full((len(left),), 1 / distance, dtype=torch.float64).numpy()
        total += coo_array((weights, (left, right)), shape=(size, size)).tocsr()
    both = (total + total.T).tocoo()
    i, j = (torch.from_numpy(side.astype("int64")) for side in (both.row, both.col))
    return Cooccurrences(i, j, torch.from_numpy(both.data).float())


class GloVe:
    """Word vectors whose products are the logarithms of how often words meet.

        J = sum over pairs of f(X_ij) (w_i . c_j + b_i + d_j - log X_ij)^2
        f(x) = min(1, (x / x_max)^alpha)

    X_ij counts the words j around a word i, one at distance n as 1 / n. A word's vector is w + c
    (section 4.2). w and c are [V D + 1] with their biases in the last column. As in the authors'
    program, the steps follow half of the gradient, and AdaGrad's sums of squares begin at 1."""

    def __init__(self, text: CountedText, config: GloVeConfig | None = None) -> None:
        self.text, self.config = text, config or GloVeConfig()
        self.rng = torch.Generator().manual_seed(self.config.seed)
        shape = len(text.words), self.config.size + 1
        self.w = (torch.rand(shape, generator=self.rng) - 0.5) / shape[1]
        self.c = (torch.rand(shape, generator=self.rng) - 0.5) / shape[1]
        self.squares_w = torch.ones(shape)
        self.squares_c = torch.ones(shape)

    def vectors(self) -> WordVectors:
        return WordVectors(
            self.text.words, (self.w + self.c)[:, :-1].clone(), self.text.counts.tolist()
        )

    def train(self) -> Iterator[Progress]:
        pairs = cooccurrences(self.text, self.config.window)
        for epoch in range(self.config.epochs):
            total = torch.zeros(())
            order = torch.randperm(len(pairs.x), generator=self.rng)
            for done in range(0, len(order), self.config.batch):
                at = order[done : done + self.config.batch]
                total += self.step(pairs.i[at], pairs.j[at], pairs.x[at]).sum()
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
        """Update both words of every pair by AdaGrad. Returns each pair's term of J before it."""
        loss, g, w, c = self._terms(i, j, x)
        w[:, -1] = c[:, -1] = 1.0  # what a bias is multiplied with
        self._adagrad(self.w, self.squares_w, i, g * c)
        self._adagrad(self.c, self.squares_c, j, g * w)
        return loss

    def _adagrad(self, table: Tensor, squares: Tensor, rows: Tensor, gradient: Tensor) -> None:
        """Update some rows of a table, each number by its gradients' size so far."""
        rates = squares.index_select(0, rows).rsqrt_().mul_(-self.config.lr)
        table.index_add_(0, rows, gradient * rates)
        squares.index_add_(0, rows, gradient.square())

    def _terms(self, i: Tensor, j: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """J's terms, half of their derivatives by what is squared [B 1], and the rows of w and
        c.
        """
        w, c = self.w.index_select(0, i), self.c.index_select(0, j)
        difference = (w[:, :-1] * c[:, :-1]).sum(1) + w[:, -1] + c[:, -1] - x.log()
        weighted = (x / self.config.x_max).pow(self.config.alpha).clamp(max=1) * difference
        return weighted * difference, weighted[:, None], w, c
