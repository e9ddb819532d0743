"""Seven ways to tell attention the order of the tokens: seven children of one base class.

A scheme defines one or more of four methods:

    embed     vectors that are added to the token vectors
    rotate    turns queries and keys
    scores    numbers that are added to the attention scores
    values    vectors that are added to the attention output
"""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.config import (
    Alibi,
    Disentangled,
    Learned,
    NoPosition,
    Rope,
    Shaw,
    Sinusoidal,
    StackConfig,
    T5Buckets,
)


class Position(nn.Module):
    """No positions at all, and the base class of every scheme."""

    # Whether `scores` needs q. If not, it is computed once for all layers.
    scores_use_query = False
    # Whether `values` adds anything. It needs the attention weights, which a fused kernel never
    # forms.
    changes_values = False

    def embed(self, pos: Int[Tensor, "#B T"]) -> Float[Tensor, "#B T D"] | float:
        """The vectors added to the token vectors."""
        return 0.0

    def rotate(
        self, x: Float[Tensor, "B H T Dh"], pos: Int[Tensor, "#B T"]
    ) -> Float[Tensor, "B H T Dh"]:
        """Queries or keys, turned by an angle that depends on their positions."""
        return x

    def scores(
        self,
        q: Float[Tensor, "B H Tq Dh"] | None,
        q_pos: Int[Tensor, "#B Tq"],
        k_pos: Int[Tensor, "#B Tk"],
        k: Float[Tensor, "B H Tk Dh"] | None = None,
        layer: nn.Module | None = None,
    ) -> Float[Tensor, "#B H Tq Tk"] | None:
        """The numbers added to the attention scores.

        Args:
            q: queries, already divided by sqrt(Dh); None if `scores_use_query` is False.
            q_pos: positions of the queries.
            k_pos: positions of the keys.
            k: keys.
            layer: the weights that the scheme has in this layer; None except in DeBERTa.
        """
        return None

    def values(
        self,
        probs: Float[Tensor, "B H Tq Tk"],
        q_pos: Int[Tensor, "#B Tq"],
        k_pos: Int[Tensor, "#B Tk"],
    ) -> Float[Tensor, "B H Tq Dh"] | float:
        """The vectors added to the attention output of each head.

        Args:
            probs: the attention weights.
            q_pos: positions of the queries.
            k_pos: positions of the keys.
        """
        return 0.0

    def with_base(self, base: float) -> "Position":
        """The same scheme with another rotary base."""
        raise NotImplementedError("Only rotary positions have a base; StackConfig checks it.")


def count(
    total: int, attention_mask: Bool[Tensor, "B T"] | None, device: torch.device
) -> Int[Tensor, "#B T"]:
    """The position of each token: 0, 1, 2, ... Padding is not counted.

    Args:
        total: number of tokens T, with those in a cache.
        attention_mask: True = a real token; by default all are real.
        device: device of the positions.

    Raises:
        CourseError: the mask has another length than the tokens.
    """
    if attention_mask is None:
        return torch.arange(total, device=device)[None]
    if attention_mask.shape[1] != total:
        raise CourseError(
            f"attention_mask has {attention_mask.shape[1]} columns for {total} past and new tokens."
        )
    # 0 0 1 1 1 -> 0 0 1 2 3 -> 0 0 0 1 2. Padding on the left gets 0, but no token attends to it.
    counts = attention_mask.long().cumsum(dim=1)
    return (counts - 1).clamp(min=0)


def distance(q_pos: Int[Tensor, "#B Tq"], k_pos: Int[Tensor, "#B Tk"]) -> Int[Tensor, "#B Tq Tk"]:
    """Key position minus query position. It is negative if the key is to the left."""
    return k_pos[:, None, :] - q_pos[:, :, None]


