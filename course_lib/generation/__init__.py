"""Text from a language model: greedy, sampled or by beam search; tasks asked in words.

Its files, in the order in which they build on each other:

    filters.py      what changes the logits before a token is drawn
    config.py       what a generation is asked for
    state.py        the texts while they grow, and their cache
    sampling.py     greedy and drawn texts
    beam.py         beam search
    text.py         text in, text out
    prompting.py    tasks asked in words
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
