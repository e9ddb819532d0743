"""Checks of lesson 05, the other ways to cut a word: longest match, the most probable split; and bits per byte."""

import math
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Any

from course_lib.check.base import Case, Mistake, Verdict, compare, report

Pieces = list[str]
UNKNOWN = "[UNK]"


def wordpiece_encode(fn: object) -> Verdict:
    """`fn(word, vocab)` -> list of pieces: the longest piece that fits, "##" inside a word, ["[UNK]"] if none fits."""
    vocab = {"un", "una", "play", "p", "l", "##able", "##ab", "##le", "##a", "##b", "##play", "##ing", "##i", "##ings"}
    vocab |= {"able", "ing", "u", "##n", "##s", "##u", "##aff"}
    words = ["playing", "unplayable", "unable", "playings", "u", "unaff", "playx", "xplay", "lab", "p", "unuuable"]
    cases: list[Case] = [{"word": w, "vocab": vocab} for w in words]

    def test() -> str:
        compare(fn, cases, _longest, _LONGEST_MISTAKES)
        return "longest first, ## from the second piece on, one [UNK] for a word that does not work out"

    return report("wordpiece_encode", test)


def best_split(fn: object) -> Verdict:
    """`fn(word, log_p)` -> list of pieces that spell the word, with the greatest sum of `log_p`."""
    shares = {"a": 0.05, "b": 0.05, "c": 0.04, "d": 0.04, "ab": 0.12, "bc": 0.2, "cd": 0.15, "abc": 0.02, "bcd": 0.001}
    log_p = {piece: math.log(share) for piece, share in shares.items()}
    cases: list[Case] = [{"word": w, "log_p": log_p} for w in ("abc", "abcd", "a", "bcd", "dabcab", "cabcdbcd")]
    steep = {"a": -0.1, "b": -0.1, "ab": -5.0, "aba": -1.0}
    cases += [{"word": w, "log_p": steep} for w in ("ab", "aba", "abab")]
    cases.append({"word": "abcde", "log_p": dict.fromkeys("abcde", -0.1) | {"ab": -3.0, "abc": -9.0, "cde": -9.0}})
    cases.append({"word": "abcdabcdabcdabcdabcdabcdabcdabcd", "log_p": log_p})

    def test() -> str:
        compare(fn, cases, _viterbi, _SPLIT_MISTAKES)
        return "the most probable split of eleven words, one of them of 32 letters"

    return report("best_split", test)


def bits_per_byte(fn: object) -> Verdict:
    """`fn(loss, tokens, text)` -> bits of the whole text over its UTF-8 bytes; loss in nats, the mean of a token."""
    cases: list[Case] = [
        {"loss": 2.0, "tokens": 4, "text": "the mill stood still"},
        {"loss": 3.5, "tokens": 7, "text": "naïve café 🙂"},
        {"loss": 0.5, "tokens": 30, "text": "日本語のテキスト"},
    ]

    def test() -> str:
        compare(fn, cases, _bits, _BITS_MISTAKES)
        return "ASCII, accents, an emoji and Japanese, of which only the first has as many bytes as characters"

    return report("bits_per_byte", test)


def _longest(word: str, vocab: set[str]) -> Pieces:
    return _match(word, vocab)


def _match(word: str, vocab: set[str], *, mark: str = "##", sizes: int = -1, whole: bool = True) -> Pieces:
    out: Pieces = []
    start = 0
    while start < len(word):
        ends = range(start + 1, len(word) + 1)[::sizes]
        end = next((e for e in ends if (mark if start else "") + word[start:e] in vocab), None)
        if end is None:
            return [UNKNOWN] if whole else [*out, UNKNOWN]
        out.append((mark if start else "") + word[start:end])
        start = end
    return out


def _letters(word: str, vocab: set[str]) -> Pieces:
    """[UNK] for single letters that do not fit, and on."""
    out: Pieces = []
    start = 0
    while start < len(word):
        mark = "##" if start else ""
        end = next((e for e in range(len(word), start, -1) if mark + word[start:e] in vocab), None)
        out.append(UNKNOWN if end is None else mark + word[start:end])
        start = end or start + 1
    return out


def _from_behind(word: str, vocab: set[str]) -> Pieces:
    out: Pieces = []
    end = len(word)
    while end:
        start = next((s for s in range(end) if ("##" if s else "") + word[s:end] in vocab), None)
        if start is None:
            return [UNKNOWN]
        out.insert(0, ("##" if start else "") + word[start:end])
        end = start
    return out


