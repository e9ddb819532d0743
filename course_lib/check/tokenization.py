"""Checks of lesson 05, byte-pair encoding: the most frequent pair, merging it, encoding with learned merges."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from course_lib.check.base import Case, Mistake, Verdict, compare, report

Pair = tuple[str, str]
Words = Mapping[tuple[str, ...], int]  # symbols of a word -> how often the word occurs
Pieces = list[str]
END = "·"


def best_pair(fn: object) -> Verdict:
    """`fn(words, rank)` -> the most frequent pair of neighbours; among equals the lowest (rank[left], rank[right])."""
    cases: list[Case] = [
        {"words": _split({"hug": 3, "pug": 4, "hum": 2, "bun": 1}), "rank": _ranks("ughpmbn")},
        {"words": _split({"abab": 2, "bc": 3, "cb": 3}), "rank": _ranks("abc")},  # twice in one word
        {"words": _split({"xy": 2, "ab": 2, "ba": 1}), "rank": _ranks("xyab")},  # a tie
        {"words": _split({"ac": 2, "ab": 2, "bc": 2}), "rank": _ranks("cba")},  # a tie of three
        {"words": _split({"ca": 1, "db": 1, "ac": 1, "bd": 1, "cd": 1}), "rank": _ranks("bacd")},  # and of five
        {"words": _split({"da": 3, "bc": 3, "ab": 3, "cb": 3, "dc": 3}), "rank": _ranks("cabd")},
        {"words": _split({"ba": 2, "a": 5, "b": 5, "cd": 3}), "rank": _ranks("abcd")},  # a, b meet between words only
        {"words": {("ab", "c"): 2, ("a", "b", "c"): 1, ("d", "e"): 3}, "rank": {s: i for i, s in enumerate("eabcd")} | {
            "ab": 5}},
    ]  # fmt: skip

    def test() -> str:
        compare(fn, cases, _best, _BEST_MISTAKES)
        return "counts of words, a pair twice in a word, ties by rank, nothing across words"

    return report("best_pair", test)


def merge_pair(fn: object) -> Verdict:
    """`fn(symbols, pair)` -> the symbols with every occurrence of the pair joined, from left to right."""
    cases: list[Case] = [
        {"symbols": tuple("making"), "pair": ("i", "n")},
        {"symbols": tuple("banana"), "pair": ("a", "n")},
        {"symbols": tuple("caaad"), "pair": ("a", "a")},
        {"symbols": ("xa", "b", "a", "b"), "pair": ("a", "b")},
        {"symbols": ("a", "bx", "a", "b"), "pair": ("a", "b")},
        {"symbols": ("ba", "ba"), "pair": ("b", "a")},
        {"symbols": ("a", "a", "a", "a", "aa"), "pair": ("a", "a")},
        {"symbols": ("b", "a"), "pair": ("a", "b")},
        {"symbols": ("ab",), "pair": ("a", "b")},
    ]

    def test() -> str:
        compare(fn, cases, _merge, _MERGE_MISTAKES)
        return "every occurrence, from the left, whole symbols only, the rest untouched"

    return report("merge_pair", test)


def bpe_encode(fn: object) -> Verdict:
    """`fn(word, merges)` -> list of pieces: letters and the end mark "·", then the merges, earliest learned first."""
    merges = [("a", "k"), ("i", "n"), ("in", "g"), ("ing", END), ("b", "ak"), ("k", "e"), ("ak", "e"), ("e", END)]
    crossing = [("b", "c"), ("a", "b"), ("ab", "c"), ("c", "d"), ("bc", "d")]
    words = ["baking", "bake", "akak", "king", "inin", "x", "lingering"]
    cases: list[Case] = [{"word": w, "merges": merges} for w in words]
    cases += [{"word": w, "merges": crossing} for w in ("abc", "abcd", "bcd")]

    def test() -> str:
        compare(fn, cases, _bpe, _BPE_MISTAKES)
        return "the end mark, the order of learning, every occurrence, letters that no merge knows"

    return report("bpe_encode", test)


def _split(counts: Mapping[str, int]) -> dict[tuple[str, ...], int]:
    return {tuple(word): n for word, n in counts.items()}


def _ranks(symbols: str) -> dict[str, int]:
    return {symbol: i for i, symbol in enumerate(symbols)}


def _counted(words: Iterable[tuple[Iterable[Pair], int]]) -> Counter[Pair]:
    counts: Counter[Pair] = Counter()
    for pairs, n in words:
        for pair in pairs:
            counts[pair] += n
    return counts


def _pairs(words: Words) -> Counter[Pair]:
    return _counted((pairwise(symbols), n) for symbols, n in words.items())


def _lowest(counts: Counter[Pair], rank: Mapping[str, int], sign: int = 1) -> Pair:
    return min(counts, key=lambda pair: (-counts[pair], sign * rank[pair[0]], sign * rank[pair[1]]))


def _best(words: Words, rank: Mapping[str, int]) -> Pair:
    return _lowest(_pairs(words), rank)


def _across(words: Words, rank: Mapping[str, int]) -> Pair:
    text = [symbol for symbols, n in words.items() for _ in range(n) for symbol in symbols]
    return _lowest(Counter(pairwise(text)), rank)


def _rare_last(words: Words, rank: Mapping[str, int]) -> Pair:
    counts = _pairs(words)
    return max(counts, key=lambda pair: (counts[pair], pair))


_TIES = "Of several pairs that are equally frequent"
_BEST_MISTAKES = [
    Mistake(
        "The words' counts are not used: a pair counts once for every time its word occurs, so add `n`, not 1.",
        lambda words, rank: _lowest(_counted((pairwise(s), 1) for s in words), rank),
    ),
    Mistake(
        "A pair that occurs twice in a word is counted once in it; add `n` at every place.",
        lambda words, rank: _lowest(_counted((dict.fromkeys(pairwise(s)), n) for s, n in words.items()), rank),
    ),
    Mistake(
        "Pairs are counted across words: the last letter of a word and the first of the next are no neighbours. "
        "Count within each word.",
        _across,
    ),
    Mistake(
        f"{_TIES} it takes the one met first. That depends on the order of the words; take the lowest rank.",
        lambda words, rank: max(counts := _pairs(words), key=lambda pair: counts[pair]),
    ),
    Mistake(
        f"{_TIES} it takes the one met last; take the lowest rank.",
        lambda words, rank: max(reversed(counts := _pairs(words)), key=lambda pair: counts[pair]),
    ),
    Mistake(
        f"{_TIES} it takes the highest rank; take the lowest. (With `max` the ranks need a minus.)",
        lambda words, rank: _lowest(_pairs(words), rank, -1),
    ),
    Mistake(
        f"{_TIES} it takes the first in the alphabet; the rank decides, which is the place in the vocabulary.",
        lambda words, rank: min(counts := _pairs(words), key=lambda pair: (-counts[pair], pair)),
    ),
    Mistake(f"{_TIES} it takes the last in the alphabet; the lowest rank decides.", _rare_last),
    Mistake(
        "The order of the tie is the other way round: compare the left symbols' ranks first, then the right ones'.",
        lambda words, rank: min(c := _pairs(words), key=lambda pair: (-c[pair], rank[pair[1]], rank[pair[0]])),
    ),
    Mistake(
        "It takes the rarest pair; the most frequent is wanted.",
        lambda words, rank: min(c := _pairs(words), key=lambda pair: (c[pair], rank[pair[0]], rank[pair[1]])),
    ),
    Mistake("It returns the joined symbol; return the pair, two symbols.", lambda w, r: "".join(_best(w, r))),
    Mistake("It returns the count; return the pair itself.", lambda w, r: _pairs(w)[_best(w, r)]),
]


def _merge(symbols: Sequence[str], pair: Pair) -> tuple[str, ...]:
    out: Pieces = []
    i = 0
    while i < len(symbols):
        here = tuple(symbols[i : i + 2]) == tuple(pair)
        out.append("".join(pair) if here else symbols[i])
        i += 2 if here else 1
    return tuple(out)


def _merge_first(symbols: Sequence[str], pair: Pair) -> tuple[str, ...]:
    for i, here in enumerate(pairwise(symbols)):
        if here == tuple(pair):
            return (*symbols[:i], "".join(pair), *symbols[i + 2 :])
    return tuple(symbols)


def _merge_from_right(symbols: Sequence[str], pair: Pair) -> tuple[str, ...]:
    flipped = _merge([s[::-1] for s in symbols][::-1], (pair[1][::-1], pair[0][::-1]))
    return tuple(s[::-1] for s in flipped[::-1])


def _overlapping(symbols: Sequence[str], pair: Pair) -> tuple[str, ...]:
    """Joins wherever the pair begins, and keeps the second symbol for the next comparison."""
    out: Pieces = []
    skip = False
    for i, symbol in enumerate(symbols):
        here = tuple(symbols[i : i + 2]) == tuple(pair)
        if here:
            out.append("".join(pair))
        elif not skip:
            out.append(symbol)
        skip = here
    return tuple(out)


def _kept_second(symbols: Sequence[str], pair: Pair) -> tuple[str, ...]:
    return tuple("".join(pair) if tuple(symbols[i : i + 2]) == tuple(pair) else s for i, s in enumerate(symbols))


def _replaced(symbols: Sequence[str], pair: Pair) -> tuple[str, ...]:
    return tuple(" ".join(symbols).replace(" ".join(pair), "".join(pair)).split())


def _either_order(symbols: Sequence[str], pair: Pair) -> tuple[str, ...]:
    out: Pieces = []
    i = 0
    while i < len(symbols):
        here = set(symbols[i : i + 2]) == set(pair) and len(symbols[i : i + 2]) == 2
        out.append("".join(symbols[i : i + 2]) if here else symbols[i])
        i += 2 if here else 1
    return tuple(out)


_MERGE_MISTAKES = [
    Mistake(
        "It replaces text instead of symbols: with spaces between, `xa b` contains `a b`, and the end of another "
        "symbol is merged too. Compare whole symbols, symbols[i] == pair[0].",
        _replaced,
    ),
    Mistake(
        "It joins the first occurrence only; after a merge the pair must be gone from the whole word.", _merge_first
    ),
    Mistake(
        "It goes from right to left, so `a a a` becomes `a aa`; everybody goes from the left: `aa a`.",
        _merge_from_right,
    ),
    Mistake("A symbol is used twice: after a merge go on two places further, so that `a a a` is `aa a`.", _overlapping),
    Mistake("The second symbol of the pair stays behind; after a merge go on two places further.", _kept_second),
    Mistake("It joins the pair in the opposite order too; `b a` is not `a b`.", _either_order),
    Mistake("It returns one string; return the symbols, a tuple or a list.", lambda s, p: "".join(_merge(s, p))),
    Mistake("Nothing is merged.", lambda symbols, pair: tuple(symbols)),
]


def _bpe(word: str, merges: Sequence[Pair], end: str = END) -> Pieces:
    symbols: tuple[str, ...] = (*word, *end)
    for pair in merges:
        symbols = _merge(symbols, pair)
    return list(symbols)


def _greedy(word: str, merges: Sequence[Pair]) -> Pieces:
    """The longest piece of the vocabulary from the left, again and again."""
    known, text, out = {"".join(pair) for pair in merges}, word + END, []
    while text:
        size = next((n for n in range(len(text), 1, -1) if text[:n] in known), 1)
        out.append(text[:size])
        text = text[size:]
    return out


def _leftmost(word: str, merges: Sequence[Pair]) -> Pieces:
    """Whatever known pair stands furthest left, whenever it was learned."""
    symbols: tuple[str, ...] = (*word, END)
    while (at := next((i for i, p in enumerate(pairwise(symbols)) if p in merges), None)) is not None:
        symbols = (*symbols[:at], symbols[at] + symbols[at + 1], *symbols[at + 2 :])
    return list(symbols)


def _first_merges(word: str, merges: Sequence[Pair]) -> Pieces:
    symbols: tuple[str, ...] = (*word, END)
    for pair in merges:
        symbols = _merge_first(symbols, pair)
    return list(symbols)


def _one_merge(word: str, merges: Sequence[Pair]) -> Pieces:
    symbols: tuple[str, ...] = (*word, END)
    return list(next((merged for p in merges if (merged := _merge(symbols, p)) != symbols), symbols))


_BPE_MISTAKES = [
    Mistake('The end mark is missing: a word is its letters and then "·".', lambda w, m: _bpe(w, m, "")),
    Mistake("The end mark stands in front; it belongs behind the last letter.", lambda w, m: _bpe(END + w, m, "")),
    Mistake(
        "It takes the longest piece from the left, as WordPiece does. BPE replays its merges in the order in which "
        "they were learned, and may end with other pieces.",
        _greedy,
    ),
    Mistake(
        "It merges whichever known pair stands furthest left; the pair that was learned first goes first, wherever it "
        "stands.",
        _leftmost,
    ),
    Mistake("The merges are applied in the opposite order; the one learned first comes first.", lambda w, m: _bpe(
        w, m[::-1])),
    Mistake("Each merge is applied at one place only; join every occurrence of the pair.", _first_merges),
    Mistake("It stops after one merge; go on until no merge applies.", _one_merge),
    Mistake("It returns one string; return a list of pieces.", lambda w, m: " ".join(_bpe(w, m))),
]  # fmt: skip
