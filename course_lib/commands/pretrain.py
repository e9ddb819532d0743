"""The commands `pretrain` and `tokenize`.

Their options are the fields of `PretrainConfig` and `TokenizeConfig`, besides those listed here.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from course_lib.commands.options import SOURCES, Device, Threads, named, options_of
from course_lib.commands.screen import progress
from course_lib.files import locked
from course_lib.training.pretrain_config import PretrainConfig, TokenizeConfig
from course_lib.training.settings import Precision


@options_of(PretrainConfig)
def pretrain(
    model: Annotated[
        str,
        typer.Argument(help="gpt, bert, albert, distilbert, electra, bart, t5; sized: bert-base."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model and its run.", callback=named)],
    data: Annotated[str, typer.Option(help=SOURCES + ", or a folder that `tokenize` wrote.")],
    precision: Annotated[
        Precision,
        typer.Option(
            help="bf16 computes in bfloat16, which is faster on some machines. auto does so there."
        ),
    ] = "auto",
    device: Device = "auto",
    threads: Threads = 0,  # not used here: its callback has set the number
    **options: Any,
) -> None:
    """Train a tokenizer and a model, on one device or, with accelerate launch, on several.

    Example: python -m course_lib pretrain gpt --data book.txt --out build/my-gpt --steps 500

    On two GPUs: accelerate launch --multi_gpu --num_processes 2 -m course_lib pretrain gpt-base
    --data tokens --out big (--use_fsdp in place of --multi_gpu: each holds a part of the weights).
    """
    # Importing torch takes seconds, so it is done here: `--help` does not need it.
    from course_lib.training import pretraining

    config = PretrainConfig(
        model=model, out=out, data=data, precision=precision, device=device, **options
    )
    with progress(config.steps) as watch:
        pretraining.pretrain(config, say=print, watch=watch)


@options_of(TokenizeConfig)
def tokenize(
    out: Annotated[
        Path, typer.Option(help="Folder for the tokenizer and the token files.", callback=named)
    ],
    data: Annotated[str, typer.Option(help=SOURCES + ".")],
    model: Annotated[
        str,
        typer.Option(
            help="The family to pretrain: gpt takes byte-level BPE, the others WordPiece."
        ),
    ] = "gpt",
    **options: Any,
) -> None:
    """Turn a corpus of any size into token files, once; `pretrain --data FOLDER` reads them.

    Example: python -m course_lib tokenize --data hub:NAME --out build/tokens --vocab 32000
    """
    # Importing torch takes seconds, so it is done here: `--help` does not need it.
    from course_lib.training import token_files

    config = TokenizeConfig(model=model, out=out, data=data, **options)
    with locked(out):
        store = token_files.tokenize(config).store
    print(f"{store.tokens:,} tokens in {len(store):,} documents, in {out}")
