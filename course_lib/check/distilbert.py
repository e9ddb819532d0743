"""Checks of lesson 13: the soft loss, the layers that a student keeps, the cosine loss, soft and hard loss together."""

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.check.base import Case, Mistake, Verdict, WrongError, compare, outcome, report, rng


def soft_loss(fn: object) -> Verdict:
    """`fn(student, teacher, temperature)` -> T^2 KL(teacher || student) of softened probabilities, the mean over N.

    student, teacher: logits [N V].
    """
    cases: list[Case] = [
        {**_logits(seed, gaps, words), "temperature": temperature}
        for seed, (gaps, words, temperature) in enumerate([(3, 7, 2.0), (5, 4, 3.0), (2, 6, 1.0)])
    ]

    def test() -> str:
        compare(fn, cases, _soft, _SOFT_MISTAKES)
        return "both softened, KL from teacher to student, times T squared, mean over the gaps, three temperatures"

    return report("soft_loss", test)


def kept_layers(fn: object) -> Verdict:
    """`fn(teacher, student)` -> numbers, from 0, of the teacher's layers that a student begins with: a list.

    teacher, student: how many layers they have; the teacher a multiple of the student's.
    """
    cases: list[Case] = [{"teacher": t, "student": s} for t, s in ((4, 2), (12, 6), (12, 4), (6, 6))]

    def test() -> str:
        compare(fn, cases, lambda teacher, student: list(range(0, teacher, teacher // student)), _KEPT_MISTAKES)
        if not all(isinstance(number, int) for number in outcome(fn, cases[0])):
            raise WrongError("Numbers of layers are whole: divide with //.")
        return "evenly taken from the first on, four pairs of sizes"

    return report("kept_layers", test)


def cosine_loss(fn: object) -> Verdict:
    """`fn(student, teacher, keep)` -> 1 - cosine of each real token's two vectors, the mean over real tokens.

    student, teacher [B T D]; keep Bool[B T].
    """
    cases = [_states(seed, *sizes) for seed, sizes in enumerate([((5, 3), 4), ((6, 2, 4), 3)])]

    def test() -> str:
        compare(fn, cases, _cosine, _COSINE_MISTAKES)
        return "one minus the cosine, over real tokens only, two batches"

    return report("cosine_loss", test)


def distil_loss(fn: object) -> Verdict:
    """`fn(student, teacher, labels, temperature, soft, hard)` -> soft times the soft loss + hard times cross-entropy.

    student, teacher: logits [N V]; labels Int[N]; soft, hard: the weights.
    """
    cases: list[Case] = [
        {
            **_logits(10 + seed, gaps, words),
            "labels": torch.randint(words, (gaps,), generator=rng(20 + seed)),
            "temperature": temperature, "soft": soft, "hard": hard,
        }
        for seed, (gaps, words, temperature, soft, hard) in enumerate([(4, 7, 2.0, 5.0, 2.0), (3, 5, 3.0, 0.5, 0.25)])
    ]  # fmt: skip

    def test() -> str:
        compare(fn, cases, _both, _BOTH_MISTAKES)
        return "softened beside the teacher, plain beside the labels, each with its weight, two batches"

    return report("distil_loss", test)


# --- the soft loss ------------------------------------------------------------------------------------------------


def _logits(seed: int, gaps: int, words: int) -> Case:
    draw = rng(seed)
    return {who: 2 * torch.randn(gaps, words, generator=draw) for who in ("student", "teacher")}


def _soft(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    return _kl(teacher / temperature, student / temperature).sum(-1).mean() * temperature**2


def _kl(of: Tensor, to: Tensor) -> Tensor:
    """Each word's part of KL(softmax(of) || softmax(to))."""
    return of.softmax(-1) * (of.log_softmax(-1) - to.log_softmax(-1))


def _cross(of: Tensor, to: Tensor) -> Tensor:
    return -(of.softmax(-1) * to.log_softmax(-1)).sum(-1)


_SOFT_MISTAKES = [
    Mistake(
        "The factor T squared is missing: the higher the temperature, the less the soft loss would count.",
        lambda s, t, T: _kl(t / T, s / T).sum(-1).mean(),
    ),
    Mistake(
        "The factor is T; the gradient of softened probabilities shrinks with 1 / T squared, so it is T squared.",
        lambda s, t, T: _kl(t / T, s / T).sum(-1).mean() * T,
    ),
    Mistake(
        "Only the teacher is softened; both are, or the student would have to answer softly without a temperature.",
        lambda s, t, T: _kl(t / T, s).sum(-1).mean() * T**2,
    ),
    Mistake(
        "Only the student is softened; divide the teacher's logits by the temperature, too.",
        lambda s, t, T: _kl(t, s / T).sum(-1).mean() * T**2,
    ),
    Mistake(
        "The logits are multiplied by the temperature; they are divided by it.",
        lambda s, t, T: _kl(t * T, s * T).sum(-1).mean() * T**2,
    ),
    Mistake("The temperature softens nothing here.", lambda s, t, T: _kl(t, s).sum(-1).mean() * T**2),
    Mistake(
        "That is KL(student || teacher); the teacher's probabilities are the true ones: KL(teacher || student).",
        lambda s, t, T: _kl(s / T, t / T).sum(-1).mean() * T**2,
    ),
    Mistake(
        "That is the cross-entropy. It has the same gradient, but is not 0 where the student says what the teacher "
        "says: the teacher's own entropy is still in it.",
        lambda s, t, T: _cross(t / T, s / T).mean() * T**2,
    ),
    Mistake(
        "The mean is over gaps and words; sum over the words (reduction='batchmean' does), then take the mean.",
        lambda s, t, T: _kl(t / T, s / T).mean() * T**2,
    ),
    Mistake(
        "The loss is summed over the gaps; it is their mean.", lambda s, t, T: _kl(t / T, s / T).sum() * T**2
    ),
    Mistake(
        "That takes the teacher's first choice as a hard label; its whole distribution is the target.",
        lambda s, t, T: F.cross_entropy(s / T, t.argmax(-1)) * T**2,
    ),
    Mistake(
        "The sign is wrong: a divergence is 0 or more, and it is made smaller.",
        lambda s, t, T: -_kl(t / T, s / T).sum(-1).mean() * T**2,
    ),
]  # fmt: skip


# --- which layers -------------------------------------------------------------------------------------------------

_KEPT_MISTAKES = [
    Mistake("Those are the teacher's first layers; take them evenly over its depth.", lambda t, s: list(range(s))),
    Mistake(
        "Those are the teacher's last layers; take them evenly over its depth.", lambda t, s: list(range(t - s, t))
    ),
    Mistake(
        "Counted from 1; the teacher's layers are numbered from 0 here, as in `stack.blocks`.",
        lambda t, s: list(range(1, t + 1, t // s)),
    ),
    Mistake(
        "That is the last layer of each group, the one that a student's layer may learn from (section 7); it begins as "
        "the first of each group.",
        lambda t, s: list(range(t // s - 1, t, t // s)),
    ),
    Mistake(
        "That takes every second layer whatever the sizes; a student of a third takes every third.",
        lambda t, s: list(range(0, t, 2)),
    ),
]  # fmt: skip


# --- the cosine ---------------------------------------------------------------------------------------------------


def _states(seed: int, lengths: tuple[int, ...], width: int) -> Case:
    draw, most = rng(30 + seed), max(lengths)
    states = {who: torch.randn(len(lengths), most, width, generator=draw) for who in ("student", "teacher")}
    return states | {"keep": torch.arange(most) < torch.tensor(lengths)[:, None]}


def _cosine(student: Tensor, teacher: Tensor, keep: Tensor) -> Tensor:
    return (1 - F.cosine_similarity(student, teacher, dim=-1))[keep].mean()


_COSINE_MISTAKES = [
    Mistake(
        "Padding counts, too; take the mean over the real tokens, those in `keep`.",
        lambda s, t, keep: (1 - F.cosine_similarity(s, t, dim=-1)).mean(),
    ),
    Mistake(
        "The sum is over the real tokens, but it is divided by the number of all; divide by keep.sum().",
        lambda s, t, keep: ((1 - F.cosine_similarity(s, t, dim=-1)) * keep).mean(),
    ),
    Mistake(
        "That is the mean cosine: it would be made smaller, so the vectors would turn away. The loss is 1 - cosine.",
        lambda s, t, keep: F.cosine_similarity(s, t, dim=-1)[keep].mean(),
    ),
    Mistake(
        "The gradient is right, but the loss is 1 - cosine, 0 where the directions agree.",
        lambda s, t, keep: -F.cosine_similarity(s, t, dim=-1)[keep].mean(),
    ),
    Mistake(
        "That is the dot product; a cosine is divided by both lengths.",
        lambda s, t, keep: (1 - (s * t).sum(-1))[keep].mean(),
    ),
    Mistake(
        "That compares along the text (dim 1); each token's two vectors are compared, along the width (dim -1).",
        lambda s, t, keep: (1 - F.cosine_similarity(s, t, dim=1)).mean(),
    ),
    Mistake(
        "The loss is summed over the tokens; it is their mean.",
        lambda s, t, keep: (1 - F.cosine_similarity(s, t, dim=-1))[keep].sum(),
    ),
    Mistake(
        "First the mean of each text, then of the texts: so a token of a short text counts more. Take one mean.",
        lambda s, t, keep: (((1 - F.cosine_similarity(s, t, dim=-1)) * keep).sum(1) / keep.sum(1)).mean(),
    ),
    Mistake(
        "That is the mean squared difference, TinyBERT's; a cosine asks for the direction only.",
        lambda s, t, keep: (s - t).square().mean(-1)[keep].mean(),
    ),
]


# --- soft and hard ------------------------------------------------------------------------------------------------


def _both(student: Tensor, teacher: Tensor, labels: Tensor, temperature: float, soft: float, hard: float) -> Tensor:
    return soft * _soft(student, teacher, temperature) + hard * F.cross_entropy(student, labels)


_BOTH_MISTAKES = [
    Mistake(
        "The hard loss is softened, too; the temperature belongs beside the teacher, the labels get the plain logits.",
        lambda s, t, y, T, a, b: a * _soft(s, t, T) + b * F.cross_entropy(s / T, y),
    ),
    Mistake("The two weights are swapped.", lambda s, t, y, T, a, b: b * _soft(s, t, T) + a * F.cross_entropy(s, y)),
    Mistake(
        "The factor T squared of the soft loss is missing.",
        lambda s, t, y, T, a, b: a * _soft(s, t, T) / T**2 + b * F.cross_entropy(s, y),
    ),
    Mistake(
        "The hard loss has the teacher's first choice as its label; it has the word that stood there.",
        lambda s, t, y, T, a, b: a * _soft(s, t, T) + b * F.cross_entropy(s, t.argmax(-1)),
    ),
    Mistake("The hard loss is the teacher's; nothing could be learned from it.",
            lambda s, t, y, T, a, b: a * _soft(s, t, T) + b * F.cross_entropy(t, y)),
    Mistake("The hard loss is missing.", lambda s, t, y, T, a, b: a * _soft(s, t, T)),
    Mistake("The soft loss is missing.", lambda s, t, y, T, a, b: b * F.cross_entropy(s, y)),
    Mistake("The weights are left out.", lambda s, t, y, T, a, b: _soft(s, t, T) + F.cross_entropy(s, y)),
    Mistake(
        "The weights are divided by their sum; here they are used as they are.",
        lambda s, t, y, T, a, b: (a * _soft(s, t, T) + b * F.cross_entropy(s, y)) / (a + b),
    ),
    Mistake(
        "The soft part is the wrong way round: KL(teacher || student).",
        lambda s, t, y, T, a, b: a * _soft(t, s, T) + b * F.cross_entropy(s, y),
    ),
]  # fmt: skip
