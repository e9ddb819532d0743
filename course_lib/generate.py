"""Text from a language model: greedy, sampled or by beam search, one cached step a token.

`stream` is the loop to read; `generate` collects it. The cache of keys and values lives here, not in the model.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.attention import KVCache
from course_lib.config import Learned, StackConfig
from course_lib.errors import CourseError
from course_lib.few_rows import FewRows

Model = TypeVar("Model", bound=nn.Module)


class Next(NamedTuple):
    """One step of `stream`. token: Int[B]. distribution: Float[B, V], the probabilities it was chosen from."""

    token: Int[Tensor, " B"]
    distribution: Float[Tensor, "B V"]


def generate(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    *,
    max_new_tokens: int,
    do_sample: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    num_beams: int = 1,
    length_penalty: float = 1.0,
    eos: int | None = None,
    pad: int | None = None,
    keep: Bool[Tensor, "B T"] | None = None,
    cache: bool | KVCache = True,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "B T+new"]:
    """Continue each row of `ids`; greedily unless told otherwise.

    Args:
        model: a causal language model (`heads.LM`).
        ids: prompts; shorter ones are padded on the left (`left_pad`), and `keep` is True at their real tokens.
        max_new_tokens: at most so many are added.
        do_sample: draw from `next_distribution(logits, temperature, top_k, top_p)`; else take the likeliest token.
        num_beams: above 1, beam search: the continuation with the best sum of log probabilities divided by
            length ** length_penalty, among the so many best beginnings followed at each step.
        eos: token that ends a row; the rest of it is filled with `pad` (with eos if pad is None).
        cache: False computes every position anew at every step. A KVCache filled beforehand (a prefix; of B rows
            or of one that serves all) stands before the prompt and is left as it was; `keep` then spans it too.
        generator: makes the draws reproducible.

    Returns: prompts and continuations; as wide as the longest of them.

    Raises:
        CourseError: more positions than the model has, padding on the right, options that contradict each other.

    >>> generate(model, ids, max_new_tokens=20, do_sample=True, top_p=0.9, eos=1)   # doctest: +SKIP
    """
    if num_beams > 1 and (do_sample or generator is not None):
        raise CourseError("Beam search draws nothing: leave out do_sample and generator, or set num_beams=1.")
    _check_sampling(do_sample, temperature, top_k, top_p)
    if num_beams > 1:
        state = _State(model, ids, keep, cache, max_new_tokens, copies=num_beams)
        return _beam_search(state, max_new_tokens, num_beams, length_penalty, eos, eos if pad is None else pad)
    if num_beams < 1:
        raise CourseError(f"num_beams is {num_beams}; it must be at least 1.")
    state = _State(model, ids, keep, cache, max_new_tokens)
    steps = _steps(state, max_new_tokens, do_sample, temperature, top_k, top_p, eos, pad, generator, show=False)
    return torch.cat([ids, *(step.token[:, None] for step in steps)], dim=1)


def stream(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    *,
    max_new_tokens: int,
    do_sample: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    eos: int | None = None,
    pad: int | None = None,
    keep: Bool[Tensor, "B T"] | None = None,
    cache: bool | KVCache = True,
    generator: torch.Generator | None = None,
) -> Iterator[Next]:
    """The same, one token of every row at a time, each with the distribution it comes from.

    Arguments and errors as for `generate`. Greedy choice shows the model's own distribution.

    >>> for token, distribution in stream(model, ids, max_new_tokens=5):   # doctest: +SKIP
    ...     print(int(token[0]), float(distribution.max()))
    """
    _check_sampling(do_sample, temperature, top_k, top_p)
    state = _State(model, ids, keep, cache, max_new_tokens)
    return _steps(state, max_new_tokens, do_sample, temperature, top_k, top_p, eos, pad, generator)


def _steps(
    state: "_State",
    max_new_tokens: int,
    do_sample: bool,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    eos: int | None,
    pad: int | None,
    generator: torch.Generator | None,
    show: bool = True,
) -> Iterator[Next]:
    """`show`: greedy choice needs no probabilities, but whoever looks on may want them."""
    ended = torch.zeros(state.rows, dtype=torch.bool, device=state.text.device)
    for _ in range(max_new_tokens):
        logits = state.logits()
        shown = do_sample or show
        distribution = next_distribution(logits, temperature, top_k, top_p) if shown else logits
        token = draw(distribution, generator) if do_sample else logits.argmax(dim=-1)
        if eos is not None:
            token = token.masked_fill(ended, eos if pad is None else pad)
            ended = ended | (token == eos)
        state.append(token)
        yield Next(token, distribution)
        if eos is not None and bool(ended.all()):
            return


def next_distribution(
    logits: Float[Tensor, "*B V"], temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Float[Tensor, "*B V"]:
    """Probabilities of the next token.

    Args:
        logits: of any float type. temperature: divides them; below 1 sharpens, above 1 flattens.
        top_k: keep the k likeliest tokens (Fan et al. 2018, section 5.1).
        top_p: of those, keep the smallest set whose probability reaches p (Holtzman et al. 2020, section 3.1).

    Returns: float32, each row adding up to 1; tokens left out have exactly 0.

    >>> next_distribution(torch.tensor([2.0, 1.0, 0.0]).log_softmax(-1), top_k=2).round(decimals=2).tolist()
    [0.73, 0.27, 0.0]
    """
    _check_sampling(True, temperature, top_k, top_p)
    logits = logits.float() / temperature
    if top_k is None and top_p is None:
        return logits.softmax(dim=-1)
    size = logits.shape[-1]
    values, tokens = logits.topk(size if top_k is None else min(top_k, size), dim=-1)  # likeliest first
    probs = values.softmax(dim=-1)
    if top_p is not None:
        before = probs.cumsum(dim=-1) - probs  # what the likelier ones already reach
        probs = probs.masked_fill(before >= top_p, 0.0)
        probs = probs / probs.sum(dim=-1, keepdim=True)
    return torch.zeros_like(logits).scatter(-1, tokens, probs)


def draw(distribution: Float[Tensor, "B V"], generator: torch.Generator | None = None) -> Int[Tensor, " B"]:
    """One token a row. Drawn on the generator's device, so that a seed gives the same text on every device."""
    device = distribution.device if generator is None else generator.device
    return torch.multinomial(distribution.to(device), 1, generator=generator)[:, 0].to(distribution.device)


