"""ELMo's body: a CNN over each word's characters, and an LSTM from each side.

Letters: B rows, T words, C characters of a word, E width of a character's vector, P width of a
direction, F = 2 P width of a layer's output.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.families.elmo.text import CHARACTERS, PAD, Characters
from course_lib.model.heads import Mask
from course_lib.model.lstm import ProjectedLSTM, reverse, reversed_order, right_padded


@dataclass(frozen=True)
class ElmoConfig:
    """A bidirectional language model over characters."""

    vocab: int  # words of the softmax, 0 for none
    width: int  # output of each direction: features are twice as wide
    hidden: int  # cells of an LSTM
    filters: tuple[tuple[int, int], ...]  # characters wide, how many; of each convolution
    layers: int = 2
    length: int = 50  # characters of a word, its two marks included; longer words are cut
    character: int = 16  # width of a character's vector
    highways: int = 2
    activation: Literal["relu", "tanh"] = "relu"
    residual: bool = True  # from the second layer on, a layer adds its input to its output
    cell_clip: float | None = 3.0  # bound on an LSTM's cells, None for none
    projection_clip: float | None = 3.0  # on its outputs
    dropout: float = 0.1  # on the input of each LSTM and of the softmax


def elmo_original(vocab: int = 0) -> ElmoConfig:
    """The published model: 94M parameters (Peters et al. 2018, section 3.4).

    Its softmax had 793,471 words and was never published.
    """
    filters = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    return ElmoConfig(vocab, width=512, hidden=4096, filters=filters)


def elmo_mini(vocab: int) -> ElmoConfig:
    """The classroom's ELMo: its four LSTMs have as many weights as bert-mini's four blocks."""
    filters = ((1, 16), (2, 32), (3, 64), (4, 64), (5, 48), (6, 32))
    return ElmoConfig(vocab, width=64, hidden=336, filters=filters, length=24, dropout=0.0)


class Highway(nn.Module):
    """A layer that can let its input through (Srivastava et al. 2015, equation 3).

    g = sigmoid(C x + c)
    y = g * relu(A x + a) + (1 - g) * x
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.carry = nn.Linear(width, width)
        self.transform = nn.Linear(width, width)
        nn.init.normal_(self.carry.weight, std=width**-0.5)
        nn.init.constant_(self.carry.bias, -2.0)  # at first most of the input goes through
        nn.init.normal_(self.transform.weight, std=width**-0.5)
        nn.init.constant_(self.transform.bias, 0.0)

    def forward(self, x: Float[Tensor, "N F"]) -> Float[Tensor, "N F"]:
        g = torch.sigmoid(self.carry(x))
        new = F.relu(self.transform(x))
        return x + g * (new - x)


