"""Scores, thin over scikit-learn, scipy, seqeval, sacrebleu and rouge-score.

All take predictions first, then the truth, as equally long lists. Shares lie between 0 and 1,
correlations between -1 and 1; BLEU goes up to 100.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Any

from course_lib.errors import CourseError

Answers = Sequence[str | Sequence[str]]  # of each row the one that is true, or all that are


def accuracy(predictions: Sequence[Any], truth: Sequence[Any]) -> float:
    """Share of equal pairs."""
    _same_length(predictions, truth)
    return sum(bool(p == t) for p, t in zip(predictions, truth, strict=True)) / len(truth)


def f1(predictions: Sequence[Any], truth: Sequence[Any], *, macro: bool = False) -> float:
    """F1 of the class 1 of 0 and 1; 0 where nothing is called positive.

    Args:
        predictions: classes.
        truth: classes.
        macro: take the unweighted mean over the classes that the truth or the predictions hold.

    Raises:
        CourseError: if there are other classes than 0 and 1, without `macro`.
    """
    from sklearn.metrics import f1_score

    _same_length(predictions, truth)
    if not macro and not {*truth, *predictions} <= {0, 1}:
        raise CourseError(
            "f1 is of the class 1 of 0 and 1; of other classes the mean is taken (macro=True)."
        )
    return float(
        f1_score(truth, predictions, average="macro" if macro else "binary", zero_division=0.0)
    )


def micro_f1(predictions: Sequence[Collection[Any]], truth: Sequence[Collection[Any]]) -> float:
    """F1 over the labels of all rows, of which each may have several or none; 0 without any."""
    _same_length(predictions, truth)
    pairs = [(set(p), set(t)) for p, t in zip(predictions, truth, strict=True)]
    right = sum(len(p & t) for p, t in pairs)
    return 2 * right / (sum(len(p) + len(t) for p, t in pairs) or 1)


def matthews(predictions: Sequence[Any], truth: Sequence[Any]) -> float:
    """Matthews correlation, CoLA's score: 0 for guessing, however uneven the classes are."""
    from sklearn.metrics import matthews_corrcoef

    _same_length(predictions, truth)
    return float(matthews_corrcoef(truth, predictions))


def pearson(predictions: Sequence[float], truth: Sequence[float]) -> float:
    """Linear correlation; 0 where one side is constant."""
    from scipy.stats import pearsonr

    _same_length(predictions, truth)
    if len(truth) < 2 or not all(map(math.isfinite, (*predictions, *truth))):
        raise CourseError("A correlation needs at least two pairs of finite numbers.")
    if len(set(predictions)) == 1 or len(set(truth)) == 1:
        return 0.0
    return float(pearsonr(predictions, truth)[0])


def spearman(predictions: Sequence[float], truth: Sequence[float]) -> float:
    """Rank correlation; 0 where one side is constant."""
    from scipy.stats import rankdata

    return pearson(rankdata(predictions).tolist(), rankdata(truth).tolist())


def entity_f1(predictions: Sequence[Sequence[str]], truth: Sequence[Sequence[str]]) -> float:
    """F1 over whole entities, CoNLL's score, as conlleval counts.

    The borders and the type must both be right. Tags are O, B-X and I-X; ends of entities may be
    E-X or L-X, entities of one word S-X or U-X (BILOU). Where there is one type, the tags may be O,
    B and I alone. An I-X that continues nothing begins an entity, as in CoNLL 2003's own tags
    (IOB1).

    Raises:
        CourseError: if a tag is none of these.
    """
    from seqeval.metrics import f1_score

    _same_length(predictions, truth)
    check_tags(chain.from_iterable([*predictions, *truth]))
    right = [_seqeval_tags(row) for row in truth]
    predicted = [_seqeval_tags(row) for row in predictions]
    return float(f1_score(right, predicted, zero_division=0))


def _seqeval_tags(tags: Sequence[str]) -> list[str]:
    """Tags as seqeval knows them: S and E in place of U and L."""
    names = {"U": "S", "L": "E"}
    return [names.get(tag[0], tag[0]) + tag[1:] for tag in tags]


def check_tags(tags: Iterable[str]) -> None:
    """Refuse what is no tag of entities.

    Raises:
        CourseError: if there is one.
    """
    for tag in tags:
        if not is_entity_tag(tag) and tag != "O":
            raise CourseError(
                f"There is a tag {tag!r}; tags of entities are O, B-PER, I-PER and the like. For"
                " other tags take the metric accuracy."
            )


