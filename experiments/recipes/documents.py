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
from course_lib.analysis import capture, evaluation
from course_lib.data.batches import StreamBatches
from course_lib.data.tokenizers import Tokenizer, add_sentinels, train_bpe, train_wordpiece
from course_lib.errors import CourseError
from course_lib.families import bert, electra, rules
from course_lib.model import heads, seq2seq
from course_lib.model.config import StackConfig
from course_lib.model.initialization import identity_init_, look_for_like, mimetic
from course_lib.model.transformer import Transformer
from course_lib.objectives import InputRow, losses, seeded_generator
from course_lib.training import distill
from experiments.engine.arms import Sentences
from experiments.recipes.base import HELD_OUT, RecipeTraining, Scores, TrainingJob
from experiments.recipes.primer import (
    behind_sentinels,
    fill_in_without_decoder,
    left_to_right,
    mask_known,
)


@dataclass(frozen=True)
class Recipe(RecipeTraining):
    """A transformer and the documents it reads. rows: documents a batch; each is read once.

    objective: of `OBJECTIVES`. layers: of each side of an encoder-decoder. teacher: the checkpoint
    that a "distilled" one learns from and is cut from. format: one document a row, or RoBERTa's rows, packed with
    whole sentences. pairs: share of rows cut in two for next-sentence prediction, every second one
    with a wrong second half. primer: so many of the steps read the pages of each level of the
    world's primer, whole; there a masked model or a T5 is asked for a name in `primer_mask_rate` of
    the sentences that say what is known (`primer.mask_known`). replay: share of pages among
    the documents afterwards. pool: batches whose rows are sorted by length together. causal: so
    many of the first steps a masked model sees what stands to the left only and is asked for every
    next token (`primer.left_to_right`): so each word learns what it stands behind. alone: so many
    of the first steps, of the primer, a T5's encoder fills in without a decoder. init_std: 0.02
    suits a width of 768, not one of 128; T5 has its own. mimetic: strength of the mimetic start of
    attention and positions (`initialization.mimetic`); 0 for none. parent: a decoder whose weights
    it starts from instead, on both sides of an encoder-decoder (`warm_start_from`); for a T5 a BERT
    (`t5_from_bert`). pre_norm: a BERT with Megatron-BERT's norms, a BART with mBART's but none on
    the embedding (`bert.moved_norms`), which bear a larger learning rate (Xiong et al. 2020)."""

    objective: str
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
    replay: float = 0.0
    causal: int = 0
    alone: int = 0
    pairs: float = 0.5
    pool: int = 64
    init_std: float = 0.05
    mimetic: float = 0.4
    parent: str = ""
    pre_norm: bool = False

    @property
    def family(self) -> rules.Family:
        others = {
            "causal": "gpt",
            "replaced": "electra",
            "denoised": "bart",
            "span_corrupted": "t5",
        }
        return families.family(others.get(self.objective, "bert"))


