"""The pretraining objectives by name: what is hidden from a text, and the loss.

    corrupt = corruption("masked", tokenizer)          # hides 15% of the tokens
    batch = corrupt(ids, attention_mask, rng)          # what the model reads, and the labels
    loss = objective("masked").loss(model, batch)

    name                  what the model predicts                        who trains with it
    causal                the next token                                 GPT, ELMo
    masked                hidden tokens                                  RoBERTa
    masked_pairs          these, and whether the second text follows     BERT
    replaced              which tokens a generator replaced              ELECTRA
    denoised              the text, given a noised one                   BART
    permuted_sentences    the text, given its sentences in random order  BART, one of its noises
    span_corrupted        the spans that were taken out                  T5
    prefixed              the second part of a text, given the first     T5's language modelling
    distilled             hidden tokens, and a teacher's output          DistilBERT

To add an objective, write a corruption (a function as in collate.py) and a loss (losses.py), and
add an entry to `OBJECTIVES`. The command `pretrain` has no option for it: each family of models has
its objective (`Family.objective`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.objectives import collate, distillation, losses
from course_lib.objectives.losses import Batch, Loss
from course_lib.vocab import Vocab

# (ids Int[B T], attention_mask Bool[B T], rng) -> batch
Corruption = Callable[[Tensor, Tensor, torch.Generator], Batch]


class NumbersWords(Protocol):
    """The part of a `Tokenizer` that corruptions use."""

    vocab: Vocab

    def words(self, ids: Tensor) -> Tensor:
        """Int[B T], the number of the word that each token belongs to, -1 for a special token."""


@dataclass(frozen=True)
class Objective:
    """A corruption of plain text, and the loss of what the model predicts for it.

    Attributes:
        corrupt: (ids, attention_mask, rng, *, vocab, **options) -> batch.
        loss: (model, batch) -> scalar, the mean over the batch's targets.
        options: the corruption's options: "rate", the share of the tokens to hide; "spans", which
            tokens are hidden together; "parts", how many of the hidden tokens become [MASK], become
            a random token and stay.
        pairs: whether the rows are pairs of texts, and the loss reads their `segments` and `next`.
    """

    corrupt: Callable[..., Batch]
    loss: Loss
    options: tuple[str, ...] = ()
    pairs: bool = False


MASKING = ("rate", "spans", "parts")
OBJECTIVES: dict[str, Objective] = {
    "causal": Objective(collate.causal, losses.clm),
    "masked": Objective(collate.masked, losses.mlm, MASKING),
    "masked_pairs": Objective(collate.masked, losses.mlm_nsp, MASKING, pairs=True),
    "replaced": Objective(collate.replaced, losses.electra, ("rate", "spans")),
    "denoised": Objective(collate.denoised, losses.seq2seq, ("rate",)),
    "permuted_sentences": Objective(collate.permuted_sentences, losses.seq2seq),
    "span_corrupted": Objective(collate.span_corrupted, losses.seq2seq, ("rate",)),
    "prefixed": Objective(collate.prefixed, losses.seq2seq),
    "distilled": Objective(collate.masked, distillation.distilbert, MASKING),
}


def objective(name: str) -> Objective:
    """The objective of this name.

    Raises:
        CourseError: there is no objective of this name.
    """
    if name not in OBJECTIVES:
        raise CourseError(f"There is no objective {name!r}; there are {', '.join(OBJECTIVES)}.")
    return OBJECTIVES[name]


def corruption(name: str, tokenizer: NumbersWords, **options: Any) -> Corruption:
    """An objective's corruption for one vocabulary, with its options set.

    Args:
        name: the name of the objective.
        tokenizer: gives the vocabulary, and says which tokens make a word.
        options: options of the objective. None means the paper's value.

    Raises:
        CourseError: there is no such objective, or it does not have one of the options.
    """
    chosen = objective(name)
    options = {option: value for option, value in options.items() if value is not None}
    for option in options:
        if option not in chosen.options:
            known = ", ".join(chosen.options) or "nothing"
            raise CourseError(f"The objective {name} has no {option} to set; it has {known}.")

    def corrupt(ids: Tensor, attention_mask: Tensor, rng: torch.Generator) -> Batch:
        words = {"words": tokenizer.words(ids)} if "spans" in options else {}
        return chosen.corrupt(ids, attention_mask, rng, vocab=tokenizer.vocab, **words, **options)

    return corrupt
