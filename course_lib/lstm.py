"""LSTMs: one with a projected output and clipped cells, as ELMo has, and a bidirectional one for tasks.

`ProjectedLSTM` (Sak et al. 2014; Jozefowicz et al. 2016):

    i, f, o = sigmoid(W x + R h + b), of each H;  j = tanh(...)        h: the output of the step before
    c = clip(f c + i j, cell_clip)
    h = clip(P (o tanh(c)), output_clip)

torch.nn.LSTM(proj_size=...) knows no clipping, so the steps are a loop here, and so is the way back: written out by
hand, it makes one matrix product of all steps for each weight's gradient, and keeps nothing but the gates. Without
clipping the loop is the same function as nn.LSTM's, which runs on a GPU then (`ProjectedLSTM.fused`).

Letters: T steps, B rows, D input width, H cells, P output width.
"""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError

_sigmoid_back: Any = torch.ops.aten.sigmoid_backward.grad_input
_tanh_back: Any = torch.ops.aten.tanh_backward.grad_input
_clip_back: Any = torch.ops.aten.hardtanh_backward.grad_input  # 0 where a bound was reached


class ProjectedLSTM(nn.Module):
    """One layer, one direction, time first.

    Args:
        inputs, cells, outputs: D, H and P.
        cell_clip, output_clip: largest absolute value of a cell and of an output; None does not clip.
        forget_bias: added to the forget gate beside its trained bias, so that a fresh cell remembers.

    The rows of `inputs` and `recurrent` stand in the order i, f, o, j: three sigmoids side by side are one call.
    """

    def __init__(
        self,
        inputs: int,
        cells: int,
        outputs: int,
        *,
        cell_clip: float | None = None,
        output_clip: float | None = None,
        forget_bias: float = 1.0,
    ) -> None:
        super().__init__()
        for name, clip in (("cell_clip", cell_clip), ("output_clip", output_clip)):
            if clip is not None and clip <= 0:
                raise CourseError(f"{name} is {clip}; give a bound above 0, or None for no clipping.")
        self.cell_clip, self.output_clip, self.forget_bias = cell_clip, output_clip, forget_bias
        self.inputs = nn.Linear(inputs, 4 * cells)  # 4H D
        self.recurrent = nn.Parameter(torch.empty(4 * cells, outputs))
        self.project = nn.Parameter(torch.empty(outputs, cells))
        nn.init.xavier_uniform_(self.inputs.weight)
        nn.init.xavier_uniform_(self.recurrent)
        nn.init.xavier_uniform_(self.project)
        nn.init.zeros_(self.inputs.bias)

    @property
    def fused(self) -> bool:
        """Whether PyTorch's own LSTM computes the same and is the faster one: on a GPU, where nothing is clipped."""
        return self.project.is_cuda and self.cell_clip is None and self.output_clip is None

    def forward(
        self, x: Float[Tensor, "T B D"], state: tuple[Float[Tensor, "B P"], Float[Tensor, "B H"]] | None = None
    ) -> tuple[Float[Tensor, "T B P"], Float[Tensor, "T B H"]]:
        """Read a sequence.

        Args:
            state: output and cells before the first step; zeros by default.

        Returns: outputs and cells of every step; cells carry no gradient.
        """
        size, cells = self.project.shape
        if state is None:
            state = x.new_zeros(x.shape[1], size), x.new_zeros(x.shape[1], cells)
        bias = self.inputs.bias + self._forget()
        gates = nn.functional.linear(x, self.inputs.weight, bias)  # T B 4H
        outputs, kept = _Steps.apply(  # type: ignore[no-untyped-call]
            gates,
            *state,
            self.recurrent,
            self.project,
            math.inf if self.cell_clip is None else self.cell_clip,
            math.inf if self.output_clip is None else self.output_clip,
            torch.is_grad_enabled(),
        )
        return outputs, kept

    def run_fused(self, x: Float[Tensor, "T B D"]) -> Float[Tensor, "T B P"]:
        """The outputs of `forward` from zero states by torch.nn.LSTM's kernel; nothing is clipped."""
        size, cells = self.project.shape
        order = torch.arange(4 * cells, device=x.device).view(4, cells)[[0, 1, 3, 2]].flatten()  # torch's i, f, j, o
        bias = (self.inputs.bias + self._forget())[order]
        weights = [self.inputs.weight[order], self.recurrent[order], bias, torch.zeros_like(bias), self.project]
        zeros = x.new_zeros(1, x.shape[1], size), x.new_zeros(1, x.shape[1], cells)
        output: Tensor = torch.lstm(x, zeros, weights, True, 1, 0.0, self.training, False, False)[0]
        return output

    def _forget(self) -> Tensor:
        cells = self.project.shape[1]
        extra = torch.zeros_like(self.inputs.bias)
        extra[cells : 2 * cells] = self.forget_bias
        return extra


