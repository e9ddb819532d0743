"""Text in, text out: what a model reads of a prompt, and how it writes to the screen."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.generation.sampling import stream
from course_lib.model.seq2seq import Seq2SeqLM

HALF = "\N{REPLACEMENT CHARACTER}"  # stands for a character of which a byte is still missing


def encode_prompts(
    model: nn.Module, tokenizer: Tokenizer, prompts: Sequence[str]
) -> list[list[int]]:
    """What a model reads of each prompt.

    A causal model goes on with the text, which begins with the start token of documents. An
    encoder reads a source as it did in training: with the tokenizer's special tokens around it.

    Args:
        model: causal, or an encoder-decoder.
        tokenizer: the model's.
        prompts: the texts.

    Raises:
        CourseError: if there is neither a prompt nor a start token.
    """
    if isinstance(model, Seq2SeqLM):
        rows = tokenizer.ids(prompts)
    else:
        start = start_tokens(tokenizer)
        rows = [[*start, *ids] for ids in tokenizer.ids(prompts, special=False)]
    if not all(rows):
        raise CourseError("This model has no start token; give it a prompt.")
    return rows


def start_tokens(tokenizer: Tokenizer) -> list[int]:
    """The token that stands before the documents of the course's models, if there is one."""
    vocab = tokenizer.vocab
    return [i for i in (vocab.bos, vocab.cls, vocab.eos) if i is not None][:1]


def end_token(model: nn.Module, tokenizer: Tokenizer) -> int | None:
    """The token that ends a text: of an encoder-decoder the last of the frame around its texts."""
    if isinstance(model, Seq2SeqLM):
        frame = tokenizer.encode("").ids
        if frame:
            return frame[-1]
    return tokenizer.vocab.eos


def until(text: str, stop: Sequence[str]) -> str:
    """The text up to the first of the marks.

    >>> until("Paris.\\nThe capital", ["\\n", "capital"])
    'Paris.'
    """
    for mark in stop:
        text = text.split(mark, 1)[0]
    return text


def stream_text(
    model: nn.Module, tokenizer: Tokenizer, prompt: str, *, stop: Sequence[str] = (), **options: Any
) -> Iterator[str]:
    """A text piece by piece, as it is written.

    Args:
        model: a causal model goes on with the prompt, and its text begins with it. An
            encoder-decoder reads the prompt, and writes a text of its own.
        tokenizer: the model's.
        prompt: the text that it reads.
        stop: marks that end the text; none of them is written.
        options: those of `stream` (max_new_tokens, do_sample, top_p, generator, ...).

    Raises:
        CourseError: if a mark is empty, or the model cannot go on with the prompt.
    """
    if "" in stop:
        raise CourseError("A mark that ends a text has at least one character.")
    (ids,) = encode_prompts(model, tokenizer, [prompt])
    device = next(model.parameters()).device
    steps = stream(
        model,
        torch.tensor([ids], device=device),  # 1 T
        eos=end_token(model, tokenizer),
        **options,
    )
    written = [] if isinstance(model, Seq2SeqLM) else list(ids)
    return _pieces(tokenizer, written, (int(step.token[0]) for step in steps), stop)


def _pieces(
    tokenizer: Tokenizer, written: list[int], tokens: Iterator[int], stop: Sequence[str]
) -> Iterator[str]:
    """The text of what is written and then of each token; it waits where a mark may begin."""
    before = len(tokenizer.decode(written))  # no mark is searched in the prompt
    longest = max(map(len, stop), default=1)
    shown = 0
    text = ""
    for token in tokens:
        written.append(token)
        text = tokenizer.decode(written)
        end = before + len(until(text[before:], stop))
        if end < len(text):
            yield text[shown:end]
            return
        ready = len(text) - (longest - 1)  # what follows may be a part of a mark
        if ready > shown and not text.endswith(HALF):
            yield text[shown:ready]
            shown = ready
    yield text[shown:].rstrip(HALF)
