"""Losses: each is a function (model, batch) -> scalar that training makes small.

    batch = {"ids": ids, "labels": labels}    # The [MASK] sat; -100 cat -100
    mlm(model, batch)                         # -log p("cat"): 2.3 if its probability is 0.1

What the model must predict is called a target: a token, a class or a score. The loss is the mean
over the batch's targets. A batch is a dict of tensors:

    ids               Int[B T], the tokens that the model reads
    attention_mask    Bool[B T], True at real tokens, False at padding; without it all are real
    segments          Int[B T], 0 in the first text of a pair, 1 in the second
    labels            the targets; their shape is that of the loss; -100 where there is no target
    loss_mask         Bool[B T], True at the positions that have a target

Shapes: B rows, T tokens, N targets, V tokens in the vocabulary. To give a loss options, use
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
    """GPT: each position predicts the next token. The mean of -log p(ids[t + 1] | ids[: t + 1]).

    (Radford et al. 2018, equation 1; "clm" is causal language modelling.) The batch has `ids`, and
    perhaps `attention_mask` and `labels` Int[B T]. Without labels, these are the next tokens.
    """
    ids = batch["ids"]
    attention_mask = needed_mask(batch)
    if "labels" in batch:
        labels = batch["labels"]
    else:
        labels = next_tokens(ids, batch.get("attention_mask"))
    targets = target_index({**batch, "labels": labels})
    if isinstance(targets, Tensor):
        are_all = bool(targets.all())
    else:
        are_all = len(targets[0]) == labels.numel()
    if are_all:  # every position has a target: selecting them would only copy the tensors
        return predicted_tokens(model, labels, ids, attention_mask=attention_mask)
    return predicted_tokens(
        model, labels[targets], ids, attention_mask=attention_mask, loss_mask=targets
    )


def mlm(model: nn.Module, batch: Batch) -> Tensor:
    """BERT: predict the hidden tokens (Devlin et al. 2019, section 3.1, task 1).

    The batch has `ids` (with [MASK]) and `labels` Int[B T] (the original tokens), and perhaps
    `attention_mask`, `segments` and `loss_mask`.
    """
    targets = target_index(batch)
    labels = batch["labels"][targets]  # N
    return predicted_tokens(model, labels, batch["ids"], loss_mask=targets, **encoder_inputs(batch))


def mlm_nsp(model: nn.Module, batch: Batch, *, weight: float = 1.0) -> Tensor:
    """BERT: predict the hidden tokens, and whether the second text follows the first.

    (Devlin et al. 2019, appendix A.2.) The sum of both losses.

    Args:
        model: returns the logits of both.
        batch: as for `mlm`, and `next` Int[B]: 0 = the second text follows, 1 = it does not, -100 =
            the row is no pair.
        weight: weight of the next-sentence loss.
    """
    targets = target_index(batch)
    logits, follows = model(batch["ids"], loss_mask=targets, **encoder_inputs(batch))  # N V, B 2
    # If the batch was cut into parts, the training multiplies this loss by the part's share of the
    # hidden tokens. `row_share` makes it the share of the pairs (`micro_batches`, feed.py).
    share = batch.get("row_share", 1.0)
    words = cross_entropy(logits, batch["labels"][targets])
    return words + weight * share * cross_entropy(follows, batch["next"])


def electra(
    model: nn.Module, batch: Batch, *, weight: float = 50.0, chosen_only: bool = False
) -> Tensor:
    """ELECTRA: a generator fills in hidden tokens, a discriminator finds out which are replaced.

    (Clark et al. 2020, section 2.) The sum of the generator's masked-token loss and `weight` times
    the discriminator's loss, which is a mean over all real tokens.

    Args:
        model: generator and discriminator.
        batch: as for `mlm`.
        weight: weight of the discriminator's loss.
        chosen_only: the discriminator's loss is a mean over the filled-in tokens only ("ELECTRA
            15%", section 3.5).
    """
    targets = target_index(batch)
    out = model(batch["ids"], labels=batch["labels"], loss_mask=targets, **encoder_inputs(batch))
    words = cross_entropy(out.guesses, batch["labels"][targets])
    if chosen_only:
        return words + weight * detection_loss(out.verdicts[targets], out.replaced[targets])
    # If the batch was cut into parts: the part's share of the real tokens, as in `mlm_nsp`.
    share = batch.get("token_share", 1.0)
    detection = detection_loss(out.verdicts, out.replaced, batch.get("attention_mask"))
    return words + weight * share * detection


def detection_loss(
    verdicts: Tensor, replaced: Tensor, attention_mask: Tensor | None = None
) -> Tensor:
    """Mean binary cross-entropy of the question "was this token replaced?"; 0 without tokens.

    Args:
        verdicts: Float[B T], the discriminator's logits; above 0 means replaced.
        replaced: Bool[B T], the right answers.
        attention_mask: Bool[B T], the tokens that count; by default all.
    """
    loss = F.binary_cross_entropy_with_logits(verdicts.float(), replaced.float(), reduction="none")
    counts = torch.ones_like(replaced) if attention_mask is None else attention_mask.bool()  # B T
    return (loss * counts).sum() / counts.sum().clamp(min=1)


def classification(model: nn.Module, batch: Batch) -> Tensor:
    """The loss of a fine-tuned model. The shape and type of the labels tell the kind of task:

    Int[B]       a class for each text or pair (cross-entropy); with `ids` Int[B N T] the right
                 one of N candidates
    Int[B T]     a class for each token
    Float[B]     a score (mean squared error)
    Float[B C]   for each of C classes 1 if the text has it, else 0 (binary cross-entropy)
    """
    labels = batch["labels"]
    scores = model(batch["ids"], **encoder_inputs(batch))  # B C, B T C or B N
    if labels.is_floating_point() and labels.ndim == 2:
        return F.binary_cross_entropy_with_logits(scores.float(), labels)
    if labels.is_floating_point():
        return F.mse_loss(scores.float().squeeze(-1), labels)
    return cross_entropy(scores.flatten(0, -2), labels.flatten())


def span(model: nn.Module, batch: Batch) -> Tensor:
    """Question answering: predict the first and the last token of the answer, `labels` Int[B 2].

    (Devlin et al. 2019, section 4.2.) The mean of both losses.
    """
    start, end = model(batch["ids"], **encoder_inputs(batch))  # B T each
    labels = batch["labels"]
    return (cross_entropy(start, labels[:, 0]) + cross_entropy(end, labels[:, 1])) / 2


def seq2seq(model: nn.Module, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
    """BART, T5: write a text given another. The mean of -log p(labels[t] | labels[: t], ids).

    (Raffel et al. 2020, section 2.4.) To predict a token, the decoder reads the right tokens before
    it, not its own predictions (teacher forcing).

    Args:
        model: an encoder-decoder.
        batch: `ids` and `attention_mask` for the encoder, and `labels` Int[B U], the text to write,
            -100 after its end.
        smoothing: as for `cross_entropy`.
    """
    labels = batch["labels"]
    targets = target_index(batch)
    decoder_ids = shift_right(labels, model.stack.start)  # type: ignore[arg-type, union-attr]
    return predicted_tokens(
        model,
        labels[targets],
        batch["ids"],
        decoder_ids,
        smoothing=smoothing,
        attention_mask=batch.get("attention_mask"),
        loss_mask=targets,
    )


def prefix_lm(model: nn.Module, batch: Batch) -> Tensor:
    """A decoder writes a text after another, the prefix, whose tokens all see each other.

    (Raffel et al. 2020, section 3.2.1.) The batch is that of `clm` with `prefix` Int[B], the length
    of each prefix; `collate.joined` makes it.
    """
    targets = target_index(batch)
    mask = masks.prefix(batch["prefix"], batch["ids"].shape[1])
    return predicted_tokens(
        model,
        batch["labels"][targets],
        batch["ids"],
        mask=mask,
        attention_mask=needed_mask(batch),
        loss_mask=targets,
    )


def next_tokens(ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    """Labels Int[B T] for next-token prediction: the ids moved one to the left.

    >>> next_tokens(torch.tensor([[5, 6, 7]])).tolist()  # nothing follows the last token
    [[6, 7, -100]]
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

    Logits for a large vocabulary need much memory. So on a GPU, `kernels.linear_cross_entropy` may
    compute the loss in parts, without all logits in memory at once; the value is the same.

    Args:
        model: gives the logits, one vector for each label.
        labels: the right tokens, Int[N] or Int[B T], -100 = no target.
        ids: what the model reads.
        smoothing: as for `cross_entropy`.
        options: further arguments of the model, such as `loss_mask`.
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
    """The mean of -log p(label) over the labels that are not -100, in float32; 0 without any.

    Args:
        logits: Float[N V].
        labels: Int[N].
        smoothing: label smoothing: this share of the probability is spread evenly over all classes
            (Szegedy et al. 2016, section 7).
    """
    if kernels.use_cross_entropy(logits, smoothing):
        return kernels.cross_entropy(logits, labels)
    total = F.cross_entropy(
        logits.float(), labels, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing
    )
    return total / (labels != IGNORE).sum().clamp(min=1)


