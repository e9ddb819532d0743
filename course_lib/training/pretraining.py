"""Pretraining, from text to a finished folder, where a stopped run goes on.

The folder `out` holds everything of a run; of several processes the main one writes it:

    tokenizer.json, tokens/, held_out/       made once, from streamed text
    run/config.json                          what was asked for
    run/state.safetensors, run/curve.json    the state, the learning curve
    config.json, model.safetensors, card.json    written at the end
"""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from course_lib import families, objectives, zoo
from course_lib.analysis import cost
from course_lib.analysis.evaluation import mean_loss
from course_lib.data import corpora
from course_lib.data.batches import CorruptedBatches, DocumentBatches, Source
from course_lib.data.token_store import TokenStore, encode_corpus
from course_lib.data.tokenizers import Tokenizer, add_sentinels, train_bpe, train_wordpiece
from course_lib.errors import CourseError
from course_lib.families.family import Family
from course_lib.files import locked, write_json
from course_lib.memory import free_bytes
from course_lib.model.config import StackConfig
from course_lib.objectives.losses import Batch, Loss
from course_lib.training import distill, distributed, run_state
from course_lib.training.device import known_device
from course_lib.training.distributed import Processes
from course_lib.training.loop import Step, TrainConfig
from course_lib.training.pretrain_config import PretrainConfig, TokenizeConfig
from course_lib.training.run_folder import Reports, card, read_curve, train_in_folder

LEARN_FROM = 50_000  # documents at the beginning, for the vocabulary
HELD_OUT = 200  # documents of the validation split
LEAST_VOCAB = 256  # no tokenizer that is learned here has fewer tokens
PROBED = 20  # batches of held-out text while a run goes on; all of them at its end

# Those whose tokenizer is learned here: byte-level BPE for the causal ones, WordPiece for the
# others.
FAMILIES = [
    name
    for name, f in families.FAMILIES.items()
    if f.tokenizer == "wordpiece" or f.objective == "causal"
]
SIZES: dict[str, dict[str, int]] = {
    "mini": {"width": 128, "layers": 4, "heads": 4, "length": 160},
    "base": {"width": 768, "layers": 12, "heads": 12, "length": 512},
    "large": {"width": 1024, "layers": 24, "heads": 16, "length": 512},
}


class Prepared(NamedTuple):
    """What a run reads, as its folder holds it."""

    tokenizer: Tokenizer
    store: TokenStore  # tokens to learn from
    held_out: TokenStore | None  # tokens to be scored on, if the corpus has any


@dataclass(frozen=True)
class Start:
    """What a run begins with.

    Attributes:
        family: of the model.
        shape: width, layers, heads and length of a model that begins with random weights.
        parent: the model whose weights it begins with.
        tokenizer: the parent's.
        teacher: the model that it learns from beside the text.
        name: of the checkpoint that it begins with, "" for none.
    """

    family: Family
    shape: dict[str, int]
    parent: nn.Module | None = None
    tokenizer: Tokenizer | None = None
    teacher: nn.Module | None = None
    name: str = ""

    @property
    def objective(self) -> str:
        """The name of what the model learns by."""
        return self.family.objective if self.teacher is None else "distilled"


@dataclass(frozen=True)
class Built:
    """What is trained.

    Attributes:
        config: of the model's stack.
        model: before its first step.
        batches: what it reads.
        loss: what the training makes small.
        held_out: batches that it does not learn from; None if the corpus has no such text.
        held_out_loss: what these are scored by: the objective's own loss, so that runs compare
            whatever their training adds to `loss`.
    """

    config: StackConfig
    model: nn.Module
    batches: Source
    loss: Loss
    held_out: Source | None
    held_out_loss: Loss


