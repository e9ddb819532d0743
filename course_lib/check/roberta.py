"""Checks of lesson 12: rows packed with whole sentences, whole words, an encoder's weights, disentangled attention."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from course_lib.check.base import Case, Mistake, Verdict, compare, report, rng

MASK = "[MASK]"
Sentences = Sequence[Sequence[int]]
Rows = list[list[int]]


def pack_sentences(fn: object) -> Verdict:
    """`fn(sentences, length, cls, sep)`: rows [cls] ... [sep], each with as many whole sentences as fit."""
    texts: list[list[list[int]]] = [
        [[11, 12, 13], [14, 15], [16, 17, 18, 19], [20], [21, 22]],
        [[11, 12, 13, 14], [15, 16, 17, 18], [19, 20, 21, 22, 23, 24]],
        [[11, 12], [13, 14], [15, 16], [17, 18], [19]],
        [[11, 12, 13]],
    ]
    cases: list[Case] = [
        {"sentences": text, "length": length, "cls": 2, "sep": 3}
        for text, length in zip(texts, (8, 8, 6, 9), strict=True)
    ]

    def test() -> str:
        compare(fn, cases, _pack, _PACK_MISTAKES)
        return "rows that are just full, rows with room left, a sentence as long as a row, a single sentence"

    return report("pack_sentences", test)


def mask_words(fn: object) -> Verdict:
    """`fn(pieces, chosen)`: [MASK] at every piece of each word that a chosen position belongs to."""
    text = ["Mar", "##a", "gave", "The", "##od", "##or", "the", "lamp", "##s", "."]
    cases: list[Case] = [{"pieces": text, "chosen": chosen} for chosen in ([4], [0, 6], [8, 3], [5, 4, 2], [])]

    def test() -> str:
        compare(fn, cases, _mask_words, _WORD_MISTAKES)
        return "the first, a middle and the last piece of a word drawn, words in one piece, and nothing drawn"

    return report("mask_words", test)


def encoder_weights(fn: object) -> Verdict:
    """`fn(vocab, width, embed, layers, shared)`: numbers in the token table, its projection and the blocks."""
    cases: list[Case] = [
        {"vocab": v, "width": d, "embed": e, "layers": n, "shared": shared}
        for v, d, e, n, shared in (
            (100, 8, 8, 3, False), (100, 8, 4, 3, False), (50, 16, 16, 5, True), (30_000, 768, 128, 12, True),
        )
    ]  # fmt: skip

    def test() -> str:
        compare(fn, cases, _weights, _WEIGHT_MISTAKES)
        return "token vectors of the model's width and narrower ones, blocks of their own and one for all"

    return report("encoder_weights", test)


def disentangled_scores(fn: object) -> Verdict:
    """`fn(q, k, qr, kr, clip)`: (q k' + q kr' at i - j + k qr' at i - j) / sqrt(3 D), Float[T T]."""
    cases: list[Case] = []
    for seed, (length, width, clip) in enumerate(((6, 3, 2), (5, 4, 8), (7, 2, 1))):
        q, k = (torch.randn(length, width, generator=rng(10 * seed + n)) for n in (0, 1))
        qr, kr = (torch.randn(2 * clip, width, generator=rng(10 * seed + n)) for n in (2, 3))
        cases.append({"q": q, "k": k, "qr": qr, "kr": kr, "clip": clip})

    def test() -> str:
        compare(fn, cases, _disentangled, _SCORE_MISTAKES)
        return "distances clipped at 1, at 2 and not at all, three widths"

    return report("disentangled_scores", test)


# --- rows -------------------------------------------------------------------------------------------------------


def _pack(sentences: Sentences, length: int, cls: int, sep: int) -> Rows:
    rows: Rows = []
    row: list[int] = []
    for sentence in sentences:
        if row and len(row) + len(sentence) > length - 2:
            rows.append([cls, *row, sep])
            row = []
        row = [*row, *sentence]
    return [*rows, [cls, *row, sep]] if row else rows


def _stream(sentences: Sentences, length: int, cls: int, sep: int) -> Rows:
    """Cut wherever a row is full."""
    tokens = [token for sentence in sentences for token in sentence]
    return [[cls, *tokens[i : i + length - 2], sep] for i in range(0, len(tokens), length - 2)]


def _lost(sentences: Sentences, length: int, cls: int, sep: int) -> Rows:
    """The sentence that did not fit is forgotten."""
    rows: Rows = []
    row: list[int] = []
    for sentence in sentences:
        if row and len(row) + len(sentence) > length - 2:
            rows.append([cls, *row, sep])
            row = []
        else:
            row = [*row, *sentence]
    return [*rows, [cls, *row, sep]] if row else rows


def _between(sentences: Sentences, length: int, cls: int, sep: int) -> Rows:
    """A [SEP] behind every sentence."""
    rows: Rows = []
    row: list[int] = []
    for sentence in sentences:
        if row and len(row) + len(sentence) + 1 > length - 1:
            rows.append([cls, *row])
            row = []
        row = [*row, *sentence, sep]
    return [*rows, [cls, *row]] if row else rows


_PACK_MISTAKES = [
    Mistake("The last row is missing: after the loop it is still open.", lambda s, n, c, e: _pack(s, n, c, e)[:-1]),
    Mistake(
        "The rows are too long: `length` counts [CLS] and [SEP], so length - 2 places are left for text.",
        lambda s, n, c, e: _pack(s, n + 2, c, e),
    ),
    Mistake(
        "Only one of the two special tokens is counted; length - 2 places are left for text.",
        lambda s, n, c, e: _pack(s, n + 1, c, e),
    ),
    Mistake(
        "A row may be filled to the last place: a sentence that fits exactly goes in (> and not >=).",
        lambda s, n, c, e: _pack(s, n - 1, c, e),
    ),
    Mistake("Sentences are cut where a row is full; a row holds whole sentences only.", _stream),
    Mistake("The sentence that did not fit is lost; it opens the next row.", _lost),
    Mistake(
        "Every sentence has a row of its own; as many as fit share one.",
        lambda s, n, c, e: [[c, *sentence, e] for sentence in s],
    ),
    Mistake("A row ends with [SEP]; it is missing.", lambda s, n, c, e: [row[:-1] for row in _pack(s, n, c, e)]),
    Mistake("A row begins with [CLS]; it is missing.", lambda s, n, c, e: [row[1:] for row in _pack(s, n, c, e)]),
    Mistake(
        "[CLS] and [SEP] are missing; length - 2 leaves room for them.",
        lambda s, n, c, e: [row[1:-1] for row in _pack(s, n, c, e)],
    ),
    Mistake("There is a [SEP] behind every sentence; inside a document only the row's end has one.", _between),
    Mistake("[CLS] and [SEP] are exchanged.", lambda s, n, c, e: _pack(s, n, e, c)),
]


# --- words ------------------------------------------------------------------------------------------------------


def _numbers(pieces: Sequence[str]) -> list[int]:
    number, numbers = -1, []
    for piece in pieces:
        number += not piece.startswith("##")
        numbers.append(number)
    return numbers


def _mask_words(pieces: Sequence[str], chosen: Sequence[int]) -> list[str]:
    numbers = _numbers(pieces)
    hidden = {numbers[i] for i in chosen}
    return [MASK if n in hidden else piece for n, piece in zip(numbers, pieces, strict=True)]


def _at(pieces: Sequence[str], places: set[int]) -> list[str]:
    return [MASK if i in places else piece for i, piece in enumerate(pieces)]


def _onward(pieces: Sequence[str], chosen: Sequence[int]) -> list[str]:
    """From the drawn piece to the word's end."""
    numbers = _numbers(pieces)
    return _at(pieces, {j for i in chosen for j in range(i, len(pieces)) if numbers[j] == numbers[i]})


def _backward(pieces: Sequence[str], chosen: Sequence[int]) -> list[str]:
    """From the word's first piece to the drawn one."""
    numbers = _numbers(pieces)
    return _at(pieces, {j for i in chosen for j in range(i + 1) if numbers[j] == numbers[i]})


def _merged(pieces: Sequence[str], chosen: Sequence[int]) -> list[str]:
    """One [MASK] a word."""
    whole = _mask_words(pieces, chosen)
    first = [not piece.startswith("##") for piece in pieces]
    return [piece for piece, opens in zip(whole, first, strict=True) if opens or piece != MASK]


def _as_words(pieces: Sequence[str], chosen: Sequence[int]) -> list[str]:
    """The positions taken for numbers of words."""
    return [MASK if n in set(chosen) else piece for n, piece in zip(_numbers(pieces), pieces, strict=True)]


def _kept_marks(pieces: Sequence[str], chosen: Sequence[int]) -> list[str]:
    masked = _mask_words(pieces, chosen)
    return [
        "##" + MASK if new == MASK and old.startswith("##") else new for new, old in zip(masked, pieces, strict=True)
    ]


_WORD_MISTAKES = [
    Mistake("Only the drawn pieces are hidden; their words have other pieces.", lambda p, c: _at(p, set(c))),
    Mistake("The pieces in front of the drawn one stay in view; a word is hidden from its first piece on.", _onward),
    Mistake("The pieces behind the drawn one stay in view; a word goes on up to its last ## piece.", _backward),
    Mistake("One [MASK] stands for the whole word; every piece keeps its place and gets its own.", _merged),
    Mistake("`chosen` holds positions of pieces, not numbers of words.", _as_words),
    Mistake("Only the first word drawn is hidden; every chosen position counts.", lambda p, c: _mask_words(p, c[:1])),
    Mistake(
        "Only the last word drawn is hidden; collect all of them before you write.", lambda p, c: _mask_words(p, c[-1:])
    ),
    Mistake(
        "What was chosen stays, and everything else is hidden.",
        lambda p, c: [piece if new == MASK else MASK for new, piece in zip(_mask_words(p, c), p, strict=True)],
    ),
    Mistake("The mask has no ##: it is [MASK] at every piece.", _kept_marks),
    Mistake("Nothing is hidden.", lambda p, c: list(p)),
]


# --- weights ----------------------------------------------------------------------------------------------------


def _weights(vocab: int, width: int, embed: int, layers: int, shared: bool, *, square: int = 12) -> int:
    table = vocab * embed + (embed * width if embed != width else 0)
    return table + square * width * width * (1 if shared else layers)


def _less(change: Callable[[int, int, int, int, bool], int]) -> Callable[..., int]:
    """The right number plus a slip's."""
    return lambda v, d, e, n, shared: _weights(v, d, e, n, shared) + change(v, d, e, n, shared)


_WEIGHT_MISTAKES = [
    Mistake(
        "The projection from `embed` to `width` is missing where they differ.",
        _less(lambda v, d, e, n, shared: -e * d if e != d else 0),
    ),
    Mistake(
        "Where `embed` equals `width` there is no projection.",
        _less(lambda v, d, e, n, shared: e * d if e == d else 0),
    ),
    Mistake("A shared block is counted once, however often it is applied.",
            lambda v, d, e, n, shared: _weights(v, d, e, n, False)),
    Mistake("Only shared=True makes one block; otherwise every layer has its own.",
            lambda v, d, e, n, shared: _weights(v, d, e, n, True)),
    Mistake("`shared` is the other way round.", lambda v, d, e, n, shared: _weights(v, d, e, n, not shared)),
    Mistake("The feed-forward is missing: two matrices of width by 4 * width.",
            lambda v, d, e, n, shared: _weights(v, d, e, n, shared, square=4)),
    Mistake("A block has 12 width * width: four matrices of attention, and the feed-forward's two of "
            "width by 4 * width. Four of the twelve are missing.",
            lambda v, d, e, n, shared: _weights(v, d, e, n, shared, square=8)),
    Mistake("Attention has four matrices (query, key, value, output); one is missing.",
            lambda v, d, e, n, shared: _weights(v, d, e, n, shared, square=11)),
    Mistake("The table's vectors have `embed` numbers, not `width`.",
            _less(lambda v, d, e, n, shared: v * (d - e))),
    Mistake("The token table is missing.", _less(lambda v, d, e, n, shared: -v * e)),
]  # fmt: skip


# --- scores -----------------------------------------------------------------------------------------------------


def _delta(length: int, clip: int) -> Tensor:
    place = torch.arange(length)
    return (place[:, None] - place).clamp(-clip, clip - 1) + clip


def _terms(q: Tensor, k: Tensor, qr: Tensor, kr: Tensor, delta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return q @ k.T, (q @ kr.T).gather(1, delta), (k @ qr.T).gather(1, delta.T).T


def _disentangled(q: Tensor, k: Tensor, qr: Tensor, kr: Tensor, clip: int) -> Tensor:
    return sum(_terms(q, k, qr, kr, _delta(len(q), clip)), torch.zeros(())) / math.sqrt(3 * q.shape[1])


def _but(change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """The three terms put together in another way; the scale is right."""
    return lambda q, k, qr, kr, clip: change(*_terms(q, k, qr, kr, _delta(len(q), clip))) / math.sqrt(3 * q.shape[1])


def _scaled(factor: Callable[[int], float]) -> Callable[..., Tensor]:
    return lambda q, k, qr, kr, clip: _disentangled(q, k, qr, kr, clip) * math.sqrt(3 * q.shape[1]) * factor(q.shape[1])


def _turned(q: Tensor, k: Tensor, qr: Tensor, kr: Tensor, clip: int) -> Tensor:
    """Distances counted as j - i."""
    delta = (-(_raw(len(q)))).clamp(-clip, clip - 1) + clip
    return sum(_terms(q, k, qr, kr, delta), torch.zeros(())) / math.sqrt(3 * q.shape[1])


def _raw(length: int) -> Tensor:
    place = torch.arange(length)
    return place[:, None] - place


def _paper(q: Tensor, k: Tensor, qr: Tensor, kr: Tensor, clip: int) -> Tensor:
    """The third term at delta(j, i)."""
    delta = _delta(len(q), clip)
    third = (k @ qr.T).gather(1, delta).T
    return (q @ k.T + (q @ kr.T).gather(1, delta) + third) / math.sqrt(3 * q.shape[1])


def _untransposed(q: Tensor, k: Tensor, qr: Tensor, kr: Tensor, clip: int) -> Tensor:
    delta = _delta(len(q), clip)
    third = (k @ qr.T).gather(1, delta)
    return (q @ k.T + (q @ kr.T).gather(1, delta) + third) / math.sqrt(3 * q.shape[1])


_SCORE_MISTAKES = [
    Mistake("It divides by sqrt(D); a sum of three products is divided by sqrt(3 D).", _scaled(lambda d: d**-0.5)),
    Mistake("The division by sqrt(3 D) is missing.", _scaled(lambda d: 1.0)),
    Mistake("It divides by 3 D; take the root of it.", _scaled(lambda d: 1 / (3 * d))),
    Mistake("Only content with content: that is plain attention, without any position.", _but(lambda a, b, c: a)),
    Mistake("The third term is missing: how a key is looked at from afar (k with qr).", _but(lambda a, b, c: a + b)),
    Mistake("The second term is missing: how a query looks to a distance (q with kr).", _but(lambda a, b, c: a + c)),
    Mistake("Content with content is missing.", _but(lambda a, b, c: b + c)),
    Mistake("The distance is i - j, the query's place minus the key's; here it is j - i.", _turned),
    Mistake("The third term stands at i - j, too: gather with delta.T, then transpose.", _paper),
    Mistake("In the third term rows are keys: transpose it before it is added.", _untransposed),
    Mistake(
        "qr and kr are exchanged: the content's query meets the distance's key, and the other way round.",
        lambda q, k, qr, kr, clip: _disentangled(q, k, kr, qr, clip),
    ),
]  # fmt: skip