def is_entity_tag(tag: str) -> bool:
    """Whether this is a tag of a word in an entity: B-PER, or B where there is one type."""
    return re.match(r"[BIESLU](-|$)", tag) is not None


def count_odd_rows(rows: Iterable[Sequence[str]]) -> int:
    """How many rows have a tag that cannot follow the one before it, by the rows' own scheme.

    The scheme is BILOU (or IOBES) where there are its tags. It is IOB1 where every B-X divides two
    entities of one type. Else it is IOB2, where each entity begins with B-X.

    Args:
        rows: tags of entities.
    """
    rows = [["O", *tags, "O"] for tags in rows]
    pairs = [list(pairwise(tags)) for tags in rows]
    has_ends = any(tag[0] in "SUEL" for tags in rows for tag in tags)
    divides = [_continues(before, tag) for row in pairs for before, tag in row if tag[0] == "B"]
    if has_ends:
        return sum(any(_breaks_bilou(before, tag) for before, tag in row) for row in pairs)
    if all(divides):
        return 0
    return sum(
        any(tag[0] == "I" and not _continues(before, tag) for before, tag in row) for row in pairs
    )


def _continues(before: str, tag: str) -> bool:
    """Whether a tag has the type of an entity that may go on."""
    return before[0] in "BI" and before[1:] == tag[1:]


def _breaks_bilou(before: str, tag: str) -> bool:
    """Whether an entity is left without its end, or gone on with without its beginning."""
    is_inside = tag[0] in "IEL"
    return is_inside != (before[0] in "BI") or (is_inside and not _continues(before, tag))


def exact_match(predictions: Sequence[str], truth: Answers) -> float:
    """Share of right answers (Rajpurkar et al. 2016, section 6).

    Case, ASCII punctuation, articles and white space do not matter. Where several answers are true,
    the best counts.
    """
    return _mean_of_best(predictions, truth, lambda p, t: float(_plain(p) == _plain(t)))


def token_f1(predictions: Sequence[str], truth: Answers) -> float:
    """Mean overlap of words between answers, SQuAD's F1, by the same rules as `exact_match`."""

    def overlap(prediction: str, answer: str) -> float:
        predicted = _plain(prediction)
        true = _plain(answer)
        if not predicted or not true:
            return float(predicted == true)
        common = Counter(predicted) & Counter(true)
        return 2 * common.total() / (len(predicted) + len(true))

    return _mean_of_best(predictions, truth, overlap)


def bleu(predictions: Sequence[str], truth: Answers, *, tokenize: str = "13a") -> float:
    """BLEU of the whole corpus, 0 to 100 (Papineni et al. 2002), of one reference or several.

    It is sacrebleu's as it comes: "case:mixed|eff:no|tok:13a|smooth:exp".

    Args:
        predictions: texts.
        truth: of each text the reference, or all references.
        tokenize: "13a" cuts words as mteval-v13a does; "none" is for texts that are cut.
    """
    from sacrebleu.metrics.bleu import BLEU

    rows = _answers(predictions, truth)
    # The first reference of every text, the second of every text, ... (None: it has none).
    references: Any = [
        [row[i] if i < len(row) else None for row in rows] for i in range(max(map(len, rows)))
    ]
    return float(BLEU(tokenize=tokenize).corpus_score(list(predictions), references).score)


def rouge(
    predictions: Sequence[str], truth: Answers, *, kind: str = "rougeL", stem: bool = True
) -> float:
    """Mean ROUGE F-measure, 0 to 1 (Lin 2004), by rouge-score; the best reference counts.

    Args:
        predictions: texts; case does not matter.
        truth: of each text the reference, or all references.
        kind: "rouge1", "rouge2", "rougeL", "rougeLsum" (L over sentences, one a line).
        stem: compare Porter's stems.
    """
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer([kind], use_stemmer=stem)

    def f_measure(prediction: str, answer: str) -> float:
        return float(scorer.score(answer, prediction)[kind].fmeasure)

    return _mean_of_best(predictions, truth, f_measure)


