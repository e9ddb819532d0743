"""An LSTM encoder-decoder with attention (Luong et al. 2015).

Differs from the 2017 Transformer by recurrence instead of self-attention, on both sides.

Known departures: the encoder is bidirectional; there is no input feeding (section 3.3); source
embeddings, target embeddings and output matrix are the same weights.

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
    """The encoder's output for a batch of sources, which the decoder attends to.

    Attributes:
        values: the vectors m.
        keys: W m, computed once for all decoder steps.
        attention_mask: True for the sources' real tokens.
    """

    values: Float[Tensor, "B T M"]
    keys: Float[Tensor, "B T H"]
    attention_mask: Bool[Tensor, "B T"]


class LstmEncoderDecoder(nn.Module):
    """An encoder whose outputs are the memory, and a decoder that attends to it at each step.

    score(s, m) = s . W m                       (Luong et al. 2015, equation 8, "general")
    output      = tanh(combine [s; context])    (equation 5)

    s is the decoder's state and m a vector of the memory. The context is the mean of the memory,
    weighted by the softmax of the scores.
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
        """Encode the sources: their memory, and the decoder's first state.

        That state is computed from the last output of each direction.
        """
        if attention_mask is None:
            attention_mask = torch.ones_like(ids, dtype=torch.bool)
        attention_mask = attention_mask.bool()
        values = self.encoder(self.embed(ids), attention_mask)  # B T M
        # The forward direction ends at the last real token, the backward direction at the first.
        forward, backward = values.chunk(2, dim=-1)  # B T H each
        rows = torch.arange(len(ids), device=ids.device)
        last_forward = forward[rows, right_padded(attention_mask) - 1]  # B H
        both = torch.cat([last_forward, backward[:, 0]], dim=-1)  # B M

        first = self.bridge(both)  # B 2*layers*H: outputs and cells of all layers
        first = first.view(len(ids), 2, self.lstm_config.layers, -1)
        h, c = first.permute(1, 2, 0, 3).contiguous()  # layers B H each
        return Memory(values, self.keys(values), attention_mask), (torch.tanh(h), c)

    def decode(
        self, decoder_ids: Int[Tensor, "B U"], memory: Memory, state: LstmState
    ) -> tuple[Float[Tensor, "B U E"], LstmState]:
        """Read the next tokens of the targets.

        Args:
            decoder_ids: these tokens.
            memory: the encoder's output for the sources.
            state: the decoder's state after the tokens before them.

        Returns:
            A vector for each token, from which `LstmSeq2Seq.logits` predicts the next one; and the
            state after the last token.
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
    """Logits of the target's tokens. It has the interface of `seq2seq.Seq2SeqLM`."""

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
        """Logits of the next token at each position of the target.

        Args:
            ids: the sources.
            decoder_ids: the target shifted to the right by one token (`seq2seq.shift_right`).
            attention_mask: True for the sources' real tokens.
            decoder_attention_mask: not used, because the decoder reads from left to right and the
                padding is on the right.
            loss_mask: True for the positions of the target to predict; the default is all.
        """
        memory, state = self.stack.read(ids, attention_mask)
        h, _ = self.stack.decode(decoder_ids, memory, state)  # B U E
        if loss_mask is not None:
            h = h[loss_mask]  # N E
        return self.logits(h)

    def logits(self, h: Float[Tensor, "*N E"]) -> Float[Tensor, "*N V"]:
        """Logits from the decoder's vectors; the token embeddings are the output matrix."""
        return nn.functional.linear(self.stack.dropout(h), self.stack.embed.weight, self.bias)

    @torch.no_grad()
    def greedy(
        self, ids: Ids, *, max_new_tokens: int, attention_mask: Mask = None, eos: int | None = None
    ) -> Int[Tensor, "B U+1"]:
        """Greedy decoding: take the most probable token at every step.

        Args:
            ids: the sources.
            max_new_tokens: maximum number of tokens after the start token.
            attention_mask: True for the sources' real tokens.
            eos: the id of the end token. A finished row is filled up with it.

        Returns:
            The start token and the generated tokens.
        """
        with evaluating(self):
            memory, state = self.stack.read(ids, attention_mask)
            text = ids.new_full((len(ids), 1), self.stack.start)
            is_finished = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
            while text.shape[1] <= max_new_tokens and not bool(is_finished.all()):
                h, state = self.stack.decode(text[:, -1:], memory, state)
                token = self.logits(h[:, -1]).argmax(-1)  # B
                if eos is not None:
                    token = token.masked_fill(is_finished, eos)
                    is_finished = is_finished | (token == eos)
                text = torch.cat([text, token[:, None]], dim=1)
        return text
