"""A GPT that runs in the page itself: prompt, temperature, top-k, top-p; no kernel, no network,
also in exported HTML.

The weights travel inside the widget, a byte each (every row of a matrix has its own scale), with
the tokenizer's merges. assets/playground-engine.js has the model once more, with a cache of keys
and values."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from classroom.figures.display import Html
from classroom.templates import escape
from classroom.widgets.card import card, lines, rounded
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.generation import next_distribution
from course_lib.model.config import StackConfig
from course_lib.model.heads import LM

MOST = 2_500_000  # bytes of weights in a page
SHOWN = 10  # next words with a bar
SLIDERS = (  # name, what stands beside it, from, to, step, at the start
    ("temperature", "temperature", 0.1, 2.0, 0.05, 0.7),
    ("k", "top-k (0: all)", 0, 50, 1, 0),
    ("p", "top-p (1: all)", 0.05, 1.0, 0.05, 1.0),
)


def playground(
    model: LM,
    tokenizer: Tokenizer,
    prompts: Mapping[str, str],
    *,
    new: int = 30,
    title: str = "Playground",
) -> Html:
    """A page in which the reader writes prompts and the model continues them, one token or `new` of
    them at a time.

    Without scripts a table of the first prompt's next words is left.

    model: of GPT-2's kind, at most about two million weights, with its byte-level BPE. prompts:
        what a prompt is called in the menu -> the text.
    """
    data = pack(model, tokenizer) | {"prompts": list(prompts.values()), "new": new, "shown": SHOWN}
    first = next(iter(prompts.values()))
    likely = _likeliest(model, tokenizer, first)
    rows = [(escape(word), f"{100 * p:.1f}%") for word, p in likely]
    scripts = ("playground-engine", "playground")
    return Html(
        card(
            "playground",
            title,
            data,
            scripts=scripts,
            prompts=prompts,
            first=first,
            sliders=SLIDERS,
            rows=rows,
        ),
        f"{title}: after {first!r} come "
        + ", ".join(f"{word.strip()} {p:.0%}" for word, p in likely[:5]),
    )


def pack(model: LM, tokenizer: Tokenizer) -> dict[str, Any]:
    """What the engine in the page reads: sizes, weights (base64), tokens and merges."""
    config = model.stack.config
    _check(config, tokenizer)
    weights = b"".join(_bytes(value) for value in _in_order(model))
    if len(weights) > MOST:
        raise CourseError(
            f"These weights take {len(weights):,} bytes; {MOST:,} is the most. Use a smaller model."
        )
    bpe = json.loads(tokenizer.backend.to_str())["model"]
    ids = bpe["vocab"]
    merges = [pair if isinstance(pair, list) else pair.split(" ") for pair in bpe["merges"]]
    vocab = tokenizer.vocab
    return {
        "layers": config.layers,
        "width": config.width,
        "heads": config.heads,
        "hidden": config.hidden,
        "vocab": config.embed.vocab,
        "length": config.max_length or 0,
        "eps": config.eps,
        "start": vocab.bos if vocab.bos is not None else vocab.eos,
        "end": vocab.eos,
        "special": list(vocab.special),
        "tokens": tokenizer.tokens(range(vocab.size)),
        "merges": [ids[piece] for a, b in merges for piece in (a, b, a + b)],
        "weights": lines(weights),
    }


def _bytes(weight: Tensor) -> bytes:
    """A vector as float32; a matrix as its scales and its rounded numbers."""
    weight = weight.detach().cpu().float()
    if weight.dim() == 1:
        return bytes(weight.numpy().astype("<f4").tobytes())
    whole, scale = rounded(weight)
    return bytes(scale.numpy().astype("<f4").tobytes() + whole.numpy().tobytes())


def _in_order(model: LM) -> Iterator[Tensor]:
    """Every weight in the order in which the engine reads them."""
    state = model.stack.state_dict()
    parts = ("attn_norm", "attn.q", "attn.k", "attn.v", "attn.out", "ff_norm", "ff.up", "ff.down")
    yield state["embed.tokens.weight"]
    yield state["position.table.weight"]
    for part in [
        *(f"blocks.{layer}.{part}" for layer in range(model.stack.config.layers) for part in parts),
        "norm",
    ]:
        yield state[f"{part}.weight"]
        yield state[f"{part}.bias"]


def _check(config: StackConfig, tokenizer: Tokenizer) -> None:
    gpt2 = (
        config.max_length is not None
        and config.causal
        and config.norm == "pre"
        and config.final_norm
    )
    plain = (
        config.activation == "gelu_tanh"
        and config.bias
        and config.scale
        and not (config.gated or config.rms)
    )
    if (
        not (gpt2 and plain)
        or config.shared
        or config.cross
        or config.dh * config.heads != config.width
    ):
        raise CourseError(
            "The playground runs GPT-2's block only: pre-norm, learned positions, GELU by tanh,"
            " biases."
        )
    if not tokenizer.byte_level:
        raise CourseError("The playground needs a byte-level BPE tokenizer, as GPT-2 has.")


def _likeliest(model: LM, tokenizer: Tokenizer, prompt: str) -> list[tuple[str, float]]:
    start = tokenizer.vocab.bos if tokenizer.vocab.bos is not None else tokenizer.vocab.eos
    ids = [
        *([] if start is None else [start]),
        *tokenizer.encode(prompt.rstrip(), special=False).ids,
    ]
    with torch.no_grad():
        logits = model(torch.tensor([ids], device=next(model.parameters()).device))[0, -1]
    shares, words = next_distribution(logits.cpu()).topk(SHOWN)
    return [
        (tokenizer.decode([i], special=True), p)
        for i, p in zip(words.tolist(), shares.tolist(), strict=True)
    ]
