"""Pretraining arms: small models that several claims share, each trained once and named by what it is.

    arm = Arm("mlm_nsp", config, seed=0)
    model, tokenizer, card = trained(arm)          # trains it into build/arms/<name>/ if it is not there yet

The name is the hash of everything that the weights follow from, the documents included; so a claim that asks for the
same arm finds it done, and one that asks for another never gets the wrong one. Files: safetensors and JSON only.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from course_lib import heads, losses, optim
from course_lib.config import StackConfig, to_dict
from course_lib.corrupt import generator, mask_tokens
from course_lib.errors import CourseError
from course_lib.files import atomic_write, read_json, write_json
from course_lib.initial import mimetic
from course_lib.losses import Batch, Loss
from course_lib.models import elmo
from course_lib.models.elmo import ElmoConfig
from course_lib.recipes import DocumentBatches, Recipe
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer, train_wordpiece
from course_lib.train import Step, train

FOLDER = Path(__file__).resolve().parents[2] / "build" / "arms"
LOG, SAVE = 20, 200  # steps between two points of the curve, and between two states to resume from
TOKENIZER_DOCUMENTS = 10_000

Objective = Literal["mlm_nsp", "mlm", "clm", "bilm"]
Sentences = Callable[[int], list[str]]


@dataclass(frozen=True)
class Arm:
    """One pretraining run, as data.

    objective: "mlm_nsp" (BERT), "mlm" (without next sentences), "clm" (next token; with a model that is not causal,
    the one that can cheat), "bilm" (ELMo). world: seed of the generated town whose documents are read, whole, one a
    row, and documents: their fingerprint. The learning rate warms up, stays, and falls to 0 over the last `decay` of
    `steps`; a run with `stop` ends earlier, as the same run would have stood there. parts: what becomes of the chosen
    tokens ([MASK], random, as they are). mimetic: strength of the mimetic start of a transformer's attention and
    positions (`initial.mimetic`), 0 for none. keep: steps at which the weights are kept beside those of the end.
    """

    objective: Objective
    model: StackConfig | ElmoConfig
    seed: int = 0
    world: int = 0
    documents: str = ""
    rows: int = 32
    length: int = 128
    steps: int = 1000
    stop: int | None = None
    lr: float = 2e-3
    warmup: int = 100
    decay: float = 0.2
    weight_decay: float = 0.01
    beta2: float = 0.98
    pairs: float = 0.0
    rate: float = 0.15
    parts: tuple[float, float, float] = (0.8, 0.1, 0.1)
    mimetic: float = 0.4
    keep: tuple[int, ...] = ()
    precision: Literal["fp32", "bf16", "auto"] = "auto"

    @property
    def end(self) -> int:
        """Updates in all."""
        return self.steps if self.stop is None else self.stop

    @property
    def name(self) -> str:
        """Hash of the canonical JSON of every field."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return short_hash(text)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        model = self.model
        return {**asdict(self), "model": to_dict(model) if isinstance(model, StackConfig) else asdict(model)}

    @property
    def vocab(self) -> int:
        """Entries of the vocabulary."""
        return self.model.embed.vocab if isinstance(self.model, StackConfig) else self.model.vocab

    def __str__(self) -> str:
        model, side = self.model, ""
        if self.objective == "clm":
            side = " causal" if isinstance(model, StackConfig) and model.causal else " two-sided"
        return f"{self.objective}{side} {model.layers} x {model.width}, {self.end:,} steps, seed {self.seed}"


class Trained(NamedTuple):
    """A finished arm. model: in eval mode. tokenizer: a biLM's is its list of words. card: its arm, curve (means of
    `LOG` steps), tokens, processor seconds."""

    model: nn.Module
    tokenizer: Any  # Tokenizer, or elmo.Vocabulary
    card: dict[str, Any]


@cache
def town(seed: int) -> Any:
    """The generated town; made once a process."""
    from course_lib.data.world import World

    return World(seed)


@cache
def fingerprint(world: int) -> str:
    """Of the documents that a town's arms read: its first ones."""
    texts = "\n".join(town(world).document(i)["text"] for i in range(32))
    return short_hash(texts)


