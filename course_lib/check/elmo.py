"""Checks of lesson 06: a word's features from its characters, the biLM's targets, turned rows, the mix, neighbours."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.check.attention import normal
from course_lib.check.base import Case, Mistake, Verdict, compare, report, rng

IGNORE = -100


def char_features(fn: object) -> Verdict:
    """`fn(x, filters)` -> [N F]: every filter's largest value over the places of a word, then ReLU, side by side.

    x [N E C]: the characters' vectors of N words. filters: weights [F E w], one tensor for each width w.
    """
    cases: list[Case] = [_spelled(0, 4, 3, 9, ((2, 1), (3, 2))), _spelled(1, 2, 5, 7, ((4, 3),))]

    def test() -> str:
        compare(fn, cases, _features(), _FEATURE_MISTAKES)
        return "four words of nine characters with filters one and two wide, two words with filters three wide"

    return report("char_features", test)


def bilm_labels(fn: object) -> Verdict:
    """`fn(ids, lengths)` -> Int[B 2 T]: at [:, 0] the word after each place, at [:, 1] the word before it, -100 where
    there is none.

    ids Int[B T], padded on the right. lengths Int[B]: real places of each row.
    """
    cases: list[Case] = [
        {"ids": torch.tensor([[1, 7, 8, 9, 2], [1, 5, 2, 0, 0]]), "lengths": torch.tensor([5, 3])},
        {"ids": torch.tensor([[1, 4, 4, 2]]), "lengths": torch.tensor([4])},
        {"ids": torch.tensor([[1, 3, 6, 2, 0, 0], [1, 9, 8, 5, 7, 2], [1, 2, 0, 0, 0, 0]]),
         "lengths": torch.tensor([4, 6, 2])},
    ]  # fmt: skip

    def test() -> str:
        compare(fn, cases, _labels(), _LABEL_MISTAKES)
        return "rows with and without padding, a word that comes twice, a row of nothing but its two marks"

    return report("bilm_labels", test)


def turn_rows(fn: object) -> Verdict:
    """`fn(x, lengths)` -> x with the real places of every row in reverse order; padding stays where it is.

    x [B T D], padded on the right. lengths Int[B].
    """
    cases = [_padded(0, 3, 5, 2, [5, 3, 1]), _padded(1, 2, 4, 3, [2, 4]), _padded(2, 1, 6, 1, [4])]

    def test() -> str:
        compare(fn, cases, _turn, _TURN_MISTAKES)
        return "rows of 1 to 6 places, with none to four places of padding"

    return report("turn_rows", test)


def elmo_mix(fn: object) -> Verdict:
    """`fn(layers, scores, gamma)` -> [B T F]: gamma times the sum of the layers, each with its share softmax(scores).

    layers [L B T F]; scores [L]; gamma a number.
    """
    cases: list[Case] = [
        {"layers": normal(700 + seed, *shape), "scores": 0.5 + normal(720 + seed, shape[0]).abs(), "gamma": gamma}
        for seed, (shape, gamma) in enumerate((((3, 2, 4, 5), 1.7), ((2, 1, 3, 4), 0.4), ((3, 1, 1, 6), 3.0)))
    ]

    def test() -> str:
        compare(fn, cases, _mix(), _MIX_MISTAKES)
        return "three layers and two, gamma above and below 1"

    return report("elmo_mix", test)


def nearest_use(fn: object) -> Verdict:
    """`fn(vectors, texts, query)` -> the number of the use with the largest cosine to use `query`, out of those that
    stand in another text.

    vectors [N F]: one for each use of a word. texts Int[N]: the text that it stands in. query: its number.
    """
    cases: list[Case] = [_uses(seed) for seed in range(12)]

    def whole(*given: Any) -> object:
        assert callable(fn)
        found = fn(*given)
        return int(found) if isinstance(found, Tensor) and found.numel() == 1 else found

    def test() -> str:
        compare(whole if callable(fn) else fn, cases, _nearest(), _NEAREST_MISTAKES)
        return "twelve questions over 30 uses of unlike lengths, three of them in the same text"

    return report("nearest_use", test)


# ---------------------------------------------------------------- characters


def _spelled(seed: int, n: int, e: int, c: int, kinds: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """A word of which one filter fires nowhere is among them: its largest value is below 0."""
    x = normal(600 + seed, n, e, c)
    filters = [normal(610 + 10 * seed + i, many, e, wide) for i, (many, wide) in enumerate(kinds)]
    x[0] = -filters[0][0].mean(-1, keepdim=True)
    return {"x": x, "filters": filters}


def _features(
    pick: Callable[[Tensor], Tensor] = lambda y: y.amax(-1),
    act: Callable[[Tensor], Tensor] = F.relu,
    pad: bool = False,
    flip: bool = False,
    only: int | None = None,
) -> Callable[..., Tensor]:
    """The character CNN's features, or with a slip."""

    def features(x: Tensor, filters: Sequence[Tensor]) -> Tensor:
        found = []
        for weight in filters[:only]:
            wide = weight.shape[-1] - 1
            whole = F.pad(x, (wide, wide)) if pad else x
            found.append(act(pick(F.conv1d(whole, weight.flip(-1) if flip else weight))))
        return torch.cat(found, dim=-1)

    return features