class CharacterCNN(nn.Module):
    """A word's vector from its spelling alone (Kim et al. 2016; Jozefowicz et al. 2016, 3.1)."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.characters = nn.Embedding(CHARACTERS, config.character, padding_idx=0)
        self.filters = nn.ModuleList(
            nn.Conv1d(config.character, many, wide) for wide, many in config.filters
        )
        total = sum(many for _, many in config.filters)  # of all widths together
        self.highways = nn.ModuleList(Highway(total) for _ in range(config.highways))
        self.project = nn.Linear(total, config.width) if total != config.width else None
        self.activation = F.relu if config.activation == "relu" else torch.tanh

        # The first weights are those of the authors' program.
        nn.init.uniform_(self.characters.weight, -1, 1)
        with torch.no_grad():
            self.characters.weight[0] = 0
        for conv in self.filters:
            nn.init.uniform_(conv.weight, -0.05, 0.05)  # type: ignore[arg-type]
            nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
        if self.project is not None:
            nn.init.normal_(self.project.weight, std=total**-0.5)
            nn.init.zeros_(self.project.bias)

    def forward(self, ids: Characters) -> Float[Tensor, "B T P"]:
        # Each spelling of a batch is computed once; `which` tells the words that have it.
        spelled, which = torch.unique(ids.flatten(0, 1), dim=0, return_inverse=True)  # N C, B*T
        x: Tensor = self.characters(self._shortened(spelled)).transpose(1, 2)  # N E C

        # Of each filter, the place in the word where it fits best.
        best = [conv(x).max(-1).values for conv in self.filters]
        x = self.activation(torch.cat(best, dim=-1))  # N filters
        for highway in self.highways:
            x = highway(x)
        if self.project is not None:
            x = self.project(x)  # N P
        return F.embedding(which, x).view(*ids.shape[:2], -1)  # B T P

    def _shortened(self, spelled: Int[Tensor, "N C"]) -> Int[Tensor, "N c"]:
        """The spellings without most of the padding behind the longest word.

        There all windows hold padding only. One of them gives the maximum that all would give, so
        the others are cut away.
        """
        widest = max(wide for wide, _ in self.config.filters)
        used = ((spelled != PAD) & (spelled != 0)).any(0).nonzero()
        longest = int(used[-1]) + 1 if len(used) else 0
        return spelled[:, : longest + widest]


class Elmo(nn.Module):
    """The body: two one-directional language models (Peters et al. 2018, section 3.1)."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = CharacterCNN(config)
        clips = {"cell_clip": config.cell_clip, "output_clip": config.projection_clip}
        lstm = partial(ProjectedLSTM, config.width, config.hidden, config.width, **clips)
        self.forwards = nn.ModuleList(lstm() for _ in range(config.layers))
        self.backwards = nn.ModuleList(lstm() for _ in range(config.layers))
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, ids: Characters, *, attention_mask: Mask = None
    ) -> list[Float[Tensor, "B T F"]]:
        """Each layer's vectors of every word.

        Args:
            ids: the words' characters (`characters`), `<S>` and `</S>` included.
            attention_mask: True = a word; rows are padded on the right.

        Returns:
            layers + 1 tensors, F = 2 P wide. The first is the token layer (twice the same half),
            then each LSTM layer's forward half and backward half.
        """
        lengths = None if attention_mask is None else right_padded(attention_mask)
        order = reversed_order(ids.shape[1], lengths)
        tokens = self.tokens(ids).transpose(0, 1)  # T B P

        # Both directions read the same tokens, one of them in reversed order.
        left = self._read(self.forwards, tokens)
        right = self._read(self.backwards, reverse(tokens, order))

        layers = [torch.cat([tokens, tokens], dim=-1)]  # T B F
        for from_left, from_right in zip(left, right, strict=True):
            # Turned back, both say something of the same word.
            layers.append(torch.cat([from_left, reverse(from_right, order)], dim=-1))
        return [layer.transpose(0, 1) for layer in layers]  # B T F each

    def _read(
        self, lstms: nn.ModuleList, x: Float[Tensor, "T B P"]
    ) -> list[Float[Tensor, "T B P"]]:
        """The output of each layer of one direction."""
        outputs = []
        for depth, lstm in enumerate(lstms):
            assert isinstance(lstm, ProjectedLSTM)
            x = self.dropout(x)
            y = lstm(x)
            x = x + y if depth and self.config.residual else y
            outputs.append(x)
        return outputs


class ScalarMix(nn.Module):
    """A task's mean of the layers h_j (Peters et al. 2018, equation 1).

    gamma * sum over j of s_j h_j,  s = softmax(scores)

    It starts as the plain mean.
    """

    def __init__(self, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))
        self.dropout = nn.Dropout(dropout)

    @property
    def weights(self) -> Float[Tensor, " L"]:
        """The layers' shares s_j."""
        return self.scores.softmax(0)

    def forward(self, layers: list[Float[Tensor, "B T F"]]) -> Float[Tensor, "B T F"]:
        shares = self.gamma * self.weights
        mixed = sum(share * layer for share, layer in zip(shares, layers, strict=True))
        return self.dropout(mixed)
