"""Lesson 12: whole words, rows packed with whole sentences, masks that come back or not."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Generator, Tensor

from classroom.checks.exercise import exercise


def _cut_anywhere(
    sentences: Sequence[Sequence[int]], length: int, cls: int, sep: int
) -> list[list[int]]:
    tokens = [token for sentence in sentences for token in sentence]
    return [[cls, *tokens[i : i + length - 2], sep] for i in range(0, len(tokens), length - 2)]


@exercise(
    [
        ([[11, 12, 13], [14, 15], [16, 17, 18, 19], [20], [21, 22]], 8, 2, 3),
        ([[11, 12, 13, 14], [15, 16, 17, 18], [19, 20, 21, 22, 23, 24]], 8, 2, 3),
        ([[11, 12], [13, 14], [15, 16], [17, 18], [19]], 6, 2, 3),
        ([[11, 12, 13]], 9, 2, 3),
    ],
)
def pack_sentences(
    sentences: Sequence[Sequence[int]], length: int, cls: int, sep: int
) -> list[list[int]]:
    """Rows [cls] ... [sep], each with as many whole sentences as fit."""
    room = length - 2
    rows: list[list[int]] = []
    row: list[int] = []
    for sentence in sentences:
        if row and len(row) + len(sentence) > room:
            rows.append([cls, *row, sep])
            row = []
        row = [*row, *sentence]
    return [*rows, [cls, *row, sep]]


_PIECES = ["Mar", "##a", "gave", "The", "##od", "##or", "the", "lamp", "##s", "."]


@exercise([(_PIECES, chosen) for chosen in ([4], [0, 6], [8, 3], [5, 4, 2], [])])
def mask_words(pieces: Sequence[str], chosen: Sequence[int]) -> list[str]:
    """[MASK] at every piece of each word that a chosen position belongs to."""
    # of each piece's word, from 1
    numbers = list(accumulate(not piece.startswith("##") for piece in pieces))
    hidden = {numbers[i] for i in chosen}
    return ["[MASK]" if numbers[j] in hidden else piece for j, piece in enumerate(pieces)]


@exercise(
    [
        ((3, 40), 7, 3),
        ((3, 40), 2, 1),
        ((50,), 5, None),
        ((50,), 10, 10),
        ((2, 30), 0, None),
    ]
)
def draw_mask(shape: tuple[int, ...], epoch: int, copies: int | None) -> Tensor:
    """Bool of this shape, True at hidden places; None draws a new mask for every epoch."""
    number = epoch if copies is None else epoch % copies
    rng = Generator().manual_seed(number)
    return torch.rand(shape, generator=rng) < 0.15
