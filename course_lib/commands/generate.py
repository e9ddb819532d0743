"""The command `generate`: continue a text, by the likeliest tokens or by random ones."""

from typing import Annotated

import typer

from course_lib.commands.options import Model, Seed, Threads
from course_lib.errors import CourseError


def generate(
    model: Model,
    prompt: Annotated[
        str, typer.Argument(help="The beginning of the text; for BART and T5 the text to read.")
    ] = "",
    new: Annotated[int, typer.Option(help="Largest number of new tokens.", min=1)] = 60,
    sample: Annotated[
        bool,
        typer.Option("--sample", help="Draw tokens at random. By default each is the likeliest."),
    ] = False,
    temperature: Annotated[
        float | None,
        typer.Option(help="With --sample: below 1 favours likely tokens, above 1 unlikely ones."),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="With --sample: draw among the k likeliest tokens.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            help="With --sample: draw among the likeliest tokens whose probabilities sum to this."
        ),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(
            help="With --sample: draw among tokens with this share of the highest probability."
        ),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(help="Stop before this text appears; may be given several times."),
    ] = None,
    seed: Seed = 0,
    threads: Threads = 0,
) -> None:
    """Continue a text, token by token; BART and T5 answer it.

    Example: python -m course_lib generate gpt-mini "In the kitchen, Anna" --sample --top-p 0.9
    """
    # Importing torch takes seconds, so it is done here: `--help` does not need it.
    import torch

    from course_lib import zoo
    from course_lib.generation import stream_text

    loaded = zoo.open_model(model)
    # Word vectors have no tokenizer, and ELMo has a list of words in its place.
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
