"""Transformers pretrained on whole documents: BERT, RoBERTa, DistilBERT, ELECTRA, GPT, BART, T5.

`course_lib.objectives.registry` lists the objectives."""

import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from course_lib import families, objectives, zoo
from course_lib.analysis import copy_probe, evaluation
from course_lib.data.stream_batches import StreamBatches
from course_lib.data.tokenizers import Tokenizer, add_sentinels, train_bpe, train_wordpiece
from course_lib.families import bert, electra
from course_lib.model import heads, seq2seq
from course_lib.model.config import StackConfig
from course_lib.model.initialization import identity_init_, mimetic
from course_lib.model.transformer import Transformer
from course_lib.objectives import InputRow, losses, seeded_generator
from course_lib.training import distill
from lab.engine.arms import Sentences
from lab.recipes.base import HELD_OUT, RecipeTraining, Scores, TrainingJob
from lab.recipes.primer import (
    behind_sentinels,
    fill_in_without_decoder,
    left_to_right,
    mask_known,
)
from lab.recipes.warm_starts import t5_from_bert, warm_start_from


@dataclass(frozen=True)
class Size:
    """Of a model. layers: of each side of an encoder-decoder. length: most tokens of a row."""

    vocab: int = 3072
    length: int = 160
    layers: int = 4
    width: int = 128
    heads: int = 4


@dataclass(frozen=True)
class Start:
    """What a model begins with.

    Attributes:
        init_std: of random weights. 0.02 suits a width of 768, not one of 128; T5 has its own.
        mimetic: strength of the mimetic start of attention and positions
            (`initialization.mimetic`); 0 for none.
        parent: a decoder whose weights it starts from instead, on both sides of an encoder-decoder
            (`warm_start_from`); for a T5 a BERT (`t5_from_bert`).
        teacher: the checkpoint that a "distilled" model learns from and is cut from.
        pre_norm: a BERT with Megatron-BERT's norms, a BART with mBART's but none on the embedding
            (`bert.moved_norms`), which bear a larger learning rate (Xiong et al. 2020).
    """

    init_std: float = 0.05
    mimetic: float = 0.4
    parent: str = ""
    teacher: str = ""
    pre_norm: bool = False


@dataclass(frozen=True)
class Primer:
    """The pages of the world's primer, which are read first, whole.

    Attributes:
        levels: steps that read the pages of each of the two levels.
        mask_rate: there a masked model or a T5 is asked for a name in this share of the sentences
            that say what is known (`primer.mask_known`).
        replay: share of pages among the documents afterwards.
        causal: in so many of the first steps a masked model sees what stands to the left only, and
            is asked for every next token (`primer.left_to_right`): so each word learns what it
            stands behind.
        alone: in so many of the first steps a T5's encoder fills in without a decoder.
    """

    levels: tuple[int, int] = (0, 0)
    mask_rate: float = 0.5
    replay: float = 0.0
    causal: int = 0
    alone: int = 0

    @property
    def steps(self) -> int:
        """All that read pages only."""
        return sum(self.levels)


@dataclass(frozen=True)
class Documents:
    """How documents become rows.

    Attributes:
        format: one document a row, or RoBERTa's rows, packed with whole sentences.
        mask_rate: share of the tokens to hide.
        pairs: share of the rows cut in two for next-sentence prediction, every second one with a
            wrong second half.
        pool: batches whose rows are sorted by length together.
    """

    format: Literal["documents", "full-sentences"] = "documents"
    mask_rate: float = 0.15
    pairs: float = 0.0
    pool: int = 64


@dataclass(frozen=True)
class Recipe(RecipeTraining):
    """A transformer and the documents it reads. rows: documents a batch; each is read once.

    family: of `families.FAMILIES`. objective: of `objectives.OBJECTIVES`.
    """

    family: str
    objective: str
    size: Size = Size()
    start: Start = Start()
    primer: Primer = Primer()
    documents: Documents = Documents()


