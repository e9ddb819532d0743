"""Pretraining, from text to a finished folder, where a stopped run goes on.

The folder `out` holds everything of a run; of several processes the main one writes it:

    tokenizer.json, tokens/, held_out/       made once, from streamed text
    run/state.safetensors, run/curve.json    the checkpoint, the learning curve
    config.json, model.safetensors, card.json    written at the end
"""

import platform
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from course_lib import data as doors
from course_lib import families, objectives, zoo
from course_lib.analysis.evaluation import mean_loss
from course_lib.data.batches import CorruptedBatches, DocumentBatches, Source
from course_lib.data.token_store import TokenStore, encode_corpus
from course_lib.data.tokenizers import Tokenizer, add_sentinels, train_bpe, train_wordpiece
from course_lib.errors import CourseError
from course_lib.families.rules import Family
from course_lib.files import locked, read_json, write_json
from course_lib.model.config import StackConfig
from course_lib.objectives.losses import Batch, Loss
from course_lib.training import distill, distributed, optim, run_state
from course_lib.training.device import known_device
from course_lib.training.feed import Batches
from course_lib.training.loop import Step, TrainConfig, train

# may change on the way
FREE = ("out", "size", "steps", "every", "resume", "device", "say", "watch", "options")
LEARN_FROM = 50_000  # documents at the beginning, for the vocabulary
HELD_OUT = 200  # documents of the validation split

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


@dataclass(frozen=True)
class Point:
    """A point of the learning curve. loss: the mean since the last one; lr: the last step's.
    tokens, seconds: since the last one. probe: what was asked of the model, where it was."""

    step: int
    loss: float
    lr: float
    tokens: int
    seconds: float
    probe: dict[str, float] | None = None


