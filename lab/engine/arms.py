"""Pretraining arms: small models that several claims share, each trained once and named by what it
is.

    arm = Arm("masked_pairs", config, seed=0)
    # trains it into build/arms/<name>/ if it is not there yet
    model, tokenizer, card = trained(arm)

The name is the hash of everything that the weights follow from, the documents included; so a claim
that asks for the same arm finds it done, and one that asks for another never gets the wrong one.
Files: safetensors and JSON only."""

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from classroom.town import World
from course_lib.data.stream_batches import StreamBatches
from course_lib.data.tokenizers import Tokenizer, train_wordpiece
from course_lib.errors import CourseError
from course_lib.families import elmo
from course_lib.files import COURSE, atomic_write, read_json, write_json
from course_lib.model import heads, transformer
from course_lib.model.config import StackConfig, to_dict
from course_lib.model.initialization import mimetic
from course_lib.objectives import corruption, losses, objective, seeded_generator
from course_lib.objectives.losses import Batch, Loss
from course_lib.objectives.masking import BERT_PARTS
from course_lib.training import loop, optim, run_state
from course_lib.training.feed import Batches
from course_lib.training.run_folder import Point, Reports, read_curve, train_in_folder
from course_lib.vocab import IGNORE

FOLDER = COURSE / "build" / "arms"
LOG, SAVE = 20, 200  # steps between two points of the curve, and between two states to resume from
TOKENIZER_DOCUMENTS = 10_000

# What stands on a transformer that learns by this objective.
HEADS: dict[str, type[nn.Module]] = {
    "masked_pairs": heads.Pretraining,
    "masked": heads.MLM,
    "causal": heads.LM,
}
Sentences = Callable[[int], list[str]]


@dataclass(frozen=True, kw_only=True)
class Training:
    """What an arm or a shipped checkpoint's recipe says of its training.

    Attributes:
        steps: updates in all.
        rows: of a batch.
        lr: the learning rate between its rise and its fall.
        warmup: steps in which the learning rate rises.
        decay: share of the steps, at the end, in which it falls to 0.
        weight_decay: of the optimizer.
        beta2: of the optimizer.
        world: seed of the town whose texts are read.
        seed: of which texts, their order and the first weights.
        precision: as in `TrainConfig`.
    """

    steps: int
    rows: int
    lr: float
    warmup: int
    decay: float = 0.2
    weight_decay: float = 0.01
    beta2: float = 0.98
    world: int = 0
    seed: int = 0
    precision: Literal["fp32", "bf16", "auto"] = "auto"

    def run(
        self,
        folder: Path,
        model: nn.Module,
        batches: Batches,
        loss: Loss,
        *,
        steps: int | None = None,
        reports: Reports | None = None,
        device: str = "cpu",
        save_every: int = 500,
    ) -> Iterator[Point]:
        """`train_in_folder` by what is said here."""
        # An arm may stop before the schedule ends, so the schedule is not the config's.
        schedule = optim.wsd(self.steps, min(self.warmup, self.steps), self.decay)
        config = loop.TrainConfig(
            steps=self.steps if steps is None else steps,
            lr=self.lr,
            weight_decay=self.weight_decay,
            beta2=self.beta2,
            precision=self.precision,
            device=device,
            save_every=save_every,
            recipe={},  # the folder's name says it
        )
        return train_in_folder(
            folder,
            model,
            batches,
            loss,
            config,
            reports,
            schedule=schedule,
        )