class RecipeBatches(StreamBatches):
    """A recipe's rows: batch `step` depends on (seed, step) only.

    For "causal" a row is bos, document, eos; otherwise [CLS] document [SEP], corrupted anew, which
    for "masked_pairs" may be a pair. In full sentences rows are packed
    (`objectives.packed_sentences`), the primer's pages are not.

    names: the tokens that a masked model is asked for in the primer.
    """

    def __init__(
        self,
        sentences: Sentences,
        tokenizer: Tokenizer,
        recipe: Recipe,
        *,
        names: Collection[int] = (),
        seed: int = 0,
    ) -> None:
        objective = objectives.objective(recipe.objective)
        documents = recipe.documents
        rate = documents.mask_rate if "rate" in objective.options else None
        super().__init__(
            sentences,
            tokenizer,
            objectives.corruption(recipe.objective, tokenizer, rate=rate),
            rows=recipe.rows,
            length=recipe.size.length,
            pairs=documents.pairs if objective.pairs else None,
            pool=documents.pool,
            seed=seed,
        )
        self.recipe = recipe
        self.names = names

    def __getitem__(self, step: int, /) -> losses.Batch:
        batch = super().__getitem__(step)
        if step < self.recipe.primer.causal:  # a decoder reads no segments
            return {name: batch[name] for name in ("ids", "attention_mask")}
        return batch

    def apply_objective(self, step: int, ids: Tensor, attention_mask: Tensor) -> losses.Batch:
        """What this step asks of its rows: next tokens, known names, or the objective."""
        primer = self.recipe.primer
        if step < primer.causal:
            return {"ids": ids, "attention_mask": attention_mask}
        if step < primer.steps and self.recipe.objective not in ("causal", "denoised"):
            return {**self.ask_for_names(step, ids), "attention_mask": attention_mask}
        return super().apply_objective(step, ids, attention_mask)

    def ask_for_names(self, step: int, ids: Tensor) -> losses.Batch:
        """A page of the primer with known names hidden; for a T5 behind sentinels."""
        primer = self.recipe.primer
        known = mask_known(
            ids,
            seeded_generator(self.seed, 1, step),
            vocab=self.tokenizer.vocab,
            names=self.names,
            rate=primer.mask_rate,
        )
        if self.recipe.objective != "span_corrupted":
            return known._asdict()
        marked = behind_sentinels(ids, known.loss_mask, self.tokenizer)
        if step < primer.alone:  # the encoder says the tokens where the sentinels stand
            return {**known._asdict(), "ids": marked["ids"]}
        return marked

    def pool(self, number: int) -> list[list[InputRow]]:
        """The rows of a pool's batches; the primer's pages stay whole."""
        if number * self.steps < self.recipe.primer.steps:
            pages = self.documents(number)
            rng = seeded_generator(self.seed, 0, number)
            return self.framed(pages, [len(page) for page in pages], rng)
        if self.recipe.documents.format == "full-sentences":
            return self._packed(number)
        return super().pool(number)

    def _packed(self, number: int) -> list[list[InputRow]]:
        """RoBERTa's full sentences: each row as many as fit, on into the next document."""
        tokenizer = self.tokenizer
        coded = [tokenizer.ids(document, special=False) for document in self.documents(number)]
        rows = objectives.packed_sentences(coded, vocab=tokenizer.vocab, length=self.length)
        rng = seeded_generator(self.seed, 0, number)
        order = torch.randperm(len(rows), generator=rng).tolist()
        return [[rows[i] for i in order[k :: self.steps]] for k in range(self.steps)]

    def row(self, first: list[int], second: list[int], is_wrong: int) -> InputRow:
        """A decoder's row is bos, document, eos."""
        if self.recipe.objective != "causal":
            return super().row(first, second, is_wrong)
        vocab = self.tokenizer.vocab
        ids = [token for token in (vocab.bos, *first, vocab.eos) if token is not None]
        ids = ids[: self.length]
        return InputRow(ids, [0] * len(ids))


