"""Lesson 16: sentences to damage and to repair, a table of neighbours that repairs them, and the
errors that are left.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

import torch

from course_lib import data
from course_lib.errors import CourseError

ENDS = re.compile(r"(?<=[.!?])\s+")  # of sentences
PLAIN = re.compile(r"[A-Z][A-Za-z ,]+[.?!]")  # letters, commas, and a mark at the end
ARTICLES = ("a", "an", "the")
START, END = "<start>", "<end>"
FEW = 60  # with fewer sentences than these, all kinds are taken
Share = tuple[float, float, float]  # a figure, and the ends of its 95% interval


def sentences(source: str, seed: int = 0) -> dict[str, list[str]]:
    """Different sentences of a lesson's texts: {"train": [...], "test": [...]}, shuffled.

    They have 5 to 20 words, at least one article, and no marks but commas and the last one. Texts
    that have hardly any such sentences give all they have. The test sentences are of other
    documents; a source without a test part gives a fifth of its documents.

    Args:
        source: what `data.corpus` opens.
        seed: of the order.
    """
    documents = list(data.corpus(source)["text"])
    try:
        held = list(data.corpus(source, split="test")["text"])
    except CourseError:
        cut = -(-len(documents) // 5)
        documents, held = documents[cut:] or documents, documents[:cut]
    parts = {"train": _split(documents), "test": _split(held)}
    plain = {name: [one for one in part if _is_plain(one)] for name, part in parts.items()}
    if min(map(len, plain.values())) < FEW:
        plain = {name: [one[:200] for one in part] for name, part in parts.items()}
    new = set(plain["test"])
    plain["train"] = [one for one in plain["train"] if one not in new] or plain["train"]
    for part in plain.values():
        random.Random(seed).shuffle(part)
    return plain


def _split(documents: Iterable[str]) -> list[str]:
    lines = (" ".join(line.split()) for text in documents for line in text.split("\n"))
    return [*dict.fromkeys(one for line in lines for one in ENDS.split(line) if words(one))]


def _is_plain(sentence: str) -> bool:
    split = sentence.split()
    is_short = 5 <= len(split) <= 20
    has_article = any(word.lower() in ARTICLES for word in split)
    return is_short and has_article and PLAIN.fullmatch(sentence) is not None


def words(text: str) -> list[str]:
    """Its words and its marks."""
    return re.findall(r"[\w'’-]+|[^\w\s]", text)


def errors(written: str, right: str) -> int:
    """How many words and marks must be put in, taken out or exchanged to get the right text."""
    return edits(words(written), words(right))


def edits(written: Sequence[str], right: Sequence[str]) -> int:
    """The edit distance of two lists of words."""
    row = list(range(len(right) + 1))
    for i, word in enumerate(written, start=1):
        diagonal, row[0] = row[0], i
        for j, wanted in enumerate(right, start=1):
            exchanged = diagonal + (word != wanted)
            diagonal = row[j]
            row[j] = min(row[j] + 1, row[j - 1] + 1, exchanged)
    return row[-1]


def per_hundred(
    written: Sequence[str], right: Sequence[str], beside: Sequence[str] | None = None
) -> Share:
    """Errors in 100 words and marks of the right texts, with the interval of a bootstrap.

    Other sentences of the same kind are imitated by drawing these again and again.

    Args:
        written: the repairs.
        right: the texts as they were.
        beside: other repairs. Then it is their errors minus those of `written`, pair by pair.
    """
    wrong = torch.tensor([errors(*pair) for pair in zip(written, right, strict=True)])
    if beside is not None:
        theirs = torch.tensor([errors(*pair) for pair in zip(beside, right, strict=True)])
        wrong = theirs - wrong
    length = torch.tensor([len(words(text)) for text in right])
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(len(right), (2000, len(right)), generator=generator)
    rates = 100.0 * wrong[drawn].sum(1) / length[drawn].sum(1)
    low, high = rates.quantile(torch.tensor([0.025, 0.975])).tolist()
    return 100.0 * wrong.sum().item() / length.sum().item(), low, high


def marked(written: str, right: str) -> list[tuple[str, str]]:
    """The words and marks of a repair, as boxes for `figures.tokens`: yellow where the right text
    has others.
    """
    repair = words(written)
    blocks = SequenceMatcher(None, repair, words(right), autojunk=False).get_matching_blocks()
    kept = {block.a + i for block in blocks for i in range(block.size)}
    return [(word, "plain" if i in kept else "yellow") for i, word in enumerate(repair)]


class Neighbours:
    """A table that repairs texts from which something was left out.

    For each gap between two words it has counted what stood there in whole texts: nothing, an
    article, a comma. It takes what is likeliest between these two. What has been seen seldom is
    estimated from either neighbour alone. A word gets the capital that it had most often.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], weight: float = 2.0) -> None:
        """Args:
        pairs: damaged and whole texts. A pair in which words changed their order is passed over.
        weight: how many sightings the estimate from single neighbours counts for.
        """
        self.weight = weight
        self.between: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self.after: dict[str, Counter[str]] = defaultdict(Counter)
        self.before: dict[str, Counter[str]] = defaultdict(Counter)
        self.all: Counter[str] = Counter()
        self.cases: dict[str, Counter[str]] = defaultdict(Counter)
        for damaged, whole in pairs:
            self._count(damaged.lower().split(), words(whole))

    def _count(self, kept: Sequence[str], whole: Sequence[str]) -> None:
        fillers = [""]
        found = 0
        for place, word in enumerate(whole):
            if found < len(kept) and word.lower() == kept[found]:
                if place:
                    self.cases[kept[found]][word] += 1
                found += 1
                fillers.append("")
            else:
                fillers[-1] = f"{fillers[-1]} {word.lower()}".strip()
        if found < len(kept):
            return
        framed = [START, *kept, END]
        for left, right, filler in zip(framed, framed[1:], fillers, strict=False):
            self.between[left, right][filler] += 1
            self.after[left][filler] += 1
            self.before[right][filler] += 1
            self.all[filler] += 1

    def _filler(self, left: str, right: str) -> str:
        """What is likeliest between two words."""
        total = self.all.total()
        expected = {}
        for filler, count in self.all.items():
            share = count / total
            p_left, p_right = (
                (side[filler] + self.weight * share) / (side.total() + self.weight)
                for side in (self.after[left], self.before[right])
            )
            expected[filler] = p_left * p_right / share
        whole = sum(expected.values())
        seen = self.between[left, right]
        return max(
            expected,
            key=lambda filler: seen[filler] + self.weight * expected[filler] / whole,
            default="",
        )

    def repair(self, damaged: str) -> str:
        """The damaged text with what the table puts into its gaps."""
        framed = [START, *damaged.split(), END]
        written: list[str] = []
        for left, right in pairwise(framed):
            written += self._filler(left, right).split()
            if right != END:
                cases = self.cases[right].most_common(1)
                written.append(cases[0][0] if cases else right)
        text = re.sub(r" ([^\w\s])", r"\1", " ".join(written))
        return text[:1].upper() + text[1:]
