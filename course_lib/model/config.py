"""What a model is, as data. Two models differ in exactly what `diff(a, b)` prints.

Letters used in every shape of this package: B batch, T (or Tq, Tk for queries and keys) positions,
D width, H heads, Dh head width, V vocabulary.
"""

from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, get_args

from course_lib.errors import CourseError


@dataclass(frozen=True)
class NoPosition:
    """Attention without any notion of order."""


@dataclass(frozen=True)
class Learned:
    """One trained vector for each position (Gehring et al. 2017; BERT, GPT)."""

    length: int = 512  # number of positions: no sequence may be longer


@dataclass(frozen=True)
class Sinusoidal:
    """Fixed sines and cosines, added to the token vectors (Vaswani et al. 2017, section 3.5)."""

    base: float = 10000.0  # the slowest wave has a length of about 2 pi times this


@dataclass(frozen=True)
class Rope:
    """Queries and keys are turned by an angle that grows with the position (Su et al. 2021)."""

    base: float = 10000.0  # pair i of components turns by base^(-2i / Dh) per position
    # Which components are a pair. True: 0 with 1, 2 with 3, ..., as in the paper.
    # False: i with i + Dh/2, as in GPT-NeoX.
    interleaved: bool = False


@dataclass(frozen=True)
class T5Buckets:
    """A trained number for each head and bucket of distances (Raffel et al. 2020, section 2.1)."""

    buckets: int = 32  # number of buckets: each near distance has its own, far distances share
    max_distance: int = 128  # from here on all distances share the last bucket
    # Whether left and right have buckets of their own. None: yes, unless the stack is causal.
    bidirectional: bool | None = None


@dataclass(frozen=True)
class Shaw:
    """Trained vectors for distances, added to keys and values (Shaw et al. 2018, section 3.2)."""

    clip: int = 16  # a larger distance is treated as this one


@dataclass(frozen=True)
class Alibi:
    """A penalty on the score that grows with distance, faster in some heads (Press et al. 2022)."""


@dataclass(frozen=True)
class Disentangled:
    """Content and distance are two vectors (DeBERTa, He et al. 2021, section 3.1).

    A score is the sum of content with content and the two terms below.
    """

    clip: int = 512  # distances are clipped to [-clip, clip); each has a trained vector
    content_to_position: bool = True  # the query's content with the key's distance
    position_to_content: bool = True  # the query's distance with the key's content


@dataclass(frozen=True)
class Global:
    """A token may attend to all tokens. In a causal stack: to itself and all before it."""

    rope_base: float | None = None  # rotary base of these layers; None: the base of `Rope`


@dataclass(frozen=True)
class Window:
    """A token may attend to nearby tokens only (Beltagy et al. 2020, section 3.1)."""

    size: int  # the largest distance, to the left and to the right
    rope_base: float | None = None  # rotary base of these layers; None: the base of `Rope`


AttentionPattern = Global | Window
_PATTERNS: dict[str, type[Any]] = {"Global": Global, "Window": Window}

PositionConfig = NoPosition | Learned | Sinusoidal | Rope | T5Buckets | Shaw | Alibi | Disentangled
_POSITIONS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(PositionConfig)}

# `layers.ACTIVATIONS` has the functions, `families.fields` the names in public config.json files.
Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
# How the token vectors of a text become one vector: take the first token's or the last token's, or
# the mean or the maximum over all tokens.
Pool = Literal["first", "last", "mean", "max"]
# Kind of task: a label for one text, for two texts or for each token; the best of N texts; or the
# span of a text that answers a question.
Kind = Literal["single", "pair", "tagging", "choice", "span"]


@dataclass(frozen=True)
class EmbedConfig:
    """How token ids become vectors."""

    vocab: int  # V: number of different tokens
    # E: width of the token vectors. None: D. If given, a linear layer projects E to D (ALBERT).
    width: int | None = None
    segments: int = 0  # number of segments; BERT has two, for the first and the second text
    norm: bool = False  # normalise the sum of token, segment and position vector (BERT)
    scale: float = 1.0  # factor on the token vectors (sqrt(D) in the 2017 Transformer)


