"""Generate text with a language model, and solve tasks by prompts.

    generate(model, ids, max_new_tokens=20)                                greedy: the most probable
    generate(model, ids, max_new_tokens=20, do_sample=True, top_p=0.9)     sampling
    generate(model, ids, max_new_tokens=20, num_beams=4)                   beam search

`ids` are token ids [B T]; text.py takes and gives strings. The files, in the order in which they
build on each other:

    filters.py      functions that change the logits before a token is sampled (top-p, ...)
    config.py       the options of `generate`
    graphed.py      on a GPU, one step as a CUDA graph that is replayed for every token
    state.py        the unfinished texts, and the cache of their keys and values
    sampling.py     greedy decoding and sampling
    beam.py         beam search
    text.py         from a prompt to a text, as strings
    templates.py    makes prompts of a task's rows, with few-shot examples
    scoring.py      the log probabilities of given continuations
    prompting.py    answers a whole task: ranks its choices, or generates free answers
"""

from course_lib.generation.config import GenerationConfig
from course_lib.generation.filters import FILTERS, min_p, temperature, top_k, top_p
from course_lib.generation.sampling import (
    Generated,
    Next,
    bf16_copy,
    draw,
    generate,
    generate_several,
    next_distribution,
    stream,
)
from course_lib.generation.state import left_pad
from course_lib.generation.text import stream_text

__all__ = [
    "FILTERS",
    "Generated",
    "GenerationConfig",
    "Next",
    "bf16_copy",
    "draw",
    "generate",
    "generate_several",
    "left_pad",
    "min_p",
    "next_distribution",
    "stream",
    "stream_text",
    "temperature",
    "top_k",
    "top_p",
]
