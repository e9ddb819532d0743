"""`python -m course_lib`: pretrain, fine-tune and sample without a notebook.

An error is one line, and the exit code is 1. A command's arguments are fields of a config or
parameters of a function; it imports torch only when it runs, so `--help` is quick.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from course_lib.errors import CourseError, CourseWarning
from course_lib.files import DATA, locked, read_json
from course_lib.memory import restart_keeping_large_buffers
from course_lib.training.pretrain_config import (
    OptimizerName,
    PretrainConfig,
    ScheduleName,
    TokenizeConfig,
)

if TYPE_CHECKING:
    from course_lib.data.columns import Columns
    from course_lib.training.loop import Step

app = typer.Typer(
    name="course",
    help="Pretrained language models: pretrain, fine-tune and sample from the command line.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog='Start with: python -m course_lib generate gpt-english "In the kitchen"',
)
zoo_app = typer.Typer(help="The checkpoints that come with the course.", no_args_is_help=True)
app.add_typer(zoo_app, name="zoo")


def set_threads(threads: int) -> int:
    """Let torch use so many CPU threads; 0 leaves it to torch."""
    if threads:
        import torch

        torch.set_num_threads(threads)
    return threads


def device_named(device: str) -> str:
    """The device that "auto" means here."""
    import torch

    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def named(out: Path | None) -> Path | None:
    """Refuse an empty path, which would be the current folder."""
    if out == Path():
        raise CourseError("--out is empty; name a folder.")
    return out


# The config's own defaults, which `--help` shows.
PRETRAIN = PretrainConfig(model="", data="", out=Path())
SOURCES = "A text file or folder, docs, hub:NAME, or an installed source"
Threads = Annotated[
    int, typer.Option(help="CPU threads; 0 = all cores.", min=0, callback=set_threads)
]
Device = Annotated[
    str, typer.Option(help="cpu, cuda, mps, or auto = the best there is.", callback=device_named)
]
Documents = Annotated[int | None, typer.Option(help="How many documents; all if not given.", min=1)]
Column = Annotated[str | None, typer.Option(help="Where the text stands, if not in `text`.")]
HeldOut = Annotated[
    int, typer.Option(help="Documents to keep aside, if there is no validation split.", min=0)
]
Cased = Annotated[bool, typer.Option("--cased", help="WordPiece keeps capitals.")]
Bf16 = Annotated[
    Literal["fp32", "bf16", "auto"],
    typer.Option(help="bf16 is faster; auto = where the machine can."),
]
Seed = Annotated[int, typer.Option(help="Equal seeds give equal results.", min=0, max=2**63 - 1)]
_Model = Annotated[
    str,
    typer.Argument(help="A shipped checkpoint (see `zoo list`), a folder, or hub:NAME@REVISION."),
]
_Fields = Annotated[
    str | None,
    typer.Option(help="Ours and the file's: text=review,label=stars; numbers if it has no header."),
]


@app.command()
def pretrain(
    model: Annotated[
        str,
        typer.Argument(help="gpt, bert, albert, distilbert, electra, bart, t5; sized: bert-base."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model and its run.", callback=named)],
    data: Annotated[str, typer.Option(help=SOURCES + ", or a folder that `tokenize` wrote.")],
    column: Column = PRETRAIN.column,
    documents: Documents = PRETRAIN.documents,
    held_out: HeldOut = PRETRAIN.held_out,
    init_from: Annotated[
        str | None, typer.Option(help="Begin with a checkpoint: weights, size, tokenizer.")
    ] = None,
    teacher: Annotated[
        str | None, typer.Option(help="Distil this masked model; begin as every second layer.")
    ] = None,
    vocab: Annotated[int, typer.Option(help="Size of the vocabulary to learn.")] = PRETRAIN.vocab,
    layers: Annotated[
        int | None, typer.Option(help="In place of the size's; so for the next three.", min=1)
    ] = PRETRAIN.layers,
    width: Annotated[int | None, typer.Option(min=1)] = PRETRAIN.width,
    heads: Annotated[int | None, typer.Option(min=1)] = PRETRAIN.heads,
    length: Annotated[int | None, typer.Option(help="Longest row in tokens.", min=1)] = (
        PRETRAIN.length
    ),
    steps: Annotated[int, typer.Option(help="Updates in all.", min=1)] = PRETRAIN.steps,
    tokens: Annotated[
        int, typer.Option(help="Tokens in a batch, all processes together.", min=1)
    ] = PRETRAIN.tokens,
    accumulate: Annotated[
        int, typer.Option(help="Cut each batch in so many parts, to save memory.", min=1)
    ] = PRETRAIN.accumulate,
    lr: Annotated[float, typer.Option(help="Peak learning rate.")] = PRETRAIN.lr,
    schedule: Annotated[
        ScheduleName,
        typer.Option(help="wsd: constant, falling over the last fifth; may be prolonged."),
    ] = PRETRAIN.schedule,
    warmup: Annotated[
        int | None, typer.Option(help="Steps; by default a tenth, at most 300.", min=0)
    ] = PRETRAIN.warmup,
    optimizer: Annotated[
        OptimizerName, typer.Option(help="Muon moves the blocks' matrices.")
    ] = PRETRAIN.optimizer,
    weight_decay: Annotated[float, typer.Option(help="Of matrices.", min=0)] = (
        PRETRAIN.weight_decay
    ),
    beta2: Annotated[
        float, typer.Option(help="AdamW's; 0.98 for large learning rates.", min=0, max=0.999999)
    ] = PRETRAIN.beta2,
    short: Annotated[
        int | None, typer.Option(help="Tokens a row in the first 90% of the steps.", min=8)
    ] = PRETRAIN.short,
    mask_rate: Annotated[
        float | None, typer.Option(help="Of a masked model; 0.15 if not given.", min=0, max=1)
    ] = PRETRAIN.mask_rate,
    mask_unit: Annotated[
        str, typer.Option(help="What a masked model hides: tokens, words, spans or ngrams.")
    ] = PRETRAIN.mask_unit,
    cased: Cased = PRETRAIN.cased,
    dropout: Annotated[
        float | None, typer.Option(help="In place of the family's.", min=0, max=1)
    ] = PRETRAIN.dropout,
    init_std: Annotated[
        float | None, typer.Option(help="Of the first weights, in place of the family's.")
    ] = PRETRAIN.init_std,
    seed: Seed = PRETRAIN.seed,
    save_every: Annotated[
        int, typer.Option("--every", help="Steps between two checkpoints.", min=1)
    ] = PRETRAIN.save_every,
    resume: Annotated[
        bool, typer.Option("--resume/--afresh", help="Go on with the run in the folder?")
    ] = PRETRAIN.resume,
    precision: Bf16 = "auto",
    compile: Annotated[
        bool | None, typer.Option(help="torch.compile; by default for long runs on a GPU.")
    ] = PRETRAIN.compile,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Train a model, its tokenizer included; on one device or, by accelerate launch, on many.

    Example: python -m course_lib pretrain gpt --data book.txt --out build/my-gpt --steps 500

    On two GPUs: accelerate launch --multi_gpu --num_processes 2 -m course_lib pretrain gpt-base
    --data tokens --out big (--use_fsdp in place of --multi_gpu: each holds a part of the weights).
    """
    options = dict(locals())
    options.pop("threads")  # set already, by its callback
    from course_lib.training import pretraining

    with _progress(steps) as watch:
        pretraining.pretrain(PretrainConfig(**options), say=print, watch=watch)


