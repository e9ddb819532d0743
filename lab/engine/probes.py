"""What the claims ask a pretrained model directly, without fine-tuning: held-out loss, hidden
words, evidence.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from course_lib.data.inputs import EncodedRow, SourceTarget, in_order
from course_lib.data.tokenizers import Tokenizer
from course_lib.families.lstm_seq2seq import LstmSeq2Seq
from course_lib.generation import generate
from course_lib.model import heads
from course_lib.objectives import losses, original, seeded_generator
from lab.engine import arms
from lab.engine.conv_seq2seq import ConvSeq2Seq

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


def words_loss(model: nn.Module, batch: losses.Batch) -> Tensor:
    """The loss of masked words alone, whatever else a model was trained on."""
    names = [name for name in ("attention_mask", "segments", "loss_mask") if name in batch]
    logits = heads.word_logits(model, batch["ids"], **{name: batch[name] for name in names})  # N V
    return losses.cross_entropy(logits, batch["labels"][batch["loss_mask"]])


def gaps(arm: arms.Arm, tokenizer: Tokenizer) -> list[Gap]:
    """Held-out documents, one ordinary token of each hidden; for all arms of a seed the same."""
    questions = []
    special = torch.tensor(tokenizer.vocab.special)
    for number, batch in enumerate(held_out(arm, tokenizer)):
        ids = batch["ids"]
        if "loss_mask" in batch:
            ids = original(ids, batch["labels"], batch["loss_mask"])
        ordinary = batch["attention_mask"] & ~torch.isin(ids, special)
        # The hidden token is the ordinary one with the largest draw.
        draws = torch.rand(ids.shape, generator=seeded_generator(arm.seed, 3, number))
        chosen = draws.masked_fill(~ordinary, -1).argmax(dim=1, keepdim=True)  # B 1
        loss_mask = torch.arange(ids.shape[1]) == chosen  # B T
        questions.append(Gap(ids, batch["attention_mask"], loss_mask))
    return questions


@torch.no_grad()
def hidden_word(source: arms.Trained, questions: Sequence[Gap]) -> float:
    """Share of hidden words that a model says.

    A masked model sees both sides. A next-token model sees what stands before, whatever its mask
    would allow."""
    model = source.model
    device = next(model.parameters()).device
    right = []
    for gap in questions:
        if isinstance(model, heads.LM):
            # The token before the gap predicts it; the gap and all behind it stay hidden.
            ids = gap.ids
            attention_mask = gap.attention_mask & (gap.loss_mask.int().cumsum(dim=1) == 0)
            loss_mask = gap.loss_mask.roll(-1, dims=1)
        else:
            ids = gap.ids.masked_fill(gap.loss_mask, source.tokenizer.vocab.mask or 0)
            attention_mask = gap.attention_mask
            loss_mask = gap.loss_mask
        logits = heads.word_logits(
            model,
            ids.to(device),
            attention_mask=attention_mask.to(device),
            loss_mask=loss_mask.to(device),
        )  # B V
        right.append(logits.argmax(-1).cpu() == gap.ids[gap.loss_mask])
    return float(torch.cat(right).double().mean())


def answers(
    model: nn.Module, frame: SourceTarget, rows: list[EncodedRow], most: int, batch: int = 120
) -> list[str]:
    """What an encoder-decoder, of whatever kind, writes for each row's source, greedily.

    Args:
        model: the encoder-decoder.
        frame: how a row was encoded.
        rows: their sources are read.
        most: tokens of an answer.
        batch: rows at a time.
    """
    vocab = frame.tokenizer.vocab
    texts = [""] * len(rows)
    for numbers, inputs in in_order(frame, rows, batch):
        options: dict[str, Any] = {
            "attention_mask": inputs["attention_mask"],
            "max_new_tokens": most,
            "eos": vocab.sep,
        }
        if isinstance(model, (LstmSeq2Seq, ConvSeq2Seq)):
            out = model.greedy(inputs["ids"], **options)
        else:
            out = generate(model, inputs["ids"], pad=vocab.pad, **options)
        # The first token is the decoder's start token.
        for number, ids in zip(numbers, out[:, 1:].tolist(), strict=True):
            texts[number] = frame.tokenizer.decode(ids)
    return texts
