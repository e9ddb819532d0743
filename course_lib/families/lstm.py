"""An LSTM that reads a text, pretrained before it classifies (Dai and Le 2015).

Differs from the 2017 Transformer by recurrence instead of self-attention: one state carries
everything that was read. `LstmLM` or `LstmAutoencoder` pretrains the `LstmBody`.

Known departures: the gradient is not cut after 400 steps; no linear gain of labels over the steps;
the token vectors are the output matrix.

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
from course_lib.model.lstm import right_padded
from course_lib.objectives.losses import Batch, cross_entropy

Ids = Int[Tensor, "B T"]
LstmState = tuple[Float[Tensor, "layers B H"], Float[Tensor, "layers B H"]]  # outputs and cells


@dataclass(frozen=True)
class LstmConfig:
    """The sizes of `LstmBody`, or of a side of `lstm_seq2seq.LstmSeq2Seq`."""

    vocab: int  # V
    width: int = 128  # E
    cells: int = 256  # H
    layers: int = 1
    dropout: float = 0.2  # on token vectors, between layers, and before an output
    start: int = 0  # the token that every target begins with


def framing(vocab: int, width: int, segments: int = 0, **more: float) -> StackConfig:
    """A stand-in for a Transformer's configuration, which `data.inputs.Frame` asks for.

    Args:
        vocab: V.
        width: of the output.
        segments: kinds of segment.
        more: other fields, as `dropout`.
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
    """Token vectors and layers of an LSTM from the left. It takes a stack's part in `finetune`."""

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
        """The state after every token. Rows are padded on the right, where it reaches no token."""
        x = self.dropout(self.embed(ids))  # B T E
        outputs, _ = self.lstm(x)
        return outputs

    def read(self, ids: Ids, attention_mask: Mask = None) -> LstmState:
        """The state after each row's last real token."""
        x = self.dropout(self.embed(ids))
        if attention_mask is not None:
            lengths = right_padded(attention_mask).clamp(min=1).cpu()
            x = nn.utils.rnn.pack_padded_sequence(
                x, lengths, batch_first=True, enforce_sorted=False
            )
        return self.lstm(x)[1]

    def for_task(
        self,
        kind: Kind,
        classes: int | None,
        *,
        pretrained: bool = True,
        frozen: bool = False,
        dropout: float | None = None,
    ) -> "LstmTask":
        """A classifier on a copy of this body, or on a fresh one of its size."""
        if kind not in ("single", "pair"):
            raise CourseError(f"An LSTM classifies whole texts; the task is of the kind {kind!r}.")
        config = self.lstm_config if dropout is None else replace(self.lstm_config, dropout=dropout)
        body = LstmBody(config)
        if pretrained:
            body.load_state_dict(copy.deepcopy(self.state_dict()))
        body.requires_grad_(not frozen)
        return LstmTask(body, classes or 1)


class LstmTask(nn.Module):
    """A linear layer on the state after a text's last token: class logits [B C]."""

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

    States are projected to the width of the token vectors, which are the output matrix.
    """

    def __init__(self, body: LstmBody) -> None:
        super().__init__()
        self.body = body
        self.project = nn.Linear(body.lstm_config.cells, body.lstm_config.width, bias=False)
        self.bias = nn.Parameter(torch.zeros(body.lstm_config.vocab))

    def forward(self, ids: Ids, *, attention_mask: Mask = None, loss_mask: Mask = None) -> Scores:
        return self.logits(self.body(ids), loss_mask)

    def logits(self, h: Float[Tensor, "B T H"], loss_mask: Mask) -> Float[Tensor, "*N V"]:
        """States to scores of the vocabulary; with `loss_mask`, of those N positions only."""
        if loss_mask is not None:
            h = h[loss_mask]  # N H
        h = self.project(self.body.dropout(h))  # *N E
        return nn.functional.linear(h, self.body.embed.weight, self.bias)


class LstmAutoencoder(LstmLM):
    """Logits of the text's own tokens (Dai and Le 2015, section 2, figure 1).

    The LSTM reads the text, and from its last state predicts the text again with teacher forcing.
    """

    def forward(self, ids: Ids, *, attention_mask: Mask = None, loss_mask: Mask = None) -> Scores:
        """At position t, scores of token t, given the whole text's state and the tokens before."""
        state = self.body.read(ids, attention_mask)
        last_output = state[0][-1]  # of the top layer: B H
        h = last_output[:, None]  # it predicts the first token
        if ids.shape[1] > 1:
            x = self.body.dropout(self.body.embed(ids[:, :-1]))
            rest, _ = self.body.lstm(x, state)  # B T-1 H
            h = torch.cat([h, rest], dim=1)  # B T H
        return self.logits(h, loss_mask)


def reconstruction(model: nn.Module, batch: Batch) -> Tensor:
    """The autoencoder's loss: mean of -log p(token | tokens before it, the whole text's state)."""
    ids = batch["ids"]
    attention_mask = batch.get("attention_mask")
    real = torch.ones_like(ids, dtype=torch.bool)
    if attention_mask is not None:
        real = attention_mask.bool()
    return cross_entropy(model(ids, attention_mask=attention_mask, loss_mask=real), ids[real])
