"""The layers on top of a stack: one small module for each kind of prediction.

    head                 question                                       first in
    LM                   which token is next?                           GPT
    MLM                  which tokens are masked?                       BERT
    Pretraining          the same, and does the second text follow?     BERT
    RTD                  which tokens were replaced?                    ELECTRA
    Pooled               which vector represents the text?              BERT
    Classifier           which label has this text, or pair of texts?   GPT, BERT
    MultipleChoice       which of N continuations?                      GPT, BERT
    TokenClassifier      which label has each token?                    BERT
    QuestionAnswering    where does the answer start and end?           BERT

Every head has a `stack`. It takes ids [B, T] and the options of `Transformer.run`, and returns
logits. `LM`, `MLM` and `Pretraining` also take `loss_mask`, Bool[B, T]: the positions to predict.
They then return logits [N, V] for these N positions only. This saves time, because in a small model
the output matrix takes most of it. `output` is what they make of the last hidden states and the
output matrix: the logits (`to_vocabulary`), or at once the loss (`kernels.linear_cross_entropy`).
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model import kernels
from course_lib.model.config import Activation, Pool
from course_lib.model.layers import ACTIVATIONS
from course_lib.model.norms import norm
from course_lib.model.transformer import Transformer

Mask = Bool[Tensor, "B T"] | None  # True = a real token; as loss_mask, a position to predict
Segments = Int[Tensor, "B T"] | None
Scores = Float[Tensor, "B T V"] | Float[Tensor, "N V"]
# (hidden states [*N, D], output matrix [V, D], bias [V] or None) -> logits [*N, V]
Output = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def to_vocabulary(
    h: Float[Tensor, "*N D"], weight: Float[Tensor, "V D"], bias: Float[Tensor, " V"] | None
) -> Float[Tensor, "*N V"]:
    """h W^T + b, the logits of the vocabulary."""
    if kernels.use_padded_vocabulary(h, weight):
        return kernels.padded_vocabulary(h, weight, bias)
    return nn.functional.linear(h, weight, bias)


class LM(nn.Module):
    """Next-token logits.

    Args:
        stack: the decoder.
        tied: the table of token vectors is also the output matrix (GPT-1, GPT-2).
    """

    def __init__(self, stack: Transformer, *, tied: bool = True) -> None:
        super().__init__()
        self.stack = stack
        self.head = None if tied else output_matrix(stack, stack.config.width)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        loss_mask: Mask = None,
        output: Output = to_vocabulary,
        **options: Any,
    ) -> Scores:
        h = self.stack(ids, **options)  # B T D
        if loss_mask is not None:
            h = h[loss_mask]  # N D
        matrix = self.stack.embed.tokens if self.head is None else self.head
        return output(h, matrix.weight, None)


class MaskedHead(nn.Module):
    """Dense layer, activation, norm, output matrix (Devlin et al. 2019, section 3.1).

    Args:
        stack: the encoder.
        activation: after the dense layer; by default the activation of the stack. RoBERTa and
            ELECTRA always have GELU here.
        tied: the table of token vectors is also the output matrix.
    """

    def __init__(
        self, stack: Transformer, activation: Activation | None = None, *, tied: bool = True
    ) -> None:
        super().__init__()
        config = stack.config
        width = config.embed.width or config.width
        self.dense = nn.Linear(config.width, width, bias=config.bias)
        self.norm = norm(config, width)
        self.bias = nn.Parameter(torch.zeros(config.embed.vocab))
        self.activation = ACTIVATIONS[activation or config.activation]
        initialize(stack, self.dense)
        self.output = None if tied else output_matrix(stack, width)

    def forward(
        self,
        h: Float[Tensor, "*N D"],
        tokens: Float[Tensor, "V E"],
        output: Output = to_vocabulary,
    ) -> Float[Tensor, "*N V"]:
        h = self.activation(self.dense(h))  # *N E
        # The norm runs in float32 even under autocast, because bfloat16 has too few digits for it.
        h = self.norm(h.to(self.bias.dtype))
        matrix = tokens if self.output is None else self.output.weight
        return output(h, matrix, self.bias)  # *N V


class MLM(nn.Module):
    """Masked-language-model logits (Devlin et al. 2019, section 3.1, task 1).

    Args:
        stack: the encoder.
        activation: the activation in `MaskedHead`; by default that of the stack.
        tied: the table of token vectors is also the output matrix.
    """

    def __init__(
        self, stack: Transformer, activation: Activation | None = None, *, tied: bool = True
    ) -> None:
        super().__init__()
        self.stack = stack
        self.head = MaskedHead(stack, activation, tied=tied)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        loss_mask: Mask = None,
        output: Output = to_vocabulary,
        **options: Any,
    ) -> Scores:
        h = self.stack(ids, **options)  # B T D
        if loss_mask is not None:
            h = h[loss_mask]  # N D
        return self.head(h, self.stack.embed.tokens.weight, output)


class Pooler(nn.Module):
    """tanh(dense(first token)): BERT's sentence vector (Devlin et al. 2019, section 3.1, vector C).

    Args:
        stack: the encoder.
        activation: after the dense layer. DistilBERT has ReLU here, ELECTRA and DeBERTa GELU.
        dropout: on the pooled vector, before the dense layer.
        has_norm: one more norm at the end (ModernBERT).
        pool: how the token vectors become one; by default the first token's is taken.
    """

    def __init__(
        self,
        stack: Transformer,
        activation: Callable[[Tensor], Tensor] = torch.tanh,
        dropout: float = 0.0,
        has_norm: bool = False,
        pool: Pool = "first",
    ) -> None:
        super().__init__()
        config = stack.config
        self.pool = pool
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(config.width, config.width, bias=config.bias)
        self.activation = activation
        self.norm = norm(config) if has_norm else nn.Identity()
        initialize(stack, self.dense)

    def forward(
        self, h: Float[Tensor, "B T D"], attention_mask: Mask = None
    ) -> Float[Tensor, "B D"]:
        vector = pool(h, attention_mask, self.pool)  # B D
        vector = self.dense(self.dropout(vector))
        return self.norm(self.activation(vector))


class Head(nn.Module):
    """A stack and the layers on top. A child class defines `predict`."""

    stack: Any  # a Transformer, or an EncoderDecoder
    # The names of the classes, in the order of the logits; None if unknown.
    class_names: tuple[str, ...] | None = None
    # True: a text may have several labels at once, so each label has a probability of its own.
    multi_label = False

    def __init__(self, stack: nn.Module) -> None:
        super().__init__()
        self.stack = stack

    def forward(
        self, ids: Int[Tensor, "B T"], *, attention_mask: Mask = None, segments: Segments = None
    ) -> Any:
        h = self.stack(ids, attention_mask=attention_mask, segments=segments)  # B T D
        return self.predict(h, attention_mask)

    def predict(self, h: Float[Tensor, "B T D"], attention_mask: Mask) -> Any:
        """Hidden states to the output of the head, logits in most heads."""
        raise NotImplementedError


class Pooled(Head):
    """A stack and its pooler: (hidden states [B, T, D], sentence vector [B, D]).

    Args:
        stack: the encoder.
        has_pooler: False for a checkpoint without a pooler. The sentence vector is then None.
    """

    def __init__(self, stack: Transformer, has_pooler: bool = True) -> None:
        super().__init__(stack)
        self.pooler = Pooler(stack) if has_pooler else None

    def predict(
        self, h: Float[Tensor, "B T D"], attention_mask: Mask
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B D"] | None]:
        if self.pooler is None:
            return h, None
        return h, self.pooler(h)


class Pretraining(nn.Module):
    """Both objectives of BERT on one stack: (masked-LM logits, next-sentence logits [B, 2]).

    Class 0 = the second text follows the first, 1 = it is a random one.

    Args:
        stack: the encoder.
        tied: the table of token vectors is also the output matrix.
        dropout: before the layer that predicts the next sentence (ALBERT).
    """

    def __init__(self, stack: Transformer, *, tied: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.stack = stack
        self.dropout = nn.Dropout(dropout)
        self.head = MaskedHead(stack, tied=tied)
        self.pooler = Pooler(stack)
        self.next = nn.Linear(stack.config.width, 2)
        initialize(stack, self.next)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        loss_mask: Mask = None,
        output: Output = to_vocabulary,
        **options: Any,
    ) -> tuple[Tensor, Float[Tensor, "B 2"]]:
        h = self.stack(ids, **options)  # B T D
        next_sentence = self.next(self.dropout(self.pooler(h)))  # B 2
        if loss_mask is not None:
            h = h[loss_mask]  # N D
        tokens = self.head(h, self.stack.embed.tokens.weight, output)
        return tokens, next_sentence


class Classifier(Head):
    """One label for a whole input: class logits [B, C] (C = 1 for a score).

    Args:
        stack: the encoder or decoder.
        classes: C.
        pool: how the token vectors become one. "first" takes [CLS] and adds BERT's pooler; "last"
            takes GPT-1's extract token.
        bias: the last layer has a bias.
        pooler: makes the vector instead of `pool`.
        dropout: before the last layer; by default the rate of the stack.
    """

    def __init__(
        self,
        stack: Transformer,
        classes: int,
        pool: Pool = "first",
        bias: bool = True,
        *,
        pooler: Pooler | None = None,
        dropout: float | None = None,
    ) -> None:
        super().__init__(stack)
        self.pool = pool
        if pooler is None and pool == "first":
            pooler = Pooler(stack)
        self.pooler = pooler
        self.dropout = nn.Dropout(stack.config.dropout if dropout is None else dropout)
        self.out = nn.Linear(stack.config.width, classes, bias=bias)
        initialize(stack, self.out)

    def predict(self, h: Float[Tensor, "B T D"], attention_mask: Mask) -> Float[Tensor, "B C"]:
        if self.pooler is None:
            vector = pool(h, attention_mask, self.pool)  # B D
        else:
            vector = self.pooler(h, attention_mask)
        return self.out(self.dropout(vector))


class MultipleChoice(Classifier):
    """Which of N continuations? The model scores each one separately: [B, N, T] to [B, N]."""

    def __init__(self, stack: Transformer, pool: Pool = "first", **options: Any) -> None:
        super().__init__(stack, 1, pool, **options)

    def forward(
        self, ids: Int[Tensor, "B N T"], **options: Int[Tensor, "B N T"] | None
    ) -> Float[Tensor, "B N"]:
        rows = {name: x.flatten(0, 1) for name, x in options.items() if x is not None}  # B*N T
        scores = super().forward(ids.flatten(0, 1), **rows)  # B*N 1
        return scores.view(ids.shape[:2])  # B N


class Transform(nn.Module):
    """norm(activation(dense(h))) for every token, before the last layer (ModernBERT).

    Args:
        stack: the encoder.
        activation: between the dense layer and the norm.
    """

    def __init__(self, stack: Transformer, activation: Activation = "gelu") -> None:
        super().__init__()
        config = stack.config
        self.dense = nn.Linear(config.width, config.width, bias=config.bias)
        self.activation = ACTIVATIONS[activation]
        self.norm = norm(config)
        initialize(stack, self.dense)

    def forward(self, h: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.norm(self.activation(self.dense(h)))


class TokenClassifier(Head):
    """One label per token: class logits [B, T, C] (Devlin et al. 2019, section 5.3).

    Args:
        stack: the encoder.
        classes: C.
        transform: a layer before the last one; none by default.
        dropout: before the last layer; by default the rate of the stack.
    """

    def __init__(
        self,
        stack: Transformer,
        classes: int,
        *,
        transform: Transform | None = None,
        dropout: float | None = None,
    ) -> None:
        super().__init__(stack)
        self.transform = nn.Identity() if transform is None else transform
        self.dropout = nn.Dropout(stack.config.dropout if dropout is None else dropout)
        self.out = nn.Linear(stack.config.width, classes)
        initialize(stack, self.out)

    def predict(self, h: Float[Tensor, "B T D"], attention_mask: Mask) -> Float[Tensor, "B T C"]:
        h = self.dropout(self.transform(h))
        return self.out(h)


class RTD(Head):
    """Was this token replaced? Logits [B, T], above 0 = yes (Clark et al. 2020, section 2)."""

    def __init__(self, stack: Transformer) -> None:
        super().__init__(stack)
        self.dense = nn.Linear(stack.config.width, stack.config.width)
        self.activation = ACTIVATIONS[stack.config.activation]
        self.score = nn.Linear(stack.config.width, 1)
        initialize(stack, self.dense, self.score)

    def predict(self, h: Float[Tensor, "B T D"], attention_mask: Mask) -> Float[Tensor, "B T"]:
        h = self.activation(self.dense(h))
        return self.score(h).squeeze(-1)  # B T 1 -> B T


class QuestionAnswering(Head):
    """Where the answer starts and ends: logits [B, T] and [B, T] (Devlin et al. 2019, section 4.2).

    Args:
        stack: an encoder, or an encoder-decoder.
        transform: a layer before the last one; none by default.
        dropout: before the last layer.
    """

    def __init__(
        self, stack: Any, *, transform: Transform | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__(stack)
        self.transform = nn.Identity() if transform is None else transform
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(stack.config.width, 2)
        initialize(stack, self.out)

    def predict(
        self, h: Float[Tensor, "B T D"], attention_mask: Mask
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        h = self.dropout(self.transform(h))
        start, end = self.out(h).unbind(-1)  # B T each
        return start, end


def word_logits(model: nn.Module, ids: Int[Tensor, "B T"], **options: Any) -> Tensor:
    """The logits for tokens, of any model that has some.

    A model with both of BERT's pretraining heads also answers whether the second text follows. That
    answer is left out.

    Args:
        model: a language model.
        ids: of the tokens.
        options: what else the model is given, such as attention_mask.
    """
    answer = model(ids, **options)
    logits: Tensor = answer[0] if isinstance(answer, tuple) else answer
    return logits


def pool(h: Float[Tensor, "B T D"], attention_mask: Mask, how: Pool) -> Float[Tensor, "B D"]:
    """The token vectors of each row become one vector.

    Args:
        h: hidden states.
        attention_mask: True = a real token; all of them by default.
        how: "first" or "last" token, or "mean" or "max" over the real tokens.

    Raises:
        CourseError: `how` is none of these.
    """
    if attention_mask is None:
        real = h.new_ones(h.shape[:2], dtype=torch.bool)
    else:
        real = attention_mask.bool()  # B T
    match how:
        case "first":
            return h[:, 0]
        case "last":
            positions = torch.arange(h.shape[1], device=h.device) * real  # 0 at padding
            rows = torch.arange(len(h), device=h.device)
            return h[rows, positions.argmax(dim=1)]
        case "mean":
            weights = real.to(h.dtype)[..., None]  # B T 1
            return (h * weights).sum(1) / weights.sum(1).clamp(min=1)
        case "max":
            return h.masked_fill(~real[..., None], -torch.inf).max(dim=1).values
    raise CourseError(f"Unknown pooling {how!r}; there are first, last, mean and max.")


def output_matrix(stack: Any, width: int) -> nn.Linear:
    """A new output matrix, not tied: from vectors of this width to the logits of the vocabulary."""
    matrix = nn.Linear(width, stack.config.embed.vocab, bias=False)
    initialize(stack, matrix)
    return matrix


def is_tied(model: nn.Module) -> bool:
    """Whether a model that predicts tokens has the table of token vectors as output matrix."""
    head: Any = model.head
    if isinstance(head, MaskedHead):
        head = head.output
    return head is None


def initialize(stack: nn.Module, *linears: nn.Linear) -> None:
    """Draw the weights of new layers from N(0, init_std) of the stack, and set biases to 0."""
    std = cast(Any, stack).config.init_std
    for linear in linears:
        nn.init.normal_(linear.weight, std=std)
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)
