"""An LSTM that is pretrained and then classifies texts (Dai and Le 2015).

Differs from the 2017 Transformer by recurrence instead of self-attention: one state has to carry
all that the model has read. `LstmLM` pretrains the `LstmBody`; `LstmTask` classifies with it.

Known departures: backpropagation through time is not truncated after 400 steps; the classifier is
trained on the last state only, without the paper's linear label gain; the token embeddings are also
the output matrix.

Letters: B rows, T tokens, E width of a token vector, H cells, V vocabulary, C classes.
"""

import copy
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.config import EmbedConfig, Kind, NoPosition, StackConfig
from course_lib.model.heads import Mask, Scores, pool

Ids = Int[Tensor, "B T"]
LstmState = tuple[Float[Tensor, "layers B H"], Float[Tensor, "layers B H"]]  # outputs and cells


@dataclass(frozen=True)
class LstmConfig:
    """The shape of an `LstmBody`, or of each side of an `lstm_seq2seq.LstmSeq2Seq`.

    Attributes:
        vocab: number V of tokens in the vocabulary.
        width: width E of a token vector.
        cells: number H of cells in a layer.
        layers: number of LSTM layers.
        dropout: the dropout rate on token vectors, between layers, and before an output layer.
        start: the id of the token that starts every target; only an encoder-decoder uses it.
    """

    vocab: int
    width: int = 128
    cells: int = 256
    layers: int = 1
    dropout: float = 0.2
    start: int = 0


def framing(vocab: int, width: int, segments: int = 0, **more: float) -> StackConfig:
    """A Transformer's configuration for a body that is no Transformer.

    `finetune` reads from it how to frame a text: the longest input, and whether there are segments.

    Args:
        vocab: number V of tokens in the vocabulary.
        width: width of the body's output.
        segments: number of segment embeddings; 0 for a body that reads no segments.
        more: other fields of `StackConfig`, such as `dropout`.
    """
    return StackConfig(
        embed=EmbedConfig(vocab, segments=segments),
        width=width,
        layers=1,
        heads=1,
        hidden=width,
        position=NoPosition(),
        **more,  # type: ignore[arg-type]
    )


class LstmBody(nn.Module):
    """Token embeddings and a left-to-right LSTM. `finetune` uses it like a Transformer stack."""

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        self.lstm_config = config
        self.embed = nn.Embedding(config.vocab, config.width)
        nn.init.normal_(self.embed.weight, std=0.1)
        between = config.dropout if config.layers > 1 else 0.0
        self.lstm = nn.LSTM(
            config.width, config.cells, config.layers, batch_first=True, dropout=between
        )
        self.dropout = nn.Dropout(config.dropout)
        self.config = framing(config.vocab, config.cells)

    def forward(
        self, ids: Ids, *, attention_mask: Mask = None, segments: Ids | None = None
    ) -> Float[Tensor, "B T H"]:
        """The state after every token.

        Rows are padded on the right. A state depends on the tokens before it only, so padding
        changes no state of a real token, and `attention_mask` is not used.
        """
        x = self.dropout(self.embed(ids))  # B T E
        outputs, _ = self.lstm(x)
        return outputs

    def for_task(
        self,
        kind: Kind,
        classes: int | None,
        *,
        pretrained: bool = True,
        frozen: bool = False,
        dropout: float | None = None,
    ) -> "LstmTask":
        """A classifier on a copy of this body.

        Args:
            kind: the kind of task; "single" or "pair".
            classes: number of classes; None for a score.
            pretrained: False starts from random weights instead of this body's.
            frozen: whether the body's weights stay as they are.
            dropout: the dropout rate; None: the body's own.

        Raises:
            CourseError: the task is of another kind.
        """
        if kind not in ("single", "pair"):
            raise CourseError(f"An LSTM classifies whole texts; the task is of the kind {kind!r}.")
        config = self.lstm_config if dropout is None else replace(self.lstm_config, dropout=dropout)
        body = LstmBody(config)
        if pretrained:
            body.load_state_dict(copy.deepcopy(self.state_dict()))
        body.requires_grad_(not frozen)
        return LstmTask(body, classes or 1)


class LstmTask(nn.Module):
    """Class logits from a linear layer on the state after a text's last token."""

    def __init__(self, body: LstmBody, classes: int) -> None:
        super().__init__()
        self.body = body
        self.dropout = nn.Dropout(body.lstm_config.dropout)
        self.out = nn.Linear(body.lstm_config.cells, classes)

    def forward(
        self, ids: Ids, *, attention_mask: Mask = None, segments: Ids | None = None
    ) -> Float[Tensor, "B C"]:
        states = self.body(ids)  # B T H
        last = pool(states, attention_mask, "last")  # B H
        return self.out(self.dropout(last))


class LstmLM(nn.Module):
    """Next-token logits (Dai and Le 2015, section 2); `losses.clm` trains it.

    States are projected to the width E of the token embeddings, which are the output matrix too.
    """

    def __init__(self, body: LstmBody) -> None:
        super().__init__()
        self.body = body
        self.project = nn.Linear(body.lstm_config.cells, body.lstm_config.width, bias=False)
        self.bias = nn.Parameter(torch.zeros(body.lstm_config.vocab))

    def forward(self, ids: Ids, *, attention_mask: Mask = None, loss_mask: Mask = None) -> Scores:
        return self.logits(self.body(ids), loss_mask)

    def logits(self, h: Float[Tensor, "B T H"], loss_mask: Mask) -> Float[Tensor, "*N V"]:
        """Logits of the vocabulary from the states; with `loss_mask`, at its N positions only."""
        if loss_mask is not None:
            h = h[loss_mask]  # N H
        h = self.project(self.body.dropout(h))  # *N E
        return nn.functional.linear(h, self.body.embed.weight, self.bias)
