"""A sentence encoder that has read English, and a search by it.

    python -m lab.real.sentences BODY --corpus ENGLISH --sts FOLDER --xquad FILE --out
    FOLDER

First a sentence finds the one behind it among those of 63 other paragraphs (`ranking`; neighbours
stand for pairs as in Logeswaran and Lee 2018), then the cosine of a pair becomes its grade (STS-B's
training part), then batches of both take turns. After each of them: Spearman's correlation on
STS-B's test part, and the search for the paragraph that answers a question (XQuAD). LoRA's matrices
learn, `sbert-english`; they are written to OUT as `peft` does."""

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn

from classroom.records.record import RESULTS
from course_lib import data, peft, zoo
from course_lib.analysis.retrieval import How, Index
from course_lib.analysis.sts import sts
from course_lib.data.embedders import Embedder, SentenceEncoder
from course_lib.data.text_batches import TextBatches
from course_lib.families import sentence as sentences
from course_lib.files import write_json
from course_lib.generation import prompting
from course_lib.objectives.losses import Batch
from lab.engine.lab import fit, linear_config
from lab.real.search import stems

ENDS = re.compile(r"(?<=[.!?])(?<!\bMr\.)(?<!\bMrs\.)(?<!\bDr\.)\s+(?=[A-Z\"'])")
# words of a sentence; letters of a paragraph before a question
SHORTEST, LONGEST, ROOM = 5, 64, 500
DATA = (
    "neighbouring sentences of openly licensed English and the training part of STS-B; neither is"
    " in the course"
)


def neighbours(corpus: str, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Of each paragraph with two sentences in a row that are neither short nor long: such a pair,
    drawn by `seed`.
    """
    rng = random.Random(seed)
    for document in data.corpus(corpus)["text"]:
        for paragraph in document.split("\n"):
            parts = ENDS.split(paragraph)
            fits = [SHORTEST <= len(part.split()) <= LONGEST for part in parts]
            starts = [i for i in range(len(parts) - 1) if fits[i] and fits[i + 1]]
            if starts:
                start = rng.choice(starts)
                yield {"query": parts[start], "positive": parts[start + 1], "negatives": []}


def search(
    questions: Any,
    embedder: Embedder | None,
    *,
    stem: bool = False,
    how: How = "bm25",
    lm: Any = None,
) -> dict[str, float]:
    """How high the right paragraph stands: mean reciprocal rank, share in the first place and five.
    lm: a language model that re-ranks the first five by how likely the question is behind each
    (Sachan et al. 2022)."""

    def said(texts: list[str]) -> list[str]:
        return stems(texts) if stem else texts

    paragraphs = list(dict.fromkeys(questions["pair"]))
    index = Index(said(paragraphs), embedder=embedder)
    found = [
        [h.number for h in hits]
        for hits in index.search_all(said(questions["text"]), len(paragraphs), how=how)
    ]
    for question, hits in zip(questions["text"], found, strict=True) if lm else ():
        before = [paragraphs[n][-ROOM:] for n in hits[:5]]
        told = prompting.score(lm[0], lm[1], before, [[f" {question}"]] * len(before))
        order = dict(zip(hits[:5], (-one.logprob for (one,) in told), strict=True))
        hits[:5] = sorted(order, key=order.__getitem__)
    right = zip(found, map(paragraphs.index, questions["pair"]), strict=True)
    ranks = [hits.index(n) + 1 if n in hits else 10**6 for hits, n in right]
    shares = {f"recall@{k}": sum(rank <= k for rank in ranks) / len(ranks) for k in (1, 5)}
    return {"mrr": sum(1 / rank for rank in ranks) / len(ranks)} | shares


def either(model: nn.Module, batch: Batch) -> torch.Tensor:
    """A grade is a number with a fraction; what has none are the numbers of neighbours."""
    if batch["labels"].is_floating_point():
        return sentences.cosine_regression(model, batch)
    return sentences.ranking(model, batch)


def main(
    body: Annotated[str, typer.Argument(help="The encoder to begin with.")],
    corpus: Annotated[str, typer.Option(help="Documents whose sentences stand beside each other.")],
    graded: Annotated[str, typer.Option("--sts", help="Folder of STS-B.")],
    xquad: Annotated[str, typer.Option(help="Questions and their paragraphs.")],
    out: Annotated[Path, typer.Option(help="Folder for the adapter.")],
    steps: Annotated[int, typer.Option(help="With neighbours.")] = 1500,
    lr: Annotated[float, typer.Option(help="Peak learning rate of both parts.")] = 1e-3,
    rank: Annotated[int, typer.Option(help="Of LoRA's matrices.")] = 16,
    device: Annotated[str, typer.Option()] = "cpu",
    record: Annotated[Path, typer.Option(help="File of the figures.")] = RESULTS
    / "real_sentences.json",
) -> None:
    """Train, score, write."""
    torch.set_num_threads(1)
    start, (model, tokenizer, _) = time.perf_counter(), zoo.open_model(body)
    torch.manual_seed(0)
    sentence, questions = (
        sentences.Sentence(peft.lora(model.stack, "blocks.*.*.*", rank=rank)),
        data.task(xquad),
    )
    encoder, test = SentenceEncoder(sentence, tokenizer), data.task(graded, split="test")
    found: dict[str, Any] = {
        "BM25": search(questions, None),
        "BM25, stems": search(questions, None, stem=True),
    }
    found["BM25, stems, re-ranked"] = search(
        questions, None, stem=True, lm=zoo.load("gpt-english")[:2]
    )

    def score(name: str) -> None:
        found[name] = {"sts": sts(encoder, test["text"], test["pair"], test["label"])}
        found[name] |= search(questions, encoder, how="dense")
        found[f"{name}, with BM25"] = search(questions, encoder, how="rrf")
        typer.echo(f"{time.perf_counter() - start:.0f} s {name} {found[name]}")

    score("as pretrained")
    how: dict[str, Any] = {"precision": "bf16", "device": device}
    near = TextBatches(list(neighbours(corpus)), tokenizer, batch=64, max_length=48)
    fit(sentence, near, sentences.ranking, linear_config(steps, lr, **how))
    score("neighbours")
    pairs = TextBatches(data.task(graded), tokenizer, batch=32, best=5.0)
    fit(sentence, pairs, sentences.cosine_regression, linear_config(4 * pairs.per_epoch, lr, **how))
    score("neighbours, then grades")
    both = [kind[step] for step in range(4 * pairs.per_epoch) for kind in (near, pairs)]
    fit(sentence, both, either, linear_config(len(both), lr, **how))
    score("both in turn")
    about = {
        "body": body,
        "pairs": len(near.texts),
        "steps": steps,
        "lr": lr,
        "rank": rank,
        "seed": 0,
    } | how
    about |= {
        "torch": torch.__version__,
        "seconds": round(time.perf_counter() - start),
        "made": time.strftime("%F"),
    }
    write_json(record, {"questions": len(questions), "arms": found} | about)
    peft.save_pretrained(
        sentence, out, model_type="megatron-bert", architecture="MegatronBertModel"
    )
    scores = {name: round(value, 4) for name, value in found["both in turn"].items()}
    write_json(out / "card.json", {"name": "sbert-english", "data": DATA, "scores": scores} | about)


if __name__ == "__main__":
    typer.run(main)