def pretrain(
    config: PretrainConfig,
    *,
    say: Callable[[str], None] = lambda text: None,
    watch: Callable[[Step], object] | None = None,
) -> None:
    """Train a model into the folder `config.out`; with several processes, all of them call this.

    Args:
        config: what is asked for.
        say: takes lines of text, on the main process only.
        watch: takes each step, on the main process only.

    Raises:
        CourseError: if what is asked for does not fit together, or the folder holds another run.
    """
    out = config.out
    processes, _ = distributed.join(known_device(config.device))
    start = _start(config)
    _check(config, start, processes)
    done = _steps_done(config)
    with locked(out) if processes.is_main else nullcontext():
        if processes.is_main:
            tokenize(config, start.tokenizer)
        processes.wait()
        texts = _open(out, config.data)
        built = _build(config, start, texts)
        if processes.is_main:
            write_json(out / "run" / "config.json", config.to_json())
            _announce(config, built, texts, done, say)
        _run(config, built, processes, watch)
        if processes.is_main:
            _publish(config, start, built, texts, say)


def _start(config: PretrainConfig) -> Start:
    """Find the family, and the models that the run begins with."""
    family, shape = _named(config)
    sizes = [config.width, config.heads]
    teacher = None
    if config.teacher is not None:
        if config.init_from is not None:
            raise CourseError("A student begins with layers of its teacher; leave --init-from.")
        name = str(config.teacher)
        teacher, tokenizer, _ = zoo.open_model(config.teacher)
        parent = distill.student(teacher, config.layers)
    elif config.init_from is not None:
        name = str(config.init_from)
        parent, tokenizer, _ = zoo.open_model(config.init_from)
        sizes.append(config.layers)
    else:
        return Start(family, shape)
    parents_family = families.family_of(parent) if hasattr(parent, "stack") else None
    if parents_family is None or parents_family.objective != family.objective:
        raise CourseError(f"{name} is no model that a {family.name} could begin with.")
    if any(size is not None for size in sizes):
        raise CourseError(f"The model's size is that of {name}; leave layers, width and heads.")
    return Start(parents_family, shape, parent, tokenizer, teacher, name)


def _check(config: PretrainConfig, start: Start, processes: Processes) -> None:
    """Refuse what cannot be trained, before any work is done."""
    if config.optimizer == "muon" and processes.sharded:
        raise CourseError(
            "Muon needs whole matrices, and FSDP cuts them; use --multi_gpu, or --optimizer adamw."
        )
    options = objectives.objective(start.objective).options
    if config.mask_rate is not None and "rate" not in options:
        raise CourseError(f"The objective {start.objective} hides no tokens; leave --mask-rate.")
    objectives.span_sampler(config.mask_unit)  # an unknown one is refused
    if config.mask_unit != "tokens" and "spans" not in options:
        raise CourseError(f"The objective {start.objective} masks no units; leave --mask-unit.")
    if start.parent is None:
        # Before any text is read. Later, with the vocabulary that was learned, it may be larger.
        _check_memory(config, start.family, start.family.config(LEAST_VOCAB, **start.shape))


def _check_memory(config: PretrainConfig, family: Family, stack: StackConfig) -> None:
    """Refuse a model whose training cannot fit into memory, before any is taken.

    It takes 4 bytes a weight to make a model. To train it on the CPU takes its gradient and Adam's
    two moments as well.
    """
    weights = cost.parameters(lambda: family.model(stack, 0))
    needed = weights * (16 if config.device == "cpu" else 4)
    free = free_bytes()
    if needed > free:
        raise CourseError(
            f"A model of {weights:,} weights and more needs at least {needed / 1e9:,.1f} GB of"
            f" memory, and {free / 1e9:,.1f} GB are free; ask for less by --width, --layers,"
            " --length or --vocab."
        )


def _steps_done(config: PretrainConfig) -> int:
    """How many steps the run in the folder has made; a `CourseError` if it is another run."""
    state = config.out / "run" / "state.safetensors"
    if not (config.resume and state.exists()):
        return 0
    done = run_state.steps_done(state, config.recipe())
    if done > config.steps:
        raise CourseError(
            f"The run in {config.out} has made {done:,} steps, more than {config.steps:,}: ask for"
            " more, name another folder, or say --afresh."
        )
    return done


