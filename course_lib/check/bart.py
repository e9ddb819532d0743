"""Checks of lesson 16: text infilling, sentences in another order, ROUGE-N."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from course_lib.check.base import Case, Mistake, Verdict, compare, report

Spans = Sequence[tuple[int, int]]
Words = Sequence[str]


def infill(fn: object) -> Verdict:
    """`fn(ids, spans, mask)`: one `mask` in place of each (start, length) of ids Int[T]; a length of 0 puts one in
    before `start`. Spans come from left to right and do not overlap; starts are places of `ids` as it was given."""
    settings: list[tuple[int, list[tuple[int, int]]]] = [
        (9, [(1, 3), (6, 2)]),
        (7, [(2, 2), (5, 0)]),
        (6, [(0, 1), (3, 0), (4, 2)]),
        (5, [(5, 0)]),
        (4, []),
    ]
    cases: list[Case] = [{"ids": torch.arange(10, 10 + n), "spans": spans, "mask": 4} for n, spans in settings]

    def test() -> str:
        compare(fn, cases, _infill, _INFILL_MISTAKES)
        return "several spans a text, spans of length 0, one at the very end, no span at all"

    return report("infill", test)


def permute_sentences(fn: object) -> Verdict:
    """`fn(ids, end, order)`: the sentences of ids Int[T] in another order. A sentence ends with the token `end`; what
    follows the last one counts as a sentence. `order` says which of them comes first, second, ..."""
    texts: list[tuple[list[int], list[int]]] = [
        ([11, 12, 13, 3, 14, 15, 3, 16, 17, 3], [2, 0, 1]),
        ([21, 3, 22, 23, 3, 24, 25, 26], [1, 2, 0]),
        ([31, 32, 3], [0]),
        ([41, 3, 42, 3, 43, 3, 44, 3], [3, 1, 0, 2]),
    ]
    cases: list[Case] = [{"ids": torch.tensor(ids), "end": 3, "order": order} for ids, order in texts]

    def test() -> str:
        compare(fn, cases, _permute, _PERMUTE_MISTAKES)
        return "one, three and four sentences, one text without a full stop at its end"

    return report("permute_sentences", test)


def rouge_n(fn: object) -> Verdict:
    """`fn(said, right, n)`: the F-measure of the n-grams that two lists of words share, each counted as often as both
    have it; 0 where they share none or one has none."""
    pairs = [
        ("the cat saw the dog", "the dog saw the old cat", 1),
        ("the cat saw the dog", "the dog saw the old cat", 2),
        ("the the the the", "the lamp and the coin", 1),
        ("Paul sold the lamp", "Paul sold the lamp", 2),
        ("Paul", "Nora sold the coin", 1),
        ("Paul", "Paul sold it", 2),
        ("a b a b c", "a b a b", 3),
    ]
    cases: list[Case] = [{"said": a.split(), "right": b.split(), "n": n} for a, b, n in pairs]

    def test() -> str:
        compare(fn, cases, _rouge, _ROUGE_MISTAKES)
        return "words, pairs and triples, repeated ones, equal texts, nothing in common"

    return report("rouge_n", test)


# --- infilling --------------------------------------------------------------------------------------------------


def _with(ids: Tensor, spans: Spans, put: Callable[[int], list[int]], skip: Callable[[int], int] = int) -> Tensor:
    """Each span replaced by `put(length)`, after which the text goes on `skip(length)` later."""
    said: list[int] = []
    done = 0
    for start, length in spans:
        said += [*ids[done:start].tolist(), *put(length)]
        done = start + skip(length)
    return ids.new_tensor([*said, *ids[done:].tolist()])


def _infill(ids: Tensor, spans: Spans, mask: int) -> Tensor:
    return _with(ids, spans, lambda length: [mask])


def _moved(ids: Tensor, spans: Spans, mask: int) -> Tensor:
    """Replaced from left to right in the list that has already changed."""
    said = ids.tolist()
    for start, length in spans:
        said[start : start + length] = [mask]
    return ids.new_tensor(said)


def _overwritten(ids: Tensor, spans: Spans, mask: int) -> Tensor:
    said = ids.clone()
    for start, length in spans:
        said[start : start + length] = mask
    return said


def _tail_lost(ids: Tensor, spans: Spans, mask: int) -> Tensor:
    last = max((start + length for start, length in spans), default=0)
    return _infill(ids[:last], spans, mask)


def _merged(ids: Tensor, spans: Spans, mask: int) -> Tensor:
    said = _infill(ids, spans, mask).tolist()
    return ids.new_tensor([t for t, before in zip(said, [None, *said], strict=False) if t != mask or before != mask])


_INFILL_MISTAKES = [
    Mistake(
        "Each token of a span becomes a mask of its own: that is token masking, and it tells how many are missing. "
        "Put one mask for the whole span.",
        lambda ids, spans, mask: _with(ids, spans, lambda n: [mask] * n),
    ),
    Mistake("The tokens are overwritten in place, so the text keeps its length; it becomes shorter.", _overwritten),
    Mistake(
        "Spans of length 0 are left out. They put in a mask where nothing is missing.",
        lambda ids, spans, mask: _infill(ids, [span for span in spans if span[1]], mask),
    ),
    Mistake(
        "A span of length 0 swallows a token. It stands before `start`, and the token there stays.",
        lambda ids, spans, mask: _with(ids, spans, lambda n: [mask], lambda n: max(n, 1)),
    ),
    Mistake(
        "The spans are taken out, but no mask stands in their place: that is deletion.",
        lambda ids, spans, mask: _with(ids, spans, lambda n: []),
    ),
    Mistake(
        "After the first span the others are at wrong places: `start` counts in the text as it was given, which "
        "has become shorter. Build a new text, or go from right to left.",
        _moved,
    ),
    Mistake("The text ends with the last span; what follows it is lost.", _tail_lost),
    Mistake(
        "The masks stand in, but the tokens of the spans are still there: go on at start + length.",
        lambda ids, spans, mask: _with(ids, spans, lambda n: [mask], lambda n: 0),
    ),
    Mistake(
        "One token too many is left of each span, its last: a span of `length` ends before start + length.",
        lambda ids, spans, mask: _with(ids, spans, lambda n: [mask], lambda n: max(n - 1, 0)),
    ),
    Mistake(
        "One token too many goes with each span: it ends before start + length.",
        lambda ids, spans, mask: _with(ids, spans, lambda n: [mask], lambda n: n + 1),
    ),
    Mistake("Masks that are neighbours are joined into one; each span has its own.", _merged),
]


# --- sentences --------------------------------------------------------------------------------------------------


def _sentences(ids: Tensor, end: int) -> list[list[int]]:
    cuts = [0, *((ids == end).nonzero()[:, 0] + 1).tolist()]
    cuts += [len(ids)] if cuts[-1] < len(ids) else []
    return [ids[a:b].tolist() for a, b in pairwise(cuts)]


def _joined(ids: Tensor, sentences: Sequence[Sequence[int]]) -> Tensor:
    return ids.new_tensor([token for sentence in sentences for token in sentence])


def _permute(ids: Tensor, end: int, order: Sequence[int]) -> Tensor:
    sentences = _sentences(ids, end)
    return _joined(ids, [sentences[i] for i in order])


def _inverse(ids: Tensor, end: int, order: Sequence[int]) -> Tensor:
    return _permute(ids, end, [order.index(i) for i in range(len(order))])


def _end_in_front(ids: Tensor, end: int, order: Sequence[int]) -> Tensor:
    cuts = (ids == end).nonzero()[:, 0].tolist()
    pieces = [piece for piece in torch.tensor_split(ids, cuts) if len(piece)]
    return torch.cat([pieces[i] for i in order])


def _bare(ids: Tensor, end: int, order: Sequence[int]) -> Tensor:
    sentences = _sentences(ids, end)
    return _joined(ids, [[token for token in sentences[i] if token != end] for i in order])


def _stops_everywhere(ids: Tensor, end: int, order: Sequence[int]) -> Tensor:
    sentences = _sentences(ids, end)
    return _joined(ids, [[*(token for token in sentences[i] if token != end), end] for i in order])


def _tail_stays(ids: Tensor, end: int, order: Sequence[int]) -> Tensor:
    sentences = _sentences(ids, end)
    tail = [len(sentences) - 1] if sentences[-1][-1] != end else []
    return _joined(ids, [sentences[i] for i in [*(i for i in order if i not in tail), *tail]])


def _tail_gone(ids: Tensor, end: int, order: Sequence[int]) -> Tensor:
    return _joined(ids, [s for i in order if (s := _sentences(ids, end)[i])[-1] == end])


_PERMUTE_MISTAKES = [
    Mistake("The text comes back as it was.", lambda ids, end, order: ids),
    Mistake(
        "`order` is read the other way round: order[0] is the number of the sentence that comes first, not the place "
        "that sentence 0 goes to.",
        _inverse,
    ),
    Mistake(
        "The full stop belongs to the sentence that it ends; yours begins the next one. Cut after it.", _end_in_front
    ),
    Mistake("The full stops are gone; no token is lost, only their order changes.", _bare),
    Mistake("Each sentence gets a full stop, also the last piece that had none; no token is added.", _stops_everywhere),
    Mistake("What follows the last full stop stays at the end; it counts as a sentence and moves.", _tail_stays),
    Mistake("What follows the last full stop is lost; it counts as a sentence.", _tail_gone),
    Mistake(
        "The tokens within the sentences are turned round; only the sentences change places.",
        lambda ids, end, order: _joined(ids, [_sentences(ids, end)[i][::-1] for i in order]),
    ),
    Mistake(
        "It returns a list of sentences; join them into one text (torch.cat).",
        lambda ids, end, order: [torch.tensor(_sentences(ids, end)[i]) for i in order],
    ),
    Mistake("The sentences are in reverse order, whatever `order` says.", lambda ids, end, order: _reverse(ids, end)),
]


def _reverse(ids: Tensor, end: int) -> Tensor:
    return _joined(ids, _sentences(ids, end)[::-1])


# --- ROUGE ------------------------------------------------------------------------------------------------------


def _grams(words: Words, n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def _shares(said: Words, right: Words, n: int) -> tuple[float, float]:
    """Precision and recall."""
    a, b = _grams(said, n), _grams(right, n)
    common = (a & b).total()
    return common / max(1, a.total()), common / max(1, b.total())


def _harmonic(p: float, r: float) -> float:
    return 2 * p * r / (p + r) if p + r else 0.0


def _rouge(said: Words, right: Words, n: int) -> float:
    return _harmonic(*_shares(said, right, n))


def _as_sets(said: Words, right: Words, n: int) -> float:
    a, b = set(_grams(said, n)), set(_grams(right, n))
    common = len(a & b)
    return _harmonic(common / max(1, len(a)), common / max(1, len(b)))


def _unclipped(said: Words, right: Words, n: int) -> float:
    a, b = _grams(said, n), _grams(right, n)
    p = sum(count for gram, count in a.items() if gram in b) / max(1, a.total())
    r = sum(count for gram, count in b.items() if gram in a) / max(1, b.total())
    return _harmonic(p, r)


def _divides(said: Words, right: Words, n: int) -> float:
    p, r = _shares(said, right, n)
    return 2 * p * r / (p + r)


def _by_words(said: Words, right: Words, n: int) -> float:
    common = (_grams(said, n) & _grams(right, n)).total()
    return _harmonic(common / len(said), common / len(right))


_ROUGE_MISTAKES = [
    Mistake(
        "It is the recall alone: a text that says everything there is would be perfect. Take precision, too, and "
        "their harmonic mean.",
        lambda a, b, n: _shares(a, b, n)[1],
    ),
    Mistake(
        "It is the precision alone: a single right word would be perfect. Take recall, too, and their harmonic mean.",
        lambda a, b, n: _shares(a, b, n)[0],
    ),
    Mistake(
        "It is the arithmetic mean of precision and recall; F is the harmonic one, 2 p r / (p + r).",
        lambda a, b, n: sum(_shares(a, b, n)) / 2,
    ),
    Mistake(
        "It is the product of precision and recall; F is 2 p r / (p + r).",
        lambda a, b, n: _shares(a, b, n)[0] * _shares(a, b, n)[1],
    ),
    Mistake("The 2 of 2 p r / (p + r) is missing.", lambda a, b, n: _rouge(a, b, n) / 2),
    Mistake(
        "n-grams are counted as sets, once each; one that both have twice counts twice (Counter & Counter).", _as_sets
    ),
    Mistake(
        "An n-gram that is said four times counts four times, though the right text has it twice: count it as often as "
        "both have it (Counter & Counter).",
        _unclipped,
    ),
    Mistake("n is not used: these are single words.", lambda a, b, n: _rouge(a, b, 1)),
    Mistake("Where nothing is shared, precision and recall are 0 and it divides by 0; return 0 there.", _divides),
    Mistake("The shares are of words; divide by the number of n-grams, which is smaller by n - 1.", _by_words),
    Mistake(
        "It is between 0 and 100; this course leaves ROUGE between 0 and 1.", lambda a, b, n: 100 * _rouge(a, b, n)
    ),
    Mistake("It is the number of shared n-grams, not a share.", lambda a, b, n: (_grams(a, n) & _grams(b, n)).total()),
    Mistake("The last n-gram is left out: there are len(words) - n + 1.", lambda a, b, n: _rouge(a[:-1], b[:-1], n)),
]
