"""LSTMs: one with a projected output and clipped cells, as ELMo has, and a bidirectional one for
tasks.

`ProjectedLSTM` (Sak et al. 2014; Jozefowicz et al. 2016):

    i, f, o = sigmoid(W x + R h + b), of each H;  j = tanh(...)        h: the output of the step before
    c = clip(f c + i j, cell_clip)
    h = clip(P (o tanh(c)), output_clip)

torch.nn.LSTM(proj_size=...) knows no clipping, so the steps are a loop here, and so is the way
back: written out by hand, it makes one matrix product of all steps for each weight's gradient, and
keeps nothing but the gates.

Letters: T steps, B rows, D input width, H cells, P output width.
"""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError

_sigmoid_back: Any = torch.ops.aten.sigmoid_backward
_tanh_back: Any = torch.ops.aten.tanh_backward
_clip_back: Any = torch.ops.aten.hardtanh_backward  # 0 where a bound was reached


class ProjectedLSTM(nn.Module):
    """One layer, one direction, time first. inputs, cells, outputs: D, H, P. Clips: largest
    absolute values. The rows of `inputs` and `recurrent` stand in the order i, f, o, j: three
    sigmoids side by side are one call."""

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
        """Output and cells start from zero."""
        cells = self.project.shape[1]
        extra = torch.zeros_like(self.inputs.bias)
        extra[cells : 2 * cells] = 1.0  # on the forget gate, so that a fresh cell remembers
        gates = nn.functional.linear(x, self.inputs.weight, self.inputs.bias + extra)  # T B 4H
        clips = self.cell_clip, self.output_clip
        return _Steps.apply(gates, self.recurrent, self.project, *clips)  # type: ignore[no-untyped-call]


class BiLSTM(nn.Module):
    """Layers of an LSTM from the left and one from the right, side by side; a layer reads both of
    the layer below. inputs, cells: D and H. dropout: on the input of every layer."""

    def __init__(self, inputs: int, cells: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        widths = [inputs] + [2 * cells] * (layers - 1)
        self.lefts = nn.ModuleList(nn.LSTM(width, cells) for width in widths)
        self.rights = nn.ModuleList(nn.LSTM(width, cells) for width in widths)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B T D"], attention_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T 2H"]:
        """Rows are padded on the right; what stands at padding means nothing."""
        turn = turning(x.shape[1], None if attention_mask is None else right_padded(attention_mask))
        x = x.transpose(0, 1)
        for left, right in zip(self.lefts, self.rights, strict=True):
            x = self.dropout(x)
            x = torch.cat([left(x)[0], turned(right(turned(x, turn))[0], turn)], dim=-1)
        return x.transpose(0, 1)


def right_padded(attention_mask: Bool[Tensor, "B T"]) -> Int[Tensor, " B"]:
    """The number of real places in each row; on padding in front of one a backward LSTM would
    start.
    """
    attention_mask = attention_mask.bool()
    if bool((attention_mask[:, 1:] & ~attention_mask[:, :-1]).any()):
        raise CourseError(
            "An LSTM reads rows that are padded on the right only; `attention_mask` has a gap."
        )
    return attention_mask.sum(1)


def turning(steps: int, lengths: Int[Tensor, " B"] | None) -> Int[Tensor, " TB"] | None:
    """Where each place of the reversed rows comes from, in [T, B] flattened; None where all rows
    are full. Padding stays, so that turning twice is turning not at all."""
    if lengths is None or bool((lengths == steps).all()):
        return None
    place = torch.arange(steps, device=lengths.device)[:, None]
    mirrored = torch.where(place < lengths, lengths - 1 - place, place)  # T B
    return (mirrored * len(lengths) + torch.arange(len(lengths), device=lengths.device)).flatten()


def turned(x: Float[Tensor, "T B D"], turn: Int[Tensor, " TB"] | None) -> Float[Tensor, "T B D"]:
    """Every row from its last real place to its first, by what `turning` gave."""
    return x.flip(0) if turn is None else nn.functional.embedding(turn, x.flatten(0, 1)).view_as(x)


class _Steps(torch.autograd.Function):
    """The recurrence over precomputed W x + b, and its gradient by hand. Matrix products run in the
    type of `x` (bfloat16 under autocast), everything else in float32 at least."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "T B 4H"],
        recurrent: Float[Tensor, "4H P"],
        project: Float[Tensor, "P H"],
        cell_clip: float,
        output_clip: float,
    ) -> Float[Tensor, "T B P"]:
        cells, low = x.shape[2] // 4, x.dtype
        high = torch.promote_types(low, torch.float32)
        r, p = recurrent.to(low).t(), project.to(low).t()
        h, c = x.new_zeros(x.shape[1], len(project)), x.new_zeros(x.shape[1], cells, dtype=high)
        kept = []
        for step in x:
            gate = torch.addmm(step, h, r).to(high)
            gate[:, : 3 * cells].sigmoid_()
            gate[:, 3 * cells :].tanh_()
            i, f, o, j = gate.chunk(4, dim=1)
            c = (i * j).addcmul_(f, c).clamp_(-cell_clip, cell_clip)
            tanh_c = c.tanh()
            h = torch.mm((o * tanh_c).to(low), p).clamp_(-output_clip, output_clip)
            kept.append((gate, c, tanh_c, h))
        gates, c_all, tanh_all, outputs = (torch.stack(parts) for parts in zip(*kept, strict=True))
        ctx.save_for_backward(gates, c_all, tanh_all, outputs, recurrent, project)
        ctx.clips = cell_clip, output_clip
        return outputs

    @staticmethod
    def backward(ctx: Any, d_outputs: Tensor) -> tuple[Tensor | None, ...]:
        gates, c_all, tanh_all, outputs, recurrent, project = ctx.saved_tensors
        cell_clip, output_clip = ctx.clips
        cells, low = c_all.shape[2], outputs.dtype
        r, p = recurrent.to(low), project.to(low)
        d_gates, d_h = torch.empty_like(gates, dtype=low), torch.empty_like(outputs)
        back, d_c = torch.zeros_like(outputs[0]), torch.zeros_like(c_all[0])  # from the step after
        c_before = torch.cat([torch.zeros_like(c_all[:1]), c_all[:-1]])
        for t in reversed(range(len(gates))):
            i, f, o, j = gates[t].chunk(4, dim=1)
            d_h[t] = _clip_back(d_outputs[t] + back, outputs[t], -output_clip, output_clip)
            d_y = torch.mm(d_h[t], p).to(gates.dtype)
            d_c = _clip_back(
                d_c + _tanh_back(d_y * o, tanh_all[t]), c_all[t], -cell_clip, cell_clip
            )
            d_ifo = torch.cat([d_c * j, d_c * c_before[t], d_y * tanh_all[t]], dim=1)
            d_gates[t, :, : 3 * cells] = _sigmoid_back(d_ifo, gates[t, :, : 3 * cells])
            d_gates[t, :, 3 * cells :] = _tanh_back(d_c * i, j)
            back, d_c = torch.mm(d_gates[t], r), d_c * f

        h_before = torch.cat([torch.zeros_like(outputs[:1]), outputs[:-1]])
        y = (gates[..., 2 * cells : 3 * cells] * tanh_all).to(low)
        d_recurrent = (d_gates.flatten(0, 1).t() @ h_before.flatten(0, 1)).to(recurrent.dtype)
        d_project = (d_h.flatten(0, 1).t() @ y.flatten(0, 1)).to(project.dtype)
        return d_gates, d_recurrent, d_project, None, None