@app.command()
def tokenize(
    out: Annotated[
        Path, typer.Option(help="Folder for the tokenizer and the token files.", callback=named)
    ],
    data: Annotated[str, typer.Option(help=SOURCES + ".")],
    model: Annotated[
        str, typer.Option(help="What it is for: gpt takes byte-level BPE, the others WordPiece.")
    ] = "gpt",
    column: Column = PRETRAIN.column,
    documents: Documents = PRETRAIN.documents,
    held_out: HeldOut = PRETRAIN.held_out,
    vocab: Annotated[
        int, typer.Option(help="Size of the vocabulary, unless the folder has a tokenizer.")
    ] = PRETRAIN.vocab,
    cased: Cased = PRETRAIN.cased,
    seed: Seed = PRETRAIN.seed,
) -> None:
    """Turn a corpus of any size into token files, once; `pretrain --data FOLDER` reads them.

    Example: python -m course_lib tokenize --data hub:NAME --out build/tokens --vocab 32000
    """
    options = dict(locals())
    from course_lib.training import pretraining

    with locked(out):
        store = pretraining.tokenize(TokenizeConfig(**options)).store
    print(f"{store.tokens:,} tokens in {len(store):,} documents, in {out}")


@app.command()
def finetune(
    model: _Model,
    task: Annotated[
        str, typer.Option(help="A file or folder, hub:NAME, or NAME/TASK of an installed source.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the model; `predict` opens it.", callback=named)
    ] = None,
    n: Annotated[int | None, typer.Option(help="How many training rows.", min=1)] = None,
    test: Annotated[
        str | None, typer.Option(help="What is scored: test, or validation if test is unlabelled.")
    ] = None,
    columns: _Fields = None,
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    lr: Annotated[float, typer.Option(help="Peak learning rate.")] = 3e-4,
    batch: Annotated[int, typer.Option(help="Rows in a batch.", min=1)] = 32,
    seed: Seed = 0,
    scratch: Annotated[
        bool, typer.Option("--scratch", help="Forget what pretraining taught, to compare.")
    ] = False,
    frozen: Annotated[bool, typer.Option("--frozen", help="Train the new head only.")] = False,
    pool: Annotated[
        str | None,
        typer.Option(help="first, last, mean or max; with --out only the default."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="accuracy, f1, matthews, ...; by default the task's.")
    ] = None,
    precision: Bf16 = "fp32",
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Fine-tune a model on one task and score it.

    Example: python -m course_lib finetune bert-english --task reviews.csv
    --columns text=review,label=stars --test train --out build/reviews
    """
    names = (
        "epochs",
        "lr",
        "batch",
        "seed",
        "frozen",
        "pool",
        "metric",
        "precision",
        "device",
        "out",
    )
    options = {name: value for name, value in locals().items() if name in names}
    from course_lib import data, zoo
    from course_lib.training import finetune as tuning

    loaded = zoo.open_model(model)
    wanted = _columns(columns)
    test = test or data.held_out(task, columns=wanted)
    rows = {
        "train": data.task(task, n=n, columns=wanted, seed=seed),
        "test": data.task(task, split=test, columns=wanted, seed=seed),
    }
    steps = epochs * -(-len(rows["train"]) // batch)  # the last batch of an epoch may be smaller
    lock = nullcontext() if out is None else locked(out)
    with lock, _progress(steps) as watch:
        config = tuning.FinetuneConfig(pretrained=not scratch, **options)
        result = tuning.finetune(
            loaded.model,  # with BERT's pooler, if it has one
            rows,
            loaded.tokenizer,
            config,
            live=lambda steps, _: map(watch, steps),
        )
    if result.per_class:
        table = []
        for name, row in result.per_class.items():
            scores = [f"{row[key]:.3f}" for key in ("precision", "recall", "f1")]
            table.append([name, *scores, f"{row['count']:,.0f}"])
        _print_table(table, "class", "precision", "recall", "F1", "rows")
    print(
        f"{result.metric} {result.score:.4f} on {len(result.truth):,} {test} rows,"
        f" {result.seconds:.0f} s"
    )
    if out is not None:
        print(f"written to {out}")


@app.command()
def predict(
    model: Annotated[
        str,
        typer.Argument(help="A folder that `finetune --out` wrote, or a fine-tuned model's name."),
    ],
    source: Annotated[
        str,
        typer.Argument(metavar="TEXT|FILE", help="A text, or a file of them: lines or a table."),
    ],
    pair: Annotated[
        str | None, typer.Option(help="The second text, where the task has two.")
    ] = None,
    columns: _Fields = None,
    threads: Threads = 0,
) -> None:
    """Ask a fine-tuned model: one line for each text, its answer in front.

    Example: python -m course_lib predict build/sentiment "The soup was cold."
    """
    from course_lib.training.finetune import load
    from course_lib.training.finetune import predict as ask

    tuned = load(model)
    rows = _rows(source, pair, _columns(columns), tuned.frame.kind)
    for row, answer in zip(rows, ask(tuned, rows), strict=True):
        if tuned.frame.kind == "single" and tuned.names:
            answer = tuned.names[answer]
        if isinstance(answer, list):
            answer = " ".join(answer)
        if isinstance(answer, float):
            answer = f"{answer:.3f}"
        texts = [row[key] for key in ("text", "pair") if key in row] or [" ".join(row["tokens"])]
        print(answer, *texts, sep="\t")


@app.command()
def generate(
    model: _Model,
    prompt: Annotated[str, typer.Argument(help="How the text begins.")] = "",
    new: Annotated[int, typer.Option(help="At most so many tokens more.", min=1)] = 60,
    sample: Annotated[
        bool, typer.Option("--sample", help="Draw tokens; otherwise the likeliest is taken.")
    ] = False,
    temperature: Annotated[
        float | None, typer.Option(help="Below 1: bolder; above 1: wilder (with --sample).")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw among the k likeliest only.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw among the likeliest that make up this share.")
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(help="Draw among those at least so probable, relative to the likeliest."),
    ] = None,
    seed: Seed = 0,
    threads: Threads = 0,
) -> None:
    """Continue a text, token by token.

    Example: python -m course_lib generate gpt-mini "In the kitchen, Anna" --sample --top-p 0.9
    """
    import torch

    from course_lib import zoo
    from course_lib.generation import stream

    loaded = zoo.open_model(model)
    if not hasattr(loaded.tokenizer, "vocab"):
        raise CourseError(f"{model} is a {type(loaded.model).__name__} and continues no text.")
    vocab = loaded.tokenizer.vocab
    start = [] if vocab.bos is None else [vocab.bos]
    ids = start + loaded.tokenizer.encode(prompt, special=False).ids
    if not ids:
        raise CourseError("This model has no start token; give it a prompt.")
    steps = stream(
        loaded.model,
        torch.tensor([ids]),  # 1 T
        max_new_tokens=new,
        do_sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        eos=vocab.eos,
        generator=torch.Generator().manual_seed(seed) if sample else None,
    )
    written = list(ids)
    shown = 0  # characters on the screen
    for step in steps:
        written.append(int(step.token[0]))
        text = loaded.tokenizer.decode(written)
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # half a character: wait for the rest
            print(text[shown:], end="", flush=True)
            shown = len(text)
    print()


@app.command()
def info(
    model: Annotated[
        str | None, typer.Argument(help="A checkpoint or folder; else the machine.")
    ] = None,
) -> None:
    """Show what a model is made of, or what this machine has."""
    import platform

    import torch

    from course_lib import __version__, zoo
    from course_lib.training.device import has_bf16

    if model:
        _print_table(zoo.facts(model))
        return
    machine = {
        "course_lib": __version__,
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "cores": f"{os.cpu_count()}, of which PyTorch uses {torch.get_num_threads()}",
        "bf16 on the CPU": "yes" if has_bf16("cpu") else "no",
        "GPU": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }
    _print_table(machine.items())


@zoo_app.command("list")
def zoo_list() -> None:
    """Show what is there, and how well each fills in words that stood earlier in the text."""
    from course_lib import zoo

    rows = []
    for name in zoo.names():
        card = zoo.card(name)
        scores = ", ".join(f"{key} {value:.3f}" for key, value in card["scores"].items())
        rows.append([name, f"{card['steps']:,}", f"{card['tokens']:,}", scores])
    _print_table(rows, "name", "steps", "tokens", "scores")


@zoo_app.command("check")
def zoo_check() -> None:
    """Load every checkpoint: all files whole, hashes right, all weights in place."""
    from course_lib import zoo

    for name in zoo.names():
        print(f"{name}: good, {dict(zoo.facts(name))['parameters']} parameters")


@app.command()
def fetch(
    wanted: Annotated[Path, typer.Argument(show_default="data/class.json")] = DATA / "class.json",
) -> None:
    """Fetch a list of models and datasets from the hub; afterwards they work without a network."""
    from course_lib import data, hub

    readers = {"models": hub.pretrained, "tasks": data.task, "corpora": data.corpus}
    todo = []
    missing = []
    try:
        for kind, entries in read_json(wanted).items():
            for entry in entries:
                name = entry["name"]
                todo.append((readers[kind], name, entry.get("revision"), entry["megabytes"]))
    except (AttributeError, KeyError, TypeError):
        raise CourseError(
            f"{wanted} is not a list of what to fetch; data/class.json shows what one holds."
        ) from None
    for read, name, revision, megabytes in todo:
        print(f"{name} ({megabytes} MB) ...", flush=True)
        try:
            read(f"{hub.PREFIX}{name}" + (f"@{revision}" if revision else ""))
        except CourseError as error:
            missing.append(str(error))
    if missing:
        raise CourseError(" ".join(missing))


def _columns(text: str | None) -> "Columns | None":
    from course_lib.data.columns import parse

    return None if text is None else parse(text)


def _rows(
    source: str, pair: str | None, columns: "Columns | None", kind: str
) -> "list[dict[str, Any]]":
    """The rows to predict: a text, or those of a file, with or without their labels."""
    from course_lib import data

    second = {} if pair is None else {"pair": pair}
    if _is_file(source):
        rows = [{**row, **second} for row in data.unlabelled(source, columns=columns)]
    else:
        rows = [{"text": source, **second}]
    for row in rows:
        if kind == "tagging" and "tokens" not in row:
            row["tokens"] = row.pop("text").split()
    return rows


def _is_file(source: str) -> bool:
    """Whether a file is meant, and no text.

    Raises:
        CourseError: it is a folder, or the name of a file that is not there.
    """
    try:
        if Path(source).is_dir():
            raise CourseError(f"{source} is a folder; give a text, or the path of one file.")
        if Path(source).is_file():
            return True
    except OSError:  # a text may be too long for a path
        return False
    endings = (".txt", ".tsv", ".csv", ".json", ".jsonl", ".parquet", ".conll")
    if source.endswith(endings) and not any(map(str.isspace, source)):
        raise CourseError(f"There is no file {source}.")
    return False


@contextmanager
def _progress(steps: int) -> "Iterator[Callable[[Step], Step]]":
    """A bar on stderr with loss, speed and time left; what it gives is called with each step."""
    from tqdm import tqdm

    with tqdm(total=steps, unit="step", dynamic_ncols=True, delay=1e-3, mininterval=0) as bar:

        def show(step: "Step") -> "Step":
            bar.set_postfix_str(
                f"loss {step.loss:.3f}, {step.tokens / step.seconds:,.0f} tokens/s", refresh=False
            )
            bar.update(step.step - bar.n)
            return step

        yield show


def _print_table(rows: "Iterable[Sequence[str]]", *columns: str) -> None:
    """A table on the screen; without names of columns it has no header."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, show_header=bool(columns))
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def add_commands() -> None:
    """Add the commands that other packages register under the entry point `course_lib.commands`.

    An entry is a Typer app or a function. Its name is the command's, or GROUP.NAME.
    """
    groups = {"": app, "zoo": zoo_app}
    for point in sorted(entry_points(group="course_lib.commands"), key=lambda point: point.name):
        group, _, name = point.name.rpartition(".")
        try:
            command = point.load()
        except ModuleNotFoundError:  # a command of the course, and only the library is installed
            continue
        if isinstance(command, typer.Typer):
            groups[group].add_typer(command, name=name)
        else:
            groups[group].command(name)(command)


def _show_warning(show: Callable[..., None], message: Warning, *place: Any) -> None:
    """Show a `CourseWarning` as one line, without its place in the code; others as usual."""
    if isinstance(message, CourseWarning):
        print(f"note: {message}", file=sys.stderr)
    else:
        show(message, *place)


def main() -> None:
    """The command line. A `CourseError` becomes one line on stderr and exit code 1."""
    warnings.showwarning = partial(_show_warning, warnings.showwarning)
    try:
        add_commands()
        app()
    except CourseError as error:
        rank = os.environ.get("RANK", "0")  # one of several processes: accelerate launch
        who = "error" if rank == "0" else f"error in process {rank}"
        print(f"{who}: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)


def start() -> None:
    """`main` in a process of its own."""
    restart_keeping_large_buffers()
    main()


if __name__ == "__main__":
    start()
