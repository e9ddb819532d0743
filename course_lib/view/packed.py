"""Numbers that travel inside a page: a byte each, as base64 in short lines."""

import base64

import torch
from torch import Tensor


def rounded(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix as whole numbers from -127 to 127 and a scale for each row; their product is nearly the matrix."""
    scale = matrix.abs().amax(dim=1).clamp(min=1e-8) / 127
    return (matrix / scale[:, None]).round().to(torch.int8), scale


def lines(packed: bytes, width: int = 120) -> list[str]:
    """As base64, in pieces: a single line of a megabyte is a burden on every tool that searches a notebook."""
    text = base64.b64encode(packed).decode("ascii")
    return [text[i : i + width] for i in range(0, len(text), width)]
