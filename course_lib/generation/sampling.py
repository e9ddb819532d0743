"""Text from a language model, token by token: greedy or drawn. Beam search has beam.py.

`_steps` is the loop to read; `stream` hands out its steps, and `generate` collects them.
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
    """One step of `stream`: a token a row, and the probabilities it was chosen from."""

    token: Int[Tensor, " B"]
    distribution: Float[Tensor, "B V"]


class Generated(NamedTuple):
    """A prompt's texts next to each other, after beam search the best first.

    scores: the sum of the new tokens' log probabilities up to the end token, in nats; after beam
    search divided as `length_penalty` has it.
    """

    ids: Int[Tensor, "BR T+new"]
    scores: Float[Tensor, " BR"]


def next_distribution(
    logits: Float[Tensor, "*B V"], filters: Sequence[Filter] = (), **named: float | None
) -> Float[Tensor, "*B V"]:
    """Probabilities of the next token, float32; tokens that a filter leaves out have exactly 0.

    Args:
        logits: of any precision.
        filters: applied one after the other.
        named: filters by their names, applied before the others: `top_p=0.9`.
    """
    logits = logits.float()
    for apply in [*by_name(**named), *filters]:
        logits = apply(logits)
    return logits.softmax(dim=-1)


def draw(
    distribution: Float[Tensor, "B V"], generator: torch.Generator | None = None
) -> Int[Tensor, " B"]:
    """One token a row.

    It is drawn on the generator's device, so that a seed gives the same text on every device.
    """
    device = distribution.device if generator is None else generator.device
    token = torch.multinomial(distribution.to(device), 1, generator=generator)[:, 0]
    return token.to(distribution.device)


def generate(model: nn.Module, ids: Int[Tensor, "B T"], **options: Any) -> Int[Tensor, "B T+new"]:
    """Continue each row of `ids`.

    Args:
        model: a causal model (`heads.LM`). Or an encoder-decoder (`seq2seq.Seq2SeqLM`), which reads
            `ids` as sources and begins its targets with the start token.
        ids: prompts padded on the left (`left_pad`); sources may be padded on either side.
        options: the fields of `GenerationConfig` (max_new_tokens, do_sample, num_beams, eos, ...),
            filters by their names too (top_p=0.9); attention_mask, Bool[B T], True at the real
            tokens; generator; cache: False computes every position anew at every step.

    Returns:
        The prompts with their new tokens; of an encoder-decoder the targets alone.
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
        model: as in `generate`, like ids, cache, attention_mask, generator and options.
        ids: as in `generate`.
        num_return_sequences: how many are drawn for each prompt, or kept of a beam search.
        cache: as in `generate`.
        scored: False leaves the scores of greedy and drawn texts at 0, which spares a softmax a
            token.
        attention_mask: as in `generate`.
        generator: as in `generate`.
        options: as in `generate`.

    Raises:
        CourseError: if the options ask for more texts or beams than there can be.
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
                    if config.eos is not None:
                        is_open = is_open & (token != config.eos)
            texts = state.so_far
    # Copies made outside of inference mode may be trained on.
    return Generated(texts.clone(), scores.clone())


def stream(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    *,
    attention_mask: Bool[Tensor, "B T"] | None = None,
    generator: torch.Generator | None = None,
    **options: Any,
) -> Iterator[Next]:
    """`generate`, greedy or drawn, one token of every row at a time, with its distribution.

    Args:
        model: as in `generate`, like ids, attention_mask, generator and options.
        ids: as in `generate`.
        attention_mask: as in `generate`.
        generator: as in `generate`.
        options: as in `generate`.

    Raises:
        CourseError: if the options ask for a beam search.
    """
    config = GenerationConfig.of(**options)
    if config.num_beams > 1:
        raise CourseError("A beam search knows its text only at the end; use generate.")
    state = State(model, ids, attention_mask, max_new_tokens=config.max_new_tokens)
    return _steps(state, config, generator)


def _steps(
    state: State,
    config: GenerationConfig,
    generator: torch.Generator | None,
    needs_distribution: bool = True,
) -> Iterator[Next]:
    """One step a token. Without a distribution to give, a greedy step gives its logits instead."""
    has_ended = torch.zeros(state.rows, dtype=torch.bool, device=state.text.device)
    while state.length < state.max_length:
        may_end = config.eos is not None and state.new_tokens >= config.min_new_tokens
        logits = config.without_early_end(state.logits(), state.new_tokens)

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


def bf16_copy(model: _Model) -> _Model:
    """The same model, for reading only, with weights in bfloat16; buffers stay float32.

    A step of generation reads every weight once, and half as many bytes arrive twice as fast.
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
    stack: Any = getattr(model, "stack", None)  # causal, or both stacks of an encoder-decoder
    if stack is None:
        return
    vocab = stack.config.embed.vocab
    if config.num_beams > max(vocab // 2, 1):
        raise CourseError(
            f"{config.num_beams} beams are too many for a vocabulary of {vocab}; use at most"
            f" {vocab // 2}."
        )