class RecipeBatches(StreamBatches):
    """A recipe's rows: batch `step` depends on (seed, step) only.

    For "causal" a row is bos, document, eos; otherwise [CLS] document [SEP], corrupted anew, which
    for "masked_pairs" may be a pair. In full sentences rows are packed
    (`objectives.packed_sentences`), the primer's pages are not."""

    def __init__(
        self,
        sentences: Sentences,
        tokenizer: Tokenizer,
        recipe: Recipe,
        *,
        names: Collection[int] = (),
        seed: int = 0,
    ) -> None:
        """names: the tokens that a masked model is asked for in the primer."""
        pairs = recipe.pairs if objectives.objective(recipe.objective).pairs else None
        size: dict[str, Any] = {"rows": recipe.rows, "length": recipe.length, "pool": recipe.pool}
        rate = None if recipe.objective == "causal" else recipe.mask_rate
        objective = objectives.corruption(recipe.objective, tokenizer, rate=rate)
        super().__init__(sentences, tokenizer, objective, pairs=pairs, seed=seed, **size)
        self.recipe, self.names = recipe, names

    def __getitem__(self, step: int, /) -> losses.Batch:
        batch = super().__getitem__(step)
        return (
            {name: batch[name] for name in ("ids", "attention_mask")}
            if step < self.recipe.causal
            else batch
        )

    def ask(self, step: int, ids: Tensor, attention_mask: Tensor) -> losses.Batch:
        recipe = self.recipe
        if step < recipe.causal:
            return {"ids": ids, "attention_mask": attention_mask}
        masked = recipe.objective not in ("causal", "denoised")
        if masked and step < sum(recipe.primer):
            rng, rate = seeded_generator(self.seed, 1, step), recipe.primer_mask_rate
            vocab = self.tokenizer.vocab
            known = mask_known(ids, rng, vocab=vocab, names=self.names, rate=rate)._asdict()
            if recipe.objective == "span_corrupted":
                marked = behind_sentinels(ids, known["loss_mask"], self.tokenizer)
                known["ids"] = marked["ids"]
                if step >= recipe.alone:
                    del known["loss_mask"]
                    known["labels"] = marked["labels"]
            return known | {"attention_mask": attention_mask}
        return super().ask(step, ids, attention_mask)

    def pool(self, number: int) -> list[list[InputRow]]:
        """The rows of a pool's batches; the primer's pages stay whole."""
        recipe = self.recipe
        if number * recipe.pool < sum(recipe.primer):
            count = recipe.rows * recipe.pool
            pages = [self.sentences(number * count + i) for i in range(count)]
            return self.framed(pages, list(map(len, pages)), seeded_generator(self.seed, 0, number))
        return self._packed(number) if recipe.format == "full-sentences" else super().pool(number)

    def _packed(self, number: int) -> list[list[InputRow]]:
        """RoBERTa's full sentences: each row as many as fit, on into the next document."""
        recipe, count = self.recipe, self.recipe.rows * self.recipe.pool
        coded = [
            self.tokenizer.ids(self.sentences(number * count + i), special=False)
            for i in range(count)
        ]
        rows = objectives.packed_sentences(coded, vocab=self.tokenizer.vocab, length=recipe.length)
        order = torch.randperm(len(rows), generator=seeded_generator(self.seed, 0, number)).tolist()
        return [[rows[i] for i in order[k :: recipe.pool]] for k in range(recipe.pool)]

    def row(self, first: list[int], second: list[int], follows: int) -> InputRow:
        """A decoder's row is bos, document, eos."""
        if self.recipe.objective != "causal":
            return super().row(first, second, follows)
        vocab = self.tokenizer.vocab
        ids = [token for token in (vocab.bos, *first, vocab.eos) if token is not None][
            : self.length
        ]
        return InputRow(ids, [0] * len(ids))


