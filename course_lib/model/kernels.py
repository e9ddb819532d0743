"""Fast paths: each computes the same as a plain formula elsewhere, in less time or memory.

Every `use_...` function says whether its fast path fits the given tensors. If it does not, the
caller computes the formula. `ENABLED = False` (or the environment variable COURSE_KERNELS=0)
switches all of them off, and every result stays the same up to rounding.

To remove a fast path, delete it here and the two lines that call it. To add one, write a `use_...`
and a function here, two lines next to its formula, and a case in test_kernels.py.

    fast path             formula                                       file of the formula
    rms_norm              x / sqrt(mean(x^2) + eps) * weight            norms.RMSNorm
    attention             softmax(q k^T + bias) v                       attention.Attention
    padded_vocabulary     h W^T + b                                     heads.to_vocabulary
    cross_entropy         mean of -log softmax(logits)[label]           objectives.losses
    linear_cross_entropy  mean of -log softmax(h W^T + b)[label]        objectives.losses
    lstm_steps            the loop over an LSTM's steps                 lstm.recurrence
    linear_recomputed     x W^T                                         peft.nf4
    cast_once             x                                             layers.Block
    GrowingBuffer         torch.cat((old, new), dim=2)                  cache.LayerCache
"""

import os
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from course_lib.model import masks
from course_lib.vocab import IGNORE

ENABLED = os.environ.get("COURSE_KERNELS", "1") != "0"


# RMSNorm: x / sqrt(mean(x^2) + eps) * weight


def use_rms_norm(x: Tensor, weight: Tensor) -> bool:
    """True for training in float32 on a CPU.

    There the fast path takes a third of the formula's time, and keeps one tensor for the backward
    pass instead of two.
    """
    is_float32 = x.dtype == weight.dtype == torch.float32
    trains_on_cpu = x.is_cpu and x.requires_grad
    return ENABLED and is_float32 and trains_on_cpu and not torch.compiler.is_compiling()


def rms_norm(x: Float[Tensor, "*T D"], weight: Float[Tensor, " D"], eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight."""
    return _RMSNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]


class _RMSNorm(torch.autograd.Function):
    """RMSNorm whose gradient comes from LayerNorm's kernel, called with a mean of 0.

    LayerNorm subtracts the mean, so its gradient has one more term. We add that term back.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).mul_(weight)

    @staticmethod
    @once_differentiable  # LayerNorm's second derivative is not RMSNorm's
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, scale = ctx.saved_tensors
        mean = torch.zeros_like(scale)
        d_x, d_weight, _ = torch.ops.aten.native_layer_norm_backward(
            grad, x, weight.shape, mean, scale, weight, None, [True, True, False]
        )
        through_mean = (grad @ weight)[..., None]  # *T 1
        d_x.add_(through_mean * scale / len(weight))
        return d_x, d_weight, None


# Attention: softmax(q k^T + bias) v, with q already scaled

# Up to this number of keys, the fused kernel's backward pass in bfloat16 on a CPU is slower than
# the formula's. Measured: 5 times slower with 64 keys, 1.5 times with 1,024.
SLOW_BACKWARD_KEYS = 1024


def use_attention(q: Tensor, k: Tensor) -> bool:
    """True, except to train in bfloat16 on a CPU with up to 1,024 keys: the formula is faster."""
    has_backward = torch.is_grad_enabled() and q.requires_grad
    is_short = k.shape[2] <= SLOW_BACKWARD_KEYS
    is_slower = has_backward and is_short and q.is_cpu and q.dtype == torch.bfloat16
    return ENABLED and not is_slower


def attention(
    q: Float[Tensor, "B H Tq Dh"],
    k: Float[Tensor, "B H Tk Dh"],
    v: Float[Tensor, "B H Tk Dh"],
    *,
    mask: Bool[Tensor, "#B #H #Tq Tk"] | None = None,
    bias: Float[Tensor, "#B H Tq Tk"] | None = None,
    is_causal: bool = False,
    dropout: float = 0.0,
) -> Float[Tensor, "B H Tq Dh"]:
    """softmax(q k^T + bias) v where mask is True, without forming the scores.

    Args:
        q: queries, scaled already.
        k: keys.
        v: values.
        mask: True = may attend.
        bias: added to the scores.
        is_causal: True has the effect of `mask=masks.causal(...)`, without making that mask.
        dropout: probability that an attention weight becomes 0.
    """
    # The kernel takes one mask, which is boolean or is added to the scores. Or it makes the causal
    # mask itself. So a bias and a mask become one tensor.
    if bias is not None and is_causal:
        mask = masks.causal(q.shape[2], k.shape[2], q.device)
        is_causal = False
    if bias is not None:
        bias = bias.to(q.dtype)
        lowest = torch.finfo(q.dtype).min
        mask = bias if mask is None else torch.where(mask, bias, lowest)
        # The kernel refuses a tensor whose last dimension is not the one stored together. T5's bias
        # comes out of an embedding, with the heads last.
        mask = mask.contiguous()
    return F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, scale=1.0)


