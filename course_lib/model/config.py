"""What a model is, as data. Two models differ in exactly what `diff(a, b)` prints.

Letters used in every shape of this package: B batch, T (or Tq, Tk for queries and keys) positions,
D width, H heads, Dh head width, V vocabulary.
"""

from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal, get_args

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
    """Rotary embedding (Su et al. 2021): queries and keys are turned by an angle that grows with
    the position.
    """

    base: float = 10000.0  # of the geometric series of angles
    # True pairs neighbouring components, as the paper does; False i with i + Dh/2, as GPT-NeoX
    interleaved: bool = False


@dataclass(frozen=True)
class T5Buckets:
    """A learned bias for each head and distance bucket (Raffel et al. 2020, section 2.1)."""

    buckets: int = 32
    max_distance: int = 128  # from here on all distances share the last bucket
    bidirectional: bool | None = None  # by default unless the stack is causal


@dataclass(frozen=True)
class Shaw:
    """Learned vectors for clipped distances, added to keys and to values (Shaw et al. 2018,
    equations 3 and 4).
    """

    clip: int = 16


@dataclass(frozen=True)
class Alibi:
    """A penalty on the score that grows linearly with distance, steeper for some heads (Press et
    al. 2022).
    """


@dataclass(frozen=True)
class Disentangled:
    """Content and distance stay two vectors (DeBERTa, He et al. 2021, section 3.1).

    Distances are clipped to [-clip, clip), and each has a trained vector. A score sums content with
    content and the two terms below.
    """

    clip: int = 512
    content_to_position: bool = True  # what I say, how far you are
    position_to_content: bool = True  # how far I am, what you say


@dataclass(frozen=True)
class Global:
    """A token may attend to all others (in a causal stack: to those before it)."""

    rope_base: float | None = None  # of these layers, in place of `Rope.base`


@dataclass(frozen=True)
class Window:
    """A token attends to near ones only: at most `size` positions to either side (Beltagy et al.
    2020, section 3.1).
    """

    size: int
    rope_base: float | None = None  # of these layers, in place of `Rope.base`


AttentionPattern = Global | Window
_PATTERNS: dict[str, type[Any]] = {"Global": Global, "Window": Window}

PositionConfig = NoPosition | Learned | Sinusoidal | Rope | T5Buckets | Shaw | Alibi | Disentangled
_POSITIONS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(PositionConfig)}

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]


@dataclass(frozen=True)
class EmbedConfig:
    """How token ids become vectors."""

    vocab: int
    width: int | None = None  # of the token vectors, if a layer projects them to D (ALBERT)
    segments: int = 0  # rows of the segment table
    norm: bool = False  # LayerNorm on the sum
    scale: float = 1.0  # factor on the token vectors (the 2017 Transformer uses sqrt(D))


