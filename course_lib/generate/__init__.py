"""Text from a language model: greedy, sampled or by beam search, one cached step a token.

`stream` is the loop to read; `generate` collects it. The cache of keys and values lives here, not in the model.
An encoder-decoder (`seq2seq.Seq2SeqLM`) reads its sources once and continues its start token.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.attention import KVCache
from course_lib.errors import CourseError
from course_lib.generate.beam import EarlyStopping, beam_search
from course_lib.generate.constraints import Constraints
from course_lib.generate.sampling import check_sampling, draw, next_distribution
from course_lib.generate.state import State, left_pad

__all__ = ["Constraints", "Next", "bf16_copy", "draw", "generate", "left_pad", "next_distribution", "stream"]
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
    early_stopping: EarlyStopping = False,
    repetition_penalty: float = 1.0,
    no_repeat_ngram_size: int = 0,
    min_new_tokens: int = 0,
    forced_bos: int | None = None,
    forced_eos: int | None = None,
    eos: int | None = None,
    pad: int | None = None,
    keep: Bool[Tensor, "B T"] | None = None,
    decoder_ids: Int[Tensor, "B U"] | None = None,
    cache: bool | KVCache = True,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "B T+new"]:
    """Continue each row of `ids`, or say each row's target; greedily unless told otherwise.

    Args:
        model: a causal language model (`heads.LM`), or an encoder-decoder (`seq2seq.Seq2SeqLM`).
        ids: prompts; shorter ones are padded on the left (`left_pad`), and `keep` is True at their real tokens. Of an
            encoder-decoder the sources, padded on either side.
        max_new_tokens: at most so many are added.
        do_sample: draw from `next_distribution(logits, temperature, top_k, top_p)`; else take the likeliest token.
        num_beams: above 1, beam search: the continuation with the best sum of log probabilities divided by
            length ** length_penalty, among the so many best beginnings followed at each step.
        early_stopping: of beam search: True stops once num_beams texts have ended, False when no other seems likely to
            be better, "never" when none can be.
        repetition_penalty, no_repeat_ngram_size, min_new_tokens, forced_bos, forced_eos: see `Constraints`.
        eos: token that ends a row; the rest of it is filled with `pad` (with eos if pad is None).
        decoder_ids: how an encoder-decoder's targets begin; by default with its start token alone.
        cache: False computes every position anew at every step. A KVCache filled beforehand (a prefix; of B rows
            or of one that serves all) stands before the prompt and is left as it was; `keep` then spans it too.
        generator: makes the draws reproducible.

    Returns: prompts and continuations; as wide as the longest of them. Of an encoder-decoder the targets, start token
        included.

    Raises:
        CourseError: more positions than the model has, padding on the right, options that contradict each other.

    >>> generate(model, ids, max_new_tokens=20, do_sample=True, top_p=0.9, eos=1)   # doctest: +SKIP
    """
    if num_beams > 1 and (do_sample or generator is not None):
        raise CourseError("Beam search draws nothing: leave out do_sample and generator, or set num_beams=1.")
    if num_beams < 1:
        raise CourseError(f"num_beams is {num_beams}; it must be at least 1.")
    if num_beams == 1 and early_stopping is not False:
        raise CourseError("early_stopping is beam search's; set num_beams above 1 or leave it out.")
    check_sampling(do_sample, temperature, top_k, top_p)
    constraints = Constraints(repetition_penalty, no_repeat_ngram_size, min_new_tokens, forced_bos, forced_eos)
    state = State(model, ids, keep, decoder_ids, cache, max_new_tokens, copies=num_beams)
    if num_beams > 1:
        return beam_search(
            state,
            num_beams,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            constraints=constraints,
            eos=eos,
            pad=eos if pad is None else pad,
        )
    for _ in _steps(state, constraints, do_sample, temperature, top_k, top_p, eos, pad, generator, show=False):
        pass
    return state.so_far


def stream(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    *,
    max_new_tokens: int,
    do_sample: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    constraints: Constraints | None = None,
    eos: int | None = None,
    pad: int | None = None,
    keep: Bool[Tensor, "B T"] | None = None,
    decoder_ids: Int[Tensor, "B U"] | None = None,
    cache: bool | KVCache = True,
    generator: torch.Generator | None = None,
) -> Iterator[Next]:
    """The same, one token of every row at a time, each with the distribution it comes from.

    Arguments and errors as for `generate`, whose penalties and the like are one `Constraints` here. Greedy
    choice shows the model's own distribution, as constrained.

    >>> for token, distribution in stream(model, ids, max_new_tokens=5):   # doctest: +SKIP
    ...     print(int(token[0]), float(distribution.max()))
    """
    check_sampling(do_sample, temperature, top_k, top_p)
    state = State(model, ids, keep, decoder_ids, cache, max_new_tokens)
    return _steps(state, constraints or Constraints(), do_sample, temperature, top_k, top_p, eos, pad, generator)


def _steps(
    state: State,
    constraints: Constraints,
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
    while state.length < state.max_length:
        last = state.length + 1 == state.max_length
        logits = constraints(state.logits(), state.so_far, step=state.step, last=last, eos=eos, keep=state.real)
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


def bf16_copy(model: Model) -> Model:
    """The same model with weights in bfloat16: a step waits for the weights to arrive, and these are half as long.

    Buffers (frequencies, slopes) stay float32. For reading only; train the original.
    """
    other = deepcopy(model).eval().requires_grad_(False)
    for weight in other.parameters():
        weight.data = weight.data.to(torch.bfloat16)
    return other
