"""Lesson 13: a softmax with a temperature, the soft loss, layers copied from a teacher, the cosine
loss.
"""

from copy import deepcopy
from typing import Any

import torch.nn.functional as F
from torch import Generator, Tensor, nn

from classroom.checks.base import normal, outcome, row_mask
from classroom.checks.exercise import exercise


def _logits(g: Generator, gaps: int, words: int) -> tuple[Tensor, Tensor]:
    return 2 * normal(g, gaps, words), 2 * normal(g, gaps, words)


@exercise(
    lambda g: [
        (3 * normal(g, 6), 2.0),
        (3 * normal(g, 2, 5), 0.5),
        (2 * normal(g, 2, 3, 4), 4.0),
    ],
)
def soften(logits: Tensor, temperature: float) -> Tensor:
    """The softmax, along the last dimension, of logits that are divided by the temperature."""
    return (logits / temperature).softmax(-1)


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


def _weights(blocks: Any) -> list[Tensor]:
    """What makes two lists of linear layers equal."""
    return [block.weight for block in blocks]


def _copies(fn: object) -> None:
    take_layers.compare(fn)
    case = take_layers.draw()[0]
    taken = outcome(fn, case)
    take_layers.refuse(not isinstance(taken, nn.ModuleList), "no_modules")
    own = {id(block) for block in case["blocks"]}
    take_layers.refuse(any(id(block) in own for block in taken or ()), "shared")


def _blocks(g: Generator, count: int) -> nn.ModuleList:
    layers = []
    for _ in range(count):
        # Made on "meta", a layer draws nothing from the student's generator.
        layer = nn.Linear(2, 2, bias=False, device="meta").to_empty(device="cpu")
        nn.init.normal_(layer.weight, generator=g)
        layers.append(layer)
    return nn.ModuleList(layers)


@exercise(
    lambda g: [(_blocks(g, 6), 3), (_blocks(g, 12), 4), (_blocks(g, 4), 2), (_blocks(g, 2), 2)],
    judge=_copies,
    form=_weights,
)
def take_layers(blocks: nn.ModuleList, layers: int) -> nn.ModuleList:
    """Copies of evenly taken layers, the first one among them, in their order.

    blocks: the teacher's; layers: the number of the student's, by which theirs can be divided.
    """
    step = len(blocks) // layers
    return nn.ModuleList(deepcopy(block) for block in blocks[::step])


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
