"""Semantic textual similarity (STS): whether cosines of texts follow what people say."""

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
        embedder: gives the vectors.
        texts: the first of each pair.
        pairs: the second.
        labels: how alike they are.
        batch: texts that are read at once.
    """
    u, v = encode(embedder, [*texts, *pairs], batch=batch).chunk(2)
    return spearman(cosines(u, v).tolist(), list(labels))