@dataclass(frozen=True)
class StackConfig:
    """A whole transformer stack."""

    # Sizes
    embed: EmbedConfig  # how token ids become vectors
    width: int  # D: width of the hidden states
    layers: int  # L: number of blocks
    heads: int  # H: attention heads of each block
    hidden: int  # width between the two layers of the feed-forward, often 4 D

    # Who attends to whom
    position: PositionConfig = field(default_factory=Learned)  # how the model knows the order
    causal: bool = False  # a token sees itself and earlier tokens only (decoders)
    # One pattern per layer. A shorter tuple repeats: (Global(), Window(64), Window(64)) makes every
    # third layer global, from the first.
    attention: tuple[AttentionPattern, ...] = (Global(),)

    # Norms
    # post: after each residual sum (2017, BERT, GPT-1); pre: before attention and before the
    # feed-forward (GPT-2, T5)
    norm: Literal["pre", "post"] = "post"
    first_norm: bool = True  # False: no norm before the first attention (ModernBERT)
    final_norm: bool = False  # one more norm after the last block (GPT-2, T5)
    rms: bool = False  # RMSNorm instead of LayerNorm (T5)
    eps: float = 1e-5  # added under the root of a norm, so that nothing is divided by 0

    # Parts of a block
    bias: bool = True  # linear layers and LayerNorms have a bias; T5 has none
    activation: Activation = "gelu"  # between the two layers of the feed-forward
    gated: bool = False  # the feed-forward multiplies by a second projection (T5 1.1)
    head_width: int | None = None  # Dh; None: D / H
    scale: bool = True  # divide the scores by sqrt(Dh); T5 does not
    cross: bool = False  # every block also attends to a memory (decoders of encoder-decoder models)
    shared: bool = False  # one block applied L times (ALBERT)

    # Training
    dropout: float = 0.1  # on the embedding and on what a block adds to the residual
    attention_dropout: float = 0.1  # on the attention weights
    activation_dropout: float = 0.0  # after the activation of the feed-forward (BART)
    embed_dropout: float | None = None  # on the embedding (GPT-2); None: the same as `dropout`
    init_std: float = 0.02  # standard deviation of the initial weights
    scaled_init: bool = False  # smaller initial weights where a layer adds to the residual (GPT-2)

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
        rates = [self.dropout, self.attention_dropout, self.activation_dropout]
        if self.embed_dropout is not None:
            rates.append(self.embed_dropout)
        outside = [rate for rate in rates if not 0 <= rate <= 1]
        if outside:
            raise CourseError(f"dropout is from 0 to 1, not {outside[0]}.")

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
        """Dh, the width of a head."""
        if self.head_width is not None:
            return self.head_width
        return self.width // self.heads

    @property
    def max_length(self) -> int | None:
        """The longest sequence in tokens; None if the position scheme has no limit."""
        return self.position.length if isinstance(self.position, Learned) else None

    def pattern(self, layer: int) -> AttentionPattern:
        """The attention pattern of a layer, counted from 0."""
        return self.attention[layer % len(self.attention)]

    @property
    def terms(self) -> int:
        """The number of dot products that are summed in a score: 1, or up to 3 in DeBERTa."""
        if not isinstance(self.position, Disentangled):
            return 1
        return 1 + self.position.content_to_position + self.position.position_to_content

    @property
    def score_factor(self) -> float:
        """The factor on the scores: 1 / sqrt(Dh), or 1 / sqrt(3 Dh) for DeBERTa's 3 products."""
        if not self.scale:
            return 1.0
        return (self.terms * self.dh) ** -0.5


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every field of a nested config by its dotted name.

    "position" is the name of the scheme's class, "position.length" a field of that scheme.
    """
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
    """The fields in which two models differ: dotted name -> (value in a, value in b).

    A value is None where that model has no such field.

    >>> small = StackConfig(EmbedConfig(vocab=100), width=8, layers=2, heads=2, hidden=32)
    >>> deep = StackConfig(EmbedConfig(vocab=100), width=8, layers=4, heads=2, hidden=32)
    >>> diff(small, deep)
    {'layers': (2, 4)}
    """
    left = flatten(a)
    right = flatten(b)
    order = [item.name for item in fields(a)]
    names = sorted(left | right, key=lambda name: order.index(name.split(".")[0]))
    differences = {}
    for name in names:
        pair = left.get(name), right.get(name)
        if pair[0] != pair[1]:
            differences[name] = pair
    return differences


def with_dropout(config: StackConfig, rate: float) -> StackConfig:
    """The same model with this dropout rate instead of its own rates.

    `activation_dropout` stays 0 where the model has none.
    """
    activation_dropout = rate if config.activation_dropout else 0.0
    return replace(
        config,
        dropout=rate,
        attention_dropout=rate,
        activation_dropout=activation_dropout,
        embed_dropout=None,
    )


# Fields that StackConfig got after the first checkpoints were saved. `to_dict` writes them only if
# they differ from their default, so that the config files of older models do not change.
_ADDED_FIELDS = {
    "attention": (Global(),),
    "first_norm": True,
    "activation_dropout": 0.0,
    "embed_dropout": None,
}


def to_dict(config: StackConfig) -> dict[str, Any]:
    """A dict for a JSON file; `from_dict` makes an equal config of it."""
    values = asdict(config)
    values["position"] = _with_kind(config.position)
    values["attention"] = [_with_kind(pattern) for pattern in config.attention]
    for name, default in _ADDED_FIELDS.items():
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
