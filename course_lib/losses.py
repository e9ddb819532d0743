"""Objectives: functions (model, batch) -> scalar loss, the mean over the batch's targets.

A batch is a dict of tensors. Letters: B batch, T positions, N targets, V vocabulary.
    ids Int[B T]; keep Bool[B T], True = a real token (absent: all are); segments Int[B T];
    labels: what each objective says below, -100 = no target; at Bool[B T]: the positions that carry loss.
All take keyword options first bound with functools.partial: `partial(classification, smoothing=0.1)`.
"""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.corrupt import IGNORE
from course_lib.cross_entropy import mean_cross_entropy
from course_lib.errors import CourseError
from course_lib.seq2seq import shift_right

Batch = Mapping[str, Tensor]
Loss = Callable[[nn.Module, Batch], Tensor]


def clm(model: nn.Module, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
    """Next-token prediction: mean of -log p(ids[t + 1] | ids[: t + 1]) (Radford et al. 2018, equation 1).

    Reads `ids`, `keep`. `labels` Int[B T], if there, replaces the shifted ids: labels[b, t] is the token that
    position t should predict.
    """
    ids, keep = batch["ids"], batch.get("keep")
    labels = batch["labels"] if "labels" in batch else next_tokens(ids, keep)
    at = labels != IGNORE
    if at.all():
        logits = model(ids, keep=_needed(keep)).flatten(0, 1)  # N V
    else:
        logits = model(ids, keep=_needed(keep), at=at)
    return cross_entropy(logits, labels[at], smoothing)


def mlm(model: nn.Module, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
    """Masked-token prediction (Devlin et al. 2019, section 3.1, task 1), logits at the chosen positions only.

    Reads `ids` (already masked), `labels` Int[B T] (the original tokens), `keep`, `segments`, `at`.
    """
    at = _chosen(batch)
    logits = model(batch["ids"], at=at, **_inputs(batch))  # N V
    return cross_entropy(logits, batch["labels"][at], smoothing)


def mlm_nsp(model: nn.Module, batch: Batch, *, weight: float = 1.0) -> Tensor:
    """BERT's sum of the masked-token and the next-sentence loss (Devlin et al. 2019, appendix A.2).

    Reads what `mlm` reads, and `next` Int[B], the class of the sentence pair (-100: not a pair). weight: of the
    next-sentence loss; where few rows are pairs, their share keeps its noise from drowning the words' gradient.
    """
    at = _chosen(batch)
    logits, follows = model(batch["ids"], at=at, **_inputs(batch))  # N V, B 2
    # A micro-batch's masked tokens and its sentence pairs are different shares of the whole batch's
    # (train.split).
    share = batch.get("row_share", 1.0)
    return cross_entropy(logits, batch["labels"][at]) + weight * share * cross_entropy(follows, batch["next"])


def classification(model: nn.Module, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
    """One label a text or pair. Reads `labels` Int[B]; float labels are a score to regress (mean squared
    error)."""
    scores = model(batch["ids"], **_inputs(batch))  # B C
    if batch["labels"].is_floating_point():
        return F.mse_loss(scores.float().squeeze(-1), batch["labels"])
    return cross_entropy(scores, batch["labels"], smoothing)


def tagging(model: nn.Module, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
    """One label a token. Reads `labels` Int[B T], -100 at positions without a target (padding, later
    pieces)."""
    scores = model(batch["ids"], **_inputs(batch))  # B T C
    return cross_entropy(scores.flatten(0, 1), batch["labels"].flatten(), smoothing)


def span(model: nn.Module, batch: Batch) -> Tensor:
    """Answer span: mean of the start's and the end's loss (Devlin et al. 2019, section 4.2).

    Reads `labels` Int[B 2], the first and the last token of the answer.
    """
    start, end = model(batch["ids"], **_inputs(batch))  # B T each
    labels = batch["labels"]
    return (cross_entropy(start, labels[:, 0]) + cross_entropy(end, labels[:, 1])) / 2


def choice(model: nn.Module, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
    """One of N candidates. Reads `ids`, `keep`, `segments` of shape [B N T] and `labels` Int[B], the right
    one."""
    return cross_entropy(model(batch["ids"], **_inputs(batch)), batch["labels"], smoothing)  # B N


def seq2seq(model: nn.Module, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
    """A target given a source: mean of -log p(labels[t] | labels[: t], source) (Raffel et al. 2020, section 2.4).

    Reads `ids` and `keep`, the source; `labels` Int[B U], the target with -100 behind its end. The decoder is fed the
    target itself, one to the right (teacher forcing). model: `seq2seq.Seq2SeqLM`.
    """
    labels = batch["labels"]
    at = labels != IGNORE
    decoder_ids = shift_right(labels, model.stack.start)  # type: ignore[arg-type, union-attr]
    return cross_entropy(model(batch["ids"], decoder_ids, keep=batch.get("keep"), at=at), labels[at], smoothing)


def next_tokens(ids: Tensor, keep: Tensor | None = None) -> Tensor:
    """labels Int[B T] for next-token prediction: ids moved one to the left, -100 where no real token
    follows."""
    labels = torch.full_like(ids, IGNORE)
    labels[:, :-1] = ids[:, 1:]
    if keep is not None:
        real = keep.bool()
        labels[:, :-1].masked_fill_(~(real[:, 1:] & real[:, :-1]), IGNORE)
    return labels


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Mean over the labels that are not -100, in float32; 0 where there is none, so that no batch gives NaN.

    logits [N V], labels Int[N]. smoothing: share of the target spread over all classes.
    """
    if smoothing == 0 and logits.device.type == "cpu" and not torch.compiler.is_compiling():
        return mean_cross_entropy(logits, labels, IGNORE)  # the same value in a third of the memory
    total = F.cross_entropy(logits.float(), labels, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing)
    return total / (labels != IGNORE).sum().clamp(min=1)


def _inputs(batch: Batch) -> dict[str, Tensor]:
    return {name: batch[name] for name in ("keep", "segments") if name in batch}


def _chosen(batch: Batch) -> Tensor:
    if "labels" not in batch:
        raise CourseError("A masked-language-model batch needs `labels`; corrupt.mask_tokens makes them.")
    return batch["at"] if "at" in batch else batch["labels"] != IGNORE


def _needed(keep: Tensor | None) -> Tensor | None:
    """None where all padding is at the right: a causal model's real queries never see what comes after
    them."""
    if keep is None or not (keep[:, 1:] & ~keep[:, :-1]).any():
        return None
    return keep