# The product that ends a language model, from hidden states to the vocabulary: h W^T + b

VOCABULARY_MULTIPLE = 64  # sizes that a GPU's matrix products like; GPT-2 has 50,257 tokens
MANY_ROWS = 512  # with fewer, as in generation, it takes longer to copy the matrix than it saves


def use_padded_vocabulary(h: Tensor, weight: Tensor) -> bool:
    """True on a GPU for many rows, if the size of the vocabulary is not a multiple of 64."""
    is_odd = len(weight) % VOCABULARY_MULTIPLE != 0
    rows = h.numel() // h.shape[-1]
    return ENABLED and h.is_cuda and is_odd and rows >= MANY_ROWS


def padded_vocabulary(
    h: Float[Tensor, "*N D"], weight: Float[Tensor, "V D"], bias: Float[Tensor, " V"] | None = None
) -> Float[Tensor, "*N V"]:
    """h W^T + b. The matrix gets more rows, of zeros, and their logits are cut off again."""
    h = cast_once(h)
    weight = cast_once(weight)
    more = -len(weight) % VOCABULARY_MULTIPLE
    padded_bias = None if bias is None else F.pad(bias, (0, more))
    logits = F.linear(h, F.pad(weight, (0, 0, 0, more)), padded_bias)
    return logits[..., : len(weight)]


# Cross-entropy: the mean of -log softmax(logits)[label] over the labels that are not IGNORE

# Number of logits that are processed at a time. As float32 they take half a MiB, which fits in a
# core's cache.
ELEMENTS = 2**17


def use_cross_entropy(logits: Tensor, smoothing: float) -> bool:
    """True on a CPU without label smoothing.

    For 4,096 x 8,192 bfloat16 logits on one core, the fast path takes 70 ms instead of 128 ms,
    and a third of the memory.
    """
    fits = smoothing == 0 and logits.device.type == "cpu"
    return ENABLED and fits and not torch.compiler.is_compiling()


