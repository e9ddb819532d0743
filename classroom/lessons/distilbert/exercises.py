"""Lesson 13: the soft loss, the layers that a student keeps, the cosine loss, soft and hard loss
together.
"""

import torch.nn.functional as F
from torch import Generator, Tensor

from classroom.checks.base import integers, normal, outcome, row_mask
from classroom.checks.exercise import exercise


def _logits(g: Generator, gaps: int, words: int) -> tuple[Tensor, Tensor]:
    return 2 * normal(g, gaps, words), 2 * normal(g, gaps, words)


@exercise(
    lambda g: [(*_logits(g, 3, 7), 2.0), (*_logits(g, 5, 4), 3.0), (*_logits(g, 2, 6), 1.0)],
    learns="student",
)
def soft_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T^2 KL(teacher || student) of softened probabilities, the mean over N. student, teacher:
    logits [N V].
    """
    p = (teacher / temperature).softmax(-1)
    log_q = (student / temperature).log_softmax(-1)
    kl = p * (p.log() - log_q)
    return kl.sum(-1).mean() * temperature**2


def _whole_numbers(fn: object) -> None:
    kept_layers.compare(fn)
    numbers = outcome(fn, kept_layers.draw()[0])
    kept_layers.refuse(not all(isinstance(number, int) for number in numbers), "floats")


@exercise(
    [(4, 2), (12, 6), (12, 4), (6, 6)],
    judge=_whole_numbers,
)
def kept_layers(teacher: int, student: int) -> list[int]:
    """Numbers, from 0, of the teacher's layers that a student begins with: a list.

    teacher, student: how many layers they have; the teacher a multiple of the student's.
    """
    return list(range(0, teacher, teacher // student))


def _states(g: Generator, width: int, *lengths: int) -> tuple[Tensor, Tensor, Tensor]:
    student, teacher = normal(g, 2, len(lengths), max(lengths), width)
    return student, teacher, row_mask(*lengths)


@exercise(
    lambda g: [_states(g, 4, 5, 3), _states(g, 3, 6, 2, 4)],
    learns="student",
)
def cosine_loss(student: Tensor, teacher: Tensor, attention_mask: Tensor) -> Tensor:
    """1 - cosine of each real token's two vectors, the mean over real tokens.

    student, teacher [B T D]; attention_mask Bool[B T].
    """
    apart = 1 - F.cosine_similarity(student, teacher, dim=-1)
    return apart[attention_mask].mean()


@exercise(
    lambda g: [
        (*_logits(g, gaps, words), integers(g, words, gaps), *settings)
        for gaps, words, *settings in ((4, 7, 2.0, 5.0, 2.0), (3, 5, 3.0, 0.5, 0.25))
    ],
    learns="student",
)
def distil_loss(
    student: Tensor, teacher: Tensor, labels: Tensor, temperature: float, soft: float, hard: float
) -> Tensor:
    """soft times the soft loss + hard times cross-entropy.

    student, teacher: logits [N V]; labels Int[N]; soft, hard: the weights.
    """
    softened = soft_loss.reference(student, teacher, temperature)
    loss: Tensor = soft * softened + hard * F.cross_entropy(student, labels)
    return loss
