"""What the claims ask a pretrained model directly, without fine-tuning."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from course_lib import heads, losses
from course_lib.claims.arms import Arm, Batches, Trained, loss_of, town, unmasked
from course_lib.corrupt import generator
from course_lib.losses import Batch
from course_lib.metrics import perplexity
from course_lib.probes import Blank, fill_in_accuracy, mean_loss
from course_lib.tokenizers import Tokenizer

HELD_OUT = 8  # batches of the validation split


class Gap(NamedTuple):
    """Rows with one hidden word: ids Int[B T], keep Bool[B T], at Bool[B T] (the word's place)."""

    ids: Tensor
    keep: Tensor
    at: Tensor


def held_out(arm: Arm, tokenizer: Tokenizer, n: int = HELD_OUT) -> list[Batch]:
    """Batches of documents that no arm has read, the same for all arms of a seed."""
    batches = Batches(arm, tokenizer, "validation", seed=arm.seed, pool=n)
    return [batches[i] for i in range(n)]


def held_out_loss(source: Trained, arm: Arm) -> float:
    """Mean loss of the arm's own objective on held-out documents."""
    return mean_loss(source.model, loss_of(arm), held_out(arm, source.tokenizer))


def masked_perplexity(source: Trained, arm: Arm) -> float:
    """Perplexity of held-out masked words."""

    def words_only(model: nn.Module, batch: Batch) -> Tensor:
        out = model(batch["ids"], keep=batch["keep"], segments=batch["segments"], at=batch["at"])
        logits = out[0] if isinstance(out, tuple) else out
        return losses.cross_entropy(logits, batch["labels"][batch["at"]])

    return perplexity(mean_loss(source.model, words_only, held_out(arm, source.tokenizer)))


def gaps(arm: Arm, tokenizer: Tokenizer) -> list[Gap]:
    """Held-out documents, one ordinary token of each hidden; the same gaps for all arms of a seed."""
    rows = []
    special = torch.tensor(tokenizer.vocab.special)
    for number, batch in enumerate(held_out(arm, tokenizer)):
        ids = unmasked(batch) if "at" in batch else batch["ids"]
        ordinary = batch["keep"] & ~torch.isin(ids, special)
        draw = torch.rand(ids.shape, generator=generator(arm.seed, 3, number)).masked_fill(~ordinary, -1)
        rows.append(Gap(ids, batch["keep"], torch.arange(ids.shape[1]) == draw.argmax(dim=1)[:, None]))
    return rows


def hidden_word(source: Trained, questions: Sequence[Gap]) -> float:
    """Share of hidden words that a model says.

    A masked model sees both sides. A next-token model sees what stands before, whatever its mask would allow.
    """
    right = total = 0
    for gap in questions:
        said = _say(source.model, gap, source.tokenizer)
        right, total = right + int((said == gap.ids[gap.at]).sum()), total + len(gap.ids)
    return right / total


@torch.no_grad()
def _say(model: nn.Module, gap: Gap, tokenizer: Tokenizer) -> Tensor:
    """The likeliest token in each row's gap, Int[B]."""
    device = next(model.parameters()).device
    if isinstance(model, heads.LM):
        before = gap.at.int().cumsum(dim=1) == 0
        ids, keep, at = gap.ids, gap.keep & before, gap.at.roll(-1, dims=1)
    else:
        ids, keep, at = gap.ids.masked_fill(gap.at, tokenizer.vocab.mask or 0), gap.keep, gap.at
    logits = model(ids.to(device), keep=keep.to(device), at=at.to(device))
    logits = logits[0] if isinstance(logits, tuple) else logits
    said: Tensor = logits.argmax(-1).cpu()
    return said


@cache
def evidence(world: int, n: int, seed: int, side: str) -> list[dict[str, Any]]:
    """Texts with one hidden word whose evidence stands on this side of it."""
    return list(town(world).evidence(n, seed=seed, side=side))


def fill_in(source: Trained, items: Sequence[dict[str, Any]]) -> float:
    """Share of hidden words of `evidence` that a model fills in, every piece; a next-token model piece by piece."""
    tokenizer, right = source.tokenizer, 0
    if not isinstance(source.model, heads.LM) or tokenizer.vocab.mask is None:
        blanks = [Blank(item["text_before"] + " ", item["answer"], item["text_after"]) for item in items]
        return fill_in_accuracy(source.model, tokenizer, blanks)
    for item in items:
        answer = tokenizer.encode(item["answer"], special=False).ids
        before = tokenizer.encode(item["text_before"], special=False).ids
        right += _continues(source.model, [tokenizer.vocab.cls or 0, *before], answer)
    return right / len(items)


@torch.no_grad()
def _continues(model: nn.Module, before: list[int], answer: list[int]) -> bool:
    """Whether a next-token model with word pieces, which our arms have and `probes` does not know, says the answer."""
    device = next(model.parameters()).device
    ids = torch.tensor([[*before, *answer]])
    at = torch.zeros(ids.shape, dtype=torch.bool)
    at[0, len(before) - 1 : -1] = True
    logits = model(ids.to(device), at=at.to(device))
    return bool((logits.argmax(-1).cpu() == torch.tensor(answer)).all())
