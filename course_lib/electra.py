"""Replaced-token detection: a generator fills the masks, a discriminator finds its words (Clark et al. 2020).

    ids with masks -> generator -> a sampled token in place of each mask -> discriminator -> replaced, or not?

`losses.electra` trains both at once; afterwards the generator is thrown away. `models.electra` has the two stacks.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.corrupt import original, replace_tokens, sample


class Judged(NamedTuple):
    """What both models said about a batch.

    guesses Float[N V]: the generator's logits at the masked places. ids Int[B T]: the text with its samples in it.
    replaced Bool[B T]: where that differs from the original. verdicts: the discriminator's output, Float[B T] above 0
    where it takes a token for replaced; Float[M V] if it is asked for words.
    """

    guesses: Tensor
    ids: Tensor
    replaced: Tensor
    verdicts: Tensor


class Electra(nn.Module):
    """A generator and a discriminator, trained together (section 2).

    Args:
        generator: as `heads.MLM`, (ids, keep=, segments=, at=) -> logits [N V].
        discriminator: as `heads.RTD`, (ids, keep=, segments=) -> one logit a token [B T].
        temperature: of the sampling; the paper's is 1.

    Which weights they share is theirs to say (`models.electra.share_embedding`). The samples carry no gradient: the
    generator learns from its own masked-token loss alone, and not to fool the discriminator.
    """

    def __init__(self, generator: nn.Module, discriminator: nn.Module, *, temperature: float = 1.0) -> None:
        super().__init__()
        self.generator, self.discriminator, self.temperature = generator, discriminator, temperature

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        labels: Int[Tensor, "B T"],
        at: Bool[Tensor, "B T"],
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        ask: Bool[Tensor, "B T"] | None = None,
        rng: torch.Generator | None = None,
    ) -> Judged:
        """What both say.

        Args:
            ids, labels, at: as `corrupt.mask_tokens` gives them; ELECTRA has parts=(1, 0, 0).
            ask: Bool[B T], where a discriminator with a masked-LM head should say the original token; for the
                comparisons of section 3.5. rng: of the samples; PyTorch's global generator if None, as dropout has it,
                so that a resumed run draws the same.
        """
        options = {k: v for k, v in (("keep", keep), ("segments", segments)) if v is not None}
        guesses = self.generator(ids, at=at, **options)
        sampled = sample(guesses, rng, temperature=self.temperature)
        seen, replaced = replace_tokens(original(ids, labels, at), at, sampled)
        verdicts = self.discriminator(seen, **options, **({} if ask is None else {"at": ask}))
        return Judged(guesses, seen, replaced, verdicts)


def detection_loss(
    verdicts: Float[Tensor, "B T"], replaced: Bool[Tensor, "B T"], where: Bool[Tensor, "B T"] | None = None
) -> Tensor:
    """Mean binary cross-entropy of "was it replaced?" over the tokens `where`, all by default; 0 if there is none."""
    loss = nn.functional.binary_cross_entropy_with_logits(verdicts.float(), replaced.float(), reduction="none")
    where = torch.ones_like(replaced) if where is None else where.bool()
    return (loss * where).sum() / where.sum().clamp(min=1)
