"""The claims of lesson 12: masks, rows, how much is read, whole words, and three relatives of BERT.

One tiny BERT is the baseline, and every arm is the baseline but for one `Change`. All arms are asked the same: to say
the hidden tokens of documents that nobody has read.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product
from typing import Any, NamedTuple, get_args

import torch
from torch import nn

from course_lib import corrupt, cost, data, heads, losses, objectives, optim, zoo
from course_lib.claims.arms import sentences
from course_lib.claims.experiment import experiment
from course_lib.claims.lab import Lab, Plan
from course_lib.claims.ledger import published
from course_lib.claims.record import Figures
from course_lib.config import Disentangled, StackConfig
from course_lib.corrupt import IGNORE, Format, InputRow, generator
from course_lib.data.batches import pad
from course_lib.experiments import family
from course_lib.experiments.judging import clearly_above, gap, names, percent, points
from course_lib.finetune import finetune
from course_lib.initial import mimetic, see_through
from course_lib.losses import Batch
from course_lib.models import albert, roberta
from course_lib.models.bert import bert_base, bert_large
from course_lib.objectives import Unit
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer, train_wordpiece
from course_lib.train import train

PIECES, LENGTH, WIDTH, TOKENS = 300, 64, 64, 780  # of the vocabulary, of a row, of the model, about so many a batch
ASKED = 96  # held-out rows
FORMATS: tuple[Format, ...] = get_args(Format)
SIZES = {
    "BERT-base": bert_base, "BERT-large": bert_large, "ALBERT-base": albert.albert_base,
    "ALBERT-large": albert.albert_large, "ALBERT-xlarge": albert.albert_xlarge, "ALBERT-xxlarge": albert.albert_xxlarge,
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """What an arm has other than the baseline.

    few: about a hundredth of the documents, over and over. copies: stored masks in turn, None draws anew. batch: times
    the rows. longer: times the steps. start: the mimetic one, or noise.
    """

    format: Format = "full-sentences"
    few: bool = False
    copies: int | None = None
    unit: Unit = "token"
    batch: int = 1
    longer: int = 1
    shape: str = "BERT"
    start: bool = True


BASE, FEW, NOISE = Change(), Change(few=True), Change(start=False)
MASKS = {"dynamic": FEW, "ten masks in turn": replace(FEW, copies=10), "a single mask": replace(FEW, copies=1)}
MORE = {
    "baseline": BASE, "few documents": FEW, "twice the batch": Change(batch=2), "twice the steps": Change(longer=2),
}  # fmt: skip


def steps(plan: Plan) -> int:
    """Of the baseline."""
    return max(2, plan.steps // 9)


class Text(NamedTuple):
    """What is read and what is asked about, as word pieces by document and sentence."""

    words: Tokenizer
    read: list[list[list[int]]]
    unread: list[list[list[int]]]


@cache
def text(plan: Plan) -> Text:
    """Ten documents for each of the baseline's steps, and a tenth of that aside."""
    write, count = sentences(family.WORLD, "train"), max(60, 10 * steps(plan))
    told = [write(i) for i in range(count + count // 10)]
    words = train_wordpiece([" ".join(document) for document in told], PIECES)
    coded = [[list(ids) for ids in words.ids(document, special=False)] for document in told]
    return Text(words, coded[:count], coded[count:])


@cache
def rows_of(plan: Plan, format: Format, few: bool) -> list[InputRow]:
    """The rows that an arm reads."""
    known = text(plan)
    documents = known.read[: max(6, 12 * steps(plan) // 100)] if few else known.read
    return corrupt.input_rows(documents, generator(0), vocab=known.words.vocab, format=format, length=LENGTH)


def hidden(rows: Iterable[InputRow], words: Tokenizer, rng: torch.Generator, unit: Unit) -> Batch:
    """Rows, padded and masked."""
    ids, keep = pad([row.ids for row in rows], words.vocab.pad or 0).values()
    return objectives.masked(ids, keep, rng, vocab=words.vocab, unit=unit, words=words.words(ids))


class Batches:
    """Batch `step` of an arm: about as many tokens in every format, the rows in another order each time round."""

    def __init__(self, rows: list[InputRow], words: Tokenizer, change: Change, seed: int) -> None:
        self.rows, self.words, self.change, self.seed = rows, words, change, seed
        self.each = max(1, round(change.batch * TOKENS * len(rows) / sum(len(row.ids) for row in rows)))
        self.order = lru_cache(lambda epoch: torch.randperm(len(rows), generator=generator(seed, 0, epoch)).tolist())

    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""
        places = [divmod(step * self.each + i, len(self.rows)) for i in range(self.each)]
        picked = [(epoch, self.order(epoch)[place]) for epoch, place in places]
        rows = [self.rows[i] for _, i in picked]
        if self.change.copies is not None:
            return self._stored(picked)
        batch = hidden(rows, self.words, generator(self.seed, 1, step), self.change.unit)
        if rows[0].next == IGNORE:
            return batch
        segments = pad([row.segments for row in rows], 0)["ids"]
        return {**batch, "segments": segments, "next": torch.tensor([row.next for row in rows])}

    def _stored(self, picked: list[tuple[int, int]]) -> Batch:
        """Rows (epoch, number) with masks that were drawn beforehand."""
        vocab, seed, copies = self.words.vocab, self.seed, self.change.copies
        texts = [(epoch, i, torch.tensor([self.rows[i].ids])) for epoch, i in picked]
        made = [
            corrupt.mask_documents(ids, [i], vocab=vocab, seed=seed, epoch=epoch, copies=copies)
            for epoch, i, ids in texts
        ]
        labels = pad([mask.labels[0].tolist() for mask in made], IGNORE)["ids"]
        batch = pad([mask.ids[0].tolist() for mask in made], vocab.pad or 0)
        return {**batch, "labels": labels, "at": labels != IGNORE}


def shapes(vocab: int) -> dict[str, StackConfig]:
    """The tiny BERT and its relatives."""
    size: dict[str, Any] = {"width": WIDTH, "layers": 2, "heads": 2, "length": LENGTH, "dropout": 0.0}
    bert = replace(roberta.roberta(vocab, **size), init_std=0.05)
    thin = replace(bert, embed=replace(bert.embed, width=WIDTH // 4))
    return {
        "BERT": bert,
        "shared": replace(bert, shared=True),
        "factorised": thin,
        "both (ALBERT)": replace(thin, shared=True),
        "disentangled (DeBERTa)": replace(bert, position=Disentangled(16)),
    }


@cache
def trained(plan: Plan, seed: int, change: Change) -> nn.Module:
    """An arm's model at its end; once a process, for the claims that share it."""
    words, rows = text(plan).words, rows_of(plan, change.format, change.few)
    config, pairs = shapes(words.vocab.size)[change.shape], rows[0].next != IGNORE
    if pairs:
        config = replace(config, embed=replace(config.embed, segments=2))
    torch.manual_seed(seed)
    model = (heads.Pretraining if pairs else heads.MLM)(Stack(config))
    if change.start:
        mimetic(model.stack)
        see_through(model.head)
    count = change.longer * steps(plan)
    loss, schedule = losses.mlm_nsp if pairs else losses.mlm, optim.linear(count, warmup=max(1, count // 10))
    batches = Batches(rows, words, change, seed)
    for _ in train(model, batches, loss, optim.adamw(model, 3e-3), schedule, steps=count):
        pass
    return model.eval()


def held_out(lab: Lab, seed: int, change: Change, unit: Unit = "token") -> float:
    """An arm's loss in nats at hidden tokens of documents that nobody has read, the same for all arms and seeds."""
    model, batch = trained(lab.plan, seed, change), exam(lab.plan, unit)
    with torch.no_grad():
        out = model(batch["ids"], keep=batch["keep"], at=batch["at"])
    logits = out[0] if isinstance(out, tuple) else out
    return losses.cross_entropy(logits, batch["labels"][batch["at"]]).item()


@cache
def exam(plan: Plan, unit: Unit) -> Batch:
    """Held-out rows, full sentences."""
    words, unread = text(plan).words, text(plan).unread
    rows = corrupt.input_rows(unread, generator(0), vocab=words.vocab, format="full-sentences", length=LENGTH)
    return hidden(rows[:ASKED], words, generator(5), unit)


COMPARED = """An arm is worse or better than another if the 95% interval of the difference of their held-out losses,
paired by seed, lies above or below zero; otherwise there is no difference."""
SETTING = {
    "model": f"2 layers of {WIDTH}, {PIECES} word pieces, {LENGTH} tokens a row, about {TOKENS} a batch",
    "training": "a ninth of the plan's steps, ten documents a step: the lesson's own size",
    "few documents": "12 for every hundred steps, so that each is read about 36 times",
}


def against(f: Figures, arm: str, base: str, of: str = "held-out loss") -> str:
    """An arm's loss against another's, in the rule's words."""
    arm, base = f"{of}/{arm}", f"{of}/{base}"
    return "worse" if clearly_above(f, arm, base) else "better" if clearly_above(f, base, arm) else "no difference"


def told(f: Figures, base: str) -> str:
    """All arms' losses, and what the rule calls them."""
    of = "held-out loss"
    others = [name for name in names(f, of) if name != base]
    parts = [f"{name} {gap(f, f'{of}/{name}', f'{of}/{base}').mean:+.3f} ({against(f, name, base)})" for name in others]
    return f"Held-out loss: {base} {f[f'{of}/{base}'].mean:.3f} nats; {', '.join(parts)}."


def _dynamic(f: Figures) -> tuple[str, str]:
    single, ten = (against(f, name, "dynamic") for name in ("a single mask", "ten masks in turn"))
    safe = "better" not in (single, ten)
    verdict = "reproduced" if safe and single == "worse" else "partly" if safe else "not at this scale"
    return verdict, told(f, "dynamic")


@experiment(
    "dynamic-masking",
    rule=f"""A few documents over and over, against masks that are drawn anew each time. Reproduced if a single mask is
    worse and ten masks in turn are not better; partly if the single mask makes no difference and neither is better;
    otherwise not at this scale. {COMPARED}""",
    judge=_dynamic,
    config=SETTING,
)
def dynamic_masking(lab: Lab, seed: int) -> dict[str, float]:
    """Held-out loss with each way of masking."""
    return {f"held-out loss/{name}": held_out(lab, seed, change) for name, change in MASKS.items()}


def _formats(f: Figures) -> tuple[str, str]:
    said = {name: against(f, name, "full-sentences") for name in FORMATS}
    worse = [said[name] == "worse" for name in ("segment-pair", "sentence-pair")]
    whole = all(worse) and said["doc-sentences"] != "worse"
    verdict = "reproduced" if whole else "partly" if any(worse) else "not at this scale"
    return verdict, told(f, "full-sentences")


@experiment(
    "input-formats",
    rule=f"""Equal tokens for all, loss on held-out full-sentence rows, against full sentences. Reproduced if segment
    pairs and sentence pairs, both with next-sentence prediction, are worse and doc-sentences not worse; partly if one
    of the two is worse; otherwise not at this scale. {COMPARED}""",
    judge=_formats,
    config=SETTING,
)
def input_formats(lab: Lab, seed: int) -> dict[str, float]:
    """Held-out loss with each format of the rows."""
    return {f"held-out loss/{format}": held_out(lab, seed, Change(format=format)) for format in FORMATS}


def _undertrained(f: Figures) -> tuple[str, str]:
    wanted = {"few documents": "worse", "twice the batch": "better", "twice the steps": "better"}
    held = [against(f, name, "baseline") == word for name, word in wanted.items()]
    verdict = "reproduced" if all(held) else "partly" if any(held) else "not at this scale"
    return verdict, told(f, "baseline")


@experiment(
    "undertrained",
    rule=f"""One change of the baseline at a time. Reproduced if twice the batch is better, twice the steps is better,
    and a few documents over and over are worse; partly if one or two of the three hold; otherwise not at this scale.
    {COMPARED}""",
    judge=_undertrained,
    config=SETTING,
)
def undertrained(lab: Lab, seed: int) -> dict[str, float]:
    """Held-out loss with less data, larger batches, more steps."""
    return {f"held-out loss/{name}": held_out(lab, seed, change) for name, change in MORE.items()}


class Question(NamedTuple):
    """ids Int[T]: a text. place: of one piece of a word in several. word Bool[T]: all of that word's pieces."""

    ids: torch.Tensor
    place: int
    word: torch.Tensor


def questions(tokenizer: Tokenizer, texts: list[str], length: int, seed: int) -> list[Question]:
    """One piece a text, of a word in several, where there is one."""
    found, rng = [], generator(seed, 8)
    for ids in map(torch.tensor, tokenizer.ids(texts, max_length=length)):
        number = tokenizer.words(ids)
        several = [i for i, n in enumerate(number.tolist()) if n >= 0 and (number == n).sum() > 1]
        if several:
            place = several[int(torch.randint(len(several), (), generator=rng))]
            found.append(Question(ids, place, number == number[place]))
    return found


@torch.no_grad()
def easier(n: int, seed: int) -> dict[str, float]:
    """bert-mini's accuracy at the same pieces, with the rest of the word in view and without."""
    model, tokenizer, _ = zoo.load("bert-mini")
    write = sentences(family.WORLD, "validation", seed)
    asked = questions(tokenizer, [" ".join(write(i)) for i in range(n)], model.stack.config.position.length, seed)
    right = {"rest in view": 0, "word hidden": 0}
    for ids, place, word in asked:
        for name, hide in (("rest in view", torch.arange(len(ids)) == place), ("word hidden", word)):
            said = model(ids.masked_fill(hide, tokenizer.vocab.mask or 0)[None])[0][0, place].argmax()
            right[name] += int(said == ids[place])
    return {f"pieces right/{name}": count / len(asked) for name, count in right.items()}


def _whole(f: Figures) -> tuple[str, str]:
    simple = clearly_above(f, "pieces right/rest in view", "pieces right/word hidden")
    useful = clearly_above(f, "tags right/whole words", "tags right/pieces")
    seen, unseen = (percent(f[f"pieces right/{name}"].mean) for name in ("rest in view", "word hidden"))
    verdict = "reproduced" if simple and useful else "partly" if simple or useful else "not at this scale"
    return verdict, (
        f"bert-mini says {seen} of the pieces with the rest of the word in view and {unseen} without it; trained on "
        f"whole words, {points(gap(f, 'tags right/whole words', 'tags right/pieces'))} of tags are right."
    )


@experiment(
    "whole-word-masking",
    rule="""Reproduced if bert-mini says the same pieces rightly more often with the rest of the word in view than with
    all of the word hidden, and the arm trained on whole words tags parts of speech better than the baseline, trained
    on pieces; each if the 95% interval of the difference, paired by seed, lies above zero. Partly if one of the two;
    otherwise not at this scale.""",
    judge=_whole,
    config=SETTING | {"bert-mini": "one pretraining; the seeds are of the texts", "tagging": "40 sentences, 4 epochs"},
)
def whole_word_masking(lab: Lab, seed: int) -> dict[str, float]:
    """What bert-mini guesses, both arms' losses on pieces and on words, and both as taggers."""
    values = easier(lab.plan.tests, seed)
    tagging = {
        split: data.task("world/pos", split=split, n=n, seed=seed)
        for split, n in (("train", 40), ("test", lab.plan.tests))
    }
    for name, change in (("pieces", BASE), ("whole words", Change(unit="word"))):
        values[f"loss on pieces/{name}"] = held_out(lab, seed, change)
        values[f"loss on words/{name}"] = held_out(lab, seed, change, "word")
        tagger = finetune(
            trained(lab.plan, seed, change), tagging, text(lab.plan).words, epochs=4, lr=1e-3, batch=16,
            dropout=0.0, max_length=LENGTH, seed=seed,
        )  # fmt: skip
        values[f"tags right/{name}"] = tagger.score
    return values


def _relatives(f: Figures) -> tuple[str, str]:
    off = max(abs(f[f"parameters, of the paper's/{name}"].mean - 1) for name in SIZES)
    on = [f[f"loss on {unit}s/trained on tokens"].seeds for unit in ("span", "token")]
    said = {name: against(f, name, "BERT") for name in ("both (ALBERT)", "disentangled (DeBERTa)")}
    spans = against(f, "trained on spans", "trained on tokens", of="loss on spans")
    held = {
        "ALBERT": off < 0.06 and said["both (ALBERT)"] != "worse",
        "SpanBERT": all(span > token for span, token in zip(*on, strict=True)) and spans == "better",
        "DeBERTa": said["disentangled (DeBERTa)"] == "better",
    }
    verdict = "reproduced" if all(held.values()) else "partly" if any(held.values()) else "not at this scale"
    return verdict, (
        f"Holds: {', '.join(name for name, yes in held.items() if yes) or 'none of the three'}. Parameters are within "
        f"{100 * off:.0f}% of the paper's. {told(f, 'BERT')} At spans, the arm trained on them: {spans}."
    )


@experiment(
    "span-and-sharing",
    rule=f"""Three statements. (a) The parameters of all six sizes are the paper's within 6%, and ALBERT's two
    reductions together are not worse than BERT. (b) Hidden spans are harder than hidden tokens for the baseline of
    every seed, and the arm trained on spans is better at spans. (c) Disentangled attention is better than BERT's.
    Reproduced if all three hold, partly if one or two, otherwise not at this scale. {COMPARED}""",
    judge=_relatives,
    config=SETTING | {"start": "of BERT, ALBERT and DeBERTa plain noise, of the arms on spans and tokens mimetic"},
)
def span_and_sharing(lab: Lab, seed: int) -> dict[str, float]:
    """Parameters of the published sizes; held-out loss and parameters of each shape; the loss on spans and tokens."""
    theirs = published("12_roberta")["span-and-sharing"]["albert"]["rows"]
    values = {
        f"parameters, of the paper's/{name}": family.published_size(size()) / (1e6 * theirs[name])
        for name, size in SIZES.items()
    }
    for name, shape in shapes(text(lab.plan).words.vocab.size).items():
        values[f"parameters/{name}"] = cost.parameters(shape)
        values[f"held-out loss/{name}"] = held_out(lab, seed, replace(NOISE, shape=name))
    units: tuple[Unit, Unit] = ("token", "span")
    for on, read in product(units, units):
        values[f"loss on {on}s/trained on {read}s"] = held_out(lab, seed, Change(unit=read), on)
    return values
