"""The course on real text: pretrain a BERT and a GPT, fine-tune the one, score the other.

    python -m course_lib.experiments.real pretrain bert --text BOOK.txt --text wikitext/valid.txt
    python -m course_lib.experiments.real pretrain gpt --text BOOK.txt --text wikitext/valid.txt
    python -m course_lib.experiments.real finetune sst2=PATH/sst2 cola=PATH/cola/raw
    python -m course_lib.experiments.real score PATH/wikitext/test.txt

The text is the docs corpus and the files named. Models and unfinished runs go to build/real, figures to
data/results/real_*.json. Every figure follows from the command; runs on another machine differ in the last digits.
"""

import math
import platform
import shlex
import sys
import time
import zlib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from torch import nn

from course_lib import data, heads, hf, losses, metrics, optim
from course_lib.data import readers
from course_lib.errors import CourseError
from course_lib.files import read_json, write_json
from course_lib.finetune import finetune
from course_lib.generate import generate
from course_lib.models.bert import bert
from course_lib.models.gpt import gpt
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer, train_bpe, train_wordpiece
from course_lib.train import Precision, train

WORK, RESULTS = Path("build/real"), Path("data/results")
PUBLIC = {"bert": ("bert", "BertForMaskedLM"), "gpt": ("gpt2", "GPT2LMHeadModel")}  # transformers' names
METRIC = {"cola": "matthews"}  # accuracy for the others
LOG = 50  # steps between two points of the curve, and between two checkpoints
PROMPTS = ("The ", "Returns the ", "It is a truth ", " = History = \n\n")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help="Experiments on real text.")
Work = Annotated[Path, typer.Option(help="Folder of models and unfinished runs.")]
Out = Annotated[Path, typer.Option(help="Folder of the recorded figures.")]
Bf16 = Annotated[str, typer.Option(help="fp32, bf16, or auto: bf16 where the machine has it.")]


@app.command("pretrain")
def pretrain(
    kind: Annotated[str, typer.Argument(help="bert or gpt.")],
    text: Annotated[
        list[Path] | None, typer.Option(help="A text or WikiText file; may be given several times.")
    ] = None,
    docs: Annotated[int, typer.Option(help="So many docstrings of the docs corpus; 0 = none.")] = 40_000,
    repeat: Annotated[int, typer.Option(help="How often the files stand beside the docstrings, which are more.")] = 1,
    steps: int = 2000,
    tokens: Annotated[int, typer.Option(help="Tokens in a batch.")] = 4096,
    length: Annotated[int, typer.Option(help="Longest row.")] = 128,
    width: int = 256,
    layers: int = 4,
    vocab: int = 8192,
    lr: float = 1e-3,
    warmup: Annotated[int, typer.Option(help="Steps until the learning rate is reached.")] = 100,
    seed: int = 0,
    precision: Bf16 = "auto",
    work: Work = WORK,
    out: Out = RESULTS,
) -> None:
    """Pretrain a model; a stopped run goes on where it stopped.

    The learning rate is constant and falls over the last fifth of the steps: until then a run of fewer steps
    is the same run.
    """
    start = time.perf_counter()
    if kind not in PUBLIC:
        raise CourseError(f"There is no model {kind!r} here; choose bert or gpt.")
    torch.manual_seed(seed)
    run = work / f"{kind}-run"
    tokenizer, store = _prepared(run, kind, text or [], docs, repeat, vocab)
    model, batches, loss = _setup(kind, store, tokenizer, tokens, length, width, layers, seed)
    curve: list[dict[str, float]] = []
    recent: list[float] = []
    for step in train(
        model,
        batches,
        loss,
        optim.adamw(model, lr, betas=(0.9, 0.98)),
        optim.stable(steps, min(warmup, steps)),
        steps=steps,
        precision=_precision(precision),
        checkpoint=run / "state.safetensors",
        every=LOG,
    ):
        if not curve and (run / "curve.json").is_file():  # a run that goes on
            curve = [point for point in read_json(run / "curve.json") if point["step"] < step.step]
        recent.append(step.loss)
        if step.step % LOG == 0 or step.step == steps:
            curve.append({"step": step.step, "loss": round(sum(recent) / len(recent), 4)})
            write_json(run / "curve.json", curve)
            typer.echo(f"{kind} {step.step}/{steps} loss {curve[-1]['loss']:.3f}")
            recent = []
    model_type, architecture = PUBLIC[kind]
    hf.save_pretrained(model, work / kind, model_type=model_type, architecture=architecture)
    tokenizer.save(work / kind)
    curve = read_json(run / "curve.json")
    record = {
        "figures": {"final_loss": curve[-1]["loss"]},
        "curve": curve,
        "corpus": {"documents": len(store), "tokens": store.tokens, "files": [file.name for file in text or []]},
        "configuration": {
            "width": width, "layers": layers, "length": length, "vocab": tokenizer.vocab.size, "lr": lr,
            "warmup": warmup, "steps": steps, "tokens_a_batch": tokens, "docs": docs, "repeat": repeat,
            "parameters": sum(p.numel() for p in model.parameters()),
        },
    }  # fmt: skip
    _record(out / f"real_pretrain_{kind}.json", record, [seed], start)


