"""Transformers pretrained on whole documents: BERT, RoBERTa, DistilBERT, ELECTRA, GPT, BART, T5.

objective          what a batch asks                              the model it makes
mlm_nsp            masked tokens, and does the second half follow    BERT
mlm                masked tokens                                     RoBERTa
distil             masked tokens, and what a teacher says of them    DistilBERT
electra            masked tokens, and which ones were filled in      ELECTRA
clm                the next token                                    GPT
denoise            a noised text restored                            BART
span_corruption    spans behind their sentinels                      T5
"""

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import torch
from torch import nn

from course_lib import corrupt, distill, heads, losses, objectives, probes, zoo
from course_lib.config import StackConfig
from course_lib.corrupt import generator, mask_known, mask_tokens
from course_lib.data.batches import pad
from course_lib.electra import Electra
from course_lib.initial import mimetic, see_through, take_over
from course_lib.losses import Batch, Loss
from course_lib.models import bart, bert, electra, gpt, t5
from course_lib.models.megatron_bert import moved_norms
from course_lib.recipes import base
from course_lib.recipes.base import Scores, Sentences, Training, TrainingJob
from course_lib.seq2seq import Seq2SeqLM
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer, train_bpe, train_wordpiece


@dataclass(frozen=True)
class Recipe(Training):
    """A transformer and the documents it reads. rows: documents a batch; each is read once.

    objective: see above. layers, width, heads: its size; an encoder-decoder has so many layers a side. teacher: the
    checkpoint that a "distil" learns from and is cut from. format: one document a row, or RoBERTa's rows, packed with
    whole sentences to the full length. pairs: share of rows that are a document cut in two for next-sentence
    prediction, every second one with a wrong second half. primer: so many of the steps read the pages of each level
    of the world's primer in place of documents (whole; they say everything often, and a masked model is asked for a
    name in `primer_mask_rate` of the sentences that say what is known, `corrupt.mask_known`). made_up: share of the
    pages' names that nobody has read before, once the causal start is over. replay: share of pages among the
    documents afterwards. pool: batches whose rows are sorted by length together, so that little of a batch is padding.
    causal: so many of the first steps a masked model is shown what stands to the left only and asked for
    every next token (`losses.left_to_right`, on pages as a decoder has them): so each word learns what it stands
    behind, which a model that is asked at blanks alone does not do by itself. init_std: of the initial weights (0.02
    suits a width of 768, not one of 128; T5 has its own). mimetic: strength of the mimetic start of attention and
    positions (`initial.mimetic`); 0 for none. parent: a decoder whose weights it starts from instead, on both sides
    of an encoder-decoder (`initial.take_over`). pre_norm: a BERT with Megatron-BERT's norms, a BART with mBART's but
    none on the embedding (`models.megatron_bert.moved_norms`), which bear a larger learning rate (Xiong et al. 2020).
    """

    objective: Literal["mlm_nsp", "mlm", "distil", "electra", "clm", "denoise", "span_corruption"]
    vocab: int = 3072
    length: int = 160
    layers: int = 4
    width: int = 128
    heads: int = 4
    teacher: str = ""
    format: Literal["documents", "full-sentences"] = "documents"
    mask_rate: float = 0.15
    primer: tuple[int, int] = (0, 0)
    primer_mask_rate: float = 0.5
    made_up: float = 0.0
    replay: float = 0.0
    causal: int = 0
    pairs: float = 0.5
    pool: int = 64
    init_std: float = 0.05
    mimetic: float = 0.4
    parent: str = ""
    pre_norm: bool = False


