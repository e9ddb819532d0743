"""An LSTM that reads a text from the left, and what starts it: language modelling or autoencoding (Dai and Le 2015).

    body = LstmBody(LstmConfig(tokenizer.vocab.size))
    train(LstmLM(body), batches, losses.clm, ...)                  # LM-LSTM: every next token
    train(LstmAutoencoder(body), batches, reconstruction, ...)     # SA-LSTM: the whole text again, from its last state
    finetune(body, task, tokenizer)                                # the classifier; pretrained=False is the plain LSTM

Differs from the 2017 Transformer by: one state carries all that was read; no attention, no positions.

Known departures: all tokens of a text in one batch (the paper cuts texts after 400 steps of the way back); no linear
gain of labels over the steps; the token vectors are the output matrix.

Letters: B rows, T tokens, E width of a token vector, H cells, V vocabulary, C classes.
"""

import copy
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.config import EmbedConfig, NoPosition, StackConfig
from course_lib.errors import CourseError
from course_lib.heads import pool
from course_lib.inputs import Kind
from course_lib.losses import Batch, cross_entropy
from course_lib.lstm import right_padded

State = tuple[Float[Tensor, "layers B H"], Float[Tensor, "layers B H"]]  # outputs and cells


@dataclass(frozen=True)
class LstmConfig:
    """vocab: V. width: E. cells: H. dropout: on token vectors, between layers, and before an output."""

    vocab: int
    width: int = 128
    cells: int = 256
    layers: int = 1
    dropout: float = 0.2


