"""Checks of lesson 11: attention between words, the governor that a head finds, the best fixed distance, labels of a
control task, the last four layers as features."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.check.base import Case, Crash, Mistake, Verdict, WrongError, compare, difference, outcome, report, rng

Pairs = Sequence[tuple[int, int]]


def by_words(fn: object) -> Verdict:
    """`fn(weights, words)` -> attention between words [W W].

    weights [T T]; words: of each of the T pieces the number of its word, None at special tokens.
    """
    cases: list[Case] = [
        {"weights": torch.randn(len(words), len(words), generator=rng(seed)).softmax(-1), "words": words}
        for seed, words in enumerate([[None, 0, 1, 1, 2, 3, 3, 3, None], [None, 0, 0, 1, None]])
    ]

    def test() -> str:
        compare(fn, cases, _by_words, _BY_WORDS_MISTAKES)
        return "to a word the sum over its pieces, from it the mean, special tokens left out, two texts"

    return report("by_words", test)


def finds_governor(fn: object) -> Verdict:
    """`fn(attention, governors)` -> for each head the share of words whose most attended other word governs them [H].

    attention [H W W]; governors: of each word the place of its governor, -1 at the root, which is not counted.
    """
    cases = [_parsed(seed, governors) for seed, governors in enumerate([[1, 2, -1, 4, 2, 4], [-1, 0, 3, 1]])]

    def test() -> str:
        compare(fn, cases, _finds, _FINDS_MISTAKES)
        return "the most attended other word against the governor, the root not counted, two sentences"

    return report("finds_governor", test)


def best_offset(fn: object) -> Verdict:
    """`fn(choose, score)` -> (offset, share): the commonest governor - dependent among the arcs of `choose`, and the
    share of the arcs of `score` that have it. Both are lists of (dependent, governor)."""
    cases: list[Case] = [
        {
            "choose": [(1, 2), (3, 4), (0, 1), (5, 2), (7, 3), (2, 9)],
            "score": [(0, 1), (3, 1), (6, 4), (4, 2), (2, 3)],
        },
        {
            "choose": [(4, 2), (6, 4), (2, 0), (0, 1), (1, 2), (9, 1), (8, 1)],
            "score": [(3, 1), (0, 1), (1, 3), (2, 3)],
        },
    ]

    def test() -> str:
        compare(fn, cases, _offset, _OFFSET_MISTAKES)
        return "chosen on the one list, scored on the other, two pairs of lists"

    return report("best_offset", test)


def control_labels(fn: object) -> Verdict:
    """`fn(words, labels, rng)` -> new labels: every word (whatever its place) has one, drawn from `labels`.

    words: N strings; labels: their N labels; rng: a torch.Generator.
    """

    def test() -> str:
        for seed in (0, 1):
            _judge_control(fn, seed)
        return "one label for all places of a word, another draw for each word, as often as labels are in the task"

    return report("control_labels", test)


def last_four(fn: object) -> Verdict:
    """`fn(layers)` -> (sum [T D], concatenation [T 4D]) of the last four layers. layers [L+1 T D]; [0] is the
    embeddings, [-1] the top."""
    cases: list[Case] = [
        {"layers": torch.randn(layers, tokens, 3, generator=rng(seed))}
        for seed, (layers, tokens) in enumerate([(7, 5), (5, 2)])
    ]

    def test() -> str:
        compare(fn, cases, lambda layers: _four(layers[-4:]), _FOUR_MISTAKES)
        return "the last four summed and side by side, lower before higher, two models"

    return report("last_four", test)


# --- pieces and words ---------------------------------------------------------------------------------------------


def _belongs(words: Sequence[int | None]) -> Tensor:
    """W T, 1 where a piece belongs to a word."""
    count = max(word for word in words if word is not None) + 1
    return torch.tensor([[float(word == number) for word in words] for number in range(count)])


def _mean(belongs: Tensor) -> Tensor:
    return belongs / belongs.sum(1, keepdim=True)


def _by_words(weights: Tensor, words: Sequence[int | None]) -> Tensor:
    belongs = _belongs(words)
    return _mean(belongs) @ weights @ belongs.T


def _first_pieces(weights: Tensor, words: Sequence[int | None]) -> Tensor:
    first = [words.index(number) for number in range(len(_belongs(words)))]
    return weights[first][:, first]


def _with_specials(weights: Tensor, words: Sequence[int | None]) -> Tensor:
    count = len(_belongs(words))
    return _by_words(weights, [0 if n == 0 else count + 1 if w is None else w + 1 for n, w in enumerate(words)])


_BY_WORDS_MISTAKES = [
    Mistake(
        "From a word you sum over its pieces; take their mean, or a word of three pieces hands out three times as much "
        "attention as a word of one.",
        lambda w, n: _belongs(n) @ w @ _belongs(n).T,
    ),
    Mistake(
        "To a word you take the mean over its pieces; take their sum: what goes to any piece goes to the word.",
        lambda w, n: _mean(_belongs(n)) @ w @ _mean(_belongs(n)).T,
    ),
    Mistake(
        "Mean and sum have changed places: rows are those who look (mean), columns who is looked at (sum).",
        lambda w, n: _belongs(n) @ w @ _mean(_belongs(n)).T,
    ),
    Mistake("Only the first piece of each word is looked at; what the others get and give is lost.", _first_pieces),
    Mistake("This is the other direction: rows should be those who look.", lambda w, n: _by_words(w, n).T),
    Mistake(
        "The rows are scaled to sum to 1. The share that goes to [CLS] and [SEP] is left out, not spread over the "
        "words; a word that looks at [SEP] should look at no word much.",
        lambda w, n: _by_words(w, n) / _by_words(w, n).sum(-1, keepdim=True),
    ),
    Mistake("Special tokens (None) are counted as words; leave them out.", _with_specials),
]


# --- heads against the parse --------------------------------------------------------------------------------------


def _parsed(seed: int, governors: list[int]) -> Case:
    """Five heads, of which some look at the governor, some at dependents, some mostly at themselves."""
    count, draw = len(governors), rng(seed)
    scores = torch.randn(5, count, count, generator=draw)
    for word, governor in enumerate(governors):
        if governor >= 0:
            scores[0, word, governor] += 3
            scores[1, governor, word] += 3
            scores[2, word, governor] += 1.5
    scores[2:4] += 4 * torch.eye(count)
    return {"attention": scores.softmax(-1), "governors": governors}


def _finds(attention: Tensor, governors: Sequence[int], itself: bool = False, root: bool = False) -> Tensor:
    if not itself:
        attention = attention.masked_fill(torch.eye(len(governors), dtype=torch.bool), -1)
    right = attention.argmax(-1) == torch.tensor(governors)
    if root:
        return right.float().mean(-1)
    return right[:, torch.tensor(governors) >= 0].float().mean(-1)


_FINDS_MISTAKES = [
    Mistake(
        "A word's own place wins in some heads, and no word governs itself: rule the diagonal out before the argmax.",
        lambda a, g: _finds(a, g, itself=True),
    ),
    Mistake(
        "The root is counted, though it has no governor that a head could find: divide by the words that have one.",
        lambda a, g: _finds(a, g, root=True),
    ),
    Mistake(
        "The diagonal and the root: rule the one out, do not count the other.", lambda a, g: _finds(a, g, True, True)
    ),
    Mistake(
        "The argmax is over those who look (columns of the matrix); each word's own row says where it looks: dim=-1.",
        lambda a, g: _finds(a.mT, g),
    ),
    Mistake(
        "-1 is a place in Python: the last. The root must be left out, not compared with the last word.",
        lambda a, g: _finds(a, [w % len(g) for w in g], root=True),
    ),
    Mistake(
        "This is how much attention goes to the governors. Asked is how often the governor gets the most.",
        lambda a, g: torch.stack([a[:, w, p] for w, p in enumerate(g) if p >= 0]).mean(0),
    ),
    Mistake(
        "This is the number of words; asked is the share.",
        lambda a, g: _finds(a, g) * sum(p >= 0 for p in g),
    ),
    Mistake("This is one number for all heads; keep them apart: [H].", lambda a, g: _finds(a, g).mean()),
]


# --- a fixed distance ---------------------------------------------------------------------------------------------


def _share(offset: int, pairs: Pairs) -> float:
    return sum(governor - dependent == offset for dependent, governor in pairs) / len(pairs)


def _commonest(pairs: Pairs, sign: int = 1) -> int:
    return Counter(sign * (governor - dependent) for dependent, governor in pairs).most_common(1)[0][0]


def _offset(choose: Pairs, score: Pairs) -> tuple[int, float]:
    offset = _commonest(choose)
    return offset, _share(offset, score)


def _rounded(choose: Pairs, score: Pairs) -> tuple[int, float]:
    offset = round(sum(governor - dependent for dependent, governor in choose) / len(choose))
    return offset, _share(offset, score)


def _unsigned(choose: Pairs, score: Pairs) -> tuple[int, float]:
    offset = Counter(abs(governor - dependent) for dependent, governor in choose).most_common(1)[0][0]
    return offset, sum(abs(governor - dependent) == offset for dependent, governor in score) / len(score)


_OFFSET_MISTAKES = [
    Mistake(
        "The distance is chosen on the very arcs that it is scored on. Choose on the first list, score on the second.",
        lambda choose, score: _offset(score, score),
    ),
    Mistake(
        "The share is of the arcs that the distance was chosen on; score it on the second list.",
        lambda choose, score: _offset(choose, choose),
    ),
    Mistake("The two lists have changed places: choose on the first.", lambda choose, score: _offset(score, choose)),
    Mistake(
        "The sign is turned: offset = governor - dependent, positive if the governor stands to the right.",
        lambda choose, score: (-_commonest(choose), _share(_commonest(choose), score)),
    ),
    Mistake("This is the mean distance, rounded. Asked is the commonest: Counter(...).most_common(1).", _rounded),
    Mistake(
        "Left and right are thrown together (abs): two to the left is another offset than two to the right.", _unsigned
    ),
    Mistake("The share comes first here; return (offset, share).", lambda a, b: _offset(a, b)[::-1]),
    Mistake("This is the offset alone; return (offset, share).", lambda a, b: _commonest(a)),
    Mistake(
        "This is the number of arcs; asked is the share.",
        lambda a, b: (_commonest(a), _share(_commonest(a), b) * len(b)),
    ),
]


# --- control task -------------------------------------------------------------------------------------------------


def _judge_control(fn: object, seed: int) -> None:
    count, draw = 3000, rng(seed)
    types = [f"w{number}" for number in range(900)]
    words = types + [types[int(n)] for n in torch.randint(900, (count - 900,), generator=draw)]
    frequent = (torch.rand(count, generator=draw) < 0.8).tolist()
    labels = [0 if often else 1 + n % 3 for n, often in enumerate(frequent)]  # 80% of 0, the rest of 1, 2, 3
    case = {"words": words, "labels": labels, "rng": rng(7 + seed)}
    got = outcome(fn, case)
    if isinstance(got, Crash):
        raise WrongError(difference({"words": words}, got, None))
    got = _plain(got)
    if isinstance(got, dict):
        raise WrongError(
            "This is a label for each word type; return one for each of the N places: [table[w] for w in words]."
        )
    if not isinstance(got, list) or len(got) != count:
        raise WrongError(f"It should return a list of {count} labels, one for each word of the text.")
    if not set(got) <= set(labels):
        raise WrongError("It returns labels that the task does not have; draw from `labels`.")
    if got == labels:
        raise WrongError("These are the task's own labels; the control task has random ones.")
    table: dict[str, set[Any]] = {}
    for word, label in zip(words, got, strict=True):
        table.setdefault(word, set()).add(label)
    if any(len(found) > 1 for found in table.values()):
        raise WrongError(
            "The same word has different labels at different places. Then nothing could be learned; the control task "
            "can be, by heart: one draw for each different word."
        )
    drawn = Counter(next(iter(found)) for found in table.values())
    if len(drawn) == 1:
        raise WrongError("All words have the same label; draw one for each different word.")
    _judge_draw(fn, case, got, {label: n / len(types) for label, n in drawn.items()})


def _judge_draw(fn: object, case: Case, got: list[Any], drawn: dict[Any, float]) -> None:
    words, labels = case["words"], case["labels"]
    first = dict(zip(reversed(words), reversed(labels), strict=True))
    often: dict[str, Counter[int]] = {}
    for word, label in zip(words, labels, strict=True):
        often.setdefault(word, Counter())[label] += 1
    if got == [first[word] for word in words] or got == [often[word].most_common(1)[0][0] for word in words]:
        raise WrongError(
            "Each word has a label that it has in the task itself: this is a real task. Draw from all of `labels`."
        )
    if drawn.get(0, 0.0) < 0.5:
        raise WrongError(
            f"Label 0 is {labels.count(0) / len(labels):.0%} of the task's labels and {drawn.get(0, 0.0):.0%} of the "
            "words' new ones. Draw from the list of all labels, not from the set: as often as in the task."
        )
    if _plain(outcome(fn, {**case, "rng": rng(99)})) == got:
        raise WrongError("Another generator gives the same labels: draw with generator=rng.")
    if _plain(outcome(fn, case)) != got:
        raise WrongError("The same generator gives other labels the next time: draw with generator=rng.")


def _plain(got: Any) -> Any:
    """A tensor of labels as a list."""
    return got.tolist() if isinstance(got, Tensor) and got.dim() == 1 and not got.is_floating_point() else got


# --- layers as features -------------------------------------------------------------------------------------------


def _four(layers: Tensor) -> tuple[Tensor, Tensor]:
    return layers.sum(0), torch.cat(list(layers), dim=-1)


_FOUR_MISTAKES = [
    Mistake(
        "These are the first four, the embeddings among them; the last four are layers[-4:].", lambda x: _four(x[:4])
    ),
    Mistake("These are all layers; only the last four are asked for.", lambda x: _four(x)),
    Mistake("The top layer is left out: layers[-4:] ends with it.", lambda x: _four(x[-5:-1])),
    Mistake("The sum is a mean here.", lambda x: (x[-4:].mean(0), _four(x[-4:])[1])),
    Mistake(
        "reshape without a transpose mixes numbers of different tokens: the tokens must come first, "
        "torch.cat(list(layers[-4:]), dim=-1).",
        lambda x: (x[-4:].sum(0), x[-4:].reshape(x.shape[1], -1)),
    ),
    Mistake(
        "The top layer comes first in the concatenation; asked is lower before higher.",
        lambda x: (x[-4:].sum(0), _four(x[-4:].flip(0))[1]),
    ),
    Mistake(
        "The layers are joined one below the other (dim=0): 4T rows. Side by side is dim=-1.",
        lambda x: (x[-4:].sum(0), torch.cat(list(x[-4:]), dim=0)),
    ),
    Mistake("The concatenation comes first here; return (sum, concatenation).", lambda x: _four(x[-4:])[::-1]),
    Mistake(
        "The numbers are summed over the tokens too; keep one vector a token.",
        lambda x: (x[-4:].sum((0, 1)), _four(x[-4:])[1]),
    ),
]
