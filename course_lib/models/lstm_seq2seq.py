"""An attentional LSTM encoder-decoder, what the Transformer replaced (Bahdanau et al. 2015, Luong et al. 2015).

    a source -> bidirectional LSTM -> memory, one vector a token
    the target so far -> LSTM -> attends to the memory -> the next token of the target

    "bahdanau"   additive scores v . tanh(W s + U m), asked by the state before a step; what was found enters the step
    "luong"      scores s . W m ("general"), asked by the state after a step; what was found enters the output alone

So Bahdanau's decoder goes step by step even in training; Luong's is one LSTM call and a few matrix products.

`losses.seq2seq` trains it on the batches of `inputs.SourceTarget`, as it does `seq2seq.Seq2SeqLM`.

Differs from the 2017 Transformer by: recurrence in place of self-attention; a single attention, with a single head.

Known departures: LSTMs where Bahdanau had gated units, and tanh in place of maxout; no input feeding (Luong et al.,
section 3.3); the token vectors are shared by source, target and output, as in the course's other encoder-decoders.

Letters: B rows, T source and U target tokens, E width of a token vector, H cells, M = 2H width of the memory.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.lstm import BiLSTM, right_padded
from course_lib.models.lstm import State, framing


@dataclass(frozen=True)
class LstmSeq2SeqConfig:
    """vocab: V. width: E. cells: H, of the decoder and of each direction of the encoder. start: the token that every
    target begins with."""

    vocab: int
    width: int = 128
    cells: int = 256
    layers: int = 1
    attention: Literal["luong", "bahdanau"] = "luong"
    dropout: float = 0.2
    start: int = 0

    def __post_init__(self) -> None:
        if self.attention not in ("luong", "bahdanau"):
            raise CourseError(f"The attention is {self.attention!r}; it must be 'luong' or 'bahdanau'.")
        if not 0 <= self.start < self.vocab:
            raise CourseError(f"The start token {self.start} lies outside the vocabulary of {self.vocab}.")


class Memory(NamedTuple):
    """A source that has been read. values: one vector a token. keys: what scores are made with, once for all steps."""

    values: Float[Tensor, "B T M"]
    keys: Float[Tensor, "B T A"]
    keep: Bool[Tensor, "B T"]


class Luong(nn.Module):
    """Scores s . W m (Luong et al. 2015, equation 8, "general")."""

    def __init__(self, cells: int, memory: int) -> None:
        super().__init__()
        self.keys = nn.Linear(memory, cells, bias=False)

    def forward(self, s: Float[Tensor, "B U H"], keys: Float[Tensor, "B T H"]) -> Float[Tensor, "B U T"]:
        return s @ keys.transpose(1, 2)


class Bahdanau(nn.Module):
    """Scores v . tanh(W s + U m) (Bahdanau et al. 2015, appendix A.1.2)."""

    def __init__(self, cells: int, memory: int) -> None:
        super().__init__()
        self.keys = nn.Linear(memory, cells)
        self.query = nn.Linear(cells, cells, bias=False)
        self.v = nn.Linear(cells, 1, bias=False)

    def forward(self, s: Float[Tensor, "B U H"], keys: Float[Tensor, "B T H"]) -> Float[Tensor, "B U T"]:
        scores: Tensor = self.v(torch.tanh(self.query(s)[:, :, None] + keys[:, None])).squeeze(-1)
        return scores


class LstmEncoderDecoder(nn.Module):
    """Sources to memories, and targets to vectors that know both; the output matrix is `LstmSeq2Seq`'s."""

    def __init__(self, config: LstmSeq2SeqConfig) -> None:
        super().__init__()
        self.lstm_config, self.start = config, config.start
        self.config = framing(config.vocab, config.cells)
        self.embed = nn.Embedding(config.vocab, config.width)
        nn.init.normal_(self.embed.weight, std=0.1)
        self.dropout = nn.Dropout(config.dropout)
        cells, memory = config.cells, 2 * config.cells
        self.encoder = BiLSTM(config.width, cells, config.layers, config.dropout)
        self.bridge = nn.Linear(memory, 2 * config.layers * cells)
        self.attention = (Luong if config.attention == "luong" else Bahdanau)(cells, memory)
        inputs = config.width + (memory if config.attention == "bahdanau" else 0)
        between = config.dropout if config.layers > 1 else 0.0
        self.decoder = nn.LSTM(inputs, cells, config.layers, batch_first=True, dropout=between)
        # What the output is made of: state, what was attended to, and of Bahdanau's the token before.
        self.combine = nn.Linear(cells + memory + (config.width if config.attention == "bahdanau" else 0), config.width)

    def read(self, ids: Int[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None = None) -> tuple[Memory, State]:
        """The memory of the sources, and the state that the decoder begins with: from both directions' last words.

        Raises:
            CourseError: a row without a token, or padding in front of one.
        """
        keep = torch.ones_like(ids, dtype=torch.bool) if keep is None else keep.bool()
        lengths = right_padded(keep)
        if bool((lengths == 0).any()):
            raise CourseError("A source has no token at all; there is nothing to attend to.")
        values = self.encoder(self.embed(ids), keep)
        left, right = values.chunk(2, dim=-1)
        last = left[torch.arange(len(ids), device=ids.device), lengths - 1]
        begin = self.bridge(torch.cat([last, right[:, 0]], dim=-1)).view(len(ids), 2, self.lstm_config.layers, -1)
        h, c = begin.permute(1, 2, 0, 3).contiguous()
        return Memory(values, self.attention.keys(values), keep), (torch.tanh(h), c)

    def say(
        self, decoder_ids: Int[Tensor, "B U"], memory: Memory, state: State
    ) -> tuple[Float[Tensor, "B U E"], Float[Tensor, "B U T"], State]:
        """Go on from `state` by the tokens `decoder_ids`: vectors for the output, attention weights, the new state."""
        y = self.dropout(self.embed(decoder_ids))
        if isinstance(self.attention, Luong):
            s, state = self.decoder(y, state)
            found, weights = self.attend(s, memory)
            return self._combined(s, found), weights, state
        steps = []
        for t in range(y.shape[1]):
            found, weight = self.attend(state[0][-1][:, None], memory)
            s, state = self.decoder(torch.cat([y[:, t : t + 1], found], dim=-1), state)
            steps.append((s, found, weight))
        s, found, weights = (torch.cat(part, dim=1) for part in zip(*steps, strict=True))
        return self._combined(s, found, y), weights, state

    def attend(
        self, s: Float[Tensor, "B U H"], memory: Memory
    ) -> tuple[Float[Tensor, "B U M"], Float[Tensor, "B U T"]]:
        """The weighted mean of the memory, and its weights, 0 at padding."""
        scores = self.attention(s, memory.keys).masked_fill(~memory.keep[:, None], float("-inf"))
        weights = scores.softmax(-1)
        return weights @ memory.values, weights

    def _combined(self, *parts: Float[Tensor, "B U _"]) -> Float[Tensor, "B U E"]:
        """tanh(W [state; found; ...]) (Luong et al. 2015, equation 5)."""
        return torch.tanh(self.combine(torch.cat(parts, dim=-1)))


class LstmSeq2Seq(nn.Module):
    """Logits of the target's tokens, called as `seq2seq.Seq2SeqLM` is; the token vectors are the output matrix."""

    def __init__(self, stack: LstmEncoderDecoder) -> None:
        super().__init__()
        self.stack = stack
        self.bias = nn.Parameter(torch.zeros(stack.lstm_config.vocab))

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        decoder_ids: Int[Tensor, "B U"],
        *,
        keep: Bool[Tensor, "B T"] | None = None,
        decoder_keep: Bool[Tensor, "B U"] | None = None,
        at: Bool[Tensor, "B U"] | None = None,
    ) -> Float[Tensor, "B U V"] | Float[Tensor, "N V"]:
        """Teacher forcing: `decoder_ids` are the target moved one to the right (`seq2seq.shift_right`), padded on the
        right. `at`: logits of those positions only."""
        h, _, _ = self.stack.say(decoder_ids, *self.stack.read(ids, keep))
        return self.logits(h if at is None else h[at])

    def logits(self, h: Float[Tensor, "*N E"]) -> Float[Tensor, "*N V"]:
        """Vectors of `LstmEncoderDecoder.say` to scores of the vocabulary."""
        return nn.functional.linear(self.stack.dropout(h), self.stack.embed.weight, self.bias)

    def alignments(
        self, ids: Int[Tensor, "B T"], decoder_ids: Int[Tensor, "B U"], keep: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B U T"]:
        """How much each step of the decoder attends to each token of the source; rows sum to 1."""
        return self.stack.say(decoder_ids, *self.stack.read(ids, keep))[1]

    @torch.no_grad()
    def greedy(
        self,
        ids: Int[Tensor, "B T"],
        *,
        max_new_tokens: int,
        keep: Bool[Tensor, "B T"] | None = None,
        eos: int | None = None,
    ) -> tuple[Int[Tensor, "B U+1"], Float[Tensor, "B U T"]]:
        """Say each source's target, the likeliest token at every step, without dropout.

        Args:
            eos: token that ends a row; the rest of it is filled with it.

        Returns: the targets, start token included, as `generate` gives them; and the attention weights of every step.
        """
        if max_new_tokens < 1:
            raise CourseError(f"max_new_tokens is {max_new_tokens}; at least one token must be said.")
        was_training = self.training
        self.eval()
        memory, state = self.stack.read(ids, keep)
        said = ids.new_full((len(ids), 1), self.stack.start)
        ended = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
        alignments = []
        while said.shape[1] <= max_new_tokens and not bool(ended.all()):
            h, weights, state = self.stack.say(said[:, -1:], memory, state)
            token = self.logits(h[:, -1]).argmax(-1)
            if eos is not None:
                token = token.masked_fill(ended, eos)
                ended = ended | (token == eos)
            said = torch.cat([said, token[:, None]], dim=1)
            alignments.append(weights)
        self.train(was_training)
        return said, torch.cat(alignments, dim=1)
