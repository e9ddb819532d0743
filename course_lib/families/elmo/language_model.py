"""ELMo's pretraining: a bidirectional language model, biLM (Peters et al. 2018, section 3.1).

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
    """`Elmo` with the softmax that both directions share."""

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
            ids: the character ids of the words.
            attention_mask: True for a word, False for padding.
            loss_mask: True for the directions and positions to predict; the default is all.
        """
        top = self.elmo(ids, attention_mask=attention_mask)[-1]
        halves = torch.stack(top.chunk(2, dim=-1), dim=1)  # B 2 T P
        chosen = halves if loss_mask is None else halves[loss_mask]  # N P
        return self.softmax(self.elmo.dropout(chosen))


def model(config: ElmoConfig) -> BiLM:
    """A biLM with random weights."""
    return BiLM(Elmo(config))


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean of -log p(next word) and -log p(word before) (Peters et al. 2018, section 3.1).

    Known departure: we compute the softmax over all words. The original sampled 8,192 of its
    793,471 words for each batch.
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
    """Predict a hidden word from the words before it and from the words after it.

    Args:
        model: a pretrained biLM.
        before: for each of N texts, the words before the hidden word.
        after: for each text, the words after it.

    Returns:
        Log-probabilities of the forward LM, which reads only `before`, and of the backward LM,
        which reads only `after`.
    """
    # A row has <UNK> in the gap, which neither LM reads: the forward LM predicts the hidden word
    # one position before the gap, the backward LM one position after.
    rows = [[BOS, *a, UNK, *b, EOS] for a, b in zip(before, after, strict=True)]
    device = next(model.parameters()).device
    batch = characters(rows, model.elmo.config.length, ends=False)
    batch = {name: x.to(device) for name, x in batch.items()}
    loss_mask = torch.zeros(len(rows), 2, batch["ids"].shape[1], dtype=torch.bool, device=device)
    row = torch.arange(len(rows))
    gap = torch.tensor([len(words) + 1 for words in before])  # + 1 for <S>
    loss_mask[row, 0, gap - 1] = True
    loss_mask[row, 1, gap + 1] = True
    with evaluating(model):
        logits = model(**batch, loss_mask=loss_mask).float()
    # `loss_mask` chose the forward and then the backward position of each row.
    forward, backward = logits.log_softmax(-1).cpu().view(len(rows), 2, -1).unbind(1)  # N V each
    return forward, backward
