"""The biLM: character CNN, forward and backward LSTMs; the softmax that trains it; the mix that uses it."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.lstm import ProjectedLSTM, right_padded, turned, turning
from course_lib.models.elmo.config import CHARACTERS, ElmoConfig
from course_lib.models.elmo.words import PAD

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "tanh": torch.tanh}


class Highway(nn.Module):
    """g * relu(A x + a) + (1 - g) * x with g = sigmoid(C x + c): a layer that can let its input through."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.carry, self.transform = nn.Linear(width, width), nn.Linear(width, width)
        for linear, bias in ((self.carry, -2.0), (self.transform, 0.0)):  # at first it lets most of it through
            nn.init.normal_(linear.weight, std=width**-0.5)
            nn.init.constant_(linear.bias, bias)

    def forward(self, x: Float[Tensor, "N F"]) -> Float[Tensor, "N F"]:
        return x + torch.sigmoid(self.carry(x)) * (F.relu(self.transform(x)) - x)


class CharacterCNN(nn.Module):
    """A word's vector from its spelling alone (Kim et al. 2016; Jozefowicz et al. 2016, section 3.1).

    Character vectors, convolutions of several widths, the largest value of each filter over the word, highway layers,
    a projection. A batch's words are many times the same few: each spelling is computed once.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.characters = nn.Embedding(CHARACTERS, config.character, padding_idx=0)
        self.filters = nn.ModuleList(nn.Conv1d(config.character, many, wide) for wide, many in config.filters)
        total = sum(many for _, many in config.filters)
        self.highways = nn.ModuleList(Highway(total) for _ in range(config.highways))
        self.project = nn.Linear(total, config.width) if total != config.width else None
        self.activation = ACTIVATIONS[config.activation]
        nn.init.uniform_(self.characters.weight, -1, 1)
        with torch.no_grad():
            self.characters.weight[0] = 0
        for (wide, _), conv in zip(config.filters, self.filters, strict=True):
            assert isinstance(conv, nn.Conv1d)
            if config.activation == "relu":
                nn.init.uniform_(conv.weight, -0.05, 0.05)
            else:
                nn.init.normal_(conv.weight, std=(wide * config.character) ** -0.5)
            assert conv.bias is not None
            nn.init.zeros_(conv.bias)
        if self.project is not None:
            nn.init.normal_(self.project.weight, std=total**-0.5)
            nn.init.zeros_(self.project.bias)

    def forward(self, ids: Int[Tensor, "B T C"]) -> Float[Tensor, "B T P"]:
        self._check(ids)
        spelled, which = torch.unique(ids.flatten(0, 1), dim=0, return_inverse=True)
        return F.embedding(which, self.spell(spelled)).view(*ids.shape[:2], -1)

    def spell(self, ids: Int[Tensor, "N C"]) -> Float[Tensor, "N P"]:
        """One vector a spelling."""
        # Beyond the longest word every window holds padding alone; one such window tells the maximum all of them would.
        widest = max(wide for wide, _ in self.config.filters)
        used = ((ids != PAD) & (ids != 0)).any(0).nonzero()
        ids = ids[:, : (int(used[-1]) + 1 if len(used) else 0) + widest]
        x: Tensor = self.characters(ids).transpose(1, 2)  # N E C
        x = torch.cat([conv(x).max(-1).values for conv in self.filters], dim=-1)
        x = self.activation(x)
        for highway in self.highways:
            x = highway(x)
        if self.project is not None:
            x = self.project(x)
        return x

    def _check(self, ids: Tensor) -> None:
        if ids.dim() != 3 or ids.shape[2] != self.config.length:
            raise CourseError(
                f"ELMo reads character ids [rows, words, {self.config.length}], not {list(ids.shape)}; "
                "elmo.characters makes them."
            )
        if ids.device.type == "cpu" and ids.numel():
            low, high = (int(v) for v in ids.aminmax())
            if low < 0 or high >= CHARACTERS:
                raise CourseError(f"Character ids run from {low} to {high}; they must lie in 0 to {CHARACTERS - 1}.")


class State:
    """What the LSTMs remember from one batch to the next, row by row, without gradient.

    The published model carries it through all it reads. Rows that a smaller batch lacks keep theirs.
    """

    def __init__(self) -> None:
        self.kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def get(self, place: tuple[int, int], rows: int, sizes: tuple[int, int], like: Tensor) -> tuple[Tensor, Tensor]:
        """Output and cells [rows, size] of one LSTM; zeros for rows that have not read anything yet."""
        old = self.kept.get(place, (like.new_zeros(0, sizes[0]), like.new_zeros(0, sizes[1])))
        new = rows - len(old[0])
        grown = tuple(torch.cat([v, v.new_zeros(new, v.shape[1])]) if new > 0 else v for v in old)
        self.kept[place] = (grown[0], grown[1])
        return grown[0][:rows], grown[1][:rows]

    def put(
        self,
        place: tuple[int, int],
        outputs: Float[Tensor, "T B P"],
        cells: Float[Tensor, "T B H"],
        lengths: Int[Tensor, " B"],
    ) -> None:
        """Keep each row's output and cells after its last word."""
        rows = torch.arange(len(lengths), device=lengths.device)[lengths > 0]  # a row without words stays as it was
        ends = lengths[lengths > 0] - 1
        old = self.kept[place]
        both = tuple(v.clone() for v in old)
        for kept, new in zip(both, (outputs, cells), strict=True):
            kept[rows] = new.detach()[ends, rows].to(kept.dtype)
        self.kept[place] = (both[0], both[1])