class DocumentBatches:
    """Whole documents, one a row, made anew for every step: batch `step` depends on (seed, step) only.

    For "clm" a row is bos, document, eos; otherwise [CLS] document [SEP], masked or corrupted anew. For "mlm_nsp" it
    may be [CLS] first half [SEP] second half [SEP] with its label in `next` (0 = it follows, 1 = of another document,
    -100 = not a pair). In full sentences rows are packed (`corrupt.packed_sentences`), the primer's pages are not.
    """

    def __init__(
        self, sentences: Sentences, tokenizer: Tokenizer, recipe: Recipe, *, names: Collection[int] = (), seed: int = 0
    ) -> None:
        """names: the tokens that a masked model is asked for in the primer."""
        self.sentences, self.tokenizer, self.recipe, self.seed = sentences, tokenizer, recipe, seed
        self.names = names
        self._pool: tuple[int, list[list[_Row]]] = (-1, [])

    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""
        pool, index = divmod(step, self.recipe.pool)
        if self._pool[0] != pool:
            self._pool = (pool, self._make(pool))
        rows = self._pool[1][index]
        batch = pad([row.ids for row in rows], self.tokenizer.vocab.pad or 0, most=self.recipe.length)
        objective, vocab = self.recipe.objective, self.tokenizer.vocab
        if objective == "clm" or step < self.recipe.causal:
            return batch
        ids, keep, rng = batch["ids"], batch["keep"], generator(self.seed, 1, step)
        rate = self.recipe.mask_rate
        if objective == "denoise":
            return objectives.denoised(ids, keep, rng, vocab=vocab, ends=self._ends, rate=rate)
        if objective == "span_corruption":
            return objectives.span_corrupted(ids, keep, rng, vocab=vocab, sentinels=self._sentinels, rate=rate)
        if step < sum(self.recipe.primer):
            known = self.recipe.primer_mask_rate
            words = self.tokenizer.words(ids) if self.recipe.made_up else None
            hidden = mask_known(ids, rng, vocab=vocab, names=self.names, ends=self._ends, rate=known, words=words)
        else:
            parts = (1.0, 0.0, 0.0) if objective == "electra" else (0.8, 0.1, 0.1)
            hidden = mask_tokens(ids, rng, vocab=vocab, rate=rate, parts=parts, keep=keep)
        if objective != "mlm_nsp":
            return {**hidden._asdict(), "keep": keep}
        segments = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            segments[i, row.second : len(row.ids)] = 1
        follows = torch.tensor([row.next for row in rows])
        return {**hidden._asdict(), "keep": keep, "segments": segments, "next": follows}

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        return corrupt.sentence_ends(self.tokenizer)

    @cached_property
    def _sentinels(self) -> tuple[int, ...]:
        return corrupt.sentinels(self.tokenizer)

    def _make(self, pool: int) -> list[list["_Row"]]:
        """The rows of `recipe.pool` batches, of like length in each batch, batches in random order."""
        recipe, rng = self.recipe, generator(self.seed, 0, pool)
        count = recipe.rows * recipe.pool
        documents = [self.sentences(pool * count + i) for i in range(count)]
        primer = pool * recipe.pool < sum(recipe.primer)
        if recipe.format == "full-sentences" and not primer:
            packed = self._packed(documents)
            order = torch.randperm(len(packed), generator=rng).tolist()
            return [[packed[i] for i in order[k :: recipe.pool]] for k in range(recipe.pool)]
        cuts = [len(document) if primer else self._cut(len(document), rng) for document in documents]
        first = self.tokenizer.ids([" ".join(d[:c]) for d, c in zip(documents, cuts, strict=True)], special=False)
        second = self.tokenizer.ids([" ".join(d[c:]) for d, c in zip(documents, cuts, strict=True)], special=False)
        pairs = [i for i, tail in enumerate(second) if tail]
        wrong = torch.rand(len(pairs), generator=rng) < 0.5
        follows = {i: i for i in pairs} | {i: pairs[k - 1] for k, i in enumerate(pairs) if wrong[k]}
        rows = [self._row(a, second[follows.get(i, i)], int(follows.get(i, i) != i)) for i, a in enumerate(first)]
        rows.sort(key=lambda row: len(row.ids))
        order = torch.randperm(recipe.pool, generator=rng).tolist()
        return [rows[k * recipe.rows : (k + 1) * recipe.rows] for k in order]

    def _packed(self, documents: Sequence[Sequence[str]]) -> list["_Row"]:
        """RoBERTa's full sentences: each row as many as fit, on into the next document."""
        coded = iter(self.tokenizer.ids([sentence for document in documents for sentence in document], special=False))
        numbered = [[next(coded) for _ in document] for document in documents]
        rows = corrupt.packed_sentences(numbered, vocab=self.tokenizer.vocab, length=self.recipe.length)
        return [_Row(row.ids, len(row.ids), -100) for row in rows]

    def _cut(self, sentences: int, rng: torch.Generator) -> int:
        """After which sentence a document is cut in two; after the last one where it stays whole."""
        draw = torch.rand(2, generator=rng)
        whole = sentences < 2 or float(draw[0]) >= self.recipe.pairs
        return sentences if whole else 1 + int(float(draw[1]) * (sentences - 1))

    def _row(self, first: list[int], second: list[int], follows: int) -> "_Row":
        vocab, length = self.tokenizer.vocab, self.recipe.length
        if self.recipe.objective == "clm":
            ids = [*_id(vocab.bos), *first, *_id(vocab.eos)]
            return _Row(ids[:length], length, -100)
        ids = [*_id(vocab.cls), *first, *_id(vocab.sep)]
        if not second:
            return _Row(ids[:length], length, -100)
        whole = [*ids, *second[: max(1, length - len(ids) - 1)], *_id(vocab.sep)]
        return _Row(whole[:length], len(ids), follows)