def left_pad(rows: Sequence[Sequence[int]], pad: int = 0) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Prompts of different lengths as one batch: (ids, keep), padding on the left so that all continue at one column.

    >>> left_pad([[7, 8, 9], [5]])[0].tolist()
    [[7, 8, 9], [0, 0, 5]]
    """
    if not rows or not all(len(row) for row in rows):
        raise CourseError("Every prompt needs at least one token; give the start token if there is no text.")
    width = max(len(row) for row in rows)
    ids = torch.tensor([[pad] * (width - len(row)) + list(row) for row in rows])
    keep = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    return ids, keep


def bf16_copy(model: Model) -> Model:
    """The same model with weights in bfloat16: a step waits for the weights to arrive, and these are half as long.

    Buffers (frequencies, slopes) stay float32. For reading only; train the original.
    """
    other = deepcopy(model).eval().requires_grad_(False)
    for weight in other.parameters():
        weight.data = weight.data.to(torch.bfloat16)
    return other


def _beam_search(
    state: "_State", max_new_tokens: int, beams: int, penalty: float, eos: int | None, pad: int | None
) -> Tensor:
    """Rows b * beams ... (b + 1) * beams - 1 of the state are the beams of prompt b, best first."""
    prompts, device = state.rows // beams, state.text.device
    scores = torch.full((prompts, beams), -torch.inf, device=device)
    scores[:, 0] = 0.0  # all beams begin equal: let one speak
    done: list[list[tuple[float, Tensor]]] = [[] for _ in range(prompts)]  # (score, text), best first
    is_open = [True] * prompts
    first_row = torch.arange(prompts, device=device)[:, None] * beams

    for step in range(1, max_new_tokens + 1):
        total = state.logits().log_softmax(dim=-1).view(prompts, beams, -1) + scores[..., None]
        size = total.shape[-1]
        if 2 * beams > size:
            raise CourseError(f"{beams} beams are too many for a vocabulary of {size}; use at most {size // 2}.")
        # Twice as many as needed: if every beam's best token is eos, as many are left to go on with.
        best, flat = total.flatten(1).topk(2 * beams)
        row, token = first_row + flat // size, flat % size
        ended = torch.full_like(token, step == max_new_tokens, dtype=torch.bool)
        if eos is not None:
            ended = ended | (token == eos)

        final = best / step**penalty
        for prompt, place in ended[:, :beams].nonzero().tolist():
            if is_open[prompt]:
                text = torch.cat((state.text[row[prompt, place], : state.length], token[prompt, place][None]))
                done[prompt].append((final[prompt, place].item(), text))
                done[prompt] = sorted(done[prompt], key=lambda pair: -pair[0])[:beams]
        scores, chosen = best.masked_fill(ended, -torch.inf).topk(beams)
        hope = (scores[:, 0] / step**penalty).tolist()
        is_open = [o and (len(d) < beams or h > d[-1][0]) for o, d, h in zip(is_open, done, hope, strict=True)]
        if step == max_new_tokens or not any(is_open):
            break
        state.reorder(row.gather(1, chosen).flatten())
        state.append(token.gather(1, chosen).flatten())

    texts = [found[0][1] for found in done]
    return nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=pad or 0)


class _State:
    """A batch being continued: the tokens so far, which of them are real, and the cache."""

    def __init__(
        self,
        model: nn.Module,
        ids: Tensor,
        keep: Tensor | None,
        cache: bool | KVCache,
        max_new_tokens: int,
        copies: int = 1,
    ) -> None:
        config = _config(model)
        past = cache.length if isinstance(cache, KVCache) else 0
        _check_prompt(config, ids, keep, past, max_new_tokens)
        ids = ids.repeat_interleave(copies, dim=0)
        self.model, self.past = model, past
        self.rows, self.length = ids.shape
        self.text = nn.functional.pad(ids, (0, max_new_tokens))
        self.keep: Tensor | None = None
        if keep is not None and not keep.all():
            keep = keep.bool().repeat_interleave(copies, dim=0)
            self.keep = nn.functional.pad(keep, (0, max_new_tokens), value=True)
        self.cache: KVCache | None = None
        if isinstance(cache, KVCache):
            self.cache = cache.copy()
            held = 0 if cache.own[0].k is None else len(cache.own[0].k)
            if held not in (0, 1, self.rows // copies):
                raise CourseError(f"The cache holds {held} rows, the prompt {self.rows // copies}.")
            if held and held != self.rows:
                rows = torch.arange(self.rows, device=ids.device) // copies
                self.cache.reorder(rows if held > 1 else torch.zeros_like(rows))
        elif cache:
            self.cache = KVCache(config.layers)

    def logits(self) -> Float[Tensor, "B V"]:
        """Next-token logits of every row, in float32. With a cache only what it lacks is computed."""
        seen = 0 if self.cache is None else self.cache.length - self.past
        new = self.text[:, seen : self.length]
        keep = None if self.keep is None else self.keep[:, : self.past + self.length]
        at = None
        if new.shape[1] > 1:  # the output matrix only for the last position
            at = torch.zeros_like(new, dtype=torch.bool)
            at[:, -1] = True
        with _reading(self.model):
            logits: Tensor = self.model(new, keep=keep, cache=self.cache, at=at)
        return logits.view(self.rows, -1).float()

    def append(self, token: Int[Tensor, " B"]) -> None:
        self.text[:, self.length] = token
        self.length += 1

    def reorder(self, rows: Int[Tensor, " B"]) -> None:
        """Continue with these rows instead: `keep` stays, for beams of one prompt share it."""
        self.text = self.text[rows]
        if self.cache is not None:
            self.cache.reorder(rows)


@contextmanager
def _reading(model: nn.Module) -> Iterator[None]:
    """Inside the block no gradients, no dropout, products made for few rows; after it the model's mode is as before."""
    was_training = model.training
    if was_training:
        model.eval()
    try:
        with torch.no_grad(), FewRows():
            yield
    finally:
        if was_training:
            model.train()


