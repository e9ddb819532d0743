"""`vectors-english`: skip-gram vectors of the 20,000 most frequent words of real English.

    python -m lab.real.vectors ENGLISH --pairs FOLDER --analogies FILE

gensim trains them: it is the library that people use for this, and its C code reads the 19.1
million words five times in half an hour. With one worker the same seed gives the same vectors. The
vectors become a shipped checkpoint. Its card has what `lab.real.words` scores of them: Spearman's
correlation with people's grades of pairs, and the analogies of Mikolov et al. 2013.
"""

import time
from pathlib import Path
from typing import Annotated

import gensim  # type: ignore[import-untyped]
import torch
import typer
from gensim.models import Word2Vec  # type: ignore[import-untyped]

from course_lib import data, zoo
from course_lib.analysis import analogies
from course_lib.data.words import lowercase_words
from course_lib.families.word_vectors import WordVectors
from lab.real.words import SETS, similarity

NAME = "vectors-english"
KEPT = 20_000  # the most frequent words


def main(
    corpus: Annotated[str, typer.Argument(help="Documents.")],
    pairs: Annotated[Path, typer.Option(help="Folder of graded pairs of words.")],
    asked: Annotated[Path, typer.Option("--analogies", help="questions-words.txt.")],
    to: Annotated[Path, typer.Option(help="Folder of all checkpoints.")] = zoo.FOLDER,
    size: Annotated[int, typer.Option(help="Width of a vector.")] = 100,
    epochs: Annotated[int, typer.Option(help="Over the corpus.")] = 5,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Train, score and write among the checkpoints."""
    begin = time.perf_counter()
    sentences = list(lowercase_words(data.corpus(corpus)["text"]))
    trained = Word2Vec(
        sentences,
        vector_size=size,
        sg=1,  # skip-gram
        negative=10,
        window=5,
        min_count=10,
        sample=1e-4,
        epochs=epochs,
        seed=seed,
        workers=1,  # several would make the order of the updates, and so the result, random
    )
    words = trained.wv.index_to_key[:KEPT]  # gensim numbers the most frequent word 0
    matrix = torch.from_numpy(trained.wv.vectors[:KEPT])
    counts = [int(trained.wv.get_vecattr(word, "count")) for word in words]
    vectors = WordVectors(words, matrix, counts)
    read = sum(len(sentence) for sentence in sentences)
    card = {
        "name": NAME,
        "recipe": {
            "command": "python -m lab.real.vectors ENGLISH --pairs FOLDER --analogies FILE",
            "kind": "skip-gram",
            "size": size,
            "epochs": epochs,
            "negative": 10,
            "window": 5,
        },
        "seed": seed,
        "data": "19.1 million words and punctuation marks of openly licensed English (OpenStax"
        " textbooks, Project Gutenberg, speeches, Common Voice sentences), split train; the text is"
        " not part of the course",
        "steps": epochs,
        "tokens": epochs * read,
        "seconds": round(time.perf_counter() - begin),
        "scores": scores(vectors, pairs, asked),
        "curve": [],
        "gensim": gensim.__version__,
        "made": time.strftime("%Y-%m-%d"),
    }
    zoo.export(NAME, vectors, None, card, to)


def scores(vectors: WordVectors, pairs: Path, asked: Path) -> dict[str, float]:
    """Spearman's correlations with people's grades, and the share of analogies that are right."""
    found = {}
    for name in SETS:
        found[name.removeprefix("EN-")] = round(
            similarity(vectors, pairs / f"{name}.txt")["vectors"], 3
        )
    for kind, some in analogies.read_questions(asked, vectors).items():
        found[f"analogies of {kind}"] = round(analogies.score(vectors, some).accuracy, 3)
    return found


if __name__ == "__main__":
    typer.run(main)