class LearnedPosition(Position):
    """One trained vector for each position (Gehring et al. 2017; BERT, GPT)."""

    def __init__(self, config: Learned, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(config.length, width)

    def embed(self, pos: Tensor) -> Tensor:
        max_length = self.table.num_embeddings
        length = pos.shape[1]
        # Not on a GPU: reading the positions back would make the program wait for it.
        if pos.device.type == "cpu" and pos.numel() and not torch.compiler.is_compiling():
            length = max(length, int(pos.max()) + 1)
        if length > max_length:
            raise CourseError(
                f"The sequence reaches {length} positions, but this model has learned {max_length};"
                " shorten the text or use a model with more positions."
            )
        return self.table(pos)


class SinusoidalPosition(Position):
    """Fixed waves; each pair of components has a slower one (Vaswani et al. 2017, section 3.5).

    PE(pos, 2i)     = sin(pos / base^(2i / D))
    PE(pos, 2i + 1) = cos(pos / base^(2i / D))
    """

    frequencies: Tensor

    def __init__(self, config: Sinusoidal, width: int) -> None:
        super().__init__()
        self.width = width
        steps = torch.arange(0, width, 2, dtype=torch.float32)  # 2i: 0, 2, 4, ...
        self.register_buffer("frequencies", config.base ** (-steps / width), persistent=False)

    def embed(self, pos: Tensor) -> Tensor:
        angles = pos[..., None].float() * self.frequencies  # B T D/2
        pairs = torch.stack((angles.sin(), angles.cos()), dim=-1)  # B T D/2 2
        waves = pairs.flatten(-2)  # sin, cos, sin, cos, ...
        return waves[..., : self.width]  # drops the last cosine if the width is odd


class RopePosition(Position):
    """Each pair of components (a, b) is turned by an angle (Su et al. 2021, equation 34).

    angle = pos * base^(-2i / Dh)            for pair i
    (a, b) -> (a cos - b sin, a sin + b cos)

    So q . k depends on the two positions only by their distance.
    """

    frequencies: Tensor

    def __init__(self, config: Rope, dh: int) -> None:
        super().__init__()
        self.dh = dh
        self.interleaved = config.interleaved
        steps = torch.arange(0, dh, 2, dtype=torch.float32)
        self.register_buffer("frequencies", config.base ** (-steps / dh), persistent=False)

    def rotate(self, x: Tensor, pos: Tensor) -> Tensor:
        angles = pos[:, None, :, None].float() * self.frequencies  # B 1 T Dh/2
        cos = angles.cos().to(x.dtype)
        sin = angles.sin().to(x.dtype)

        # The pairs (a, b): two neighbouring components, or one component of each half.
        if self.interleaved:
            a = x[..., 0::2]  # B H T Dh/2
            b = x[..., 1::2]
        else:
            a, b = x.chunk(2, dim=-1)

        turned_a = a * cos - b * sin
        turned_b = a * sin + b * cos
        if self.interleaved:
            return torch.stack((turned_a, turned_b), dim=-1).flatten(-2)  # B H T Dh
        return torch.cat((turned_a, turned_b), dim=-1)

    def with_base(self, base: float) -> Position:
        return RopePosition(Rope(base, self.interleaved), self.dh)


class T5BucketsPosition(Position):
    """One trained bias for each head and bucket of distance (Raffel et al. 2020, section 2.1).

    All layers share the table. Each near distance has its own bucket. Far distances share buckets
    that grow logarithmically up to `max_distance`.

    >>> position = T5BucketsPosition(T5Buckets(buckets=32, max_distance=128), heads=8, causal=True)
    >>> position.bucket(torch.tensor([0, -1, -15, -16, -19, -60, -128])).tolist()
    [0, 1, 15, 16, 17, 26, 31]
    """

    def __init__(self, config: T5Buckets, heads: int, causal: bool) -> None:
        super().__init__()
        self.buckets = config.buckets
        self.max_distance = config.max_distance
        self.bidirectional = not causal
        if config.bidirectional is not None:
            self.bidirectional = config.bidirectional
        self.table = nn.Embedding(config.buckets, heads)

    def bucket(self, distances: Tensor) -> Tensor:
        """The bucket number of each key-minus-query distance; integers of any shape."""
        # 1. Left and right. The second half of the buckets is for keys to the right.
        if self.bidirectional:
            buckets = self.buckets // 2
            offset = (distances > 0).long() * buckets
            size = distances.abs()
        else:
            buckets = self.buckets
            offset = torch.zeros_like(distances)
            size = (-distances).clamp(min=0)  # a causal stack masks the keys to the right

        # 2. Near and far. The first half of the buckets is for one distance each: 0, 1, 2, ... In
        #    the second half, a bucket's width grows with the distance.
        exact = buckets // 2
        ratio = size.clamp(min=1).float() / exact  # clamped, because log(0) is -inf
        fraction = torch.log(ratio) / math.log(self.max_distance / exact)  # 1 at max_distance
        far_bucket = exact + (fraction * (buckets - exact)).long()
        far_bucket = far_bucket.clamp(max=buckets - 1)
        return offset + torch.where(size < exact, size, far_bucket)

    def scores(self, q: Tensor | None, q_pos: Tensor, k_pos: Tensor, *_: Any) -> Tensor:
        buckets = self.bucket(distance(q_pos, k_pos))  # B Tq Tk
        return self.table(buckets).permute(0, 3, 1, 2)  # B Tq Tk H -> B H Tq Tk


class ShawPosition(Position):
    """Trained vectors a_ij for clipped distances (Shaw et al. 2018, equations 3 and 4).

    scores_ij = q_i . (k_j + a^K_ij) / sqrt(Dh)
    output_i  = sum over j of probs_ij (v_j + a^V_ij)

    Known departure: all layers and heads share one pair of tables; in the paper each layer has its
    own.
    """

    scores_use_query = True
    changes_values = True

    def __init__(self, config: Shaw, dh: int) -> None:
        super().__init__()
        self.clip = config.clip
        self.key_table = nn.Embedding(2 * config.clip + 1, dh)
        self.value_table = nn.Embedding(2 * config.clip + 1, dh)

    def scores(self, q: Tensor | None, q_pos: Tensor, k_pos: Tensor, *_: Any) -> Tensor:
        assert q is not None
        vectors = self._vectors(self.key_table, q, q_pos, k_pos)
        return torch.einsum("bhqd,bqkd->bhqk", q, vectors)

    def values(self, probs: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        vectors = self._vectors(self.value_table, probs, q_pos, k_pos)
        return torch.einsum("bhqk,bqkd->bhqd", probs, vectors)

    def _vectors(self, table: nn.Embedding, like: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """The vector of each pair of tokens, B Tq Tk Dh, in the batch size and dtype of `like`."""
        clipped = distance(q_pos, k_pos).clamp(-self.clip, self.clip)
        vectors = table(clipped + self.clip)  # rows 0 to 2 clip
        return vectors.to(like.dtype).expand(len(like), -1, -1, -1)


class AlibiPosition(Position):
    """Score minus slope times distance (Press et al. 2022, section 3). Slopes are not trained."""

    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(self.geometric(heads)), persistent=False)

    @staticmethod
    def geometric(heads: int) -> list[float]:
        """The slopes 2^(-8/H), 2^(-16/H), ..., 2^-8 of H heads."""
        if math.log2(heads).is_integer():
            return [2 ** (-8 * (h + 1) / heads) for h in range(heads)]
        # H is no power of two. Take the slopes of the next smaller power, then every second slope
        # of the next larger one (the published code does this).
        lower = 2 ** math.floor(math.log2(heads))
        between = AlibiPosition.geometric(2 * lower)[0::2]
        return AlibiPosition.geometric(lower) + between[: heads - lower]

    def scores(self, q: Tensor | None, q_pos: Tensor, k_pos: Tensor, *_: Any) -> Tensor:
        far = distance(q_pos, k_pos).abs()[:, None]  # B 1 Tq Tk
        slopes = self.slopes[:, None, None]  # H 1 1
        return -slopes * far.to(slopes.dtype)


class DisentangledPosition(Position):
    """Trained vectors for clipped distances (He et al. 2021, equation 4).

    Every layer projects them to keys and queries (`DisentangledTerms`). Row i - j + clip of the
    table belongs to query i and key j, in both terms. The paper's equation takes j - i for
    position-to-content, but the published models were trained with i - j.
    """

    scores_use_query = True

    def __init__(self, config: Disentangled, width: int, dropout: float) -> None:
        super().__init__()
        self.clip = config.clip
        self.table = nn.Embedding(2 * config.clip, width)
        self.dropout = nn.Dropout(dropout)

    def scores(
        self,
        q: Tensor | None,
        q_pos: Tensor,
        k_pos: Tensor,
        k: Tensor | None = None,
        layer: nn.Module | None = None,
    ) -> Tensor:
        assert q is not None and k is not None and layer is not None
        # No distance is larger than the number of keys, so the other rows need no projection.
        span = min(self.clip, k_pos.shape[1])
        rows = self.table.weight[self.clip - span : self.clip + span]  # 2*span D
        index = (span - distance(q_pos, k_pos)).clamp(0, 2 * span - 1)  # B or 1, Tq Tk
        return layer(q, k, self.dropout(rows), index)


class DisentangledTerms(nn.Module):
    """The two terms that one layer adds to q_i . k_j (He et al. 2021, equation 4).

    content-to-position: q_i . K_r[i - j]
    position-to-content: k_j . Q_r[i - j]

    Both are divided by sqrt(3 Dh), as q_i . k_j is. (sqrt(2 Dh) if the model has only one of them.)
    """

    def __init__(self, config: StackConfig, position: Disentangled) -> None:
        super().__init__()
        inner = config.heads * config.dh
        self.heads = config.heads
        self.factor = config.score_factor
        self.k = None
        if position.content_to_position:
            self.k = nn.Linear(config.width, inner, bias=False)
        self.q = None
        if position.position_to_content:
            self.q = nn.Linear(config.width, inner, bias=config.bias)

    def forward(
        self,
        q: Float[Tensor, "B H Tq Dh"],
        k: Float[Tensor, "B H Tk Dh"],
        rows: Float[Tensor, "R D"],
        index: Int[Tensor, "#B Tq Tk"],
    ) -> Float[Tensor, "B H Tq Tk"]:
        """Both terms for all pairs of tokens.

        Args:
            q: queries, already scaled.
            k: keys, not scaled.
            rows: the vectors of R distances.
            index: for each pair of tokens, the row of its distance.
        """
        # First the products with all R distances, then each pair of tokens picks its own.
        index = index[:, None].expand(len(q), self.heads, -1, -1)  # B H Tq Tk
        scores = []
        if self.k is not None:
            to_position = q @ self._split(self.k(rows))  # B H Tq R
            scores.append(to_position.gather(-1, index))  # B H Tq Tk
        if self.q is not None:
            scaled_k = k * self.factor
            to_content = scaled_k @ self._split(self.q(rows))  # B H Tk R
            turned = to_content.gather(-1, index.transpose(-1, -2))  # B H Tk Tq
            scores.append(turned.transpose(-1, -2))  # B H Tq Tk
        return sum(scores[1:], start=scores[0])

    def _split(self, x: Tensor) -> Tensor:
        return x.view(len(x), self.heads, -1).permute(1, 2, 0)  # R H*Dh -> H Dh R


def layer_weights(config: StackConfig) -> nn.Module | None:
    """The weights that a position scheme has in each layer; None except in DeBERTa."""
    if isinstance(config.position, Disentangled):
        return DisentangledTerms(config, config.position)
    return None


def build(config: StackConfig) -> Position:
    """A new module for the scheme `config.position`."""
    embed_width = config.embed.width or config.width
    match config.position:
        case Learned() as position:
            return LearnedPosition(position, embed_width)
        case Sinusoidal() as position:
            return SinusoidalPosition(position, embed_width)
        case Rope() as position:
            return RopePosition(position, config.dh)
        case T5Buckets() as position:
            return T5BucketsPosition(position, config.heads, config.causal)
        case Shaw() as position:
            return ShawPosition(position, config.dh)
        case Alibi():
            return AlibiPosition(config.heads)
        case Disentangled() as position:
            return DisentangledPosition(position, config.width, config.dropout)
        case NoPosition():
            return Position()
