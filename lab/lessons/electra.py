"""The experiment of lesson 14: what a discriminator learns from, and from which fakes.

`distilbert-english` fills hidden tokens, and stays as it is. A discriminator on `bert-english`'s
body learns for a short time which tokens were replaced. Then it points at the changed word of
sentences that it has not read. The trainings differ in which tokens the loss asks about, and in the
generator's temperature. All trainings of a seed at one temperature read the same fakes.
"""

from collections.abc import Callable
from copy import deepcopy
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from classroom import odd_words
from course_lib import data, zoo
from course_lib.model import heads
from course_lib.model.modes import evaluating
from course_lib.objectives import losses, mask_tokens, replace_tokens, sample, seeded_generator
from course_lib.objectives.collate import pad_to_longest
from course_lib.objectives.losses import Batch
from lab.lessons import Lab, Made, experiment, fit, given, linear_config

GENERATOR = "distilbert-english"
BODY = "bert-english"
GIVEN = given("electra")
SIZES: dict[str, dict[str, Any]] = GIVEN["sizes"]
MASKS = (1.0, 0.0, 0.0)  # all hidden tokens become [MASK]
LONGEST = 64  # tokens of a sentence


class Training(NamedTuple):
    """Which tokens the loss asks about, a key of the batches, and the generator's temperature."""

    asked: str = "attention_mask"
    temperature: float = 1.0


TRAININGS = {
    "all tokens": Training(),
    "15% of the tokens": Training(asked="few"),
    "hidden tokens": Training(asked="hidden"),
    "temperature 0.5": Training(temperature=0.5),
    "temperature 2": Training(temperature=2.0),
    "temperature 4": Training(temperature=4.0),
}


class Test(NamedTuple):
    """Sentences with one word changed in each, and where."""

    ids: Tensor  # Int[B T]
    real: Tensor  # Bool[B T]
    chosen: Tensor  # Bool[B T]


@cache
def sentences(split: str, documents: int) -> list[str]:
    """Sentences of the course's own texts, in a random order."""
    texts = odd_words.sentences(data.corpus("text", split=split, n=documents)["text"])
    order = torch.randperm(len(texts), generator=seeded_generator(0)).tolist()
    return [texts[i] for i in order]


def filled(ids: Tensor, real: Tensor, temperature: float, *keys: int) -> Batch:
    """Sentences in which the generator has filled hidden tokens, and what a loss may ask about."""
    vocab = zoo.load(BODY).tokenizer.vocab
    rng = seeded_generator(*keys)
    options: dict[str, Any] = {"vocab": vocab, "attention_mask": real}
    hidden = mask_tokens(ids, rng, rate=GIVEN["rate"], parts=MASKS, **options)
    generator = zoo.load(GENERATOR).model
    with evaluating(generator), torch.no_grad():
        logits = generator(hidden.ids, attention_mask=real, loss_mask=hidden.loss_mask)
    seen, replaced = replace_tokens(ids, hidden.loss_mask, sample(logits / temperature, rng))
    few = mask_tokens(ids, rng, rate=0.15, **options).loss_mask
    batch = {"ids": seen, "attention_mask": real, "replaced": replaced}
    return batch | {"hidden": hidden.loss_mask, "few": few}


@cache
def batches(scale: str, seed: int, temperature: float) -> list[Batch]:
    """The batches of a training."""
    size = SIZES[scale]
    tokenizer: Any = zoo.load(BODY).tokenizer
    texts = sentences("train", size["documents"])
    order = torch.randperm(len(texts), generator=seeded_generator(seed, 0)).tolist()
    made = []
    for step in range(size["steps"]):
        first = step * size["rows"]
        some = [texts[order[i % len(texts)]] for i in range(first, first + size["rows"])]
        rows = tokenizer.ids(some, max_length=LONGEST)
        ids, real = pad_to_longest(rows, tokenizer.vocab.padding_id).values()
        made.append(filled(ids, real, temperature, seed, 1, step))
    return made


def trained(scale: str, seed: int, training: Training) -> nn.Module:
    """A discriminator after a training."""
    torch.manual_seed(seed)
    model = heads.RTD(deepcopy(zoo.load(BODY).model.stack))

    def detection(model: nn.Module, batch: Batch) -> Tensor:
        logits = model(batch["ids"], attention_mask=batch["attention_mask"])
        return losses.detection_loss(logits, batch["replaced"], batch[training.asked])

    made = batches(scale, seed, training.temperature)
    fit(
        model,
        Made(made.__getitem__),
        detection,
        linear_config(len(made), GIVEN["rate of learning"]),
    )
    return model


def verdicts(model: nn.Module, ids: Tensor, real: Tensor) -> Tensor:
    """A discriminator's logits. Float[B T]."""
    logits: Tensor = model(ids, attention_mask=real)
    return logits


def tests(scale: str, seed: int) -> dict[str, Test]:
    """Sentences that nobody has read, one word of each changed in several ways."""
    size = SIZES[scale]
    tokenizer: Any = zoo.load(BODY).tokenizer
    rng = seeded_generator(seed, 2)
    texts = sentences("test", size["documents"])[: size["tests"]]
    one = odd_words.choose_one(tokenizer, texts, rng, LONGEST)
    generator = zoo.load(GENERATOR).model
    with evaluating(generator), torch.no_grad():
        gaps = one.ids.masked_fill(one.chosen, tokenizer.vocab.mask)
        guesses = generator(gaps, attention_mask=one.real, loss_mask=one.chosen)  # B V
    counts = odd_words.frequencies(tokenizer, sentences("train", size["documents"]))
    stood = one.ids[one.chosen][:, None]
    found = {}
    for kind, logits in {
        "by frequency": counts.log().expand_as(guesses),
        "generator, temperature 2": guesses / 2,
        "generator, temperature 1": guesses,
    }.items():
        drawn = sample(logits.scatter(1, stood, -torch.inf), rng)
        found[kind] = Test(replace_tokens(one.ids, one.chosen, drawn).ids, one.real, one.chosen)
    return found


@experiment("every-token")
def every_token(lab: Lab, seed: int) -> dict[str, float]:
    """The share of changed words that is found, by each training and by readers that need none."""
    scale = lab.plan.scale
    asked = tests(scale, seed)
    bert, tokenizer, _ = zoo.load(BODY)
    pairs = odd_words.Pairs(tokenizer, sentences("train", SIZES[scale]["documents"]))
    values = {}

    def judge(name: str, suspicion: Callable[[Tensor, Tensor], Tensor]) -> None:
        for kind, test in asked.items():
            found = odd_words.points_at(suspicion(test.ids, test.real), test.real, test.chosen)
            values[f"{kind}/{name}"] = float(found.float().mean())

    judge("pairs of words", lambda ids, real: pairs(ids))
    with evaluating(bert), torch.no_grad():
        judge("BERT's own probability", lambda ids, real: odd_words.surprise(bert, ids, real))
    for name, training in TRAININGS.items():
        model = trained(scale, seed, training)
        with torch.no_grad():
            judge(name, partial(verdicts, model))
    real = asked["by frequency"].real
    values["guessing"] = float((1 / (real.sum(1) - 2)).mean())
    return values
