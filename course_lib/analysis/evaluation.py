"""Evaluate a pretrained model on held-out batches: texts that it was not trained on.

    mean_loss(model, losses.mlm, batches)    2.31, the mean -log p of the right tokens

metrics.py has the scores of tasks, which compare a list of predictions with the right answers.
"""

from collections.abc import Iterable

import torch
from torch import nn

from course_lib.analysis import metrics
from course_lib.families.electra import Electra
from course_lib.model.modes import evaluating
from course_lib.model.seq2seq import Seq2SeqLM, shift_right
from course_lib.objectives.losses import Batch, Loss
from course_lib.vocab import IGNORE


@torch.no_grad()
def target_accuracy(model: Seq2SeqLM, batches: Iterable[Batch]) -> float:
    """The share of the target's tokens that an encoder-decoder predicts.

    For each token it reads the right tokens before it, not its own predictions (teacher forcing).
    """
    device = next(model.parameters()).device
    right = 0
    total = 0
    with evaluating(model):
        for batch in batches:
            labels = batch["labels"].to(device)
            is_target = labels != IGNORE
            logits = model(
                batch["ids"].to(device),
                shift_right(labels, model.stack.start),
                attention_mask=batch["attention_mask"].to(device),
                loss_mask=is_target,
            )
            right += int((logits.argmax(-1) == labels[is_target]).sum())
            total += int(is_target.sum())
    return right / total


@torch.no_grad()
def detection(model: Electra, batches: Iterable[Batch]) -> dict[str, float]:
    """The scores of ELECTRA's discriminator and generator.

    The generator's tokens are sampled with torch's global generator.

    Returns:
        "detection": how well the discriminator finds replaced tokens, F1 over all real tokens.
        "generator": the share of masked tokens that the generator predicts.
    """
    device = next(model.parameters()).device
    predicted = []
    replaced = []
    is_right = []
    with evaluating(model):
        for batch in batches:
            names = ("ids", "labels", "loss_mask", "attention_mask")
            inputs = {name: batch[name].to(device) for name in names}
            output = model(**inputs)
            is_real = inputs["attention_mask"]
            predicted += (output.verdicts[is_real] > 0).tolist()
            replaced += output.replaced[is_real].tolist()
            originals = inputs["labels"][inputs["loss_mask"]]
            is_right += (output.guesses.argmax(-1) == originals).tolist()
    return {
        "detection": metrics.f1(predicted, replaced),
        "generator": sum(is_right) / len(is_right),
    }


@torch.no_grad()
def mean_loss(model: nn.Module, loss: Loss, batches: Iterable[Batch]) -> float:
    """The mean loss over batches, without dropout."""
    device = next(model.parameters()).device
    values = []
    with evaluating(model):
        for batch in batches:
            on_device = {name: tensor.to(device) for name, tensor in batch.items()}
            values.append(loss(model, on_device).item())
    return sum(values) / len(values)
