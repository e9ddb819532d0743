"""Text from a language model: greedy, sampled or by beam search, one cached step a token.

`stream` is the loop to read; `generate` collects it. The cache of keys and values lives here, not
in the model. An encoder-decoder (`seq2seq.Seq2SeqLM`) reads its sources once and continues its
start token."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model.attention import KVCache
from course_lib.model.config import Learned, StackConfig
from course_lib.model.layers import evaluating
from course_lib.model.seq2seq import Seq2SeqLM
from course_lib.objectives.collate import pad_to_longest

_Model = TypeVar("_Model", bound=nn.Module)
NEVER = -1e9  # the score of a beam that must not win; unlike -inf it can still be compared


def left_pad(
    rows: Sequence[Sequence[int]], pad: int = 0
) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Prompts of different lengths as one batch: (ids, attention_mask), padded so that all continue
    at one column.
    """
    if not rows or not all(len(row) for row in rows):
        raise CourseError(
            "Every prompt needs at least one token; give the start token if there is no text."
        )
    batch = pad_to_longest(rows, pad, left=True)
    return batch["ids"], batch["attention_mask"]


@dataclass(frozen=True)
class GenerationConfig:
    """How tokens are chosen and where a text ends. do_sample: draw from `next_distribution`; else
    take the likeliest. num_beams: above 1, follow so many beginnings to the best sum of log
    probabilities / length ** length_penalty. eos: ends a row, not before `min_new_tokens`; the rest
    of it is filled with `pad` (with eos if pad is None)."""

    max_new_tokens: int
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    num_beams: int = 1
    length_penalty: float = 1.0
    min_new_tokens: int = 0
    eos: int | None = None
    pad: int | None = None

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1 or self.num_beams < 1:
            got = f"{self.max_new_tokens} and {self.num_beams}"
            raise CourseError(f"max_new_tokens and num_beams are at least 1; got {got}.")
        if not self.do_sample and (self.temperature, self.top_k, self.top_p) != (1.0, None, None):
            raise CourseError(
                "temperature, top_k and top_p change only how tokens are drawn; add do_sample=True."
            )
        if self.do_sample and self.num_beams > 1:
            raise CourseError("Beam search draws nothing: leave out do_sample, or set num_beams=1.")

    @property
    def filler(self) -> int:
        return (self.eos or 0) if self.pad is None else self.pad

    def allowed(self, scores: Float[Tensor, "B V"], step: int) -> Float[Tensor, "B V"]:
        """Scores of the next token where `step` tokens are new: -inf for an end that would come too
        soon.
        """
        if self.eos is None or step >= self.min_new_tokens:
            return scores
        return scores.index_fill(1, torch.tensor([self.eos], device=scores.device), -torch.inf)


