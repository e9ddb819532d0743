"""Distillation: a small student learns from what a large teacher says, not only from the right
answers.

    soft     the teacher's probabilities, softened by a temperature (Hinton et al. 2015, section 2)
    hard     the right answers themselves: `losses.cross_entropy`
    cosine   the direction of the last hidden states (Sanh et al. 2019, DistilBERT, section 2)
    layers   embeddings, hidden states and attention, layer by layer (Jiao et al. 2020, TinyBERT, section 3.1)

`Distilled(student, teacher)` runs both; `distilbert`, `tinybert` and `classification` are losses
for it that `train` takes as they are. Letters: B batch, T positions, D width, H heads, N targets, V
classes."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.analysis import capture
from course_lib.errors import CourseError
from course_lib.families import bert
from course_lib.model.heads import MLM, Mask, MaskedHead
from course_lib.model.transformer import Transformer
from course_lib.objectives.losses import Batch, chosen, cross_entropy, inputs


def soft_loss(
    student: Float[Tensor, "N V"], teacher: Float[Tensor, "N V"], temperature: float = 2.0
) -> Float[Tensor, ""]:
    """T^2 KL(softmax(teacher / T) || softmax(student / T)), the mean over N (Hinton et al. 2015,
    section 2). The gradient of softened probabilities shrinks with 1 / T^2; the factor keeps its
    weight beside the hard loss."""
    target = (teacher.detach().float() / temperature).log_softmax(-1)
    own = (student.float() / temperature).log_softmax(-1)
    return (
        F.kl_div(own, target, reduction="sum", log_target=True) * temperature**2 / max(1, len(own))
    )


def cosine_loss(
    student: Float[Tensor, "B T D"], teacher: Float[Tensor, "B T D"], attention_mask: Mask = None
) -> Float[Tensor, ""]:
    """1 - cosine of the angle between the two hidden states of a token, the mean over real
    tokens.
    """
    return _mean(
        1 - F.cosine_similarity(student.float(), teacher.detach().float(), dim=-1), attention_mask
    )


def hidden_loss(
    student: Float[Tensor, "B T D"], teacher: Float[Tensor, "B T D"], attention_mask: Mask = None
) -> Float[Tensor, ""]:
    """Mean squared difference of hidden states over real tokens (Jiao et al. 2020, equations 8 and
    9).
    """
    return _mean((student.float() - teacher.detach().float()).square().mean(-1), attention_mask)


def attention_loss(
    student: Float[Tensor, "B H T T"],
    teacher: Float[Tensor, "B H T T"],
    attention_mask: Mask = None,
) -> Float[Tensor, ""]:
    """Mean squared difference of the attention scores before the softmax (Jiao et al. 2020,
    equation 7), over heads and, for each real query, over the keys that it may attend to."""
    # masked places hold the lowest number there is
    visible = teacher > torch.finfo(teacher.dtype).min / 2
    difference = (
        student.masked_fill(~visible, 0).float() - teacher.masked_fill(~visible, 0).detach().float()
    )
    return _mean(
        (difference.square().sum(-1) / visible.sum(-1).clamp(min=1)).mean(1), attention_mask
    )


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
        own, theirs = _stack(student).config, _stack(teacher).config
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
        first, *rest = own.hidden
        return own._replace(
            hidden=[self.embedding(first), *(self.hidden(h) for h in rest)]
        ), Outputs(
            theirs.logits,
            [theirs.hidden[layer] for layer in (0, *self.layers)],
            [theirs.attention[layer - 1] for layer in self.layers] if attention else [],
        )


def distilbert(
    model: nn.Module, batch: Batch, *, soft: float = 5.0, hard: float = 2.0, cosine: float = 1.0
) -> Tensor:
    """DistilBERT's sum of three losses (Sanh et al. 2019, section 2; the weights are those of its
    code) for two masked language models. Reads what `losses.mlm` reads; cosine at every real
    token."""
    at = chosen(batch)
    own, theirs = model(batch["ids"], loss_mask=at, **inputs(batch))
    total = soft * soft_loss(own.logits, theirs.logits) + hard * cross_entropy(
        own.logits, batch["labels"][at]
    )
    if cosine:
        share = batch.get("token_share", 1.0)
        total = total + cosine * share * cosine_loss(
            own.hidden[-1], theirs.hidden[-1], batch.get("attention_mask")
        )
    return total


def tinybert(model: nn.Module, batch: Batch) -> Tensor:
    """TinyBERT's layer-wise losses, summed over the layers (Jiao et al. 2020, equation 11): no
    labels are needed. Afterwards `classification` teaches the answers (section 3.2)."""
    attention_mask = batch.get("attention_mask")
    own, theirs = model(batch["ids"], attention=True, **inputs(batch))
    terms = [
        hidden_loss(*pair, attention_mask) for pair in zip(own.hidden, theirs.hidden, strict=True)
    ]
    terms += [
        attention_loss(*pair, attention_mask)
        for pair in zip(own.attention, theirs.attention, strict=True)
    ]
    return sum(terms[1:], start=terms[0]) * batch.get("token_share", 1.0)


def classification(
    model: nn.Module,
    batch: Batch,
    *,
    temperature: float = 2.0,
    soft: float = 0.5,
    hard: float = 0.5,
) -> Tensor:
    """The teacher's class probabilities and the right classes. Reads what `losses.classification`
    reads; model: `Distilled` of two classifiers. TinyBERT's prediction layer is soft=1, hard=0,
    temperature=1."""
    own, theirs = model(batch["ids"], **inputs(batch))
    return soft * soft_loss(own.logits, theirs.logits, temperature) + hard * cross_entropy(
        own.logits, batch["labels"]
    )


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
    patterns = ["embed", "blocks.*", *(["blocks.*.attn.scores"] if attention else [])]
    with capture(stack, *patterns, detach=False) as seen:
        out = model(ids, **given)
    # BERT's pretraining head answers next sentence, too
    logits = out[0] if isinstance(out, tuple) else out
    count = len(stack.blocks)
    scores = [seen[f"blocks.{i}.attn.scores"] for i in range(count)] if attention else []
    return Outputs(logits, [seen["embed"], *(seen[f"blocks.{i}"] for i in range(count))], scores)


def _stack(model: nn.Module) -> Transformer:
    stack = getattr(model, "stack", None)
    if not isinstance(stack, Transformer) or stack.config.shared:
        raise CourseError(
            "Teacher and student are heads on a Transformer whose layers have weights of their own."
        )
    return stack


def _mean(values: Float[Tensor, "B T"], attention_mask: Tensor | None) -> Tensor:
    if attention_mask is None:
        return values.mean()
    return (values * attention_mask).sum() / attention_mask.sum().clamp(min=1)
