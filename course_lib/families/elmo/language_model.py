"""What ELMo is pretrained as: a bidirectional language model (Peters et al. 2018, section 3.1).

Letters: B rows, T words, P width of a direction, V words of the softmax, N predicted words.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from course_lib.families.elmo.network import Elmo, ElmoConfig
from course_lib.families.elmo.text import BOS, EOS, UNK, Characters, characters
from course_lib.model.heads import Mask
from course_lib.model.modes import evaluating
from course_lib.objectives.losses import Batch, cross_entropy
from course_lib.vocab import IGNORE


class BiLM(nn.Module):
    """The bidirectional language model: Elmo, and the softmax that both directions share."""

    def __init__(self, elmo: Elmo) -> None:
        super().__init__()
        self.elmo = elmo
        self.softmax = nn.Linear(elmo.config.width, elmo.config.vocab)
        nn.init.normal_(self.softmax.weight, std=elmo.config.width**-0.5)
        nn.init.zeros_(self.softmax.bias)

    def forward(
        self,
        ids: Characters,
        *,
        attention_mask: Mask = None,
        loss_mask: Bool[Tensor, "B 2 T"] | None = None,
    ) -> Float[Tensor, "B 2 T V"] | Float[Tensor, "N V"]:
        """Logits of the next word (direction 0) and of the word before (direction 1).

        Args:
            ids: the words' characters.
            attention_mask: True = a word.
            loss_mask: the directions and positions to predict; by default all of them.
        """
        top = self.elmo(ids, attention_mask=attention_mask)[-1]
        halves = torch.stack(top.chunk(2, dim=-1), dim=1)  # B 2 T P
        chosen = halves if loss_mask is None else halves[loss_mask]
        return self.softmax(self.elmo.dropout(chosen))


def model(config: ElmoConfig) -> BiLM:
    """A fresh biLM with its softmax."""
    return BiLM(Elmo(config))


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean of -log p(next word) and -log p(word before) (Peters et al. 2018, section 3.1).

    Known departure: the softmax is a full one; the original drew 8,192 words of its 793,471 for
    each batch.
    """
    labels = batch["labels"]  # B 2 T
    has_label = labels != IGNORE
    logits = model(
        batch["ids"], attention_mask=batch.get("attention_mask"), loss_mask=has_label
    )  # N V
    return cross_entropy(logits, labels[has_label])


@torch.no_grad()
def hidden_word(
    model: BiLM, before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]
) -> tuple[Float[Tensor, "N V"], Float[Tensor, "N V"]]:
    """Predict the word between the words `before` and the words `after`.

    Returns:
        Log-probabilities of the forward LM, which has read `before` alone, and of the backward LM,
        which has read `after` alone.
    """
    # Neither LM reads the word in the gap: the forward LM predicts it one position before, the
    # backward LM one position after.
    rows = [[BOS, *a, UNK, *b, EOS] for a, b in zip(before, after, strict=True)]
    device = next(model.parameters()).device
    batch = characters(rows, model.elmo.config.length, ends=False)
    batch = {name: x.to(device) for name, x in batch.items()}
    loss_mask = torch.zeros(len(rows), 2, batch["ids"].shape[1], dtype=torch.bool, device=device)
    number = torch.arange(len(rows))
    gap = torch.tensor([len(words) + 1 for words in before])
    loss_mask[number, 0, gap - 1] = True
    loss_mask[number, 1, gap + 1] = True
    with evaluating(model):
        logits = model(**batch, loss_mask=loss_mask).float()
    left, right = logits.log_softmax(-1).cpu().view(len(rows), 2, -1).unbind(1)
    return left, right
