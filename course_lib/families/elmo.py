"""ELMo (Peters et al. 2018): word vectors in context from a bidirectional language model.

Differs from the 2017 Transformer by: no attention; words are read by their characters through a
CNN; two LSTM language models, one from each side, that share that input and the softmax; a task
mixes all layers instead of taking the last.

    layers = model.elmo(**elmo.characters([["The", "bank", "closed"]], model.elmo.config.length))
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.families.weight_tables import Converted, Table, convert
from course_lib.files import atomic_write, read_json
from course_lib.model.heads import Mask
from course_lib.model.lstm import ProjectedLSTM, reverse, reversed_order, right_padded
from course_lib.model.modes import evaluating
from course_lib.objectives.losses import Batch, cross_entropy
from course_lib.vocab import IGNORE

CHARACTERS = 262  # 256 bytes, 5 marks, and 0 for "no word here"
# Character ids after the 256 bytes, all shifted by one: 0 is left for a place without a word.
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = 257, 258, 259, 260, 261
Characters = Int[Tensor, "B T C"]
BOS, EOS, UNK = "<S>", "</S>", "<UNK>"


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
        total = sum(many for _, many in config.filters)
        self.highways = nn.ModuleList(Highway(total) for _ in range(config.highways))
        self.project = nn.Linear(total, config.width) if total != config.width else None
        self.activation = F.relu if config.activation == "relu" else torch.tanh
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
        # Behind the longest word all windows hold padding only. One of them gives the maximum that
        # all would give, so the others are cut away.
        widest = max(wide for wide, _ in self.config.filters)
        used = ((spelled != PAD) & (spelled != 0)).any(0).nonzero()
        longest = int(used[-1]) + 1 if len(used) else 0
        spelled = spelled[:, : longest + widest]
        x: Tensor = self.characters(spelled).transpose(1, 2)  # N E C
        # Of each filter the place in the word where it fits best.
        x = torch.cat([conv(x).max(-1).values for conv in self.filters], dim=-1)  # N filters
        x = self.activation(x)
        for highway in self.highways:
            x = highway(x)
        if self.project is not None:
            x = self.project(x)  # N P
        return F.embedding(which, x).view(*ids.shape[:2], -1)


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
        left = self._read(self.forwards, tokens)
        right = self._read(self.backwards, reverse(tokens, order))
        layers = [torch.cat([tokens, tokens], dim=-1)]  # T B F
        for from_left, from_right in zip(left, right, strict=True):
            layers.append(torch.cat([from_left, reverse(from_right, order)], dim=-1))
        return [layer.transpose(0, 1) for layer in layers]

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


@lru_cache(maxsize=2**16)
def spelling(word: str, length: int) -> tuple[int, ...]:
    """The character ids of a word: its UTF-8 bytes plus one, between two marks.

    Args:
        word: `<S>` and `</S>` are one character each.
        length: number of ids; longer words are cut, shorter ones padded.
    """
    if word == BOS:
        inner: tuple[int, ...] = (BEGIN_SENTENCE,)
    elif word == EOS:
        inner = (END_SENTENCE,)
    else:
        inner = tuple(byte + 1 for byte in word.encode("utf-8", "ignore")[: length - 2])
    ids = (BEGIN_WORD, *inner, END_WORD)
    return ids + (PAD,) * (length - len(ids))


def characters(rows: Sequence[Sequence[str]], length: int, ends: bool = True) -> dict[str, Tensor]:
    """Rows of words as a model's input, padded on the right.

    Args:
        rows: the words of each row.
        length: characters of a word.
        ends: whether to put each row between `<S>` and `</S>`.

    Returns:
        `ids`, Int[B, T, C], 0 where there is no word, and `attention_mask`, Bool[B, T].
    """
    framed = [[BOS, *row, EOS] if ends else row for row in rows]
    lengths = torch.tensor([len(row) for row in framed])
    attention_mask = torch.arange(int(lengths.max())) < lengths[:, None]
    ids = torch.zeros(*attention_mask.shape, length, dtype=torch.long)
    ids[attention_mask] = torch.tensor([spelling(word, length) for row in framed for word in row])
    return {"ids": ids, "attention_mask": attention_mask}


class Vocabulary:
    """The words of the softmax: `<S>`, `</S>`, `<UNK>`, then by frequency. Inputs need no list."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = list(words)
        self._ids = {word: i for i, word in enumerate(self.words)}
        self.bos = self._ids[BOS]
        self.eos = self._ids[EOS]
        self.unk = self._ids[UNK]

    @staticmethod
    def count(rows: Iterable[Sequence[str]], most: int | None = None) -> "Vocabulary":
        """The words of a text, or the `most` frequent of them."""
        marks = (BOS, EOS, UNK)
        counts = Counter(word for row in rows for word in row)
        by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
        words = [word for word in by_frequency[:most] if word not in marks]
        return Vocabulary([*marks, *words])

    def ids(self, words: Iterable[str]) -> list[int]:
        return [self._ids.get(word, self.unk) for word in words]

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __len__(self) -> int:
        return len(self.words)

    def save(self, path: str | Path) -> None:
        with atomic_write(path) as file:
            file.writelines(word + "\n" for word in self.words)

    @staticmethod
    def load(path: str | Path) -> "Vocabulary":
        return Vocabulary(Path(path).read_text("utf-8").split())


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


