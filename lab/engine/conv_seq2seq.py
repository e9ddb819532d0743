"""A small convolutional encoder-decoder (Gehring et al. 2017), the third way to translate.

It reads no state from left to right, as an LSTM does, and compares no two words of one text, as
self-attention does. Each layer mixes a word with its neighbours, so six layers of width 3 see 13
words. The decoder's layers see earlier words only, and attend to the source.

Known departures: no weight normalisation; layer norms stand in front of the convolutions; source
embeddings, target embeddings and output matrix are the same weights, as in the course's other two
translators.

Letters: B rows, T (source) and U (target) tokens, D width, V vocabulary.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.model.heads import Mask
from course_lib.model.modes import evaluating

KERNEL = 3  # words that a convolution sees


class ConvBlock(nn.Module):
    """x + GLU(conv(norm(x))); a decoder's block sees the word itself and two before it.

    Args:
        width: D.
        causal: whether later words are hidden.
        dropout: on the block's input.
    """

    def __init__(self, width: int, causal: bool, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.conv = nn.Conv1d(width, 2 * width, KERNEL)
        both = KERNEL - 1
        self.padding = (both, 0) if causal else (both // 2, both // 2)

    def forward(
        self, x: Float[Tensor, "B T D"], real: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """real: True for the tokens that are no padding; all, if not given."""
        h = self.dropout(self.norm(x))
        if real is not None:
            h = h * real[..., None]  # a real word's neighbour in the padding counts as zero
        h = nn.functional.pad(h.mT, self.padding)  # B D T+2
        h = nn.functional.glu(self.conv(h).mT, dim=-1)  # B T D
        return x + h


class ConvEncoderDecoder(nn.Module):
    """Two stacks of convolutions; after each block of the decoder it attends to the source."""

    def __init__(
        self, vocab: int, width: int, layers: int, length: int, start: int, dropout: float
    ) -> None:
        super().__init__()
        self.start = start
        self.embed = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(ConvBlock(width, False, dropout) for _ in range(layers))
        self.decoder = nn.ModuleList(ConvBlock(width, True, dropout) for _ in range(layers))
        self.queries = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.contexts = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.memory_norm = nn.LayerNorm(width)
        self.norm = nn.LayerNorm(width)

    def embedded(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Token and position vectors."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        x: Tensor = self.dropout(self.embed(ids) + self.positions(positions))
        return x

    def read(self, ids: Int[Tensor, "B T"], real: Bool[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """The source's vectors."""
        x = self.embedded(ids)
        for block in self.encoder:
            x = block(x, real)
        memory: Tensor = self.memory_norm(x)
        return memory

    def decode(
        self,
        decoder_ids: Int[Tensor, "B U"],
        memory: Float[Tensor, "B T D"],
        real: Bool[Tensor, "B T"],
    ) -> Float[Tensor, "B U D"]:
        """A vector for each token of the target, from which the next one is predicted."""
        x = self.embedded(decoder_ids)
        for block, query, context in zip(self.decoder, self.queries, self.contexts, strict=True):
            x = block(x)
            scores = query(x) @ memory.mT / math.sqrt(x.shape[-1])  # B U T
            weights = scores.masked_fill(~real[:, None], float("-inf")).softmax(-1)
            x = x + context(weights @ memory)
        h: Tensor = self.norm(x)
        return h


class ConvSeq2Seq(nn.Module):
    """Logits of the target's tokens. It has the interface of `seq2seq.Seq2SeqLM`."""

    def __init__(self, stack: ConvEncoderDecoder) -> None:
        super().__init__()
        self.stack = stack
        self.bias = nn.Parameter(torch.zeros(stack.embed.num_embeddings))

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        decoder_ids: Int[Tensor, "B U"],
        *,
        attention_mask: Mask = None,
        loss_mask: Bool[Tensor, "B U"] | None = None,
    ) -> Float[Tensor, "B U V"] | Float[Tensor, "N V"]:
        """Logits of the next token at each position, or at those of `loss_mask` only."""
        real = _real(ids, attention_mask)
        h = self.stack.decode(decoder_ids, self.stack.read(ids, real), real)
        if loss_mask is not None:
            h = h[loss_mask]
        return self.logits(h)

    def logits(self, h: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Logits from the decoder's vectors."""
        return nn.functional.linear(h, self.stack.embed.weight, self.bias)

    @torch.no_grad()
    def greedy(
        self,
        ids: Int[Tensor, "B T"],
        *,
        max_new_tokens: int,
        attention_mask: Mask = None,
        eos: int | None = None,
    ) -> Int[Tensor, "B U+1"]:
        """The most probable token at every step; the text so far is read again for each.

        Args:
            ids: the sources.
            max_new_tokens: the largest number of tokens after the start token.
            attention_mask: True for the sources' real tokens.
            eos: the id of the end token. A finished row is filled up with it.

        Returns:
            The start token and the generated tokens.
        """
        with evaluating(self):
            real = _real(ids, attention_mask)
            memory = self.stack.read(ids, real)
            text = ids.new_full((len(ids), 1), self.stack.start)
            is_finished = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
            while text.shape[1] <= max_new_tokens and not bool(is_finished.all()):
                h = self.stack.decode(text, memory, real)
                token = self.logits(h[:, -1]).argmax(-1)  # B
                if eos is not None:
                    token = token.masked_fill(is_finished, eos)
                    is_finished = is_finished | (token == eos)
                text = torch.cat([text, token[:, None]], dim=1)
        return text


def _real(ids: Int[Tensor, "B T"], attention_mask: Mask) -> Bool[Tensor, "B T"]:
    if attention_mask is None:
        return torch.ones_like(ids, dtype=torch.bool)
    return attention_mask.bool()
