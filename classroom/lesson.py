"""How a lesson begins: five parameters checked, seeds set, one object that knows the scale of the
run.
"""

import os
import random
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

import numpy
import torch

from course_lib import generation, peft, public_models, zoo
from course_lib.data.embedders import SentenceEncoder
from course_lib.data.inputs import Frame
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.families.sentence import Sentence
from course_lib.files import COURSE, read_json
from course_lib.files import DATA as OURS
from course_lib.generation.text import end_token
from course_lib.model import heads
from course_lib.objectives.collate import pad
from course_lib.training.finetune import FineTuned, predict

Scale = Literal["smoke", "lesson", "cpu", "gpu"]
SCALES: tuple[str, ...] = get_args(Scale)
word_logits = heads.word_logits
TINTS = ("green", "orange", "blue", "purple", "yellow")  # of `figures.tokens`

T = TypeVar("T")


@dataclass(frozen=True)
class Lesson:
    """One run of a notebook: how large, from which seed, on what, with which data.

    scale: "smoke" (seconds), "lesson" (a minute or so on two cores), "cpu" (an hour) or "gpu".
    data: a folder of the course's data ("world", "text", "tasks/search"), "hub:NAME" or the path of
        a file or folder.
    out: folder for what the lesson writes; made when `path` is first called.
    """

    scale: Scale
    seed: int
    device: torch.device
    data: str
    out: Path

    def pick(self, *, smoke: T, lesson: T, cpu: T | None = None, gpu: T | None = None) -> T:
        """The value for this run's scale; without `cpu` it is the lesson's, without `gpu` the
        cpu's.
        """
        by_cpu = lesson if cpu is None else cpu
        by_gpu = by_cpu if gpu is None else gpu
        return {"smoke": smoke, "lesson": lesson, "cpu": by_cpu, "gpu": by_gpu}[self.scale]

    def generator(self, offset: int = 0) -> torch.Generator:
        """A fresh CPU generator of the lesson's seed; another `offset` gives an independent one."""
        return torch.Generator().manual_seed(self.seed + 1_000_003 * offset)

    def path(self, name: str) -> Path:
        """Where to write `name`, inside the lesson's out folder."""
        path = self.out / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            said = f"OUT: cannot make the folder {path.parent} ({error.strerror}); choose another."
            raise CourseError(said) from error
        return path