_LONGEST_MISTAKES = [
    Mistake(
        'Pieces inside the word are looked up without "##": "able" begins a word, "##able" continues one.',
        lambda word, vocab: _match(word, vocab, mark=""),
    ),
    Mistake(
        'The pieces are found with "##" but returned without; return them as the vocabulary spells them.',
        lambda word, vocab: [piece.removeprefix("##") for piece in _match(word, vocab)],
    ),
    Mistake("It takes the shortest piece that fits; try the longest first.", lambda w, v: _match(w, v, sizes=1)),
    Mistake("It works from the end of the word; the longest match begins at the front.", _from_behind),
    Mistake(
        "Where nothing fits it keeps the pieces found so far; BERT then gives up the whole word, [UNK] and nothing "
        "else.",
        lambda word, vocab: _match(word, vocab, whole=False),
    ),
    Mistake(
        "A letter that does not fit becomes [UNK] and the rest goes on; BERT gives up the whole word: one [UNK].",
        _letters,
    ),
    Mistake('It returns "[UNK]" as a string; return a list with one piece.', lambda w, v: (
        UNKNOWN if (found := _match(w, v)) == [UNKNOWN] else found)),
    Mistake("Where nothing fits it returns an empty list; return [\"[UNK]\"].", lambda w, v: (
        [] if (found := _match(w, v)) == [UNKNOWN] else found)),
]  # fmt: skip


def _viterbi(
    word: str,
    log_p: Mapping[str, float],
    score: Callable[[float], float] = float,
    key: Callable[[tuple[float, Pieces]], Any] = itemgetter(0),
) -> Pieces:
    best: list[tuple[float, Pieces]] = [(0.0, [])]
    for end in range(1, len(word) + 1):
        options = [
            (best[start][0] + score(log_p[word[start:end]]), [*best[start][1], word[start:end]])
            for start in range(end)
            if word[start:end] in log_p
        ]
        best.append(max(options, key=key, default=(-math.inf, [])))
    return best[-1][1]


def _splits(word: str, log_p: Mapping[str, float]) -> Iterator[Pieces]:
    if not word:
        yield []
    for size in range(1, len(word) + 1):
        if word[:size] in log_p:
            yield from ([word[:size], *rest] for rest in _splits(word[size:], log_p))


def _greedy_split(word: str, log_p: Mapping[str, float], shorter: int = 1) -> Pieces:
    out: Pieces = []
    while word:
        size = next(n for n in range(1, len(word) + 1)[::-shorter] if word[:n] in log_p)
        out.append(word[:size])
        word = word[size:]
    return out


def _likeliest_next(word: str, log_p: Mapping[str, float]) -> Pieces:
    out: Pieces = []
    while word:
        size = max((n for n in range(1, len(word) + 1) if word[:n] in log_p), key=lambda n: log_p[word[:n]])
        out.append(word[:size])
        word = word[size:]
    return out


def _mean_split(word: str, log_p: Mapping[str, float]) -> Pieces:
    if len(word) > 12:
        return []
    return max(_splits(word, log_p), key=lambda pieces: sum(log_p[p] for p in pieces) / len(pieces))


_FEWEST = "It takes the fewest pieces; the probabilities decide."
_SPLIT_MISTAKES = [
    Mistake("It takes the longest piece from the left; a shorter one may leave a better rest.", _greedy_split),
    Mistake(
        "It takes the most probable next piece each time; what it leaves over may be expensive. Compare whole splits.",
        _likeliest_next,
    ),
    Mistake("It splits into letters; sums of log-probabilities decide.", lambda w, p: _greedy_split(w, p, -1)),
    Mistake(_FEWEST, lambda w, p: _viterbi(w, p, lambda x: -1)),
    Mistake(_FEWEST, lambda w, p: _viterbi(w, p, lambda x: -1, tuple)),  # ties by the alphabet
    Mistake(
        "It takes the least probable split: log-probabilities are negative, and the greatest sum is the one nearest 0.",
        lambda w, p: _viterbi(w, p, lambda x: -x),
    ),
    Mistake("It adds probabilities; they multiply, so their logarithms add up.", lambda w, p: _viterbi(w, p, math.exp)),
    Mistake("It compares means over the pieces; the probability of a split is a product, so the sum.", _mean_split),
]


def _bits(loss: float, tokens: int, text: str) -> float:
    return loss * tokens / math.log(2) / len(text.encode())


_BITS_MISTAKES = [
    Mistake(
        "It divides by characters; an é has two bytes and an emoji four, so count len(text.encode()).",
        lambda loss, tokens, text: loss * tokens / math.log(2) / len(text),
    ),
    Mistake(
        "These are nats per byte: the loss uses natural logarithms; divide by log(2) for bits.",
        lambda loss, tokens, text: loss * tokens / len(text.encode()),
    ),
    Mistake(
        "These are bits per token; multiply by the number of tokens for the whole text and divide by its bytes.",
        lambda loss, tokens, text: loss / math.log(2),
    ),
    Mistake(
        "The number of tokens is missing: the loss is the mean of one token, the text has many.",
        lambda loss, tokens, text: loss / math.log(2) / len(text.encode()),
    ),
    Mistake(
        "It multiplies by log(2) instead of dividing.",
        lambda loss, tokens, text: loss * tokens * math.log(2) / len(text.encode()),
    ),
    Mistake(
        "It divides by the number of words, which is no unit that all languages share; divide by UTF-8 bytes.",
        lambda loss, tokens, text: loss * tokens / math.log(2) / len(text.split()),
    ),
]