@app.command("finetune")
def fine_tune(
    tasks: Annotated[list[str], typer.Argument(help="NAME=FOLDER with training and validation tables.")],
    seeds: Annotated[int, typer.Option(help="Runs from each start.")] = 3,
    epochs: int = 3,
    lr: float = 3e-4,
    n: Annotated[int | None, typer.Option(help="Training rows; all if not given.")] = None,
    precision: Bf16 = "auto",
    work: Work = WORK,
    out: Out = RESULTS,
) -> None:
    """Fine-tune the pretrained BERT, the same model from scratch, and a bag of words, on the validation part."""
    tokenizer = Tokenizer.load(work / "bert")
    model = hf.load_pretrained(work / "bert")
    assert isinstance(model, heads.MLM)
    for name, _, path in (task.partition("=") for task in tasks):
        start = time.perf_counter()
        rows = {"train": data.task(path, n=n), "test": data.task(path, split="validation")}
        metric = METRIC.get(name, "accuracy")
        words = _bag_of_words(rows, metric)
        typer.echo(f"{name} bag of words: {metric} {words:.4f}")
        scores: dict[str, list[float]] = {"pretrained": [], "from_scratch": []}
        for seed in range(seeds):
            for begin, values in scores.items():
                result = finetune(
                    model.stack, rows, tokenizer, epochs=epochs, lr=lr, seed=seed, metric=metric, dropout=0.1,
                    pretrained=begin == "pretrained", pool="mean", precision=_precision(precision),
                )  # fmt: skip
                values.append(result.score)
                typer.echo(f"{name} seed {seed} {begin}: {metric} {result.score:.4f}")
            figures = {begin: interval(values) for begin, values in scores.items()}
            figures["tfidf"] = {"mean": words}
            configuration = {"epochs": epochs, "lr": lr, "n": len(rows["train"]), "pool": "mean", "metric": metric}
            _record(
                out / f"real_{name}.json",
                {"figures": figures, "configuration": configuration, "test_rows": len(rows["test"])},
                list(range(seed + 1)),
                start,
            )


