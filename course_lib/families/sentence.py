"""Sentence-BERT (Reimers and Gurevych 2019): one vector a text, compared by cosine.

Differs from BERT by: a pooling over the tokens' vectors in place of the tanh pooler, and training
on pairs of texts that go through the same weights ("siamese").

Letters: B rows, N texts a row (2 in a pair, 3 in a triplet), T positions, E width of a sentence
vector.
"""

from collections.abc import Sequence
from typing import get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.config import Pool
from course_lib.model.heads import pool
from course_lib.model.transformer import Transformer
from course_lib.objectives.losses import Batch


class Dense(nn.Module):
    """A linear layer on the sentence vector and an activation: [B, Ein] -> [B, Eout]."""

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool = True, activation: type[nn.Module] = nn.Tanh
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=bias)
        self.activation = activation()

    def forward(self, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        return self.activation(self.linear(x))


class Normalize(nn.Module):
    """Vectors of length 1, so that their product is their cosine."""

    def forward(self, x: Float[Tensor, "*B E"]) -> Float[Tensor, "*B E"]:
        return F.normalize(x, dim=-1)


class Sentence(nn.Module):
    """A stack, a pooling and what stands on top: [B, T] to [B, E], or [B, N, T] to [B, N, E].

    Args:
        stack: the encoder below.
        pool: "mean" (the paper's default), "first" (the CLS token), "max", or "last" for causal
            stacks (section 3).
        top: the layers on the pooled vector.

    Raises:
        CourseError: there is no such pooling.
    """

    def __init__(
        self, stack: Transformer, pool: Pool = "mean", top: Sequence[Dense | Normalize] = ()
    ) -> None:
        super().__init__()
        if pool not in get_args(Pool):
            raise CourseError(f"Unknown pooling {pool!r}; there are {', '.join(get_args(Pool))}.")
        self.stack = stack
        self.pool = pool
        self.top = nn.Sequential(*top)
        self.width = stack.config.width  # E: of the last layer that changes it
        for layer in top:
            if isinstance(layer, Dense):
                self.width = layer.linear.out_features

    def forward(
        self, ids: Int[Tensor, "*B T"], *, attention_mask: Bool[Tensor, "*B T"] | None = None
    ) -> Float[Tensor, "*B E"]:
        rows = ids.flatten(0, -2)  # B*N T
        mask = None if attention_mask is None else attention_mask.flatten(0, -2)
        h = self.stack(rows, attention_mask=mask)  # B*N T D
        vectors = self.top(pool(h, mask, self.pool))  # B*N E
        return vectors.view(*ids.shape[:-1], -1)


def cosines(u: Float[Tensor, "... E"], v: Float[Tensor, "... E"]) -> Float[Tensor, "..."]:
    """Cosine of each pair."""
    return F.cosine_similarity(u, v, dim=-1)


class PairClassifier(nn.Module):
    """The classification objective: softmax(W [u; v; |u - v|]) (section 3).

    `losses.classification` trains it.

    Args:
        sentence: reads both texts.
        classes: C.
    """

    def __init__(self, sentence: Sentence, classes: int) -> None:
        super().__init__()
        self.sentence = sentence
        self.out = nn.Linear(3 * sentence.width, classes)

    def forward(
        self, ids: Int[Tensor, "B 2 T"], *, attention_mask: Bool[Tensor, "B 2 T"] | None = None
    ) -> Float[Tensor, "B C"]:
        u, v = self.sentence(ids, attention_mask=attention_mask).unbind(1)
        return self.logits(u, v)

    def logits(self, u: Float[Tensor, "B E"], v: Float[Tensor, "B E"]) -> Float[Tensor, "B C"]:
        """Class logits of pairs of sentence vectors."""
        features = torch.cat([u, v, (u - v).abs()], dim=-1)  # B 3E
        return self.out(features)


def triplet_loss(
    anchor: Float[Tensor, "B E"],
    positive: Float[Tensor, "B E"],
    negative: Float[Tensor, "B E"],
    margin: float = 1.0,
) -> Tensor:
    """The triplet objective: max(|a - p| - |a - n| + margin, 0), Euclidean (section 3).

    Args:
        anchor: a.
        positive: p, a text near to the anchor's.
        negative: n, another text.
        margin: how much farther the negative should be.
    """
    near = torch.linalg.vector_norm(anchor - positive, dim=-1)
    far = torch.linalg.vector_norm(anchor - negative, dim=-1)
    return F.relu(near - far + margin).mean()


def ranking_loss(vectors: Float[Tensor, "B N E"], scale: float = 20.0) -> Tensor:
    """Multiple negatives ranking, or in-batch negatives (Henderson et al. 2017, section 4.4).

    Among all texts of the batch, a query's own should have the largest cosine.

    Args:
        vectors: of each row the query, its text, and negatives of its own.
        scale: factor on the cosines.
    """
    unit = F.normalize(vectors, dim=-1)
    queries = unit[:, 0]  # B E
    texts = unit[:, 1:].transpose(0, 1).flatten(0, 1)  # (N-1)*B E, the positives first
    logits = scale * queries @ texts.T
    own = torch.arange(len(queries), device=logits.device)
    return F.cross_entropy(logits, own)


def cosine_regression(model: nn.Module, batch: Batch) -> Tensor:
    """The regression objective: mean squared error of a pair's cosine (section 3).

    Args:
        model: a `Sentence`.
        batch: `ids` and `attention_mask` [B, 2, T], `labels` [B] from -1 to 1.
    """
    vectors = model(batch["ids"], attention_mask=batch.get("attention_mask"))  # B 2 E
    u, v = vectors.unbind(1)
    return F.mse_loss(cosines(u, v), batch["labels"])


def ranking(model: nn.Module, batch: Batch) -> Tensor:
    """`ranking_loss` of a model on a batch.

    Cutting the batch in parts (`accumulate`) leaves each query fewer negatives.

    Args:
        model: a `Sentence`.
        batch: `ids` and `attention_mask` [B, N, T].
    """
    vectors = model(batch["ids"], attention_mask=batch.get("attention_mask"))  # B N E
    return ranking_loss(vectors)