def next_distribution(
    logits: Float[Tensor, "*B V"],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Float[Tensor, "*B V"]:
    """Probabilities of the next token, float32; tokens left out have exactly 0. temperature:
    divides the logits. top_k: keep the k likeliest tokens (Fan et al. 2018, section 5.1). top_p: of
    those, keep the smallest set whose probability reaches p (Holtzman et al. 2020, section 3.1)."""
    if (
        not temperature > 0
        or (top_k is not None and top_k < 1)
        or (top_p is not None and not 0 < top_p <= 1)
    ):
        limits = (
            "temperature is above 0 (greedy choice is the limit at 0), top_k at least 1, top_p"
            " above 0, at most 1"
        )
        raise CourseError(f"{limits}; got {temperature}, {top_k} and {top_p}.")
    logits = logits.float() / temperature
    if top_k is None and top_p is None:
        return logits.softmax(dim=-1)
    size = logits.shape[-1]
    # likeliest first
    values, tokens = logits.topk(size if top_k is None else min(top_k, size), dim=-1)
    probs = values.softmax(dim=-1)
    if top_p is not None:
        before = probs.cumsum(dim=-1) - probs  # what the likelier ones already reach
        probs = probs.masked_fill(before >= top_p, 0.0)
        probs = probs / probs.sum(dim=-1, keepdim=True)
    return torch.zeros_like(logits).scatter(-1, tokens, probs)


def draw(
    distribution: Float[Tensor, "B V"], generator: torch.Generator | None = None
) -> Int[Tensor, " B"]:
    """One token a row. Drawn on the generator's device, so that a seed gives the same text on every
    device.
    """
    device = distribution.device if generator is None else generator.device
    return torch.multinomial(distribution.to(device), 1, generator=generator)[:, 0].to(
        distribution.device
    )


class State:
    """The tokens so far, which of them are real, and the cache; `copies` rows for each prompt, next
    to each other. The prompts of an encoder-decoder are its sources, read here once, and each text
    begins with its start token."""

    def __init__(
        self,
        model: nn.Module,
        ids: Int[Tensor, "B T"],
        attention_mask: Bool[Tensor, "B T"] | None,
        cache: bool,
        max_new_tokens: int,
        copies: int,
    ) -> None:
        if ids.dim() != 2 or 0 in ids.shape or ids.is_floating_point():
            has = "with at least one row and one column"
            raise CourseError(f"ids must be token numbers [B, T] {has}, not {list(ids.shape)}.")
        self.parts = list(model.modules())
        if isinstance(model, Seq2SeqLM):
            start = ids.new_full((len(ids), 1), model.stack.start)
            with evaluating(self.parts), torch.no_grad():
                model, ids, attention_mask = model.given(ids, attention_mask), start, None
        config, longest = causal_config(model), ids.shape[1]
        check_positions(
            config,
            longest + max_new_tokens - 1,
            f"The prompt's {longest} tokens and {max_new_tokens} new",
        )
        if attention_mask is not None and attention_mask.shape != ids.shape:
            raise CourseError(
                f"attention_mask is {list(attention_mask.shape)}, the prompts are"
                f" {list(ids.shape)}."
            )
        if attention_mask is not None and not attention_mask[:, -1].all():
            raise CourseError(
                "A prompt ends in padding; pad on the left (left_pad) so that text follows text."
            )

        self.model, self.rows, self.copies, self.prompt = model, len(ids) * copies, copies, longest
        self.length, self.max_length = self.prompt, self.prompt + max_new_tokens
        self.seen = 0  # columns whose keys and values the cache holds
        self.text = nn.functional.pad(ids.repeat_interleave(copies, dim=0), (0, max_new_tokens))
        self.attention_mask: Tensor | None = None
        if attention_mask is not None and not attention_mask.all():
            attention_mask = attention_mask.bool().repeat_interleave(copies, dim=0)
            self.attention_mask = nn.functional.pad(attention_mask, (0, max_new_tokens), value=True)
        self.cache = KVCache(config.layers, self.max_length) if cache else None

    @property
    def so_far(self) -> Int[Tensor, "B T"]:
        return self.text[:, : self.length]

    def logits(self) -> Float[Tensor, "B V"]:
        """Next-token logits of every row, in float32. With a cache only what it lacks is
        computed.
        """
        # copies share their prompt
        every = self.copies if self.cache is not None and self.length == self.prompt else 1
        new = self.text[::every, self.seen : self.length]
        if self.cache is not None:
            self.seen = self.length
        attention_mask = (
            None if self.attention_mask is None else self.attention_mask[::every, : self.length]
        )
        at = None
        if new.shape[1] > 1:  # the output matrix only for the last position
            at = torch.zeros_like(new, dtype=torch.bool)
            at[:, -1] = True
        with evaluating(self.parts), torch.no_grad():
            logits: Tensor = self.model(
                new, attention_mask=attention_mask, cache=self.cache, loss_mask=at
            )
        logits = logits.view(len(new), -1).float()
        if self.cache is None or every == 1:
            return logits
        rows = torch.arange(len(new), device=new.device).repeat_interleave(every)
        for layer in self.cache.own:
            layer.reorder(rows)
        return logits.index_select(0, rows)

    def append(self, token: Int[Tensor, " B"]) -> None:
        self.text[:, self.length] = token
        self.length += 1

    def reorder(self, rows: Int[Tensor, " B"]) -> None:
        """Continue with these rows instead, each of the same prompt: what beams share stays."""
        self.text = self.text.index_select(0, rows)
        if self.cache is not None:
            for layer in self.cache.own:
                layer.reorder(rows, since=self.prompt)


def causal_config(model: nn.Module) -> StackConfig:
    """The configuration of a language model that continues text."""
    config = getattr(getattr(model, "stack", None), "config", None)
    if not isinstance(config, StackConfig) or not config.causal:
        raise CourseError(
            f"{type(model).__name__} continues no text; give a causal model with heads.LM."
        )
    return config


def check_positions(config: StackConfig, needed: int, what: str) -> None:
    """Refuse a text longer than the positions that a model has learned."""
    if isinstance(config.position, Learned) and needed > config.position.length:
        raise CourseError(
            f"{what} take {needed} positions, and this model has learned {config.position.length}."
        )


class Next(NamedTuple):
    """One step of `stream`: a token a row, and the probabilities it was chosen from."""

    token: Int[Tensor, " B"]
    distribution: Float[Tensor, "B V"]


class Generated(NamedTuple):
    """A prompt's texts next to each other, after beam search the best first. scores: the sum of the
    new tokens' log probabilities up to the end token, in nats; of beam search as `length_penalty`
    has it."""

    ids: Int[Tensor, "BR T+new"]
    scores: Float[Tensor, " BR"]


def generate(model: nn.Module, ids: Int[Tensor, "B T"], **options: Any) -> Int[Tensor, "B T+new"]:
    """Continue each row of `ids`, padded on the left (`left_pad`), by a causal model (`heads.LM`);
    or generate, start token included, an encoder-decoder's (`seq2seq.Seq2SeqLM`) targets of sources
    padded on either side.

    options: the fields of `GenerationConfig` (max_new_tokens, do_sample, top_p, num_beams, eos,
    ...); attention_mask: Bool[B T], True at the real tokens; generator; cache: False computes every
    position anew at every step."""
    return generate_several(model, ids, 1, scored=False, **options).ids


def generate_several(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    num_return_sequences: int,
    *,
    cache: bool = True,
    scored: bool = True,
    attention_mask: Bool[Tensor, "B T"] | None = None,
    generator: torch.Generator | None = None,
    **options: Any,
) -> Generated:
    """`generate`, with so many draws for each prompt, or the best so many of a beam search, and
    their scores; scored: False leaves those of greedy and drawn texts at 0, which spares a softmax
    a token."""
    config = GenerationConfig(**options)
    if (
        not 1
        <= num_return_sequences
        <= (num_return_sequences if config.do_sample else config.num_beams)
    ):
        raise CourseError(
            f"num_return_sequences is {num_return_sequences}; set do_sample, or as large a"
            " num_beams."
        )
    body: Any = getattr(model, "stack", None)  # causal, or both stacks of an encoder-decoder
    if body is not None and config.num_beams > max((size := body.config.embed.vocab) // 2, 1):
        raise CourseError(
            f"{config.num_beams} beams are too many for a vocabulary of {size}; use at most"
            f" {size // 2}."
        )
    copies = config.num_beams if config.num_beams > 1 else num_return_sequences
    with torch.inference_mode():
        state = State(model, ids, attention_mask, cache, config.max_new_tokens, copies)
        if config.num_beams > 1:
            found = beam_search(state, config, num_return_sequences)
        else:
            total = torch.zeros(state.rows, device=ids.device)
            is_open = torch.ones_like(total, dtype=torch.bool)
            for token, distribution in _steps(state, config, generator, scored):
                if scored:
                    total += distribution.gather(1, token[:, None])[:, 0].log().where(is_open, 0.0)
                    is_open = is_open if config.eos is None else is_open & (token != config.eos)
            found = state.so_far, total
    return Generated(*(x.clone() for x in found))  # a copy made out here may be trained on


def stream(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    *,
    attention_mask: Bool[Tensor, "B T"] | None = None,
    generator: torch.Generator | None = None,
    **options: Any,
) -> Iterator[Next]:
    """`generate`, greedy or drawn, one token of every row at a time, each with the distribution it
    comes from.
    """
    config = GenerationConfig(**options)
    if config.num_beams > 1:
        raise CourseError("A beam search knows its text only at the end; use generate.")
    return _steps(
        State(model, ids, attention_mask, True, config.max_new_tokens, 1), config, generator
    )


def _steps(
    state: State, config: GenerationConfig, generator: torch.Generator | None, scored: bool = True
) -> Iterator[Next]:
    ended = torch.zeros(state.rows, dtype=torch.bool, device=state.text.device)
    while state.length < state.max_length:
        step = state.length - state.prompt
        distribution = logits = config.allowed(state.logits(), step)
        if scored or config.do_sample:  # otherwise nobody reads it
            distribution = next_distribution(logits, config.temperature, config.top_k, config.top_p)
        token = draw(distribution, generator) if config.do_sample else logits.argmax(dim=-1)
        may_end = config.eos is not None and step >= config.min_new_tokens
        if may_end:
            token = token.masked_fill(ended, config.filler)
            ended = ended | (token == config.eos)
        state.append(token)
        yield Next(token, distribution)
        if may_end and bool(ended.all()):
            return


def beam_search(
    state: State, config: GenerationConfig, returned: int
) -> tuple[Int[Tensor, "BR T+new"], Float[Tensor, " BR"]]:
    """The `returned` best texts of each prompt, best first, and their scores.

    Rows b * beams ... (b + 1) * beams - 1 of the state are the beams of prompt b, best first. A
    prompt is open until `beams` of its texts have ended and no beam has, at today's length, a
    better score than the worst of them."""
    beams, penalty = config.num_beams, config.length_penalty
    prompts, device = state.rows // beams, state.text.device
    scores = torch.full((prompts, beams), NEVER, device=device)
    scores[:, 0] = 0.0  # all beams begin equal: let one speak
    # (score, text), best first
    done: list[list[tuple[float, Tensor]]] = [[] for _ in range(prompts)]
    is_open = [True] * prompts
    first_row = torch.arange(prompts, device=device)[:, None] * beams

    for step in range(1, config.max_new_tokens + 1):
        last = step == config.max_new_tokens
        log_probs = config.allowed(state.logits().log_softmax(dim=-1), step - 1)
        total = log_probs.view(prompts, beams, -1) + scores[..., None]
        size = total.shape[-1]
        # Twice as many as needed: if every beam's best token is eos, as many are left to go on
        # with.
        best, flat = total.flatten(1).topk(2 * beams)
        row, token = first_row + flat // size, flat % size
        ended = torch.full_like(token, last, dtype=torch.bool)
        if config.eos is not None:
            ended = ended | (token == config.eos)

        final = best / step**penalty
        for prompt, place in ended[:, :beams].nonzero().tolist():
            if is_open[prompt]:
                text = torch.cat((state.so_far[row[prompt, place]], token[prompt, place][None]))
                done[prompt].append((final[prompt, place].item(), text))
        for prompt in range(prompts):
            done[prompt] = sorted(done[prompt], key=lambda pair: -pair[0])[:beams]

        scores, chosen = (best + ended * NEVER).topk(beams)
        hope = (scores[:, 0] / step**penalty).tolist()
        is_open = [
            was and (len(d) < beams or h > d[-1][0])
            for was, d, h in zip(is_open, done, hope, strict=True)
        ]
        if last or not any(is_open):
            break
        state.reorder(row.gather(1, chosen).flatten())
        state.append(token.gather(1, chosen).flatten())

    best_of_all = [pair for found in done for pair in found[:returned]]
    texts = nn.utils.rnn.pad_sequence(
        [text for _, text in best_of_all], batch_first=True, padding_value=config.filler
    )
    return texts, torch.tensor([score for score, _ in best_of_all], device=device)


def bf16_copy(model: _Model) -> _Model:
    """The same model, for reading only, with weights in bfloat16, which arrive twice as fast;
    buffers stay float32.
    """
    other = deepcopy(model).eval().requires_grad_(False)
    for weight in other.parameters():
        weight.data = weight.data.to(torch.bfloat16)
    return other