@app.command("score")
def score(
    text: Annotated[Path, typer.Argument(help="A text that the model was not trained on.")],
    name: Annotated[str, typer.Option(help="The result is real_NAME.json.")] = "wikitext2",
    seed: int = 0,
    work: Work = WORK,
    out: Out = RESULTS,
) -> None:
    """Perplexity and bits per byte of the pretrained GPT on a text, and samples from it."""
    start = time.perf_counter()
    tokenizer = Tokenizer.load(work / "gpt")
    model = hf.load_pretrained(work / "gpt")
    assert isinstance(model, heads.LM)
    content = readers.read_file(text)
    length = int(read_json(work / "gpt" / "config.json")["n_positions"])
    figures = likelihood(model, tokenizer, content, length)
    figures["bits_per_byte_zlib"] = 8 * len(zlib.compress(content.encode(), 9)) / len(content.encode())
    rng = torch.Generator().manual_seed(seed)
    samples = []
    for prompt in PROMPTS:
        ids = torch.tensor([[*_ids(tokenizer.vocab.bos), *tokenizer.encode(prompt).ids]])
        new = min(60, length - ids.shape[1])
        written = generate(model, ids, max_new_tokens=new, do_sample=True, temperature=0.8, top_k=50, generator=rng)
        samples.append(tokenizer.decode(written[0]))
        typer.echo(f"{samples[-1]}\n---")
    typer.echo(str({key: round(value, 4) for key, value in figures.items()}))
    _record(out / f"real_{name}.json", {"figures": figures, "samples": samples, "text": text.name}, [seed], start)


@torch.no_grad()
def likelihood(model: nn.Module, tokenizer: Tokenizer, text: str, length: int, rows: int = 16) -> dict[str, float]:
    """How well a causal model predicts a text: every token once, each with at least half a window before it.

    Words are counted as WikiText's authors do: what stands between spaces, and one for each end of a line.

    Args:
        length: the model's longest row. rows: windows read at a time.

    Returns: perplexity a token and a word, bits per byte, and the counts.
    """
    start = 0 if tokenizer.vocab.bos is None else tokenizer.vocab.bos
    ids = torch.tensor([start, *tokenizer.encode(text).ids])
    stride = length // 2
    model.eval()
    total = 0.0
    windows = [(first, min(first + length, len(ids) - 1)) for first in range(0, len(ids) - 1, stride)]
    windows = windows[: next(i for i, (_, stop) in enumerate(windows) if stop == len(ids) - 1) + 1]
    scored = 0
    for at in range(0, len(windows), rows):
        for group in _equal_widths(windows[at : at + rows]):
            inputs = torch.stack([ids[a:b] for a, b in group])
            targets = torch.stack([ids[a + 1 : b + 1] for a, b in group])
            logits = model(inputs).float()
            nats = nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
            for (a, _), row in zip(group, nats, strict=True):
                fresh = row if a == 0 else row[length - stride :]
                total += fresh.double().sum().item()
                scored += len(fresh)
    assert scored == len(ids) - 1
    words = sum(len(line.split()) + 1 for line in text.split("\n")) - int(text.endswith("\n"))
    size = len(text.encode())
    return {
        "perplexity_per_word": math.exp(total / words),
        "perplexity_per_token": metrics.perplexity(total / scored),
        "bits_per_byte": metrics.bits_per_byte(total / scored, scored, size),
        "words": words,
        "tokens": scored,
        "bytes": size,
    }


def interval(values: Sequence[float]) -> dict[str, Any]:
    """The values, their mean, and its 95% interval by Student's t (None for fewer than two values)."""
    from scipy.stats import t

    mean = sum(values) / len(values)
    if len(values) < 2:
        return {"values": list(values), "mean": mean, "interval95": None}
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    half = float(t.ppf(0.975, len(values) - 1)) * spread / math.sqrt(len(values))
    return {"values": list(values), "mean": mean, "interval95": [mean - half, mean + half]}