def train_in_folder(
    folder: Path,
    model: nn.Module,
    batches: Batches,
    loss: Loss,
    config: TrainConfig,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    schedule: optim.Schedule | None = None,
    log: int = 100,
    probe: Callable[[nn.Module], dict[str, float]] | None = None,
    probe_every: int = 250,
    watch: Callable[[Step], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Point]:
    """`train`, with its checkpoint and learning curve in a folder; a run that stands there goes on.

    Args:
        log: steps between two points, each of which is written to `curve.json` and yielded.
        probe: model -> scores, asked every `probe_every` steps and at the end, with random numbers
            of its own: a run that was stopped draws on as one that was not. watch: called with each
            step.
        clock: what a point's seconds are measured by.
    """
    processes, _ = distributed.join(known_device(config.device))
    config = replace(config, save_to=folder / "state.safetensors")
    curve = read_curve(folder)
    recent: list[Step] = []
    start = clock()
    with locked(folder) if processes.is_main else nullcontext():
        for step in train(model, batches, loss, config, optimizer=optimizer, schedule=schedule):
            recent.append(step)
            last = step.step == config.steps
            probing = probe if last or step.step % probe_every == 0 else None
            point = None
            if last or probing or step.step % log == 0:
                seconds, tokens = clock() - start, sum(each.tokens for each in recent)
                scores = probing and {
                    name: round(value, 4) for name, value in ask(probing, model).items()
                }
                mean = sum(each.loss for each in recent) / len(recent)
                point = Point(step.step, round(mean, 5), step.lr, tokens, round(seconds, 2), scores)
                written = {
                    name: value for name, value in asdict(point).items() if value is not None
                }
                # those beyond the state go
                curve = [*(old for old in curve if old["step"] < step.step), written]
                if processes.is_main:
                    write_json(folder / "curve.json", curve)
            if watch is not None:
                watch(step)
            if point is not None:
                yield point
                recent.clear()
                start = clock()


def ask(probe: Callable[[nn.Module], dict[str, float]], model: nn.Module) -> dict[str, float]:
    """A probe with random numbers of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return probe(model)


def read_curve(folder: Path) -> list[dict[str, Any]]:
    """The learning curve of a run, as far as it has come."""
    path = folder / "curve.json"
    curve = read_json(path) if path.exists() else []
    try:
        points = [Point(**point) for point in curve]
        is_curve = all(isinstance(point.step, int) for point in points)
    except TypeError:
        is_curve = False
    if not is_curve:
        raise CourseError(
            f"{path} is no learning curve of this version; remove it, and the next point begins"
            " one."
        )
    return list(curve)


def card(curve: Sequence[Mapping[str, Any]], **about: Any) -> dict[str, Any]:
    """What card.json says of a finished run: `about`, its curve and cost, and on what it was
    made.
    """
    cpu = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    hardware = torch.cuda.get_device_name() if torch.cuda.is_initialized() else cpu  # type: ignore[no-untyped-call]
    return about | {
        "steps": curve[-1]["step"] if curve else 0,
        "tokens": sum(point["tokens"] for point in curve),
        "seconds": round(sum(point["seconds"] for point in curve)),
        "curve": list(curve),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "hardware": hardware,
        "made": time.strftime("%Y-%m-%d"),
    }


class Prepared(NamedTuple):
    """A run's tokenizer, tokens and held-out tokens (if its corpus has any), as its folder holds
    them.
    """

    tokenizer: Tokenizer
    store: TokenStore
    held_out: TokenStore | None


def pretrain(
    name: str,
    out: Path,
    *,
    data: str = "world",
    documents: int | None = None,
    held_out: int = 0,
    vocab: int = 3072,
    size: Mapping[str, int | None] | None = None,
    init_from: str | Path | None = None,
    teacher: str | Path | None = None,
    steps: int = 1000,
    tokens: int = 4096,
    lr: float = 1e-3,
    schedule: Literal["cosine", "wsd"] = "cosine",
    warmup: int | None = None,
    optimizer: Literal["adamw", "muon"] = "adamw",
    weight_decay: float = 0.01,
    beta2: float = 0.999,
    short: int | None = None,
    mask_rate: float | None = None,
    cased: bool = False,
    dropout: float | None = None,
    init_std: float | None = None,
    seed: int = 0,
    every: int = 500,
    resume: bool = True,
    device: str = "cpu",
    say: Callable[[str], None] = lambda text: None,
    watch: Callable[[Step], object] | None = None,
    **options: Any,
) -> None:
    """Train a model into the folder `out`; with several processes, all of them call this.

    `python -m course_lib pretrain --help` says what each option means. Beside those:

    Args:
        name: a family and a size: "bert-mini", "gpt-base"; "bert" is "bert-mini". size: what
            differs from that.
        data: what `data.corpus` takes, or a folder of token files that `tokenize` wrote.
        short: as Devlin et al. 2019, appendix A.2, had rows of 128 tokens. schedule: of `optim`.
        say: takes lines of text, watch: each step; both on the main process only. options: of
            `train`.
    """
    given = locals() | dict(size or {}) | {"precision": options.get("precision")}
    recipe = {key: value for key, value in given.items() if key not in FREE}
    family, shape = _named(name, size or {})
    master = None if teacher is None else zoo.open_model(teacher)
    parent = None if init_from is None else zoo.open_model(init_from)
    if master is not None:
        if init_from is not None:
            raise CourseError("A student begins with layers of its teacher; leave --init-from.")
        parent = master._replace(model=distill.student(master.model, (size or {}).get("layers")))
        init_from, size = teacher, {**(size or {}), "layers": None}
    if parent is not None:
        theirs = families.family_of(parent.model) if hasattr(parent.model, "stack") else None
        if theirs is None or theirs.objective != family.objective:
            raise CourseError(f"{init_from} is no model that a {family.name} could begin with.")
        family = theirs
        if any((size or {}).get(what) is not None for what in ("layers", "width", "heads")):
            raise CourseError(
                f"The model's size is that of {init_from}; leave layers, width and heads."
            )
    processes, _ = distributed.join(known_device(device))
    if optimizer == "muon" and processes.sharded:
        raise CourseError(
            "Muon needs whole matrices, and FSDP cuts them; use --multi_gpu, or --optimizer adamw."
        )
    state = out / "run" / "state.safetensors"
    done = run_state.steps_done(state, recipe) if resume and state.exists() else 0
    if done > steps:
        beyond = f"The run in {out} has made {done:,} steps, more than {steps:,}"
        raise CourseError(f"{beyond}: ask for more, name another folder, or say --afresh.")
    with locked(out) if processes.is_main else nullcontext():
        if processes.is_main:
            tokenize(
                data,
                out,
                kind=name,
                vocab=vocab,
                documents=documents,
                held_out=held_out,
                cased=cased,
                seed=seed,
                tokenizer=parent and parent.tokenizer,
                resume=resume,
            )
        processes.wait()
        ready = _open(out, data)
        if parent is None:
            config = family.config(ready.tokenizer.vocab.size, **shape)
        else:
            config = parent.model.stack.config
            shape["length"] = min(
                shape["length"], getattr(config.position, "length", shape["length"])
            )
        changes: dict[str, Any] = {
            "dropout": dropout,
            "attention_dropout": dropout,
            "init_std": init_std,
        }
        config = replace(
            config, **{name: value for name, value in changes.items() if value is not None}
        )
        torch.manual_seed(seed)
        model = _model(family, config, ready.tokenizer, master and master.model)
        if parent is not None:
            _warm_start(model, parent.model, str(init_from))

        rows = partial(
            _batches,
            family,
            tokenizer=ready.tokenizer,
            mask_rate=mask_rate,
            tokens=tokens,
            seed=seed,
        )
        batches = rows(ready.store, length=shape["length"])
        if short is not None:
            batches = _Lengthened(
                rows(ready.store, length=min(short, shape["length"])), batches, steps * 9 // 10
            )
        loss = objectives.objective(family.objective if master is None else "distilled").loss
        judge = None
        if ready.held_out is not None:
            judge = partial(
                _held_out_loss, loss=loss, batches=rows(ready.held_out, length=shape["length"])
            )
        if processes.is_main:
            count = sum(p.numel() for p in model.parameters())
            say(
                f"{count:,} parameters, {len(ready.store):,} documents, {batches.steps:,} batches"
                " an epoch"
            )
            if done:
                say(
                    f"the run in {out} is finished"
                    if done == steps
                    else f"going on with the run in {out}"
                )
        config_of_training = TrainConfig(
            steps=steps,
            lr=lr,
            schedule=schedule,
            warmup=min(steps // 10, 300) if warmup is None else min(warmup, steps),
            optimizer=optimizer,
            weight_decay=weight_decay,
            beta2=beta2,
            device=device,
            save_every=every,
            resume=resume,
            recipe=recipe,
            **options,
        )
        training = train_in_folder(
            out / "run",
            model,
            batches,
            loss,
            config_of_training,
            probe=None if judge is None or processes.sharded else partial(judge, most=20),
            probe_every=every,
            watch=watch if processes.is_main else None,
        )
        deque(training, maxlen=0)
        if processes.is_main:
            # the trained one may be in shards
            model = _model(family, config, ready.tokenizer, master and master.model)
            run_state.load_model(state, model)
            judged = {} if judge is None else judge(model)
            about = {
                "name": name,
                "data": data,
                "documents": len(ready.store),
                "from": str(init_from or ""),
                "lr": lr,
            }
            about |= {
                "schedule": schedule,
                "optimizer": optimizer,
                "tokens a batch": tokens,
                "seed": seed,
            }
            zoo.save_pretrained(
                _public(model), out, model_type=family.model_type, tokenizer=ready.tokenizer
            )
            write_json(out / "card.json", card(read_curve(out / "run"), **about, scores=judged))
            says = f"loss on held-out text {judged['loss']:.3f}; " if judged else ""
            say(
                f"{says}written to {out}"
                + ("" if judged else "; no held-out text (--held-out N keeps some aside)")
            )


def tokenize(
    data: str,
    out: Path,
    *,
    kind: str = "gpt",
    vocab: int = 3072,
    documents: int | None = None,
    held_out: int = 0,
    tokenizer: Tokenizer | None = None,
    cased: bool = False,
    seed: int = 0,
    resume: bool = True,
) -> Prepared:
    """Learn a tokenizer, unless one is given or in `out`, and stream a corpus into the token files
    `out/tokens`, unless they are there. `out/held_out` gets the first documents of the validation
    split, or of a corpus without one its first `held_out`, which are not trained on."""
    note = {"data": data, "documents": documents, "seed": seed} | (
        {"held_out": held_out} if held_out else {}
    )
    there = TokenStore.open(out / "tokens").note if _has_tokens(out) else None
    if _has_tokens(data) or there == note:
        ready = _open(out, data, tokenizer)
        if ready.held_out is None and (aside := _validation(ready.store.note.get("data"), seed)):
            encode_corpus(aside, ready.tokenizer, out / "held_out")
        return _open(out, data)
    if there is not None and resume and (out / "run" / "state.safetensors").exists():
        other = f"{out} holds a run on other data ({_said(there)}, not {_said(note)})"
        raise CourseError(f"{other}; name another folder, or say --afresh.")

    corpus = partial(doors.corpus, data, n=documents, seed=seed, streaming=True)
    if aside := _validation(data, seed):
        held_out = 0
    elif held_out:
        aside = islice(corpus(), held_out)
        if next(islice(corpus(), held_out, None), None) is None:
            raise CourseError(
                f"{held_out} documents kept aside leave nothing to train on; {data} has no more."
            )
    if not (out / "tokenizer.json").exists():
        texts = (row["text"] for row in islice(corpus(), LEARN_FROM))
        (tokenizer or _learn(_named(kind, {})[0], texts, vocab, cased)).save(out)
    words = Tokenizer.load(out)
    for file in (out / "held_out").glob("*"):
        file.unlink()  # of other data
    if aside:
        encode_corpus(aside, words, out / "held_out")
    encode_corpus(islice(corpus(), held_out, None), words, out / "tokens", note=note)
    return _open(out, data, tokenizer)


def _validation(source: str | None, seed: int) -> Any:
    """The first documents of the source's validation split; none if it has no such split, or is no
    longer there.
    """
    try:
        return doors.corpus(source, split="validation", n=HELD_OUT, seed=seed) if source else []
    except CourseError:
        return []


def _has_tokens(place: str | Path) -> bool:
    return (Path(place) / "tokens" / "header.json").exists()


def _open(out: Path, data: str, expected: Tokenizer | None = None) -> Prepared:
    """What a run in `out` reads: the token files of `data` if it is a folder of them, else those in
    `out`.
    """
    place = Path(data) if _has_tokens(data) else out
    tokenizer = Tokenizer.load(place)
    if expected is not None and expected.backend.to_str() != tokenizer.backend.to_str():
        raise CourseError(
            f"The tokens in {place} are those of another tokenizer than the model's to begin with."
        )
    if place != out and not (out / "tokenizer.json").exists():
        tokenizer.save(out)
    aside = next(
        (p / "held_out" for p in (place, out) if (p / "held_out" / "header.json").exists()), None
    )
    held_out = None if aside is None else TokenStore.open(aside, tokenizer)
    return Prepared(tokenizer, TokenStore.open(place / "tokens", tokenizer), held_out)


def _said(note: dict[str, Any]) -> str:
    return (
        ", ".join(f"{key} {value}" for key, value in note.items() if value is not None) or "unknown"
    )


def _named(name: str, changes: Mapping[str, int | None]) -> tuple[Family, dict[str, int]]:
    """The family and the shape that a name such as "bert-base" says."""
    kind, _, size = name.rpartition("-") if name.rpartition("-")[2] in SIZES else (name, "", "mini")
    if kind not in FAMILIES:
        raise CourseError(
            f"There is no model {name!r} to pretrain; say one of {', '.join(FAMILIES)}, "
            f"with a size if you like ({', '.join(f'bert-{s}' for s in SIZES)})."
        )
    shape = SIZES[size] | {key: value for key, value in changes.items() if value is not None}
    if shape["width"] % shape["heads"]:
        raise CourseError(
            f"A width of {shape['width']} cannot be shared by {shape['heads']} heads."
        )
    return families.family(kind), shape


def _learn(family: Family, texts: Iterable[str], size: int, cased: bool) -> Tokenizer:
    if family.tokenizer == "bpe":
        return train_bpe(texts, size)
    learned = train_wordpiece(texts, size, lowercase=not cased)
    return add_sentinels(learned) if family.objective == "span_corrupted" else learned


def _model(
    family: Family, config: StackConfig, tokenizer: Tokenizer, teacher: nn.Module | None = None
) -> nn.Module:
    model = family.model(config, getattr(tokenizer.vocab, family.start) or 0)
    return model if teacher is None else distill.Distilled(model, teacher)


def _warm_start(model: nn.Module, parent: nn.Module, name: str) -> None:
    """The parent's weights, all of its body's and those of its head that this one has."""
    own = _public(model)
    mine, theirs = own.state_dict(), parent.state_dict()
    fits = {
        key: value
        for key, value in theirs.items()
        if key in mine and mine[key].shape == value.shape
    }
    if odd := sorted(key for key in mine if key.startswith("stack.") and key not in fits):
        raise CourseError(
            f"{name} does not fit this family: {odd[0]} is another there, or missing."
        )
    own.load_state_dict(mine | fits)


def _public(model: nn.Module) -> nn.Module:
    """What is written of a model: of ELECTRA's two the discriminator, of teacher and student the
    student.
    """
    return getattr(model, "discriminator", getattr(model, "student", model))


def _batches(
    family: Family,
    store: TokenStore,
    tokenizer: Tokenizer,
    mask_rate: float | None = None,
    **size: int,
) -> Source:
    """The family's objective on these tokens."""
    if family.objective == "causal":
        return DocumentBatches(store, tokenizer, **size)
    return CorruptedBatches(
        store, tokenizer, objectives.corruption(family.objective, tokenizer, rate=mask_rate), **size
    )


class _Lengthened(Source):
    """Short rows, from the step `start` on long ones."""

    def __init__(self, short: Source, long: Source, start: int) -> None:
        self.short, self.long, self.start, self.steps = short, long, start, short.steps

    def __getitem__(self, step: int, /) -> Batch:
        return self.short[step] if step < self.start else self.long[step]


def _held_out_loss(
    model: nn.Module, loss: Loss, batches: Source, most: int | None = None
) -> dict[str, float]:
    steps = batches.steps if most is None else min(most, batches.steps)
    return {"loss": round(mean_loss(model, loss, [batches[i] for i in range(steps)]), 4)}
