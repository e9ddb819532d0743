"""What the claims ask a pretrained model directly, without fine-tuning: held-out loss, hidden
words, evidence.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from course_lib.analysis.evaluation import Blank
from course_lib.data.inputs import EncodedRow, SourceTarget, in_order
from course_lib.data.tokenizers import Tokenizer
from course_lib.data.words import split_words
from course_lib.families import elmo, lstm
from course_lib.generation import generate
from course_lib.model import heads
from course_lib.objectives import losses, original, seeded_generator
from experiments.engine import arms

HELD_OUT = 8  # batches of the validation split


class Gap(NamedTuple):
    """Rows with one hidden word: ids Int[B T], attention_mask Bool[B T], loss_mask Bool[B T] (the
    word's place).
    """

    ids: Tensor
    attention_mask: Tensor
    loss_mask: Tensor


def held_out(arm: arms.Arm, tokenizer: Tokenizer, n: int = HELD_OUT) -> list[losses.Batch]:
    """Batches of documents that no arm has read, the same for all arms of a seed."""
    batches = arms.ArmBatches(arm, tokenizer, "validation", pool=n)
    return [batches[i] for i in range(n)]


def word_logits(model: nn.Module, ids: Tensor, **options: Any) -> Tensor:
    """A language model's logits, those of its next-sentence head left out."""
    out = model(ids, **options)
    logits: Tensor = out[0] if isinstance(out, tuple) else out
    return logits


def words_loss(model: nn.Module, batch: losses.Batch) -> Tensor:
    """The loss of masked words alone, whatever else a model was trained on."""
    seen = {
        name: batch[name] for name in ("attention_mask", "segments", "loss_mask") if name in batch
    }
    return losses.cross_entropy(
        word_logits(model, batch["ids"], **seen), batch["labels"][batch["loss_mask"]]
    )


def gaps(arm: arms.Arm, tokenizer: Tokenizer) -> list[Gap]:
    """Held-out documents, one ordinary token of each hidden; the same gaps for all arms of a
    seed.
    """
    rows = []
    special = torch.tensor(tokenizer.vocab.special)
    for number, batch in enumerate(held_out(arm, tokenizer)):
        ids = batch["ids"]
        if "loss_mask" in batch:
            ids = original(ids, batch["labels"], batch["loss_mask"])
        ordinary = batch["attention_mask"] & ~torch.isin(ids, special)
        draw = torch.rand(ids.shape, generator=seeded_generator(arm.seed, 3, number)).masked_fill(
            ~ordinary, -1
        )
        rows.append(
            Gap(
                ids,
                batch["attention_mask"],
                torch.arange(ids.shape[1]) == draw.argmax(dim=1)[:, None],
            )
        )
    return rows


@torch.no_grad()
def hidden_word(source: arms.Trained, questions: Sequence[Gap]) -> float:
    """Share of hidden words that a model says.

    A masked model sees both sides. A next-token model sees what stands before, whatever its mask
    would allow."""
    model, right = source.model, []
    device = next(model.parameters()).device
    for gap in questions:
        ids, attention_mask, at = (
            gap.ids.masked_fill(gap.loss_mask, source.tokenizer.vocab.mask or 0),
            *gap[1:],
        )
        if isinstance(model, heads.LM):
            ids, attention_mask = (
                gap.ids,
                gap.attention_mask & (gap.loss_mask.int().cumsum(dim=1) == 0),
            )
            at = gap.loss_mask.roll(-1, dims=1)
        seen = {"attention_mask": attention_mask.to(device), "loss_mask": at.to(device)}
        right.append(
            word_logits(model, ids.to(device), **seen).argmax(-1).cpu() == gap.ids[gap.loss_mask]
        )
    return float(torch.cat(right).double().mean())


def elmo_accuracy(
    model: elmo.BiLM, vocabulary: elmo.Vocabulary, blanks: Sequence[Blank], batch: int = 64
) -> float:
    """Share of the blanks that a biLM fills, by both directions' probabilities together."""
    right = 0
    for start in range(0, len(blanks), batch):
        some = blanks[start : start + batch]
        before, after = (
            [split_words(getattr(blank, side)) for blank in some] for side in ("left", "right")
        )
        left, back = elmo.hidden_word(model, before, after)
        said = [vocabulary.words[i] for i in (left + back).argmax(-1).tolist()]
        right += sum(word == blank.answer for word, blank in zip(said, some, strict=True))
    return right / len(blanks)


def answers(
    model: nn.Module, frame: SourceTarget, rows: list[EncodedRow], most: int, batch: int = 120
) -> list[str]:
    """What an encoder-decoder, a Transformer or LSTMs, says to each row's source, greedily."""
    vocab, said = frame.tokenizer.vocab, [""] * len(rows)
    for numbers, some in in_order(frame, rows, batch):
        how: dict[str, Any] = {
            "attention_mask": some["attention_mask"],
            "max_new_tokens": most,
            "eos": vocab.sep,
        }
        if isinstance(model, lstm.LstmSeq2Seq):
            out = model.greedy(some["ids"], **how)
        else:
            out = generate(model, some["ids"], pad=vocab.pad, **how)
        for number, ids in zip(numbers, out[:, 1:].tolist(), strict=True):
            said[number] = frame.tokenizer.decode(ids)
    return said