class BiLSTM(nn.Module):
    """Layers of an LSTM from the left and one from the right, side by side; a layer reads both of the layer below.

    Args:
        inputs, cells: D and H; the output is 2H wide. dropout: on the input of every layer.
    """

    def __init__(self, inputs: int, cells: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        widths = [inputs] + [2 * cells] * (layers - 1)
        self.lefts = nn.ModuleList(nn.LSTM(width, cells) for width in widths)
        self.rights = nn.ModuleList(nn.LSTM(width, cells) for width in widths)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T D"], keep: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T 2H"]:
        """Read rows that are padded on the right; what stands at padding means nothing."""
        turn = turning(x.shape[1], None if keep is None else right_padded(keep))
        x = x.transpose(0, 1)
        for left, right in zip(self.lefts, self.rights, strict=True):
            x = self.dropout(x)
            x = torch.cat([left(x)[0], turned(right(turned(x, turn))[0], turn)], dim=-1)
        return x.transpose(0, 1)


def right_padded(keep: Bool[Tensor, "B T"]) -> Int[Tensor, " B"]:
    """The number of real places in each row.

    Raises:
        CourseError: padding in front of a real place: a backward LSTM would start on it.
    """
    keep = keep.bool()
    if bool((keep[:, 1:] & ~keep[:, :-1]).any()):
        raise CourseError("An LSTM reads rows that are padded on the right only; `keep` has a gap.")
    return keep.sum(1)


def turning(steps: int, lengths: Int[Tensor, " B"] | None) -> Int[Tensor, " TB"] | None:
    """Where each place of the reversed rows comes from, in [T, B] flattened; None where all rows are full.

    A row's real places change, its padding stays, so that turning twice is turning not at all.
    """
    if lengths is None or bool((lengths == steps).all()):
        return None
    place = torch.arange(steps, device=lengths.device)[:, None]
    mirrored = torch.where(place < lengths, lengths - 1 - place, place)  # T B
    return (mirrored * len(lengths) + torch.arange(len(lengths), device=lengths.device)).flatten()


def turned(x: Float[Tensor, "T B D"], turn: Int[Tensor, " TB"] | None) -> Float[Tensor, "T B D"]:
    """Every row from its last real place to its first, by what `turning` gave."""
    return x.flip(0) if turn is None else nn.functional.embedding(turn, x.flatten(0, 1)).view_as(x)


