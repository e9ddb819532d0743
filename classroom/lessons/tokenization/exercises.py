"""Lesson 05: byte-pair encoding, the longest match, the most probable split."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter

from classroom.checks.exercise import exercise

Pair = tuple[str, str]


def _split(counts: Mapping[str, int]) -> dict[tuple[str, ...], int]:
    return {tuple(word): n for word, n in counts.items()}


def _ranks(symbols: str) -> dict[str, int]:
    return {symbol: i for i, symbol in enumerate(symbols)}


@exercise(
    [
        (_split({"hug": 3, "pug": 4, "hum": 2, "bun": 1}), _ranks("ughpmbn")),
        (_split({"abab": 2, "bc": 3, "cb": 3}), _ranks("abc")),  # twice in one word
        (_split({"xy": 2, "ab": 2, "ba": 1}), _ranks("xyab")),  # a tie
        (_split({"ac": 2, "ab": 2, "bc": 2}), _ranks("cba")),  # a tie of three
        (_split({"ac": 2, "ab": 2}), _ranks("abc")),  # with the same left symbol
        (_split({"ca": 1, "db": 1, "ac": 1, "bd": 1, "cd": 1}), _ranks("bacd")),  # and of five
        (_split({"da": 3, "bc": 3, "ab": 3, "cb": 3, "dc": 3}), _ranks("cabd")),
        # a, b meet between words only
        (_split({"ba": 2, "a": 5, "b": 5, "cd": 3}), _ranks("abcd")),
        ({("ab", "c"): 2, ("a", "b", "c"): 1, ("d", "e"): 3}, _ranks("eabcd") | {"ab": 5}),
    ],
)
def best_pair(words: Mapping[tuple[str, ...], int], rank: Mapping[str, int]) -> Pair:
    """The most frequent pair of neighbours; among equals the lowest (rank[left], rank[right])."""
    counts: Counter[Pair] = Counter()
    for symbols, n in words.items():
        for pair in pairwise(symbols):
            counts[pair] += n
    return min(counts, key=lambda pair: (-counts[pair], rank[pair[0]], rank[pair[1]]))


def _merge_pair(symbols: Sequence[str], pair: Pair) -> tuple[str, ...]:
    """The symbols with every occurrence of the pair joined, from left to right."""
    out = []
    i = 0
    while i < len(symbols):
        here = tuple(symbols[i : i + 2]) == tuple(pair)
        out.append("".join(pair) if here else symbols[i])
        i += 2 if here else 1
    return tuple(out)


def _greedy(word: str, merges: Mapping[Pair, int]) -> list[str]:
    """The longest token of the vocabulary from the left, again and again."""
    known, text, out = {"".join(pair) for pair in merges}, word, []
    while text:
        size = next((n for n in range(len(text), 1, -1) if text[:n] in known), 1)
        out.append(text[:size])
        text = text[size:]
    return out


def _leftmost(word: str, merges: Mapping[Pair, int]) -> list[str]:
    """Whatever known pair stands furthest left, whenever it was learned."""
    symbols = [*word]
    while (
        at := next((i for i, p in enumerate(pairwise(symbols)) if p in merges), None)
    ) is not None:
        symbols[at : at + 2] = ["".join(symbols[at : at + 2])]
    return symbols


def _places(*merges: Pair) -> dict[Pair, int]:
    return {pair: i for i, pair in enumerate(merges)}


_MERGES = _places(
    ("a", "k"),
    ("i", "n"),
    ("in", "g"),
    ("b", "ak"),
    ("k", "e"),
    ("ak", "e"),
    ("Ġ", "b"),
    ("ak", "ing"),
    ("Ġb", "ak"),
)
_CROSSING = _places(("b", "c"), ("a", "b"), ("ab", "c"), ("c", "d"), ("bc", "d"))
# The numbers decide, not the order of the dictionary.
_SHUFFLED = {("a", "b"): 2, ("b", "c"): 0, ("a", "bc"): 1, ("c", "d"): 3}


@exercise(
    [(word, _MERGES) for word in ("Ġbaking", "Ġbake", "akak", "king", "inin", "x", "lingering")]
    + [(word, _CROSSING) for word in ("abc", "abcd", "bcd")]
    + [(word, _SHUFFLED) for word in ("abc", "abcd")]
    # the pair furthest left is not the longest token
    + [("xyz", _places(("y", "z"), ("x", "yz"), ("x", "y")))],
)
def bpe_encode(word: str, merges: Mapping[Pair, int]) -> list[str]:
    """The list of tokens: the letters, then the merges, those with the lowest number first."""
    symbols: tuple[str, ...] = tuple(word)
    while known := [pair for pair in pairwise(symbols) if pair in merges]:
        first = min(known, key=lambda pair: merges[pair])
        symbols = _merge_pair(symbols, first)
    return list(symbols)


def _from_behind(word: str, vocab: set[str]) -> list[str]:
    out: list[str] = []
    end = len(word)
    while end:
        start = next((s for s in range(end) if ("##" if s else "") + word[s:end] in vocab), None)
        if start is None:
            return ["[UNK]"]
        out.insert(0, ("##" if start else "") + word[start:end])
        end = start
    return out


_VOCAB = {
    "un",
    "una",
    "play",
    "p",
    "l",
    "##able",
    "##ab",
    "##le",
    "##a",
    "##b",
    "##play",
    "##ing",
    "##i",
    "##ings",
}
_VOCAB |= {"able", "ing", "u", "##n", "##s", "##u", "##aff"}
_WORDS = [
    "playing",
    "unplayable",
    "unable",
    "playings",
    "u",
    "unaff",
    "playx",
    "xplay",
    "lab",
    "p",
    "unuuable",
]


@exercise([(word, _VOCAB) for word in _WORDS])
def wordpiece_encode(word: str, vocab: set[str]) -> list[str]:
    """The list of tokens: the longest token that fits, "##" inside a word, ["[UNK]"] if none
    fits.
    """
    out: list[str] = []
    start = 0
    while start < len(word):
        mark = "##" if start else ""
        end = next((e for e in range(len(word), start, -1) if mark + word[start:e] in vocab), None)
        if end is None:
            return ["[UNK]"]
        out.append(mark + word[start:end])
        start = end
    return out


def _next_piece(word: str, log_p: Mapping[str, float], score: Callable[[str], float]) -> list[str]:
    """The piece with the greatest score, again and again from the left."""
    out: list[str] = []
    while word:
        out.append(max((word[:n] for n in range(1, len(word) + 1) if word[:n] in log_p), key=score))
        word = word[len(out[-1]) :]
    return out


def _splits(word: str, log_p: Mapping[str, float]) -> Iterator[list[str]]:
    if not word:
        yield []
    for size in range(1, len(word) + 1):
        if word[:size] in log_p:
            yield from ([word[:size], *rest] for rest in _splits(word[size:], log_p))


def _best_mean(word: str, log_p: Mapping[str, float]) -> list[str]:
    if len(word) > 12:
        return []
    return max(_splits(word, log_p), key=lambda pieces: sum(log_p[p] for p in pieces) / len(pieces))


_SHARES = {
    "a": 0.05,
    "b": 0.05,
    "c": 0.04,
    "d": 0.04,
    "ab": 0.12,
    "bc": 0.2,
    "cd": 0.15,
    "abc": 0.02,
    "bcd": 0.001,
}
_LOG_P = {piece: math.log(share) for piece, share in _SHARES.items()}
_STEEP = {"a": -0.1, "b": -0.1, "ab": -5.0, "aba": -1.0}


@exercise(
    [(word, _LOG_P) for word in ("abc", "abcd", "a", "bcd", "dabcab", "cabcdbcd")]
    + [(word, _STEEP) for word in ("ab", "aba", "abab")]
    + [
        ("abcde", dict.fromkeys("abcde", -0.1) | {"ab": -3.0, "abc": -9.0, "cde": -9.0}),
        ("abcd" * 8, _LOG_P),
    ],
)
def best_split(word: str, log_p: Mapping[str, float]) -> list[str]:
    """The list of tokens that spell the word, with the greatest sum of `log_p`."""
    best: list[tuple[float, list[str]]] = [(0.0, [])]
    for end in range(1, len(word) + 1):
        options = [
            (best[start][0] + log_p[word[start:end]], [*best[start][1], word[start:end]])
            for start in range(end)
            if word[start:end] in log_p
        ]
        best.append(max(options, key=itemgetter(0), default=(-math.inf, [])))
    return best[-1][1]
