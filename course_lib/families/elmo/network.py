"""ELMo's body: a CNN over each word's characters, and LSTMs in both directions.

Letters: B rows, T words, C characters of a word, N different spellings in a batch, E width of a
character's vector, P width of a direction, F = 2 P width of a layer's output.
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
    """The shape of an ELMo.

    Attributes:
        vocab: number of words in the softmax; 0 for a body without one.
        width: width P of each direction's output; a layer's output is twice as wide.
        hidden: number of cells of an LSTM.
        filters: for each convolution, how many characters wide it is and how many filters it has.
        layers: number of LSTM layers in each direction.
        length: number of character ids of a word, its begin and end ids included; longer words are
            cut.
        character: width of a character's vector.
        highways: number of highway layers after the convolutions.
        activation: after the convolutions.
        residual: whether a layer adds its input to its output, from the second layer on.
        cell_clip: largest absolute value of an LSTM's cells; None does not clip.
        projection_clip: largest absolute value of an LSTM's outputs; None does not clip.
        dropout: on the input of each LSTM and of the softmax.
    """

    vocab: int
    width: int
    hidden: int
    filters: tuple[tuple[int, int], ...]
    layers: int = 2
    length: int = 50
    character: int = 16
    highways: int = 2
    activation: Literal["relu", "tanh"] = "relu"
    residual: bool = True
    cell_clip: float | None = 3.0
    projection_clip: float | None = 3.0
    dropout: float = 0.1


def elmo_original(vocab: int = 0) -> ElmoConfig:
    """The published model: 94M parameters (Peters et al. 2018, section 3.4).

    Its softmax had 793,471 words and was never published.
    """
    filters = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    return ElmoConfig(vocab, width=512, hidden=4096, filters=filters)


def elmo_mini(vocab: int) -> ElmoConfig:
    """The course's small ELMo. Its four LSTMs have as many weights as bert-mini's four blocks."""
    filters = ((1, 16), (2, 32), (3, 64), (4, 64), (5, 48), (6, 32))
    return ElmoConfig(vocab, width=64, hidden=336, filters=filters, length=24, dropout=0.0)


class Highway(nn.Module):
    """A layer whose gate mixes input and output (Srivastava et al. 2015, equation 3).

    g = sigmoid(C x + c)
    y = g * relu(A x + a) + (1 - g) * x
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.carry = nn.Linear(width, width)
        self.transform = nn.Linear(width, width)
        nn.init.normal_(self.carry.weight, std=width**-0.5)
        # sigmoid(-2) = 0.12, so at first the layer mostly copies its input.
        nn.init.constant_(self.carry.bias, -2.0)
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
        total = sum(many for _, many in config.filters)  # filters of all convolutions together
        self.highways = nn.ModuleList(Highway(total) for _ in range(config.highways))
        self.project = nn.Linear(total, config.width) if total != config.width else None
        self.activation = F.relu if config.activation == "relu" else torch.tanh

        # The weights are initialised as in the authors' program.
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
        # Each spelling of a batch is computed once. `inverse` is the index of each word's spelling.
        spellings, inverse = torch.unique(ids.flatten(0, 1), dim=0, return_inverse=True)  # N C, B*T
        x: Tensor = self.characters(self._without_padding(spellings)).transpose(1, 2)  # N E C

        # Max pooling: of each filter, the position in the word where it responds most.
        pooled = [conv(x).max(-1).values for conv in self.filters]
        x = self.activation(torch.cat(pooled, dim=-1))  # N filters
        for highway in self.highways:
            x = highway(x)
        if self.project is not None:
            x = self.project(x)  # N P
        # This is x[inverse]. The backward pass of an embedding is faster.
        return F.embedding(inverse, x).view(*ids.shape[:2], -1)  # B T P

    def _without_padding(self, spellings: Int[Tensor, "N C"]) -> Int[Tensor, "N c"]:
        """Cut most of the padding after the longest word, to save time.

        Windows that hold only padding all give the same value. We keep as much padding as the
        widest filter needs for one such window, so the maximum over the windows is the same.
        """
        widest = max(wide for wide, _ in self.config.filters)
        used = ((spellings != PAD) & (spellings != 0)).any(0).nonzero()
        longest = int(used[-1]) + 1 if len(used) else 0
        return spellings[:, : longest + widest]


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
        """The vectors of every word from each layer.

        Args:
            ids: the character ids of the words (`characters`), `<S>` and `</S>` included.
            attention_mask: True for a word, False for padding on the right.

        Returns:
            layers + 1 tensors, F = 2 P wide. The first is the CNN's output, twice side by side.
            Each other tensor has an LSTM layer's forward output and then its backward output.
        """
        lengths = None if attention_mask is None else right_padded(attention_mask)
        order = reversed_order(ids.shape[1], lengths)
        tokens = self.tokens(ids).transpose(0, 1)  # T B P

        # Both directions read the same words, the backward LSTMs in reversed order.
        forward = self._run_layers(self.forwards, tokens)
        backward = self._run_layers(self.backwards, reverse(tokens, order))

        layers = [torch.cat([tokens, tokens], dim=-1)]  # T B F
        for left, right in zip(forward, backward, strict=True):
            # We reverse the backward output again, so that both halves belong to the same word.
            layers.append(torch.cat([left, reverse(right, order)], dim=-1))
        return [layer.transpose(0, 1) for layer in layers]  # B T F each

    def _run_layers(
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
    """A task's weighted mean of the layers h_j (Peters et al. 2018, equation 1).

    gamma * sum over j of s_j h_j,  s = softmax(scores)

    The scores start at zero, so training starts from the unweighted mean.
    """

    def __init__(self, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))
        self.dropout = nn.Dropout(dropout)

    @property
    def weights(self) -> Float[Tensor, " L"]:
        """The layers' weights s_j, which sum to 1."""
        return self.scores.softmax(0)

    def forward(self, layers: list[Float[Tensor, "B T F"]]) -> Float[Tensor, "B T F"]:
        weights = self.gamma * self.weights
        mixed = sum(weight * layer for weight, layer in zip(weights, layers, strict=True))
        return self.dropout(mixed)
