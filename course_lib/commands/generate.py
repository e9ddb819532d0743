"""`generate`. Its filters are those of `generation/filters.py`."""

from typing import Annotated

import typer

from course_lib.commands.options import Model, Seed, Threads
from course_lib.errors import CourseError


def generate(
    model: Model,
    prompt: Annotated[
        str, typer.Argument(help="How the text begins; for BART and T5 what they read.")
    ] = "",
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
    stop: Annotated[
        list[str] | None, typer.Option(help="End before this text; may be given several times.")
    ] = None,
    seed: Seed = 0,
    threads: Threads = 0,
) -> None:
    """Continue a text, token by token; BART and T5 answer it.

    Example: python -m course_lib generate gpt-mini "In the kitchen, Anna" --sample --top-p 0.9
    """
    import torch

    from course_lib import zoo
    from course_lib.generation import stream_text

    loaded = zoo.open_model(model)
    if not hasattr(loaded.tokenizer, "vocab"):
        raise CourseError(f"{model} is a {type(loaded.model).__name__} and continues no text.")
    pieces = stream_text(
        loaded.model,
        loaded.tokenizer,
        prompt,
        stop=stop or (),
        max_new_tokens=new,
        do_sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        generator=torch.Generator().manual_seed(seed) if sample else None,
    )
    for piece in pieces:
        print(piece, end="", flush=True)
    print()
