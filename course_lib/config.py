"""What a model is, as data. Two models differ in exactly what `diff(a, b)` prints.

Letters used in every shape of this package:
B batch, T (or Tq, Tk for queries and keys) positions, D width, H heads, Dh head width, V vocabulary.
"""

from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal

from course_lib.errors import CourseError


@dataclass(frozen=True)
class NoPosition:
    """Attention without any notion of order."""


@dataclass(frozen=True)
class Learned:
    """One trained vector a position (BERT, GPT). `length` rows: no sequence may be longer."""

    length: int = 512


@dataclass(frozen=True)
class Sinusoidal:
    """Fixed sines and cosines (Vaswani et al. 2017, section 3.5)."""

    base: float = 10000.0


@dataclass(frozen=True)
class Rope:
    """Rotary embedding (Su et al. 2021): queries and keys are turned by an angle that grows with the position.

    `interleaved` pairs neighbouring components as the paper does; False pairs component i with i + Dh/2 as
    the Llama family does. The two differ by a fixed permutation of the components.
    """

    base: float = 10000.0
    interleaved: bool = False


@dataclass(frozen=True)
class T5Buckets:
    """A learned bias for each head and distance bucket (Raffel et al. 2020, section 2.1).

    `bidirectional` is None by default: it follows from whether the stack is causal.
    """

    buckets: int = 32
    max_distance: int = 128
    bidirectional: bool | None = None


@dataclass(frozen=True)
class Shaw:
    """Learned vectors for clipped distances, added to keys and to values (Shaw et al. 2018, equations 3 and 4)."""

    clip: int = 16


@dataclass(frozen=True)
class Alibi:
    """A penalty on the score that grows linearly with distance, steeper for some heads (Press et al. 2022)."""


@dataclass(frozen=True)
class Disentangled:
    """Content and distance stay two vectors, which attention matches crosswise (DeBERTa, He et al. 2021, section 3.1).

    Distances are clipped to [-clip, clip), and each has a trained vector. A score sums content with content,
    `content_to_position` (what I say, how far you are) and `position_to_content` (how far I am, what you say).
    """

    clip: int = 512
    content_to_position: bool = True
    position_to_content: bool = True


PositionConfig = NoPosition | Learned | Sinusoidal | Rope | T5Buckets | Shaw | Alibi | Disentangled
_POSITIONS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (NoPosition, Learned, Sinusoidal, Rope, T5Buckets, Shaw, Alibi, Disentangled)
}

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]


@dataclass(frozen=True)
class EmbedConfig:
    """How token ids become vectors.

    vocab: number of token types. width: size of the token vectors if below the model's width (ALBERT, ELECTRA);
    None means the model's width. segments: rows of the segment table, 0 for none. norm: LayerNorm on the sum.
    scale: factor on the token vectors (the 2017 Transformer uses sqrt(D)).
    """

    vocab: int
    width: int | None = None
    segments: int = 0
    norm: bool = False
    scale: float = 1.0


