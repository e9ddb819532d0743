"""Greedy decoding and sampling, token by token. Beam search is in beam.py.

    ids, mask = left_pad(tokenizer.ids(["In the kitchen", "Then"], special=False))
    generate(model, ids, attention_mask=mask, max_new_tokens=20)     [2, T + 20]: both, continued
    stream(model, ids, attention_mask=mask, max_new_tokens=20)       one step for each new token

Both functions run the loop in `_steps`.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.generation.beam import beam_search
from course_lib.generation.config import GenerationConfig
from course_lib.generation.filters import Filter, by_name
from course_lib.generation.state import State

_Model = TypeVar("_Model", bound=nn.Module)


class Next(NamedTuple):
    """One step of `stream`: the next token of each row, and the distribution it was drawn from."""

    token: Int[Tensor, " B"]
    distribution: Float[Tensor, "B V"]


class Generated(NamedTuple):
    """R texts for each of B prompts, in adjacent rows. With beam search the best is first.

    Attributes:
        ids: each prompt with its new tokens.
        scores: the sum of the new tokens' log probabilities up to the end token, in nats. In a beam
            search it is divided by length ** length_penalty.
    """

    ids: Int[Tensor, "BR T+new"]
    scores: Float[Tensor, " BR"]


def generate(model: nn.Module, ids: Int[Tensor, "B T"], **options: Any) -> Int[Tensor, "B T+new"]:
    """Continue each row of `ids`.

    Args:
        model: a causal model (`heads.LM`), which continues the prompts; or an encoder-decoder
            (`seq2seq.Seq2SeqLM`), which reads them as sources and writes targets.
        ids: prompts, padded on the left (`left_pad`). Sources may be padded on either side.
        options: the fields of `GenerationConfig` (max_new_tokens, do_sample, num_beams, eos, ...)
            and filters by name (top_p=0.9). Also:
            attention_mask: Bool[B T], True at the real tokens; by default all are real.
            generator: the random numbers for sampling.
            cache: False lets the model read all tokens again at every step.

    Returns:
        The prompts with their new tokens. An encoder-decoder's rows are the start token and the new
        tokens, without the sources.
    """
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
    """`generate`, with several texts for each prompt, and their scores.

    Args:
        model: a causal model, or an encoder-decoder.
        ids: prompts, padded on the left, or an encoder-decoder's sources.
        num_return_sequences: R, the number of texts to sample or to keep for each prompt.
        cache: False lets the model read all tokens again at every step.
        scored: False leaves the scores at 0, which saves a softmax at every step. Beam search
            has its scores anyway.
        attention_mask: True at the real tokens; by default all are real.
        generator: the random numbers for sampling.
        options: the fields of `GenerationConfig`, and filters by name (top_p=0.9).

    Raises:
        CourseError: the options ask for more texts or beams than are possible.
    """
    config = GenerationConfig.of(**options)
    _check_counts(config, num_return_sequences, model)
    is_beam_search = config.num_beams > 1
    with torch.inference_mode():
        state = State(
            model,
            ids,
            attention_mask,
            max_new_tokens=config.max_new_tokens,
            copies=config.num_beams if is_beam_search else num_return_sequences,
            cache=cache,
            graph=not is_beam_search,
        )
        if is_beam_search:
            texts, scores = beam_search(state, config, num_return_sequences)
        else:
            scores = torch.zeros(state.rows, device=ids.device)
            is_open = torch.ones_like(scores, dtype=torch.bool)
            for token, distribution in _steps(state, config, generator, scored):
                if scored:
                    probs = distribution.gather(1, token[:, None])[:, 0]
                    scores += probs.log().where(is_open, 0.0)
                    if config.eos is not None:  # the end token itself still counts
                        is_open = is_open & (token != config.eos)
            texts = state.so_far
    # PyTorch refuses to train on tensors that were made in inference mode. These copies are not.
    return Generated(texts.clone(), scores.clone())


def stream(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    *,
    attention_mask: Bool[Tensor, "B T"] | None = None,
    generator: torch.Generator | None = None,
    **options: Any,
) -> Iterator[Next]:
    """`generate`, greedy or by sampling, as an iterator over steps.

    Args:
        model: a causal model, or an encoder-decoder.
        ids: prompts, padded on the left, or an encoder-decoder's sources.
        attention_mask: True at the real tokens; by default all are real.
        generator: the random numbers for sampling.
        options: the fields of `GenerationConfig`, and filters by name (top_p=0.9).

    Raises:
        CourseError: the options ask for a beam search.
    """
    config = GenerationConfig.of(**options)
    if config.num_beams > 1:
        raise CourseError("A beam search knows its text only at the end; use generate.")
    state = State(model, ids, attention_mask, max_new_tokens=config.max_new_tokens, graph=True)
    return _steps(state, config, generator)


def next_distribution(
    logits: Float[Tensor, "*B V"], filters: Sequence[Filter] = (), **named: float | None
) -> Float[Tensor, "*B V"]:
    """The probabilities of the next token, in float32. A token that a filter removed has 0.

    Args:
        logits: the model's logits, of any precision.
        filters: functions of the logits, applied one after the other.
        named: filters by name, such as `top_p=0.9`. They are applied before `filters`.
    """
    logits = logits.float()
    for apply in [*by_name(**named), *filters]:
        logits = apply(logits)
    return logits.softmax(dim=-1)


def draw(
    distribution: Float[Tensor, "B V"], generator: torch.Generator | None = None
) -> Int[Tensor, " B"]:
    """Sample one token for each row.

    Sampling runs on the generator's device, so that a seed gives the same text on every device.
    """
    device = distribution.device if generator is None else generator.device
    token = torch.multinomial(distribution.to(device), 1, generator=generator)[:, 0]
    return token.to(distribution.device)


def bf16_copy(model: _Model) -> _Model:
    """A frozen copy of the model with weights in bfloat16; buffers stay float32.

    A step of generation reads every weight once, so half the bytes take about half the time.
    """
    copy = deepcopy(model).eval().requires_grad_(False)
    for weight in copy.parameters():
        weight.data = weight.data.to(torch.bfloat16)
    return copy


def _check_counts(config: GenerationConfig, num_return_sequences: int, model: nn.Module) -> None:
    is_too_many = num_return_sequences > config.num_beams and not config.do_sample
    if num_return_sequences < 1 or is_too_many:
        raise CourseError(
            f"num_return_sequences is {num_return_sequences}; set do_sample, or as large a"
            " num_beams."
        )
    stack: Any = getattr(model, "stack", None)  # a Transformer, or an EncoderDecoder
    if stack is None:
        return
    vocab = stack.config.embed.vocab
    if config.num_beams > max(vocab // 2, 1):
        raise CourseError(
            f"{config.num_beams} beams are too many for a vocabulary of {vocab}; use at most"
            f" {vocab // 2}."
        )


def _steps(
    state: State,
    config: GenerationConfig,
    generator: torch.Generator | None,
    needs_distribution: bool = True,
) -> Iterator[Next]:
    """Yield one step for each new token.

    Args:
        state: the texts so far.
        config: the options.
        generator: the random numbers for sampling.
        needs_distribution: False saves the softmax of a greedy step. The step then has the logits
            in the field `distribution`.
    """
    has_ended = torch.zeros(state.rows, dtype=torch.bool, device=state.text.device)
    while state.length < state.max_length:
        may_end = config.eos is not None and state.new_tokens >= config.min_new_tokens
        logits = config.allowed(state.logits(), state.new_tokens)

        distribution = logits
        if needs_distribution or config.do_sample:
            distribution = next_distribution(logits, config.filters)
        if config.do_sample:
            token = draw(distribution, generator)
        else:
            token = logits.argmax(dim=-1)

        if may_end:
            token = token.masked_fill(has_ended, config.filler)
            has_ended = has_ended | (token == config.eos)
        state.append(token)
        yield Next(token, distribution)
        if may_end and bool(has_ended.all()):
            return
