"""The claim of lesson 16: whether a denoiser summarises and translates.

It is tested in a small part of the town that is learned in seconds: twelve people, four kinds of
things, each with verbs of its own."""

import random
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from course_lib.analysis import metrics
from course_lib.data.inputs import EncodedRow, SourceTarget, TaskBatches
from course_lib.data.tokenizers import Tokenizer, train_wordpiece
from course_lib.families.bart import bart, bart_lm
from course_lib.model import attention, initialization
from course_lib.model.config import EmbedConfig, StackConfig
from course_lib.model.seq2seq import Seq2SeqLM
from course_lib.model.transformer import Transformer
from course_lib.objectives import collate, losses, seeded_generator
from course_lib.training.feed import Batches
from lab.lessons import (
    Lab,
    Made,
    Plan,
    experiment,
    fit,
    given,
    linear_config,
    probes,
    small_models,
)

ROWS, WIDTH, LENGTH = 16, 48, 48
TAUGHT, TESTED = 64, 100  # summaries
TUNING, TRANSLATING = 40, 60  # steps
M = TypeVar("M", bound=nn.Module)
GIVEN = given("bart")
PEOPLE, PLACES, ASIDES = GIVEN["people"], GIVEN["places"], GIVEN["asides"]
KINDS = GIVEN["kinds"]  # of events: verbs, things


def event(rng: random.Random, who: str, kind: int) -> list[str]:
    """One sentence."""
    verbs, things = KINDS[kind]
    return [who, rng.choice(verbs), "the", rng.choice(things), "in", "the", rng.choice(PLACES), "."]


def two_events(rng: random.Random) -> tuple[list[int], list[list[str]]]:
    """The kinds and the words of what two people did."""
    kinds = [rng.randrange(len(KINDS)) for _ in range(2)]
    return kinds, [
        event(rng, who, kind) for who, kind in zip(rng.sample(PEOPLE, 2), kinds, strict=True)
    ]


def story(
    rng: random.Random, happened: tuple[list[int], list[list[str]]] | None = None
) -> dict[str, Any]:
    """Two events and an aside; its summary, without the aside and the places; the kind of each
    event.
    """
    kinds, events = happened or two_events(rng)
    parts = [" ".join(words) for words in events]
    parts.insert(rng.randrange(3), rng.choice(ASIDES))
    target = " and ".join(" ".join(words[:4]) for words in events) + " ."
    return {"text": " ".join(parts), "target": target, "kinds": kinds}


def backwards(words: Sequence[str]) -> str:
    """An event's translation: spelled backwards, without articles, the place first, the verb
    last.
    """
    who, verb, _, thing, _, _, place, _ = words
    return " ".join(word[::-1].lower() for word in (place, thing, who, verb)) + " ."


def translated(rng: random.Random, n: int) -> list[dict[str, str]]:
    """Single events, each once, from their translations."""
    events = [event(rng, rng.choice(PEOPLE), rng.randrange(len(KINDS))) for _ in range(n)]
    return [
        {"text": backwards(words), "target": " ".join(words)}
        for words in dict.fromkeys(map(tuple, events))
    ]