_FEATURE_MISTAKES = [
    Mistake("The ReLU is missing: a filter that fires nowhere should give 0.", _features(act=lambda y: y)),
    Mistake(
        "The mean over the places is taken; it must be the largest value, so that one place is enough.",
        _features(lambda y: y.mean(-1)),
    ),
    Mistake(
        "The mean over the places is taken, after the ReLU; it must be the largest value.",
        _features(lambda y: y.relu().mean(-1)),
    ),
    Mistake(
        "The places are added up; take the largest value, so that long words do not have larger features.",
        _features(lambda y: y.sum(-1)),
    ),
    Mistake(
        "The largest value is taken over the filters, not over the places; each filter has a feature of its own.",
        _features(lambda y: y.amax(1)),
    ),
    Mistake("Only the last place of the word counts; take the largest of all places.", _features(lambda y: y[..., -1])),
    Mistake("Only the filters of the first width are used; put the features of all side by side.", _features(only=1)),
    Mistake("Tanh stands where the ReLU should: torch.relu keeps what is above 0 as it is.", _features(act=torch.tanh)),
    Mistake(
        "The word is padded with zeros at its ends, which makes places of half a window; F.conv1d without padding.",
        _features(pad=True),
    ),
    Mistake(
        "The filters run backwards over the characters; F.conv1d lays a filter on as it is, do not flip it.",
        _features(flip=True),
    ),
]

# ---------------------------------------------------------------- targets of both directions


def _labels(
    *, steps: tuple[int, int] = (1, -1), none: int = IGNORE, padded: bool = True, wrap: bool = False
) -> Callable[..., Tensor]:
    """The targets of both directions, or with a slip. padded: places without a target are known by the row's length."""

    def labels(ids: Tensor, lengths: Tensor) -> Tensor:
        wide = ids.shape[1]
        place = torch.arange(wide)
        found = torch.stack([ids[:, (place + step) % wide] for step in steps], dim=1)
        ends = lengths[:, None] if padded else torch.full((len(ids), 1), wide)
        if not wrap:
            for side, step in enumerate(steps):
                there = (place + step >= 0) & (place + step < ends) & (place < ends)
                found[:, side] = found[:, side].masked_fill(~there, none)
        return found

    return labels


_LABEL_MISTAKES = [
    Mistake(
        "The two directions have changed places: [:, 0] is the word after each place, [:, 1] the word before it.",
        _labels(steps=(-1, 1)),
    ),
    Mistake(
        "Both directions predict the next word; the backward model predicts the word before.", _labels(steps=(1, 1))
    ),
    Mistake(
        "Both directions predict the word before; the forward model predicts the next word.", _labels(steps=(-1, -1))
    ),
    Mistake(
        "The targets are the words themselves, which the model is shown: shift them by one.", _labels(steps=(0, 0))
    ),
    Mistake(
        "The ends wrap round: torch.roll gives the last word of a row as the word before its first. Write -100 there.",
        _labels(wrap=True),
    ),
    Mistake(
        "Padding is predicted: the last real word has no next word, and padding has no target at all. Use lengths.",
        _labels(padded=False),
    ),
    Mistake("Places without a target hold 0, which is a word's number; the loss leaves out -100.", _labels(none=0)),
    Mistake("Places without a target hold -1; the loss leaves out -100.", _labels(none=-1)),
    Mistake("The targets are two words away; shift by one.", _labels(steps=(2, -2))),
]

# ---------------------------------------------------------------- rows from right to left


def _padded(seed: int, b: int, t: int, d: int, lengths: list[int]) -> dict[str, Tensor]:
    return {"x": normal(640 + seed, b, t, d), "lengths": torch.tensor(lengths)}


def _turn(x: Tensor, lengths: Tensor) -> Tensor:
    turned = x.clone()
    for row, length in enumerate(lengths.tolist()):
        turned[row, :length] = x[row, :length].flip(0)
    return turned


def _zeroed(x: Tensor, lengths: Tensor) -> Tensor:
    return _turn(x, lengths) * (torch.arange(x.shape[1]) < lengths[:, None])[..., None]


def _one_less(x: Tensor, lengths: Tensor) -> Tensor:
    return _turn(x, lengths - 1)


