"""LSTMs: ELMo's, with a projected output and clipped cells, and a bidirectional one for tasks.

torch.nn.LSTM(proj_size=...) knows no clipping, so `recurrence` writes the steps as a loop.

Letters: T steps, B rows, D input width, H cells, P output width.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model import kernels


def recurrence(
    x: Float[Tensor, "T B 4H"],
    recurrent: Float[Tensor, "4H P"],
    project: Float[Tensor, "P H"],
    cell_clip: float,
    output_clip: float,
) -> Float[Tensor, "T B P"]:
    """The steps of a projected LSTM (Sak et al. 2014, equations 7 to 12).

    i, f, o = sigmoid of three parts of W x + b + R h
    j       = tanh of the fourth part
    c       = f * c + i * j,          clipped
    h       = P (o * tanh(c)),        clipped

    Args:
        x: W x + b of every step, the gates i, f, o and the new values j side by side.
        recurrent: R, from the output of the step before to the gates.
        project: P, from the cells to the output.
        cell_clip: the largest absolute value of a cell.
        output_clip: the largest absolute value of an output.

    Returns:
        The output of every step. Output and cells start from zero.
    """
    if kernels.use_lstm_steps():
        return kernels.lstm_steps(x, recurrent, project, cell_clip, output_clip)

    high = torch.promote_types(x.dtype, torch.float32)  # cells need more than bfloat16
    h = x.new_zeros(x.shape[1], len(project))  # B P
    c = x.new_zeros(x.shape[1], project.shape[1], dtype=high)  # B H
    outputs = []
    for step in x:
        gates = step + h @ recurrent.to(x.dtype).t()  # B 4H
        i, f, o, j = gates.to(high).chunk(4, dim=1)  # B H each
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(j)
        c = c.clamp(-cell_clip, cell_clip)
        y = torch.sigmoid(o) * torch.tanh(c)
        h = y.to(x.dtype) @ project.to(x.dtype).t()  # B P
        h = h.clamp(-output_clip, output_clip)
        outputs.append(h)
    return torch.stack(outputs)  # T B P


class ProjectedLSTM(nn.Module):
    """One layer, one direction, time first.

    The rows of `inputs` and `recurrent` are in the order of the gates i, f, o, j.

    Args:
        inputs: D.
        cells: H.
        outputs: P.
        cell_clip: the largest absolute value of a cell; None for no bound.
        output_clip: the largest absolute value of an output; None for no bound.
    """

    def __init__(
        self,
        inputs: int,
        cells: int,
        outputs: int,
        *,
        cell_clip: float | None = None,
        output_clip: float | None = None,
    ) -> None:
        super().__init__()
        self.cell_clip = math.inf if cell_clip is None else cell_clip
        self.output_clip = math.inf if output_clip is None else output_clip
        self.inputs = nn.Linear(inputs, 4 * cells)  # 4H D
        self.recurrent = nn.Parameter(torch.empty(4 * cells, outputs))
        self.project = nn.Parameter(torch.empty(outputs, cells))
        nn.init.xavier_uniform_(self.inputs.weight)
        nn.init.xavier_uniform_(self.recurrent)
        nn.init.xavier_uniform_(self.project)
        nn.init.zeros_(self.inputs.bias)

    def forward(self, x: Float[Tensor, "T B D"]) -> Float[Tensor, "T B P"]:
        """The outputs of all steps; output and cells start from zero."""
        cells = self.project.shape[1]
        forget_bias = torch.zeros_like(self.inputs.bias)
        forget_bias[cells : 2 * cells] = 1.0  # so that a new cell remembers from the start
        bias = self.inputs.bias + forget_bias
        gates = nn.functional.linear(x, self.inputs.weight, bias)  # T B 4H
        return recurrence(gates, self.recurrent, self.project, self.cell_clip, self.output_clip)


class BiLSTM(nn.Module):
    """Layers of two LSTMs, one from the left and one from the right, side by side.

    Each layer reads both outputs of the layer below.

    Args:
        inputs: D.
        cells: H of each direction.
        layers: the number of layers.
        dropout: the dropout rate on the input of every layer.
    """

    def __init__(self, inputs: int, cells: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        widths = [inputs] + [2 * cells] * (layers - 1)
        self.lefts = nn.ModuleList(nn.LSTM(width, cells) for width in widths)
        self.rights = nn.ModuleList(nn.LSTM(width, cells) for width in widths)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B T D"], attention_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T 2H"]:
        """The outputs of the last layer. Rows are padded on the right; ignore outputs there."""
        lengths = None if attention_mask is None else right_padded(attention_mask)
        order = reversed_order(x.shape[1], lengths)
        x = x.transpose(0, 1)  # T B D: an LSTM reads time first
        for left, right in zip(self.lefts, self.rights, strict=True):
            x = self.dropout(x)
            from_left, _ = left(x)
            from_right, _ = right(reverse(x, order))
            x = torch.cat([from_left, reverse(from_right, order)], dim=-1)  # T B 2H
        return x.transpose(0, 1)


def right_padded(attention_mask: Bool[Tensor, "B T"]) -> Int[Tensor, " B"]:
    """The number of real tokens in each row.

    Raises:
        CourseError: there is padding before a token. A backward LSTM would read it first.
    """
    attention_mask = attention_mask.bool()
    starts_again = attention_mask[:, 1:] & ~attention_mask[:, :-1]  # a token after padding
    if bool(starts_again.any()):
        raise CourseError(
            "An LSTM reads rows that are padded on the right only; `attention_mask` has a gap."
        )
    return attention_mask.sum(1)


def reversed_order(steps: int, lengths: Int[Tensor, " B"] | None) -> Int[Tensor, " TB"] | None:
    """The order that `reverse` needs: for each new position the old one, in [T, B] flattened.

    Padding keeps its position, so reversing twice changes nothing.

    >>> order = reversed_order(3, torch.tensor([3, 2]))
    >>> reverse(torch.tensor([[1.0, 4.0], [2.0, 5.0], [3.0, 0.0]])[..., None], order)[..., 0].T
    tensor([[3., 2., 1.],
            [5., 4., 0.]])

    Args:
        steps: T.
        lengths: the number of real tokens in each row; None if all rows are full.

    Returns:
        None if all rows are full.
    """
    if lengths is None or bool((lengths == steps).all()):
        return None
    position = torch.arange(steps, device=lengths.device)[:, None]  # T 1
    mirrored = torch.where(position < lengths, lengths - 1 - position, position)  # T B
    rows = torch.arange(len(lengths), device=lengths.device)
    # Position t of row b has the index t * B + b.
    return (mirrored * len(lengths) + rows).flatten()


def reverse(x: Float[Tensor, "T B D"], order: Int[Tensor, " TB"] | None) -> Float[Tensor, "T B D"]:
    """Every row from its last real token to its first, in the order of `reversed_order`."""
    if order is None:
        return x.flip(0)
    # This is x.flatten(0, 1)[order]. The backward pass of an embedding is faster.
    return nn.functional.embedding(order, x.flatten(0, 1)).view_as(x)
