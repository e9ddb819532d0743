"""Multi30k, English to German (Elliott et al. 2016): the Transformer of 2017 beside an LSTM with
attention.

    python -m lab.real.translation FOLDER

Both have about as many parameters and see as many batches. Each one's learning rate is chosen by
BLEU on the validation part after a quarter of the steps; then it is trained once a seed, and scored
on the 2016 test part."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn

from classroom.records.figures import figure
from classroom.records.record import RESULTS
from course_lib import data
from course_lib.analysis import metrics
from course_lib.data.inputs import EncodedRow, SourceTarget, TaskBatches
from course_lib.data.tokenizers import Tokenizer, train_wordpiece
from course_lib.families import transformer_lm
from course_lib.families.transformer import transformer
from course_lib.files import read_json, write_json
from course_lib.model.config import StackConfig
from course_lib.objectives import losses
from course_lib.training import optim
from lab.engine import probes, small_models
from lab.engine.lab import fit, linear_config

RATES = (1e-3, 2e-3, 4e-3, 8e-3)
PARTS = ("train", "validation", "test_2016_flickr")
LONGEST = 60  # tokens of a translation


Pairs = list[dict[str, Any]]  # "text" and its translation, "target"


def read(folder: Path, source: str, target: str) -> dict[str, Pairs]:
    """The parts of Multi30k: a pair of captions a row, in the two languages named."""
    columns = {"text": source, "target": target}
    return {part: list(data.task(str(folder), split=part, columns=columns)) for part in PARTS}


def shared_tokenizer(pairs: Pairs, vocab: int) -> Tokenizer:
    """WordPiece of both languages, with capitals."""
    both = [pair[side] for pair in pairs for side in ("text", "target")]
    return train_wordpiece(both, vocab, lowercase=False)


def network(tokenizer: Tokenizer, width: int, layers: int, dropout: float) -> StackConfig:
    """The Transformer of 2017 with its norms in front, which needs no long warm-up."""
    size = tokenizer.vocab.size
    config = transformer(size, width=width, layers=layers, heads=4, dropout=dropout, norm="pre")
    return replace(config, attention_dropout=0.0)


def encode(frame: SourceTarget, pairs: Pairs) -> list[EncodedRow]:
    """Rows of token ids. Targets do not begin with the start token: the decoder has its own."""
    return [replace(row, label=row.label[1:]) for row in frame.rows(pairs)]


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of the parallel texts.")],
    out: Annotated[Path, typer.Option(help="File of the figures.")] = RESULTS
    / "real_multi30k.json",
    steps: Annotated[int, typer.Option(min=4)] = 3000,
    rows: Annotated[int, typer.Option(help="Pairs in a batch.", min=1)] = 64,
    width: Annotated[int, typer.Option(help="Of the Transformer; the LSTM's token vectors.")] = 128,
    layers: Annotated[int, typer.Option(help="Of each side of the Transformer.")] = 3,
    cells: Annotated[int, typer.Option(help="Of the LSTM, in each direction.")] = 192,
    vocab: Annotated[int, typer.Option()] = 6000,
    seeds: Annotated[int, typer.Option(help="Trainings of a model.", min=1)] = 5,
    device: Annotated[str, typer.Option()] = "cpu",
) -> None:
    """Train both models and record their BLEU (sacrebleu)."""
    torch.set_num_threads(1)
    texts = read(folder, "en", "de")
    tokenizer = shared_tokenizer(texts["train"], vocab)
    start = tokenizer.vocab.cls or 0
    config = network(tokenizer, width, layers, dropout=0.1)
    frame = SourceTarget(tokenizer, config)
    framed = {part: encode(frame, pairs) for part, pairs in texts.items()}
    models: dict[str, Callable[[], nn.Module]] = {
        "Transformer": lambda: transformer_lm(config, start=start),
        "attentional LSTM": lambda: small_models.attentional_lstm(
            tokenizer.vocab.size, width, cells, start, 0.2
        ),
    }

    def bleu(
        build: Callable[[], nn.Module], lr: float, seed: int, updates: int, part: str
    ) -> float:
        torch.manual_seed(seed)
        model = build()
        batches = TaskBatches(frame, framed["train"], rows, seed, by_length=True)
        training = linear_config(updates, lr, beta2=0.98, precision="bf16", device=device)
        schedule = optim.wsd(updates, max(1, updates // 10), decay=0.3)
        fit(model, batches, losses.seq2seq, training, schedule)
        translations = probes.answers(model, frame, framed[part], most=LONGEST)
        return metrics.bleu(translations, [pair["target"] for pair in texts[part]])

    found: dict[str, Any] = read_json(out) if out.exists() else {"models": {}}
    found |= {
        "pairs": {part: len(pairs) for part, pairs in texts.items()},
        "steps": steps,
        "rows": rows,
    }
    found |= {
        "vocab": tokenizer.vocab.size,
        "torch": torch.__version__,
        "made": time.strftime("%Y-%m-%d"),
    }
    for name, build in models.items():
        if name not in found["models"]:
            begin = time.perf_counter()
            tried = {lr: bleu(build, lr, 0, steps // 4, PARTS[1]) for lr in RATES}
            best = max(tried, key=tried.__getitem__)
            scores: Sequence[float] = [
                bleu(build, best, seed, steps, PARTS[2]) for seed in range(seeds)
            ]
            made = asdict(figure(scores)) | {"chosen": best, "tried": tried}
            made |= {"parameters": sum(p.numel() for p in build().parameters())}
            found["models"][name] = made | {"seconds": round(time.perf_counter() - begin)}
            write_json(out, found)
            typer.echo(f"{name} {found['models'][name]}")


if __name__ == "__main__":
    typer.run(main)