class _Steps(torch.autograd.Function):
    """The recurrence over precomputed W x + b, and its gradient by hand.

    Matrix products run in the type of `x` (bfloat16 under autocast), everything else in float32 at least.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "T B 4H"],
        h0: Float[Tensor, "B P"],
        c0: Float[Tensor, "B H"],
        recurrent: Float[Tensor, "4H P"],
        project: Float[Tensor, "P H"],
        cell_clip: float,
        output_clip: float,
        learning: bool,
    ) -> tuple[Tensor, Tensor]:
        (steps, rows, width), cells, low = x.shape, x.shape[2] // 4, x.dtype
        high = torch.promote_types(low, torch.float32)
        r, p = recurrent.to(low).t(), project.to(low).t()
        outputs = x.new_empty(steps, rows, len(project))
        c_all = x.new_empty(steps, rows, cells, dtype=high)
        # Without a way back one step's buffers serve all steps.
        kept = steps if learning else 1
        gates = x.new_empty(kept, rows, width, dtype=high)
        tanh_c = x.new_empty(kept, rows, cells, dtype=high)
        sums, y = x.new_empty(rows, width), x.new_empty(rows, cells)

        h, c = h0.to(low), c0.to(high)
        for t in range(steps):
            gate, squashed = gates[t % kept], tanh_c[t % kept]
            if low == high:
                torch.addmm(x[t], h, r, out=gate)
            else:
                gate.copy_(torch.addmm(x[t], h, r, out=sums))
            gate[:, : 3 * cells].sigmoid_()
            gate[:, 3 * cells :].tanh_()
            i, f, o, j = gate.chunk(4, dim=1)
            c = torch.mul(i, j, out=c_all[t]).addcmul_(f, c)
            if cell_clip < math.inf:
                c.clamp_(-cell_clip, cell_clip)
            torch.tanh(c, out=squashed)
            torch.mul(o, squashed, out=y)
            h = torch.mm(y, p, out=outputs[t])
            if output_clip < math.inf:
                h.clamp_(-output_clip, output_clip)

        ctx.save_for_backward(gates, tanh_c, c_all, outputs, h0, c0, recurrent, project)
        ctx.clips = cell_clip, output_clip
        ctx.mark_non_differentiable(c_all)
        return outputs, c_all

    @staticmethod
    def backward(ctx: Any, d_outputs: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gates, tanh_c, c_all, outputs, h0, c0, recurrent, project = ctx.saved_tensors
        cell_clip, output_clip = ctx.clips
        (steps, rows, width), cells, low, high = gates.shape, c_all.shape[2], outputs.dtype, gates.dtype
        r, p = recurrent.to(low), project.to(low)
        d_gates = outputs.new_empty(steps, rows, width)
        d_h = outputs.new_empty(outputs.shape)
        d_gate = gates.new_empty(rows, width)
        d_y, one = gates.new_empty(rows, cells), outputs.new_empty(rows, cells)
        back = outputs.new_zeros(rows, outputs.shape[2])  # from the step after, into this step's output
        d_c = gates.new_zeros(rows, cells)
        d_i, d_f, d_o, d_j = d_gate.chunk(4, dim=1)

        for t in range(steps - 1, -1, -1):
            gate, squashed = gates[t], tanh_c[t]
            i, f, o, j = gate.chunk(4, dim=1)
            d = torch.add(d_outputs[t], back, out=d_h[t])
            if output_clip < math.inf:
                _clip_back(d, outputs[t], -output_clip, output_clip, grad_input=d)
            if low == high:
                torch.mm(d, p, out=d_y)
            else:
                d_y.copy_(torch.mm(d, p, out=one))
            torch.mul(d_y, squashed, out=d_o)
            d_y.mul_(o)
            d_c.add_(_tanh_back(d_y, squashed, grad_input=d_y))
            if cell_clip < math.inf:
                _clip_back(d_c, c_all[t], -cell_clip, cell_clip, grad_input=d_c)
            torch.mul(d_c, j, out=d_i)
            torch.mul(d_c, c_all[t - 1] if t else c0.to(high), out=d_f)
            torch.mul(d_c, i, out=d_j)
            d_c.mul_(f)
            three, last = d_gate[:, : 3 * cells], d_gate[:, 3 * cells :]
            _sigmoid_back(three, gate[:, : 3 * cells], grad_input=three)
            _tanh_back(last, j, grad_input=last)
            d_gates[t] = d_gate
            torch.mm(d_gates[t], r, out=back)

        before = torch.cat([h0.to(low)[None], outputs[:-1]])
        y = (gates[..., 2 * cells : 3 * cells] * tanh_c).to(low)
        d_recurrent = (d_gates.flatten(0, 1).t() @ before.flatten(0, 1)).to(recurrent.dtype)
        d_project = (d_h.flatten(0, 1).t() @ y.flatten(0, 1)).to(project.dtype)
        return d_gates, back.to(h0.dtype), d_c.to(c0.dtype), d_recurrent, d_project, None, None, None
