"""The claims of lesson 16: what noise does, which is best, whether a denoiser classifies,
summarises, translates.

Most are of a small part of the town that is learned in seconds: twelve people, four kinds of
things, each with verbs of its own."""

import random
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from course_lib import objectives
from course_lib.analysis import evaluation, metrics
from course_lib.data.inputs import EncodedRow, Frame, SourceTarget, TaskBatches
from course_lib.data.tokenizers import Tokenizer, train_wordpiece
from course_lib.families.bart import bart, bart_lm
from course_lib.families.bert import bert
from course_lib.model import attention, heads, initialization
from course_lib.model.config import EmbedConfig, StackConfig
from course_lib.model.seq2seq import EncoderDecoder, Seq2SeqClassifier, Seq2SeqLM, shift_right
from course_lib.model.transformer import Transformer
from course_lib.objectives import collate, losses, seeded_generator
from course_lib.training.feed import Batches
from course_lib.vocab import IGNORE, Vocab
from experiments.lessons import Lab, Made, Plan, experiment, fit, given, probes, small_models

ROWS, WIDTH, LENGTH = 16, 48, 48
TAUGHT, TESTED = 64, 100  # summaries
TUNING, JUDGING, TRANSLATING = 40, 80, 60  # steps
LOST = ("token masking", "token deletion", "text infilling")  # what hides words
ORDER = ("document rotation", "sentence permutation")  # and what only moves them
ARMS = {name: (name,) for name in (*LOST, *ORDER)} | {
    "permutation + infilling": (ORDER[1], LOST[2])
}
BEST = "text infilling"
M = TypeVar("M", bound=nn.Module)
PEOPLE, KINDS, PLACES, ASIDES = given("bart").values()
NOISED, MASK = 900, 1  # texts of plain numbers to be noised, and the number that is the mask
VOCAB = Vocab(100, mask=MASK, special=(MASK,))


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


def told_apart(rng: random.Random, n: int) -> list[dict[str, Any]]:
    """Stories whose events are of two kinds, with the kind of the first: words alone tell it half
    of the time.
    """
    rows = (story(rng) for _ in range(20 * n))
    return [
        {"text": row["text"], "label": row["kinds"][0]}
        for row in rows
        if len(set(row["kinds"])) == 2
    ][:n]


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


def noised_stories(noises: Sequence[str], seed: int) -> Made:
    """The next stories, spoiled by these noises; without any, masked as BERT's are."""
    pieces, documents = language(), language().ids(corpus())
    vocab, ends = pieces.vocab, pieces.vocab.ends

    def make(step: int) -> losses.Batch:
        some = [documents[(ROWS * step + i) % len(documents)] for i in range(ROWS)]
        ids, attention_mask = collate.pad(some, vocab.pad or 0).values()
        rng = seeded_generator(seed, step)
        if not noises:
            return collate.masked(ids, attention_mask, rng, vocab=vocab)
        return collate.denoised(ids, attention_mask, rng, vocab=vocab, noises=noises, ends=ends)

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


def trained(
    model: M, batches: Batches, count: int, lr: float = 5e-3, loss: losses.Loss = losses.seq2seq
) -> M:
    """The model, trained."""
    fit(model, batches, loss, count, lr)
    return model


@cache
def pretrained(plan: Plan, seed: int, arm: str = BEST) -> Seq2SeqLM:
    """A BART that has learned to undo these noises; left as it is by all that start from it."""
    return trained(fresh(seed), noised_stories(ARMS[arm], seed), steps(plan))


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


@experiment("bart-which-noise")
def which_noise(lab: Lab, seed: int) -> dict[str, float]:
    """Perplexity of new summaries; before the tuning, how well each copies, and guesses hidden
    things of the kind.
    """
    frame, _, tested = summaries()
    pieces, rng, values = language(), random.Random(1), dict[str, float]()
    ids, real = collate.pad(
        pieces.ids([story(rng)["text"] for _ in range(150)]), pieces.vocab.pad or 0
    ).values()
    kinds = {
        pieces.encode(thing).ids[1]: kind
        for kind, (_, things) in enumerate(KINDS)
        for thing in things
    }
    hidden = torch.isin(ids, torch.tensor(list(kinds)))
    asked = [kinds[thing] for thing in ids[hidden].tolist()]
    gaps, told = (
        ids.masked_fill(hidden, pieces.vocab.mask or 0),
        shift_right(ids, pieces.vocab.sep or 0),
    )
    # to be copied
    unseen = {
        "ids": ids,
        "attention_mask": real,
        "labels": ids.masked_fill(~real, IGNORE),
    }
    for name in ARMS:
        body = pretrained(lab.plan, seed, name)
        loss = evaluation.mean_loss(summariser(body, seed), losses.seq2seq, [frame.collate(tested)])
        values[f"perplexity/{name}"] = metrics.perplexity(loss)
        values[f"copies/{name}"] = evaluation.target_accuracy(body, [unseen])
        with torch.no_grad():
            said = body(gaps, told, attention_mask=real).argmax(-1)[hidden].tolist()
        values[f"fits/{name}"] = metrics.accuracy([kinds.get(guess) for guess in said], asked)
    return values


