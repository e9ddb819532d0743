"""The objectives that models are pretrained with, by name.

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

Families, recipes, experiments and commands use these names.

A new objective is a corruption (a function in `collate`), a loss, and one entry in `OBJECTIVES`.
`pretrain` has no option for it: a family's `objective` names the one that it trains with.
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
        """Int[B T], the number of each token's word, -1 for none."""


@dataclass(frozen=True)
class Objective:
    """A corruption of plain text, and the loss of what the model predicts for it.

    Attributes:
        corrupt: (ids, attention_mask, rng, *, vocab, **options) -> batch.
        loss: (model, batch) -> scalar, the mean over the batch's targets.
        options: the corruption's options: "rate", the share of the tokens to hide; "spans", which
            of them are hidden together; "parts", the shares of [MASK], random and unchanged.
        pairs: whether the loss also reads `segments` and `next` of rows that are pairs of texts.
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
    """The objective of this name; a `CourseError` if there is none."""
    if name not in OBJECTIVES:
        raise CourseError(f"There is no objective {name!r}; there are {', '.join(OBJECTIVES)}.")
    return OBJECTIVES[name]


def corruption(name: str, tokenizer: NumbersWords, **options: Any) -> Corruption:
    """An objective's corruption for one vocabulary, with its options set.

    Args:
        name: of the objective.
        tokenizer: gives the vocabulary, and the words, where spans of words are hidden.
        options: of the objective; those that are None keep the paper's value.
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