def short_hash(text: str) -> str:
    """Twelve hexadecimal digits: a name that follows from a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def sentences(world: int, split: str, seed: int = 0) -> Sentences:
    """Document number -> its sentences."""
    return lambda index: list(town(world).document(index, split, seed)["sentences"])


def vocabulary(arm: Arm, folder: Path = FOLDER) -> Any:
    """The vocabulary of an arm's town, pieces or words; all arms of one town and size share it."""
    size, count = arm.vocab, TOKENIZER_DOCUMENTS
    place = folder / f"vocabulary-{arm.documents}-{size}-{count}"
    if arm.objective == "bilm":
        path = place / "words.txt"
        if not path.exists():
            rows = (elmo.split(" ".join(sentences(arm.world, "train")(i))) for i in range(count))
            elmo.Vocabulary.count(rows, most=size - 3).save(path)
        known: Any = elmo.Vocabulary.load(path)
        have = len(known)
    else:
        path = place / "tokenizer.json"
        if not path.exists():
            train_wordpiece([" ".join(sentences(arm.world, "train")(i)) for i in range(count)], size).save(path)
        known = Tokenizer.load(path)
        have = known.vocab.size
    if have != size:
        raise CourseError(f"The town's documents make a vocabulary of {have}, and the arm's model is built for {size}.")
    return known


class Batches:
    """Batch `step` of an arm: depends on (seed, step) only. The rows are the same for every objective."""

    def __init__(
        self, arm: Arm, tokenizer: Tokenizer, split: str = "train", *, seed: int | None = None, pool: int = 64
    ) -> None:
        recipe = Recipe("mlm_nsp", rows=arm.rows, pairs=arm.pairs, length=arm.length, mask_rate=arm.rate, pool=pool)
        self.arm, self.tokenizer = arm, tokenizer
        self.seed = arm.seed if seed is None else seed
        self.source = DocumentBatches(sentences(arm.world, split, self.seed), tokenizer, recipe, seed=self.seed)

    def __getitem__(self, step: int, /) -> Batch:
        """The batch of this step."""
        batch = dict(self.source[step])
        if self.arm.objective == "clm":
            return {"ids": unmasked(batch), "keep": batch["keep"]}
        if self.arm.parts != (0.8, 0.1, 0.1):
            options: dict[str, Any] = {"vocab": self.tokenizer.vocab, "rate": self.arm.rate, "keep": batch["keep"]}
            rng = generator(self.seed, 2, step)
            batch |= mask_tokens(unmasked(batch), rng, parts=self.arm.parts, **options)._asdict()
        return batch


def unmasked(batch: Batch) -> Tensor:
    """The ids before anything was hidden."""
    return torch.where(batch["at"], batch["labels"], batch["ids"])


def batches_of(arm: Arm, known: Any) -> Any:
    """The arm's training batches."""
    if isinstance(arm.model, StackConfig):
        return Batches(arm, known)
    write = sentences(arm.world, "train", arm.seed)
    size = {"rows": arm.rows, "length": arm.length, "seed": arm.seed}
    return elmo.Batches(lambda i: elmo.split(" ".join(write(i))), known, arm.model, **size)


def build(arm: Arm) -> nn.Module:
    """A fresh model, by the arm's seed."""
    torch.manual_seed(arm.seed)
    if not isinstance(arm.model, StackConfig):
        return elmo.model(arm.model)
    stack = Stack(arm.model)
    if arm.mimetic:
        mimetic(stack, strength=arm.mimetic)
    head = {"mlm_nsp": heads.Pretraining, "mlm": heads.MLM, "clm": heads.LM}[arm.objective]
    return head(stack)


def loss_of(arm: Arm) -> Loss:
    """The objective."""
    if arm.objective == "mlm_nsp":
        return losses.mlm_nsp
    if arm.objective == "mlm":
        return losses.mlm
    if arm.objective == "bilm":
        return elmo.loss
    return losses.clm if isinstance(arm.model, StackConfig) and arm.model.causal else two_sided


def two_sided(model: nn.Module, batch: Batch) -> Tensor:
    """Next-token prediction by a model that sees the next token; padding stays hidden."""
    labels = losses.next_tokens(batch["ids"], batch["keep"])
    at = labels != -100
    return losses.cross_entropy(model(batch["ids"], keep=batch["keep"], at=at), labels[at])


def finished(arm: Arm, folder: Path = FOLDER) -> bool:
    """Whether the arm is trained."""
    return (folder / arm.name / "card.json").exists()


