"""Words to guess: gaps in a text, who fills them, and a network whose top is new."""

import copy
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from classroom.lesson import Lesson
from course_lib.data.tokenizers import Tokenizer
from course_lib.model import heads
from course_lib.model.transformer import Transformer


class Gap(NamedTuple):
    """A word that was taken out of a text, and the text on both sides of it."""

    left: str
    word: str
    right: str


def word_gaps(
    text: str, tokenizers: Sequence[Tokenizer], *, every: int = 20, side: int = 20
) -> list[Gap]:
    """Gaps in a text, at words that are one token for each of the tokenizers.

    Args:
        text: the text.
        tokenizers: those of the models that will be asked.
        every: number of words from one place to the next.
        side: number of words that are kept on each side.
    """
    words = text.split()
    gaps = []
    for i in range(side, len(words) - side, every):
        if words[i].isalpha() and all(len(_ids(words[i], one)) == 1 for one in tokenizers):
            left, right = words[i - side : i], words[i + 1 : i + 1 + side]
            gaps.append(Gap(" ".join(left), words[i], " ".join(right)))
    return gaps


@torch.no_grad()
def filled(
    model: nn.Module, tokenizer: Tokenizer, gaps: Sequence[Gap], *, left_only: bool = False
) -> float:
    """How many of the gaps a model fills rightly with its likeliest token (%).

    A model whose tokenizer has a mask reads both sides. Any other reads up to the gap and says the
    next token. With `left_only` every model does so.
    """
    rows: dict[int, list[tuple[list[int], int, int]]] = defaultdict(list)  # by length
    for gap in gaps:
        ids, at = _asked(gap, tokenizer, left_only)
        rows[len(ids)].append((ids, at, _ids(gap.word, tokenizer)[0]))
    model.eval()
    right = 0
    for group in rows.values():
        inputs, places, words = map(torch.tensor, zip(*group, strict=True))  # B T, B and B
        asked = torch.arange(inputs.shape[1]) == places[:, None]
        logits = heads.word_logits(model, inputs, loss_mask=asked)  # B V
        right += int((logits.argmax(-1) == words).sum())
    return 100 * right / max(1, len(gaps))


def counted(text: str, gaps: Sequence[Gap]) -> float:
    """How many of the gaps the counts of a text fill rightly (%).

    The counts say what stood between the same two neighbours. If they were never seen together, the
    shares behind the left one and before the right one are added.
    """
    words = text.split()
    both: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    behind: dict[str, Counter[str]] = defaultdict(Counter)
    before: dict[str, Counter[str]] = defaultdict(Counter)
    for left, word, right in zip(words, words[1:], words[2:], strict=False):
        both[left, right][word] += 1
        behind[left][word] += 1
        before[right][word] += 1
    right_ones = 0
    for gap in gaps:
        left, right = gap.left.split()[-1], gap.right.split()[0]
        seen = [both[left, right]] if (left, right) in both else [behind[left], before[right]]
        shares: dict[str, float] = defaultdict(float)
        for counts in seen:
            for word, count in counts.items():
                shares[word] += count / counts.total()
        right_ones += bool(shares) and max(shares, key=shares.__getitem__) == gap.word
    return 100 * right_ones / max(1, len(gaps))


def token_pieces(
    text: str, tokenizer: Tokenizer, run: Lesson, steps: int, *, rows: int = 12, length: int = 32
) -> list[torch.Tensor]:
    """A batch Int[rows length] for each step: pieces from random places of a text."""
    ids = torch.tensor(tokenizer.encode(text, special=False).ids)
    pieces = []
    for step in range(steps):
        start = torch.randint(len(ids) - length, (rows, 1), generator=run.generator(step))
        pieces.append(ids[start + torch.arange(length)])
    return pieces


def new_top(model: nn.Module, seed: int = 0) -> nn.Module:
    """A copy of a model whose last layer and whatever stands above it begin with random matrices.

    The lower layers and the token vectors stay as they are, and training does not change them.
    """
    new: Any = copy.deepcopy(model).requires_grad_(False)
    stack = cast(Transformer, new.stack)
    torch.manual_seed(seed)
    above = [part for name, part in new.named_children() if name != "stack"]
    for part in (stack.blocks[-1], stack.norm, *above):
        part.requires_grad_(True)
        for layer in part.modules():
            if isinstance(layer, nn.Linear):
                heads.initialize(stack, layer)
    return cast(nn.Module, new)


def _ids(word: str, tokenizer: Tokenizer) -> list[int]:
    return list(tokenizer.encode(f" {word}", special=False).ids)


def _asked(gap: Gap, tokenizer: Tokenizer, left_only: bool) -> tuple[list[int], int]:
    """The ids that a model reads, and the position that must say the word."""
    vocab = tokenizer.vocab
    if vocab.mask is None or left_only:
        first = vocab.bos if vocab.mask is None else vocab.cls
        ids = [cast(int, first), *tokenizer.encode(gap.left, special=False).ids]
        return ids, len(ids) - 1
    sign = tokenizer.decode([vocab.mask], special=True).strip()
    ids = list(tokenizer.encode(f"{gap.left} {sign} {gap.right}").ids)
    return ids, ids.index(vocab.mask)
