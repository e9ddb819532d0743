"""What a text may say next beside what the model thinks: penalties, blocked n-grams, a least length, forced tokens."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.errors import CourseError


@dataclass(frozen=True)
class Constraints:
    """Applied to the scores of every step, in this order. Scores are logits, or log probabilities in beam search.

    repetition_penalty: above 1, tokens that stand in the text get lower scores: a positive one is divided by it, a
        negative one multiplied (Keskar et al. 2019, section 4.1).
    no_repeat_ngram_size: n above 0: no n tokens stand in the text twice (Paulus et al. 2018, section 2.5).
    min_new_tokens: `eos` is not taken before so many.
    forced_bos, forced_eos: the first new token, and the last one where `max_new_tokens` ends the text.

    The text is the decoder's: for decoder-only models it includes the prompt; as in transformers, n-grams of its
    padding count too, while the penalty leaves padding out.
    """

    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    min_new_tokens: int = 0
    forced_bos: int | None = None
    forced_eos: int | None = None

    def __post_init__(self) -> None:
        if not self.repetition_penalty > 0:
            raise CourseError(f"repetition_penalty is {self.repetition_penalty}; it must be above 0 (1: none).")
        for name in ("no_repeat_ngram_size", "min_new_tokens"):
            if getattr(self, name) < 0:
                raise CourseError(f"{name} is {getattr(self, name)}; it must be at least 0.")

    def __call__(
        self,
        scores: Float[Tensor, "B V"],
        text: Int[Tensor, "B T"],
        *,
        step: int,
        last: bool,
        eos: int | None,
        keep: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B V"]:
        """New scores.

        Args:
            text: so far. step: how many tokens are new. last: no other step follows. eos: ends a text.
            keep: real tokens of the text.

        Raises:
            CourseError: a forced token outside the vocabulary.
        """
        if self.repetition_penalty != 1.0:
            real = torch.ones_like(text) if keep is None else keep.long()
            said = torch.zeros_like(scores, dtype=torch.int64).scatter_add_(1, text, real) > 0
            lower = torch.where(scores < 0, scores * self.repetition_penalty, scores / self.repetition_penalty)
            scores = torch.where(said, lower, scores)
        if self.no_repeat_ngram_size:
            scores = _without_repeats(scores, text, self.no_repeat_ngram_size)
        if eos is not None and step < self.min_new_tokens:
            scores = scores.index_fill(1, torch.tensor([eos], device=scores.device), -torch.inf)
        if self.forced_bos is not None and step == 0:
            scores = _only(scores, self.forced_bos)
        if self.forced_eos is not None and last:
            scores = _only(scores, self.forced_eos)
        return scores


def _without_repeats(scores: Tensor, text: Tensor, n: int) -> Tensor:
    """-inf for each token that would end an n-gram which the row already holds."""
    length = text.shape[1]
    if length < n:
        return scores
    ngrams = text.unfold(1, n, 1)  # B W n
    begun = text[:, length - n + 1 :]  # B n-1: the next token makes it n
    row, place = (ngrams[..., :-1] == begun[:, None]).all(dim=-1).nonzero(as_tuple=True)
    return scores.index_put((row, ngrams[row, place, -1]), scores.new_tensor(-torch.inf))


def _only(scores: Tensor, token: int) -> Tensor:
    if not 0 <= token < scores.shape[1]:
        raise CourseError(f"The forced token {token} lies outside the vocabulary of {scores.shape[1]}.")
    alone = torch.full_like(scores, -torch.inf)
    alone[:, token] = 0.0
    return alone
