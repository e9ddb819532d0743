"""The options of `generate`: how tokens are chosen, and where a text ends.

GenerationConfig.of(max_new_tokens=20, do_sample=True, temperature=0.8, top_p=0.9, eos=50256)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.generation.filters import FILTERS, Filter, by_name


@dataclass(frozen=True)
class GenerationConfig:
    """The options of `generate`.

    Args:
        max_new_tokens: the largest number of tokens to add to a text.
        do_sample: sample the next token; by default the most probable one is taken.
        filters: functions that change the logits before a token is sampled, such as `top_p(0.9)`,
            applied in this order.
        num_beams: above 1, a beam search that keeps this many unfinished texts. A text's
            score is the sum of its log probabilities / length ** length_penalty.
        length_penalty: with larger values longer texts win; 0 compares the sums themselves.
        early_stopping: when a beam search stops. True: as soon as `num_beams` texts have ended.
            False: when no beam would be among the best ended texts if it ended now. "never": when
            no beam could be among them at any later length.
        min_new_tokens: the end token cannot be chosen before a text has this many new tokens.
        eos: the end token. By default there is none, so texts end at `max_new_tokens`.
        pad: the token that fills a row after its end token; by default the end token.

    Raises:
        CourseError: the options contradict each other.
    """

    max_new_tokens: int
    do_sample: bool = False
    filters: Sequence[Filter] = ()
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    min_new_tokens: int = 0
    eos: int | None = None
    pad: int | None = None

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1 or self.num_beams < 1:
            got = f"{self.max_new_tokens} and {self.num_beams}"
            raise CourseError(f"max_new_tokens and num_beams are at least 1; got {got}.")
        if self.filters and not self.do_sample:
            raise CourseError(
                f"Filters ({', '.join(FILTERS)}) change only how tokens are drawn; add"
                " do_sample=True."
            )
        if self.do_sample and self.num_beams > 1:
            raise CourseError("Beam search draws nothing: leave out do_sample, or set num_beams=1.")
        if self.early_stopping not in (True, False, "never"):
            raise CourseError(
                f'early_stopping is True, False or "never"; got {self.early_stopping!r}.'
            )

    @classmethod
    def of(cls, *, filters: Sequence[Filter] = (), **options: Any) -> "GenerationConfig":
        """A config from keywords, filters by name among them: `top_p=0.9` means `top_p(0.9)`.

        The named filters come before those in `filters`.
        """
        named = {name: options.pop(name) for name in FILTERS if name in options}
        return cls(filters=[*by_name(**named), *filters], **options)

    @property
    def filler(self) -> int:
        """The token that fills a row after its end token."""
        if self.pad is not None:
            return self.pad
        return 0 if self.eos is None else self.eos  # without an end token no row is filled

    def allowed(self, scores: Float[Tensor, "B V"], new_tokens: int) -> Float[Tensor, "B V"]:
        """The scores of the next token, with -inf for tokens that must not be chosen now.

        Sampling, greedy decoding and beam search all call this. The only such token is an end token
        before `min_new_tokens`.

        Args:
            scores: logits or log probabilities.
            new_tokens: the number of tokens added so far.
        """
        if self.eos is None or new_tokens >= self.min_new_tokens:
            return scores
        eos = torch.tensor([self.eos], device=scores.device)
        return scores.index_fill(1, eos, -torch.inf)  # a copy: the caller's scores stay