def load_published(folder: str | Path) -> Elmo:
    """An ELMo from the files that its authors published: options.json and weights.hdf5.

    The softmax is not in them.

    Raises:
        CourseError: the files cannot be read, or do not fit each other.
    """
    import h5py  # which nothing else of the course needs

    config = read_options(read_json(Path(folder) / "options.json"))
    path = Path(folder) / "weights.hdf5"
    weights: dict[str, Tensor] = {}

    def take(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            weights[name] = torch.from_numpy(item[...]).float()

    model = Elmo(config)
    try:
        with h5py.File(path, "r") as file:
            file.visititems(take)
        model.load_state_dict(convert(weights, weight_table(config), model))
    except (OSError, TypeError, RuntimeError) as error:
        raise CourseError(
            f"The weights {path} cannot be read, or are not those of options.json ({error})."
        ) from error
    return model.eval()


def read_options(values: Mapping[str, Any]) -> ElmoConfig:
    """From options.json to our configuration.

    Raises:
        CourseError: an entry is missing.
    """
    try:
        lstm = values["lstm"]
        cnn = values["char_cnn"]
        return ElmoConfig(
            vocab=0,
            width=lstm["projection_dim"],
            hidden=lstm["dim"],
            layers=lstm["n_layers"],
            residual=lstm.get("use_skip_connections", False),
            cell_clip=lstm.get("cell_clip"),
            projection_clip=lstm.get("proj_clip"),
            filters=tuple((wide, many) for wide, many in cnn["filters"]),
            length=cnn["max_characters_per_token"],
            character=cnn["embedding"]["dim"],
            highways=cnn.get("n_highway", 0),
            activation=cnn["activation"],
            dropout=values.get("dropout", 0.1),
        )
    except (KeyError, TypeError) as error:
        raise CourseError(
            f"These are not the options of an ELMo: {error} is missing or out of place."
        ) from None


def weight_table(config: ElmoConfig) -> Table:
    """How the weights in weights.hdf5 are called: there, and here. Their matrices are [in, out]."""
    table: Table = {
        # Character 0 has no vector there.
        "char_embed": Converted(("tokens.characters.weight",), lambda x: F.pad(x, (0, 0, 1, 0))),
    }
    for i in range(len(config.filters)):
        filters = f"tokens.filters.{i}"
        table[f"CNN/W_cnn_{i}"] = Converted((f"{filters}.weight",), lambda x: x[0].permute(2, 1, 0))
        table[f"CNN/b_cnn_{i}"] = f"{filters}.bias"
    for i in range(config.highways):
        highway = f"tokens.highways.{i}"
        table[f"CNN_high_{i}/W_carry"] = Converted((f"{highway}.carry.weight",), Tensor.t)
        table[f"CNN_high_{i}/b_carry"] = f"{highway}.carry.bias"
        table[f"CNN_high_{i}/W_transform"] = Converted((f"{highway}.transform.weight",), Tensor.t)
        table[f"CNN_high_{i}/b_transform"] = f"{highway}.transform.bias"
    if sum(many for _, many in config.filters) != config.width:
        table["CNN_proj/W_proj"] = Converted(("tokens.project.weight",), Tensor.t)
        table["CNN_proj/b_proj"] = "tokens.project.bias"
    for number, direction in enumerate(("forwards", "backwards")):
        for i in range(config.layers):
            cell = f"RNN_{number}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            lstm = f"{direction}.{i}"
            matrices = (f"{lstm}.inputs.weight", f"{lstm}.recurrent")
            table[f"{cell}/W_0"] = Converted(matrices, _kernel)
            table[f"{cell}/B"] = Converted((f"{lstm}.inputs.bias",), _gates)
            table[f"{cell}/W_P_0"] = Converted((f"{lstm}.project",), Tensor.t)
    return table


def _gates(x: Tensor) -> Tensor:
    """An LSTM's gates in our order, i, f, o, j; theirs is i, j, f, o.

    Their forget gate's bias lacks the 1 that is added when it runs.
    """
    i, j, f, o = x.chunk(4, dim=-1)
    return torch.cat([i, f, o, j], dim=-1)


def _kernel(x: Tensor) -> Tensor:
    """An LSTM's two matrices, which lie side by side there, one below the other.

    [D + P, 4H] with D = P becomes [8H, P].
    """
    inputs, recurrent = _gates(x).t().chunk(2, dim=1)
    return torch.cat((inputs, recurrent))