def start(
    scale: str = "lesson", seed: int = 0, device: str = "auto", data: str = "world", out: str = ""
) -> Lesson:
    """Check a lesson's parameters, seed every generator, set the threads and the style of figures.

    scale, data: see `Lesson`. device: "auto", "cpu", "cuda", "cuda:1", ... "auto" takes the GPU
        only at scale "gpu", so that at the other scales the numbers on every machine are those in
        the text. out: empty means `build/out` of the course.
    """
    if scale not in SCALES:
        raise CourseError(f"SCALE is {scale!r}; it must be one of {', '.join(SCALES)}.")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise CourseError(f"SEED is {seed!r}; it must be a whole number from 0 to 4294967295.")
    lesson = Lesson(cast(Scale, scale), seed, _device(device, scale), _data(data), _out(out))
    # the models are small: beyond four threads they wait for each other
    if "OMP_NUM_THREADS" not in os.environ:
        usable = (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
        torch.set_num_threads(min(4, usable))
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    from classroom.figures import style

    style.use()
    return lesson


def _device(device: str, scale: str) -> torch.device:
    if not isinstance(device, str) or not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", device):
        raise CourseError(
            f'DEVICE is {device!r}; it must be "auto", "cpu", "cuda" or "cuda:0" and so on.'
        )
    if device == "auto":
        if scale == "gpu" and not torch.cuda.is_available():
            raise CourseError(
                'SCALE is "gpu" but PyTorch sees no GPU here; '
                'choose "lesson" or "cpu", or say DEVICE = "cpu" and be patient.'
            )
        device = "cuda" if scale == "gpu" else "cpu"
    if device.startswith("cuda"):
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (
            torch.device(device).index is not None and torch.device(device).index >= count
        ) or count == 0:
            raise CourseError(
                f'DEVICE is {device!r} but PyTorch sees {count} GPUs here; choose "cpu" or "auto".'
            )
    if device == "mps" and not torch.backends.mps.is_available():
        raise CourseError(
            'DEVICE is "mps" but this is no Mac with an Apple GPU; choose "cpu" or "auto".'
        )
    return torch.device(device)


def _data(data: str) -> str:
    if not isinstance(data, str) or not data:
        raise CourseError(f'DATA is {data!r}; it must be "world", "text", "hub:NAME" or a path.')
    is_of_hub = data.startswith("hub:") and len(data) > 4
    if not is_of_hub and not (OURS / data).is_dir() and not Path(data).exists():
        raise CourseError(
            f'DATA is {data!r}, which is neither a folder of the course\'s data ("world",'
            ' "text", "tasks/search"), nor "hub:NAME", nor a path that exists.'
        )
    return data


def _out(out: str) -> Path:
    if not isinstance(out, str | Path):
        raise CourseError(f"OUT is {out!r}; it must be the name of a folder, or empty.")
    path = Path(out) if str(out) else COURSE / "build" / "out"
    if path.exists() and not path.is_dir():
        raise CourseError(f"OUT is {str(out)!r}, which is a file; name a folder.")
    return path


def likeliest(
    probabilities: torch.Tensor, tokenizer: Tokenizer, count: int = 5
) -> list[tuple[str, float]]:
    """The tokens with the highest of the probabilities [V], and these."""
    shares, ids = probabilities.topk(count)
    words = [tokenizer.decode([token]).strip() for token in ids.tolist()]
    return list(zip(words, shares.tolist(), strict=True))


def written(model: Any, tokenizer: Tokenizer, texts: list[str], longest: int = 40) -> list[str]:
    """What an encoder-decoder writes to each text, greedily; sentinels stay visible.

    longest: tokens of an answer.
    """
    source = pad(tokenizer.ids(texts), tokenizer.vocab.padding_id)
    end = end_token(model, tokenizer)
    options = {"max_new_tokens": longest, "eos": end, "pad": tokenizer.vocab.padding_id}
    device = next(model.parameters()).device
    source = {name: rows.to(device) for name, rows in source.items()}
    rows = generation.generate(model, source.pop("ids"), **source, **options).tolist()
    frame = {*tokenizer.encode("").ids, tokenizer.vocab.padding_id}
    return [
        tidy(tokenizer.decode([i for i in row if i not in frame], special=True)) for row in rows
    ]


def in_batches(
    rows: Sequence[Any], answer: Callable[[list[Any]], Any], size: int = 16
) -> list[Any]:
    """The answer to each row, in the rows' order, computed without gradients in batches of rows of
    similar length, which need little padding.

    Args:
        rows: dicts of texts, tokens or labels.
        answer: a function of some of the rows that returns as many answers.
        size: number of rows in a batch.
    """

    def length(i: int) -> int:
        return sum(len(value) for value in rows[i].values() if isinstance(value, str | list))

    order = sorted(range(len(rows)), key=length)
    answers: dict[int, Any] = {}
    with torch.no_grad():
        for start in range(0, len(order), size):
            some = order[start : start + size]
            answers |= dict(zip(some, answer([rows[i] for i in some]), strict=True))
    return [answers[i] for i in range(len(rows))]


def tidy(text: str) -> str:
    """A text without the spaces that a tokenizer put about hyphens, before colons and in don't.

    >>> tidy("She mustn ' t do it : it is a well - known rule ; ask Tom .")
    "She mustn't do it: it is a well-known rule; ask Tom."
    """
    text = re.sub(r"(?<=\w) ' (?=(s|t|d|m|re|ve|ll)\b)", "'", text)
    text = re.sub(r"(?<=\w) - (?=\w)", "-", text)
    return re.sub(r" (?=[.,:;!?])", "", text)


def adapted(name: str) -> FineTuned:
    """A shipped adapter on its frozen base: the taggers "names-minilm" and "pos-english", or
    "sst2-english", which tells praise from blame.

    Raises:
        CourseError: the base is a public model that is not on this machine.
    """
    folder = zoo.FOLDER.parent / "adapters" / name
    card = read_json(folder / "card.json")
    body, tokenizer, _ = zoo.require(card["base"], "encoder")
    if "layout" not in card:  # what our `peft.save` wrote
        stack = peft.lora(body.stack, "blocks.*.*.*", rank=8, alpha=16)
        model = heads.Classifier(stack, len(card["labels"]))
        peft.load(model, folder / "weights.safetensors")
        frame = Frame(tokenizer, stack.config, "single", classes=len(card["labels"]))
        return FineTuned(model=model.eval(), frame=frame, names=card["labels"])
    tagger = heads.TokenClassifier(body.stack, len(card["labels"]))
    peft.load_pretrained(tagger, folder, **card["layout"])
    frame = Frame(tokenizer, body.stack.config, "tagging", classes=len(card["labels"]))
    return FineTuned(model=tagger.eval(), frame=frame, names=card["labels"])


def marked(tuned: FineTuned, text: str) -> list[tuple[str, str]]:
    """What a fine-tuned model says of a text, as boxes for `figures.tokens`.

    A tagger gives each word its tag, "Paris/LOC", and each kind of tag a tint; a classifier gives
    the text one label.

    Args:
        tuned: a tagger or a classifier, as `finetune` returns it.
        text: its words are split from its punctuation marks.
    """
    if tuned.frame.kind != "tagging":
        pair = {"pair": ""} if tuned.takes_pairs else {}
        [number] = predict(tuned, [{"text": text} | pair])
        return [(text, "plain"), (tuned.names[number], "blue")]
    words = re.findall(r"\w+|[^\w\s]", text)
    kinds = sorted({name.rpartition("-")[2] for name in tuned.names} - {"O"})
    tints = {kind: TINTS[i % len(TINTS)] for i, kind in enumerate(kinds)}
    boxes = []
    for word, tag in zip(words, predict(tuned, [{"tokens": words}])[0], strict=True):
        kind = tag.rpartition("-")[2]
        boxes.append((f"{word}/{kind}", tints[kind]) if kind in tints else (word, "plain"))
    return boxes


def sentence_encoder(name: str) -> SentenceEncoder:
    """An encoder that gives a text one vector, by its name.

    name: "sbert-english", which is an adapter of `bert-english`; or whatever `zoo.require` opens as
        a sentence encoder ("minilm", "sbert-mini", a folder of sentence-transformers); of any other
        encoder a text's vector is the mean of its token vectors.
    """
    if name == "sbert-english":
        loaded = zoo.load("bert-english")
        folder = zoo.FOLDER.parent / "adapters" / name
        layout = {"model_type": "megatron-bert", "architecture": "MegatronBertModel"}
        sentence = peft.load_pretrained(Sentence(loaded.model.stack), folder, **layout)
        return SentenceEncoder(sentence.eval(), loaded.tokenizer)
    try:
        encoder: SentenceEncoder = zoo.require(name, "sentence encoder").model
    except CourseError:
        loaded = zoo.require(name, "encoder")
        return SentenceEncoder(Sentence(loaded.model.stack).eval(), loaded.tokenizer)
    return encoder


def sentence_folder(name: str, new: Path) -> Path:
    """A folder that the library sentence-transformers opens, of the encoder of this name.

    A public model and a folder have one. Of any other encoder one is written to `new`.
    """
    if name in public_models.MODELS:
        return zoo.public(name).folder
    if Path(name).exists():
        return Path(name)
    encoder = sentence_encoder(name)
    peft.merge(encoder.model)
    layout = {"model_type": "megatron-bert", "architecture": "MegatronBertModel"}
    zoo.save_pretrained(encoder.model, new, tokenizer=encoder.tokenizer, **layout)
    return new


def transformers_folder(name: str, new: Path) -> Path:
    """A folder that the library transformers opens, of the model of this name.

    A public model and a folder have one. Of any other model one is written to `new`.
    """
    if name in public_models.MODELS:
        return zoo.public(name).folder
    if Path(name).exists():
        return Path(name)
    model, tokenizer, _ = zoo.open_model(name)
    zoo.save_pretrained(model, new, tokenizer=tokenizer)
    return new


def library_base(name: str, tuned: FineTuned, new: Path) -> Any:
    """The model of this name as transformers opens it, with a new head for a tuned model's task.

    Args:
        name: of the model.
        tuned: a tagger or a classifier.
        new: a folder for a model that has none of transformers'.
    """
    import transformers

    logging: Any = transformers.utils.logging
    is_tagger = tuned.frame.kind == "tagging"
    kind = "AutoModelForTokenClassification" if is_tagger else "AutoModelForSequenceClassification"
    folder = transformers_folder(name, new)
    # the library peft asks it for this, and transformers says so on every call
    warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
    loud = logging.get_verbosity()
    logging.set_verbosity_error()  # it would say that the head is new
    logging.disable_progress_bar()
    try:
        return getattr(transformers, kind).from_pretrained(folder, num_labels=len(tuned.names))
    finally:
        logging.set_verbosity(loud)
        logging.enable_progress_bar()
