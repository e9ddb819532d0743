"""Where training starts from: mimetic initialisation (Trockman and Kolter 2023, ICML), for models too small to wait.

Attention must find two things by itself before it can read: that a word may look for its own like (query and key
agree on the same vector), and that what is found may be handed on as it is (value and output undo one another). A large
model finds both in its first thousandth of training; a model of 4 layers of 128 spends millions of tokens on it. Both
maps start near the identity here instead of near zero, and learned positions start as the 2017 sinusoids, so that
neighbours are alike from the first step. Everything is trained from there on as ever.
"""

import torch

from course_lib.attention import Attention
from course_lib.config import Sinusoidal
from course_lib.positions import Learned
from course_lib.positions import Sinusoidal as Waves
from course_lib.stack import Stack


@torch.no_grad()
def mimetic(stack: Stack, *, attention: float = 0.4, positions: float = 0.1) -> None:
    """Overwrites a fresh model's attention weights and learned positions.

    Args:
        stack: as its constructor left it (the random weights stay as noise on queries and keys).
        attention: of every self-attention with as many components inside as outside, W_q' W_k and W_out W_v, summed
            over the heads, become this number times the identity (plus noise).
        positions: the learned table becomes this number times the sinusoids.

    Known departure: the paper starts W_out W_v near minus the identity, as trained image models have it; plus lets a
    language model copy a word (with tied embeddings) from the start. Draws from torch's global generator.
    """
    for block in stack.blocks:
        attn = block.attn
        if attn.q.weight.shape[0] == attn.q.weight.shape[1] == attn.k.weight.shape[0]:
            _near_identity(attn, attention)
    if isinstance(stack.position, Learned):
        table = stack.position.table.weight
        length, width = table.shape
        table.copy_(positions * Waves(Sinusoidal(), width).embed(torch.arange(length)))


def _near_identity(attn: Attention, strength: float) -> None:
    """Each head matches and copies its own slice of a random rotation of the residual stream."""
    width = attn.q.weight.shape[0]
    match, copy = (torch.linalg.qr(torch.randn(width, width)).Q * strength**0.5 for _ in range(2))
    attn.q.weight.copy_(match + 0.5 * attn.q.weight)
    attn.k.weight.copy_(match + 0.5 * attn.k.weight)
    attn.v.weight.copy_(copy)
    attn.out.weight.copy_(copy.T)
