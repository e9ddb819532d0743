"""Objectives: functions (model, batch) -> scalar loss, the mean over the batch's targets.

A batch is a dict of tensors. Letters: B batch, T positions, N targets, V vocabulary. ids Int[B T];
    attention_mask Bool[B T], True = a real token (absent: all are); segments Int[B T]; labels: what
    each objective says below, -100 = no target; loss_mask Bool[B T]: the positions that carry loss.
Options are bound first with functools.partial: `partial(electra, chosen_only=True)`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model import kernels, masks
from course_lib.model.seq2seq import shift_right
from course_lib.vocab import IGNORE

Batch = Mapping[str, Tensor]
Loss = Callable[[nn.Module, Batch], Tensor]


def clm(model: nn.Module, batch: Batch) -> Tensor:
    """Next-token prediction: mean of -log p(ids[t + 1] | ids[: t + 1]) (Radford et al. 2018,
    equation 1). Reads `ids`, `attention_mask`, and `labels` Int[B T], if there: what each position
    should predict."""
    ids, attention_mask = batch["ids"], batch.get("attention_mask")
    labels = batch["labels"] if "labels" in batch else next_tokens(ids, attention_mask)
    at = chosen({**batch, "labels": labels})
    if at.all() if isinstance(at, Tensor) else len(at[0]) == labels.numel():
        return cross_entropy(
            model(ids, attention_mask=needed_mask(batch)).flatten(0, 1), labels.flatten()
        )
    return cross_entropy(
        model(ids, attention_mask=needed_mask(batch), loss_mask=at), labels[at]
    )  # N V


def mlm(model: nn.Module, batch: Batch) -> Tensor:
    """Masked-token prediction (Devlin et al. 2019, section 3.1, task 1). Reads `ids` (already
    masked), `labels` Int[B T] (the original tokens), `attention_mask`, `segments`, `loss_mask`."""
    at = chosen(batch)
    # N V and N
    return cross_entropy(model(batch["ids"], loss_mask=at, **inputs(batch)), batch["labels"][at])


def mlm_nsp(model: nn.Module, batch: Batch, *, weight: float = 1.0) -> Tensor:
    """BERT's sum of the masked-token and the next-sentence loss (Devlin et al. 2019, appendix A.2).
    Reads what `mlm` reads, and `next` Int[B], the class of the sentence pair (-100: not a pair).
    weight: of the next-sentence loss."""
    at = chosen(batch)
    logits, follows = model(batch["ids"], loss_mask=at, **inputs(batch))  # N V, B 2
    # A micro-batch's masked tokens and its pairs are different shares of the whole batch's
    # (`micro_batches`).
    share = batch.get("row_share", 1.0)
    return cross_entropy(logits, batch["labels"][at]) + weight * share * cross_entropy(
        follows, batch["next"]
    )


def electra(
    model: nn.Module, batch: Batch, *, weight: float = 50.0, chosen_only: bool = False
) -> Tensor:
    """The generator's masked-token loss and `weight` times the discriminator's (Clark et al. 2020,
    section 2). The latter answers for every real token; chosen_only: only for those that were
    filled in ("ELECTRA 15%", section 3.5)."""
    at = chosen(batch)
    said = model(batch["ids"], labels=batch["labels"], loss_mask=at, **inputs(batch))
    words = cross_entropy(said.guesses, batch["labels"][at])
    if chosen_only:
        return words + weight * detection_loss(said.verdicts[at], said.replaced[at])
    # A micro-batch's share of the real tokens is not its share of the masked ones
    # (`micro_batches`).
    share = batch.get("token_share", 1.0)
    return words + weight * share * detection_loss(
        said.verdicts, said.replaced, batch.get("attention_mask")
    )


def detection_loss(verdicts: Tensor, replaced: Tensor, where: Tensor | None = None) -> Tensor:
    """Mean binary cross-entropy of "was it replaced?" over the tokens `where`, all by default; 0 if
    there is none. verdicts: Float[B T], above 0 = replaced. replaced, where: Bool[B T]."""
    loss = F.binary_cross_entropy_with_logits(verdicts.float(), replaced.float(), reduction="none")
    where = torch.ones_like(replaced) if where is None else where.bool()
    return (loss * where).sum() / where.sum().clamp(min=1)


def classification(model: nn.Module, batch: Batch) -> Tensor:
    """One label a text or pair, Int[B], a token, Int[B T], or of N candidates (`ids` Int[B N T])
    the right one, Int[B]. Float labels are a score to regress (mean squared error)."""
    scores = model(batch["ids"], **inputs(batch))  # B C, B T C or B N
    if batch["labels"].is_floating_point():
        return F.mse_loss(scores.float().squeeze(-1), batch["labels"])
    return cross_entropy(scores.flatten(0, -2), batch["labels"].flatten())


def span(model: nn.Module, batch: Batch) -> Tensor:
    """Answer span: mean of the start's and the end's loss (Devlin et al. 2019, section 4.2);
    `labels` Int[B 2].
    """
    start, end = model(batch["ids"], **inputs(batch))  # B T each
    labels = batch["labels"]
    return (cross_entropy(start, labels[:, 0]) + cross_entropy(end, labels[:, 1])) / 2


def seq2seq(model: nn.Module, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
    """A target given a source: mean of -log p(labels[t] | labels[: t], source) (Raffel et al. 2020,
    section 2.4). `labels` Int[B U]: the target with -100 behind its end; the decoder is fed it one
    to the right (teacher forcing)."""
    labels = batch["labels"]
    at = chosen(batch)
    decoder_ids = shift_right(labels, model.stack.start)  # type: ignore[arg-type, union-attr]
    logits = model(
        batch["ids"], decoder_ids, attention_mask=batch.get("attention_mask"), loss_mask=at
    )
    return cross_entropy(logits, labels[at], smoothing)


def prefix_lm(model: nn.Module, batch: Batch) -> Tensor:
    """A target behind its source in one decoder that sees the source from both sides (Raffel et al.
    2020, 3.2.1). Reads what `collate.joined` makes: as `clm`, and `prefix` Int[B], the length of
    each source."""
    at = chosen(batch)
    mask = masks.prefix(batch["prefix"], batch["ids"].shape[1])
    logits = model(batch["ids"], mask=mask, attention_mask=needed_mask(batch), loss_mask=at)
    return cross_entropy(logits, batch["labels"][at])


def next_tokens(ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    """labels Int[B T] for next-token prediction: ids moved one to the left, -100 where no real
    token follows.
    """
    labels = torch.full_like(ids, IGNORE)
    labels[:, :-1] = ids[:, 1:]
    if attention_mask is not None:
        real = attention_mask.bool()
        labels[:, :-1].masked_fill_(~(real[:, 1:] & real[:, :-1]), IGNORE)
    return labels


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Mean over the labels that are not -100, in float32; 0 where there is none.

    Args:
        logits: Float[N V].
        labels: Int[N].
        smoothing: share of the target spread over all classes, the right one included (Szegedy et
            al. 2016, section 7).
    """
    if kernels.use_cross_entropy(logits, smoothing):
        return kernels.cross_entropy(logits, labels)
    total = F.cross_entropy(
        logits.float(), labels, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing
    )
    return total / (labels != IGNORE).sum().clamp(min=1)


