"""A start that small models can use: mimetic initialisation (Trockman and Kolter 2023, ICML).

Attention starts near what trained models have: first-layer heads that look at a near position
(Clark et al. 2019; Olsson et al. 2022), queries and keys that agree on the same vector, and
positions whose neighbours are alike.
"""

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.model.attention import Attention
from course_lib.model.config import Sinusoidal
from course_lib.model.heads import MaskedHead
from course_lib.model.positions import LearnedPosition, SinusoidalPosition
from course_lib.model.transformer import Transformer

POSITIONS = 0.1  # the learned table becomes this number times the sinusoids of the 2017 Transformer
LOCAL = 4.0  # how fast a local head's scores fall off from the position that it looks at
# A scale at which GELU is nearly a straight line. The norm behind it undoes the scale.
NEARLY_STRAIGHT = 0.1


@torch.no_grad()
def mimetic(stack: Transformer, *, strength: float = 0.4) -> None:
    """Overwrite a new model's attention weights and learned positions.

    In every layer, W_q^T W_k and W_out W_v (summed over the heads) become `strength` times the
    identity, in cross-attention too; queries and keys keep half of their random weights as noise.
    In the first layer the strength is 1, and head h looks h + 1 positions back; in an encoder, at
    the nearest positions on both sides.

    Known departures: the paper has no local heads, and starts W_out W_v near minus the identity, as
    trained image models have it. Plus lets a language model copy a word from the start, because its
    output matrix is the table of token vectors.

    Args:
        stack: a model with H * Dh = D. Random numbers come from torch's global generator.
        strength: factor on the identity, from the second layer on.

    Raises:
        CourseError: the positions are not learned.
    """
    if not isinstance(stack.position, LearnedPosition):
        raise CourseError(
            "The mimetic start needs learned positions; give the configuration Learned(length)."
        )
    table = stack.position.table.weight
    length, width = table.shape
    sinusoids = SinusoidalPosition(Sinusoidal(), width).embed(torch.arange(length))  # length D
    table.copy_(POSITIONS * sinusoids)

    # One rotation for all layers, so that each layer matches what the one below copies.
    rotation = torch.linalg.qr(torch.randn(width, width)).Q  # D D
    weak_rotation = rotation * strength**0.5
    # Local heads read these components, so they hold positions only.
    head_width = width // stack.config.heads
    stack.embed.tokens.weight[:, :head_width] = 0.0

    for layer, block in enumerate(stack.blocks):
        attn = cast(Attention, block.attn)
        if layer == 0:
            look_for_like(attn, rotation)
            _look_near(attn, stack.config.causal)
        else:
            look_for_like(attn, weak_rotation)
        if stack.config.cross:  # a decoder looks in its source for its own latest word
            look_for_like(cast(Attention, block.cross), weak_rotation)


@torch.no_grad()
def identity_init_(head: MaskedHead) -> None:
    """Start a masked-LM head near the identity: it predicts the token that it sees."""
    identity = torch.eye(*head.dense.weight.shape)
    head.dense.weight.copy_(NEARLY_STRAIGHT * identity)


def look_for_like(attn: Attention, rotation: Float[Tensor, "D D"]) -> None:
    """Let each position attend to vectors like its own, and copy them.

    Queries and keys get the same rotation, and keep half of their random weights. The output undoes
    the values' rotation.

    Args:
        attn: the attention to overwrite.
        rotation: an orthogonal matrix, perhaps times a number below 1.
    """
    attn.v.weight.copy_(rotation)
    attn.out.weight.copy_(rotation.T)
    attn.q.weight.copy_(rotation + 0.5 * attn.q.weight)
    attn.k.weight.copy_(rotation + 0.5 * attn.k.weight)


def _look_near(attn: Attention, causal: bool) -> None:
    """Let each head attend to one position near its own.

    Query and key read the quickest sinusoids, the first Dh components. The query turns them by the
    head's offset, so that it matches the key at that distance.

    Args:
        attn: the first layer's attention.
        causal: the heads' offsets are -1, -2, -3, ...; otherwise -1, 1, -2, 2, ...
    """
    dh = attn.dh
    width = attn.q.in_features
    frequencies = SinusoidalPosition(Sinusoidal(), width).frequencies[: dh // 2]
    for head in range(attn.heads):
        if causal:
            offset = -(head + 1)
        else:
            side = 1 if head % 2 else -1
            offset = side * (head // 2 + 1)

        # The matrix that turns each pair (sin, cos) by its angle (cf. `RopePosition`).
        angles = offset * frequencies  # Dh/2
        sin = angles.sin()
        cos = angles.cos()
        turn = torch.zeros(dh, dh)
        for pair in range(dh // 2):
            i = 2 * pair
            turn[i, i] = cos[pair]
            turn[i, i + 1] = sin[pair]
            turn[i + 1, i] = -sin[pair]
            turn[i + 1, i + 1] = cos[pair]

        rows = slice(head * dh, (head + 1) * dh)  # of this head
        attn.q.weight[rows] = 0.0
        attn.k.weight[rows] = 0.0
        attn.q.weight[rows, :dh] = LOCAL**0.5 * turn
        attn.k.weight[rows, :dh] = LOCAL**0.5 * torch.eye(dh)
