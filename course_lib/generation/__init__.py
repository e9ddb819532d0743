"""Text from a language model: greedy, sampled or by beam search; tasks as prompts.

Its files, in the order in which they build on each other:

    filters.py      functions that change the logits before a token is sampled
    config.py       the options of a generation
    graphed.py      one step as a CUDA graph, replayed for every token
    state.py        the unfinished texts, and their key-value cache
    sampling.py     greedy decoding and sampling
    beam.py         beam search
    text.py         text in, text out
    templates.py    a task's rows as prompts, with few-shot examples
    scoring.py      the log probabilities of continuations
    prompting.py    tasks as prompts: choices ranked, or free answers generated
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
