"""Pretraining: from a text to a model's folder. A run that was stopped can be resumed.

The folder `out` holds everything that belongs to a run:

    tokenizer.json, tokens/, held_out/       made once, from streamed text (token_files.py)
    run/config.json                          the run's settings
    run/state.safetensors, run/curve.json    the state to resume from, the learning curve
    config.json, model.safetensors, card.json    the model, written at the end

If several processes train together, only the main one writes there.
"""

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
from course_lib.data.batches import BatchSource, CorruptedBatches, DocumentBatches
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
from course_lib.training.sizes import family_and_size, model_shape
from course_lib.training.token_files import TokenFiles, open_files, tokenize

SMALLEST_VOCAB = 256  # no tokenizer that is learned here has fewer tokens
HELD_OUT_BATCHES = 20  # batches for the held-out loss during training; at the end all are used
# BERT read sequences of 128 tokens in 90% of its steps, and of 512 tokens in the rest (Devlin et
# al. 2019, appendix A.2).
SHORT_PERCENT = 90


@dataclass(frozen=True)
class Origin:
    """What a run starts from: random weights, or another model's.

    Attributes:
        family: the family of the model to train.
        shape: width, layers, heads and length of a model that starts with random weights.
        parent: the model whose weights the run starts with; None for random weights.
        tokenizer: the parent's tokenizer; None means that one is learned.
        teacher: the model whose predictions a student learns from; None without distillation.
        name: the checkpoint of the parent or the teacher, "" for none.
    """

    family: Family
    shape: dict[str, int]
    parent: nn.Module | None = None
    tokenizer: Tokenizer | None = None
    teacher: nn.Module | None = None
    name: str = ""

    @property
    def objective(self) -> str:
        """A name of `objectives.OBJECTIVES`."""
        return self.family.objective if self.teacher is None else "distilled"


@dataclass(frozen=True)
class Built:
    """A model that is ready to be trained.

    Attributes:
        config: the configuration of the model's stack.
        model: the model before its first step.
        batches: what it is trained on.
        held_out: batches that it is not trained on; None if the corpus has no such text.
        loss: the training loss, which is also the held-out loss.
    """

    config: StackConfig
    model: nn.Module
    batches: BatchSource
    held_out: BatchSource | None
    loss: Loss


def pretrain(
    config: PretrainConfig,
    *,
    say: Callable[[str], None] = lambda text: None,
    watch: Callable[[Step], object] | None = None,
) -> None:
    """Train a model into the folder `config.out`; with several processes, all of them call this.

    Args:
        config: the run's settings.
        say: called with each line of text to show, on the main process only.
        watch: called with each step, on the main process only.

    Raises:
        CourseError: if the settings do not fit together, or the folder holds another run.
    """
    # 1. Everything that can be refused is refused before any work is done.
    out = config.out
    processes, _ = distributed.join(known_device(config.device))
    origin = _load_origin(config)
    _check(config, origin, processes)
    done = _steps_done(config)

    with locked(out) if processes.is_main else nullcontext():
        # 2. One process makes the token files, all of them read them.
        if processes.is_main:
            tokenize(config, origin.tokenizer)
        processes.barrier()
        files = open_files(out, config.data)
        if done:
            _check_same_tokens(config, files)

        # 3. Build, train, publish.
        built = _build(config, origin, files)
        if processes.is_main:
            settings = {**config.to_json(), "token_files": files.store.fingerprint}
            write_json(out / "run" / "config.json", settings)
            _announce(config, built, files, done, say)
        _train(config, built, processes, watch)
        if processes.is_main:
            _publish(config, origin, built, files, say)


def _load_origin(config: PretrainConfig) -> Origin:
    """Find the family, and load the checkpoints that the run begins with."""
    family, _ = family_and_size(config.model)
    origin = Origin(family, model_shape(config))
    if config.teacher is not None:
        return _with_teacher(config, origin)
    if config.init_from is not None:
        return _with_parent(config, origin)
    return origin


def _with_teacher(config: PretrainConfig, origin: Origin) -> Origin:
    """The model begins with some of a teacher's layers, and learns from the teacher."""
    if config.init_from is not None:
        raise CourseError("A student begins with layers of its teacher; leave --init-from.")
    name = str(config.teacher)
    teacher, tokenizer, _ = zoo.open_model(name)
    student = distill.student(teacher, config.layers)
    family = _parents_family(student, name, origin.family)
    _refuse_sizes(name, config.width, config.heads)
    return replace(
        origin, family=family, parent=student, tokenizer=tokenizer, teacher=teacher, name=name
    )


def _with_parent(config: PretrainConfig, origin: Origin) -> Origin:
    """The model begins with a checkpoint's weights."""
    name = str(config.init_from)
    parent, tokenizer, _ = zoo.open_model(name)
    family = _parents_family(parent, name, origin.family)
    _refuse_sizes(name, config.width, config.heads, config.layers)
    return replace(origin, family=family, parent=parent, tokenizer=tokenizer, name=name)


