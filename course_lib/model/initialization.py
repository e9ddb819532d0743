"""Mimetic initialisation (Trockman and Kolter 2023, ICML), which helps small models.

Attention starts similar to a trained model's: queries match keys of similar vectors, neighbouring
positions have similar vectors, and heads of the first layer attend to a position nearby (Clark et
al. 2019; Olsson et al. 2022).
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

# The learned table starts as the sinusoids of the 2017 Transformer, times this number.
POSITION_SCALE = 0.1
# Factor on the scores of a local head. With a larger one, it attends to its position more sharply.
LOCAL_SCALE = 4.0
# Queries and keys keep this part of their random weights.
NOISE = 0.5
# For inputs this small, GELU is nearly linear. The norm after it removes the scale again.
LINEAR_SCALE = 0.1


@torch.no_grad()
def mimetic(stack: Transformer, *, strength: float = 0.4) -> None:
    """Overwrite a new model's attention weights and learned positions.

    In every layer, W_q^T W_k and W_out W_v (summed over the heads) become `strength` times the
    identity, also in cross-attention. Queries and keys keep half of their random weights as noise.
    In the first layer the strength is 1, and head h attends to the token h + 1 positions before. In
    an encoder, the heads attend to the nearest positions on both sides.

    Known departures: the paper has no local heads. It starts W_out W_v near minus the identity, as
    in trained image models. With plus the identity, a language model can copy a token from the
    first step on, because its output matrix is the table of token vectors.

    Args:
        stack: a model with H * Dh = D. Random numbers come from torch's global generator.
        strength: factor on the identity in all layers but the first.

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
    table.copy_(POSITION_SCALE * sinusoids)

    # One rotation for all layers, so that each layer can match what the layer before it copied.
    rotation = torch.linalg.qr(torch.randn(width, width)).Q  # D D
    weak_rotation = rotation * strength**0.5
    # Local heads read the first Dh components, so these contain positions only.
    head_width = width // stack.config.heads
    stack.embed.tokens.weight[:, :head_width] = 0.0

    for layer, block in enumerate(stack.blocks):
        attn = cast(Attention, block.attn)
        if layer == 0:
            attend_to_similar(attn, rotation)
            _attend_nearby(attn, stack.config.causal)
        else:
            attend_to_similar(attn, weak_rotation)
        if stack.config.cross:  # a decoder finds its last token in the source
            attend_to_similar(cast(Attention, block.cross), weak_rotation)


@torch.no_grad()
def identity_init_(head: MaskedHead) -> None:
    """Start a masked-LM head near the identity: it predicts the token of its input vector."""
    identity = torch.eye(*head.dense.weight.shape)
    head.dense.weight.copy_(LINEAR_SCALE * identity)


def attend_to_similar(attn: Attention, rotation: Float[Tensor, "D D"]) -> None:
    """Let each position attend to vectors similar to its own, and copy them.

    Queries and keys get the same rotation, so their product is that of the vectors. The output
    matrix reverses the rotation of the values.

    Args:
        attn: the attention to overwrite.
        rotation: an orthogonal matrix. Times a number below 1, the matches become weaker.
    """
    attn.v.weight.copy_(rotation)
    attn.out.weight.copy_(rotation.T)
    attn.q.weight.copy_(rotation + NOISE * attn.q.weight)
    attn.k.weight.copy_(rotation + NOISE * attn.k.weight)


def _attend_nearby(attn: Attention, causal: bool) -> None:
    """Let each head attend to one position near its own.

    Query and key read the fastest sinusoids, the first Dh components. The query turns them by the
    head's offset, so that it matches the key at that distance.

    Args:
        attn: the first layer's attention.
        causal: True: the heads' offsets are -1, -2, -3, ...; False: -1, 1, -2, 2, ...
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

        # The matrix that turns each pair (sin, cos) by its angle. The pair of position t becomes
        # the pair of position t + offset.
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

        rows = slice(head * dh, (head + 1) * dh)  # rows of this head
        attn.q.weight[rows] = 0.0
        attn.k.weight[rows] = 0.0
        attn.q.weight[rows, :dh] = LOCAL_SCALE**0.5 * turn
        attn.k.weight[rows, :dh] = LOCAL_SCALE**0.5 * torch.eye(dh)