@dataclass(frozen=True)
class Run(TrainingJob):
    """A transformer's recipe at work in its folder."""

    recipe: Recipe

    @property
    def data(self) -> str:
        return (
            super().data.replace(": ", ": primer, then ")
            if sum(self.recipe.primer)
            else super().data
        )

    def lessons(self) -> Sentences:
        """Row number -> sentences, as training meets them: both levels of the primer, then
        documents.
        """
        first, second = (sum(self.recipe.primer[:n]) * self.recipe.rows for n in (1, 2))
        documents, causal = self.sentences("train"), self.recipe.causal * self.recipe.rows

        def read(row: int) -> list[str]:
            again = random.Random(f"replay/{self.recipe.seed}/{row}").random() < self.recipe.replay
            if row >= second and not again:
                return list(documents(row))
            level, rounds = (
                1 if row < first else 2,
                self.recipe.objective == "causal" or row < causal,
            )
            page = self.world.primer(row, level, self.recipe.seed, rounds=rounds)
            return list(page["sentences"])

        return read

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """A pure function of the world, so that the models of one kind of tokenizer, size of
        vocabulary and seed have the same one. T5's has sentinels behind it."""
        learn = train_bpe if self.recipe.objective == "causal" else train_wordpiece

        def made(texts: Iterable[str]) -> Tokenizer:
            words = learn(texts, self.recipe.vocab)
            return add_sentinels(words) if self.recipe.objective == "span_corrupted" else words

        return cast(Tokenizer, self.learned("tokenizer.json", made))

    @cached_property
    def config(self) -> StackConfig:
        recipe = self.recipe
        vocab = self.tokenizer.vocab.size
        preset = families.preset(f"{recipe.family.name}-mini", vocab=vocab, length=recipe.length)
        preset = bert.moved_norms(preset) if recipe.pre_norm else preset
        layers, width, heads = recipe.layers, recipe.width, recipe.heads
        head_width = None if preset.head_width is None else width // heads
        size: dict[str, Any] = {
            "layers": layers,
            "width": width,
            "heads": heads,
            "hidden": 4 * width,
        }
        return replace(preset, **size, head_width=head_width, init_std=recipe.init_std)

    def model(self) -> nn.Module:
        recipe, family = self.recipe, self.recipe.family
        torch.manual_seed(recipe.seed)
        if recipe.objective == "distilled":
            teacher = zoo.load(recipe.teacher, folder=self.shipped).model
            return distill.Distilled(distill.student(teacher, recipe.layers), teacher)
        if recipe.objective == "masked_pairs":
            model: nn.Module = heads.Pretraining(Transformer(self.config))
        else:
            model = family.model(self.config, getattr(self.tokenizer.vocab, family.start) or 0)
        body: Any = model.discriminator.stack if isinstance(model, electra.Electra) else model.stack
        stacks = [body.encoder, body.decoder] if isinstance(model, seq2seq.Seq2SeqLM) else [body]
        if recipe.mimetic:
            for stack in stacks:
                mimetic(stack, strength=recipe.mimetic)
            for part in model.modules():
                if isinstance(part, heads.MaskedHead):
                    identity_init_(part)
        if recipe.parent:
            parent, words, _ = zoo.load(recipe.parent, folder=self.shipped)
            if recipe.objective == "span_corrupted":
                page = " ".join(self.world.primer(0, 2, recipe.seed, rounds=False)["sentences"])
                t5_from_bert(
                    body,
                    parent.stack,
                    words.encode(page).ids[: recipe.length],
                    words.vocab.mask or 0,
                )
                return model
            for stack in stacks:
                warm_start_from(stack, self.tokenizer, parent.stack, words)
        return model

    @property
    def loss(self) -> losses.Loss:  # type: ignore[override]
        recipe = self.recipe
        loss = objectives.objective(recipe.objective).loss
        if recipe.objective == "masked_pairs":
            loss = partial(losses.mlm_nsp, weight=recipe.pairs)
        if recipe.objective == "span_corrupted":
            return partial(_encoder_first, loss, self.tokenizer.vocab.sentinels[0])
        return partial(_from_the_left, loss) if recipe.causal else loss

    def batches(self) -> RecipeBatches:
        named = self.world.names() if sum(self.recipe.primer) else []
        names = {token for ids in self.tokenizer.ids(named, special=False) for token in ids}
        return RecipeBatches(
            self.lessons(), self.tokenizer, self.recipe, names=names, seed=self.recipe.seed
        )

    @cached_property
    def heldout(self) -> list[losses.Batch]:
        recipe = replace(self.recipe, pool=HELD_OUT, primer=(0, 0), causal=0)
        batches = RecipeBatches(self.sentences("validation"), self.tokenizer, recipe, seed=2)
        return [batches[i] for i in range(HELD_OUT)]

    def probe(self, model: nn.Module) -> Scores:
        """The copy probe; for ELECTRA what both models get right."""
        if isinstance(model, electra.Electra):
            return evaluation.detection(model, self.heldout)
        fill: Callable[..., float] = evaluation.fill_in_accuracy
        if isinstance(model, seq2seq.Seq2SeqLM):
            signs = (
                self.tokenizer.vocab.sentinels if self.recipe.objective == "span_corrupted" else ()
            )
            fill = partial(evaluation.restore_accuracy, sentinels=signs)
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


