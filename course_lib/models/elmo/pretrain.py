"""How the biLM is trained: batches of whole documents, the loss of both directions, and asking it for a word."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.corrupt import IGNORE, generator
from course_lib.errors import CourseError
from course_lib.losses import Batch, cross_entropy
from course_lib.models.elmo.config import ElmoConfig
from course_lib.models.elmo.model import BiLM, Elmo, State
from course_lib.models.elmo.words import BOS, EOS, UNK, Vocabulary, characters

Words = Callable[[int], Sequence[str]]  # document number -> its words


def model(config: ElmoConfig) -> BiLM:
    """A fresh biLM with its softmax."""
    return BiLM(Elmo(config))


class Batches:
    """Whole documents, `<S>` words `</S>`, one a row: batch `step` depends on (words, seed, step) only.

    A batch holds ids Int[B T C], keep Bool[B T] and labels Int[B 2 T]: the word after each place and the word before
    it, -100 where there is none.

    Args:
        words: document number -> its words, for any number from 0 on. No document comes twice.
        vocabulary: the words of the softmax. config: for the characters of a word.
        rows: documents a batch. length: most words of a row, the two marks included; what is over is cut off.
        pool: batches whose documents are sorted by length together, so that little of a batch is padding.
        seed: decides the order of a pool's batches.
    """

    def __init__(
        self,
        words: Words,
        vocabulary: Vocabulary,
        config: ElmoConfig,
        *,
        rows: int = 48,
        length: int = 160,
        pool: int = 64,
        seed: int = 0,
    ) -> None:
        if rows < 1 or pool < 1 or length < 2:
            raise CourseError(f"rows is {rows}, pool {pool}, length {length}; they must be at least 1, 1 and 2.")
        if len(vocabulary) != config.vocab:
            raise CourseError(f"The vocabulary has {len(vocabulary)} words, the configuration {config.vocab}.")
        self.words, self.vocabulary, self.config = words, vocabulary, config
        self.rows, self.length, self.pool, self.seed = rows, length, pool, seed
        self._pool: tuple[int, list[list[list[str]]]] = (-1, [])

    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""
        number, index = divmod(step, self.pool)
        if self._pool[0] != number:
            self._pool = (number, self._make(number))
        return language_model_batch(self._pool[1][index], self.vocabulary, self.config.length)

    def _make(self, number: int) -> list[list[list[str]]]:
        count = self.rows * self.pool
        rows = [[BOS, *self.words(number * count + i), EOS][: self.length] for i in range(count)]
        rows.sort(key=len)
        order = torch.randperm(self.pool, generator=generator(self.seed, number)).tolist()
        return [rows[k * self.rows : (k + 1) * self.rows] for k in order]


def language_model_batch(rows: Sequence[Sequence[str]], vocabulary: Vocabulary, length: int) -> dict[str, Tensor]:
    """Rows of words, marks included, with both directions' targets; see `Batches`."""
    batch = characters(rows, length, ends=False)
    labels = torch.full((len(rows), 2, batch["ids"].shape[1]), IGNORE)
    for b, row in enumerate(rows):
        ids = torch.tensor(vocabulary.ids(row))
        labels[b, 0, : len(row) - 1] = ids[1:]
        labels[b, 1, 1 : len(row)] = ids[:-1]
    return {**batch, "labels": labels}


def loss(model: nn.Module, batch: Batch, *, state: State | None = None) -> Tensor:
    """Mean of -log p(next word) and -log p(word before) over both directions (Peters et al. 2018, section 3.1).

    Reads `ids`, `keep` and `labels` as `Batches` makes them. state: carried on from batch to batch, for text that goes
    on; bind it with functools.partial.

    Known departure: the softmax is a full one; the original drew 8,192 words of its 793,471 for each batch.
    """
    labels = batch["labels"]
    at = labels != IGNORE
    logits = model(batch["ids"], keep=batch.get("keep"), at=at, state=state)  # N V
    return cross_entropy(logits, labels[at])


@torch.no_grad()
def hidden_word(
    model: BiLM, before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]
) -> tuple[Float[Tensor, "N V"], Float[Tensor, "N V"]]:
    """What the model expects between the words `before` and the words `after`, from either side.

    Returns: log-probabilities over the softmax's words, of the forward LM, which has read `before` alone, and of the
        backward LM, which has read `after` alone. Their sum is the best that a biLM can say of both sides: no layer
        of it has seen both.
    """
    if len(before) != len(after):
        raise CourseError(f"There are {len(before)} left contexts and {len(after)} right ones; give one each.")
    # What is spelled in the gap is read by neither: the forward LM speaks one place before it, the backward one after.
    rows = [[BOS, *a, UNK, *b, EOS] for a, b in zip(before, after, strict=True)]
    batch = characters(rows, model.elmo.config.length, ends=False)
    at = torch.zeros(len(rows), 2, batch["ids"].shape[1], dtype=torch.bool)
    gap = torch.tensor([len(a) + 1 for a in before])
    number = torch.arange(len(rows))
    at[number, 0, gap - 1] = True
    at[number, 1, gap + 1] = True
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    logits = model(batch["ids"].to(device), keep=batch["keep"].to(device), at=at.to(device)).float()
    model.train(was_training)
    left, right = logits.log_softmax(-1).cpu().view(len(rows), 2, -1).unbind(1)
    return left, right
