"""Where training starts from: mimetic initialisation (Trockman and Kolter 2023, ICML), for models
too small to wait.

Attention starts near what every trained model has: heads of the first layer that look at a near
position (Clark et al. 2019; Olsson et al. 2022), queries and keys that agree on the same vector,
positions whose neighbours are alike."""

from typing import cast

import torch

from course_lib.errors import CourseError
from course_lib.model.attention import Attention
from course_lib.model.config import Sinusoidal
from course_lib.model.heads import MaskedHead
from course_lib.model.positions import LearnedPosition, SinusoidalPosition
from course_lib.model.transformer import Transformer

POSITIONS = 0.1  # the learned table becomes this number times the sinusoids of the 2017 Transformer
LOCAL = 4.0  # how fast a local head's scores fall off from the position that it looks at
# a scale at which GELU is nearly a straight line; the norm behind it undoes the scale
NEARLY_STRAIGHT = 0.1


@torch.no_grad()
def mimetic(stack: Transformer, *, strength: float = 0.4) -> None:
    """Overwrites a fresh model's attention weights and learned positions; H * Dh is D.

    Of every layer W_q' W_k and W_out W_v, summed over the heads, become `strength` times the
    identity (queries and keys keep half of their random weights as noise); cross-attention, too. Of
    the first layer, head h looks h + 1 positions back, or for an encoder at the nearest ones on
    both sides, and copies at strength 1.

    Known departures: the paper has no local heads, and starts W_out W_v near minus the identity, as
    trained image models have it; plus lets a language model copy a word (with tied embeddings) from
    the start. The components that the local heads read start without words in them. Draws from
    torch's global generator."""
    if not isinstance(stack.position, LearnedPosition):
        raise CourseError(
            "The mimetic start needs learned positions; give the configuration Learned(length)."
        )
    table = stack.position.table.weight
    length, width = table.shape
    table.copy_(POSITIONS * SinusoidalPosition(Sinusoidal(), width).embed(torch.arange(length)))
    # one for all layers, so that what one copies the next matches
    turn = torch.linalg.qr(torch.randn(width, width)).Q
    stack.embed.tokens.weight[:, : width // stack.config.heads] = 0.0
    for layer, block in enumerate(stack.blocks):
        look_for_like(cast(Attention, block.attn), turn * strength**0.5 if layer else turn)
        if layer == 0:
            _look_near(cast(Attention, block.attn), stack.config.causal)
        if stack.config.cross:  # a decoder finds in its source what it has just said
            look_for_like(cast(Attention, block.cross), turn * strength**0.5)


@torch.no_grad()
def identity_init_(head: MaskedHead) -> None:
    """A masked-LM head that begins by saying the token that a position holds: its dense layer is
    near the identity.
    """
    head.dense.weight.copy_(NEARLY_STRAIGHT * torch.eye(*head.dense.weight.shape))


def look_for_like(attn: Attention, turn: torch.Tensor) -> None:
    """Queries and keys turn alike, up to half of their noise; what is found is handed on as it
    is.
    """
    attn.v.weight.copy_(turn)
    attn.out.weight.copy_(turn.T)
    attn.q.weight.copy_(turn + 0.5 * attn.q.weight)
    attn.k.weight.copy_(turn + 0.5 * attn.k.weight)


def _look_near(attn: Attention, causal: bool) -> None:
    """Query and key read the quickest sinusoids instead; the query turns them by the head's offset:
    -1, -2, ... if causal, otherwise -1, 1, -2, 2, ..."""
    head = attn.dh
    frequencies = SinusoidalPosition(Sinusoidal(), attn.q.in_features).frequencies[: head // 2]
    for h in range(attn.heads):
        offset = -h - 1 if causal else (h // 2 + 1) * (-1) ** (h + 1)
        rows = slice(h * head, (h + 1) * head)
        sin, cos = (offset * frequencies).sin(), (offset * frequencies).cos()
        turned = torch.zeros(head, head)
        for i, block in enumerate(torch.stack((cos, sin, -sin, cos), -1).view(-1, 2, 2)):
            turned[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = block
        attn.q.weight[rows], attn.k.weight[rows] = 0.0, 0.0
        attn.q.weight[rows, :head] = LOCAL**0.5 * turned
        attn.k.weight[rows, :head] = LOCAL**0.5 * torch.eye(head)