def cross_entropy(logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"]) -> Float[Tensor, ""]:
    """The mean of -log softmax(logits)[label], in float32; 0 if all labels are IGNORE."""
    return _MeanCrossEntropy.apply(logits, labels)  # type: ignore[no-untyped-call]


class _MeanCrossEntropy(torch.autograd.Function):
    """The gradient with respect to the logits is softmax(logits), minus 1 at the label.

    It is computed together with the loss, a few rows at a time, while these are in the CPU's cache.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        counts = labels != IGNORE
        weights = counts / counts.sum().clamp(min=1)  # N: each row's weight in the mean
        targets = labels.masked_fill(~counts, 0)
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        loss = torch.zeros((), device=logits.device)
        rows = max(1, ELEMENTS // logits.shape[1])
        for start in range(0, len(logits), rows):
            part = slice(start, start + rows)
            x = logits[part].to(torch.float32, copy=True)
            target = targets[part, None]  # rows 1
            weight = weights[part, None]
            largest = x.amax(dim=1, keepdim=True)  # subtracted before exp, so that exp stays finite
            at_label = x.gather(1, target)
            exp = x.sub_(largest).exp_()
            total = exp.sum(dim=1, keepdim=True)
            losses = total.log() + largest - at_label  # -log softmax(x)[label]
            loss += (losses * weight).sum()
            if gradient is not None:
                softmax = exp.mul_(weight / total)
                gradient[part] = softmax.scatter_add_(1, target, -weight)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        if grad == 1:
            return gradient, None  # no copy: it is as large as the logits
        return gradient * grad.to(gradient.dtype), None


# Cross-entropy and the product before it: the mean of -log softmax(h W^T + b)[label]

# From this number of logits on, the fast path is used. In float32 they would take 1 GiB, and their
# gradient as much again.
MANY_LOGITS = 2**28
PARTS = 8  # a fixed number, so that torch.compile makes one graph for all numbers of rows


def use_linear_cross_entropy(labels: Tensor, vocab: int) -> bool:
    """True on a GPU if there are many logits: GPT-2's of 6 rows of 1,024 tokens, or more."""
    return ENABLED and labels.is_cuda and labels.numel() * vocab >= MANY_LOGITS


def linear_cross_entropy(
    h: Float[Tensor, "*N D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"] | None = None,
    *,
    labels: Int[Tensor, "*N"],
) -> Float[Tensor, ""]:
    """The mean of -log softmax(h W^T + b)[label]; 0 if all labels are IGNORE.

    A part of the rows is computed at a time. The logits of all rows are never in memory.
    """
    h = h.flatten(0, -2)
    return _LinearCrossEntropy.apply(h, weight, bias, labels.flatten())  # type: ignore[no-untyped-call]


class _LinearCrossEntropy(torch.autograd.Function):
    """The gradients are computed together with the loss, while the logits of a part are there."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Float[Tensor, "N D"],
        weight: Float[Tensor, "V D"],
        bias: Float[Tensor, " V"] | None,
        labels: Int[Tensor, " N"],
    ) -> Tensor:
        counts = labels != IGNORE
        weights = counts / counts.sum().clamp(min=1)  # N: each row's weight in the mean
        targets = labels.masked_fill(~counts, 0)
        has_gradient = any(ctx.needs_input_grad)

        # The matrix gets more rows, of zeros, up to a multiple of 64. Their logits are -inf, so
        # that they get no probability.
        vocab = len(weight)
        more = -vocab % VOCABULARY_MULTIPLE
        low = cast_once(h).dtype
        matrix = F.pad(weight.to(low), (0, 0, 0, more))  # V+ D
        offset = weight.new_zeros(vocab) if bias is None else bias
        offset = F.pad(offset.to(low), (0, more), value=-torch.inf)  # V+

        loss = torch.zeros((), device=h.device)
        d_h = []
        d_matrix = torch.zeros(matrix.shape, device=h.device)  # float32, as it sums up parts
        d_offset = torch.zeros(offset.shape, device=h.device)
        split = zip(*(x.tensor_split(PARTS) for x in (h, targets, weights)), strict=True)
        for h_part, target, row_weights in split:
            target = target[:, None]  # n 1
            row_weights = row_weights[:, None]
            h_low = h_part.to(low)
            logits = torch.addmm(offset, h_low, matrix.t())  # n V+
            log_probs = logits.log_softmax(1, dtype=torch.float32)
            loss = loss - (log_probs.gather(1, target) * row_weights).sum()
            if has_gradient:
                # softmax(logits), minus 1 at the label
                d_logits = (log_probs.exp() * row_weights).scatter_add(1, target, -row_weights)
                d_low = d_logits.to(low)
                d_h.append(d_low @ matrix)
                d_matrix = d_matrix + d_low.t() @ h_low
                d_offset = d_offset + d_logits.sum(0)
        if has_gradient:
            d_bias = None if bias is None else d_offset[:vocab].to(bias.dtype)
            d_weight = d_matrix[:vocab].to(weight.dtype)
            ctx.save_for_backward(torch.cat(d_h).to(h.dtype), d_weight, d_bias)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        d_h, d_weight, d_bias = ctx.saved_tensors
        d_bias = None if d_bias is None else d_bias * grad
        return d_h * grad, d_weight * grad, d_bias, None


# An LSTM's steps: the loop of `lstm.recurrence`, with its gradient written by hand

_sigmoid_backward: Any = torch.ops.aten.sigmoid_backward
_tanh_backward: Any = torch.ops.aten.tanh_backward
_clip_backward: Any = torch.ops.aten.hardtanh_backward  # 0 where a bound was reached


def use_lstm_steps() -> bool:
    """Always True: each weight's gradient is then one matrix product over all steps."""
    return ENABLED


def lstm_steps(
    x: Float[Tensor, "T B 4H"],
    recurrent: Float[Tensor, "4H P"],
    project: Float[Tensor, "P H"],
    cell_clip: float,
    output_clip: float,
) -> Float[Tensor, "T B P"]:
    """The outputs of `lstm.recurrence`."""
    return _LSTMSteps.apply(x, recurrent, project, cell_clip, output_clip)  # type: ignore[no-untyped-call]


class _LSTMSteps(torch.autograd.Function):
    """Matrix products run in the type of x (bfloat16 under autocast), all else in float32 or more.

    The gates i, f and o lie side by side, so one call computes their sigmoids.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "T B 4H"],
        recurrent: Float[Tensor, "4H P"],
        project: Float[Tensor, "P H"],
        cell_clip: float,
        output_clip: float,
    ) -> Float[Tensor, "T B P"]:
        cells = x.shape[2] // 4
        low = x.dtype
        high = torch.promote_types(low, torch.float32)
        r = recurrent.to(low).t()
        p = project.to(low).t()
        h = x.new_zeros(x.shape[1], len(project))  # B P
        c = x.new_zeros(x.shape[1], cells, dtype=high)  # B H
        kept = []  # tensors of each step, for the backward pass
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
        cells = c_all.shape[2]
        low = outputs.dtype
        r = recurrent.to(low)
        p = project.to(low)
        d_gates = torch.empty_like(gates, dtype=low)  # T B 4H
        d_h = torch.empty_like(outputs)  # T B P
        c_before = torch.cat([torch.zeros_like(c_all[:1]), c_all[:-1]])

        # The gradients that come from the next step, t + 1.
        d_from_next = torch.zeros_like(outputs[0])
        d_c = torch.zeros_like(c_all[0])
        for t in reversed(range(len(gates))):
            i, f, o, j = gates[t].chunk(4, dim=1)
            d_output = d_outputs[t] + d_from_next
            d_h[t] = _clip_backward(d_output, outputs[t], -output_clip, output_clip)
            d_y = torch.mm(d_h[t], p).to(gates.dtype)
            d_c = d_c + _tanh_backward(d_y * o, tanh_all[t])
            d_c = _clip_backward(d_c, c_all[t], -cell_clip, cell_clip)
            d_ifo = torch.cat([d_c * j, d_c * c_before[t], d_y * tanh_all[t]], dim=1)
            d_gates[t, :, : 3 * cells] = _sigmoid_backward(d_ifo, gates[t, :, : 3 * cells])
            d_gates[t, :, 3 * cells :] = _tanh_backward(d_c * i, j)
            d_from_next = torch.mm(d_gates[t], r)
            d_c = d_c * f

        # One product over all steps for each weight.
        h_before = torch.cat([torch.zeros_like(outputs[:1]), outputs[:-1]])
        y = (gates[..., 2 * cells : 3 * cells] * tanh_all).to(low)
        d_recurrent = d_gates.flatten(0, 1).t() @ h_before.flatten(0, 1)
        d_project = d_h.flatten(0, 1).t() @ y.flatten(0, 1)
        return d_gates, d_recurrent.to(recurrent.dtype), d_project.to(project.dtype), None, None


# A linear layer whose weight is computed at each use, from its quantized form: x W^T


class HasWeight(Protocol):
    """A layer with a `weight`, which may be a property that computes it."""

    @property
    def weight(self) -> Float[Tensor, "O I"]: ...


def use_linear_recomputed() -> bool:
    """Always True: the float matrix is then not kept in memory for the backward pass."""
    return ENABLED


def linear_recomputed(x: Float[Tensor, "*T I"], layer: HasWeight) -> Float[Tensor, "*T O"]:
    """x W^T with W = layer.weight, which the backward pass computes a second time."""
    return _LinearRecomputed.apply(x, layer)  # type: ignore[no-untyped-call]


class _LinearRecomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: HasWeight) -> Tensor:
        ctx.layer = layer
        ctx.dtype = x.dtype
        return F.linear(x, layer.weight.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        weight = ctx.layer.weight.to(grad.dtype)  # computed a second time, not kept
        d_x = grad @ weight
        return d_x.to(ctx.dtype), None


# Mixed precision: the formula is x itself


def cast_once(x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
    """Cast x to autocast's type. Otherwise autocast casts it again for each matrix product."""
    device = x.device.type
    can_cast = x.dtype == torch.float32 and torch.amp.is_autocast_available(device)
    if ENABLED and can_cast and torch.is_autocast_enabled(device):
        return x.to(torch.get_autocast_dtype(device))
    return x


# Keys and values in a cache: torch.cat((old, new), dim=2)


class GrowingBuffer:
    """Appends along T into free memory, so that a step of generation does not copy all past tokens.

    Args:
        capacity: number of tokens to allocate memory for at the first append. When it is full,
            twice the memory that is needed is allocated.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.buffer: Tensor | None = None  # starts with the tensor that `append` returned last

    def append(
        self, old: Float[Tensor, "B H T Dh"] | None, new: Float[Tensor, "B H N Dh"]
    ) -> Float[Tensor, "B H T+N Dh"]:
        """torch.cat((old, new), dim=2)."""
        # The backward pass needs the old tensors, so they must not be overwritten.
        if not ENABLED or torch.is_grad_enabled():
            return new if old is None else torch.cat((old, new), dim=2)
        if old is None:
            if self.capacity == 0:
                return new
            old = new[:, :, :0]

        past = old.shape[2]
        total = past + new.shape[2]
        buffer = self.buffer
        # `LayerCache.reorder` may have replaced the tensor. Then `old` is not in the buffer.
        if buffer is None or buffer.shape[2] < total or buffer.data_ptr() != old.data_ptr():
            capacity = self.capacity if total <= self.capacity else 2 * total
            buffer = old.new_empty((*old.shape[:2], capacity, old.shape[3]))
            buffer[:, :, :past] = old
            self.buffer = buffer
        buffer[:, :, past:total] = new
        return buffer[:, :, :total]
