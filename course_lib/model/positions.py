"""Seven ways to tell attention where a word stands, as four seams of one base class.

A scheme may speak in four places: `embed` (added to the token vectors), `rotate` (turns queries and
keys), `scores` (added to the attention scores) and `values` (added to the output). Everything else
is shared.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model import config as c


class Position(nn.Module):
    """No positions at all, and the base class of every scheme."""

    scores_use_query = False  # True: `scores` reads q, so it cannot be computed once for all layers

    def embed(self, pos: Int[Tensor, "#B T"]) -> Float[Tensor, "#B T D"] | float:
        """Added to the token vectors."""
        return 0.0

    def rotate(
        self, x: Float[Tensor, "B H T Dh"], pos: Int[Tensor, "#B T"]
    ) -> Float[Tensor, "B H T Dh"]:
        """Queries or keys, turned."""
        return x

    def scores(
        self,
        q: Float[Tensor, "B H Tq Dh"] | None,
        q_pos: Int[Tensor, "#B Tq"],
        k_pos: Int[Tensor, "#B Tk"],
        k: Float[Tensor, "B H Tk Dh"] | None = None,
        own: nn.Module | None = None,
    ) -> Float[Tensor, "#B H Tq Tk"] | None:
        """What is added to the scores.

        Args:
            q: queries, already divided by sqrt(Dh); None where `scores_use_query` is False.
            q_pos: their positions.
            k_pos: the keys' positions.
            k: keys.
            own: what the scheme has learned for this layer alone (`in_layer`).
        """
        return None

    def values(
        self,
        probs: Float[Tensor, "B H Tq Tk"],
        q_pos: Int[Tensor, "#B Tq"],
        k_pos: Int[Tensor, "#B Tk"],
    ) -> Float[Tensor, "B H Tq Dh"] | float:
        """What is added to the attention output of each head."""
        return 0.0

    def with_base(self, base: float | None) -> "Position":
        """The scheme for layers that have a rotary base of their own; None: they have not."""
        return self


def distance(q_pos: Int[Tensor, "#B Tq"], k_pos: Int[Tensor, "#B Tk"]) -> Int[Tensor, "#B Tq Tk"]:
    """Key position minus query position: negative to the left."""
    return k_pos[:, None, :] - q_pos[:, :, None]


class LearnedPosition(Position):
    """A table of trained vectors (Gehring et al. 2017; BERT, GPT)."""

    def __init__(self, config: c.Learned, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(config.length, width)

    def embed(self, pos: Tensor) -> Tensor:
        length = self.table.num_embeddings
        reach = pos.shape[1]
        # On a GPU looking at the positions would wait for it.
        if pos.device.type == "cpu" and pos.numel() and not torch.compiler.is_compiling():
            reach = max(reach, int(pos.max()) + 1)
        if reach > length:
            raise CourseError(
                f"The sequence reaches {reach} positions, but this model has learned {length};"
                " shorten the text or use a model with more positions."
            )
        return self.table(pos)


class SinusoidalPosition(Position):
    """Even components sin(pos / base^(i/D)), odd ones cos of the same (Vaswani et al. 2017, section
    3.5).
    """

    frequencies: Tensor

    def __init__(self, config: c.Sinusoidal, width: int) -> None:
        super().__init__()
        self.width = width
        steps = torch.arange(0, width, 2, dtype=torch.float32)
        self.register_buffer("frequencies", config.base ** (-steps / width), persistent=False)

    def embed(self, pos: Tensor) -> Tensor:
        angles = pos[..., None].float() * self.frequencies  # B T D/2
        pairs = torch.stack((angles.sin(), angles.cos()), dim=-1)  # B T D/2 2
        return pairs.flatten(-2)[..., : self.width]


class RopePosition(Position):
    """Rotation of each pair of components by pos * base^(-2i/Dh) (Su et al. 2021, equation 34)."""

    frequencies: Tensor

    def __init__(self, config: c.Rope, dh: int) -> None:
        super().__init__()
        self.dh = dh
        self.interleaved = config.interleaved
        steps = torch.arange(0, dh, 2, dtype=torch.float32)
        self.register_buffer("frequencies", config.base ** (-steps / dh), persistent=False)

    def rotate(self, x: Tensor, pos: Tensor) -> Tensor:
        angles = pos[:, None, :, None].float() * self.frequencies  # B 1 T Dh/2
        cos = angles.cos().to(x.dtype)
        sin = angles.sin().to(x.dtype)
        if self.interleaved:
            a = x[..., 0::2]
            b = x[..., 1::2]
            return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)

    def with_base(self, base: float | None) -> Position:
        if base is None:
            return self
        with self.frequencies.device:
            return RopePosition(c.Rope(base, self.interleaved), self.dh)


class T5BucketsPosition(Position):
    """One trained bias a head and bucket of distance, shared by all layers (Raffel et al. 2020,
    section 2.1). Near distances have a bucket each, far ones share logarithmically growing buckets
    up to `max_distance`."""

    def __init__(self, config: c.T5Buckets, heads: int, causal: bool) -> None:
        super().__init__()
        self.buckets, self.max_distance = config.buckets, config.max_distance
        self.bidirectional = (not causal) if config.bidirectional is None else config.bidirectional
        self.table = nn.Embedding(config.buckets, heads)

    def bucket(self, distance: Tensor) -> Tensor:
        """Bucket number of each key-minus-query distance. Any shape, integers."""
        if self.bidirectional:  # half of the buckets for keys to the right
            buckets = self.buckets // 2
            offset = (distance > 0).long() * buckets
            far = distance.abs()
        else:
            buckets = self.buckets
            offset = torch.zeros_like(distance)
            far = (-distance).clamp(min=0)
        exact = buckets // 2  # below, each distance has its own bucket
        log = torch.log(far.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        large = (exact + (log * (buckets - exact)).long()).clamp(max=buckets - 1)
        return offset + torch.where(far < exact, far, large)

    def scores(self, q: Tensor | None, q_pos: Tensor, k_pos: Tensor, *_: Any) -> Tensor:
        # B Tq Tk H -> B H Tq Tk
        return self.table(self.bucket(distance(q_pos, k_pos))).permute(0, 3, 1, 2)


class ShawPosition(Position):
    """Trained vectors for distances clipped to [-clip, clip]: on keys (eq. 4) and on values (eq.
    3), Shaw et al. 2018. Known departure: one pair of tables serves all layers and heads; the paper
    shares over heads only."""

    scores_use_query = True

    def __init__(self, config: c.Shaw, dh: int) -> None:
        super().__init__()
        self.clip = config.clip
        self.key_table = nn.Embedding(2 * config.clip + 1, dh)
        self.value_table = nn.Embedding(2 * config.clip + 1, dh)

    def scores(self, q: Tensor | None, q_pos: Tensor, k_pos: Tensor, *_: Any) -> Tensor:
        assert q is not None
        rows = self._rows(self.key_table, q, q_pos, k_pos)
        return torch.einsum("bhqd,bqkd->bhqk", q, rows)

    def values(self, probs: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        rows = self._rows(self.value_table, probs, q_pos, k_pos)
        return torch.einsum("bhqk,bqkd->bhqd", probs, rows)

    def _rows(self, table: nn.Embedding, like: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        index = distance(q_pos, k_pos).clamp(-self.clip, self.clip) + self.clip  # 0 to 2 clip
        return table(index).to(like.dtype).expand(like.shape[0], -1, -1, -1)  # B Tq Tk Dh


class AlibiPosition(Position):
    """Score minus slope times distance (Press et al. 2022, section 3); slopes are fixed, geometric
    over the heads.
    """

    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(self.geometric(heads)), persistent=False)

    @staticmethod
    def geometric(heads: int) -> list[float]:
        """2^(-8/H), 2^(-16/H), ... For other H: those of the power of two below, then every second
        of the one above.
        """
        if math.log2(heads).is_integer():
            return [2 ** (-8 * (h + 1) / heads) for h in range(heads)]
        lower = 2 ** math.floor(math.log2(heads))
        between = AlibiPosition.geometric(2 * lower)[0::2]
        return AlibiPosition.geometric(lower) + between[: heads - lower]

    def scores(self, q: Tensor | None, q_pos: Tensor, k_pos: Tensor, *_: Any) -> Tensor:
        far = distance(q_pos, k_pos).abs()[:, None].to(self.slopes.dtype)  # B 1 Tq Tk
        return -self.slopes[:, None, None] * far


class DisentangledPosition(Position):
    """Trained vectors for clipped distances, which every layer makes keys and queries of (He et al.
    2021, equation 4). Row i - j + clip is the distance of query i to key j, for both terms: the
    paper's equation reads position-to-content at j - i, its published models were trained with i -
    j."""

    scores_use_query = True

    def __init__(self, config: c.Disentangled, width: int, dropout: float) -> None:
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
        own: nn.Module | None = None,
    ) -> Tensor:
        assert q is not None and k is not None and own is not None
        # no distance is larger: the rows beyond are not projected
        span = min(self.clip, k_pos.shape[1])
        rows = self.dropout(self.table.weight[self.clip - span : self.clip + span])  # 2S D
        index = (span - distance(q_pos, k_pos)).clamp(0, 2 * span - 1)  # B|1 Tq Tk
        return own(q, k, rows, index)


class Crosswise(nn.Module):
    """q_i . K_r[i - j] (content-to-position) + k_j . Q_r[i - j] (position-to-content), both scaled
    as q_i . k_j is.
    """

    def __init__(self, config: c.StackConfig, position: c.Disentangled) -> None:
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
            q: queries, scaled.
            k: keys, not scaled.
            rows: the vectors of R distances.
            index: which of them is the distance of each pair.
        """
        index = index[:, None].expand(len(q), self.heads, -1, -1)  # B H Tq Tk
        scores = []
        if self.k is not None:
            to_position = q @ self._split(self.k(rows))  # B H Tq R
            scores.append(to_position.gather(-1, index))  # B H Tq Tk
        if self.q is not None:
            to_content = k * self.factor @ self._split(self.q(rows))  # B H Tk R
            turned = to_content.gather(-1, index.transpose(-1, -2))  # B H Tk Tq
            scores.append(turned.transpose(-1, -2))
        return sum(scores[1:], start=scores[0])

    def _split(self, x: Tensor) -> Tensor:
        return x.view(len(x), self.heads, -1).permute(1, 2, 0)  # R H*Dh -> H Dh R


def in_layer(config: c.StackConfig) -> nn.Module | None:
    """What `config.position` learns anew in each layer's attention, if anything."""
    if isinstance(config.position, c.Disentangled):
        return Crosswise(config, config.position)
    return None


def build(config: c.StackConfig) -> Position:
    """The module for `config.position`."""
    match config.position:
        case c.Learned() as position:
            return LearnedPosition(position, config.embed.width or config.width)
        case c.Sinusoidal() as position:
            return SinusoidalPosition(position, config.embed.width or config.width)
        case c.Rope() as position:
            return RopePosition(position, config.dh)
        case c.T5Buckets() as position:
            return T5BucketsPosition(position, config.heads, config.causal)
        case c.Shaw() as position:
            return ShawPosition(position, config.dh)
        case c.Alibi():
            return AlibiPosition(config.heads)
        case c.Disentangled() as position:
            return DisentangledPosition(position, config.width, config.dropout)
        case c.NoPosition():
            return Position()
