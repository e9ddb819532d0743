"""Sentence-BERT (Reimers and Gurevych 2019): one vector per text, compared by cosine.

Differs from BERT by: a mean over the token vectors instead of BERT's pooler, and training on pairs
of texts, which the same encoder reads one by one ("siamese").

Letters in shapes: B rows, N texts in a row (2 in a pair, 3 in a triplet), T positions, E width of a
sentence vector.
"""

from collections.abc import Callable, Sequence
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

# Token vectors [B T D] and attention mask [B T] -> one vector for each text [B D].
Pooling = Callable[[Tensor, Tensor | None], Tensor]


class Dense(nn.Module):
    """A linear layer and an activation on the sentence vector: [B, inputs] -> [B, outputs]."""

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool = True, activation: type[nn.Module] = nn.Tanh
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=bias)
        self.activation = activation()

    def forward(self, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        return self.activation(self.linear(x))


class Normalize(nn.Module):
    """Scales vectors to length 1, so that their dot product is their cosine."""

    def forward(self, x: Float[Tensor, "*B E"]) -> Float[Tensor, "*B E"]:
        return F.normalize(x, dim=-1)


class Sentence(nn.Module):
    """A stack, a pooling and layers on top: ids [B, T] -> [B, E], or [B, N, T] -> [B, N, E].

    Args:
        stack: the encoder.
        pool: "mean" (the paper's default), "first" (the CLS token), "max", or "last" for causal
            stacks (section 3). Or a function of the token vectors and the attention mask.
        top: the layers on the pooled vector.

    Raises:
        CourseError: there is no such pooling.
    """

    def __init__(
        self,
        stack: Transformer,
        pool: Pool | Pooling = "mean",
        top: Sequence[Dense | Normalize] = (),
    ) -> None:
        super().__init__()
        if not callable(pool) and pool not in get_args(Pool):
            raise CourseError(f"Unknown pooling {pool!r}; there are {', '.join(get_args(Pool))}.")
        self.stack = stack
        self.pool = pool
        self.top = nn.Sequential(*top)
        self.width = stack.config.width  # E: set by the last layer that changes the width
        for layer in top:
            if isinstance(layer, Dense):
                self.width = layer.linear.out_features

    def forward(
        self, ids: Int[Tensor, "*B T"], *, attention_mask: Bool[Tensor, "*B T"] | None = None
    ) -> Float[Tensor, "*B E"]:
        rows = ids.flatten(0, -2)  # B*N T
        mask = None if attention_mask is None else attention_mask.flatten(0, -2)
        h = self.stack(rows, attention_mask=mask)  # B*N T D
        if callable(self.pool):
            pooled = self.pool(h, mask)  # B*N D
        else:
            pooled = pool(h, mask, self.pool)  # B*N D
        vectors: Tensor = self.top(pooled)  # B*N E
        return vectors.view(*ids.shape[:-1], -1)


def cosines(u: Float[Tensor, "... E"], v: Float[Tensor, "... E"]) -> Float[Tensor, "..."]:
    """The cosine of each pair of vectors."""
    return F.cosine_similarity(u, v, dim=-1)


class PairClassifier(nn.Module):
    """The classification objective: softmax(W [u; v; |u - v|]) (section 3).

    `losses.classification` trains it.

    Args:
        sentence: the model that makes a vector of each text.
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
        anchor: a, the vectors of the anchor texts.
        positive: p, the vectors of texts similar to the anchors.
        negative: n, the vectors of other texts.
        margin: the negative should be farther from the anchor than the positive by this distance.
    """
    positive_distance = torch.linalg.vector_norm(anchor - positive, dim=-1)
    negative_distance = torch.linalg.vector_norm(anchor - negative, dim=-1)
    return F.relu(positive_distance - negative_distance + margin).mean()


def ranking_loss(vectors: Float[Tensor, "B N E"], scale: float = 20.0) -> Tensor:
    """Multiple negatives ranking, or in-batch negatives (Henderson et al. 2017, section 4.4).

    Among all texts of the batch, the text that belongs to a query should have the largest cosine.

    Args:
        vectors: in each row the query, its text, and N - 2 texts that do not belong to it.
        scale: factor on the cosines before the softmax.
    """
    unit = F.normalize(vectors, dim=-1)
    queries = unit[:, 0]  # B E
    texts = unit[:, 1:].transpose(0, 1).flatten(0, 1)  # (N-1)*B E, the positives first
    logits = scale * queries @ texts.T
    labels = torch.arange(len(queries), device=logits.device)  # query i belongs to text i
    return F.cross_entropy(logits, labels)


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

    With gradient accumulation (`accumulate`), each query has fewer negatives: only the texts of its
    own part of the batch.

    Args:
        model: a `Sentence`.
        batch: `ids` and `attention_mask` [B, N, T].
    """
    vectors = model(batch["ids"], attention_mask=batch.get("attention_mask"))  # B N E
    return ranking_loss(vectors)
