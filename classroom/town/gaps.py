"""English sentences with one gap, as a batch for a masked language model."""

import re
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.files import DATA
from course_lib.model.heads import word_logits
from course_lib.objectives.collate import pad_to_longest


class Gaps(NamedTuple):
    """A batch of sentences, in each of which one token is masked.

    Attributes:
        ids: the tokens, the gap as [MASK].
        attention_mask: True for real tokens.
        loss_mask: True at the gap.
        answers: the token that was there.
    """

    ids: Int[Tensor, "B T"]
    attention_mask: Bool[Tensor, "B T"]
    loss_mask: Bool[Tensor, "B T"]
    answers: Int[Tensor, " B"]


def english(tokenizer: Tokenizer, n: int | None = None) -> Gaps:
    """The sentences of `data/probes/gaps.txt` whose hidden word is one token of this tokenizer.

    Args:
        tokenizer: one with a [MASK].
        n: only the first n of them.
    """
    mask = tokenizer.vocab.mask
    if mask is None:
        raise CourseError("Only a tokenizer with a [MASK] can leave a gap.")
    text = (DATA / "probes" / "gaps.txt").read_text(encoding="utf-8")
    rows, places, answers = [], [], []
    for line in text.splitlines():
        parts = re.split(r"[{}]", line)
        if len(parts) != 3:
            continue
        words = [part.split() for part in parts]
        encoding = tokenizer.encode([word for part in words for word in part])
        place = [i for i, word in enumerate(encoding.words) if word == len(words[0])]
        if len(words[1]) == 1 and len(place) == 1:
            answers.append(encoding.ids[place[0]])
            rows.append([*encoding.ids])
            rows[-1][place[0]] = mask
            places.append(place[0])
    rows, places, answers = rows[:n], places[:n], answers[:n]
    batch = pad_to_longest(rows, tokenizer.vocab.padding_id)
    at_gap = torch.arange(batch["ids"].shape[1]) == torch.tensor(places)[:, None]
    return Gaps(batch["ids"], batch["attention_mask"], at_gap, torch.tensor(answers))


@torch.no_grad()
def losses(model: nn.Module, batch: Gaps) -> Float[Tensor, " B"]:
    """A masked language model's loss on the hidden token of each sentence."""
    model.eval()
    masks = {"attention_mask": batch.attention_mask, "loss_mask": batch.loss_mask}
    logits = word_logits(model, batch.ids, **masks)
    return F.cross_entropy(logits, batch.answers, reduction="none")