def steps(plan: Plan) -> int:
    """Of the pretraining: the lesson's."""
    return max(2, 8 * plan.steps // 45)


def corpus() -> list[str]:
    """Three thousand stories."""
    rng = random.Random(0)
    return [str(story(rng)["text"]) for _ in range(3000)]


@cache
def language() -> Tokenizer:
    """The word pieces of the corner."""
    return train_wordpiece(corpus(), 400, lowercase=False)


def noised_stories(seed: int) -> Made:
    """The next stories, spoiled by text infilling."""
    pieces, documents = language(), language().ids(corpus())
    vocab = pieces.vocab

    def make(step: int) -> losses.Batch:
        some = [documents[(ROWS * step + i) % len(documents)] for i in range(ROWS)]
        ids, attention_mask = collate.pad(some, vocab.padding_id).values()
        rng = seeded_generator(seed, step)
        return collate.denoised(ids, attention_mask, rng, vocab=vocab, noises=("text infilling",))

    return Made(make)


def config() -> StackConfig:
    """The small BART's."""
    size = language().vocab.size
    return replace(
        bart(size, width=WIDTH, layers=1, heads=2, length=LENGTH, dropout=0.0), init_std=0.05
    )


def fresh(seed: int) -> Seq2SeqLM:
    """A BART as it is born."""
    torch.manual_seed(seed)
    model = bart_lm(config(), start=language().vocab.sep or 0)
    for stack in (model.stack.encoder, model.stack.decoder):
        initialization.mimetic(stack)
    return model


def trained(model: M, batches: Batches, count: int, lr: float = 5e-3) -> M:
    """The model, trained."""
    fit(model, batches, losses.seq2seq, linear_config(count, lr))
    return model


@cache
def pretrained(plan: Plan, seed: int) -> Seq2SeqLM:
    """A BART that has learned to undo the noise; left as it is by all that start from it."""
    return trained(fresh(seed), noised_stories(seed), steps(plan))


@cache
def summaries() -> tuple[SourceTarget, list[EncodedRow], list[EncodedRow]]:
    """The frame, the summaries to learn from and the new ones."""
    frame, rng = SourceTarget(language(), config()), random.Random(2)
    rows = frame.rows([story(rng) for _ in range(TAUGHT + TESTED)])
    return frame, rows[:TAUGHT], rows[TAUGHT:]


def summariser(model: M, seed: int) -> M:
    """A copy that has learned to summarise."""
    frame, taught, _ = summaries()
    return trained(deepcopy(model), TaskBatches(frame, taught, ROWS, seed), TUNING, lr=3e-3)


class Behind(nn.Module):
    """A new encoder for foreign text, and BART's own behind it, where the token vectors stood."""

    def __init__(self, inner: Transformer, foreign: int) -> None:
        super().__init__()
        self.front = Transformer(
            replace(inner.config, embed=EmbedConfig(foreign, norm=True), layers=1)
        )
        self.inner, self.config = inner, inner.config
        initialization.mimetic(self.front)

    def forward(
        self, ids: Tensor, *, attention_mask: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        h: Tensor = self.inner.run(
            self.front(ids, attention_mask=attention_mask), attention_mask=attention_mask
        )
        return h


def translator(model: Seq2SeqLM, foreign: int, seed: int, *, frozen: bool) -> Seq2SeqLM:
    """A copy that reads a foreign vocabulary. frozen: only the new encoder, the positions and what
    the first attention makes of its input learn (Lewis et al. 2020, section 3.4)."""
    made = deepcopy(model)
    torch.manual_seed(seed)
    inner, outer = made.stack.encoder, made.stack.decoder
    behind = Behind(inner, foreign)
    made.stack.encoder = behind  # type: ignore[assignment]
    if frozen:
        made.requires_grad_(False)
        first = cast(attention.Attention, inner.blocks[0].attn)
        for part in (behind.front, inner.position, outer.position, first.q, first.k, first.v):
            part.requires_grad_(True)
    return made


def rouge(plan: Plan, seed: int) -> dict[str, float]:
    """ROUGE-2 of new summaries, of the story's beginnings and of three networks."""
    pieces, (frame, _, tested) = language(), summaries()
    sources = [row.ids[0] for row in tested]
    tales, right = (
        [pieces.decode(ids) for ids in texts] for texts in (sources, [row.label for row in tested])
    )
    said = {f"Lead-{k}": [". ".join(tale.split(". ")[:k]) + "." for tale in tales] for k in (1, 2)}
    torch.manual_seed(seed)
    rival = small_models.attentional_lstm(
        pieces.vocab.size, width=WIDTH, cells=WIDTH, start=pieces.vocab.sep or 0
    )
    writers: dict[str, nn.Module] = {"LSTM": rival, "Transformer, not pretrained": fresh(seed)}
    writers["BART"] = pretrained(plan, seed)
    said |= {
        name: probes.answers(summariser(model, seed), frame, tested, most=16)
        for name, model in writers.items()
    }
    return {
        f"ROUGE-2/{name}": metrics.rouge(texts, right, kind="rouge2")
        for name, texts in said.items()
    }


def bleu(plan: Plan, seed: int) -> dict[str, float]:
    """BLEU into BART's language, with nothing pretrained, and with BART frozen and tuned; as many
    steps for each.
    """
    frame, pairs = summaries()[0], translated(random.Random(4), 400)
    tongue = train_wordpiece([pair["text"] for pair in pairs], 300, lowercase=False)
    foreign = tongue.ids([pair["text"] for pair in pairs])
    rows = [
        replace(row, ids=[list(ids)]) for row, ids in zip(frame.rows(pairs), foreign, strict=True)
    ]
    taught, tested = TaskBatches(frame, rows[TESTED:], ROWS, seed), rows[:TESTED]
    right = [language().decode(row.label) for row in tested]
    start = {
        "baseline": fresh(seed),
        "frozen": pretrained(plan, seed),
        "tuned": pretrained(plan, seed),
    }
    values = {}
    for name, model in start.items():
        made = translator(model, tongue.vocab.size, seed, frozen=name != "baseline")
        if name == "tuned":
            made = trained(made, taught, TRANSLATING // 2).requires_grad_(True)
        made = trained(made, taught, TRANSLATING // 2 if name == "tuned" else TRANSLATING)
        values[f"BLEU/{name}"] = metrics.bleu(probes.answers(made, frame, tested, most=12), right)
    return values


@experiment("bart-generates")
def generates(lab: Lab, seed: int) -> dict[str, float]:
    """ROUGE-2 of summaries, BLEU of translations."""
    return rouge(lab.plan, seed) | bleu(lab.plan, seed)
