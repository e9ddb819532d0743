"""Distillation: a small model, the student, learns to give the outputs of a large one, the teacher.

    both = Distilled(student(teacher, layers=6), teacher)
    train(both, batches, distillation.distilbert, config)    # changes the student only

`Distilled` runs both models on the same batch; a loss of objectives/distillation.py compares their
outputs. Shapes: B rows, T tokens, D width, H heads, L layers.
"""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from course_lib.analysis import capture
from course_lib.errors import CourseError
from course_lib.families import distilbert
from course_lib.model.heads import MLM, MaskedHead, word_logits
from course_lib.model.transformer import Transformer


class Outputs(NamedTuple):
    """The outputs of a model that the losses compare."""

    logits: Tensor
    hidden: list[Tensor]  # L + 1 states [B T D]; the first is the embedding's output
    attention: list[Tensor]  # L matrices of scores [B H T T]; empty if not asked for


class Distilled(nn.Module):
    """A student and its teacher, which run on the same ids.

    Each layer of the student learns from a layer of the teacher: with 2 and 6 layers, these are
    the teacher's layers 3 and 6. If the teacher is wider, a learned matrix projects the student's
    states to its width: one for the embedding, one for all layers (TinyBERT's W_e and W_h). The
    saved state of a training contains the student and these matrices, but not the teacher.

    Args:
        student: a head on a Transformer.
        teacher: a head of the same kind; it is not trained.

    Raises:
        CourseError: the student has more layers than the teacher.
    """

    def __init__(self, student: nn.Module, teacher: nn.Module) -> None:
        super().__init__()
        small = _stack(student).config
        large = _stack(teacher).config
        if small.layers > large.layers:
            raise CourseError(
                f"The student has {small.layers} layers, more than the teacher's {large.layers}."
            )
        # The teacher's layer for each of the student's, counted from 1: 6 of 12 are 2, 4, ... 12.
        numbers = range(1, small.layers + 1)
        self.layers = tuple(number * large.layers // small.layers for number in numbers)
        self.student = student
        # In a tuple, PyTorch does not see the teacher: parameters(), train() and state_dict() leave
        # it out.
        self._teacher = (teacher.eval(),)
        projection: type[nn.Module] = nn.Identity if small.width == large.width else nn.Linear
        self.embedding = projection(small.width, large.width)
        self.hidden = projection(small.width, large.width)

    def forward(
        self, ids: Int[Tensor, "B T"], *, attention: bool = False, **given: Tensor
    ) -> tuple[Outputs, Outputs]:
        """Run both models, and pair the student's layers with the teacher's.

        Args:
            ids: the tokens.
            attention: whether to return attention scores, too.
            given: further inputs of both models: attention_mask, segments, loss_mask.

        Returns:
            The outputs of the student, its states projected to the teacher's width; and the outputs
            of the teacher, only for the layers that the student learns from.
        """
        teacher = self._teacher[0].to(ids.device).eval()
        with torch.no_grad():
            large = _outputs(teacher, ids, given, attention)
        small = _outputs(self.student, ids, given, attention)

        # The student's states in the teacher's width: the embedding's output, then each layer's.
        embedded, *states = small.hidden
        projected = [self.embedding(embedded), *(self.hidden(state) for state in states)]
        # The teacher's layers that the student learns from. Number 0 is the embedding's output.
        hidden = [large.hidden[layer] for layer in (0, *self.layers)]
        scores = [large.attention[layer - 1] for layer in self.layers] if attention else []
        return small._replace(hidden=projected), Outputs(large.logits, hidden, scores)


def student(teacher: nn.Module, layers: int | None = None) -> MLM:
    """A new masked language model with copies of some of its teacher's layers.

    The teacher's output layer is copied, too, but not its pooler and its segment embeddings (Sanh
    et al. 2019, DistilBERT).

    Args:
        teacher: a masked language model.
        layers: the number of layers, evenly spaced in the teacher; by default half of them.

    Raises:
        CourseError: the teacher is another model.
    """
    head = getattr(teacher, "head", None)
    if not isinstance(head, MaskedHead):
        raise CourseError(
            "A student is cut from a masked language model; this teacher is a"
            f" {type(teacher).__name__}."
        )
    model = MLM(distilbert.student(_stack(teacher), layers))
    model.head.load_state_dict(head.state_dict())
    return model


def _outputs(model: nn.Module, ids: Tensor, given: dict[str, Tensor], attention: bool) -> Outputs:
    """Run a model and collect the outputs of its layers."""
    stack = _stack(model)
    if stack.embed.segments is None:
        given = {name: value for name, value in given.items() if name != "segments"}
    patterns = ["embed", "blocks.*"]
    if attention:
        patterns.append("blocks.*.attn.scores")
    with capture(stack, *patterns, detach=False) as seen:
        logits = word_logits(model, ids, **given)
    # `capture` names a block's output blocks.0, blocks.1, ...
    layers = range(len(stack.blocks))
    hidden = [seen["embed"], *(seen[f"blocks.{layer}"] for layer in layers)]
    scores = [seen[f"blocks.{layer}.attn.scores"] for layer in layers] if attention else []
    return Outputs(logits, hidden, scores)


def _stack(model: nn.Module) -> Transformer:
    """The Transformer under a head; a `CourseError` if there is none."""
    stack = getattr(model, "stack", None)
    if not isinstance(stack, Transformer) or stack.config.shared:
        raise CourseError(
            "Teacher and student are heads on a Transformer whose layers have weights of their own."
        )
    return stack
