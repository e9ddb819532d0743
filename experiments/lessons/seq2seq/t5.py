"""The claims of lesson 17: span corruption, architectures and objectives, many tasks at once,
sizes.
"""

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import Any, cast

import torch
from torch import nn

from course_lib import data, objectives, zoo
from course_lib.analysis import cost, evaluation, metrics
from course_lib.data import inputs, text_to_text, tokenizers
from course_lib.data.tokenizers import add_sentinels
from course_lib.families.t5 import T5_SIZES, t5, t5_lm, t5_size, write_config
from course_lib.model import heads, masks, seq2seq, transformer
from course_lib.model.config import StackConfig, T5Buckets
from course_lib.objectives import collate, losses, seeded_generator
from course_lib.objectives.losses import Batch, Loss
from course_lib.vocab import IGNORE
from experiments.lessons import (
    Lab,
    Made,
    experiment,
    fit,
    given,
    probes,
    published,
    small_models,
    town,
)
from experiments.lessons.seq2seq import bart

SIZES, LENGTH, WIDTHS = given("t5").values()
HELD_OUT, STORIES = 8, 2000  # batches; stories of the corner
PAPER = published("17_t5")
RATES: dict[tuple[str, ...], float] = {("inference",): 1e-3}  # learning rates: 3e-3 for all others
TASKS = {  # of lesson 16's corner of the town
    "topic": text_to_text.Wording("topic", labels=("food", "goods", "texts", "animals")),
    "question": text_to_text.WORDINGS["squad"],
    "inference": text_to_text.WORDINGS["rte"],
    "translation": text_to_text.translation("English", "Backwards"),
    "summary": text_to_text.WORDINGS["summary"],
}
KINDS: dict[str, Loss] = {
    "encoder-decoder": losses.seq2seq,
    "shared": losses.seq2seq,
    "half the layers": losses.seq2seq,
    "language model": losses.clm,
    "prefix LM": losses.prefix_lm,
}
BEST, OBJECTIVES, CONTROL = "encoder-decoder", ("denoising", "LM"), "no pretraining"
EXAMPLE = PAPER["t5-span-corruption"]
SPANS, SIGNS = [(2, 2), (8, 1)], ("<X>", "<Y>", "<Z>")  # "for inviting", "last": (start, length)


class Texts:
    """One seed's rows of tokens, and the batches that they become. rows: of the corpus, in the
    order they are read.
    """

    def __init__(
        self,
        size: dict[str, int],
        seed: int,
        tokenizer: tokenizers.Tokenizer,
        rows: list[list[int]],
    ) -> None:
        self.size, self.seed, self.tokenizer, self.rows = size, seed, tokenizer, rows
        self.vocab, self.sentinels = tokenizer.vocab, tokenizer.vocab.sentinels
        self.special = torch.tensor([i for i in self.vocab.special if i not in self.sentinels])
        self.frame = inputs.SourceTarget(tokenizer, self.fresh(), max_length=64)
        self.summaries = cache(self._summaries)

    def texts(self, step: int) -> Batch:
        first = step * self.size["rows"]
        rows = [self.rows[i % len(self.rows)] for i in range(first, first + self.size["rows"])]
        return collate.pad(rows, self.vocab.pad or 0)

    def spans(self, step: int) -> Batch:
        (ids, real), rng = self.texts(step).values(), seeded_generator(self.seed, 1, step)
        return collate.span_corrupted(ids, real, rng, vocab=self.vocab, sentinels=self.sentinels)

    def parts(self, step: int) -> Batch:
        """Each text cut in two: the LM objective of an encoder-decoder and of a prefix LM."""
        ids, real = self.texts(step).values()
        return collate.prefixed(ids, real, seeded_generator(self.seed, 2, step), vocab=self.vocab)

    def _summaries(self, split: str = "train") -> list[inputs.EncodedRow]:
        """Rows of the town's task as text in and text out."""
        n = self.size["tests" if split == "test" else "labels"]
        items = data.task("world/summaries", split=split, n=n, seed=self.seed)
        return self.frame.rows(text_to_text.rows(items, "summary"))

    def fresh(self, width: int = 64) -> StackConfig:
        """A T5 for these minutes, two layers a side."""
        return t5(
            self.vocab.size, width=width, layers=2, heads=width // 32, hidden=4 * width, dropout=0.0
        )