@dataclass(frozen=True)
class StackConfig:
    """A whole transformer stack."""

    embed: EmbedConfig
    width: int  # D
    layers: int  # L
    heads: int  # H
    hidden: int  # width of the feed-forward
    position: PositionConfig = field(default_factory=Learned)
    causal: bool = False
    # One pattern a layer, repeated from the start until all layers have one.
    attention: tuple[AttentionPattern, ...] = (Global(),)
    # post: behind each residual sum (2017, BERT, GPT-1); pre: before each part (GPT-2, T5)
    norm: Literal["pre", "post"] = "post"
    first_norm: bool = True  # False: none before the first attention (ModernBERT)
    final_norm: bool = False  # one more after the last block
    rms: bool = False  # RMSNorm instead of LayerNorm
    eps: float = 1e-5
    bias: bool = True  # in Linears and LayerNorms
    activation: Activation = "gelu"
    gated: bool = False  # the feed-forward multiplies by a second projection (T5 1.1)
    head_width: int | None = None  # Dh, by default D / H
    scale: bool = True  # divide the scores by sqrt(Dh)
    cross: bool = False  # every block also attends to a memory (decoders of encoder-decoder models)
    shared: bool = False  # one block applied L times (ALBERT)
    dropout: float = 0.1
    attention_dropout: float = 0.1
    init_std: float = 0.02
    scaled_init: bool = False  # smaller initial weights on what flows into the residual (GPT-2)

    def __post_init__(self) -> None:
        self._check_sizes()
        self._check_names()
        self._check_positions()

    def _check_sizes(self) -> None:
        if min(self.width, self.layers, self.heads, self.hidden, self.embed.vocab) < 1:
            raise CourseError(
                "width, layers, heads, hidden and embed.vocab of a StackConfig are at least 1."
            )
        if self.head_width is None and self.width % self.heads:
            raise CourseError(
                f"width {self.width} does not divide into {self.heads} heads; change one of them,"
                " or give head_width."
            )
        if not (0 <= self.dropout <= 1 and 0 <= self.attention_dropout <= 1):
            raise CourseError(
                f"dropout is from 0 to 1, not {self.dropout} and {self.attention_dropout}."
            )

    def _check_names(self) -> None:
        if self.norm not in ("pre", "post"):
            raise CourseError(f"norm is 'pre' or 'post', not {self.norm!r}.")
        if self.activation not in get_args(Activation):
            known = ", ".join(get_args(Activation))
            raise CourseError(f"There is no activation {self.activation!r}; there are {known}.")

    def _check_positions(self) -> None:
        rotary = isinstance(self.position, Rope)
        if rotary and self.dh % 2:
            raise CourseError(
                f"Rope turns pairs of components, so the head width {self.dh} must be even."
            )
        if not self.attention:
            raise CourseError("attention names one pattern at least: Global() or Window(size).")
        if not rotary and any(pattern.rope_base is not None for pattern in self.attention):
            raise CourseError("A pattern's rope_base needs a stack with the positions Rope().")
        if isinstance(self.position, Disentangled) and (self.terms == 1 or self.cross):
            raise CourseError(
                "Disentangled attention needs one of its two terms, and a stack without"
                " cross-attention."
            )

    @property
    def dh(self) -> int:
        """Dh."""
        return self.head_width if self.head_width is not None else self.width // self.heads

    @property
    def max_length(self) -> int | None:
        """The most positions that a sequence may have; None if the scheme knows no limit."""
        return self.position.length if isinstance(self.position, Learned) else None

    def pattern(self, layer: int) -> AttentionPattern:
        """The attention pattern of a layer, counted from 0."""
        return self.attention[layer % len(self.attention)]

    @property
    def terms(self) -> int:
        """How many products a score sums: one, and one more for each term of disentangled
        attention.
        """
        if not isinstance(self.position, Disentangled):
            return 1
        return 1 + self.position.content_to_position + self.position.position_to_content

    @property
    def score_factor(self) -> float:
        """What the scores are multiplied by: 1 / sqrt(Dh), or 1 / sqrt(3 Dh) for a sum of three
        terms (DeBERTa).
        """
        return (self.terms * self.dh) ** -0.5 if self.scale else 1.0


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every leaf of a nested config by its dotted name; a position scheme also says its `kind`."""
    leaves: dict[str, Any] = {}
    for item in fields(config):
        name = prefix + item.name
        value = getattr(config, item.name)
        if not is_dataclass(value):
            leaves[name] = value
            continue
        if item.name == "position":
            leaves[name] = type(value).__name__
        leaves |= flatten(value, name + ".")
    return leaves


def diff(a: StackConfig, b: StackConfig) -> dict[str, tuple[Any, Any]]:
    """What two models differ in: dotted field name -> (value in a, value in b).

    The value is None where one of them has no such field.

    >>> small = StackConfig(EmbedConfig(vocab=100), width=8, layers=2, heads=2, hidden=32)
    >>> deep = StackConfig(EmbedConfig(vocab=100), width=8, layers=4, heads=2, hidden=32)
    >>> diff(small, deep)
    {'layers': (2, 4)}
    """
    left = flatten(a)
    right = flatten(b)
    order = [item.name for item in fields(a)]
    names = sorted(left | right, key=lambda name: order.index(name.split(".")[0]))
    pairs = {name: (left.get(name), right.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


# Fields that came later. They are written only where they differ from their default, so that the
# files of models that have no use for them stay as they were.
_LATER = {"attention": (Global(),), "first_norm": True}


def to_dict(config: StackConfig) -> dict[str, Any]:
    """A JSON-ready dict; `from_dict` gives the equal config back."""
    values = asdict(config)
    values["position"] = _with_kind(config.position)
    values["attention"] = [_with_kind(pattern) for pattern in config.attention]
    for name, default in _LATER.items():
        if getattr(config, name) == default:
            del values[name]
    return values


def from_dict(values: dict[str, Any]) -> StackConfig:
    """The config that `to_dict` wrote.

    Raises:
        CourseError: the values are not those of a configuration.
    """
    values = dict(values)
    try:
        values["embed"] = EmbedConfig(**values["embed"])
        values["position"] = _of_kind(values["position"], _POSITIONS)
        if "attention" in values:
            patterns = values["attention"]
            values["attention"] = tuple(_of_kind(pattern, _PATTERNS) for pattern in patterns)
        return StackConfig(**values)
    except (KeyError, TypeError) as error:
        raise CourseError(
            f"The stored configuration does not fit this version of the course: {error}."
        ) from None


def _with_kind(option: Any) -> dict[str, Any]:
    """An option's fields and the name of its class."""
    return {"kind": type(option).__name__, **asdict(option)}


def _of_kind(values: dict[str, Any], kinds: dict[str, type[Any]]) -> Any:
    """The option that `_with_kind` wrote."""
    values = dict(values)
    kind = kinds[values.pop("kind")]
    return kind(**values)