def _build(config: PretrainConfig, start: Start, texts: Prepared) -> Built:
    """Make the model and its batches."""
    length = start.shape["length"]
    if start.parent is None:
        stack = start.family.config(texts.tokenizer.vocab.size, **start.shape)
    else:
        stack = start.parent.stack.config  # type: ignore[union-attr, assignment]
        length = min(length, getattr(stack.position, "length", length))
    if config.dropout is not None:
        stack = replace(stack, dropout=config.dropout, attention_dropout=config.dropout)
    if config.init_std is not None:
        stack = replace(stack, init_std=config.init_std)

    if start.parent is None:
        _check_memory(config, start.family, stack)
    torch.manual_seed(config.seed)
    model = _model(start, stack, texts.tokenizer)
    if start.parent is not None:
        _warm_start(model, start.parent, start.name)

    rows = partial(_batches, config, start.objective, tokenizer=texts.tokenizer)
    batches = rows(texts.store, length=length)
    if config.short is not None:
        short = rows(texts.store, length=min(config.short, length))
        batches = _Lengthened(short, batches, config.steps * 9 // 10)
    held_out = None if texts.held_out is None else rows(texts.held_out, length=length)
    loss = objectives.objective(start.objective).loss
    return Built(
        config=stack,
        model=model,
        batches=batches,
        loss=loss,
        held_out=held_out,
        held_out_loss=loss,
    )


def _announce(
    config: PretrainConfig, built: Built, texts: Prepared, done: int, say: Callable[[str], None]
) -> None:
    """Say what is trained, and how far the run has come."""
    count = sum(weight.numel() for weight in built.model.parameters())
    say(
        f"{count:,} parameters, {len(texts.store):,} documents, {built.batches.steps:,} batches"
        " an epoch"
    )
    if done == config.steps:
        say(f"the run in {config.out} is finished")
    elif done:
        say(f"going on with the run in {config.out}")


def _run(
    config: PretrainConfig,
    built: Built,
    processes: Processes,
    watch: Callable[[Step], object] | None,
) -> None:
    """Train, and ask for the loss on held-out text now and then."""
    probe = None
    if built.held_out is not None and not processes.sharded:
        probe = partial(_held_out_loss, built=built, most=PROBED)
    reports = Reports(
        probe=probe,
        probe_every=config.save_every,
        watch=watch if processes.is_main else None,
    )
    points = train_in_folder(
        config.out / "run", built.model, built.batches, built.loss, _train_config(config), reports
    )
    deque(points, maxlen=0)  # nobody reads the points here


def _train_config(config: PretrainConfig) -> TrainConfig:
    """What the loop needs of the run's config."""
    warmup = min(config.steps // 10, 300) if config.warmup is None else config.warmup
    return TrainConfig(
        steps=config.steps,
        lr=config.lr,
        schedule=config.schedule,
        warmup=min(warmup, config.steps),
        optimizer=config.optimizer,
        weight_decay=config.weight_decay,
        beta2=config.beta2,
        precision=config.precision,
        accumulate=config.accumulate,
        device=config.device,
        compile=config.compile,
        save_every=config.save_every,
        resume=config.resume,
        recipe=config.recipe(),
    )


def _publish(
    config: PretrainConfig,
    start: Start,
    built: Built,
    texts: Prepared,
    say: Callable[[str], None],
) -> None:
    """Score the trained model and write it in the family's public layout."""
    out = config.out
    # The trained one may be in shards.
    model = _model(start, built.config, texts.tokenizer)
    run_state.load_model(out / "run" / "state.safetensors", model)
    scores = {} if built.held_out is None else _held_out_loss(model, built)
    about = {
        "name": config.model,
        "data": config.data,
        "documents": len(texts.store),
        "from": start.name,
        "lr": config.lr,
        "schedule": config.schedule,
        "optimizer": config.optimizer,
        "tokens a batch": config.tokens,
        "seed": config.seed,
    }
    zoo.save_pretrained(
        _public(model), out, model_type=start.family.model_type, tokenizer=texts.tokenizer
    )
    write_json(out / "card.json", card(read_curve(out / "run"), **about, scores=scores))
    if scores:
        say(f"loss on held-out text {scores['loss']:.3f}; written to {out}")
    else:
        say(f"written to {out}; no held-out text (--held-out N keeps some aside)")


def tokenize(config: TokenizeConfig, tokenizer: Tokenizer | None = None) -> Prepared:
    """Learn a tokenizer and stream a corpus into token files, unless they are there.

    `out/held_out` gets the first documents of the validation split. If a corpus has none, it gets
    the first `config.held_out` documents, which are not trained on.

    Args:
        config: what is asked for.
        tokenizer: one to use in place of a new one.

    Raises:
        CourseError: the folder holds a run on other data, or nothing is left to train on.
    """
    data = config.data
    out = config.out
    # 1. Nothing is to do if the folder holds tokens of this very data.
    note = {"data": data, "documents": config.documents, "seed": config.seed}
    if config.held_out:
        note["held_out"] = config.held_out
    if config.column:
        note["column"] = config.column
    old_note = TokenStore.open(out / "tokens").note if _has_tokens(out) else None
    if _has_tokens(data) or old_note == note:
        return _reopen(config, tokenizer)
    if old_note is not None and config.resume and (out / "run" / "state.safetensors").exists():
        raise CourseError(
            f"{out} holds a run on other data ({_spelled(old_note)}, not {_spelled(note)}); name"
            " another folder, or say --afresh."
        )

    # 2. Choose what is held out.
    corpus = partial(
        corpora.corpus,
        data,
        n=config.documents,
        seed=config.seed,
        column=config.column,
        streaming=True,
    )
    held_out = _validation(data, config.seed, config.column)
    taken = 0  # documents of the corpus itself that are held out
    if not held_out and config.held_out:
        taken = config.held_out
        held_out = islice(corpus(), taken)
        if next(islice(corpus(), taken, None), None) is None:
            raise CourseError(
                f"{taken} documents kept aside leave nothing to train on; {data} has no more."
            )

    # 3. Learn the tokenizer, if there is none.
    if not (out / "tokenizer.json").exists():
        if tokenizer is None:
            texts = (row["text"] for row in islice(corpus(), LEARN_FROM))
            _learn(config, texts).save(out)
        else:
            tokenizer.save(out)

    # 4. Write the tokens.
    stored = Tokenizer.load(out)
    for file in (out / "held_out").glob("*"):
        file.unlink()  # of other data
    if held_out:
        encode_corpus(held_out, stored, out / "held_out")
    encode_corpus(islice(corpus(), taken, None), stored, out / "tokens", note=note)
    return _open(out, data, tokenizer)


def _reopen(config: TokenizeConfig, tokenizer: Tokenizer | None) -> Prepared:
    """Token files that are there; held-out text is added where they brought none."""
    texts = _open(config.out, config.data, tokenizer)
    if texts.held_out is None:
        note = texts.store.note
        held_out = _validation(note.get("data"), config.seed, note.get("column"))
        if held_out:
            encode_corpus(held_out, texts.tokenizer, config.out / "held_out")
    return _open(config.out, config.data)


def _validation(source: str | None, seed: int, column: str | None) -> Any:
    """The first documents of a source's validation split; none if it has no such split."""
    if not source:
        return []
    try:
        return corpora.corpus(source, split="validation", n=HELD_OUT, seed=seed, column=column)
    except CourseError:  # no such split, or the source is no longer there
        return []


def _has_tokens(place: str | Path) -> bool:
    return (Path(place) / "tokens" / "header.json").exists()


def _open(out: Path, data: str, expected: Tokenizer | None = None) -> Prepared:
    """What a run reads: the token files in `data` if it is a folder of them, else those in `out`.

    Args:
        out: the run's folder.
        data: its corpus, or a folder of token files.
        expected: the tokenizer of the model that the run begins with.

    Raises:
        CourseError: the tokens are those of another tokenizer.
    """
    place = Path(data) if _has_tokens(data) else out
    tokenizer = Tokenizer.load(place)
    if expected is not None and expected.backend.to_str() != tokenizer.backend.to_str():
        raise CourseError(
            f"The tokens in {place} are those of another tokenizer than the model's to begin with."
        )
    if place != out and not (out / "tokenizer.json").exists():
        tokenizer.save(out)
    held_out = None
    for folder in (place / "held_out", out / "held_out"):
        if held_out is None and (folder / "header.json").exists():
            held_out = TokenStore.open(folder, tokenizer)
    return Prepared(tokenizer, TokenStore.open(place / "tokens", tokenizer), held_out)


def _spelled(note: dict[str, Any]) -> str:
    """What a note says of a corpus, for a message."""
    parts = [f"{key} {value}" for key, value in note.items() if value is not None]
    return ", ".join(parts) or "unknown"


def _family(name: str) -> tuple[Family, dict[str, int]]:
    """The family and the shape that a name such as "bert-base" says."""
    kind, _, size = name.rpartition("-")
    if size not in SIZES:  # the name of a family alone
        kind = name
        size = "mini"
    if kind not in FAMILIES:
        raise CourseError(
            f"There is no model {name!r} to pretrain; say one of {', '.join(FAMILIES)}, "
            f"with a size if you like ({', '.join(f'bert-{s}' for s in SIZES)})."
        )
    return families.family(kind), dict(SIZES[size])


def _named(config: PretrainConfig) -> tuple[Family, dict[str, int]]:
    """The family and the shape of the model that is asked for."""
    family, shape = _family(config.model)
    changes = {
        "width": config.width,
        "layers": config.layers,
        "heads": config.heads,
        "length": config.length,
    }
    shape |= {name: value for name, value in changes.items() if value is not None}
    if shape["width"] % shape["heads"]:
        raise CourseError(
            f"A width of {shape['width']} cannot be shared by {shape['heads']} heads."
        )
    return family, shape


def _learn(config: TokenizeConfig, texts: Iterable[str]) -> Tokenizer:
    """A new tokenizer of the family's kind."""
    family, _ = _family(config.model)
    if family.tokenizer == "bpe":
        return train_bpe(texts, config.vocab)
    learned = train_wordpiece(texts, config.vocab, lowercase=not config.cased)
    return add_sentinels(learned) if family.objective == "span_corrupted" else learned


def _model(start: Start, stack: StackConfig, tokenizer: Tokenizer) -> nn.Module:
    """A fresh model of the family, beside its teacher if it has one."""
    vocab = tokenizer.vocab
    first = vocab.sep if start.family.start == "sep" else vocab.pad  # of a decoder
    model = start.family.model(stack, first or 0)
    return model if start.teacher is None else distill.Distilled(model, start.teacher)


def _warm_start(model: nn.Module, parent: nn.Module, name: str) -> None:
    """Take over the weights of the parent's body, and those of its head that this one has."""
    public = _public(model)
    weights = public.state_dict()
    fitting = {
        key: value
        for key, value in parent.state_dict().items()
        if key in weights and weights[key].shape == value.shape
    }
    missing = sorted(key for key in weights if key.startswith("stack.") and key not in fitting)
    if missing:
        raise CourseError(
            f"{name} does not fit this family: {missing[0]} is another there, or missing."
        )
    public.load_state_dict(weights | fitting)


def _public(model: nn.Module) -> nn.Module:
    """The part of a model that is published: ELECTRA's discriminator, a distilled student."""
    for part in ("discriminator", "student"):
        if hasattr(model, part):
            return cast(nn.Module, getattr(model, part))
    return model


def _batches(
    config: PretrainConfig, objective: str, store: TokenStore, *, tokenizer: Tokenizer, length: int
) -> Source:
    """The objective on these tokens."""
    spans = None if config.mask_unit == "tokens" else objectives.span_sampler(config.mask_unit)
    corrupt = objectives.corruption(objective, tokenizer, rate=config.mask_rate, spans=spans)
    size = {"length": length, "tokens": config.tokens, "seed": config.seed}
    if objective == "causal":
        return DocumentBatches(store, tokenizer, **size)
    return CorruptedBatches(store, tokenizer, corrupt, **size)


class _Lengthened(Source):
    """Short rows, from the step `start` on long ones."""

    def __init__(self, short: Source, long: Source, start: int) -> None:
        self.short = short
        self.long = long
        self.start = start
        self.steps = short.steps

    def __getitem__(self, step: int, /) -> Batch:
        return self.short[step] if step < self.start else self.long[step]


def _held_out_loss(model: nn.Module, built: Built, most: int | None = None) -> dict[str, float]:
    """The loss on held-out text, on at most so many batches of it."""
    assert built.held_out is not None
    steps = built.held_out.steps
    if most is not None:
        steps = min(most, steps)
    batches = [built.held_out[i] for i in range(steps)]
    return {"loss": round(mean_loss(model, built.held_out_loss, batches), 4)}