def encoder(plan: Plan, seed: int) -> Transformer:
    """As many blocks as the small BART has, pretrained as long by masking."""
    size = language().vocab.size
    shape = replace(
        bert(size, width=WIDTH, layers=2, heads=2, length=LENGTH, dropout=0.0), init_std=0.05
    )
    torch.manual_seed(seed)
    model = heads.MLM(Transformer(shape))
    initialization.mimetic(model.stack)
    return trained(model, noised_stories((), seed), steps(plan), loss=losses.mlm).stack


@experiment("bart-classifies-too")
def classifies_too(lab: Lab, seed: int) -> dict[str, float]:
    """Share of new stories of which each says the kind of the first event."""
    bodies: dict[str, Transformer | EncoderDecoder] = {
        "BART": deepcopy(pretrained(lab.plan, seed).stack),
        "encoder": encoder(lab.plan, seed),
        "BART, not pretrained": fresh(seed).stack,
    }
    values, classes, rng = dict[str, float](), len(KINDS), random.Random(3)
    frame = Frame(language(), config(), "single", classes=classes)
    taught, tested = (frame.rows(told_apart(rng, n)) for n in (200, 300))
    batch = dict(frame.collate(tested))
    truth = batch.pop("labels")
    for name, body in bodies.items():
        torch.manual_seed(seed)
        head = (
            heads.Classifier(body, classes)
            if isinstance(body, Transformer)
            else Seq2SeqClassifier(body, classes)
        )
        trained(
            head,
            TaskBatches(frame, taught, ROWS, seed),
            JUDGING,
            lr=2e-3,
            loss=losses.classification,
        )
        with torch.no_grad():
            values[name] = float((head(**batch).argmax(-1) == truth).float().mean())
    return values


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


def _as_it_says(name: str, text: Tensor, left: Tensor, ends: Tensor, spans: int) -> bool:
    """Whether a corruption has done to a text what its name says; every token of the text is
    another number.
    """
    masked = left.eq(MASK)
    kept = left[~masked]
    lost, masks, breaks = len(text) - len(kept), len(left) - len(kept), torch.ne(left.diff(), 1)
    in_order, whole = bool((kept.diff() > 0).all()), torch.equal(left.sort().values, text)
    if name == "token masking":
        return lost == max(1, round(0.15 * len(text))) and bool(((left == text) | masked).all())
    if name == "token deletion":
        return lost == max(1, round(0.15 * len(text))) and in_order and masks == 0
    if name == "text infilling":  # nothing is missing where there is no mask
        edges = torch.cat((text[:1] - 1, left, text[-1:] + 1))
        beside_mask = edges[1:].eq(MASK) | edges[:-1].eq(MASK)
        hidden = lost == max(1, round(0.3 * len(text)))
        return (
            hidden
            and in_order
            and masks == spans
            and bool(((edges.diff() == 1) | beside_mask).all())
        )
    if name == "sentence permutation":  # between two sentences only
        return whole and bool(torch.isin(left[:-1][breaks], torch.cat((ends, text[-1:]))).all())
    return whole and bool((left[:-1][breaks] == text[-1]).all())


@experiment("bart-noise")
def bart_noise(lab: Lab, seed: int) -> dict[str, float]:
    """On how many texts each corruption does what its name says."""
    values: dict[str, float] = {"texts": NOISED} | {
        f"holds/{name}": 0.0 for name in objectives.NOISES
    }
    for number in range(NOISED):
        rng = seeded_generator(seed, number)
        text = torch.arange(10, 10 + int(torch.randint(4, 60, (1,), generator=rng)))
        ends = text[torch.rand(len(text), generator=rng) < 0.15]
        hidden = max(1, round(0.3 * len(text)))
        spans = len(objectives.denoising.poisson_lengths(hidden, seeded_generator(seed, number, 1)))
        for name, noise in objectives.NOISES.items():
            options = {"ends": ends.tolist()} if name == "sentence permutation" else {}
            left = noise(text, seeded_generator(seed, number, 1), vocab=VOCAB, **options)
            values[f"holds/{name}"] += _as_it_says(name, text, left, ends, spans)
    return values
