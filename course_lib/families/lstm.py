"""LSTMs from before the Transformer: one reads a text, one is an encoder-decoder with attention.

They differ from the 2017 Transformer by recurrence instead of self-attention: one state carries
everything that was read.

Dai and Le 2015: `LstmBody`, which `LstmLM` or `LstmAutoencoder` pretrains. Known departures: the
gradient is not cut after 400 steps; no linear gain of labels over the steps; the token vectors are
the output matrix.

Luong et al. 2015: `LstmSeq2Seq`. Known departures: a bidirectional encoder; no input feeding
(section 3.3); source, target and output share the token vectors.

Letters: B rows, T (source) and U (target) tokens, E width of a token vector, H cells, M = 2H width
of the memory, V vocabulary, C classes.
"""

import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.config import EmbedConfig, Kind, NoPosition, StackConfig
from course_lib.model.heads import Mask, Scores, pool
from course_lib.model.lstm import BiLSTM, right_padded
from course_lib.model.modes import evaluating
from course_lib.objectives.losses import Batch, cross_entropy

Ids = Int[Tensor, "B T"]
LstmState = tuple[Float[Tensor, "layers B H"], Float[Tensor, "layers B H"]]  # outputs and cells


@dataclass(frozen=True)
class LstmConfig:
    """The sizes of `LstmBody`, or of `LstmSeq2Seq`'s decoder and each direction of its encoder."""

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


class Memory(NamedTuple):
    """A source that has been read; its keys W m are made once for all steps."""

    values: Float[Tensor, "B T M"]
    keys: Float[Tensor, "B T H"]
    attention_mask: Bool[Tensor, "B T"]


class LstmEncoderDecoder(nn.Module):
    """An encoder's outputs are the memory, to which a decoder attends at each step.

    score(s, m) = s . W m                       (Luong et al. 2015, equation 8, "general")
    output      = tanh(combine [s; context])    (equation 5)

    s is the decoder's state, m a vector of the memory, and the context the memory's mean by the
    softmax of the scores.
    """

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        self.lstm_config = config
        self.start = config.start
        self.config = framing(config.vocab, config.cells)
        self.embed = nn.Embedding(config.vocab, config.width)
        nn.init.normal_(self.embed.weight, std=0.1)
        self.dropout = nn.Dropout(config.dropout)
        cells = config.cells
        memory = 2 * cells  # M: both directions
        self.encoder = BiLSTM(config.width, cells, config.layers, config.dropout)
        self.bridge = nn.Linear(memory, 2 * config.layers * cells)
        self.keys = nn.Linear(memory, cells, bias=False)
        between = config.dropout if config.layers > 1 else 0.0
        self.decoder = nn.LSTM(
            config.width, cells, config.layers, batch_first=True, dropout=between
        )
        self.combine = nn.Linear(cells + memory, config.width)

    def read(self, ids: Ids, attention_mask: Mask = None) -> tuple[Memory, LstmState]:
        """The sources' memory, and the state that the decoder begins with.

        That state is made of the last output of each direction.
        """
        if attention_mask is None:
            attention_mask = torch.ones_like(ids, dtype=torch.bool)
        attention_mask = attention_mask.bool()
        values = self.encoder(self.embed(ids), attention_mask)  # B T M
        left, right = values.chunk(2, dim=-1)  # B T H each
        rows = torch.arange(len(ids), device=ids.device)
        last = left[rows, right_padded(attention_mask) - 1]  # B H
        begin = self.bridge(torch.cat([last, right[:, 0]], dim=-1))  # B 2*layers*H
        begin = begin.view(len(ids), 2, self.lstm_config.layers, -1)
        h, c = begin.permute(1, 2, 0, 3).contiguous()  # layers B H each
        return Memory(values, self.keys(values), attention_mask), (torch.tanh(h), c)

    def decode(
        self, decoder_ids: Int[Tensor, "B U"], memory: Memory, state: LstmState
    ) -> tuple[Float[Tensor, "B U E"], LstmState]:
        """Read the tokens `decoder_ids` from `state` on: vectors for the output, and the new state.

        Args:
            decoder_ids: the next tokens of the target.
            memory: of the sources.
            state: after the tokens before.
        """
        x = self.dropout(self.embed(decoder_ids))
        s, state = self.decoder(x, state)  # B U H
        scores = s @ memory.keys.transpose(1, 2)  # B U T
        is_padding = ~memory.attention_mask[:, None]
        weights = scores.masked_fill(is_padding, float("-inf")).softmax(-1)
        context = weights @ memory.values  # B U M
        both = torch.cat([s, context], dim=-1)
        return torch.tanh(self.combine(both)), state  # B U E


class LstmSeq2Seq(nn.Module):
    """Logits of the target's tokens, called as `seq2seq.Seq2SeqLM` is."""

    def __init__(self, stack: LstmEncoderDecoder) -> None:
        super().__init__()
        self.stack = stack
        self.bias = nn.Parameter(torch.zeros(stack.lstm_config.vocab))

    def forward(
        self,
        ids: Ids,
        decoder_ids: Int[Tensor, "B U"],
        *,
        attention_mask: Mask = None,
        decoder_attention_mask: Mask = None,
        loss_mask: Bool[Tensor, "B U"] | None = None,
    ) -> Float[Tensor, "B U V"] | Float[Tensor, "N V"]:
        """Scores of the next token at each position of the target.

        Args:
            ids: the sources.
            decoder_ids: the target moved one to the right (`seq2seq.shift_right`).
            attention_mask: the sources' real tokens.
            decoder_attention_mask: not needed: nothing reads what stands behind a token.
            loss_mask: the positions of the target to predict; by default all of them.
        """
        memory, state = self.stack.read(ids, attention_mask)
        h, _ = self.stack.decode(decoder_ids, memory, state)  # B U E
        if loss_mask is not None:
            h = h[loss_mask]  # N E
        return self.logits(h)

    def logits(self, h: Float[Tensor, "*N E"]) -> Float[Tensor, "*N V"]:
        """The decoder's vectors to scores; the token vectors are the output matrix."""
        return nn.functional.linear(self.stack.dropout(h), self.stack.embed.weight, self.bias)

    @torch.no_grad()
    def greedy(
        self, ids: Ids, *, max_new_tokens: int, attention_mask: Mask = None, eos: int | None = None
    ) -> Int[Tensor, "B U+1"]:
        """The likeliest token at every step, start token included.

        Args:
            ids: the sources.
            max_new_tokens: the most tokens behind the start token.
            attention_mask: the sources' real tokens.
            eos: the token that ends a row, and fills the rest of it.
        """
        with evaluating(self):
            memory, state = self.stack.read(ids, attention_mask)
            text = ids.new_full((len(ids), 1), self.stack.start)
            ended = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
            while text.shape[1] <= max_new_tokens and not bool(ended.all()):
                h, state = self.stack.decode(text[:, -1:], memory, state)
                token = self.logits(h[:, -1]).argmax(-1)  # B
                if eos is not None:
                    token = token.masked_fill(ended, eos)
                    ended = ended | (token == eos)
                text = torch.cat([text, token[:, None]], dim=1)
        return text
