"""The losses of distillation: a small model, the student, imitates a large one, the teacher.

A teacher says more than the right answer: for "The [MASK] sat" it may give "cat" 0.6, "dog" 0.3 and
"idea" 0.001. The student learns all of these probabilities, or the teacher's hidden states:

    soft_loss         the teacher's probabilities (Hinton et al. 2015, section 2)
    cosine_loss       the direction of the hidden states (Sanh et al. 2019, DistilBERT, section 2)
    hidden_loss,      the hidden states and the attention scores, layer by layer (Jiao et al. 2020,
    attention_loss    TinyBERT, section 3.1)

`distilbert`, `tinybert` and `classification` are sums of these losses, and functions (model, batch)
-> scalar. Their model is `training.distill.Distilled`, which returns the outputs of both models.

Shapes: B rows, T tokens, D width, H heads, N targets (tokens to predict), V classes.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.objectives.losses import Batch, cross_entropy, encoder_inputs, target_index


def soft_loss(
    student: Float[Tensor, "N V"], teacher: Float[Tensor, "N V"], temperature: float = 2.0
) -> Float[Tensor, ""]:
    """T^2 KL(softmax(teacher / T) || softmax(student / T)), the mean over N.

    (Hinton et al. 2015, section 2.) The temperature T makes the probabilities more equal, so that
    small ones count more. It also makes the gradient smaller, by 1 / T^2. The factor T^2 undoes
    this, so that the weight beside another loss does not depend on T.
    """
    target = (teacher.detach().float() / temperature).log_softmax(-1)  # N V
    log_probabilities = (student.float() / temperature).log_softmax(-1)
    divergence = F.kl_div(log_probabilities, target, reduction="sum", log_target=True)
    # The part of a batch may have no target (N = 0). Then the sum is 0, and so is the loss.
    return divergence * temperature**2 / max(1, len(target))


def cosine_loss(
    student: Float[Tensor, "B T D"],
    teacher: Float[Tensor, "B T D"],
    attention_mask: Tensor | None = None,
) -> Float[Tensor, ""]:
    """The mean over real tokens of 1 - cosine(student's hidden state, teacher's hidden state)."""
    cosine = F.cosine_similarity(student.float(), teacher.detach().float(), dim=-1)  # B T
    return _mean(1 - cosine, attention_mask)


def hidden_loss(
    student: Float[Tensor, "B T D"],
    teacher: Float[Tensor, "B T D"],
    attention_mask: Tensor | None = None,
) -> Float[Tensor, ""]:
    """Mean squared difference of hidden states over real tokens.

    (Jiao et al. 2020, equations 8 and 9.)
    """
    difference = student.float() - teacher.detach().float()  # B T D
    return _mean(difference.square().mean(-1), attention_mask)


def attention_loss(
    student: Float[Tensor, "B H T T"],
    teacher: Float[Tensor, "B H T T"],
    attention_mask: Tensor | None = None,
) -> Float[Tensor, ""]:
    """Mean squared difference of the attention scores before the softmax.

    (Jiao et al. 2020, equation 7.) The mean is over the heads, over the real queries and, for each
    query, over the keys that it may attend to.
    """
    # A key that a query may not attend to has the lowest score that the type can hold.
    visible = teacher > torch.finfo(teacher.dtype).min / 2  # B H T T
    scores = student.masked_fill(~visible, 0).float()
    target = teacher.masked_fill(~visible, 0).detach().float()
    squares = (scores - target).square().sum(-1)  # B H T
    # A query at padding may see no key. `_mean` leaves it out, but 0 / 0 would be nan.
    per_query = squares / visible.sum(-1).clamp(min=1)
    return _mean(per_query.mean(1), attention_mask)


def distilbert(
    model: nn.Module, batch: Batch, *, soft: float = 5.0, hard: float = 2.0, cosine: float = 1.0
) -> Tensor:
    """DistilBERT's sum of three losses (Sanh et al. 2019, section 2) for two masked models.

    Args:
        model: `Distilled` with two masked language models.
        batch: as for `losses.mlm`.
        soft: weight of the teacher's probabilities. The three weights are those of the published
            code.
        hard: weight of the cross-entropy with the right tokens.
        cosine: weight of the cosine between the last hidden states, at every real token.
    """
    targets = target_index(batch)
    student, teacher = model(batch["ids"], loss_mask=targets, **encoder_inputs(batch))
    soft_term = soft * soft_loss(student.logits, teacher.logits)
    total = soft_term + hard * cross_entropy(student.logits, batch["labels"][targets])
    if cosine:
        # If the batch was cut into parts (feed.py), this makes the part's weight its share of the
        # real tokens, and not of the masked ones.
        share = batch.get("token_share", 1.0)
        attention_mask = batch.get("attention_mask")
        states = cosine_loss(student.hidden[-1], teacher.hidden[-1], attention_mask)
        total = total + cosine * share * states
    return total


def tinybert(model: nn.Module, batch: Batch) -> Tensor:
    """TinyBERT's losses of hidden states and attention scores, summed over the layers.

    (Jiao et al. 2020, equation 11.) It needs no labels. A second training with `classification`
    then teaches the answers (section 3.2).
    """
    attention_mask = batch.get("attention_mask")
    student, teacher = model(batch["ids"], attention=True, **encoder_inputs(batch))
    terms = []
    for state, target in zip(student.hidden, teacher.hidden, strict=True):  # B T D, each layer
        terms.append(hidden_loss(state, target, attention_mask))
    for scores, target in zip(student.attention, teacher.attention, strict=True):  # B H T T
        terms.append(attention_loss(scores, target, attention_mask))
    return sum(terms[1:], start=terms[0]) * batch.get("token_share", 1.0)


def classification(
    model: nn.Module,
    batch: Batch,
    *,
    temperature: float = 2.0,
    soft: float = 0.5,
    hard: float = 0.5,
) -> Tensor:
    """The loss for two classifiers: the teacher's probabilities, and the right classes.

    TinyBERT uses soft=1, hard=0, temperature=1.

    Args:
        model: `Distilled` with two classifiers.
        batch: as for `losses.classification`.
        temperature: the temperature of both models' probabilities.
        soft: weight of the teacher's probabilities.
        hard: weight of the right classes.
    """
    student, teacher = model(batch["ids"], **encoder_inputs(batch))  # logits N V
    soft_term = soft * soft_loss(student.logits, teacher.logits, temperature)
    return soft_term + hard * cross_entropy(student.logits, batch["labels"])


def _mean(values: Float[Tensor, "B T"], attention_mask: Tensor | None) -> Tensor:
    """The mean over real tokens; 0 if there is none."""
    if attention_mask is None:
        return values.mean()
    return (values * attention_mask).sum() / attention_mask.sum().clamp(min=1)