@dataclass(frozen=True)
class Arm(Training):
    """One pretraining run, as data.

    Attributes:
        objective: of `objectives.OBJECTIVES`; "causal" with a model that is not causal is the one
            that can cheat.
        model: the architecture.
        documents: fingerprint of the town's documents, which are read whole, one a row.
        length: tokens of a row, at most.
        stop: the run ends after this step, in the state that the whole run would have there.
        pairs: share of the rows that are two halves of documents, for next-sentence prediction.
        rate: share of the tokens that are chosen.
        parts: what becomes of the chosen tokens: ([MASK], random, as they are).
        mimetic: strength of the mimetic start of attention and positions
            (`initialization.mimetic`); 0 for none.
        keep: steps at which the weights are kept, beside those of the end.
    """

    objective: str
    model: StackConfig
    _: KW_ONLY
    steps: int = 1000
    rows: int = 32
    lr: float = 2e-3
    warmup: int = 100
    documents: str = ""
    length: int = 128
    stop: int | None = None
    pairs: float = 0.0
    rate: float = 0.15
    parts: tuple[float, float, float] = BERT_PARTS
    mimetic: float = 0.4
    keep: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        """Updates in all."""
        return self.steps if self.stop is None else self.stop

    @property
    def name(self) -> str:
        """Hash of the canonical JSON of every field."""
        return short_hash(json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":")))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "model": to_dict(self.model)}

    def __str__(self) -> str:
        return (
            f"{self.objective} {self.model.layers} x {self.model.width}, {self.end:,} steps, seed"
            f" {self.seed}"
        )


class Trained(NamedTuple):
    """A finished arm.

    Attributes:
        model: in eval mode.
        tokenizer: the one that all arms of its town and vocabulary size share.
        card: its arm, learning curve (means of `LOG` steps), tokens and processor seconds.
    """

    model: nn.Module
    tokenizer: Tokenizer
    card: dict[str, Any]


@cache
def town(seed: int) -> Any:
    """The generated town; made once a process."""
    return World(seed)


@cache
def fingerprint(world: int) -> str:
    """Of the documents that a town's arms read: its first ones."""
    return short_hash("\n".join(town(world).document(i)["text"] for i in range(32)))