def trained(
    arm: Arm,
    folder: Path = FOLDER,
    *,
    at: int | None = None,
    device: str = "cpu",
    watch: Callable[[Step], None] | None = None,
) -> Trained:
    """The arm's model, trained now unless it is there. A run that was killed goes on where its last state was saved.

    Args:
        at: the weights after that step, one of `arm.keep`; those of the end by default. watch: called at each step.

    Raises:
        CourseError: a step that was not kept; damaged files; documents that are no longer those of the arm.
    """
    if at is not None and at != arm.end and at not in arm.keep:
        raise CourseError(f"The arm {arm.name} keeps its weights at {arm.keep or 'the end'} only, not at step {at}.")
    place = folder / arm.name
    known = vocabulary(arm, folder) if finished(arm, folder) else _train(arm, folder, device, watch)
    model = build(arm)
    _load(model, place / _weights(arm.end if at is None else at))
    return Trained(model.eval().to(device), known, dict(read_json(place / "card.json")))


def _train(arm: Arm, folder: Path, device: str, watch: Callable[[Step], None] | None) -> Any:
    if arm.documents != fingerprint(arm.world):
        raise CourseError(f"The arm {arm.name} is of documents {arm.documents}; the world writes others now.")
    place, known = folder / arm.name, vocabulary(arm, folder)
    place.mkdir(parents=True, exist_ok=True)
    write_json(place / "arm.json", arm.to_dict())
    model = build(arm)
    curve = _Curve(place / "curve.json")
    for step in _steps(arm, model, known, place, device):
        curve.add(step, last=step.step == arm.end)
        if step.step in arm.keep:
            _save(model, place / _weights(step.step))
        if watch is not None:
            watch(step)
    _save(model, place / _weights(arm.end))
    spent = {"tokens": int(curve.total("tokens")), "seconds": round(curve.total("seconds"), 1)}
    write_json(place / "card.json", {"name": arm.name, "arm": arm.to_dict(), **spent, "curve": curve.points})
    (place / "state.safetensors").unlink(missing_ok=True)
    return known


def _steps(arm: Arm, model: nn.Module, known: Any, place: Path, device: str) -> Iterator[Step]:
    """The training, resumed; from the beginning if the weights of a step that it would skip were not kept."""
    state = place / "state.safetensors"

    def run() -> Iterator[Step]:
        optimizer = optim.adamw(model, arm.lr, weight_decay=arm.weight_decay, betas=(0.9, arm.beta2))
        schedule = optim.stable(arm.steps, min(arm.warmup, arm.steps), arm.decay)
        return train(
            model, batches_of(arm, known), loss_of(arm), optimizer, schedule, steps=arm.end, device=device,
            precision=arm.precision, checkpoint=state, every=SAVE,
        )  # fmt: skip

    rest = run()
    first = next(rest, None)
    done = arm.end if first is None else first.step - 1
    if any(step <= done and not (place / _weights(step)).exists() for step in arm.keep):
        state.unlink()
        model.load_state_dict(build(arm).state_dict())
        yield from run()
    elif first is not None:
        yield first
        yield from rest


class _Curve:
    """Mean loss of every `LOG` steps, with the tokens and processor seconds they took, on disk as it grows."""

    def __init__(self, path: Path) -> None:
        self.path, self.clock = path, time.process_time()
        self.points: list[dict[str, float]] = read_json(path) if path.exists() else []
        self.recent: list[Step] = []

    def add(self, step: Step, *, last: bool) -> None:
        """Take a step in; after a resume, points from beyond the state are overwritten."""
        self.recent.append(step)
        if step.step % LOG and not last:
            return
        mean = sum(each.loss for each in self.recent) / len(self.recent)
        point = {
            "step": step.step,
            "loss": round(mean, 5),
            "tokens": sum(each.tokens for each in self.recent),
            "seconds": round(time.process_time() - self.clock, 2),
        }
        self.clock = time.process_time()
        self.points = [old for old in self.points if old["step"] < step.step] + [point]
        self.recent = []
        write_json(self.path, self.points)

    def total(self, key: str) -> float:
        """Sum over the run."""
        return sum(point[key] for point in self.points)


def _weights(step: int) -> str:
    return f"weights-{step}.safetensors"


def _save(model: nn.Module, path: Path) -> None:
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    with atomic_write(path, "wb") as file:
        file.write(to_bytes(tensors))


def _load(model: nn.Module, path: Path) -> None:
    try:
        model.load_state_dict(from_bytes(path.read_bytes()))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise CourseError(f"{path} is damaged or missing; remove its folder, and the arm is trained again.") from error