@dataclass(frozen=True)
class _Row:
    ids: list[int]
    second: int  # where the second segment starts
    next: int


@dataclass(frozen=True)
class Objective:
    """What an objective trains. config: a preset of the family, of a vocabulary and a length. model: of a configuration
    and a tokenizer. stacks: those of the model that may start near what trained ones have, or from a parent."""

    config: Callable[[int, int], StackConfig]
    model: Callable[[StackConfig, Tokenizer], Any]
    loss: Loss
    stacks: Callable[[Any], Iterable[Stack]] = lambda model: [model.stack]


MASKED = Objective(bert.bert_mini, lambda c, t: heads.MLM(Stack(c)), losses.mlm)
OBJECTIVES = {
    "clm": Objective(gpt.gpt_mini, lambda c, t: heads.LM(Stack(c)), losses.clm),
    "mlm": MASKED,
    "mlm_nsp": replace(MASKED, model=lambda c, t: heads.Pretraining(Stack(c)), loss=losses.mlm_nsp),
    "distil": replace(MASKED, loss=distill.distilbert),
    "electra": Objective(
        electra.electra_mini, lambda c, t: Electra(*electra.pair(c)), losses.electra, lambda m: [m.discriminator.stack]
    ),
    "denoise": Objective(
        bart.bart_mini, lambda c, t: bart.bart_lm(c, t.vocab.sep or 0), losses.seq2seq,
        lambda m: [m.stack.encoder, m.stack.decoder],
    ),
    "span_corruption": Objective(
        lambda vocab, length: t5.t5_mini(vocab), lambda c, t: t5.t5_lm(c, t.vocab.pad or 0), losses.seq2seq
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Run(TrainingJob[Recipe]):
    """A transformer's recipe at work in its folder."""

    @property
    def data(self) -> str:
        primer = "primer, then " if sum(self.recipe.primer) else ""
        return f"World({self.recipe.world}): {primer}documents of the split train, never one twice"

    @property
    def parents(self) -> dict[str, str]:
        return {name: self.sha256(name) for name in (self.recipe.teacher, self.recipe.parent) if name}

    def lessons(self) -> Sentences:
        """Row number -> sentences, as training meets them: both levels of the primer, then documents."""
        first, second = (sum(self.recipe.primer[:n]) * self.recipe.rows for n in (1, 2))
        documents, causal = self.sentences("train"), self.recipe.causal * self.recipe.rows

        def read(row: int) -> list[str]:
            again = random.Random(f"replay/{self.recipe.seed}/{row}").random() < self.recipe.replay
            if row >= second and not again:
                return list(documents(row))
            level, rounds = 1 if row < first else 2, self.recipe.objective == "clm" or row < causal
            made_up = self.recipe.made_up if row >= causal else 0.0
            page = self.world.primer(row, level, self.recipe.seed, rounds=rounds, made_up=made_up)
            return list(page["sentences"])

        return read

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Trained once, on the first documents; a pure function of the world, so that the models of one kind of
        tokenizer, size of vocabulary and seed have the same one. T5's has sentinels behind it."""
        path = self.folder / "tokenizer.json"
        if not path.exists():
            texts = [" ".join(self.sentences("train")(i)) for i in range(base.TOKENIZER_DOCUMENTS)]
            learn = train_bpe if self.recipe.objective == "clm" else train_wordpiece
            learned = learn(texts, self.recipe.vocab)
            t5s = self.recipe.objective == "span_corruption"
            (corrupt.add_sentinels(learned) if t5s else learned).save(path)
        return Tokenizer.load(path)

    @cached_property
    def config(self) -> StackConfig:
        """The model's configuration."""
        recipe = self.recipe
        preset = OBJECTIVES[recipe.objective].config(self.tokenizer.vocab.size, recipe.length)
        if recipe.pre_norm:
            preset = moved_norms(preset)
        return replace(
            preset,
            layers=recipe.layers,
            width=recipe.width,
            heads=recipe.heads,
            hidden=4 * recipe.width,
            head_width=None if preset.head_width is None else recipe.width // recipe.heads,
            init_std=recipe.init_std,
        )

    def model(self) -> nn.Module:
        torch.manual_seed(self.recipe.seed)
        if self.recipe.objective == "distil":
            teacher = zoo.load(self.recipe.teacher, folder=self.shipped).model
            return distill.Distilled(distill.student(teacher, self.recipe.layers), teacher)
        objective = OBJECTIVES[self.recipe.objective]
        model: nn.Module = objective.model(self.config, self.tokenizer)
        if self.recipe.mimetic:
            for stack in objective.stacks(model):
                mimetic(stack, strength=self.recipe.mimetic)
            for part in model.modules():
                if isinstance(part, heads.MaskedHead):
                    see_through(part)
        if self.recipe.parent:
            decoder, words, _ = zoo.load(self.recipe.parent, folder=self.shipped)
            for stack in objective.stacks(model):
                take_over(stack, self.tokenizer, decoder.stack, words)
        return model

    @property
    def loss(self) -> Loss:  # type: ignore[override]
        """The objective, after the causal start."""
        loss = OBJECTIVES[self.recipe.objective].loss
        if self.recipe.objective == "mlm_nsp":
            loss = partial(losses.mlm_nsp, weight=self.recipe.pairs)
        return partial(_from_the_left, loss) if self.recipe.causal else loss

    def batches(self) -> DocumentBatches:
        named = self.world.names() if sum(self.recipe.primer) else []
        names = {token for ids in self.tokenizer.ids(named, special=False) for token in ids}
        return DocumentBatches(self.lessons(), self.tokenizer, self.recipe, names=names, seed=self.recipe.seed)

    def heldout(self, n: int = 16) -> list[Batch]:
        """Batches of the validation split."""
        batches = DocumentBatches(
            self.sentences("validation"), self.tokenizer, replace(self.recipe, pool=n, primer=(0, 0), causal=0), seed=2
        )
        return [batches[i] for i in range(n)]

    @cached_property
    def _asked(self) -> dict[str, list[probes.Blank]]:
        return {kind: self.blanks(kind) for kind in ("name", "object", "place")}

    @cached_property
    def _heldout(self) -> list[Batch]:
        return self.heldout()

    def probe(self, model: nn.Module) -> Scores:
        """The copy probe; for ELECTRA what both models get right."""
        if isinstance(model, Electra):
            return probes.detection(model, self._heldout)
        fill: Callable[..., float] = probes.fill_in_accuracy
        if isinstance(model, Seq2SeqLM):
            signs = corrupt.sentinels(self.tokenizer) if self.recipe.objective == "span_corruption" else ()
            fill = partial(probes.restore_accuracy, sentinels=signs)
        reader: Any = model.student if isinstance(model, distill.Distilled) else model
        return {kind: fill(reader, self.tokenizer, blanks) for kind, blanks in self._asked.items()}

    def scores(self, model: nn.Module) -> Scores:
        """The loss on held-out documents; how many of the target's tokens an encoder-decoder says rightly."""
        found = {"loss": probes.mean_loss(model, self.loss, self._heldout)}
        return found | (
            {"tokens": probes.target_accuracy(model, self._heldout)} if isinstance(model, Seq2SeqLM) else {}
        )

    def exports(self, model: nn.Module) -> dict[str, tuple[nn.Module, Any]]:
        if isinstance(model, distill.Distilled):
            model = model.student
        if isinstance(model, Electra):
            both = {self.name: model.discriminator, f"{self.name}-generator": model.generator}
            return {name: (part, self.tokenizer) for name, part in both.items()}
        return {self.name: (model, self.tokenizer)}


def _from_the_left(later: Loss, model: nn.Module, batch: Batch) -> torch.Tensor:
    """What a batch asks: its labels, or (a batch of the causal start has none) every next token."""
    return later(model, batch) if "labels" in batch else losses.left_to_right(model, batch)


def _id(token: int | None) -> list[int]:
    return [] if token is None else [token]
