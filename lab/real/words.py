"""Static word vectors of real English: do their cosines follow what people say of pairs of words,
and the analogies?

    python -m lab.real.words --corpus ENGLISH --pairs FOLDER --analogies FILE

Skip-gram with the course's own `Word2Vec`, on the corpus in lower case. Pairs: Spearman's
correlation of cosines and grades, over pairs whose words both have vectors; the baseline counts the
letters that two words share (the cosine of their letter trigrams). Analogies: Mikolov et al. 2013's
questions. Written to data/results/real_words.json."""

import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
import typer

from classroom.records.record import RESULTS
from course_lib import data
from course_lib.analysis import analogies
from course_lib.analysis.metrics import spearman
from course_lib.data.words import lowercase_words
from course_lib.families import word_vectors
from course_lib.families.word_vectors import WordVectors
from course_lib.files import write_json

# words among which an analogy's answer is sought, as Mikolov et al. 2013, section 4.1
MANY = 30_000
SETS = ("EN-WS-353-SIM", "EN-WS-353-REL", "EN-SIMLEX-999", "EN-MEN-TR-3k", "EN-RW-STANFORD")


def letters(one: str, other: str) -> float:
    """The cosine of two words' counts of letter trigrams, their ends marked."""
    a, b = (Counter(f"<{word}>"[i : i + 3] for i in range(len(word))) for word in (one, other))
    size = sum(n * n for n in a.values()) * sum(n * n for n in b.values())
    return sum(a[gram] * b[gram] for gram in a) / float(size**0.5)


def similarity(vectors: WordVectors, file: Path) -> dict[str, float]:
    """Spearman's correlation with the grades of a file's pairs: of the vectors' cosines, and of
    `letters`.
    """
    rows = [line.lower().split() for line in file.read_text("utf-8").splitlines()]
    known = [(a, b, float(grade)) for a, b, grade in rows if a in vectors and b in vectors]
    grades = [grade for _, _, grade in known]
    cosines = [F.cosine_similarity(vectors[a], vectors[b], dim=0).item() for a, b, _ in known]
    found = {
        "vectors": spearman(cosines, grades),
        "letters": spearman([letters(a, b) for a, b, _ in known], grades),
    }
    return found | {"pairs": len(known), "of": len(rows)}


def main(
    corpus: Annotated[str, typer.Option(help="Documents.")],
    pairs: Annotated[Path, typer.Option(help="Folder of graded pairs of words.")],
    asked: Annotated[Path, typer.Option("--analogies", help="questions-words.txt.")],
    epochs: Annotated[int, typer.Option(help="Over the corpus.")] = 3,
    size: Annotated[int, typer.Option(help="Width of a vector.")] = 100,
    out: Annotated[Path, typer.Option(help="File of the figures.")] = RESULTS / "real_words.json",
) -> None:
    """Train, score, write."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    text = word_vectors.encode_text(lowercase_words(data.corpus(corpus)["text"]), min_count=10)
    learner = word_vectors.Word2Vec(
        text, word_vectors.Word2VecConfig("skip-gram", size=size, epochs=epochs)
    )
    for epoch in learner.train():
        typer.echo(f"{time.perf_counter() - start:.0f} s {epoch}")
    whole = learner.vectors()
    vectors = WordVectors(whole.words[:MANY], whole.matrix[:MANY])
    scores: dict[str, Any] = {name: similarity(whole, pairs / f"{name}.txt") for name in SETS}
    for kind, some in analogies.read_questions(asked, vectors).items():
        found = analogies.score(vectors, some)
        scores[f"analogies of {kind}"] = {"accuracy": found.accuracy, "asked": found.asked}
    about = {
        "words": len(text.ids),
        "vectors": len(whole),
        "size": size,
        "epochs": epochs,
        "torch": torch.__version__,
    }
    about |= {"seconds": round(time.perf_counter() - start), "made": time.strftime("%Y-%m-%d")}
    write_json(out, {"skip-gram": scores} | about)
    typer.echo(str(scores))


if __name__ == "__main__":
    typer.run(main)
