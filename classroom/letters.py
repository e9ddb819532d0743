"""English letter by letter: tables of neighbours, and networks that learn within seconds."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from classroom.lesson import Lesson
from course_lib import data
from course_lib.families.bert import bert, moved_norms
from course_lib.model.config import Rope
from course_lib.model.transformer import Transformer
from course_lib.vocab import Vocab

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LENGTH = 48  # tokens in a row
Input = Callable[[list[int], list[int], int, int], tuple[list[int], list[int]]]


class Letters:
    """The text of a lesson in small letters: nine tenths to train on, the rest to test on.

    `cased` is the test text as it was written. A token is one letter. The forty commonest have an
    id, all others are `[UNK]`.
    """

    def __init__(self, run: Lesson, documents: int) -> None:
        """Args:
        run: says which texts, and seeds the draws.
        documents: maximum number of documents.
        """
        self.run = run
        texts = data.corpus(run.data, n=documents)["text"]
        whole = " ".join(" ".join(texts).split())
        cut = len(whole) * 9 // 10
        self.cased = whole[cut:]
        self.train, self.test = whole[:cut].lower(), whole[cut:].lower()
        self.alphabet = [
            *SPECIAL,
            *sorted(letter for letter, _ in Counter(self.train).most_common(40)),
        ]
        self.number = {letter: i for i, letter in enumerate(self.alphabet)}
        special = tuple(range(len(SPECIAL)))
        self.vocab = Vocab(len(self.alphabet), pad=0, unk=1, cls=2, sep=3, mask=4, special=special)

    def ids(self, text: str) -> Tensor:
        """Int[T]: the number of each letter."""
        return torch.tensor([self.number.get(letter, self.vocab.unk) for letter in text])

    def text(self, ids: Tensor) -> str:
        """The letters of Int[T]; a special token is a dot in the middle of the line."""
        return "".join(self.alphabet[i] if i >= len(SPECIAL) else "·" for i in ids.tolist())

    def pieces(
        self, step: int, length: int = LENGTH, *, rows: int = 32, test: bool = False
    ) -> Tensor:
        """Int[rows length]: pieces from random places of the training or of the test text.

        step: the same step always gives the same pieces.
        """
        ids = self.ids(self.test if test else self.train)
        draw = self.run.generator(step)
        start = torch.randint(len(ids) - length, (rows, 1), generator=draw)
        return ids[start + torch.arange(length)]

    def guessed(self, left: int, right: int, *, words: bool = False) -> float:
        """How many letters (or words) of the test text a table of their neighbours guesses (%).

        The table holds, for each group of neighbours in the training text, what stood most often
        between them.

        Args:
            left: number of neighbours on the left that one sees.
            right: number of neighbours on the right.
            words: whether the units are words, not letters.
        """
        best = self._table(left, right, words)
        gaps = _gaps(_units(self.test, words), left, right)
        return _percent([best.get(around) == middle for around, middle in gaps])

    def seen(self, left: int, right: int, *, words: bool = False) -> float:
        """In how many gaps of the test text the neighbours also stand in the training text (%)."""
        best = self._table(left, right, words)
        gaps = _gaps(_units(self.test, words), left, right)
        return _percent([around in best for around, _ in gaps])

    def _table(self, left: int, right: int, words: bool) -> dict[tuple[str, ...], str]:
        counts: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        for around, middle in _gaps(_units(self.train, words), left, right):
            counts[around][middle] += 1
        return {around: count.most_common(1)[0][0] for around, count in counts.items()}

    def network(self, head: Callable[[Transformer], nn.Module], *, causal: bool) -> nn.Module:
        """A network of two layers of 64 with random weights.

        It is BERT's but for rotary positions and norms before the sublayers, which learn faster.

        Args:
            head: what reads the vectors, `heads.LM` or `heads.MLM`.
            causal: whether each position sees its left side only, as in GPT.
        """
        torch.manual_seed(self.run.seed)
        size = bert(self.vocab.size, width=64, layers=2, heads=4, length=LENGTH, dropout=0.0)
        size = replace(moved_norms(size), position=Rope(), causal=causal, init_std=0.1)
        return head(Transformer(size))

    @torch.no_grad()
    def repair(self, model: nn.Module, text: str, bert_input: Input) -> str:
        """The text, with each `_` replaced by what a model of masked letters says there.

        bert_input: frames two texts; the halves of `text` are the two.
        """
        hidden = torch.tensor([letter == "_" for letter in text])
        ids = self.ids(text.lower()).masked_fill(hidden, SPECIAL.index("[MASK]")).tolist()
        half = len(ids) // 2
        row, segments = bert_input(ids[:half], ids[half:], 2, 3)
        logits = model(torch.tensor([row]), segments=torch.tensor([segments]))[0]  # T V
        said = torch.cat([logits[1 : half + 1], logits[half + 2 : -1]]).argmax(-1)  # at the letters
        answers = self.text(said)
        return "".join(
            a if letter == "_" else letter for letter, a in zip(text, answers, strict=True)
        )


def _units(text: str, words: bool) -> Sequence[str]:
    return text.split() if words else text


def _gaps(units: Sequence[str], left: int, right: int) -> list[tuple[tuple[str, ...], str]]:
    """((the neighbours), the unit between them) for each place that has all its neighbours."""
    places = range(left, len(units) - right)
    return [((*units[i - left : i], *units[i + 1 : i + 1 + right]), units[i]) for i in places]


def _percent(right: Sequence[bool]) -> float:
    return 100 * sum(right) / max(1, len(right))
