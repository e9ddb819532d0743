"""Losses: functions (model, batch) -> scalar, the mean over the batch's targets.

A batch is a dict of tensors:

    ids               Int[B T]
    attention_mask    Bool[B T], True at real tokens; all are, if it is absent
    segments          Int[B T], the text of a pair that a token belongs to
    labels            what each loss says below, -100 = no target
    loss_mask         Bool[B T], the positions that carry loss

Letters: B batch, T positions, N targets, V vocabulary. Options are bound first with
functools.partial: `partial(electra, chosen_only=True)`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model import kernels, masks
from course_lib.model.heads import LM, MLM
from course_lib.model.seq2seq import Seq2SeqLM, shift_right
from course_lib.vocab import IGNORE

Batch = Mapping[str, Tensor]
Loss = Callable[[nn.Module, Batch], Tensor]


def clm(model: nn.Module, batch: Batch) -> Tensor:
    """Next-token prediction: mean of -log p(ids[t + 1] | ids[: t + 1]).

    (Radford et al. 2018, equation 1.) Reads `ids`, `attention_mask` and, if the batch has it,
    `labels` Int[B T], what each position should predict.
    """
    ids = batch["ids"]
    attention_mask = needed_mask(batch)
    if "labels" in batch:
        labels = batch["labels"]
    else:
        labels = next_tokens(ids, batch.get("attention_mask"))
    at = chosen({**batch, "labels": labels})
    everywhere = bool(at.all()) if isinstance(at, Tensor) else len(at[0]) == labels.numel()
    if everywhere:  # every position has a target: choosing them would only copy the tensors
        return predicted_tokens(model, labels, ids, attention_mask=attention_mask)
    return predicted_tokens(model, labels[at], ids, attention_mask=attention_mask, loss_mask=at)


def mlm(model: nn.Module, batch: Batch) -> Tensor:
    """Masked-token prediction (Devlin et al. 2019, section 3.1, task 1).

    Reads `ids` (already masked), `labels` Int[B T] (the original tokens), `attention_mask`,
    `segments`, `loss_mask`.
    """
    at = chosen(batch)
    labels = batch["labels"][at]  # N
    return predicted_tokens(model, labels, batch["ids"], loss_mask=at, **inputs(batch))


def mlm_nsp(model: nn.Module, batch: Batch, *, weight: float = 1.0) -> Tensor:
    """BERT's sum of the masked-token and the next-sentence loss (Devlin et al. 2019, appendix A.2).

    Args:
        model: gives the logits of both.
        batch: what `mlm` reads, and `next` Int[B], the class of the sentence pair, -100 = no pair.
        weight: of the next-sentence loss.
    """
    at = chosen(batch)
    logits, follows = model(batch["ids"], loss_mask=at, **inputs(batch))  # N V, B 2
    # A micro-batch's masked tokens and its pairs are different shares of the whole batch's
    # (`micro_batches`).
    share = batch.get("row_share", 1.0)
    words = cross_entropy(logits, batch["labels"][at])
    return words + weight * share * cross_entropy(follows, batch["next"])


def electra(
    model: nn.Module, batch: Batch, *, weight: float = 50.0, chosen_only: bool = False
) -> Tensor:
    """The generator's masked-token loss and `weight` times the discriminator's.

    (Clark et al. 2020, section 2.) The discriminator answers for every real token.

    Args:
        model: generator and discriminator.
        batch: what `mlm` reads.
        weight: of the discriminator's loss.
        chosen_only: it answers only for tokens that were filled in ("ELECTRA 15%", section 3.5).
    """
    at = chosen(batch)
    out = model(batch["ids"], labels=batch["labels"], loss_mask=at, **inputs(batch))
    words = cross_entropy(out.guesses, batch["labels"][at])
    if chosen_only:
        return words + weight * detection_loss(out.verdicts[at], out.replaced[at])
    # A micro-batch's share of the real tokens is not its share of the masked ones
    # (`micro_batches`).
    share = batch.get("token_share", 1.0)
    detection = detection_loss(out.verdicts, out.replaced, batch.get("attention_mask"))
    return words + weight * share * detection


def detection_loss(
    verdicts: Tensor, replaced: Tensor, attention_mask: Tensor | None = None
) -> Tensor:
    """Mean binary cross-entropy of "was it replaced?"; 0 if no token counts.

    Args:
        verdicts: Float[B T], above 0 = replaced.
        replaced: Bool[B T].
        attention_mask: Bool[B T], the tokens that count; all if not given.
    """
    loss = F.binary_cross_entropy_with_logits(verdicts.float(), replaced.float(), reduction="none")
    counts = torch.ones_like(replaced) if attention_mask is None else attention_mask.bool()  # B T
    return (loss * counts).sum() / counts.sum().clamp(min=1)


def classification(model: nn.Module, batch: Batch) -> Tensor:
    """One label a text or pair, Int[B], or a token, Int[B T]; or the right one of N candidates.

    Candidates are `ids` Int[B N T] with `labels` Int[B]. Float labels [B] are a score to regress
    (mean squared error). Float labels [B C], 1 or 0, say of each class whether it holds (binary
    cross-entropy, the mean over all of them).
    """
    labels = batch["labels"]
    scores = model(batch["ids"], **inputs(batch))  # B C, B T C or B N
    if labels.is_floating_point() and labels.ndim == 2:
        return F.binary_cross_entropy_with_logits(scores.float(), labels)
    if labels.is_floating_point():
        return F.mse_loss(scores.float().squeeze(-1), labels)
    return cross_entropy(scores.flatten(0, -2), labels.flatten())


def span(model: nn.Module, batch: Batch) -> Tensor:
    """Answer span: mean of the start's and the end's loss (Devlin et al. 2019, section 4.2).

    `labels` Int[B 2] are the first and the last token of the answer.
    """
    start, end = model(batch["ids"], **inputs(batch))  # B T each
    labels = batch["labels"]
    return (cross_entropy(start, labels[:, 0]) + cross_entropy(end, labels[:, 1])) / 2


def seq2seq(model: nn.Module, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
    """A target given a source: mean of -log p(labels[t] | labels[: t], source).

    (Raffel et al. 2020, section 2.4.) The decoder reads the target moved one to the right (teacher
    forcing).

    Args:
        model: an encoder-decoder.
        batch: `ids`, `attention_mask`, and `labels` Int[B U], the target, -100 after its end.
        smoothing: as for `cross_entropy`.
    """
    labels = batch["labels"]
    at = chosen(batch)
    decoder_ids = shift_right(labels, model.stack.start)  # type: ignore[arg-type, union-attr]
    return predicted_tokens(
        model,
        labels[at],
        batch["ids"],
        decoder_ids,
        smoothing=smoothing,
        attention_mask=batch.get("attention_mask"),
        loss_mask=at,
    )


def prefix_lm(model: nn.Module, batch: Batch) -> Tensor:
    """A target behind its source in one decoder, which sees the source from both sides.

    (Raffel et al. 2020, section 3.2.1.) Reads what `collate.joined` makes: the batch of `clm`, and
    `prefix` Int[B], the length of each source.
    """
    at = chosen(batch)
    mask = masks.prefix(batch["prefix"], batch["ids"].shape[1])
    return predicted_tokens(
        model,
        batch["labels"][at],
        batch["ids"],
        mask=mask,
        attention_mask=needed_mask(batch),
        loss_mask=at,
    )


def next_tokens(ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    """Labels Int[B T] for next-token prediction: the ids moved one to the left.

    They are -100 where no real token follows.
    """
    labels = torch.full_like(ids, IGNORE)
    labels[:, :-1] = ids[:, 1:]
    if attention_mask is not None:
        real = attention_mask.bool()
        labels[:, :-1].masked_fill_(~(real[:, 1:] & real[:, :-1]), IGNORE)
    return labels


def predicted_tokens(
    model: nn.Module, labels: Tensor, *ids: Tensor, smoothing: float = 0.0, **options: Any
) -> Tensor:
    """The cross-entropy of a model's token predictions.

    Args:
        model: gives the logits, one vector for each label.
        labels: the right tokens, Int[N] or Int[B T], -100 = no target.
        ids: what the model reads.
        smoothing: as for `cross_entropy`.
        options: of the model, such as `loss_mask`.
    """
    if smoothing == 0 and isinstance(model, LM | MLM | Seq2SeqLM):
        vocab: int = model.stack.config.embed.vocab
        if kernels.use_linear_cross_entropy(labels, vocab):
            output = partial(kernels.linear_cross_entropy, labels=labels)
            loss: Tensor = model(*ids, output=output, **options)
            return loss
    logits = model(*ids, **options)  # N V or B T V
    return cross_entropy(logits.flatten(0, -2), labels.flatten(), smoothing)


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


def inputs(batch: Batch) -> dict[str, Any]:
    """What an encoder reads beside the ids, as far as the batch has it."""
    return {name: batch[name] for name in ("attention_mask", "segments") if name in batch}


def chosen(batch: Batch) -> Any:
    """The positions that carry loss, as an index: `labels[chosen(batch)]` are the N targets.

    Returns:
        Bool[B T]; or rows and columns, two Int[N], where `counted` has looked for them already.

    Raises:
        CourseError: the batch has no labels.
    """
    if "labels" not in batch:
        raise CourseError(
            "A masked-language-model batch needs `labels`; objectives.mask_tokens makes them."
        )
    if "target_indices" in batch:
        return batch["target_indices"].unbind()
    return batch["loss_mask"] if "loss_mask" in batch else batch["labels"] != IGNORE


def counted(batch: Batch) -> Batch:
    """The batch and what its losses would have to wait for on a GPU.

    A loss that asks where the targets are would stop the processor until the GPU answers. Here
    this is done beforehand, while the batch is still in the processor's memory.

    Adds `target_indices` Int[2 N], rows and columns of the targets, and `right_padded` if no
    padding stands before a token.
    """
    labelled = dict(batch)
    if "labels" not in batch:
        labelled["labels"] = next_tokens(batch["ids"], batch.get("attention_mask"))
    more = {"target_indices": chosen(labelled).nonzero().T.contiguous()}
    if needed_mask(batch) is None:
        more["right_padded"] = torch.ones(1)
    return {**batch, **more}


def needed_mask(batch: Batch) -> Tensor | None:
    """The attention mask that a causal model needs.

    None where all padding is at the right: its real queries never see what comes after them.
    """
    real = batch.get("attention_mask")
    if real is None or "right_padded" in batch:
        return None
    if "target_indices" in batch:  # `counted` has looked
        return real
    padding_before_a_token = (real[:, 1:] & ~real[:, :-1]).any()
    return real if padding_before_a_token else None
