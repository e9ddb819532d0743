"""The claim of lesson 17: many tasks at once."""

import random
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch

from course_lib.analysis import metrics
from course_lib.data import inputs, text_to_text, tokenizers
from course_lib.data.tokenizers import add_sentinels
from course_lib.families.t5 import t5, t5_lm
from course_lib.model import seq2seq
from course_lib.objectives import collate, losses, seeded_generator
from course_lib.objectives.losses import Batch
from lab.lessons import (
    Lab,
    Made,
    bart,
    experiment,
    fit,
    given,
    linear_config,
    papers,
    probes,
)

SIZES: dict[str, dict[str, int]] = given("t5")["sizes"]
STORIES = 2000  # of the corner
PAPER = papers("17_t5")
RATES: dict[tuple[str, ...], float] = {("inference",): 1e-3}  # learning rates: 3e-3 for all others
TASKS = {  # of lesson 16's corner of the town
    "topic": text_to_text.Wording("topic", labels=("food", "goods", "texts", "animals")),
    "question": text_to_text.WORDINGS["squad"],
    "inference": text_to_text.WORDINGS["rte"],
    "translation": text_to_text.translation("English", "Backwards"),
    "summary": text_to_text.WORDINGS["summary"],
}


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


class Corner:
    """The tasks in tokens, `taught` and, with texts that none of these has, `tests`; a T5 that has
    restored stories.
    """

    def __init__(self, size: dict[str, int], seed: int, device: str = "cpu") -> None:
        rng = random.Random(seed)
        made = [asked(rng) for _ in range(STORIES)]
        texts = [" ".join(row.values()) for each in made for row in each.values()]
        pieces = add_sentinels(tokenizers.train_wordpiece(texts, 400, lowercase=False))
        config = t5(pieces.vocab.size, width=64, layers=2, heads=2, hidden=256, dropout=0.0)
        self.size, self.seed, self.device, self.tokenizer = size, seed, device, pieces
        self.sentinels, self.stories = pieces.vocab.sentinels, pieces.ids(bart.corpus())
        self.frame = inputs.SourceTarget(pieces, config, max_length=64)
        self.taught = dict[str, list[inputs.EncodedRow]]()
        self.tests = dict[str, list[inputs.EncodedRow]]()
        held_out = 2 * size["tests"]
        for name in TASKS:
            new, known = (
                [each[name] for each in made[:held_out]],
                [each[name] for each in made[held_out:]],
            )
            seen = {row["text"] for row in known}
            self.taught[name] = self.frame.rows(known)
            self.tests[name] = self.frame.rows([row for row in new if row["text"] not in seen])
        torch.manual_seed(seed)
        self.young = t5_lm(replace(config, scale=True, init_std=0.05))
        updates = max(2, size["each"] // 4)
        fit(
            self.young,
            Made(self.spans),
            losses.seq2seq,
            linear_config(updates, 3e-3, device=device),
        )

    def spans(self, step: int) -> Batch:
        """The next stories, their spans corrupted."""
        first = step * self.size["rows"]
        numbers = range(first, first + self.size["rows"])
        rows = [self.stories[i % len(self.stories)] for i in numbers]
        ids, real = collate.pad(rows, self.tokenizer.vocab.padding_id).values()
        rng, vocab = seeded_generator(self.seed, 1, step), self.tokenizer.vocab
        return collate.span_corrupted(ids, real, rng, vocab=vocab, sentinels=self.sentinels)

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
        fit(
            model, mixed, losses.seq2seq, linear_config(self.size["each"], rate, device=self.device)
        )
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
