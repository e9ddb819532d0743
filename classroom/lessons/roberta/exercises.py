"""Lesson 12: rows packed with whole sentences, whole words, an encoder's weights, disentangled
attention.
"""

import math
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Generator, Tensor

from classroom.checks.base import normal
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
        (100, 8, 8, 3, False),
        (100, 8, 4, 3, False),
        (50, 16, 16, 5, True),
        (30_000, 768, 128, 12, True),
    ]
)
def encoder_weights(vocab: int, width: int, embed: int, layers: int, shared: bool) -> int:
    """Numbers in the token table, its projection and the blocks."""
    projection = embed * width if embed != width else 0
    attention, feed_forward = 4 * width**2, 8 * width**2
    blocks = 1 if shared else layers
    return vocab * embed + projection + blocks * (attention + feed_forward)


def _apart(
    g: Generator, length: int, width: int, clip: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    q, k = normal(g, 2, length, width)
    qr, kr = normal(g, 2, 2 * clip, width)
    return q, k, qr, kr, clip


@exercise(lambda g: [_apart(g, 6, 3, 2), _apart(g, 5, 4, 8), _apart(g, 7, 2, 1)])
def disentangled_scores(q: Tensor, k: Tensor, qr: Tensor, kr: Tensor, clip: int) -> Tensor:
    """(q k' + q kr' at i - j + k qr' at i - j) / sqrt(3 D), Float[T T]."""
    place = torch.arange(len(q))
    delta = (place[:, None] - place).clamp(-clip, clip - 1) + clip
    to_place, from_place = (q @ kr.T).gather(1, delta), (k @ qr.T).gather(1, delta.T).T
    return (q @ k.T + to_place + from_place) / math.sqrt(3 * q.shape[1])
