"""Pretraining from text to a finished folder: tokenizer, token files, training, weights in the public layout.

`python -m course_lib pretrain` calls `pretrain`; `accelerate launch -m course_lib pretrain` calls it once in each
process. The folder `out` holds everything of a run, so that a stopped one goes on:

    tokenizer.json, tokens/         made once, by the main process, from streamed text
    run/state.safetensors           the checkpoint
    config.json, model.safetensors  written at the end
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from course_lib import checkpoint, corrupt, heads, hf, losses, objectives, optim, parallel
from course_lib import data as doors
from course_lib.config import StackConfig
from course_lib.data.batches import CorruptedBatches, DocumentBatches, MaskedBatches, Source
from course_lib.data.token_store import TokenStore, encode_corpus
from course_lib.electra import Electra
from course_lib.errors import CourseError
from course_lib.losses import Loss
from course_lib.models import albert, bart, bert, distilbert, electra, gpt, t5
from course_lib.probes import mean_loss
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer, train_bpe, train_wordpiece
from course_lib.train import Precision, Step, train

LEARN_FROM = 50_000  # documents at the beginning, for the vocabulary
HELD_OUT = 200  # documents of the validation split


@dataclass(frozen=True)
class Kind:
    """What a family is pretrained by. public: its type and class in transformers."""

    config: Callable[..., StackConfig]
    model: Callable[[StackConfig, Tokenizer], nn.Module]
    loss: Loss
    batches: Callable[..., Source]
    public: tuple[str, str]
    learn: Callable[[Iterable[str], int], Tokenizer] = train_wordpiece


def _mlm(config: StackConfig, tokenizer: Tokenizer) -> nn.Module:
    return heads.MLM(Stack(config))


def _electra(config: StackConfig, tokenizer: Tokenizer) -> nn.Module:
    generator, discriminator = heads.MLM(Stack(electra.generator(config))), heads.RTD(Stack(config))
    electra.share_embedding(discriminator.stack, generator.stack)
    return Electra(generator, discriminator)


def _t5(vocab: int, *, width: int, layers: int, heads: int, length: int) -> StackConfig:
    return t5.t5(vocab, width=width, layers=layers, heads=heads, hidden=4 * width)


def _with_sentinels(texts: Iterable[str], size: int) -> Tokenizer:
    return corrupt.add_sentinels(train_wordpiece(texts, size))


def _filled(store: TokenStore, tokenizer: Tokenizer, **how: Any) -> Source:
    objective = partial(objectives.masked, vocab=tokenizer.vocab, parts=(1.0, 0.0, 0.0))
    return CorruptedBatches(store, tokenizer, objective, **how)


def _denoised(store: TokenStore, tokenizer: Tokenizer, **how: Any) -> Source:
    ends = corrupt.sentence_ends(tokenizer)
    return CorruptedBatches(store, tokenizer, partial(objectives.denoised, vocab=tokenizer.vocab, ends=ends), **how)


def _span_corrupted(store: TokenStore, tokenizer: Tokenizer, **how: Any) -> Source:
    marks = corrupt.sentinels(tokenizer)
    objective = partial(objectives.span_corrupted, vocab=tokenizer.vocab, sentinels=marks)
    return CorruptedBatches(store, tokenizer, objective, **how)


KINDS = {
    "gpt": Kind(
        gpt.gpt, lambda c, t: heads.LM(Stack(c)), losses.clm, DocumentBatches, ("gpt2", "GPT2LMHeadModel"), train_bpe
    ),
    "bert": Kind(bert.bert, _mlm, losses.mlm, MaskedBatches, ("bert", "BertForMaskedLM")),
    "albert": Kind(albert.albert, _mlm, losses.mlm, MaskedBatches, ("albert", "AlbertForMaskedLM")),
    "distilbert": Kind(distilbert.distilbert, _mlm, losses.mlm, MaskedBatches, ("distilbert", "DistilBertForMaskedLM")),
    "electra": Kind(electra.electra, _electra, losses.electra, _filled, ("electra", "ElectraForPreTraining")),
    "bart": Kind(
        bart.bart, lambda c, t: bart.bart_lm(c, t.vocab.sep or 0), losses.seq2seq, _denoised,
        ("bart", "BartForConditionalGeneration"),
    ),
    "t5": Kind(
        _t5, lambda c, t: t5.t5_lm(c, t.vocab.pad or 0), losses.seq2seq, _span_corrupted,
        ("t5", "T5ForConditionalGeneration"), _with_sentinels,
    ),
}  # fmt: skip

SIZES: dict[str, dict[str, int]] = {
    "mini": {"width": 128, "layers": 4, "heads": 4, "length": 160},
    "base": {"width": 768, "layers": 12, "heads": 12, "length": 512},
    "large": {"width": 1024, "layers": 24, "heads": 16, "length": 512},
}


@dataclass(frozen=True)
class Prepared:
    """A run's tokenizer, tokens and data, as its folder holds them."""

    tokenizer: Tokenizer
    store: TokenStore


