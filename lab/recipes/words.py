"""Models that read words instead of pieces: ELMo from their characters, word2vec and GloVe from
whom they meet.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import nn

from course_lib import zoo
from course_lib.analysis import analogies, evaluation
from course_lib.analysis.copy_probe import Blank
from course_lib.analysis.sts import sts
from course_lib.data.embedders import WordAverage
from course_lib.data.word_batches import BiLMBatches, WordsOf
from course_lib.data.words import lowercase_words, split_words
from course_lib.families import elmo, word_vectors
from course_lib.training.run_folder import Point
from lab.recipes.base import HELD_OUT, Job, RecipeTraining, Scores, TrainingJob

ASKED = 500  # analogies, and pairs of texts to judge


@dataclass(frozen=True)
class ElmoRecipe(RecipeTraining):
    """A biLM and the documents it reads, each once; a batch has `rows` documents.

    Attributes:
        vocab: words of the softmax, at most.
        width: of a direction.
        hidden: cells of an LSTM.
        length: words of a row, at most.
        pool: batches whose documents are sorted by length together.
    """

    vocab: int = 3072
    width: int = 64
    hidden: int = 336
    length: int = 160
    pool: int = 64


@dataclass(frozen=True)
class ElmoRun(TrainingJob):
    """ELMo's recipe at work in its folder."""

    recipe: ElmoRecipe
    loss = staticmethod(elmo.loss)

    @cached_property
    def tokenizer(self) -> elmo.Vocabulary:
        """The words of the softmax, counted once, in the first documents."""
        return cast(
            elmo.Vocabulary,
            self.learned("vocabulary.txt", partial(learn_words, size=self.recipe.vocab)),
        )

    @property
    def config(self) -> elmo.ElmoConfig:
        return replace(
            elmo.elmo_mini(len(self.tokenizer)), width=self.recipe.width, hidden=self.recipe.hidden
        )

    def model(self) -> elmo.BiLM:
        torch.manual_seed(self.recipe.seed)
        return elmo.model(self.config)

    def batches(self, split: str = "train", **options: int) -> BiLMBatches:
        recipe = self.recipe
        read = self.sentences(split)
        words_of: WordsOf = lambda document: split_words(" ".join(read(document)))  # noqa: E731
        settings = {
            "rows": recipe.rows,
            "length": recipe.length,
            "pool": recipe.pool,
            "seed": recipe.seed,
        }
        return BiLMBatches(words_of, self.tokenizer, self.config, **(settings | options))

    def probe(self, model: nn.Module) -> Scores:
        assert isinstance(model, elmo.BiLM)
        return {
            kind: elmo_accuracy(model, self.tokenizer, blanks)
            for kind, blanks in self.blanks.items()
        }

    def scores(self, model: nn.Module) -> Scores:
        """The loss a word on held-out documents, the mean of both directions."""
        batches = self.batches("validation", seed=2, pool=HELD_OUT)
        return {
            "loss": evaluation.mean_loss(model, elmo.loss, [batches[i] for i in range(HELD_OUT)])
        }


def learn_words(texts: Iterable[str], size: int) -> elmo.Vocabulary:
    """The commonest words, for a softmax of this size."""
    return elmo.Vocabulary.count(map(split_words, texts), max_size=size - 3)


def elmo_accuracy(
    model: elmo.BiLM, vocabulary: elmo.Vocabulary, blanks: Sequence[Blank], batch: int = 64
) -> float:
    """Share of the blanks that a biLM fills, by both directions' probabilities together."""
    right = 0
    for start in range(0, len(blanks), batch):
        chunk = blanks[start : start + batch]
        before = [split_words(blank.left) for blank in chunk]
        after = [split_words(blank.right) for blank in chunk]
        forward, backward = elmo.hidden_word(model, before, after)  # B V each
        best = (forward + backward).argmax(-1).tolist()
        for number, blank in zip(best, chunk, strict=True):
            right += vocabulary.words[number] == blank.answer
    return right / len(blanks)


@dataclass(frozen=True)
class StaticRecipe:
    """Word vectors and the documents they are learned from, in lower case.

    Attributes:
        kind: the method.
        documents: how many are read.
        size: width of a vector.
        least: rarer words have no vector.
        epochs: over the documents; by default the method's own.
        lr: likewise.
        window: words on either side.
    """

    kind: Literal["skip-gram", "cbow", "glove"]
    documents: int = 8_000
    size: int = 64
    least: int = 5
    epochs: int | None = None
    lr: float | None = None
    window: int = 5
    world: int = 0
    seed: int = 0


@dataclass(frozen=True)
class StaticRun(Job):
    """Static vectors' recipe at work. It takes a minute and starts anew if it is stopped."""

    recipe: StaticRecipe

    @property
    def data(self) -> str:
        return (
            f"World({self.recipe.world}): the first {self.recipe.documents:,} documents of the"
            " split train"
        )

    def learner(self) -> word_vectors.Word2Vec | word_vectors.GloVe:
        """What learns, before its first epoch."""
        recipe = self.recipe
        read = self.sentences("train")
        texts = (" ".join(read(i)) for i in range(recipe.documents))
        text = word_vectors.encode_text(lowercase_words(texts), min_count=recipe.least)
        options: dict[str, Any] = {
            "size": recipe.size,
            "window": recipe.window,
            "seed": recipe.seed,
        }
        if recipe.epochs is not None:
            options["epochs"] = recipe.epochs
        if recipe.lr is not None:
            options["lr"] = recipe.lr
        if recipe.kind == "glove":
            return word_vectors.GloVe(text, word_vectors.GloVeConfig(**options))
        return word_vectors.Word2Vec(text, word_vectors.Word2VecConfig(recipe.kind, **options))

    def build(self, to: Path, device: str = "cpu") -> Iterator[Point]:
        learner = self.learner()
        words = len(learner.text.ids)
        points: list[dict[str, Any]] = []
        start = time.perf_counter()
        for epoch in learner.train():
            now = time.perf_counter()
            seconds = round(now - start, 1)
            start = now
            point = {
                "step": epoch.epoch,
                "loss": round(epoch.loss, 4),
                "tokens": words,
                "seconds": seconds,
            }
            points.append(point)
            yield Point(epoch.epoch, epoch.loss, learner.config.lr, words, seconds)
        vectors = learner.vectors()
        card = self.card(self.scores(vectors), points) | {"learner": asdict(learner.config)}
        zoo.export(self.name, vectors, None, card, to)

    def scores(self, vectors: word_vectors.WordVectors) -> Scores:
        """Analogies, out of all words and out of four; Spearman's correlation of texts' cosines
        with their grades.
        """
        asked = self.world.analogy_questions(self.world.task("analogies", ASKED, "test"))
        found = analogies.score(vectors, asked)
        rows = self.world.task("similarity", ASKED, "validation")
        columns = [[row[name] for row in rows] for name in ("text", "pair", "label")]
        similarity = sts(WordAverage(vectors.numbers, vectors.matrix), *columns)
        return {"analogies": found.accuracy, "choice": found.choice, "similarity": similarity}