def of_the_town(size: dict[str, int], seed: int) -> Texts:
    """Documents in the tokens of t5-mini."""
    tokenizer = zoo.load("t5-mini").tokenizer
    cls, sep = cast(int, tokenizer.vocab.cls), cast(int, tokenizer.vocab.sep)
    long = tokenizer.ids(
        list(data.corpus("world", n=size["documents"], seed=seed)["text"]), special=False
    )
    cut = [ids[i : i + LENGTH] for ids in long for i in range(0, len(ids), LENGTH)]
    rows = [[cls, *ids, sep] for ids in cut if len(ids) > 8]
    return Texts(
        size,
        seed,
        tokenizer,
        [rows[i] for i in torch.randperm(len(rows), generator=seeded_generator(seed))],
    )


@torch.no_grad()
def judged(model: Any, loss: Loss, batch: Batch, special: torch.Tensor) -> tuple[float, float]:
    """Of the targets' tokens, special ones apart, each after the right beginning: share said
    rightly, nats a token.
    """
    labels = batch["labels"]
    at = (labels != IGNORE) & ~torch.isin(labels, special)
    seen: dict[str, Any] = {"attention_mask": batch["attention_mask"], "loss_mask": at}
    if loss is losses.seq2seq:
        logits = model(batch["ids"], seq2seq.shift_right(labels, model.stack.start), **seen)
    else:
        mask = masks.prefix(batch["prefix"], labels.shape[1]) if loss is losses.prefix_lm else None
        logits = model(batch["ids"], mask=mask, **seen)
    right = (logits.argmax(-1) == labels[at]).float().mean()
    return right.item(), losses.cross_entropy(logits, labels[at]).item()


def build(kind: str, config: StackConfig) -> nn.Module:
    """A fresh network. Language models read source and target as one text. Shared is one set of
    blocks for both sides; the decoder's cross-attention is its self-attention once more."""
    if KINDS[kind] is not losses.seq2seq:
        one = replace(config, cross=False, position=T5Buckets(32, 128, bidirectional=True))
        return heads.LM(transformer.Transformer(one))
    layers = config.layers // 2 if kind == "half the layers" else config.layers
    model = seq2seq.Seq2SeqLM(seq2seq.EncoderDecoder(replace(config, layers=layers)))
    for reads, writes in zip(model.stack.encoder.blocks, model.stack.decoder.blocks, strict=True):
        if kind == "shared":
            writes.attn = writes.cross = reads.attn
            writes.attn_norm = writes.cross_norm = reads.attn_norm
            writes.ff, writes.ff_norm = reads.ff, reads.ff_norm
    return model


def summarised(town: Texts, kind: str, objective: str, device: str) -> tuple[float, float]:
    """Pretrain (or not), tune on summaries, ask."""
    loss, steps = KINDS[kind], town.size["before"]
    form: Callable[[Batch], Batch] = (
        dict if loss is losses.seq2seq else partial(collate.joined, vocab=town.vocab)
    )
    torch.manual_seed(town.seed)
    model = build(kind, replace(town.fresh(), scale=True, init_std=0.05))
    if objective == "LM" and loss is losses.clm:
        fit(model, Made(town.texts), loss, steps, 3e-3, device=device)
    elif objective != CONTROL:
        read = town.spans if objective == "denoising" else town.parts
        fit(model, Made(lambda step: form(read(step))), loss, steps, 3e-3, device=device)
    stories = inputs.TaskBatches(town.frame, town.summaries(), town.size["rows"], town.seed)
    fit(
        model, Made(lambda step: form(stories[step])), loss, town.size["after"], 2e-3, device=device
    )
    return judged(model, loss, form(town.frame.collate(town.summaries("test"))), town.special)


@experiment("t5-architectures")
def architectures(lab: Lab, seed: int) -> dict[str, float]:
    """The ten rows, and the first of them without pretraining."""
    town = of_the_town(SIZES[lab.plan.scale], seed)
    rows = [(kind, objective) for objective in OBJECTIVES for kind in KINDS]
    values: dict[str, float] = {}
    for kind, objective in [*rows, (BEST, CONTROL)]:
        key = f"{kind}/{objective}"
        values[f"tokens right/{key}"], values[f"nats/{key}"] = summarised(
            town, kind, objective, lab.device
        )
    return values


