"""Checks of lesson 02, translation: what the decoder reads, label smoothing, one step of the beam."""

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.check.base import Case, Mistake, Verdict, compare, outcome, report, rng


def decoder_input(fn: object) -> Verdict:
    """`fn(target, start)`: the target Int[B U] one place to the right, `start` in front, the last token dropped."""
    cases = [
        {"target": torch.tensor([[5, 6, 7, 3]]), "start": 2},
        {"target": torch.randint(4, 20, (3, 6), generator=rng(5)), "start": 1},
        {"target": torch.tensor([[9], [8]]), "start": 0},
    ]

    def test() -> str:
        compare(fn, cases, _shifted, _SHIFT_MISTAKES)
        return "the start token in front, every target token one place later, as long as the target"

    return report("decoder_input", test)


def smoothed_loss(fn: object) -> Verdict:
    """`fn(logits, target, smoothing)`: mean cross-entropy against (1 - smoothing) on the target plus smoothing / V on
    each of the V tokens. logits [N V], target Int[N]."""
    cases = [
        {"logits": 2 * _normal(seed, n, v), "target": torch.randint(v, (n,), generator=rng(seed)), "smoothing": s}
        for seed, n, v, s in ((6, 4, 5, 0.1), (7, 6, 9, 0.3), (8, 3, 4, 0.0))
    ]

    def test() -> str:
        compare(fn, cases, lambda z, t, s: F.cross_entropy(z, t, label_smoothing=s), _SMOOTH_MISTAKES)
        return "three sizes of vocabulary, smoothing 0, 0.1 and 0.3"

    return report("smoothed_loss", test)


def beam_step(fn: object) -> Verdict:
    """`fn(scores, log_probs, width)`: the best `width` ways to go on. scores Float[W], the sum of log probabilities of
    each text so far; log_probs Float[W V] of the next token. Returns (parent Int[width], token Int[width],
    score Float[width]), best first."""
    cases = [
        {"scores": -3 * _normal(seed, w).abs(), "log_probs": (2 * _normal(seed + 20, w, v)).log_softmax(-1), "width": n}
        for seed, w, v, n in ((12, 3, 7, 3), (13, 2, 5, 4), (14, 4, 6, 2))
    ]

    def test() -> str:
        compare(fn, cases, _best, _BEAM_MISTAKES, hints=lambda: _sorted(fn, cases[0]))
        return "2 to 4 texts, vocabularies of 5 to 7, best first"

    return report("beam_step", test)


def _normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=rng(seed))


def _shifted(target: Tensor, start: int) -> Tensor:
    return torch.cat((torch.full_like(target[:, :1], start), target[:, :-1]), dim=1)


_SHIFT_MISTAKES = [
    Mistake(
        "The decoder is given the target itself: at each place it reads the very token that it should say, and learns "
        "to copy. Move it one place to the right.",
        lambda target, start: target,
    ),
    Mistake(
        "The last token is not dropped: the input is one longer than the target, and nothing is to be said after the "
        "end.",
        lambda target, start: torch.cat((torch.full_like(target[:, :1], start), target), dim=1),
    ),
    Mistake(
        "It is moved to the left: the decoder reads the token after the one it should say.",
        lambda target, start: torch.cat((target[:, 1:], torch.full_like(target[:, :1], start)), dim=1),
    ),
    Mistake(
        "roll puts the last token of the target in front, where `start` belongs.",
        lambda target, start: target.roll(1, dims=1),
    ),
    Mistake(
        "The start token overwrites the first token instead of pushing the others to the right.",
        lambda target, start: torch.cat((torch.full_like(target[:, :1], start), target[:, 1:]), dim=1),
    ),
    Mistake(
        "The start token stands at the end; it belongs in front.",
        lambda target, start: torch.cat((target[:, :-1], torch.full_like(target[:, :1], start)), dim=1),
    ),
    Mistake(
        "roll without dims=1 moves tokens from one row of the batch into the next.",
        lambda target, start: _flat_roll(target, start),
    ),
]


def _flat_roll(target: Tensor, start: int) -> Tensor:
    shifted = target.roll(1)
    shifted[0, 0] = start
    return shifted


def _against(logits: Tensor, wanted: Tensor) -> Tensor:
    return -(wanted * logits.log_softmax(-1)).sum(-1).mean()


def _wanted(logits: Tensor, target: Tensor, on_target: float, on_others: float) -> Tensor:
    hot = F.one_hot(target, logits.shape[-1]).to(logits.dtype)
    return on_target * hot + on_others * (1 - hot)


