"""`translator-english`: the Transformer of 2017 from German to English, on Multi30k.

    python -m lab.real.translator FOLDER WORK

FOLDER holds the parallel captions (Elliott et al. 2016), WORK the state of the training, from which
the same command goes on. The finished model becomes a shipped checkpoint. Its card has the BLEU of
both held-out parts and the first ten translations of the test part, as they came.
"""

import time
from pathlib import Path
from typing import Annotated

import torch
import typer

from course_lib import zoo
from course_lib.analysis import metrics
from course_lib.data.inputs import SourceTarget, TaskBatches
from course_lib.families import transformer_lm
from course_lib.objectives import losses
from course_lib.training import loop, optim
from lab.engine import probes
from lab.real.translation import LONGEST, PARTS, Pairs, encode, network, read, shared_tokenizer

NAME = "translator-english"
SHOWN = 10  # translations in the card


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of the parallel texts.")],
    work: Annotated[Path, typer.Argument(help="Folder of the training's state.")],
    to: Annotated[Path, typer.Option(help="Folder of all checkpoints.")] = zoo.FOLDER,
    steps: Annotated[int, typer.Option(min=4)] = 9000,
    rows: Annotated[int, typer.Option(help="Pairs in a batch.", min=1)] = 64,
    lr: Annotated[float, typer.Option(help="The peak of the learning rate.")] = 2e-3,
    dropout: Annotated[float, typer.Option()] = 0.2,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Train the translator and write it among the checkpoints."""
    torch.set_num_threads(1)
    texts = read(folder, "de", "en")
    tokenizer = shared_tokenizer(texts["train"], vocab=6000)
    config = network(tokenizer, width=128, layers=3, dropout=dropout)
    frame = SourceTarget(tokenizer, config)
    torch.manual_seed(seed)
    model = transformer_lm(config, start=tokenizer.vocab.cls or 0)

    batches = TaskBatches(frame, encode(frame, texts["train"]), rows, seed, by_length=True)
    training = loop.TrainConfig(
        steps=steps, lr=lr, beta2=0.98, precision="bf16", save_to=work / "run_state.pt"
    )
    schedule = optim.wsd(steps, max(1, steps // 10), decay=0.4)
    begin = time.perf_counter()
    curve = []
    for step in loop.train(model, batches, losses.seq2seq, training, schedule=schedule):
        if step.step % 250 == 0:
            curve.append({"step": step.step, "loss": round(step.loss, 3)})  # of one batch
            typer.echo(f"step {step.step}: loss {step.loss:.3f}")
    model.eval()

    scores: dict[str, float] = {}
    examples: list[dict[str, str]] = []
    for part in PARTS[1:]:
        said = probes.answers(model, frame, encode(frame, texts[part]), most=LONGEST)
        scores[f"BLEU, {part}"] = round(
            metrics.bleu(said, [row["target"] for row in texts[part]]), 1
        )
        examples = _examples(texts[part], said)
    card = {
        "name": NAME,
        "recipe": {
            "command": "python -m lab.real.translator MULTI30K WORK",
            "steps": steps,
            "rows": rows,
            "lr": lr,
            "dropout": dropout,
        },
        "seed": seed,
        "data": "Multi30k (Elliott et al. 2016): 29,000 captions in German and English, split"
        " train; the captions are not part of the course",
        "steps": steps,
        "tokens": steps * rows * _mean_tokens(frame, texts["train"]),
        "seconds": round(time.perf_counter() - begin),
        "scores": scores,
        "curve": curve,
        "examples": examples,
        "torch": torch.__version__,
        "made": time.strftime("%Y-%m-%d"),
    }
    zoo.export(NAME, model, tokenizer, card, to)


def _examples(pairs: Pairs, said: list[str]) -> list[dict[str, str]]:
    """The first translations of a part: source, a person's translation, the model's."""
    firsts = zip(pairs[:SHOWN], said[:SHOWN], strict=True)
    return [
        {"German": pair["text"], "person": pair["target"], "model": text} for pair, text in firsts
    ]


def _mean_tokens(frame: SourceTarget, pairs: Pairs) -> int:
    """Tokens of a source and its target, on average."""
    encoded = encode(frame, pairs[:1000])
    return round(sum(len(row.label) + len(row.ids[0]) for row in encoded) / len(encoded))


if __name__ == "__main__":
    typer.run(main)
