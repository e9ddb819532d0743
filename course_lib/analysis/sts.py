"""Semantic textual similarity (STS): do cosines of texts agree with people's scores?"""

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
    """Spearman's correlation of the cosines and the labels.

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