def pretrain(
    name: str,
    out: Path,
    *,
    data: str = "world",
    documents: int | None = None,
    vocab: int = 3072,
    size: dict[str, int | None] | None = None,
    steps: int = 1000,
    tokens: int = 4096,
    accumulate: int = 1,
    lr: float = 1e-3,
    seed: int = 0,
    every: int = 500,
    resume: bool = True,
    precision: Precision = "auto",
    compile: bool | None = None,
    device: str = "cpu",
    say: Callable[[str], None] = lambda text: None,
    show: Callable[[Iterable[Step], int], Iterable[Step]] = lambda run, steps: run,
) -> None:
    """Train a model from nothing into the folder `out`; with several processes, all of them call this.

    Args:
        name: a kind and a size: "bert-mini", "gpt-base"; "bert" is "bert-mini". size: what differs from that.
        data: what `data.corpus` takes, or a folder of token files that `tokenize` wrote. documents: how many.
        vocab: of the tokenizer, if it is still to be learned. tokens: positions in a batch, all processes'.
        resume: go on with the run in `out`; otherwise it is begun again.
        say: takes lines of text, show: the steps, to pass them on; both on the main process only.

    Raises:
        CourseError: an unknown name; `out` holds a run on other data or of another model; whatever the data and
            `train` raise.
    """
    kind, shape = _named(name, size or {})
    processes, _ = parallel.join(torch.device(device))
    if processes.is_main:
        tokenize(data, out, kind=name, vocab=vocab, documents=documents, seed=seed, resume=resume)
    processes.wait()
    ready = _open(out, data)
    torch.manual_seed(seed)
    model = kind.model(kind.config(ready.tokenizer.vocab.size, **shape), ready.tokenizer)
    how: dict[str, Any] = {"length": shape["length"], "tokens": tokens, "seed": seed}
    batches = kind.batches(ready.store, ready.tokenizer, **how)
    state = out / "run" / "state.safetensors"
    if processes.is_main:
        count = sum(p.numel() for p in model.parameters())
        say(f"{count:,} parameters, {len(ready.store):,} documents, {batches.steps:,} batches an epoch")
        if resume and state.exists():
            say(f"going on with the run in {out}")
    run = train(
        model,
        batches,
        kind.loss,
        optim.adamw(model, lr),
        optim.cosine(steps, warmup=min(steps // 10, 300)),
        steps=steps,
        accumulate=accumulate,
        device=device,
        precision=precision,
        compile=compile,
        checkpoint=state,
        every=every,
        resume=resume,
    )
    for _ in show(run, steps) if processes.is_main else run:
        pass
    if processes.is_main:
        say(_finish(kind, shape, ready, state, out, data, how, seed))


def tokenize(
    data: str,
    out: Path,
    *,
    kind: str = "gpt",
    vocab: int = 3072,
    documents: int | None = None,
    seed: int = 0,
    resume: bool = True,
) -> Prepared:
    """Learn a tokenizer, unless `out` has one, and stream a corpus into the token files `out/tokens`.

    Whatever the corpus's size, a thousand documents of it are in memory; the tokenizer learns from the first
    `LEARN_FROM`. Token files that are already there, of the same data, are used as they are.

    Raises:
        CourseError: `out` holds a run on other data; the corpus cannot be had.
    """
    if _has_tokens(data):
        return _open(out, data)
    note = {"data": data, "documents": documents, "seed": seed}
    if (out / "tokens" / "header.json").exists():
        there = TokenStore.open(out / "tokens").note
        if there == note:
            return _open(out, data)
        if resume and (out / "run" / "state.safetensors").exists():
            raise CourseError(
                f"{out} holds a run on other data ({_said(there)}, not {_said(note)}); name another folder, "
                "or begin it again by --afresh."
            )

    corpus = partial(doors.corpus, data, n=documents, seed=seed, streaming=True)
    if not (out / "tokenizer.json").exists():
        learn = _named(kind, {})[0].learn
        learn((row["text"] for row in islice(corpus(), LEARN_FROM)), vocab).save(out)
    encode_corpus(corpus(), Tokenizer.load(out), out / "tokens", note=note)
    return _open(out, data)


def _named(name: str, changes: dict[str, int | None]) -> tuple[Kind, dict[str, int]]:
    kind, _, size = name.partition("-")
    if kind not in KINDS or (size or "mini") not in SIZES:
        raise CourseError(
            f"There is no model {name!r} to pretrain; say one of {', '.join(KINDS)}, "
            f"with a size if you like ({', '.join(f'bert-{s}' for s in SIZES)})."
        )
    shape = SIZES[size or "mini"] | {key: value for key, value in changes.items() if value is not None}
    if shape["width"] % shape["heads"]:
        raise CourseError(f"A width of {shape['width']} cannot be shared by {shape['heads']} heads.")
    return KINDS[kind], shape


def _has_tokens(data: str) -> bool:
    return (Path(data) / "tokens" / "header.json").exists()


def _open(out: Path, data: str) -> Prepared:
    place = Path(data) if _has_tokens(data) else out
    tokenizer = Tokenizer.load(place)
    if place != out and not (out / "tokenizer.json").exists():
        tokenizer.save(out)
    return Prepared(tokenizer, TokenStore.open(place / "tokens", tokenizer))


def _finish(
    kind: Kind,
    shape: dict[str, int],
    ready: Prepared,
    state: Path,
    out: Path,
    data: str,
    how: dict[str, Any],
    seed: int,
) -> str:
    """Export from the checkpoint, for the model itself may be in shards; the loss on held-out text, if there is any."""
    model = kind.model(kind.config(ready.tokenizer.vocab.size, **shape), ready.tokenizer)
    checkpoint.load_model(state, model)
    body = model.discriminator if isinstance(model, Electra) else model
    hf.save_pretrained(body, out, model_type=kind.public[0], architecture=kind.public[1])
    try:
        held = doors.corpus(data, split="validation", n=HELD_OUT, seed=seed)
    except CourseError:  # this corpus has no validation split
        return f"written to {out}"
    rows = kind.batches(encode_corpus(held, ready.tokenizer), ready.tokenizer, **how)
    value = mean_loss(model, kind.loss, [rows[i] for i in range(rows.steps)])
    return f"loss on held-out text {value:.3f}; written to {out}"


def _said(note: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in note.items() if value is not None) or "unknown"