def _prepared(
    folder: Path, kind: str, files: Sequence[Path], docs: int, repeat: int, vocab: int
) -> tuple[Tokenizer, data.TokenStore]:
    """The tokenizer and the tokens of a run, made once; a run that goes on finds them in its folder."""
    wanted = {"files": [str(file) for file in files], "docs": docs, "repeat": repeat, "vocab": vocab}
    if (folder / "corpus.json").is_file():
        if read_json(folder / "corpus.json") != wanted:
            raise CourseError(f"{folder} holds a run on other text; remove it, or name another folder by --work.")
        return Tokenizer.load(folder), data.TokenStore.open(folder / "tokens")
    texts = _texts(files, docs, repeat)
    tokenizer = (train_wordpiece if kind == "bert" else train_bpe)(texts, vocab)
    store = data.encode_corpus(texts, tokenizer, folder / "tokens")
    tokenizer.save(folder)
    write_json(folder / "corpus.json", wanted)
    return tokenizer, store


def _texts(files: Sequence[Path], docs: int, repeat: int) -> list[str]:
    texts = [row["text"] for file in files for row in data.corpus(file)] * repeat
    if docs:
        texts += data.corpus("docs", n=docs)["text"][:]
    if not texts:
        raise CourseError("There is no text to train on: name a file by --text, or leave --docs above 0.")
    return texts


def _setup(
    kind: str,
    store: data.TokenStore,
    tokenizer: Tokenizer,
    tokens: int,
    length: int,
    width: int,
    layers: int,
    seed: int,
) -> tuple[nn.Module, Any, losses.Loss]:
    size = {"width": width, "layers": layers, "heads": max(width // 32, 1), "length": length, "dropout": 0.0}
    vocab = tokenizer.vocab.size
    if kind == "bert":
        return (
            heads.MLM(Stack(bert(vocab, **size))),  # type: ignore[arg-type]
            data.MaskedBatches(store, tokenizer, length=length, tokens=tokens, seed=seed),
            losses.mlm,
        )
    return (
        heads.LM(Stack(gpt(vocab, **size))),  # type: ignore[arg-type]
        data.WindowBatches(store, length=length, rows=max(tokens // length, 1), seed=seed),
        losses.clm,
    )


def _bag_of_words(rows: dict[str, Any], metric: str) -> float:
    """Logistic regression on TF-IDF weights of words: what order-blind reading reaches."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=10, max_iter=1000))
    model.fit(rows["train"]["text"][:], rows["train"]["label"][:])
    said = [int(label) for label in model.predict(rows["test"]["text"][:])]
    return metrics.METRICS[metric](said, rows["test"]["label"][:])


def _equal_widths(windows: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """The last window may be shorter than the others; it then goes alone."""
    full = [w for w in windows if w[1] - w[0] == windows[0][1] - windows[0][0]]
    return [group for group in (full, [w for w in windows if w not in full]) if group]


def _ids(token: int | None) -> list[int]:
    return [] if token is None else [token]


def _precision(name: str) -> Precision:
    known: tuple[Literal["fp32", "bf16", "auto"], ...] = ("fp32", "bf16", "auto")
    for precision in known:
        if precision == name:
            return precision
    raise CourseError(f"There is no precision {name!r}; choose one of {', '.join(known)}.")


def _record(path: Path, record: dict[str, Any], seeds: list[int], start: float) -> None:
    # The paths of this machine are no one else's; the command keeps the names only.
    command = [Path(word).name if "/" in word and "=" not in word else word for word in sys.argv[1:]]
    command = [f"{w.split('=')[0]}={Path(w.split('=')[1]).name}" if "=" in w and "/" in w else w for w in command]
    versions = {name: metadata.version(name) for name in ("torch", "tokenizers", "datasets", "scikit-learn")}
    hardware = {"machine": platform.machine(), "threads": torch.get_num_threads(), "device": "cpu"}
    write_json(
        path,
        {
            **record,
            "seeds": seeds,
            "seconds": round(time.perf_counter() - start, 1),
            "command": shlex.join(["python", "-m", "course_lib.experiments.real", *command]),
            "versions": versions,
            "hardware": hardware,
        },
    )


if __name__ == "__main__":
    try:
        app(standalone_mode=False)
    except (CourseError, typer.Exit) as error:
        sys.exit(str(error))