def short_hash(text: str) -> str:
    """Twelve hexadecimal digits: a name that follows from a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def sentences(world: int, split: str, seed: int = 0) -> Sentences:
    """Document number -> its sentences."""
    return lambda index: list(town(world).document(index, split, seed)["sentences"])


def learned(
    path: Path, read: Sentences, documents: int, learn: Callable[[Iterable[str]], Any]
) -> Any:
    """A vocabulary that is learned once, from the first documents, and kept in a file.

    Args:
        path: of the file. A list of words (ELMo's) ends in .txt.
        read: document number -> its sentences.
        documents: how many are read.
        learn: texts -> the vocabulary.
    """
    if not path.exists():
        texts = (" ".join(read(i)) for i in range(documents))
        learn(texts).save(path)
    kind = elmo.Vocabulary if path.suffix == ".txt" else Tokenizer
    return kind.load(path)


def vocabulary(arm: Arm, folder: Path = FOLDER) -> Tokenizer:
    """The vocabulary of an arm's town; all arms of one town and size share it."""
    size = arm.model.embed.vocab
    path = folder / f"vocabulary-{arm.documents}-{size}-{TOKENIZER_DOCUMENTS}" / "tokenizer.json"
    read = sentences(arm.world, "train")
    tokenizer: Tokenizer = learned(
        path, read, TOKENIZER_DOCUMENTS, partial(train_wordpiece, size=size)
    )
    return tokenizer


class ArmBatches(StreamBatches):
    """Batch `step` of an arm: depends on (seed, step) only. The rows are the same for every
    objective.
    """

    def __init__(
        self, arm: Arm, tokenizer: Tokenizer, split: str = "train", *, pool: int = 64
    ) -> None:
        options: dict[str, Any] = {}
        if arm.objective != "causal":
            options = {"rate": arm.rate, "parts": arm.parts}
        super().__init__(
            sentences(arm.world, split, arm.seed),
            tokenizer,
            corruption(arm.objective, tokenizer, **options),
            rows=arm.rows,
            length=arm.length,
            pairs=None if arm.objective == "causal" else arm.pairs,
            pool=pool,
            seed=arm.seed,
        )
        # The masks of one way of masking say nothing of another's.
        self.stream = 1 if arm.parts == BERT_PARTS else 2

    def apply_objective(self, step: int, ids: Tensor, attention_mask: Tensor) -> Batch:
        """What this step asks of its rows."""
        rng = seeded_generator(self.seed, self.stream, step)
        return self.corrupt(ids, attention_mask, rng)


def build(arm: Arm) -> nn.Module:
    """A fresh model, by the arm's seed."""
    torch.manual_seed(arm.seed)
    stack = transformer.Transformer(arm.model)
    if arm.mimetic:
        mimetic(stack, strength=arm.mimetic)
    return HEADS[arm.objective](stack)


def loss_of(arm: Arm) -> Loss:
    """The objective's loss."""
    if arm.objective == "causal" and not arm.model.causal:
        return two_sided
    return objective(arm.objective).loss


def two_sided(model: nn.Module, batch: Batch) -> Tensor:
    """Next-token prediction by a model that sees the next token; padding stays hidden."""
    labels = losses.next_tokens(batch["ids"], batch["attention_mask"])
    at = labels != IGNORE
    logits = model(batch["ids"], attention_mask=batch["attention_mask"], loss_mask=at)  # N V
    return losses.cross_entropy(logits, labels[at])


def finished(arm: Arm, folder: Path = FOLDER) -> bool:
    """Whether the arm is trained."""
    return (folder / arm.name / "card.json").exists()


def trained(
    arm: Arm, folder: Path = FOLDER, *, at: int | None = None, device: str = "cpu"
) -> Trained:
    """The arm's model, trained now unless it is there. A run that was killed goes on where its last
    state was saved.

    at: the weights after that step, one of `arm.keep`; those of the end by default.
    """
    if not finished(arm, folder):
        _train(arm, folder, device)
    step = arm.end if at is None else at
    path = folder / arm.name / _weights(step)
    model = build(arm)
    try:
        model.load_state_dict(from_bytes(path.read_bytes()))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise CourseError(
            f"{path} is damaged or missing; remove its folder, and the arm is trained again."
        ) from error
    card = dict(read_json(folder / arm.name / "card.json"))
    return Trained(model.eval().to(device), vocabulary(arm, folder), card)


def _train(arm: Arm, folder: Path, device: str) -> None:
    """Train the arm into its folder; the card is written last, so it says that all is there."""
    if arm.documents != fingerprint(arm.world):
        raise CourseError(
            f"The arm {arm.name} is of documents {arm.documents}; the world writes others now."
        )
    place = folder / arm.name
    place.mkdir(parents=True, exist_ok=True)
    write_json(place / "arm.json", arm.to_dict())
    batches = ArmBatches(arm, vocabulary(arm, folder))
    model = build(arm)

    # Begin again if the weights of a step that would be skipped were not kept.
    state = place / "state.safetensors"
    done = run_state.steps_done(state) if state.exists() else 0
    lost = [s for s in arm.keep if s <= done and not (place / _weights(s)).exists()]
    if lost:
        state.unlink()

    def keep_weights(step: loop.Step) -> None:
        if step.step in arm.keep:
            _save(model, place / _weights(step.step))

    points = arm.run(
        place,
        model,
        batches,
        loss_of(arm),
        steps=arm.end,
        reports=Reports(log=LOG, watch=keep_weights, clock=time.process_time),
        save_every=SAVE,
        device=device,
    )
    deque(points, maxlen=0)  # nobody reads the points here
    _save(model, place / _weights(arm.end))
    curve = read_curve(place)
    card = {
        "name": arm.name,
        "arm": arm.to_dict(),
        "tokens": round(sum(point["tokens"] for point in curve), 1),
        "seconds": round(sum(point["seconds"] for point in curve), 1),
        "curve": curve,
    }
    write_json(place / "card.json", card)
    state.unlink(missing_ok=True)


def _weights(step: int) -> str:
    return f"weights-{step}.safetensors"


def _save(model: nn.Module, path: Path) -> None:
    tensors = {
        name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()
    }
    with atomic_write(path, "wb") as file:
        file.write(to_bytes(tensors))