def per_class(
    predictions: Sequence[Any], truth: Sequence[Any], names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and count of each class.

    Args:
        predictions: numbers of classes, from 0; where a row may have several, lists of them.
        truth: likewise.
        names: of the classes.

    Raises:
        CourseError: if a class has no name.
    """
    _same_length(predictions, truth)
    predicted_rows = [set(p) if isinstance(p, list) else {p} for p in predictions]
    true_rows = [set(t) if isinstance(t, list) else {t} for t in truth]
    nameless = set().union(*predicted_rows, *true_rows) - set(range(len(names)))
    if nameless:
        raise CourseError(
            f"The class {min(nameless)!r} has no name; {len(names)} names are given, for 0 and"
            " so on."
        )
    predicted = Counter(chain.from_iterable(predicted_rows))
    true = Counter(chain.from_iterable(true_rows))
    both = [p & t for p, t in zip(predicted_rows, true_rows, strict=True)]
    right = Counter(chain.from_iterable(both))
    return {
        name: {
            "precision": right[i] / (predicted[i] or 1),
            "recall": right[i] / (true[i] or 1),
            "f1": 2 * right[i] / (predicted[i] + true[i] or 1),
            "count": float(true[i]),
        }
        for i, name in enumerate(names)
    }


def mrr(
    rankings: Sequence[Sequence[Any]], truth: Sequence[Collection[Any]], *, k: int = 10
) -> float:
    """Mean reciprocal rank: 1 / the rank of the first relevant document.

    Args:
        rankings: what was found for each query, best first.
        truth: what is relevant for it.
        k: a query counts 0 where nothing relevant is among the first k.
    """
    _same_length(rankings, truth)
    total = 0.0
    for ranking, relevant in zip(rankings, truth, strict=True):
        for rank, document in enumerate(ranking[:k], start=1):
            if document in relevant:
                total += 1 / rank
                break
    return total / len(truth)


def ndcg(
    rankings: Sequence[Sequence[Any]], truth: Sequence[Collection[Any]], *, k: int = 10
) -> float:
    """nDCG (Järvelin and Kekäläinen 2002).

    The sum of 1 / log2(rank + 1) of the relevant documents among the first k, over the best
    possible sum.

    Args:
        rankings: what was found for each query, best first.
        truth: what is relevant for it.
        k: so many documents count.
    """

    def gain(ranks: Iterable[int]) -> float:
        return sum(1 / math.log2(rank + 1) for rank in ranks)

    _same_length(rankings, truth)
    total = 0.0
    for ranking, relevant in zip(rankings, truth, strict=True):
        ranks = [n for n, document in enumerate(ranking[:k], start=1) if document in relevant]
        best = gain(range(1, min(k, len(relevant)) + 1))
        total += gain(ranks) / best
    return total / len(truth)


METRICS: dict[str, Callable[[Sequence[Any], Sequence[Any]], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "entity_f1": entity_f1,
    "exact_match": exact_match,
    "token_f1": token_f1,
    "bleu": bleu,
    "rouge1": partial(rouge, kind="rouge1"),
    "rouge2": partial(rouge, kind="rouge2"),
    "rougeL": partial(rouge, kind="rougeL"),
    "macro_f1": partial(f1, macro=True),
    "micro_f1": micro_f1,
}
# What each kind of answer is scored by.
OF_CLASSES = ("accuracy", "f1", "macro_f1", "matthews")
OF_SCORES = ("pearson", "spearman")
OF_TEXTS = ("exact_match", "token_f1", "bleu", "rouge1", "rouge2", "rougeL")
# These score rows of tags or labels. To the others a tagger's rows are one long list.
OF_SEQUENCES = {"entity_f1", "micro_f1"}


def _same_length(predictions: Sequence[Any], truth: Sequence[Any]) -> None:
    if len(predictions) != len(truth):
        raise CourseError(f"There are {len(predictions)} predictions for {len(truth)} true labels.")
    if len(truth) == 0:
        raise CourseError("There is nothing to score: no predictions were given.")


def _answers(predictions: Sequence[str], truth: Answers) -> list[Sequence[str]]:
    """All true answers of each row."""
    _same_length(predictions, truth)
    return [[answers] if isinstance(answers, str) else answers for answers in truth]


def _mean_of_best(
    predictions: Sequence[str], truth: Answers, score: Callable[[str, str], float]
) -> float:
    """The mean over rows of the best score that one of the true answers gives."""
    best = []
    for prediction, answers in zip(predictions, _answers(predictions, truth), strict=True):
        best.append(max(score(prediction, answer) for answer in answers))
    return sum(best) / len(best)


def _plain(answer: str) -> list[str]:
    """The words of an answer that are compared, as SQuAD does: no case, punctuation or articles."""
    letters = "".join(c for c in answer.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", letters).split()
