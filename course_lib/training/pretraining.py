"""Pretraining, from text to a finished folder, where a stopped run goes on.

The folder `out` holds everything of a run; of several processes the main one writes it:

    tokenizer.json, tokens/, held_out/       made once, from streamed text (token_files.py)
    run/config.json                          what was asked for
    run/state.safetensors, run/curve.json    the state, the learning curve
    config.json, model.safetensors, card.json    written at the end
"""

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from course_lib import families, objectives, zoo
from course_lib.analysis import cost
from course_lib.analysis.evaluation import mean_loss
from course_lib.data.batches import CorruptedBatches, DocumentBatches, Source
from course_lib.data.token_store import TokenStore
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.families.family import Family
from course_lib.files import atomic_folder, locked, read_json, write_json
from course_lib.memory import free_bytes
from course_lib.model.config import StackConfig, with_dropout
from course_lib.objectives.losses import Batch, Loss
from course_lib.training import distill, distributed, run_state
from course_lib.training.device import known_device
from course_lib.training.distributed import Processes
from course_lib.training.loop import Step, TrainConfig
from course_lib.training.pretrain_config import PretrainConfig
from course_lib.training.run_folder import Reports, card, read_curve, train_in_folder
from course_lib.training.sizes import asked_shape, family_and_size
from course_lib.training.token_files import TokenFiles, open_files, tokenize

LEAST_VOCAB = 256  # no tokenizer that is learned here has fewer tokens
PROBED = 20  # batches of held-out text while a run goes on; all of them at its end


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
    # 1. What can be refused is refused before any work is done.
    out = config.out
    processes, _ = distributed.join(known_device(config.device))
    start = _start(config)
    _check(config, start, processes)
    done = _steps_done(config)

    with locked(out) if processes.is_main else nullcontext():
        # 2. One process makes the tokens, all of them read the files.
        if processes.is_main:
            tokenize(config, start.tokenizer)
        processes.wait()
        files = open_files(out, config.data)
        if done:
            _check_tokens(config, files)

        # 3. Build, train, publish.
        built = _build(config, start, files)
        if processes.is_main:
            asked = {**config.to_json(), "token_files": files.store.fingerprint}
            write_json(out / "run" / "config.json", asked)
            _announce(config, built, files, done, say)
        _run(config, built, processes, watch)
        if processes.is_main:
            _publish(config, start, built, files, say)


def _start(config: PretrainConfig) -> Start:
    """Find the family, and the models that the run begins with."""
    family, _ = family_and_size(config.model)
    start = Start(family, asked_shape(config))
    if config.teacher is not None:
        return _start_as_student(config, start)
    if config.init_from is not None:
        return _start_from_checkpoint(config, start)
    return start


def _start_as_student(config: PretrainConfig, start: Start) -> Start:
    """Begin with some layers of a teacher, and learn from it."""
    if config.init_from is not None:
        raise CourseError("A student begins with layers of its teacher; leave --init-from.")
    name = str(config.teacher)
    teacher, tokenizer, _ = zoo.open_model(name)
    student = distill.student(teacher, config.layers)
    family = _parents_family(student, name, start.family)
    _check_size_is_free(name, config.width, config.heads)
    return replace(
        start, family=family, parent=student, tokenizer=tokenizer, teacher=teacher, name=name
    )


def _start_from_checkpoint(config: PretrainConfig, start: Start) -> Start:
    """Begin with a checkpoint's weights."""
    name = str(config.init_from)
    parent, tokenizer, _ = zoo.open_model(name)
    family = _parents_family(parent, name, start.family)
    _check_size_is_free(name, config.width, config.heads, config.layers)
    return replace(start, family=family, parent=parent, tokenizer=tokenizer, name=name)


def _parents_family(parent: nn.Module, name: str, asked: Family) -> Family:
    """The family of the model to begin with; it must learn as the one that is asked for."""
    own = families.family_of(parent) if hasattr(parent, "stack") else None
    if own is None or own.objective != asked.objective:
        raise CourseError(f"{name} is no model that a {asked.name} could begin with.")
    return own