@torch.no_grad()
def t5_from_bert(body: Any, parent: Any, page: list[int], mask: int) -> None:
    """Overwrites a fresh T5's encoder with the first layers of a pre-norm BERT; cross-attention
    begins as a search.

    Where all that is added has mean 0, RMSNorm is LayerNorm without bias (Zhang and Sennrich 2019).
    Biases are left out; training heals that. T5's layers share their biases of distance, those of
    the first layer's heads on a page; so the others' heads are put in the same order, by where they
    look near by."""
    encoder, table, old = body.encoder, body.encoder.embed.tokens.weight, parent.embed.tokens.weight
    table[: len(old)] = old + parent.embed.segments.weight[0] + parent.position.table.weight.mean(0)
    table[len(old) :] = table[mask] + 0.2 * torch.randn(len(table) - len(old), table.shape[1])
    table.sub_(table.mean(1, keepdim=True))
    encoder.norm.weight.copy_(parent.norm.weight)
    apart = torch.arange(len(page)) - torch.arange(len(page))[:, None]
    with capture(parent, "blocks.*.attn.probs") as seen:
        parent(torch.tensor([page]))
    for block, theirs, (looks,) in zip(encoder.blocks, parent.blocks, seen.values(), strict=False):
        order = (looks * apart.clamp(-4, 4)).sum((1, 2)).argsort()
        for bucket, bias in enumerate(
            encoder.position.table.weight if block is encoder.blocks[0] else ()
        ):
            bias.copy_(
                (
                    looks[order][:, encoder.position.bucket(apart) == bucket].mean(1).nan_to_num()
                    + 1e-4
                ).log()
            )
        rows = torch.arange(len(theirs.attn.q.weight)).view(len(order), -1)[order].flatten()
        for part, factor in {"q": block.attn.dh**-0.5, "k": 1.0, "v": 1.0}.items():
            matrix = theirs.attn.get_submodule(part).weight[rows] * theirs.attn_norm.weight
            block.attn.get_submodule(part).weight.copy_(matrix * factor)
        block.ff.up.weight.copy_(theirs.ff.up.weight * theirs.ff_norm.weight)
        for mine, added in (
            (block.attn.out, theirs.attn.out.weight[:, rows]),
            (block.ff.down, theirs.ff.down.weight),
        ):
            mine.weight.copy_(added - added.mean(0))
    turn = torch.linalg.qr(torch.randn(table.shape[1], table.shape[1])).Q * 0.4**0.5
    for block in body.decoder.blocks:
        look_for_like(block.cross, turn)
    body.decoder.norm.weight.fill_(4.0)


@torch.no_grad()
def warm_start_from(
    stack: Transformer, words: Tokenizer, parent: Transformer, parents: Tokenizer
) -> None:
    """Overwrites a fresh model with another one's positions and blocks. A word piece gets the mean
    of the vectors that the parent has for its text, in small letters or with a capital, whichever
    takes fewer pieces.

    A decoder may so become an encoder (BehnamGhader et al. 2024, COLM), or both sides of an
    encoder-decoder (Rothe et al. 2020, TACL), whose cross-attention stays as it is. words:
    WordPiece; parents: byte-level."""
    given = {
        name: weight
        for name, weight in parent.state_dict().items()
        if not name.startswith("embed.")
    }
    odd = stack.load_state_dict(given, strict=False)
    if odd.unexpected_keys or any(
        not n.startswith("embed.") and ".cross" not in n for n in odd.missing_keys
    ):
        raise CourseError(
            "The parent does not fit this model; give both the same layers, widths and norms."
        )
    table = parent.embed.tokens.weight
    special = set(words.vocab.special)
    for token, text in enumerate(words.tokens(range(words.vocab.size))):
        if token not in special:
            forms = [text[2:]] if text.startswith("##") else [f" {text}", f" {text.capitalize()}"]
            stack.embed.tokens.weight[token] = table[
                min(parents.ids(forms, special=False), key=len)
            ].mean(0)
