"""English letter by letter: tables of neighbours, and networks that learn within seconds."""

from collections import Counter, defaultdict
from collections.abc import Callable
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


class Letters:
    """The text of a lesson in small letters: nine tenths to train on, the rest to test on.

    `cased_train` and `cased` are the two texts as they were written. A token is one letter. The
    forty commonest have an id, all others are `[UNK]`.
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
        self.cased_train, self.cased = whole[:cut], whole[cut:]
        self.train, self.test = self.cased_train.lower(), self.cased.lower()
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

    def guessed(self, left: int, right: int) -> float:
        """How many letters of the test text a table of their neighbours guesses (%).

        The table holds, for each group of neighbours in the training text, what stood most often
        between them.

        Args:
            left: number of neighbours on the left that one sees.
            right: number of neighbours on the right.
        """
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for around, middle in _gaps(self.train, left, right):
            counts[around][middle] += 1
        best = {around: count.most_common(1)[0][0] for around, count in counts.items()}
        hits = [best.get(around) == middle for around, middle in _gaps(self.test, left, right)]
        return 100 * sum(hits) / max(1, len(hits))

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


def _gaps(text: str, left: int, right: int) -> list[tuple[str, str]]:
    """(the neighbours, the letter between them) for each place that has all its neighbours."""
    places = range(left, len(text) - right)
    return [(f"{text[i - left : i]}_{text[i + 1 : i + 1 + right]}", text[i]) for i in places]