@dataclass(frozen=True)
class Run(TrainingJob):
    """A transformer's recipe at work in its folder."""

    recipe: Recipe

    @property
    def data(self) -> str:
        if self.recipe.primer.steps:
            return super().data.replace(": ", ": primer, then ")
        return super().data

    @property
    def starts_from(self) -> list[str]:
        start = self.recipe.start
        return [name for name in (start.teacher, start.parent) if name]

    def lessons(self) -> Sentences:
        """Row number -> sentences, as training meets them: both levels of the primer, then
        documents.
        """
        recipe, primer = self.recipe, self.recipe.primer
        documents = self.sentences("train")
        first_level = primer.levels[0] * recipe.rows  # rows
        pages = primer.steps * recipe.rows
        causal = primer.causal * recipe.rows

        def read(row: int) -> list[str]:
            again = random.Random(f"replay/{recipe.seed}/{row}").random() < primer.replay
            if row >= pages and not again:
                return list(documents(row))
            level = 1 if row < first_level else 2
            rounds = recipe.objective == "causal" or row < causal
            page = self.world.primer(row, level, recipe.seed, rounds=rounds)
            return list(page["sentences"])

        return read

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """A pure function of the world, so that the models of one kind of tokenizer, size of
        vocabulary and seed have the same one. T5's has sentinels behind it."""
        learn = train_bpe if self.recipe.objective == "causal" else train_wordpiece

        def made(texts: Iterable[str]) -> Tokenizer:
            words = learn(texts, self.recipe.size.vocab)
            return add_sentinels(words) if self.recipe.objective == "span_corrupted" else words

        return cast(Tokenizer, self.learned("tokenizer.json", made))

    @cached_property
    def config(self) -> StackConfig:
        size, start = self.recipe.size, self.recipe.start
        vocab = self.tokenizer.vocab.size
        preset = families.preset(f"{self.recipe.family}-mini", vocab=vocab, length=size.length)
        if start.pre_norm:
            preset = bert.moved_norms(preset)
        return replace(
            preset,
            layers=size.layers,
            width=size.width,
            heads=size.heads,
            hidden=4 * size.width,
            head_width=None if preset.head_width is None else size.width // size.heads,
            init_std=start.init_std,
        )

    def model(self) -> nn.Module:
        recipe, start = self.recipe, self.recipe.start
        torch.manual_seed(recipe.seed)
        if recipe.objective == "distilled":
            teacher = zoo.load(start.teacher, folder=self.shipped).model
            return distill.Distilled(distill.student(teacher, recipe.size.layers), teacher)

        model = self._fresh()
        body: Any = model.discriminator.stack if isinstance(model, electra.Electra) else model.stack
        stacks = [body.encoder, body.decoder] if isinstance(model, seq2seq.Seq2SeqLM) else [body]
        if start.mimetic:
            for stack in stacks:
                mimetic(stack, strength=start.mimetic)
            for part in model.modules():
                if isinstance(part, heads.MaskedHead):
                    identity_init_(part)
        if start.parent:
            self._take_over(body, stacks)
        return model

    def _fresh(self) -> nn.Module:
        """The model with random weights."""
        if self.recipe.objective == "masked_pairs":
            return heads.Pretraining(Transformer(self.config))
        family, vocab = families.family(self.recipe.family), self.tokenizer.vocab
        first = vocab.sep if family.decoder_start == "sep" else vocab.pad
        return family.model(self.config, first or 0)

    def _take_over(self, body: Any, stacks: list[Any]) -> None:
        """What the parent has learned."""
        recipe = self.recipe
        parent, words, _ = zoo.load(recipe.start.parent, folder=self.shipped)
        if recipe.objective == "span_corrupted":
            page = " ".join(self.world.primer(0, 2, recipe.seed, rounds=False)["sentences"])
            ids = words.encode(page).ids[: recipe.size.length]
            t5_from_bert(body, parent.stack, ids, words.vocab.mask or 0)
            return
        for stack in stacks:
            warm_start_from(stack, self.tokenizer, parent.stack, words)

    @property
    def loss(self) -> losses.Loss:  # type: ignore[override]
        recipe = self.recipe
        loss = objectives.objective(recipe.objective).loss
        if recipe.objective == "masked_pairs":
            loss = partial(losses.mlm_nsp, weight=recipe.documents.pairs)
        if recipe.objective == "span_corrupted":
            return partial(_encoder_first, loss, self.tokenizer.vocab.sentinels[0])
        return partial(_from_the_left, loss) if recipe.primer.causal else loss

    def batches(self) -> RecipeBatches:
        named = self.world.names() if self.recipe.primer.steps else []
        names = {token for ids in self.tokenizer.ids(named, special=False) for token in ids}
        return RecipeBatches(
            self.lessons(), self.tokenizer, self.recipe, names=names, seed=self.recipe.seed
        )

    @cached_property
    def heldout(self) -> list[losses.Batch]:
        documents = replace(self.recipe.documents, pool=HELD_OUT)
        recipe = replace(self.recipe, documents=documents, primer=Primer())
        batches = RecipeBatches(self.sentences("validation"), self.tokenizer, recipe, seed=2)
        return [batches[i] for i in range(HELD_OUT)]

    def probe(self, model: nn.Module) -> Scores:
        """The copy probe; for ELECTRA what both models get right."""
        if isinstance(model, electra.Electra):
            return evaluation.detection(model, self.heldout)
        fill: Callable[..., float] = copy_probe.fill_in_accuracy
        if isinstance(model, seq2seq.Seq2SeqLM):
            signs = (
                self.tokenizer.vocab.sentinels if self.recipe.objective == "span_corrupted" else ()
            )
            fill = partial(copy_probe.restore_accuracy, sentinels=signs)
        reader: Any = model.student if isinstance(model, distill.Distilled) else model
        return {kind: fill(reader, self.tokenizer, blanks) for kind, blanks in self.blanks.items()}

    def scores(self, model: nn.Module) -> Scores:
        """The loss on held-out documents; how many of the target's tokens an encoder-decoder says
        rightly.
        """
        found = {"loss": evaluation.mean_loss(model, self.loss, self.heldout)}
        if isinstance(model, seq2seq.Seq2SeqLM):
            found["tokens"] = evaluation.target_accuracy(model, self.heldout)
        return found

    def exports(self, model: nn.Module) -> dict[str, nn.Module]:
        if isinstance(model, distill.Distilled):
            model = model.student
        if isinstance(model, electra.Electra):
            return {self.name: model.discriminator, f"{self.name}-generator": model.generator}
        return {self.name: model}


def _from_the_left(later: losses.Loss, model: nn.Module, batch: losses.Batch) -> torch.Tensor:
    """What a batch asks: its labels, or (a batch of the causal start has none) every next token."""
    return later(model, batch) if "labels" in batch else left_to_right(model, batch)


def _encoder_first(
    later: losses.Loss, first: int, model: nn.Module, batch: losses.Batch
) -> torch.Tensor:
    """T5's loss, or (a batch that its encoder reads alone has a mask) that of the encoder."""
    if "loss_mask" in batch:
        return fill_in_without_decoder(model, batch, first)
    return later(model, batch)
