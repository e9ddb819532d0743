"""Where training starts from: mimetic initialisation (Trockman and Kolter 2023, ICML), for models too small to wait.

A small model spends most of its training on finding what every trained one has: heads of the first layer that look at
a near position (Clark et al. 2019; Olsson et al. 2022), queries and keys that agree on the same vector, so that a word
may look for its like, values and outputs that undo one another, so that what is found is handed on as it is, and
positions whose neighbours are alike. Attention starts near those here instead of near zero, and everything is trained
from there on as ever. BERT and GPT start from noise and train a thousand times longer.
"""

from collections.abc import Sequence
from typing import cast

import torch

from course_lib.attention import Attention
from course_lib.config import Sinusoidal
from course_lib.errors import CourseError
from course_lib.heads import MaskedHead
from course_lib.positions import Learned
from course_lib.positions import Sinusoidal as Waves
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer


@torch.no_grad()
def mimetic(stack: Stack, *, strength: float = 0.4, positions: float = 0.1, local: float = 4.0) -> None:
    """Overwrites a fresh model's attention weights and learned positions.

    Args:
        stack: as its constructor left it; learned positions, as many components inside its attention as outside.
        strength: of every layer, W_q' W_k and W_out W_v, summed over the heads, become this number times the identity
            (queries and keys keep half of their random weights as noise); cross-attention, too.
        positions: the learned table becomes this number times the sinusoids of the 2017 Transformer.
        local: of the first layer, head h looks h + 1 positions back, or for an encoder at the nearest ones on both
            sides: scores fall off from there at this strength, and the head copies at strength 1. 0 leaves that layer
            as the others.

    Known departures: the paper has no local heads, and starts W_out W_v near minus the identity, as trained image
    models have it; plus lets a language model copy a word (with tied embeddings) from the start. The components that
    the local heads read start without words in them. Draws from torch's global generator.

    Raises:
        CourseError: other positions than learned ones.
    """
    if not isinstance(stack.position, Learned):
        raise CourseError("The mimetic start needs learned positions; give the configuration Learned(length).")
    table = stack.position.table.weight
    length, width = table.shape
    table.copy_(positions * Waves(Sinusoidal(), width).embed(torch.arange(length)))
    turn = torch.linalg.qr(torch.randn(width, width)).Q  # one for all layers, so that what one copies the next matches
    if local:
        stack.embed.tokens.weight[:, : width // stack.config.heads] = 0.0
    for layer, block in enumerate(stack.blocks):
        attn = cast(Attention, block.attn)
        near = layer == 0 and local > 0
        copied = turn if near else turn * strength**0.5
        attn.v.weight.copy_(copied)
        attn.out.weight.copy_(copied.T)
        if near:
            _look_near(attn, _offsets(stack.config.heads, stack.config.causal), local**0.5)
        else:
            _look_for_like(attn, turn * strength**0.5)
        if stack.config.cross:  # a decoder finds in its source what it has just said
            cross = cast(Attention, block.cross)
            cross.v.weight.copy_(turn * strength**0.5)
            cross.out.weight.copy_((turn * strength**0.5).T)
            _look_for_like(cross, turn * strength**0.5)


@torch.no_grad()
def see_through(head: MaskedHead, *, scale: float = 0.1) -> None:
    """A masked-LM head that begins by saying the token that a position holds, as a language model's does.

    Its dense layer starts as `scale` times the identity: so little that GELU is nearly a straight line, and the norm
    behind it undoes the scale. What attention copies is then said from the start.
    """
    head.dense.weight.copy_(scale * torch.eye(*head.dense.weight.shape))


def _look_for_like(attn: Attention, turn: torch.Tensor) -> None:
    """Queries and keys turn alike, up to half of their noise."""
    attn.q.weight.copy_(turn + 0.5 * attn.q.weight)
    attn.k.weight.copy_(turn + 0.5 * attn.k.weight)


def _offsets(heads: int, causal: bool) -> list[int]:
    """Where each head looks: -1, -2, ... if causal, otherwise -1, 1, -2, 2, ..."""
    return [-h - 1 if causal else (h // 2 + 1) * (-1) ** (h + 1) for h in range(heads)]


def _look_near(attn: Attention, offsets: Sequence[int], scale: float) -> None:
    """Query and key read the quickest sinusoids; the query turns them by the head's offset."""
    width = attn.q.weight.shape[1]
    head = width // len(offsets)
    frequencies = Waves(Sinusoidal(), width).frequencies[: head // 2]
    for h, offset in enumerate(offsets):
        rows = slice(h * head, (h + 1) * head)
        sin, cos = (offset * frequencies).sin(), (offset * frequencies).cos()
        turned = torch.zeros(head, head)
        for i, block in enumerate(torch.stack((cos, sin, -sin, cos), -1).view(-1, 2, 2)):
            turned[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = block
        attn.q.weight[rows], attn.k.weight[rows] = 0.0, 0.0
        attn.q.weight[rows, :head] = scale * turned
        attn.k.weight[rows, :head] = scale * torch.eye(head)


@torch.no_grad()
def take_over(stack: Stack, words: Tokenizer, parent: Stack, parents: Tokenizer) -> None:
    """Overwrites a fresh model with another one's positions and blocks. A word piece gets the mean of the vectors that
    the parent has for its text, in small letters or with a capital, whichever takes fewer pieces.

    A decoder may so become an encoder (BehnamGhader et al. 2024, COLM), or both sides of an encoder-decoder (Rothe et
    al. 2020, TACL): what its attention has learned to look for does not depend on the direction, or on the vocabulary.

    Args:
        stack: of the same shape, with a WordPiece tokenizer (`words`); cross-attention stays as it is. parent: with a
            byte-level one (`parents`).

    Raises:
        CourseError: the shapes differ.
    """
    own, theirs = (
        {name: w for name, w in one.named_parameters() if not name.startswith("embed.") and ".cross" not in name}
        for one in (stack, parent)
    )
    odd = sorted({(name, w.shape) for name, w in own.items()} ^ {(name, w.shape) for name, w in theirs.items()})
    if odd:
        raise CourseError(
            f"The parent's {odd[0][0]} does not fit this model; give both the same layers, widths and norms."
        )
    for name, weight in theirs.items():
        own[name].copy_(weight)
    table = parent.embed.tokens.weight
    special = set(words.vocab.special)
    for token, text in enumerate(words.tokens(range(words.vocab.size))):
        if token not in special:
            forms = [text[2:]] if text.startswith("##") else [f" {text}", f" {text.capitalize()}"]
            stack.embed.tokens.weight[token] = table[min(parents.ids(forms, special=False), key=len)].mean(0)