def _check_size_is_free(name: str, *sizes: int | None) -> None:
    """Refuse a size beside a model that brings its own."""
    if any(size is not None for size in sizes):
        raise CourseError(f"The model's size is that of {name}; leave layers, width and heads.")


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


def _check_tokens(config: PretrainConfig, files: TokenFiles) -> None:
    """Refuse to go on with tokens that were written again since, in a folder of another."""
    file = config.out / "run" / "config.json"
    before = read_json(file).get("token_files") if file.is_file() else None
    if before not in (None, files.store.fingerprint):
        raise CourseError(
            f"The tokens in {config.data} are not those that the run in {config.out} has read so"
            " far; name another folder, or say --afresh."
        )


def _build(config: PretrainConfig, start: Start, files: TokenFiles) -> Built:
    """Make the model and its batches."""
    stack = _stack_config(config, start, files.tokenizer.vocab.size)
    if start.parent is None:
        _check_memory(config, start.family, stack)
    torch.manual_seed(config.seed)
    model = _model(start, stack, files.tokenizer)
    if start.parent is not None:
        _warm_start(model, start.parent, start.name)

    length = start.shape["length"]
    if start.parent is not None:  # which may know fewer positions
        length = min(length, getattr(stack.position, "length", length))
    rows = partial(_batches, config, start.objective, tokenizer=files.tokenizer)
    batches = rows(files.store, length=length)
    if config.short is not None:
        short = rows(files.store, length=min(config.short, length))
        batches = _Lengthened(short, batches, config.steps * 9 // 10)
    held_out = None if files.held_out is None else rows(files.held_out, length=length)
    loss = objectives.objective(start.objective).loss
    return Built(
        config=stack,
        model=model,
        batches=batches,
        loss=loss,
        held_out=held_out,
        held_out_loss=loss,
    )


def _stack_config(config: PretrainConfig, start: Start, vocab: int) -> StackConfig:
    """The model's configuration: its parent's, or the family's of the size that is asked for."""
    if start.parent is None:
        stack = start.family.config(vocab, **start.shape)
    else:
        stack = cast(Any, start.parent).stack.config
    if config.dropout is not None:
        stack = with_dropout(stack, config.dropout)
    if config.init_std is not None:
        stack = replace(stack, init_std=config.init_std)
    return stack


def _announce(
    config: PretrainConfig, built: Built, files: TokenFiles, done: int, say: Callable[[str], None]
) -> None:
    """Say what is trained, and how far the run has come."""
    count = sum(weight.numel() for weight in built.model.parameters())
    say(
        f"{count:,} parameters, {len(files.store):,} documents, {built.batches.steps:,} batches"
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
    files: TokenFiles,
    say: Callable[[str], None],
) -> None:
    """Score the trained model and write it in the family's public layout."""
    out = config.out
    # The trained one may be in shards.
    model = _model(start, built.config, files.tokenizer)
    run_state.load_model(out / "run" / "state.safetensors", model)
    scores = {} if built.held_out is None else _held_out_loss(model, built)
    about = {
        "name": config.model,
        "data": config.data,
        "documents": len(files.store),
        "from": start.name,
        "lr": config.lr,
        "schedule": config.schedule,
        "optimizer": config.optimizer,
        "tokens a batch": config.tokens,
        "seed": config.seed,
    }
    with atomic_folder(out) as new:
        zoo.save_pretrained(
            _public(model), new, model_type=start.family.model_type, tokenizer=files.tokenizer
        )
        write_json(new / "card.json", card(read_curve(out / "run"), **about, scores=scores))
    if scores:
        say(f"loss on held-out text {scores['loss']:.3f}; written to {out}")
    else:
        say(f"written to {out}; no held-out text (--held-out N keeps some aside)")


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