def encoder_inputs(batch: Batch) -> dict[str, Any]:
    """The attention mask and the segments, if the batch has them."""
    return {name: batch[name] for name in ("attention_mask", "segments") if name in batch}


def target_index(batch: Batch) -> Any:
    """An index that selects the targets: `labels[target_index(batch)]` is Int[N].

    Returns:
        Bool[B T], True at the targets; or two Int[N], the targets' rows and columns, if
        `with_target_index` has stored them in the batch.

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


def with_target_index(batch: Batch) -> Batch:
    """Prepare a batch for a GPU: store where its targets are.

    To find the targets on the GPU, the CPU would have to wait for it. So this is done earlier,
    while the batch is still in the CPU's memory.

    Returns:
        The batch with `target_indices` Int[2 N], the rows and columns of the targets; and with
        `right_padded` if all padding is on the right.
    """
    labelled = dict(batch)
    if "labels" not in batch:
        labelled["labels"] = next_tokens(batch["ids"], batch.get("attention_mask"))
    more = {"target_indices": target_index(labelled).nonzero().T.contiguous()}
    if needed_mask(batch) is None:
        more["right_padded"] = torch.ones(1)
    return {**batch, **more}


def needed_mask(batch: Batch) -> Tensor | None:
    """The attention mask that a causal model needs, or None, which is faster.

    If all padding is on the right, none is needed: real tokens never see what comes after them.
    """
    real = batch.get("attention_mask")
    if real is None or "right_padded" in batch:
        return None
    if "target_indices" in batch:  # `with_target_index` found padding on the left
        return real
    padding_before_a_token = (real[:, 1:] & ~real[:, :-1]).any()
    return real if padding_before_a_token else None
