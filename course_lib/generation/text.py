"""From a prompt to a text, both as strings.

    for part in stream_text(model, tokenizer, "In the kitchen", max_new_tokens=20):
        print(part, end="", flush=True)

prints the text while it is generated. The other functions know which tokens begin and end a text.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.generation.sampling import stream
from course_lib.model.seq2seq import Seq2SeqLM

# One character may take several byte-level tokens. As long as some of them are missing, decoding
# gives this character instead.
INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


def encode_prompts(
    model: nn.Module, tokenizer: Tokenizer, prompts: Sequence[str]
) -> list[list[int]]:
    """The token ids of each prompt.

    A causal model gets the start token, with which every document begins in pretraining, and then
    the prompt's tokens. An encoder gets the tokenizer's special tokens around the prompt.

    Args:
        model: a causal model or an encoder-decoder.
        tokenizer: the model's tokenizer.
        prompts: the texts.

    Raises:
        CourseError: a prompt is empty and the tokenizer has no start token.
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
    """The first token of a document: bos, or cls, or eos as in GPT-2; [] without any of them."""
    vocab = tokenizer.vocab
    return [i for i in (vocab.bos, vocab.cls, vocab.eos) if i is not None][:1]


def end_token(model: nn.Module, tokenizer: Tokenizer) -> int | None:
    """The token that ends a text.

    An encoder-decoder learned to end a text by the token that its tokenizer puts after every text:
    `</s>` for BART and T5, or [SEP].
    """
    if isinstance(model, Seq2SeqLM):
        special_tokens = tokenizer.encode("").ids
        if special_tokens:
            return special_tokens[-1]
    return tokenizer.vocab.eos


def until(text: str, stop: Sequence[str]) -> str:
    """The text up to the first stop string.

    >>> until("Paris.\\nThe capital", ["\\n", "capital"])
    'Paris.'
    """
    for string in stop:
        text = text.split(string, 1)[0]
    return text


def stream_text(
    model: nn.Module, tokenizer: Tokenizer, prompt: str, *, stop: Sequence[str] = (), **options: Any
) -> Iterator[str]:
    """Generate a text and yield each part of it as soon as it cannot change any more.

    Args:
        model: a causal model continues the prompt, and the text begins with the prompt. An
            encoder-decoder reads the prompt as its source, and the text is its target.
        tokenizer: the model's tokenizer.
        prompt: the text to read.
        stop: strings that end the text; the text stops before them.
        options: the options of `stream` (max_new_tokens, do_sample, top_p, generator, ...).

    Raises:
        CourseError: a stop string is empty, or the prompt cannot be encoded.
    """
    if "" in stop:
        raise CourseError("A stop string has at least one character.")
    (ids,) = encode_prompts(model, tokenizer, [prompt])
    device = next(model.parameters()).device
    steps = stream(
        model,
        torch.tensor([ids], device=device),  # 1 T
        eos=end_token(model, tokenizer),
        **options,
    )
    prompt_ids = [] if isinstance(model, Seq2SeqLM) else list(ids)
    return _decode_stream(tokenizer, prompt_ids, (int(step.token[0]) for step in steps), stop)


def _decode_stream(
    tokenizer: Tokenizer, prompt_ids: list[int], new_ids: Iterator[int], stop: Sequence[str]
) -> Iterator[str]:
    """Decode the tokens and yield the new text. What may be part of a stop string is held back.

    With the stop string "\n\n" the text "one\n" gives "one" first: a second "\n" may follow.
    All tokens are decoded at every step, because a token's text can depend on its neighbours.
    """
    ids = list(prompt_ids)
    prompt_length = len(tokenizer.decode(ids))  # a stop string in the prompt does not count
    longest = max(map(len, stop), default=1)
    shown = 0
    text = ""
    for new_id in new_ids:
        ids.append(new_id)
        text = tokenizer.decode(ids)
        end = prompt_length + len(until(text[prompt_length:], stop))
        if end < len(text):
            yield text[shown:end]
            return
        ready = len(text) - (longest - 1)  # the rest may begin a stop string
        if ready > shown and not text.endswith(INCOMPLETE):
            yield text[shown:ready]
            shown = ready
    yield text[shown:].rstrip(INCOMPLETE)