def inputs(batch: Batch) -> dict[str, Tensor]:
    """What an encoder reads beside the ids, as far as the batch has it."""
    return {name: batch[name] for name in ("attention_mask", "segments") if name in batch}


def chosen(batch: Batch) -> Any:
    """Bool[B T]: the positions that carry loss; beside a GPU their numbers, a tuple of Int[N]
    (`counted`).
    """
    if "labels" not in batch:
        raise CourseError(
            "A masked-language-model batch needs `labels`; objectives.mask_tokens makes them."
        )
    if "target_indices" in batch:
        return batch["target_indices"].unbind()
    return batch["loss_mask"] if "loss_mask" in batch else batch["labels"] != IGNORE


def counted(batch: Batch) -> Batch:
    """The batch and what its losses would have to wait for on a GPU: `target_indices` Int[. N], and
    `right_padded`, there if no padding stands before a token."""
    labels = (
        {}
        if "labels" in batch
        else {"labels": next_tokens(batch["ids"], batch.get("attention_mask"))}
    )
    more = {} if needed_mask(batch) is not None else {"right_padded": torch.ones(1)}
    return {**batch, "target_indices": chosen({**labels, **batch}).nonzero().T.contiguous(), **more}


def needed_mask(batch: Batch) -> Tensor | None:
    """None where all padding is at the right: a causal model's real queries never see what comes
    after them.
    """
    real = batch.get("attention_mask")
    if real is None or "right_padded" in batch:
        return None
    return real if "target_indices" in batch or (real[:, 1:] & ~real[:, :-1]).any() else None
