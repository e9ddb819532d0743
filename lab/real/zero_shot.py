"""What a language model does without training: which of two texts is likelier.

Three tasks: the good sentence of a minimal pair (BLiMP), praise or blame (SST-2), what a pronoun
means (Winograd schemas). The opponents are counts of words of the same training text.
"""

import io
import json
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from course_lib import data
from course_lib.data.tokenizers import Tokenizer
from course_lib.generation import prompting
from course_lib.model import heads
from lab.real.ngrams import Counts
from lab.real.text import detokenized

DISTANCE = 5  # words up to which words stand together


class Choice(NamedTuple):
    """Two texts before, and two continuations. The right pair's number is `label`."""

    prompts: tuple[str, str]
    continuations: tuple[str, str]
    label: int


@dataclass(frozen=True)
class Sentiment:
    """How praise and blame are asked for.

    Attributes:
        prompt: the text stands at {text}.
        answers: the words of blame and of praise.
    """

    prompt: str
    answers: tuple[str, str]


def minimal_pairs(archive: Path, number: int, parts: int, most: int) -> list[Choice]:
    """One of several parts of BLiMP, at most so many pairs of each paradigm."""
    found = []
    with zipfile.ZipFile(archive) as files:
        names = [name for name in files.namelist() if name.endswith(".jsonl")]
        for name in sorted(name for name in names if "__MACOSX" not in name):
            lines = io.TextIOWrapper(files.open(name), "utf-8").readlines()
            for line in lines[number % parts :: parts][:most]:
                row = json.loads(line)
                pair = (row["sentence_good"], row["sentence_bad"])
                found.append(Choice(("", ""), pair, 0))
    return found


def reviews(folder: Path, split: str) -> list[tuple[str, int]]:
    """SST-2's sentences as people write them, with 1 for praise."""
    rows = data.task(folder, split=split, columns={"text": 0, "label": 1})
    return [(detokenized(row["text"]), int(row["label"])) for row in rows]


def schemas(file: Path) -> list[Choice]:
    """Winograd schemas: the pronoun is replaced by each name; what follows is scored.

    That is the "partial" score of Trinh and Le 2018, section 3.2.
    """
    found = []
    for block in re.split(r"\n\s*\n", file.read_text("utf-8").strip()):
        sentence, pronoun, names, answer = block.split("\n")[:4]
        first, second = (_inside(name) for name in names.split(","))
        place = _pronoun(sentence, pronoun.strip(), (first, second))
        before, after = sentence[: place.start()], sentence[place.end() :]
        rest = " " + " ".join(after.split())
        prompts = (before + first, before + second)
        label = int(_inside(answer) == second)
        found.append(Choice(prompts, (rest, rest), label))
    return found


def _inside(name: str) -> str:
    """A name as it stands inside a sentence: "the" is written small."""
    name = " ".join(name.split())
    return re.sub(r"^(The|A|An|My|Our|His|Her|Their) ", lambda found: found[0].lower(), name)


def _pronoun(sentence: str, pronoun: str, names: Sequence[str]) -> re.Match[str]:
    """Where the pronoun stands: the first time behind both names, or the last time of all."""
    places = list(re.finditer(rf"(?<!\w){re.escape(pronoun)}(?!\w)", sentence))
    lower = sentence.lower()
    end = max(lower.find(name.lower()) + len(name) for name in names)
    return next((place for place in places if place.start() >= end), places[-1])


def accuracy(values: Sequence[Sequence[float]], labels: Sequence[int]) -> float:
    """The share of rows whose right choice has the larger value; equal ones count half."""
    rows = np.array(values)
    right = rows[np.arange(len(rows)), labels]
    wrong = rows[np.arange(len(rows)), 1 - np.array(labels)]
    return float(((right > wrong) + 0.5 * (right == wrong)).mean())


def likelihoods(
    model: heads.LM, tokenizer: Tokenizer, choices: Sequence[Choice]
) -> list[list[float]]:
    """log P(continuation | prompt) of both choices."""
    prompts = [prompt for choice in choices for prompt in choice.prompts]
    texts = [[text] for choice in choices for text in choice.continuations]
    scores = [row[0].logprob for row in prompting.score(model, tokenizer, prompts, texts)]
    return [scores[i : i + 2] for i in range(0, len(scores), 2)]


def sentiments(
    model: heads.LM, tokenizer: Tokenizer, asked: Sentiment, texts: Sequence[str]
) -> list[list[float]]:
    """log P(answer | text) - log P(answer | no text), for blame and praise.

    The second part takes away that one word is more frequent (Brown et al. 2020, section 2.4).
    """
    answers = [f" {answer}" for answer in asked.answers]
    prompts = [asked.prompt.format(text=text) for text in ["", *texts]]
    scores = prompting.score(model, tokenizer, prompts, [answers] * len(prompts))
    bare, *rows = [[score.logprob for score in row] for row in scores]
    return [[a - b for a, b in zip(row, bare, strict=True)] for row in rows]


def counted(counts: Counts, choices: Sequence[Choice]) -> dict[str, list[list[float]]]:
    """Values of choices by word frequencies, and by pairs of neighbouring words."""
    found: dict[str, list[list[float]]] = {"unigram": [], "bigram": []}
    for choice in choices:
        pairs = list(zip(choice.prompts, choice.continuations, strict=True))
        texts = [prompt + text for prompt, text in pairs]
        frequency = [float(np.log(counts.share[counts.encode(text)]).sum()) for text in texts]
        found["unigram"].append(frequency)
        found["bigram"].append([counts.sentence(text) for text in texts])
    return found


def associations(
    counts: Counts, answers: tuple[str, str], texts: Sequence[str]
) -> list[list[float]]:
    """How often a text's words stand near the words of blame and of praise (Turney 2002)."""
    numbers = [counts.numbers[answer] for answer in answers]
    rows = []
    for text in texts:
        ids = counts.encode(text)
        values = counts.associations(numbers, ids, DISTANCE, before=True)
        values += counts.associations(numbers, ids, DISTANCE, before=False)
        rows.append(values.tolist())
    return rows
