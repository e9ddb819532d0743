"""Distillation: a small student learns from what a large teacher says, not only from the right
answers.

`Distilled(student, teacher)` runs both; its losses, which `train` takes as they are, stand in
`objectives.distillation`. Letters: B batch, T positions, D width, H heads."""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from course_lib.analysis import capture
from course_lib.errors import CourseError
from course_lib.families import bert
from course_lib.model.heads import MLM, MaskedHead
from course_lib.model.transformer import Transformer


class Outputs(NamedTuple):
    """What a model shows of itself. logits: its answer. hidden: L + 1 states [B T D], the
    embedding's first. attention: L score matrices [B H T T], where they were asked for."""

    logits: Tensor
    hidden: list[Tensor]
    attention: list[Tensor]


class Distilled(nn.Module):
    """A student and its teacher, heads of one kind on Transformers; checkpoints hold what learns:
    student, projections.

    Each of the student's layers learns from one of the teacher's, evenly spaced, the last one from
    the last. Where the widths differ, learned matrices lead from the student's to the teacher's,
    one for the embedding and one for the layers (TinyBERT's W_e and W_h)."""

    def __init__(self, student: nn.Module, teacher: nn.Module) -> None:
        super().__init__()
        own = _stack(student).config
        theirs = _stack(teacher).config
        if own.layers > theirs.layers:
            raise CourseError(
                f"The student has {own.layers} layers, more than the teacher's {theirs.layers}."
            )
        # from 1
        self.layers = tuple(
            (layer + 1) * theirs.layers // own.layers for layer in range(own.layers)
        )
        self.student = student
        # in a tuple, out of the reach of parameters(), train() and state_dict()
        self._teacher = (teacher.eval(),)
        layer: type[nn.Module] = nn.Identity if own.width == theirs.width else nn.Linear
        self.embedding, self.hidden = (layer(own.width, theirs.width) for _ in range(2))

    def forward(
        self, ids: Int[Tensor, "B T"], *, attention: bool = False, **given: Tensor
    ) -> tuple[Outputs, Outputs]:
        """What student and teacher show, layer for layer: of the teacher those that the student
        learns from, and the student's states in the teacher's width. given: what the heads take
        (attention_mask, segments, loss_mask)."""
        teacher = self._teacher[0].to(ids.device).eval()
        with torch.no_grad():
            theirs = _outputs(teacher, ids, given, attention)
        own = _outputs(self.student, ids, given, attention)

        # The student's states in the teacher's width: the embedding's output, then each layer's.
        embedded, *states = own.hidden
        projected = [self.embedding(embedded), *(self.hidden(state) for state in states)]
        # The teacher's layers that the student learns from. Number 0 is the embedding's output.
        hidden = [theirs.hidden[layer] for layer in (0, *self.layers)]
        scores = [theirs.attention[layer - 1] for layer in self.layers] if attention else []
        return own._replace(hidden=projected), Outputs(theirs.logits, hidden, scores)


def student(teacher: nn.Module, layers: int | None = None) -> MLM:
    """A masked language model that begins as every second layer of its teacher, or as `layers` of
    them, evenly taken; the teacher's masked-LM head is copied, its pooler and segments are not."""
    head = getattr(teacher, "head", None)
    if not isinstance(head, MaskedHead):
        raise CourseError(
            "A student is cut from a masked language model; this teacher is a"
            f" {type(teacher).__name__}."
        )
    model = MLM(bert.student(_stack(teacher), layers))
    model.head.load_state_dict(head.state_dict())
    return model


def _outputs(model: nn.Module, ids: Tensor, given: dict[str, Tensor], attention: bool) -> Outputs:
    stack = _stack(model)
    if stack.embed.segments is None:
        given = {name: value for name, value in given.items() if name != "segments"}
    patterns = ["embed", "blocks.*"]
    if attention:
        patterns.append("blocks.*.attn.scores")
    with capture(stack, *patterns, detach=False) as seen:
        out = model(ids, **given)
    # BERT's pretraining head answers next sentence, too
    logits = out[0] if isinstance(out, tuple) else out
    layers = range(len(stack.blocks))
    hidden = [seen["embed"], *(seen[f"blocks.{layer}"] for layer in layers)]
    scores = [seen[f"blocks.{layer}.attn.scores"] for layer in layers] if attention else []
    return Outputs(logits, hidden, scores)


def _stack(model: nn.Module) -> Transformer:
    stack = getattr(model, "stack", None)
    if not isinstance(stack, Transformer) or stack.config.shared:
        raise CourseError(
            "Teacher and student are heads on a Transformer whose layers have weights of their own."
        )
    return stack