def _parents_family(parent: nn.Module, name: str, wanted: Family) -> Family:
    """The parent's family, which may be another one with the same objective."""
    family = families.family_of(parent) if hasattr(parent, "stack") else None
    if family is None or family.objective != wanted.objective:
        raise CourseError(f"{name} is no model that a {wanted.name} could begin with.")
    return family


def _refuse_sizes(name: str, *sizes: int | None) -> None:
    """Refuse --layers, --width and --heads for a model whose checkpoint decides them."""
    if any(size is not None for size in sizes):
        raise CourseError(f"The model's size is that of {name}; leave layers, width and heads.")


def _check(config: PretrainConfig, origin: Origin, processes: Processes) -> None:
    """Refuse settings that do not fit together, before any work is done."""
    if config.optimizer == "muon" and processes.sharded:
        raise CourseError(
            "Muon needs whole matrices, and FSDP cuts them; use --multi_gpu, or --optimizer adamw."
        )
    options = objectives.objective(origin.objective).options
    if config.mask_rate is not None and "rate" not in options:
        raise CourseError(f"The objective {origin.objective} hides no tokens; leave --mask-rate.")
    objectives.span_sampler(config.mask_unit)  # raises an error if there is no such unit
    if config.mask_unit != "tokens" and "spans" not in options:
        raise CourseError(f"The objective {origin.objective} masks no units; leave --mask-unit.")
    if origin.parent is None:
        # The vocabulary is not learned yet. If the model is too large with the smallest one, it
        # is too large with any. `_build` checks again, with the vocabulary that was learned.
        stack = origin.family.config(SMALLEST_VOCAB, **origin.shape)
        _check_memory(config, origin.family, stack)


def _check_memory(config: PretrainConfig, family: Family, stack: StackConfig) -> None:
    """Refuse a model whose training cannot fit into the machine's memory.

    A weight takes 4 bytes. On the CPU its gradient and Adam's two moments take 4 bytes each, too;
    on a GPU these lie in the GPU's memory, which is not checked.
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
    """How many steps the run to resume has made; 0 for a new run.

    Raises:
        CourseError: the run has other settings, or more steps than are wanted.
    """
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


def _check_same_tokens(config: PretrainConfig, files: TokenFiles) -> None:
    """Refuse to resume on other token files than those that the run has read so far.

    `--data` may be a folder that `tokenize` has written again since the run was stopped.
    """
    file = config.out / "run" / "config.json"
    before = read_json(file).get("token_files") if file.is_file() else None
    if before not in (None, files.store.fingerprint):
        raise CourseError(
            f"The tokens in {config.data} are not those that the run in {config.out} has read so"
            " far; name another folder, or say --afresh."
        )


def _build(config: PretrainConfig, origin: Origin, files: TokenFiles) -> Built:
    """Make the model and its batches."""
    stack = _stack_config(config, origin, files.tokenizer.vocab.size)
    if origin.parent is None:
        _check_memory(config, origin.family, stack)
    torch.manual_seed(config.seed)
    model = _new_model(origin, stack, files.tokenizer)
    if origin.parent is not None:
        _copy_weights(origin.parent, model, origin.name)

    length = origin.shape["length"]
    if origin.parent is not None:
        # A parent with learned positions cannot read more tokens than it has positions.
        length = min(length, getattr(stack.position, "length", length))
    make_batches = partial(_batches, config, origin.objective, files.tokenizer)
    batches = make_batches(files.store, length)
    if config.short is not None:
        short = make_batches(files.store, min(config.short, length))
        batches = _ShortThenLong(short, batches, config.steps * SHORT_PERCENT // 100)
    return Built(
        config=stack,
        model=model,
        batches=batches,
        held_out=None if files.held_out is None else make_batches(files.held_out, length),
        loss=objectives.objective(origin.objective).loss,
    )


def _stack_config(config: PretrainConfig, origin: Origin, vocab: int) -> StackConfig:
    """The parent's configuration, or one of the family with the wanted shape."""
    if origin.parent is None:
        stack = origin.family.config(vocab, **origin.shape)
    else:
        stack = cast(Any, origin.parent).stack.config
    if config.dropout is not None:
        stack = with_dropout(stack, config.dropout)
    if config.init_std is not None:
        stack = replace(stack, init_std=config.init_std)
    return stack


def _new_model(origin: Origin, stack: StackConfig, tokenizer: Tokenizer) -> nn.Module:
    """A model with random weights, joined with its teacher if it has one."""
    vocab = tokenizer.vocab
    # BART's decoder begins with [SEP], T5's with the padding token. Models without a decoder
    # ignore it.
    first_token = vocab.sep if origin.family.decoder_start == "sep" else vocab.pad
    model = origin.family.model(stack, first_token or 0)
    return model if origin.teacher is None else distill.Distilled(model, origin.teacher)


