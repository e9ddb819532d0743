"""An LSTM encoder-decoder with attention (Luong et al. 2015).

Differs from the 2017 Transformer by recurrence instead of self-attention, on both sides.

Known departures: a bidirectional encoder; no input feeding (section 3.3); source, target and output
share the token vectors.

Letters: B rows, T (source) and U (target) tokens, E width of a token vector, H cells, M = 2H width
of the memory, V vocabulary.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.families.lstm import Ids, LstmConfig, LstmState, framing
from course_lib.model.heads import Mask
from course_lib.model.lstm import BiLSTM, right_padded
from course_lib.model.modes import evaluating


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
        # Each direction's last output: the left one's stands at the last real token, the right
        # one's at the first.
        left, right = values.chunk(2, dim=-1)  # B T H each
        rows = torch.arange(len(ids), device=ids.device)
        last_left = left[rows, right_padded(attention_mask) - 1]  # B H
        both = torch.cat([last_left, right[:, 0]], dim=-1)  # B M

        begin = self.bridge(both)  # B 2*layers*H: outputs and cells of all layers
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
