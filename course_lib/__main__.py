"""`python -m course_lib`: pretrain, fine-tune and sample without a notebook. Errors are one line, exit code
1."""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from course_lib.claims.cli import app as claims_app
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from course_lib.heads import Pool
    from course_lib.train import Step

app = typer.Typer(
    name="course",
    help="Pretrained language models: pretrain, fine-tune and sample from the command line.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: python -m course_lib finetune bert-mini --task world/sentiment",
)
zoo_app = typer.Typer(help="The checkpoints that come with the course.", no_args_is_help=True)
app.add_typer(zoo_app, name="zoo")
app.add_typer(claims_app, name="claims")

DATA = "world, docs, a text file or folder, or hub:NAME"
Threads = Annotated[int, typer.Option(help="CPU threads; 0 = all cores.", min=0)]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps, or auto = the best there is.")]
Bf16 = Annotated[Literal["fp32", "bf16", "auto"], typer.Option(help="bf16 is faster; auto = where the machine can.")]
Seed = Annotated[int, typer.Option(help="Equal seeds give equal results.")]
Model = Annotated[str, typer.Argument(help="A shipped checkpoint (see `zoo list`), a folder, or hub:NAME@REVISION.")]


@app.command()
def pretrain(
    model: Annotated[
        str, typer.Argument(help="gpt, bert, albert, distilbert, electra, bart, t5; or sized: bert-base.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model and its run.")],
    data: Annotated[str, typer.Option(help=DATA + ", or a folder that `tokenize` wrote.")] = "world",
    documents: Annotated[int | None, typer.Option(help="How many documents; all if not given.", min=1)] = None,
    vocab: Annotated[int, typer.Option(help="Size of the vocabulary to learn.")] = 3072,
    layers: Annotated[int | None, typer.Option(help="In place of the size's; so for the next three.", min=1)] = None,
    width: Annotated[int | None, typer.Option(min=1)] = None,
    heads: Annotated[int | None, typer.Option(min=1)] = None,
    length: Annotated[int | None, typer.Option(help="Longest row in tokens.", min=1)] = None,
    steps: Annotated[int, typer.Option(help="Updates in all.", min=1)] = 1000,
    tokens: Annotated[int, typer.Option(help="Tokens in a batch, all processes together.", min=1)] = 4096,
    accumulate: Annotated[int, typer.Option(help="Cut each batch in so many parts, to save memory.", min=1)] = 1,
    lr: Annotated[float, typer.Option(help="Peak learning rate.")] = 1e-3,
    seed: Seed = 0,
    every: Annotated[int, typer.Option(help="Steps between two checkpoints.", min=1)] = 500,
    resume: Annotated[bool, typer.Option("--resume/--afresh", help="Go on with the run in the folder?")] = True,
    precision: Bf16 = "auto",
    compile: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="torch.compile; by default for long runs on a GPU.")
    ] = None,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Train a model from nothing, its tokenizer included; on one device or, by accelerate launch, on many.

    Example: python -m course_lib pretrain gpt --data book.txt --out build/my-gpt --steps 500

    On two GPUs: accelerate launch --multi_gpu --num_processes 2 -m course_lib pretrain gpt-base --data tokens --out big
    (--use_fsdp in place of --multi_gpu: each holds a part of the weights).
    """
    from course_lib import pretraining

    _set_threads(threads)
    pretraining.pretrain(
        model,
        out,
        data=data,
        documents=documents,
        vocab=vocab,
        size={"layers": layers, "width": width, "heads": heads, "length": length},
        steps=steps,
        tokens=tokens,
        accumulate=accumulate,
        lr=lr,
        seed=seed,
        every=every,
        resume=resume,
        precision=precision,
        compile=compile,
        device=_device(device),
        say=print,
        show=_bar,
    )


@app.command()
def tokenize(
    out: Annotated[Path, typer.Option(help="Folder for the tokenizer and the token files.")],
    data: Annotated[str, typer.Option(help=DATA + ".")] = "world",
    model: Annotated[str, typer.Option(help="What it is for: gpt takes byte-level BPE, the others WordPiece.")] = "gpt",
    documents: Annotated[int | None, typer.Option(help="How many documents; all if not given.", min=1)] = None,
    vocab: Annotated[int, typer.Option(help="Size of the vocabulary, unless the folder has a tokenizer.")] = 3072,
    seed: Seed = 0,
) -> None:
    """Turn a corpus of any size into token files, once; `pretrain --data FOLDER` reads them.

    Example: python -m course_lib tokenize --data hub:NAME --out build/tokens --vocab 32000
    """
    from course_lib import pretraining

    store = pretraining.tokenize(data, out, kind=model, vocab=vocab, documents=documents, seed=seed).store
    print(f"{store.tokens:,} tokens in {len(store):,} documents, in {out}")


@app.command()
def finetune(
    model: Model,
    task: Annotated[str, typer.Option(help="world/sentiment, world/nli, ... a file or folder, or hub:NAME.")],
    n: Annotated[int | None, typer.Option(help="How many training rows.", min=1)] = None,
    test: Annotated[str, typer.Option(help="The split that is scored.")] = "test",
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    lr: Annotated[float, typer.Option(help="Peak learning rate.")] = 3e-4,
    batch: Annotated[int, typer.Option(help="Rows in a batch.", min=1)] = 32,
    seed: Seed = 0,
    scratch: Annotated[bool, typer.Option("--scratch", help="Forget what pretraining taught, to compare.")] = False,
    frozen: Annotated[bool, typer.Option("--frozen", help="Train the new head only.")] = False,
    pool: Annotated[str | None, typer.Option(help="first, last or mean token.")] = None,
    metric: Annotated[str | None, typer.Option(help="accuracy, f1, matthews, ...; by default the task's.")] = None,
    precision: Bf16 = "fp32",
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Fine-tune a model on one task and score it.

    Example: python -m course_lib finetune bert-mini --task world/sentiment --n 1000
    """
    from rich.console import Console
    from rich.table import Table

    from course_lib import data as doors
    from course_lib import zoo
    from course_lib.finetune import finetune as run

    _set_threads(threads)
    loaded = zoo.open_model(model)
    rows = {"train": doors.task(task, n=n, seed=seed), "test": doors.task(task, split=test, seed=seed)}
    steps = epochs * -(-len(rows["train"]) // batch)
    with _Progress(steps) as watch:
        result = run(
            loaded.model.stack,
            rows,
            loaded.tokenizer,
            epochs=epochs,
            lr=lr,
            batch=batch,
            seed=seed,
            pretrained=not scratch,
            frozen=frozen,
            pool=cast("Pool | None", pool),
            metric=metric,
            precision=precision,
            device=_device(device),
            watch=watch,
        )
    if result.per_class:
        table = Table("class", "precision", "recall", "F1", "rows")
        for name, row in result.per_class.items():
            values = [f"{row[key]:.3f}" for key in ("precision", "recall", "f1")]
            table.add_row(name, *values, f"{row['count']:,.0f}")
        Console().print(table)
    print(f"{result.metric} {result.score:.4f} on {len(result.truth):,} {test} rows, {result.seconds:.0f} s")


@app.command()
def generate(
    model: Model,
    prompt: Annotated[str, typer.Argument(help="How the text begins.")] = "",
    new: Annotated[int, typer.Option(help="At most so many tokens more.", min=1)] = 60,
    sample: Annotated[bool, typer.Option("--sample", help="Draw tokens; otherwise the likeliest is taken.")] = False,
    temperature: Annotated[float, typer.Option(help="Below 1: bolder; above 1: wilder (with --sample).")] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Draw among the k likeliest only.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw among the likeliest that make up this share.")] = None,
    seed: Seed = 0,
    threads: Threads = 0,
) -> None:
    """Continue a text, token by token.

    Example: python -m course_lib generate gpt-mini "In the kitchen, Anna" --sample --top-p 0.9
    """
    import torch

    from course_lib import zoo
    from course_lib.generate import stream

    _set_threads(threads)
    loaded = zoo.open_model(model)
    vocab = loaded.tokenizer.vocab
    start = [] if vocab.bos is None else [vocab.bos]
    ids = start + loaded.tokenizer.encode(prompt, special=False).ids
    if not ids:
        raise CourseError("This model has no start token; give it a prompt.")
    said = list(ids)
    shown = len(print_text := loaded.tokenizer.decode(said))
    print(print_text, end="", flush=True)
    for step in stream(
        loaded.model,
        torch.tensor([ids]),
        max_new_tokens=new,
        do_sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        eos=vocab.eos,
        generator=torch.Generator().manual_seed(seed) if sample else None,
    ):
        said.append(int(step.token[0]))
        text = loaded.tokenizer.decode(said)
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # half a character: wait for the rest
            print(text[shown:], end="", flush=True)
            shown = len(text)
    print()


@app.command()
def info(
    model: Annotated[str | None, typer.Argument(help="A checkpoint or folder; without it, this machine.")] = None,
) -> None:
    """Show what a model is made of, or what this machine has."""
    from rich.console import Console
    from rich.table import Table

    from course_lib import facts

    table = Table(show_header=False)
    for name, value in facts.of_model(model) if model else facts.of_machine():
        table.add_row(name, value)
    Console().print(table)


@zoo_app.command("list")
def zoo_list() -> None:
    """Show what is there, and how well each fills in words that stood earlier in the text."""
    from rich.console import Console
    from rich.table import Table

    from course_lib import zoo

    table = Table("name", "steps", "tokens", "scores")
    for name in zoo.names():
        card = zoo.card(name)
        scores = ", ".join(f"{key} {value:.3f}" for key, value in card["scores"].items())
        table.add_row(name, f"{card['steps']:,}", f"{card['tokens']:,}", scores)
    Console().print(table)


@zoo_app.command("check")
def zoo_check() -> None:
    """Load every checkpoint: all files whole, hashes right, all weights in place."""
    from course_lib import zoo

    for name in zoo.names():
        loaded = zoo.load(name)
        count = sum(p.numel() for p in loaded.model.parameters())
        print(f"{name}: good, {count:,} parameters")


@zoo_app.command("build")
def zoo_build(
    names: Annotated[list[str] | None, typer.Argument(help="Which to make; all if none is named.")] = None,
    work: Annotated[Path, typer.Option(help="Folder of the unfinished runs; a stopped one goes on.")] = Path(
        "build/checkpoints"
    ),
    to: Annotated[Path | None, typer.Option(help="Where they go; data/checkpoints if not given.")] = None,
    steps: Annotated[int | None, typer.Option(help="Updates, in place of the recipe's.", min=1)] = None,
    threads: Threads = 0,
    device: Device = "cpu",
) -> None:
    """Make the checkpoints again by their recipes. Takes hours on a CPU; stop and go on as you like."""
    from course_lib import recipes, zoo

    _set_threads(threads)
    for name in names or list(recipes.RECIPES):
        print(f"{name}: in {work / name}", flush=True)
        for point in recipes.build(name, work=work, to=to or zoo.FOLDER, steps=steps, device=_device(device)):
            probe = "".join(f"  {kind} {share:.0%}" for kind, share in (point.probe or {}).items())
            print(
                f"{name} step {point.step:6,}  loss {point.loss:.3f}  lr {point.lr:.1e}  "
                f"{point.tokens_per_second:6,.0f} tokens/s{probe}",
                flush=True,
            )
        print(f"{name}: written to {(to or zoo.FOLDER) / name}", flush=True)


@app.command()
def grade(
    submissions: Annotated[Path, typer.Argument(help="A folder with a notebook, zip or folder for each student.")],
    assignment: Annotated[str, typer.Option(help="hw1, or the path of a master notebook.")],
    out: Annotated[Path, typer.Option(help="Folder for points, feedback and marks; what is in it is not done again.")],
    jobs: Annotated[int, typer.Option(help="Submissions at once.", min=1)] = 2,
    timeout: Annotated[float, typer.Option(help="Seconds for a whole submission.", min=1)] = 180,
    cell_timeout: Annotated[float, typer.Option(help="Seconds for one cell, or one function's test.", min=1)] = 20,
    seed: Annotated[int | None, typer.Option(help="Of the tests' inputs; drawn once and kept if not given.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also grade what has not changed.")] = False,
) -> None:
    """Grade a folder of homework; again after marking written answers. docs/teaching.md tells how.

    Example: python -m course_lib grade submissions/ --assignment hw1 --out grades/
    """
    from course_lib.grade import box
    from course_lib.grade.run import grade as run

    way = box.sandbox()
    if not way.boxed:
        print(
            f"warning: {way.why}. Students' code runs with limits on time and memory only: it can read and change what "
            "you can. Grade on a machine or an account that holds nothing else.",
            file=sys.stderr,
        )
    limits = box.Limits(seconds=timeout, cell_seconds=cell_timeout)
    for record in run(submissions, assignment, out, jobs=jobs, limits=limits, way=way, seed=seed, again=again):
        tests = record["tests"].values()
        points = f", {sum(t['points'] for t in tests):g} of {sum(t['of'] for t in tests):g}" if tests else ""
        print(f"{record['student']}: {record['status']}{points}", flush=True)
    print(f"points in {out / 'grades.csv'}, pages in {out / 'feedback'}, to mark by hand: {out / 'marks.csv'}")


def _bar(run: "Iterable[Step]", steps: int) -> "Iterator[Step]":
    """Pass the steps on and show them as a progress bar."""
    with _Progress(steps) as watch:
        for step in run:
            watch(step)
            yield step


class _Progress:
    """A bar on stderr that follows training steps: loss, tokens a second, time left."""

    def __init__(self, steps: int) -> None:
        from tqdm import tqdm

        self.bar = tqdm(total=steps, unit="step", dynamic_ncols=True)

    def __enter__(self) -> "_Progress":
        return self

    def __call__(self, step: "Step") -> None:
        self.bar.update(step.step - self.bar.n)
        self.bar.set_postfix_str(f"loss {step.loss:.3f}, {step.tokens / step.seconds:,.0f} tokens/s", refresh=False)

    def __exit__(self, *error: object) -> None:
        self.bar.close()


def _set_threads(threads: int) -> None:
    if threads:
        import torch

        torch.set_num_threads(threads)


def _device(device: str) -> str:
    import torch

    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def main() -> None:
    """The command line; a `CourseError` becomes one line on stderr and exit code 1, as does Ctrl-C."""
    try:
        app()
    except CourseError as error:
        rank = os.environ.get("RANK", "0")  # one of several processes: accelerate launch
        who = "error" if rank == "0" else f"error in process {rank}"
        print(f"{who}: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