def _config(model: nn.Module) -> StackConfig:
    config = getattr(getattr(model, "stack", None), "config", None)
    if not isinstance(config, StackConfig):
        raise CourseError(f"{type(model).__name__} is no language model of the course; use heads.LM over a Stack.")
    if not config.causal:
        raise CourseError("Only a causal model continues text; this one reads both sides (StackConfig.causal).")
    return config


def _check_prompt(config: StackConfig, ids: Tensor, keep: Tensor | None, past: int, new: int) -> None:
    if ids.dim() != 2 or ids.shape[1] == 0 or ids.is_floating_point():
        raise CourseError(f"ids must be token numbers [B, T] with at least one column, not {list(ids.shape)}.")
    if new < 1:
        raise CourseError(f"max_new_tokens is {new}; it must be at least 1.")
    longest = past + ids.shape[1]
    if keep is not None:
        if keep.shape != (len(ids), longest):
            raise CourseError(f"keep is {list(keep.shape)}, but cache and prompt together are {[len(ids), longest]}.")
        if not keep[:, -1].all():
            raise CourseError(
                "A prompt ends in padding; pad on the left (generate.left_pad) so that text follows text."
            )
    # The last new token is never fed back, hence the - 1.
    if isinstance(config.position, Learned) and longest + new - 1 > (length := config.position.length):
        raise CourseError(
            f"The prompt's {longest} tokens and {new} new ones go beyond the {length} positions that this model has "
            f"learned; ask for at most {max(0, length - longest + 1)} or shorten the prompt."
        )


def _check_sampling(do_sample: bool, temperature: float, top_k: int | None, top_p: float | None) -> None:
    if not do_sample and (temperature != 1.0 or top_k is not None or top_p is not None):
        raise CourseError("temperature, top_k and top_p change only how tokens are drawn; add do_sample=True.")
    if not temperature > 0:
        raise CourseError(f"temperature is {temperature}; it must be above 0 (do_sample=False is the limit at 0).")
    if top_k is not None and top_k < 1:
        raise CourseError(f"top_k is {top_k}; keep at least 1 token, or give None for all.")
    if top_p is not None and not 0 < top_p <= 1:
        raise CourseError(f"top_p is {top_p}; it is a probability above 0 and at most 1.")