def _copy_weights(parent: nn.Module, model: nn.Module, name: str) -> None:
    """Copy the weights of the parent's body, and those of its head that the model has, too.

    Raises:
        CourseError: the bodies differ.
    """
    public = _public_part(model)
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


def _public_part(model: nn.Module) -> nn.Module:
    """The part that is published: of ELECTRA the discriminator, of a distillation the student."""
    for part in ("discriminator", "student"):
        if hasattr(model, part):
            return cast(nn.Module, getattr(model, part))
    return model


def _batches(
    config: PretrainConfig, objective: str, tokenizer: Tokenizer, store: TokenStore, length: int
) -> BatchSource:
    """The objective's batches of these tokens, with at most `length` tokens in a sequence."""
    if objective == "causal":  # nothing is hidden, so nothing is to be set
        return DocumentBatches(
            store, tokenizer, length=length, tokens=config.tokens, seed=config.seed
        )
    spans = None if config.mask_unit == "tokens" else objectives.span_sampler(config.mask_unit)
    corrupt = objectives.corruption(objective, tokenizer, rate=config.mask_rate, spans=spans)
    return CorruptedBatches(
        store, tokenizer, corrupt, length=length, tokens=config.tokens, seed=config.seed
    )


class _ShortThenLong(BatchSource):
    """Batches of short sequences, and of long ones from the step `long_from` on.

    Both sources count steps from the beginning of training. So the first long batch comes from
    the middle of an epoch of long sequences. That is harmless: each epoch has a random order.
    """

    def __init__(self, short: BatchSource, long: BatchSource, long_from: int) -> None:
        self.short = short
        self.long = long
        self.long_from = long_from
        self.steps = short.steps

    def __getitem__(self, step: int, /) -> Batch:
        return self.short[step] if step < self.long_from else self.long[step]


def _announce(
    config: PretrainConfig, built: Built, files: TokenFiles, done: int, say: Callable[[str], None]
) -> None:
    """Say how large the model and the data are, and how far a resumed run has come."""
    count = sum(weight.numel() for weight in built.model.parameters())
    say(
        f"{count:,} parameters, {len(files.store):,} documents, {built.batches.steps:,} batches"
        " an epoch"
    )
    if done == config.steps:
        say(f"the run in {config.out} is finished")
    elif done:
        say(f"going on with the run in {config.out}")


def _train(
    config: PretrainConfig,
    built: Built,
    processes: Processes,
    watch: Callable[[Step], object] | None,
) -> None:
    """Train, and measure the held-out loss whenever the state is saved."""
    probe = None
    # FSDP gathers the weights when the model and its loss are called as one module
    # (distributed.spread), not when the model is called alone.
    if built.held_out is not None and not processes.sharded:
        probe = partial(_held_out_loss, built=built, at_most=HELD_OUT_BATCHES)
    reports = Reports(
        probe=probe,
        probe_every=config.save_every,
        watch=watch if processes.is_main else None,
    )
    points = train_in_folder(
        config.out / "run", built.model, built.batches, built.loss, _train_config(config), reports
    )
    for _ in points:  # the generator trains while it is read, and writes the curve itself
        pass


def _train_config(config: PretrainConfig) -> TrainConfig:
    """The settings of the training loop."""
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


def _held_out_loss(model: nn.Module, built: Built, at_most: int | None = None) -> dict[str, float]:
    """{"loss": the mean over the held-out batches}, or over the first `at_most` of them."""
    assert built.held_out is not None
    steps = built.held_out.steps
    if at_most is not None:
        steps = min(at_most, steps)
    batches = [built.held_out[i] for i in range(steps)]
    return {"loss": round(mean_loss(model, built.loss, batches), 4)}


def _publish(
    config: PretrainConfig,
    origin: Origin,
    built: Built,
    files: TokenFiles,
    say: Callable[[str], None],
) -> None:
    """Measure the trained model's held-out loss and write it in the family's public layout."""
    out = config.out
    # `built.model` may have only this process's shard of each weight. The saved state is whole.
    model = _new_model(origin, built.config, files.tokenizer)
    run_state.load_model(out / "run" / "state.safetensors", model)
    scores = {} if built.held_out is None else _held_out_loss(model, built)
    about = {
        "name": config.model,
        "data": config.data,
        "documents": len(files.store),
        "from": origin.name,
        "lr": config.lr,
        "schedule": config.schedule,
        "optimizer": config.optimizer,
        "tokens a batch": config.tokens,
        "seed": config.seed,
    }
    with atomic_folder(out) as new:
        zoo.save_pretrained(
            _public_part(model),
            new,
            model_type=origin.family.model_type,
            tokenizer=files.tokenizer,
        )
        write_json(new / "card.json", card(read_curve(out / "run"), **about, scores=scores))
    if scores:
        say(f"loss on held-out text {scores['loss']:.3f}; written to {out}")
    else:
        say(f"written to {out}; no held-out text (--held-out N keeps some aside)")
