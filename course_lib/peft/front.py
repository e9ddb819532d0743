"""Vectors that no token has, in front of a frozen model's text; they alone are trained.

Prefix tuning (Li & Liang 2021): keys and values in every layer, a cache filled beforehand. Prompt tuning (Lester et
al. 2021): token vectors at the input. Either is a `Stack` that shares the given one's parts and names, so every head,
`finetune` and `generate` take it as they take any other. `keep` and masks speak of the text alone.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.attention import KVCache
from course_lib.errors import CourseError
from course_lib.peft.inject import Added, freeze
from course_lib.seq2seq import EncoderDecoder
from course_lib.stack import Stack

Model = TypeVar("Model", bound=nn.Module)
Words = Sequence[int] | Tensor


class Front(Stack):
    """A stack with `length` positions in front of every text."""

    length: int

    def __init__(self, stack: Stack) -> None:
        nn.Module.__init__(self)
        if isinstance(stack, Front):
            raise CourseError("This stack has a prefix or a prompt in front already.")
        self.config, self.embed, self.position = stack.config, stack.embed, stack.position
        self.blocks, self.norm, self.training = stack.blocks, stack.norm, stack.training
        freeze(self)

    def _with_front(self, x: Tensor, cache: KVCache | None, options: dict[str, Any]) -> dict[str, Any]:
        """`keep` and `mask` of the text, with True for what stands in front of it."""
        past = cache.length if cache is not None else 0
        total = (past or self.length) + x.shape[1]
        for name in ("keep", "mask"):
            given = options.get(name)
            if given is not None and given.shape[-1] == total - self.length:
                options = options | {name: nn.functional.pad(given.bool(), (self.length, 0), value=True)}
        return options


class Prefix(Added):
    """Keys and values of P positions for L layers.

    table: Float[P, L * 2 * W], W = H * Dh; of each layer first the keys, then the values. With `hidden`, what is
    trained is a smaller table and a network that makes the large one of it: MLP(P'), one tanh layer (equation 3).
    """

    def __init__(self, length: int, size: int, narrow: int, hidden: int | None, std: float) -> None:
        super().__init__()
        self.network: nn.Sequential | None = None
        if hidden is None:
            self.weight = nn.Parameter(std * torch.randn(length, size))
        else:
            self.weight = nn.Parameter(torch.randn(length, narrow))
            self.network = nn.Sequential(nn.Linear(narrow, hidden), nn.Tanh(), nn.Linear(hidden, size))

    @property
    def table(self) -> Float[Tensor, "P S"]:
        """All keys and values."""
        out: Tensor = self.weight if self.network is None else self.network(self.weight)
        return out

    @torch.no_grad()
    def fold(self) -> None:
        """Keep the table alone: once trained, the network is not needed (section 4.3)."""
        self.weight, self.network = nn.Parameter(self.table.clone()), None


class Prefixed(Front):
    """A stack whose layers attend to a prefix beside their own positions."""

    def __init__(self, stack: Stack, prefix: Prefix) -> None:
        super().__init__(stack)
        self.prefix = prefix
        self.length = len(prefix.weight)

    def cache(self, rows: int = 1) -> KVCache:
        """The prefix as a cache of `rows` rows, for `generate(model, ids, cache=...)` of the model without it, too."""
        config = self.config
        parts = self.prefix.table.view(self.length, config.layers, 2, config.heads, config.dh)
        cache = KVCache(config.layers)
        for layer, own in enumerate(cache.own):
            own.k, own.v = parts[:, layer].permute(1, 2, 0, 3).unsqueeze(1).expand(-1, rows, -1, -1, -1)  # B H P Dh
        return cache

    def run(self, x: Float[Tensor, "B T E"], *, cache: KVCache | None = None, **more: Any) -> Float[Tensor, "B T D"]:
        """As `Stack.run`. A cache that is empty gets the prefix first; one that is not holds it already."""
        options = self._with_front(x, cache, more)
        if cache is None:
            cache = self.cache(len(x))
        elif cache.length == 0:
            cache.own = self.cache(len(x)).own
        return super().run(x, cache=cache, **options)


class Prompt(Added):
    """P token vectors, Float[P, E]."""

    def __init__(self, vectors: Float[Tensor, "P E"]) -> None:
        super().__init__()
        self.weight = nn.Parameter(vectors.detach().clone())


class Prompted(Front):
    """A stack that reads the prompt's vectors before every text.

    whole: also return the prompt's hidden states, [B, P + T, D], in front of the text's. For an encoder whose decoder
    shall see them.
    """

    def __init__(self, stack: Stack, prompt: Prompt, *, whole: bool = False) -> None:
        super().__init__(stack)
        self.prompt, self.whole = prompt, whole
        self.length = len(prompt.weight)

    def run(
        self, x: Float[Tensor, "B T E"], *, segments: Int[Tensor, "B T"] | None = None,
        cache: KVCache | None = None, **more: Any,
    ) -> Float[Tensor, "B T D"]:  # fmt: skip
        """As `Stack.run`. A cache that is not empty has read the prompt already. The prompt is of segment 0."""
        options = self._with_front(x, cache, more)
        if cache is not None and cache.length:
            return super().run(x, segments=segments, cache=cache, **options)
        if (mask := options.get("mask")) is not None and mask.shape[-2] == x.shape[1]:
            raise CourseError("A prompt's stack takes no mask; leave it out and give keep.")
        x = torch.cat((self.prompt.weight.to(x.dtype).expand(len(x), -1, -1), x), dim=1)
        if segments is not None:
            segments = nn.functional.pad(segments, (self.length, 0))
        h = super().run(x, segments=segments, cache=cache, **options)
        return h if self.whole else h[:, self.length :]


def prefix(
    model: Model, length: int = 10, *, hidden: int | None = None, words: Words | None = None, std: float = 0.02
) -> Model:
    """Freeze the model and put a trained prefix before the keys and values of every layer.

    Args:
        model: a Stack gives a `Prefixed` one; in a model that owns a stack (or an encoder and a decoder, each then with
            a prefix of its own) it takes the stack's place, and the model is returned.
        length: positions P. With learned positions the text begins at position P, so P fewer tokens fit
            (`finetune(..., max_length=...)`).
        hidden: width of the network that makes the prefix while it is trained (the paper: 512 or 800); None: the keys
            and values are the parameters themselves, drawn with standard deviation `std`.
        words: token ids; the prefix starts as the keys and values of their hidden states (section 7.4), so the model
            starts as one that has read them. `length` is then their number.

    Known departure: decoders get no prefix in their cross-attention.

    Raises:
        CourseError: a length below one, `words` together with `hidden`.
    """
    if words is not None and hidden is not None:
        raise CourseError("words set the keys and values themselves; leave hidden out, or words.")
    _check(length, words)

    def before(stack: Stack) -> Prefixed:
        config, table = stack.config, stack.embed.tokens.weight
        size = config.layers * 2 * config.heads * config.dh
        count = length if words is None else len(words)
        made = Prefixed(stack, Prefix(count, size, config.width, hidden, std).to(table))
        if words is not None:
            _read_words(made, words)
        return made

    return in_front(model, before, sides=("encoder", "decoder"))


def prompt(
    model: Model, length: int = 20, *, words: Words | None = None, start: Literal["words", "uniform"] = "words"
) -> Model:
    """Freeze the model and let it read `length` trained vectors before every text.

    Args:
        model: as for `prefix`; of an encoder-decoder the encoder's.
        words: token ids whose vectors the prompt starts from, repeated or cut to the length: a text, the names of the
            labels (section 3.2).
        start: without `words`: vectors of random tokens, or numbers drawn from [-0.5, 0.5].

    Raises:
        CourseError: a length below one, a token outside the vocabulary.
    """
    _check(length, words)

    def before(stack: Stack, *, whole: bool = False) -> Prompted:
        table = stack.embed.tokens.weight.detach()
        if words is not None:
            ids = torch.as_tensor(words, device=table.device).repeat(-(-length // len(words)))[:length]
            vectors = stack.embed.lookup(ids)
        elif start == "words":
            vectors = table[torch.randint(len(table), (length,), device=table.device)]
        else:
            vectors = torch.rand(length, table.shape[1], device=table.device, dtype=table.dtype) - 0.5
        return Prompted(stack, Prompt(vectors), whole=whole)

    if isinstance(getattr(model, "stack", model), EncoderDecoder):
        return in_front(model, lambda stack: before(stack, whole=True), sides=("encoder",))
    return in_front(model, before)


def in_front(model: Model, before: Callable[[Stack], Front], sides: Sequence[str] = ()) -> Model:
    """Put `before(stack)` in the place of the model's stack; in an encoder-decoder, of the stacks at these sides."""
    if isinstance(model, Stack):
        return cast(Model, before(model))
    body = getattr(model, "stack", model)
    owner, names = (body, sides) if isinstance(body, EncoderDecoder) else (model, ("stack",))
    for name in names:
        stack = getattr(owner, name, None)
        if not isinstance(stack, Stack):
            raise CourseError(f"A {type(model).__name__} owns no Stack in front of which something could stand.")
        setattr(owner, name, before(stack))
    freeze(model)
    return model


@torch.no_grad()
def _read_words(stack: Prefixed, words: Words) -> None:
    if stack.config.cross:
        raise CourseError("A decoder with cross-attention has no hidden states without a source; leave words out.")
    ids = torch.as_tensor(words, device=stack.prefix.weight.device)[None]
    cache, training = KVCache(stack.config.layers), stack.training
    stack.eval()
    Stack.run(stack, stack.embed.lookup(ids), cache=cache)
    stack.train(training)
    pairs = [torch.stack((cast(Tensor, own.k)[0], cast(Tensor, own.v)[0])) for own in cache.own]  # 2 H P Dh
    stack.prefix.weight.copy_(torch.stack(pairs).permute(3, 0, 1, 2, 4).flatten(1))


def _check(length: int, words: Words | None) -> None:
    if length < 1 or (words is not None and len(words) < 1):
        raise CourseError("What stands in front needs at least one position; give a length of at least 1.")