_SMOOTH_MISTAKES = [
    Mistake("There is no smoothing in it: this is the plain cross-entropy.", lambda z, t, s: F.cross_entropy(z, t)),
    Mistake(
        "The smoothing is shared among the V - 1 other tokens only. The paper's form, and PyTorch's, spreads it over "
        "all V: the target has 1 - smoothing + smoothing / V.",
        lambda z, t, s: _against(z, _wanted(z, t, 1 - s, s / (z.shape[-1] - 1))),
    ),
    Mistake(
        "The target keeps the full 1 beside the share of the others; together the shares must be 1: give it "
        "(1 - smoothing) plus its smoothing / V.",
        lambda z, t, s: _against(z, _wanted(z, t, 1 + s / z.shape[-1], s / z.shape[-1])),
    ),
    Mistake(
        "Each token gets `smoothing` instead of smoothing / V.",
        lambda z, t, s: _against(z, _wanted(z, t, 1.0, s)),
    ),
    Mistake(
        "The target's share is 1 - smoothing alone; spread over ALL V tokens, smoothing / V falls on the target too.",
        lambda z, t, s: _against(z, _wanted(z, t, 1 - s, s / z.shape[-1])),
    ),
    Mistake(
        "The shares have changed places: the target should get the large one, 1 - smoothing.",
        lambda z, t, s: F.cross_entropy(z, t, label_smoothing=1 - s),
    ),
    Mistake(
        "It is the sum over the rows; return the mean.",
        lambda z, t, s: F.cross_entropy(z, t, label_smoothing=s, reduction="sum"),
    ),
    Mistake(
        "The sign is missing: a loss is minus the log probability.",
        lambda z, t, s: -F.cross_entropy(z, t, label_smoothing=s),
    ),
    Mistake(
        "The logits are not turned into log probabilities: log_softmax first.",
        lambda z, t, s: -(_wanted(z, t, 1 - s + s / z.shape[-1], s / z.shape[-1]) * z).sum(-1).mean(),
    ),
    Mistake(
        "The probabilities have no logarithm: use log_softmax, not softmax.",
        lambda z, t, s: -(_wanted(z, t, 1 - s + s / z.shape[-1], s / z.shape[-1]) * z.softmax(-1)).sum(-1).mean(),
    ),
    Mistake(
        "mean() runs over all N x V numbers; sum over the vocabulary (dim=-1), then take the mean over the rows.",
        lambda z, t, s: F.cross_entropy(z, t, label_smoothing=s) / z.shape[-1],
    ),
]


def _split(total: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    score, flat = total.flatten().topk(width)
    return flat // total.shape[-1], flat % total.shape[-1], score


def _best(scores: Tensor, log_probs: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    return _split(scores[:, None] + log_probs, width)


def _swapped(scores: Tensor, log_probs: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    parent, token, score = _best(scores, log_probs, width)
    return token, parent, score


def _by_row_count(scores: Tensor, log_probs: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    score, flat = (scores[:, None] + log_probs).flatten().topk(width)
    return flat // len(scores), flat % len(scores), score


def _each_its_own(scores: Tensor, log_probs: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    score, token = (scores[:, None] + log_probs).max(-1)
    return torch.arange(len(scores)), token, score


_BEAM_MISTAKES = [
    Mistake(
        "The scores so far are not used: a good token after a bad text is no good text. scores[:, None] + log_probs.",
        lambda scores, log_probs, width: _split(log_probs, width),
    ),
    Mistake(
        "The scores so far are multiplied with the log probabilities; logarithms of products are added.",
        lambda scores, log_probs, width: _split(scores[:, None] * log_probs, width),
    ),
    Mistake("Parent and token have changed places: (parent, token, score).", _swapped),
    Mistake(
        "A place in the flattened table is parent * V + token, so divide by the size of the vocabulary, "
        "log_probs.shape[-1], not by the number of texts.",
        _by_row_count,
    ),
    Mistake(
        "Each text goes on once, with its own best token. The best `width` of ALL ways to go on may all come from one "
        "text: flatten, then topk.",
        _each_its_own,
    ),
    Mistake(
        "These are the worst ways to go on; the largest scores are the best (topk's default).",
        lambda scores, log_probs, width: _worst(scores, log_probs, width),
    ),
    Mistake(
        "Probabilities are added to log probabilities; leave log_probs as they are.",
        lambda scores, log_probs, width: _split(scores[:, None] + log_probs.exp(), width),
    ),
    Mistake(
        "The scores so far are added along the wrong axis: scores[:, None] gives each row its own.",
        lambda scores, log_probs, width: _split(scores + log_probs, width),
    ),
    Mistake(
        "The scores are turned back into probabilities; return the sums of log probabilities.",
        lambda scores, log_probs, width: _as_probabilities(scores, log_probs, width),
    ),
]


def _worst(scores: Tensor, log_probs: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    total = scores[:, None] + log_probs
    score, flat = total.flatten().topk(width, largest=False)
    return flat // total.shape[-1], flat % total.shape[-1], score


def _as_probabilities(scores: Tensor, log_probs: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    parent, token, score = _best(scores, log_probs, width)
    return parent, token, score.exp()


def _sorted(fn: object, case: Case) -> str:
    """The right ones in another order?"""
    value, true = outcome(fn, case), _best(**case)
    fits = isinstance(value, tuple | list) and len(value) == 3 and all(isinstance(part, Tensor) for part in value)
    if fits and value[2].shape == true[2].shape and torch.allclose(value[2].sort(descending=True).values, true[2]):
        return "These are the right ones in another order; best first."
    return ""
