"""Lesson 00: from scores to probabilities, and a label from the nearest mean."""

import torch
from torch import Generator, Tensor

from classroom.checks.base import normal
from classroom.checks.exercise import exercise


@exercise(
    lambda g: [
        (3 * normal(g, *shape), temperature)
        for shape, temperature in (((6,), 2.0), ((9,), 0.5), ((2, 5), 1.5), ((4,), 1.0))
    ],
)
def word_probabilities(logits: Tensor, temperature: float) -> Tensor:
    """Probabilities of all words, [... V], from their scores [... V]."""
    return (logits / temperature).softmax(-1)


def _labelled(g: Generator, texts: int, new: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors with labels, one more of label 0, and new vectors; all far from the origin."""
    labels = torch.tensor([0] + [0, 1] * (texts // 2))[torch.randperm(texts + 1, generator=g)]
    shift = 2 * normal(g, width)
    vectors = normal(g, texts + 1, width) + shift + labels[:, None] * normal(g, width)
    return vectors, labels, 1.5 * normal(g, new, width) + shift


@exercise(
    lambda g: [_labelled(g, texts, new, width) for texts, new, width in ((6, 40, 3), (2, 30, 2))],
)
def nearest_mean(vectors: Tensor, labels: Tensor, new: Tensor) -> Tensor:
    """Of each new vector [M E] the label, 0 or 1, whose labelled vectors [N E] have the nearest
    mean; [M].
    """
    means = torch.stack([vectors[labels == label].mean(0) for label in (0, 1)])
    return torch.cdist(new, means).argmin(1)