def same_formats() -> bool:
    """Whether the course's wordings of the three tasks are the paper's, to the letter."""
    ours = text_to_text.WORDINGS | {"translation": text_to_text.translation("English", "German")}
    example = {"text": "He left.", "pair": "He went away.", "target": ""}
    formats = PAPER["t5-text-to-text"]["formats"].items()
    return all(
        ours[name].row(example)["text"] == form.format(**example)
        and list(ours[name].labels) == labels
        for name, (form, labels) in formats
    )


def asked(rng: random.Random) -> dict[str, dict[str, str]]:
    """The five tasks of one story, text in and text out."""
    happened = bart.two_events(rng)
    story, (kind, words) = bart.story(rng, happened), rng.choice(list(zip(*happened, strict=True)))
    one, who, place = " ".join(words), words[0], words[6]
    said = rng.choice([place, rng.choice([other for other in bart.PLACES if other != place])])
    items: dict[str, dict[str, Any]] = {
        "topic": {"text": one, "label": kind},
        "question": {"text": f"where was {who} ?", "pair": story["text"], "answer": place},
        "inference": {
            "text": story["text"],
            "pair": f"{who} was in the {said} .",
            "label": int(said != place),
        },
        "translation": {"text": one, "target": bart.backwards(words)},
        "summary": story,
    }
    return {name: TASKS[name].row(item) for name, item in items.items()}


