"""Models that read words instead of pieces: ELMo from their characters, word2vec and GloVe from whom they meet."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from course_lib import probes, zoo
from course_lib.losses import Batch
from course_lib.models import elmo, static
from course_lib.models.sentence import WordAverage, sts
from course_lib.recipes import base
from course_lib.recipes.base import Job, Progress, Scores, Training, TrainingJob

ASKED = 500  # analogies, and pairs of texts to judge


@dataclass(frozen=True)
class ElmoRecipe(Training):
    """A biLM and the documents it reads. rows: documents a batch; each is read once.

    vocab: most words of the softmax. width: of a direction; hidden: cells of an LSTM. length: most words of a row.
    """

    vocab: int = 3072
    width: int = 64
    hidden: int = 336
    length: int = 160
    pool: int = 64


@dataclass(frozen=True)
class ElmoRun(TrainingJob[ElmoRecipe]):
    """ELMo's recipe at work in its folder."""

    @property
    def data(self) -> str:
        return f"World({self.recipe.world}): documents of the split train, never one twice"

    def words(self, split: str) -> elmo.pretrain.Words:
        """Document number -> its words."""
        read = self.sentences(split)
        return lambda index: elmo.split(" ".join(read(index)))

    @cached_property
    def vocabulary(self) -> elmo.Vocabulary:
        """The words of the softmax, counted once, in the first documents."""
        path = self.folder / "vocabulary.txt"
        if not path.exists():
            read = self.words("train")
            rows = (read(i) for i in range(base.TOKENIZER_DOCUMENTS))
            elmo.Vocabulary.count(rows, most=self.recipe.vocab - 3).save(path)
        return elmo.Vocabulary.load(path)

    @property
    def config(self) -> elmo.ElmoConfig:
        """The model's configuration."""
        size = {"width": self.recipe.width, "hidden": self.recipe.hidden}
        return replace(elmo.elmo_mini(len(self.vocabulary)), **size)  # type: ignore[arg-type]

    def model(self) -> elmo.BiLM:
        torch.manual_seed(self.recipe.seed)
        return elmo.model(self.config)

    loss = staticmethod(elmo.loss)

    def batches(self, split: str = "train", seed: int | None = None, pool: int | None = None) -> elmo.Batches:
        recipe = self.recipe
        return elmo.Batches(
            self.words(split), self.vocabulary, self.config, rows=recipe.rows, length=recipe.length,
            pool=pool or recipe.pool, seed=recipe.seed if seed is None else seed,
        )  # fmt: skip

    @cached_property
    def _heldout(self) -> list[Batch]:
        batches = self.batches("validation", seed=2, pool=16)
        return [batches[i] for i in range(16)]

    @cached_property
    def _asked(self) -> dict[str, list[probes.Blank]]:
        return {kind: self.blanks(kind) for kind in ("name", "object", "place")}

    def probe(self, model: nn.Module) -> Scores:
        """The copy probe, by both directions together."""
        assert isinstance(model, elmo.BiLM)
        return {kind: _filled_in(model, self.vocabulary, blanks) for kind, blanks in self._asked.items()}

    def scores(self, model: nn.Module) -> Scores:
        """The loss a word on held-out documents, the mean of both directions."""
        return {"loss": probes.mean_loss(model, elmo.loss, self._heldout)}

    def exports(self, model: nn.Module) -> dict[str, tuple[nn.Module, Any]]:
        return {self.name: (model, self.vocabulary)}


@dataclass(frozen=True)
class StaticRecipe:
    """Word vectors and the documents they are learned from, in lower case. least: rarer words have none. epochs, lr,
    window: the method's own by default."""

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
class StaticRun(Job[StaticRecipe]):
    """Static vectors' recipe at work. It takes a minute and starts anew if it is stopped."""

    @property
    def data(self) -> str:
        return f"World({self.recipe.world}): the first {self.recipe.documents:,} documents of the split train"

    def learner(self) -> static.Word2Vec | static.GloVe:
        """What learns, before its first epoch."""
        recipe, read = self.recipe, self.sentences("train")
        texts = (" ".join(read(i)) for i in range(recipe.documents))
        text = static.count(static.sentences(texts), least=recipe.least)
        given = {name: value for name in ("epochs", "lr") if (value := getattr(recipe, name)) is not None}
        options: dict[str, Any] = {"size": recipe.size, "window": recipe.window, "seed": recipe.seed, **given}
        if recipe.kind == "glove":
            return static.GloVe(text, static.GloVeConfig(**options))
        return static.Word2Vec(text, static.Word2VecConfig(recipe.kind, **options))

    def build(self, to: Path, device: str = "cpu") -> Iterator[Progress]:
        learner, points, start = self.learner(), list[dict[str, Any]](), time.perf_counter()
        words = len(learner.text.ids)
        for epoch in learner.train():
            seconds, start = round(time.perf_counter() - start, 1), time.perf_counter()
            points.append({"step": epoch.epoch, "loss": round(epoch.loss, 4), "tokens": words, "seconds": seconds})
            yield Progress(epoch.epoch, epoch.loss, learner.config.lr, epoch.words_per_second)
        vectors = learner.vectors()
        card = self.card(self.scores(vectors), points) | {"learner": asdict(learner.config)}
        zoo.export(self.name, vectors, None, card, to)

    def scores(self, vectors: static.WordVectors) -> Scores:
        """Analogies, out of all words and out of four; Spearman's correlation of texts' cosines with their grades."""
        asked = static.questions(self.world.task("analogies", ASKED, "test"))
        found = static.analogies(vectors, asked)
        rows = self.world.task("similarity", ASKED, "validation")
        columns = [[row[name] for row in rows] for name in ("text", "pair", "label")]
        similarity = sts(WordAverage(vectors.numbers, vectors.matrix), *columns)
        return {"analogies": found.accuracy, "choice": found.choice, "similarity": similarity}


def _filled_in(model: elmo.BiLM, vocabulary: elmo.Vocabulary, blanks: list[probes.Blank], batch: int = 64) -> float:
    right = 0
    for start in range(0, len(blanks), batch):
        some = blanks[start : start + batch]
        before, after = ([elmo.split(getattr(blank, side)) for blank in some] for side in ("left", "right"))
        left, back = elmo.hidden_word(model, before, after)
        said = [vocabulary.words[i] for i in (left + back).argmax(-1).tolist()]
        right += sum(word == blank.answer for word, blank in zip(said, some, strict=True))
    return right / len(blanks)
