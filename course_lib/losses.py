"""Objectives: functions (model, batch) -> scalar loss, the mean over the batch's targets.

A batch is a dict of tensors. Letters: B batch, T positions, N targets, V vocabulary.
    ids Int[B T]; keep Bool[B T], True = a real token (absent: all are); segments Int[B T];
    labels: what each objective says below, -100 = no target; at Bool[B T]: the positions that carry loss.
All take keyword options first bound with functools.partial: `partial(classification, smoothing=0.1)`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib import masks
from course_lib.corrupt import IGNORE, original
from course_lib.cross_entropy import mean_cross_entropy
from course_lib.electra import detection_loss
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


def left_to_right(model: nn.Module, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
    """Next-token prediction by an encoder that sees nothing to the right (Charpentier and Samuel 2024), as a decoder
    does it: by the token vectors on its hidden states. A masked-language head is left as it is.

    Reads `ids`, `keep`. model: has a `stack`; its position t predicts token t + 1.
    """
    ids, keep = batch["ids"], batch.get("keep")
    labels = next_tokens(ids, keep)
    at = labels != IGNORE
    stack: Any = model.stack
    h = stack(ids, keep=_needed(keep), mask=masks.causal(ids.shape[1], device=ids.device))
    return cross_entropy(h[at] @ stack.embed.tokens.weight.T, labels[at], smoothing)


def mlm_nsp(model: nn.Module, batch: Batch, *, weight: float = 1.0, smoothing: float = 0.0) -> Tensor:
    """BERT's sum of the masked-token and the next-sentence loss (Devlin et al. 2019, appendix A.2).

    Reads what `mlm` reads, and `next` Int[B], the class of the sentence pair (-100: not a pair). weight: of the
    next-sentence loss; where few rows are pairs, their share keeps its noise from drowning the words' gradient.
    smoothing: of the words.
    """
    at = _chosen(batch)
    logits, follows = model(batch["ids"], at=at, **_inputs(batch))  # N V, B 2
    # A micro-batch's masked tokens and its sentence pairs are different shares of the whole batch's
    # (train.split).
    share = batch.get("row_share", 1.0)
    words = cross_entropy(logits, batch["labels"][at], smoothing)
    return words + weight * share * cross_entropy(follows, batch["next"])


def electra(model: nn.Module, batch: Batch, *, weight: float = 50.0, chosen_only: bool = False) -> Tensor:
    """The generator's masked-token loss and `weight` times the discriminator's (Clark et al. 2020, section 2).

    Reads what `mlm` reads. model: `electra.Electra`. The discriminator answers for every real token; chosen_only: only
    for those that the generator filled in ("ELECTRA 15%", section 3.5).
    """
    at = _chosen(batch)
    said = model(batch["ids"], labels=batch["labels"], at=at, **_inputs(batch))
    words = cross_entropy(said.guesses, batch["labels"][at])
    if chosen_only:
        return words + weight * detection_loss(said.verdicts, said.replaced, at)
    # A micro-batch's share of the real tokens is not its share of the masked ones (train.split).
    share = batch.get("token_share", 1.0)
    return words + weight * share * detection_loss(said.verdicts, said.replaced, batch.get("keep"))


def replaced_mlm(model: nn.Module, batch: Batch, *, all_tokens: bool = False) -> Tensor:
    """The generator's loss and that of a second model which says the original words of the filled text.

    "Replace MLM" of Clark et al. 2020, section 3.5: no [MASK] in its input, the loss at the chosen positions; with
    all_tokens "All-Tokens MLM", at every real token (there with a way to copy the input, here without). Reads what
    `mlm` reads. model: `electra.Electra` whose discriminator is a `heads.MLM`.
    """
    at = _chosen(batch)
    ask = batch.get("keep", torch.ones_like(at)) if all_tokens else at
    said = model(batch["ids"], labels=batch["labels"], at=at, ask=ask, **_inputs(batch))
    words = cross_entropy(said.guesses, batch["labels"][at])
    share = batch.get("token_share", 1.0) if all_tokens else 1.0
    return words + share * cross_entropy(said.verdicts, original(batch["ids"], batch["labels"], at)[ask])


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


def span(model: nn.Module, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
    """Answer span: mean of the start's and the end's loss (Devlin et al. 2019, section 4.2).

    Reads `labels` Int[B 2], the first and the last token of the answer.
    """
    start, end = model(batch["ids"], **_inputs(batch))  # B T each
    labels = batch["labels"]
    return (cross_entropy(start, labels[:, 0], smoothing) + cross_entropy(end, labels[:, 1], smoothing)) / 2


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


def prefix_lm(model: nn.Module, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
    """A target behind its source in one decoder that sees the source from both sides (Raffel et al. 2020, 3.2.1).

    Reads `ids`, `keep`, `labels` as `clm` does, and `prefix` Int[B], the length of each source. model: `heads.LM`.
    Without `prefix`, `clm` trains a plain language model on the same batch (`objectives.joined` makes it).
    """
    at = batch["labels"] != IGNORE
    mask = masks.prefix(batch["prefix"], batch["ids"].shape[1])
    logits = model(batch["ids"], mask=mask, keep=_needed(batch.get("keep")), at=at)
    return cross_entropy(logits, batch["labels"][at], smoothing)


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

    logits [N V], labels Int[N]. smoothing: share of the target spread over all classes, the right one included
    (Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4: 0.1).
    """
    if not 0 <= smoothing < 1:
        raise CourseError(f"smoothing is {smoothing}; the share of the target to spread lies between 0 and 1.")
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