class Corner(Texts):
    """The tasks in tokens, `taught` and, with texts that none of these has, `tests`; a T5 that has
    restored stories.
    """

    def __init__(self, size: dict[str, int], seed: int, device: str = "cpu") -> None:
        rng = random.Random(seed)
        made = [asked(rng) for _ in range(STORIES)]
        texts = [" ".join(row.values()) for each in made for row in each.values()]
        pieces = add_sentinels(tokenizers.train_wordpiece(texts, 400, lowercase=False))
        super().__init__(size, seed, pieces, pieces.ids(bart.corpus()))
        self.device, most = device, 2 * size["tests"]
        self.taught, self.tests = (
            dict[str, list[inputs.EncodedRow]](),
            dict[str, list[inputs.EncodedRow]](),
        )
        for name in TASKS:
            new, known = [each[name] for each in made[:most]], [each[name] for each in made[most:]]
            seen = {row["text"] for row in known}
            self.taught[name] = self.frame.rows(known)
            self.tests[name] = self.frame.rows([row for row in new if row["text"] not in seen])
        torch.manual_seed(seed)
        self.young = t5_lm(replace(self.fresh(), scale=True, init_std=0.05))
        fit(
            self.young,
            Made(self.spans),
            losses.seq2seq,
            max(2, size["each"] // 4),
            3e-3,
            device=device,
        )

    def tuned(self, *names: str) -> seq2seq.Seq2SeqLM:
        """The T5 taught these tasks together: with many or one, of each as many rows in as many
        updates.
        """
        taught, batch = (
            {name: self.taught[name] for name in names},
            self.size["rows"] // 2 * len(names),
        )
        mixed = text_to_text.MixedTasks(
            self.frame, taught, [1 / len(names)] * len(names), batch=batch, seed=self.seed
        )
        model, rate = deepcopy(self.young), RATES.get(names, 3e-3)
        fit(model, mixed, losses.seq2seq, self.size["each"], rate, device=self.device)
        return model

    def answered(self, model: seq2seq.Seq2SeqLM, name: str) -> float:
        """Share of answers, written greedily, that are the target's text."""
        said = probes.answers(model, self.frame, self.tests[name], most=24)
        return metrics.accuracy(
            said, [self.tokenizer.decode(row.label) for row in self.tests[name]]
        )


@experiment("t5-text-to-text", tasks=tuple(TASKS))
def text_in_text_out(lab: Lab, seed: int) -> dict[str, float]:
    """Scores of one model a task and of one for all, of the model before, and of the commonest
    answer.
    """
    corner = Corner(SIZES[lab.plan.scale], seed, lab.device)
    joint, values = corner.tuned(*TASKS), {"formats as the paper's": float(same_formats())}
    for name in TASKS:
        targets = [tuple(row.label) for row in corner.tests[name]]
        values[f"guessing/{name}"] = max(map(targets.count, targets)) / len(targets)
        values[f"no label/{name}"] = corner.answered(corner.young, name)
        values[f"one model each/{name}"] = corner.answered(corner.tuned(name), name)
        values[f"one for all/{name}"] = corner.answered(joint, name)
    for who in ("one model each", "one for all"):
        values[f"{who}/average"] = sum(values[f"{who}/{name}"] for name in TASKS) / len(TASKS)
    return values


@experiment("t5-sizes")
def sizes(lab: Lab, seed: int) -> dict[str, float]:
    """Full-size counts, and what three small sizes reach on the same rows in the same order."""
    from transformers import T5Config, T5ForConditionalGeneration

    values: dict[str, float] = {}
    for name in T5_SIZES:
        config = t5_size(name)
        values[f"parameters/{name}"] = cost.parameters(partial(t5_lm, config))
        theirs = partial(T5ForConditionalGeneration, T5Config(**write_config(config)))
        values[f"transformers/{name}"] = cost.parameters(theirs)
    scores = [row["scores"] for row in PAPER["t5-sizes"]["rows"].values()]
    rises = [all(a < b for a, b in pairwise(column)) for column in zip(*scores, strict=True)]
    values["the paper's columns that rise"] = sum(rises)
    town = of_the_town(SIZES[lab.plan.scale], seed)
    steps = town.size["alone"]
    held_out = [town.spans(step) for step in range(steps, steps + HELD_OUT)]
    for width in WIDTHS:
        torch.manual_seed(seed)
        model = t5_lm(town.fresh(width))
        fit(model, Made(town.spans), losses.seq2seq, steps, 3e-3, device=lab.device)
        values[f"held-out loss/{width}"] = evaluation.mean_loss(model, losses.seq2seq, held_out)
        values[f"tokens right/{width}"] = evaluation.target_accuracy(model, held_out)
    return values


@experiment("t5-span-corruption")
def t5_span_corruption(lab: Lab, seed: int) -> dict[str, float]:
    """The lecture's example, and the amounts on documents of the town and on Python's manual."""
    words = EXAMPLE["text"].split()
    signs = list(range(len(words), len(words) + len(SIGNS)))
    marked = objectives.mark_spans(torch.arange(len(words)), SPANS, signs)
    said = {
        side: " ".join([*words, *SIGNS][i] for i in ids.tolist())
        for side, ids in marked._asdict().items()
    }
    values = {
        f"as in the lecture/{side}": float(text == EXAMPLE[side]) for side, text in said.items()
    }
    back = objectives.restore(*marked, signs)
    values["restored/the lecture's example"] = float(torch.equal(back, torch.arange(len(words))))
    read = (
        [town(small_models.WORLD).document(i)["text"] for i in range(750)],
        data.corpus("manual")["text"][:],
    )
    for name, texts in zip(("world", "Python's manual"), read, strict=True):
        values |= {f"{what}/{name}": value for what, value in _amounts(texts, seed).items()}
    return values


def _amounts(texts: list[str], seed: int) -> dict[str, float]:
    """Over the texts of one corpus, in its own word pieces: their number, share hidden, mean span,
    share restored.
    """
    pieces = add_sentinels(tokenizers.train_wordpiece(texts, 2000))
    signs, rng = pieces.vocab.sentinels, seeded_generator(seed, 2)
    found: list[tuple[float, ...]] = []
    for ids in pieces.ids([text[:2000] for text in texts], special=False):
        if len(ids) >= 50:
            pair = objectives.span_corruption(
                torch.tensor(ids), rng, vocab=pieces.vocab, sentinels=signs
            )
            spans = int(torch.isin(pair.input, torch.tensor(signs)).sum())
            hidden, back = (
                len(ids) - len(pair.input) + spans,
                objectives.restore(*pair, signs).tolist() == ids,
            )
            found.append((hidden / len(ids), (len(pair.target) - spans - 1) / spans, back))
    means = (sum(column) / len(found) for column in zip(*found, strict=True))
    return {"texts": len(found)} | dict(
        zip(("share hidden", "mean span", "restored"), means, strict=True)
    )