class Elmo(nn.Module):
    """The body: all layers' vectors of each word (Peters et al. 2018, section 3.1).

    Two one-directional models side by side: nothing but the token layer is shared, and what the forward half knows
    at a word comes from it and the words before it, in every layer.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = CharacterCNN(config)
        self.forwards = nn.ModuleList(_lstm(config) for _ in range(config.layers))
        self.backwards = nn.ModuleList(_lstm(config) for _ in range(config.layers))
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, ids: Int[Tensor, "B T C"], *, keep: Bool[Tensor, "B T"] | None = None, state: State | None = None
    ) -> list[Float[Tensor, "B T F"]]:
        """Read words from their characters.

        Args:
            ids: character ids (`elmo.characters`), the marks `<S>` and `</S>` included.
            keep: True = a word, False = padding, on the right only.
            state: read and updated; None starts from zeros.

        Returns: layers + 1 tensors [B T F] with F twice the width: the token layer (twice the same), then each LSTM
            layer's forward half and backward half. What stands at padding means nothing.
        """
        lengths = None if keep is None else right_padded(keep.bool())
        turn = turning(ids.shape[1], lengths)
        tokens = self.tokens(ids).transpose(0, 1)  # T B P
        left = self._read(self.forwards, 0, tokens, lengths, state)
        right = self._read(self.backwards, 1, turned(tokens, turn), lengths, state)
        layers = [torch.cat([tokens, tokens], dim=-1)]
        layers += [torch.cat([a, turned(b, turn)], dim=-1) for a, b in zip(left, right, strict=True)]
        return [layer.transpose(0, 1) for layer in layers]

    def _read(
        self, lstms: nn.ModuleList, side: int, x: Tensor, lengths: Tensor | None, state: State | None
    ) -> list[Tensor]:
        """The outputs of one direction's layers, each T B P."""
        outputs = []
        for depth, lstm in enumerate(lstms):
            assert isinstance(lstm, ProjectedLSTM)
            x = self.dropout(x)
            if state is None:
                y = lstm.run_fused(x) if lstm.fused else lstm(x)[0]
            else:
                place = depth, side
                y, cells = lstm(x, state.get(place, x.shape[1], (self.config.width, self.config.hidden), x))
                whole = torch.full((x.shape[1],), len(x), device=x.device)
                state.put(place, y, cells, whole if lengths is None else lengths)
            x = x + y if depth and self.config.residual else y
            outputs.append(x)
        return outputs


class BiLM(nn.Module):
    """Elmo and the softmax that both directions share: which word comes next, which one came before?

    `at`: Bool[B 2 T]; the logits [N V] of these places only, `at[:, 0]` for the forward direction, `at[:, 1]` for the
    backward one; all of them, [B 2 T V], by default.
    """

    def __init__(self, elmo: Elmo) -> None:
        super().__init__()
        config = elmo.config
        if config.vocab < 1:
            raise CourseError("A language model needs words to predict; ElmoConfig.vocab is 0.")
        self.elmo = elmo
        self.softmax = nn.Linear(config.width, config.vocab)
        nn.init.normal_(self.softmax.weight, std=config.width**-0.5)
        nn.init.zeros_(self.softmax.bias)

    def forward(
        self,
        ids: Int[Tensor, "B T C"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        at: Bool[Tensor, "B 2 T"] | None = None,
        state: State | None = None,
    ) -> Float[Tensor, "B 2 T V"] | Float[Tensor, "N V"]:
        top = self.elmo(ids, keep=keep, state=state)[-1]
        halves = torch.stack(top.chunk(2, dim=-1), dim=1)  # B 2 T P
        chosen = halves if at is None else halves[at]
        logits: Tensor = self.softmax(self.elmo.dropout(chosen))
        return logits


class ScalarMix(nn.Module):
    """gamma * sum_j s_j h_j with s = softmax(scores): what a task makes of the layers (Peters et al. 2018, equation 1).

    Starts as the layers' mean. dropout: on the mix.
    """

    def __init__(self, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))
        self.dropout = nn.Dropout(dropout)

    @property
    def weights(self) -> Float[Tensor, " L"]:
        """The layers' shares s_j; they add up to 1."""
        return self.scores.softmax(0)

    def forward(self, layers: list[Float[Tensor, "B T F"]]) -> Float[Tensor, "B T F"]:
        if len(layers) != len(self.scores):
            raise CourseError(f"The mix has weights for {len(self.scores)} layers, and got {len(layers)}.")
        weights = self.gamma * self.weights
        total = torch.zeros_like(layers[0])
        for weight, layer in zip(weights, layers, strict=True):
            total = total + weight * layer
        mixed: Tensor = self.dropout(total)
        return mixed


def _lstm(config: ElmoConfig) -> ProjectedLSTM:
    clips: dict[str, Any] = {"cell_clip": config.cell_clip, "output_clip": config.projection_clip}
    return ProjectedLSTM(config.width, config.hidden, config.width, **clips)