_TURN_MISTAKES = [
    Mistake(
        "The whole row is flipped, so padding stands in front, and a backward LSTM would start on it. Flip only the "
        "first `length` places.",
        lambda x, _: x.flip(1),
    ),
    Mistake("Nothing is turned: the rows come back as they are.", lambda x, lengths: x),
    Mistake("The rows are flipped, not the places within them; places are dimension 1.", lambda x, _: x.flip(0)),
    Mistake("The components of the vectors are flipped, not their places.", lambda x, _: x.flip(-1)),
    Mistake("The padding is overwritten with zeros; leave it as it stands.", _zeroed),
    Mistake("The last real place of each row stays: a slice ends before its end, so it is x[row, :length].", _one_less),
]

# ---------------------------------------------------------------- the mix


def _mix(
    share: Callable[[Tensor], Tensor] = lambda s: s.softmax(0),
    gamma: Callable[[Tensor, float], Tensor] = lambda mixed, g: g * mixed,
) -> Callable[..., Tensor]:
    """The task's mix of the layers, or with a slip."""

    def mix(layers: Tensor, scores: Tensor, g: float) -> Tensor:
        return gamma(torch.einsum("l,lbtf->btf", share(scores), layers), g)

    return mix


def _inside(layers: Tensor, scores: Tensor, g: float) -> Tensor:
    return torch.einsum("l,lbtf->btf", (g * scores).softmax(0), layers)


_MIX_MISTAKES = [
    Mistake("The softmax is missing: the scores are used as they are.", _mix(lambda s: s)),
    Mistake("Gamma is missing: the mix must be scaled by it.", _mix(gamma=lambda mixed, g: mixed)),
    Mistake("Gamma stands inside the softmax; it scales the mix from outside.", _inside),
    Mistake("Gamma is added; it multiplies the mix.", _mix(gamma=lambda mixed, g: mixed + g)),
    Mistake(
        "The scores are divided by their sum; a softmax takes their exponentials first, so that they may be negative.",
        _mix(lambda s: s / s.sum()),
    ),
    Mistake("Each score has a sigmoid of its own; the shares must add up to 1: softmax.", _mix(torch.sigmoid)),
    Mistake(
        "The mean of the weighted layers is taken; the shares already add up to 1, so it is a sum.",
        _mix(lambda s: s.softmax(0) / len(s)),
    ),
    Mistake("The scores play no part: every layer has the same share.", _mix(lambda s: torch.ones_like(s) / len(s))),
    Mistake(
        "Only the top layer is taken; the mix is of all layers.",
        lambda layers, scores, g: g * layers[-1],
    ),
    Mistake(
        "The softmax runs over the layers' numbers; it is taken of the scores, and the numbers stay as they are.",
        lambda layers, scores, g: g * (layers.softmax(0) * scores[:, None, None, None]).sum(0),
    ),
]

# ---------------------------------------------------------------- the nearest use


def _uses(seed: int) -> dict[str, Any]:
    """Uses of unlike lengths. The two others of the query's text are the nearest of all."""
    vectors = normal(800 + seed, 30, 6)
    order = torch.randperm(30, generator=rng(820 + seed)).tolist()
    query, beside = order[0], order[1:3]
    for other in beside:
        vectors[other] = vectors[query] + 0.3 * normal(840 + other, 6)
    vectors *= 0.5 + 2 * torch.rand(30, 1, generator=rng(880 + seed))
    texts = torch.arange(30)
    texts[beside] = query
    return {"vectors": vectors, "texts": texts, "query": query}


def _nearest(
    score: Callable[[Tensor, Tensor], Tensor] = lambda v, q: F.cosine_similarity(v, q[None]), out: str = "text"
) -> Callable[..., int]:
    """The nearest use in another text, or with a slip."""

    def nearest(vectors: Tensor, texts: Tensor, query: int) -> int:
        scores = score(vectors, vectors[query])
        barred = {
            "text": texts == texts[query],
            "itself": torch.arange(len(texts)) == query,
            "none": torch.zeros(len(texts), dtype=torch.bool),
        }[out]
        return int(scores.masked_fill(barred, float("-inf")).argmax())

    return nearest


_NEAREST_MISTAKES = [
    Mistake(
        "It finds the use itself: nothing is nearer than a vector to itself. Leave out all uses of the same text.",
        _nearest(out="none"),
    ),
    Mistake(
        "The use itself is left out, but other uses of the same text are not; compare `texts`.", _nearest(out="itself")
    ),
    Mistake(
        "Dot products are compared, so long vectors win; divide by the lengths: F.cosine_similarity.",
        _nearest(lambda v, q: v @ q),
    ),
    Mistake(
        "Distances are compared, so lengths count; take cosines.",
        _nearest(lambda v, q: -(v - q).norm(dim=-1)),
    ),
    Mistake(
        "It finds the use that is farthest away; the largest cosine is asked for.",
        _nearest(lambda v, q: -F.cosine_similarity(v, q[None])),
    ),
    Mistake(
        "The answer comes from the same text: `texts == texts[query]` is what must be left out.",
        lambda vectors, texts, query: int(
            F.cosine_similarity(vectors, vectors[query][None]).masked_fill(texts != texts[query], -2).argmax()
        ),
    ),
]
