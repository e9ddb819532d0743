"""Distillation: a small student learns from what a large teacher says, not only from the right answers.

    soft     the teacher's probabilities, softened by a temperature (Hinton et al. 2015, section 2)
    hard     the right answers themselves: `losses.cross_entropy`
    cosine   the direction of the last hidden states (Sanh et al. 2019, DistilBERT, section 2)
    layers   embeddings, hidden states and attention, layer by layer (Jiao et al. 2020, TinyBERT, section 3.1)

`Distilled(student, teacher)` runs both; `distilbert`, `tinybert` and `classification` are losses for it that `train`
takes as they are. Letters: B batch, T positions, D width, H heads, N targets, V classes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.corrupt import IGNORE
from course_lib.errors import CourseError
from course_lib.heads import MLM, MaskedHead
from course_lib.losses import Batch, cross_entropy
from course_lib.models import distilbert as presets
from course_lib.stack import Stack
from course_lib.trace import record


def soft_loss(
    student: Float[Tensor, "N V"], teacher: Float[Tensor, "N V"], temperature: float = 2.0
) -> Float[Tensor, ""]:
    """T^2 KL(softmax(teacher / T) || softmax(student / T)), the mean over N (Hinton et al. 2015, section 2).

    The gradient of softened probabilities shrinks with 1 / T^2; the factor keeps its weight beside the hard loss
    whatever the temperature. No gradient reaches the teacher.

    Raises:
        CourseError: a temperature that is not above 0, or other classes than the teacher's.
    """
    if temperature <= 0:
        raise CourseError(f"temperature is {temperature}; it must be above 0.")
    if student.shape != teacher.shape:
        raise CourseError(f"The student's logits are {tuple(student.shape)}, the teacher's {tuple(teacher.shape)}.")
    target = (teacher.detach().float() / temperature).log_softmax(-1)
    own = (student.float() / temperature).log_softmax(-1)
    return F.kl_div(own, target, reduction="sum", log_target=True) * temperature**2 / max(1, len(own))


def cosine_loss(
    student: Float[Tensor, "B T D"], teacher: Float[Tensor, "B T D"], keep: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, ""]:
    """1 - cosine of the angle between the two hidden states of a token, the mean over real tokens."""
    _same_width(student, teacher)
    return _mean(1 - F.cosine_similarity(student.float(), teacher.detach().float(), dim=-1), keep)


def hidden_loss(
    student: Float[Tensor, "B T D"], teacher: Float[Tensor, "B T D"], keep: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, ""]:
    """Mean squared difference of hidden states over real tokens (Jiao et al. 2020, equations 8 and 9)."""
    _same_width(student, teacher)
    return _mean((student.float() - teacher.detach().float()).square().mean(-1), keep)


def attention_loss(
    student: Float[Tensor, "B H T T"], teacher: Float[Tensor, "B H T T"], keep: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, ""]:
    """Mean squared difference of the attention scores before the softmax (Jiao et al. 2020, equation 7).

    The mean is over heads and, for each real query, over the keys that it may attend to.

    Raises:
        CourseError: different numbers of heads.
    """
    if student.shape != teacher.shape:
        raise CourseError(f"The student has {student.shape[1]} heads, the teacher {teacher.shape[1]}; they must match.")
    lowest = torch.finfo(teacher.dtype).min
    visible = teacher > lowest / 2  # masked places hold the lowest number there is
    difference = student.masked_fill(~visible, 0).float() - teacher.masked_fill(~visible, 0).detach().float()
    return _mean((difference.square().sum(-1) / visible.sum(-1).clamp(min=1)).mean(1), keep)


class View(NamedTuple):
    """What a model shows of itself. logits: its answer. hidden: L + 1 states [B T D], the embedding's first.
    attention: L score matrices [B H T T], where they were asked for."""

    logits: Tensor
    hidden: list[Tensor]
    attention: list[Tensor]


class Distilled(nn.Module):
    """A student with its teacher beside it. `parameters()` and checkpoints hold what learns: the student, projections.

    Args:
        student: a head on a `Stack`, which is trained. teacher: the same kind of head, put into eval mode and never
            changed.
        project: learned matrices from the student's width to the teacher's, one for the embedding and one for the
            layers (TinyBERT's W_e and W_h); by default only where the widths differ.
        layers: the teacher's layer, from 1, that each of the student's layers learns from; by default evenly spaced,
            the last one from the last.

    Raises:
        CourseError: layers that are not there, or more of them in the student than in the teacher.
    """

    def __init__(
        self,
        student: nn.Module,
        teacher: nn.Module,
        *,
        project: bool | None = None,
        layers: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        own, theirs = _stack(student).config, _stack(teacher).config
        if own.layers > theirs.layers:
            raise CourseError(f"The student has {own.layers} layers, more than the teacher's {theirs.layers}.")
        evenly = [(layer + 1) * theirs.layers // own.layers for layer in range(own.layers)]
        self.layers = tuple(evenly if layers is None else layers)
        if len(self.layers) != own.layers or not all(0 < layer <= theirs.layers for layer in self.layers):
            given = ", ".join(map(str, self.layers))
            raise CourseError(
                f"Each of {own.layers} layers learns from one of 1 to {theirs.layers}; given are {given}."
            )
        self.student = student
        self._teacher = (teacher.eval(),)  # in a tuple, out of the reach of parameters(), train() and state_dict()
        if project or (project is None and own.width != theirs.width):
            self.embedding = nn.Linear(own.width, theirs.width)
            self.hidden = nn.Linear(own.width, theirs.width)
        else:
            self.embedding, self.hidden = nn.Identity(), nn.Identity()  # type: ignore[assignment]

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        at: Bool[Tensor, "B T"] | None = None,
        attention: bool = False,
    ) -> tuple[View, View]:
        """What student and teacher show, layer for layer: of the teacher those that the student learns from, and the
        student's states in the teacher's width. `at`: logits of those positions only."""
        teacher = self._teacher[0].to(ids.device).eval()
        with torch.no_grad():
            theirs = _view(teacher, ids, keep, segments, at, attention)
        own = _view(self.student, ids, keep, segments, at, attention)
        first, *rest = own.hidden
        hidden = [self.embedding(first), *(self.hidden(h) for h in rest)]
        return own._replace(hidden=hidden), View(
            theirs.logits,
            [theirs.hidden[layer] for layer in (0, *self.layers)],
            [theirs.attention[layer - 1] for layer in self.layers] if attention else [],
        )


def distilbert(
    model: nn.Module,
    batch: Batch,
    *,
    temperature: float = 2.0,
    soft: float = 5.0,
    hard: float = 2.0,
    cosine: float = 1.0,
) -> Tensor:
    """DistilBERT's sum of three losses (Sanh et al. 2019, section 2; the weights are those of its code).

    Reads what `losses.mlm` reads. model: `Distilled` of two masked language models. Soft and hard loss at the masked
    positions, cosine at every real token.
    """
    at = batch["at"] if "at" in batch else batch["labels"] != IGNORE
    own, theirs = model(batch["ids"], at=at, **_inputs(batch))
    total = soft * soft_loss(own.logits, theirs.logits, temperature)
    total = total + hard * cross_entropy(own.logits, batch["labels"][at])
    if cosine:
        share = batch.get("token_share", 1.0)
        total = total + cosine * share * cosine_loss(own.hidden[-1], theirs.hidden[-1], batch.get("keep"))
    return total


def tinybert(
    model: nn.Module, batch: Batch, *, embedding: float = 1.0, hidden: float = 1.0, attention: float = 1.0
) -> Tensor:
    """TinyBERT's layer-wise losses, summed over the layers (Jiao et al. 2020, equation 11): no labels are needed.

    Reads `ids`, `keep`, `segments`. model: `Distilled`. Afterwards `classification` teaches the answers (section 3.2).
    """
    keep = batch.get("keep")
    own, theirs = model(batch["ids"], attention=attention > 0, **_inputs(batch))
    total = embedding * hidden_loss(own.hidden[0], theirs.hidden[0], keep)
    for mine, other in zip(own.hidden[1:], theirs.hidden[1:], strict=True):
        total = total + hidden * hidden_loss(mine, other, keep)
    for mine, other in zip(own.attention, theirs.attention, strict=True):
        total = total + attention * attention_loss(mine, other, keep)
    share: Tensor | float = batch.get("token_share", 1.0)
    return share * total


def classification(
    model: nn.Module, batch: Batch, *, temperature: float = 2.0, soft: float = 0.5, hard: float = 0.5
) -> Tensor:
    """The teacher's class probabilities and the right classes. Reads what `losses.classification` reads; model:
    `Distilled` of two classifiers. TinyBERT's prediction layer is soft=1, hard=0, temperature=1."""
    own, theirs = model(batch["ids"], **_inputs(batch))
    return soft * soft_loss(own.logits, theirs.logits, temperature) + hard * cross_entropy(own.logits, batch["labels"])


def student(teacher: nn.Module, layers: int | None = None) -> MLM:
    """A masked language model that begins as every second layer of its teacher, or as `layers` of them, evenly taken.

    Args:
        teacher: `heads.MLM` or `heads.Pretraining`; its masked-LM head is copied, its pooler and segments are not.
    """
    head = getattr(teacher, "head", None)
    if not isinstance(head, MaskedHead):
        raise CourseError(f"A student is cut from a masked language model; this teacher is a {type(teacher).__name__}.")
    model = MLM(presets.student(_stack(teacher), layers))
    model.head.load_state_dict(head.state_dict())
    return model


def _view(
    model: nn.Module,
    ids: Tensor,
    keep: Tensor | None,
    segments: Tensor | None,
    at: Tensor | None,
    attention: bool,
) -> View:
    stack = _stack(model)
    knows_segments = stack.embed.segments is not None
    options = {"keep": keep, "at": at, "segments": segments if knows_segments else None}
    patterns = ["embed", "blocks.*", *(["blocks.*.attn.scores"] if attention else [])]
    with record(stack, *patterns, detach=False) as seen:
        out = model(ids, **{name: value for name, value in options.items() if value is not None})
    logits = out[0] if isinstance(out, tuple) else out  # BERT's pretraining head answers next sentence, too
    count = len(stack.blocks)
    scores = [seen[f"blocks.{i}.attn.scores"] for i in range(count)] if attention else []
    return View(logits, [seen["embed"], *(seen[f"blocks.{i}"] for i in range(count))], scores)


def _stack(model: nn.Module) -> Stack:
    stack = getattr(model, "stack", None)
    if not isinstance(stack, Stack) or stack.config.shared:
        raise CourseError("Teacher and student are heads on a Stack whose layers have weights of their own.")
    return stack


def _inputs(batch: Batch) -> dict[str, Tensor]:
    return {name: batch[name] for name in ("keep", "segments") if name in batch}


def _mean(values: Float[Tensor, "B T"], keep: Tensor | None) -> Tensor:
    if keep is None:
        return values.mean()
    return (values * keep).sum() / keep.sum().clamp(min=1)


def _same_width(student: Tensor, teacher: Tensor) -> None:
    if student.shape != teacher.shape:
        raise CourseError(
            f"The student's hidden states are {tuple(student.shape)}, the teacher's {tuple(teacher.shape)}; "
            "give Distilled project=True where the widths differ."
        )
