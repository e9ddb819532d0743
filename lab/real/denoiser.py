"""What `bart-english` began with, and the short texts on which it learned where a text ends.

    python -m lab.real.denoiser begin distilbert-english OUT
    python -m lab.real.denoiser cut ENGLISH OUT

Between the two, and after them, `python -m course_lib pretrain bart --init-from ...` (the commands
stand in its card)."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from course_lib import data, families, zoo
from course_lib.files import atomic_write
from course_lib.model.initialization import attend_to_similar
from lab.real.text import ENDS

app = typer.Typer(help=__doc__, no_args_is_help=True)
SENTENCES = (1, 1, 2, 3, 4, 6)  # of a short text, drawn
LETTERS = range(20, 701)  # of a text that is kept


@app.command()
def begin(
    body: Annotated[str, typer.Argument(help="A pre-norm encoder that has read English.")],
    out: Annotated[Path, typer.Argument(help="Folder of the encoder-decoder.")],
) -> None:
    """Put an encoder on both sides, its segment row in its token table; cross-attention looks for
    like (mimetic).
    """
    torch.manual_seed(0)
    opened: Any = zoo.open_model(body)
    shape, family = opened.model.stack.config, families.family("blenderbot")
    sizes = {
        "width": shape.width,
        "layers": shape.layers,
        "heads": shape.heads,
        "length": shape.position.length,
    }
    config = replace(
        family.config(shape.embed.vocab, **sizes), dropout=0.0, attention_dropout=0.0, init_std=0.04
    )
    made: Any = family.model(config, opened.tokenizer.vocab.sep)
    state = opened.model.stack.state_dict()
    segment = state.pop("embed.segments.weight")[0]
    with torch.no_grad():
        for side in (made.stack.encoder, made.stack.decoder):
            missing = side.load_state_dict(state, strict=False).missing_keys
            assert all(".cross" in name for name in missing), missing
            side.embed.tokens.weight += segment  # one table for both: loaded anew, added once
        turn = torch.linalg.qr(torch.randn(shape.width, shape.width)).Q
        for block in made.stack.decoder.blocks:
            attend_to_similar(block.cross, turn * 0.4**0.5)
    zoo.save_pretrained(made, out, tokenizer=opened.tokenizer)


@app.command()
def cut(
    corpus: Annotated[str, typer.Argument(help="Documents.")],
    out: Annotated[Path, typer.Argument(help="Folder of the short texts.")],
) -> None:
    """Cut documents into texts of one to six sentences."""
    rng = random.Random(0)
    for split, name in (("train", "train.jsonl"), ("validation", "dev.jsonl")):
        with atomic_write(out / name) as file:
            for row in data.corpus(corpus, split=split):
                sentences = ENDS.split(" ".join(row["text"].split()))
                start = 0
                while start < len(sentences):
                    end = start + rng.choice(SENTENCES)
                    text = " ".join(sentences[start:end])
                    start = end
                    if len(text) in LETTERS:
                        file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    app()