@dataclass(frozen=True)
class StackConfig:
    """A whole transformer stack.

    width D, layers L, heads H, hidden width of the feed-forward. norm: where LayerNorm stands, "post" (2017,
    BERT, GPT-1) or "pre" (GPT-2, T5). final_norm: one more norm after the last block. rms: RMSNorm instead of
    LayerNorm. head_width: Dh, by default D / H. scale: divide the scores by sqrt(Dh). gated: the feed-forward
    multiplies by a second projection (T5 1.1). cross: every block also attends to a memory (decoders of
    encoder-decoder models). shared: one block applied L times (ALBERT). init_std: standard deviation of the initial
    weights; scaled_init: smaller on what flows into the residual (GPT-2). Checks are made at construction.
    """

    embed: EmbedConfig
    width: int
    layers: int
    heads: int
    hidden: int
    position: PositionConfig = field(default_factory=Learned)
    causal: bool = False
    norm: Literal["pre", "post"] = "post"
    final_norm: bool = False
    rms: bool = False
    eps: float = 1e-5
    bias: bool = True
    activation: Activation = "gelu"
    gated: bool = False
    head_width: int | None = None
    scale: bool = True
    cross: bool = False
    shared: bool = False
    dropout: float = 0.1
    attention_dropout: float = 0.1
    init_std: float = 0.02
    scaled_init: bool = False

    def __post_init__(self) -> None:
        for name in ("width", "layers", "heads", "hidden"):
            if getattr(self, name) < 1:
                raise CourseError(f"StackConfig.{name} is {getattr(self, name)}; it must be at least 1.")
        if self.embed.vocab < 1:
            raise CourseError(f"EmbedConfig.vocab is {self.embed.vocab}; it must be at least 1.")
        if self.head_width is None and self.width % self.heads:
            raise CourseError(
                f"width {self.width} does not divide into {self.heads} heads; change one of them, or give head_width."
            )
        if isinstance(self.position, Rope) and self.dh % 2:
            raise CourseError(f"Rope turns pairs of components, so the head width {self.dh} must be even.")
        if isinstance(self.position, Disentangled) and (self.terms == 1 or self.cross):
            raise CourseError(
                "Disentangled attention needs content_to_position, position_to_content or both, and a stack without "
                "cross-attention."
            )

    @property
    def dh(self) -> int:
        """Head width Dh."""
        return self.head_width if self.head_width is not None else self.width // self.heads

    @property
    def terms(self) -> int:
        """How many products a score sums: one, and one more for each term of disentangled attention."""
        if not isinstance(self.position, Disentangled):
            return 1
        return 1 + self.position.content_to_position + self.position.position_to_content

    @property
    def score_factor(self) -> float:
        """What the scores are multiplied by: 1 / sqrt(Dh), or 1 / sqrt(3 Dh) for a sum of three terms (DeBERTa)."""
        return (self.terms * self.dh) ** -0.5 if self.scale else 1.0

    @property
    def key_bias(self) -> bool:
        """Whether keys have a bias. It adds one number to all scores of a query, and softmax undoes that (DeBERTa)."""
        return self.bias and not isinstance(self.position, Disentangled)


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every leaf of a nested config by its dotted name; a position scheme also says its `kind`."""
    leaves: dict[str, Any] = {}
    for item in fields(config):
        value, name = getattr(config, item.name), prefix + item.name
        if is_dataclass(value) and not isinstance(value, type):
            if item.name == "position":
                leaves[name] = type(value).__name__
            leaves |= flatten(value, name + ".")
        else:
            leaves[name] = value
    return leaves


def diff(a: StackConfig, b: StackConfig) -> dict[str, tuple[Any, Any]]:
    """What two models differ in: dotted field name -> (value in a, value in b). None where one has no such field.

    >>> small = StackConfig(EmbedConfig(vocab=100), width=8, layers=2, heads=2, hidden=32)
    >>> deep = StackConfig(EmbedConfig(vocab=100), width=8, layers=4, heads=2, hidden=32)
    >>> diff(small, deep)
    {'layers': (2, 4)}
    """
    left, right = flatten(a), flatten(b)
    names = list(left) + [name for name in right if name not in left]
    order = [item.name for item in fields(a)]
    names.sort(key=lambda name: order.index(name.split(".")[0]))
    return {n: (left.get(n), right.get(n)) for n in names if left.get(n) != right.get(n)}


def to_dict(config: StackConfig) -> dict[str, Any]:
    """A JSON-ready dict; `from_dict` gives the equal config back."""
    return asdict(config) | {"position": {"kind": type(config.position).__name__, **asdict(config.position)}}


def from_dict(values: dict[str, Any]) -> StackConfig:
    """The config that `to_dict` wrote.

    Raises:
        CourseError: an unknown or missing field, named in the sentence.
    """
    values = dict(values)
    try:
        position = dict(values.pop("position"))
        kind = position.pop("kind")
        if kind not in _POSITIONS:
            raise CourseError(f"Unknown position scheme {kind!r}; the course has {', '.join(_POSITIONS)}.")
        embed = EmbedConfig(**values.pop("embed"))
        return StackConfig(embed=embed, position=_POSITIONS[kind](**position), **values)
    except KeyError as error:
        raise CourseError(f"The stored configuration has no field {error}.") from None
    except TypeError as error:
        raise CourseError(f"The stored configuration does not fit this version of the course: {error}.") from None
