"""Semantic textual similarity (STS): does a model find the same texts similar as people do?

    sts(embedder, ["A dog runs.", ...], ["A cat sleeps.", ...], [1.2, ...])    0.78

The cosine of two texts' vectors is the model's opinion, the label a score by people, often 0 to 5.
"""

from collections.abc import Sequence

from course_lib.analysis.metrics import spearman
from course_lib.data.embedders import Embedder, encode
from course_lib.families.sentence import cosines


def sts(
    embedder: Embedder,
    texts: Sequence[str],
    pairs: Sequence[str],
    labels: Sequence[float],
    *,
    batch: int = 32,
) -> float:
    """Spearman's rank correlation of the cosines and the labels; 1 is perfect agreement.

    (Reimers and Gurevych 2019, section 4.1.)

    Args:
        embedder: turns texts into vectors.
        texts: the first text of each pair.
        pairs: the second text of each pair.
        labels: people's similarity score of each pair.
        batch: the number of texts in a batch.
    """
    u, v = encode(embedder, [*texts, *pairs], batch=batch).chunk(2)
    return spearman(cosines(u, v).tolist(), list(labels))