class LstmBody(nn.Module):
    """Token vectors and layers of an LSTM from the left. It takes a stack's part in `finetune`.

    Args:
        vectors: Float[V E] to start the token vectors from (`static.WordVectors.table`).
    """

    def __init__(self, config: LstmConfig, *, vectors: Float[Tensor, "V E"] | None = None) -> None:
        super().__init__()
        self.lstm_config = config
        self.embed = nn.Embedding(config.vocab, config.width)
        nn.init.normal_(self.embed.weight, std=0.1)
        if vectors is not None:
            if vectors.shape != self.embed.weight.shape:
                raise CourseError(f"The vectors are {list(vectors.shape)}, not [{config.vocab}, {config.width}].")
            self.embed.weight.data.copy_(vectors)
        between = config.dropout if config.layers > 1 else 0.0
        self.lstm = nn.LSTM(config.width, config.cells, config.layers, batch_first=True, dropout=between)
        self.dropout = nn.Dropout(config.dropout)
        self.config = framing(config.vocab, config.cells)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T H"]:
        """The state after every token. Rows are padded on the right: what stands there reaches no real token."""
        h: Tensor = self.lstm(self.dropout(self.embed(ids)))[0]
        return h

    def read(self, ids: Int[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None = None) -> State:
        """The state after each row's last real token."""
        x = self.dropout(self.embed(ids))
        if keep is not None:
            lengths = right_padded(keep).clamp(min=1).cpu()
            x = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        state: State = self.lstm(x)[1]
        return state

    def for_task(
        self, kind: Kind, classes: int | None, *, pretrained: bool = True, frozen: bool = False,
        dropout: float | None = None,
    ) -> "LstmTask":  # fmt: skip
        """A model for one task on a copy of this body.

        Args:
            classes: number of labels; None for scores, choices and spans.
            pretrained: False starts from fresh weights. frozen: only what is on top learns. dropout: in place of the
                configuration's.
        """
        config = self.lstm_config if dropout is None else replace(self.lstm_config, dropout=dropout)
        body = LstmBody(config)
        if pretrained:
            body.load_state_dict(copy.deepcopy(self.state_dict()))
        body.requires_grad_(not frozen)
        return LstmTask(body, kind, classes)


class LstmTask(nn.Module):
    """A linear layer on the last state, or on every token's: one model for every kind of task.

    `forward(ids, *, keep, segments)` is that of the heads on a stack (`course_lib.heads`): class logits [B C] for
    "single" and "pair", [B N] for "choice" (ids [B N T]), [B T C] for "tagging", start and end [B T] each for "span".
    """

    def __init__(self, body: LstmBody, kind: Kind, classes: int | None) -> None:
        super().__init__()
        self.body, self.kind = body, kind
        self.dropout = nn.Dropout(body.lstm_config.dropout)
        self.out = nn.Linear(body.lstm_config.cells, {"choice": 1, "span": 2}.get(kind, classes or 1))

    def forward(
        self, ids: Tensor, *, keep: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        if self.kind == "choice":
            rows = ids.flatten(0, 1)
            return self._whole(rows, None if keep is None else keep.flatten(0, 1)).view(ids.shape[:2])
        if self.kind in ("single", "pair"):
            return self._whole(ids, keep)
        scores: Tensor = self.out(self.dropout(self.body(ids, keep=keep)))
        return scores if self.kind == "tagging" else scores.unbind(-1)  # type: ignore[return-value]

    def _whole(self, ids: Int[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None) -> Float[Tensor, "B C"]:
        scores: Tensor = self.out(self.dropout(pool(self.body(ids), keep, "last")))
        return scores


class TiedOutput(nn.Module):
    """States to scores of the vocabulary: projected to the token vectors' width, multiplied with them, plus a bias."""

    def __init__(self, inputs: int, embed: nn.Embedding) -> None:
        super().__init__()
        self.project = nn.Linear(inputs, embed.embedding_dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(embed.num_embeddings))

    def forward(self, h: Float[Tensor, "*N H"], vectors: Float[Tensor, "V E"]) -> Float[Tensor, "*N V"]:
        return nn.functional.linear(self.project(h), vectors, self.bias)


class LstmLM(nn.Module):
    """Next-token logits; trained by `losses.clm`. `at`: logits of those positions only, [N, V]."""

    def __init__(self, body: LstmBody) -> None:
        super().__init__()
        self.body = body
        self.out = TiedOutput(body.lstm_config.cells, body.embed)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        at: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"] | Float[Tensor, "N V"]:
        h = self.body(ids)
        logits: Tensor = self.out(self.body.dropout(h if at is None else h[at]), self.body.embed.weight)
        return logits


class LstmAutoencoder(nn.Module):
    """Logits of the text's own tokens: the LSTM reads the text, and from its last state says it again, fed with what
    it should have said (teacher forcing). Reader and sayer are one LSTM (Dai and Le 2015, section 2, figure 1)."""

    def __init__(self, body: LstmBody) -> None:
        super().__init__()
        self.body = body
        self.out = TiedOutput(body.lstm_config.cells, body.embed)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        at: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"] | Float[Tensor, "N V"]:
        """Row b, position t: scores of ids[b, t], given the whole text's state and the tokens before t."""
        state = self.body.read(ids, keep)
        first = state[0][-1][:, None]  # the state after the last token says the first one
        h = first
        if ids.shape[1] > 1:
            rest, _ = self.body.lstm(self.body.dropout(self.body.embed(ids[:, :-1])), state)
            h = torch.cat([first, rest], dim=1)
        logits: Tensor = self.out(self.body.dropout(h if at is None else h[at]), self.body.embed.weight)
        return logits


def reconstruction(model: nn.Module, batch: Batch) -> Tensor:
    """The autoencoder's loss: mean of -log p(token | tokens before it, the whole text's state). Reads `ids`, `keep`."""
    ids, keep = batch["ids"], batch.get("keep")
    at = torch.ones_like(ids, dtype=torch.bool) if keep is None else keep.bool()
    return cross_entropy(model(ids, keep=keep, at=at), ids[at])


def framing(vocab: int, width: int) -> StackConfig:
    """What framing a task's inputs asks of a body: the vocabulary, and that there are no positions to run out of."""
    return StackConfig(
        embed=EmbedConfig(vocab, segments=0), width=width, layers=1, heads=1, hidden=width, position=NoPosition()
    )
