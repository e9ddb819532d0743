"""Scores of predictions: accuracy, F1, correlations, BLEU, ROUGE and others.

Each is a function of two lists of the same length, the predictions and the right answers:

    accuracy([1, 0, 1, 1], [1, 0, 0, 1])    0.75

Scores are between 0 and 1, correlations between -1 and 1, and only BLEU between 0 and 100.
Libraries do the work: scikit-learn, scipy, seqeval, sacrebleu and rouge-score. F1 combines
precision (the share of the predicted that is right) and recall (the share of the right that is
predicted): 2 * precision * recall / (precision + recall).
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

Answers = Sequence[str | Sequence[str]]  # for each row the right answer, or all right answers


def accuracy(predictions: Sequence[Any], truth: Sequence[Any]) -> float:
    """The share of predictions that equal the truth."""
    _same_length(predictions, truth)
    return sum(bool(p == t) for p, t in zip(predictions, truth, strict=True)) / len(truth)


def f1(predictions: Sequence[Any], truth: Sequence[Any], *, macro: bool = False) -> float:
    """F1 of class 1, if the classes are 0 and 1; or the mean of all classes' F1 (`macro`).

    It is 0 if the class is never predicted.

    Args:
        predictions: the predicted classes.
        truth: the right classes.
        macro: take the mean over all classes that occur; rare ones count as much as frequent ones.

    Raises:
        CourseError: without `macro`, there are other classes than 0 and 1.
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
    """F1 for rows with several labels or none: the labels of all rows are counted together.

    >>> micro_f1([["a", "b"], []], [["a"], ["c"]])  # 1 of 2 predicted is right, 1 of 2 found
    0.5
    """
    _same_length(predictions, truth)
    pairs = [(set(p), set(t)) for p, t in zip(predictions, truth, strict=True)]
    right = sum(len(p & t) for p, t in pairs)
    labels = sum(len(p) + len(t) for p, t in pairs)
    return 2 * right / max(labels, 1)


def matthews(predictions: Sequence[Any], truth: Sequence[Any]) -> float:
    """Matthews correlation, CoLA's score: 0 for guessing, even if one class is rare."""
    from sklearn.metrics import matthews_corrcoef

    _same_length(predictions, truth)
    return float(matthews_corrcoef(truth, predictions))


def pearson(predictions: Sequence[float], truth: Sequence[float]) -> float:
    """Linear correlation; 0 if all predictions, or all right answers, are equal."""
    from scipy.stats import pearsonr

    _same_length(predictions, truth)
    if len(truth) < 2 or not all(map(math.isfinite, (*predictions, *truth))):
        raise CourseError("A correlation needs at least two pairs of finite numbers.")
    if len(set(predictions)) == 1 or len(set(truth)) == 1:
        return 0.0
    return float(pearsonr(predictions, truth)[0])


def spearman(predictions: Sequence[float], truth: Sequence[float]) -> float:
    """Rank correlation, the linear correlation of the ranks; 0 if one list is constant."""
    from scipy.stats import rankdata

    return pearson(rankdata(predictions).tolist(), rankdata(truth).tolist())


def entity_f1(predictions: Sequence[Sequence[str]], truth: Sequence[Sequence[str]]) -> float:
    """F1 over whole entities, such as names: CoNLL's score, counted as its script conlleval does.

    An entity is right if its first word, its last word and its type are right. In "Anna Berg
    slept", tagged B-PER I-PER O, it is Anna Berg, a person: B-PER begins it, I-PER continues it.

    Other ways to write the same are understood, too. The last word of an entity may be E-PER or
    L-PER, an entity of one word S-PER or U-PER (BILOU). If there is only one type, the tags may be
    B, I and O alone. An I-PER without a beginning before it begins an entity (IOB1, as in CoNLL
    2003's files).

    Raises:
        CourseError: a tag is none of these.
    """
    from seqeval.metrics import f1_score

    _same_length(predictions, truth)
    check_tags(chain.from_iterable([*predictions, *truth]))
    right = [_seqeval_tags(row) for row in truth]
    predicted = [_seqeval_tags(row) for row in predictions]
    return float(f1_score(right, predicted, zero_division=0))


def check_tags(tags: Iterable[str]) -> None:
    """Check that all tags are tags of entities: O, B-PER, I-PER, B and the like.

    Raises:
        CourseError: a tag is not.
    """
    for tag in tags:
        if not is_entity_tag(tag) and tag != "O":
            raise CourseError(
                f"There is a tag {tag!r}; tags of entities are O, B-PER, I-PER and the like. For"
                " other tags take the metric accuracy."
            )


def is_entity_tag(tag: str) -> bool:
    """Whether a word with this tag is in an entity: B-PER, or B if there is only one type."""
    return re.match(r"[BIESLU](-|$)", tag) is not None


def count_odd_rows(rows: Iterable[Sequence[str]]) -> int:
    """Count the rows with a tag that cannot follow the tag before it, such as O I-PER.

    What is allowed depends on the scheme that the rows use:

        BILOU, IOBES    there are tags for the last word (L, E) or the only word (U, S)
        IOB1            B-PER only separates two persons in a row, so O I-PER is allowed
        IOB2            every entity begins with B-PER

    Args:
        rows: the tags of each sentence.
    """
    padded = [["O", *tags, "O"] for tags in rows]
    pairs = [list(pairwise(tags)) for tags in padded]
    is_bilou = any(tag[0] in "SUEL" for tags in padded for tag in tags)
    divides = [_continues(before, tag) for row in pairs for before, tag in row if tag[0] == "B"]
    if all(divides) and not is_bilou:  # IOB1
        return 0
    breaks = _breaks_bilou if is_bilou else _breaks_iob2
    return sum(any(breaks(before, tag) for before, tag in row) for row in pairs)


def exact_match(predictions: Sequence[str], truth: Answers) -> float:
    """The share of right answers to questions, SQuAD's score (Rajpurkar et al. 2016, section 6).

    Case, ASCII punctuation, articles and white space do not matter: "The Nile." equals "nile". If
    several answers are right, one of them is enough.
    """
    return _mean_of_best(predictions, truth, lambda p, t: float(_plain(p) == _plain(t)))


def token_f1(predictions: Sequence[str], truth: Answers) -> float:
    """SQuAD's F1: how many words a prediction and the right answer share. The mean over all rows.

    >>> round(token_f1(["the river Nile"], ["Nile"]), 2)  # precision 1/2, recall 1
    0.67

    Words are compared as in `exact_match`. If several answers are right, the best score counts.
    """

    def overlap(prediction: str, answer: str) -> float:
        predicted = _plain(prediction)
        true = _plain(answer)
        if not predicted or not true:
            return float(predicted == true)
        common = Counter(predicted) & Counter(true)
        return 2 * common.total() / (len(predicted) + len(true))

    return _mean_of_best(predictions, truth, overlap)


def bleu(predictions: Sequence[str], truth: Answers, *, tokenize: str = "13a") -> float:
    """BLEU, 0 to 100, of translations (Papineni et al. 2002): shared n-grams in all texts together.

    It is computed by sacrebleu with its default settings: "case:mixed|eff:no|tok:13a|smooth:exp".

    Args:
        predictions: the texts of the model.
        truth: for each text the right translation (the reference), or several.
        tokenize: how texts are split into words: "13a" as by the script mteval-v13a; "none" for
            texts that are split by blanks already.
    """
    from sacrebleu.metrics.bleu import BLEU

    rows = _answers(predictions, truth)
    # sacrebleu wants a list of all first references, one of all second references, and so on. None
    # is for a text that has fewer references.
    references: Any = [
        [row[i] if i < len(row) else None for row in rows] for i in range(max(map(len, rows)))
    ]
    return float(BLEU(tokenize=tokenize).corpus_score(list(predictions), references).score)


def rouge(
    predictions: Sequence[str], truth: Answers, *, kind: str = "rougeL", stem: bool = True
) -> float:
    """ROUGE, 0 to 1, of summaries (Lin 2004): F1 of the words shared with the reference.

    If a text has several references, the best score counts. Case does not matter.

    Args:
        predictions: the texts of the model.
        truth: for each text the right summary (the reference), or several.
        kind: what is compared: "rouge1" words, "rouge2" pairs of words, "rougeL" the longest common
            subsequence, "rougeLsum" the same for summaries with one sentence a line.
        stem: whether words are equal if their stems are: "run" and "runs" (Porter's stemmer).
    """
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer([kind], use_stemmer=stem)

    def f_measure(prediction: str, answer: str) -> float:
        return float(scorer.score(answer, prediction)[kind].fmeasure)

    return _mean_of_best(predictions, truth, f_measure)


def per_class(
    predictions: Sequence[Any], truth: Sequence[Any], names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and number of rows of each class, by its name.

    Args:
        predictions: for each row its class, from 0; or a list, if a row may have several.
        truth: the right classes, in the same form.
        names: the names of the classes.

    Raises:
        CourseError: a class has no name.
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
    """Mean reciprocal rank, a score of a search engine.

    For a query it is 1 / rank of the first relevant document, so 1/3 if it comes third.

    Args:
        rankings: for each query the documents that were found, best first.
        truth: for each query the relevant documents.
        k: only the first k documents count; without a relevant one among them the query counts 0.
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
    """Normalised discounted cumulative gain, a score of a search engine.

    (Järvelin and Kekäläinen 2002.) A relevant document at a rank gains 1 / log2(rank + 1): 1 at the
    first rank, 0.63 at the second. The sum is divided by the largest possible sum.

    Args:
        rankings: for each query the documents that were found, best first.
        truth: for each query the relevant documents.
        k: only the first k documents count.
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
# The metrics that fit each kind of prediction.
OF_CLASSES = ("accuracy", "f1", "macro_f1", "matthews")
OF_SCORES = ("pearson", "spearman")
OF_TEXTS = ("exact_match", "token_f1", "bleu", "rouge1", "rouge2", "rougeL")
# These need the rows of tags or labels. For all others the tags of all sentences are one long list.
OF_SEQUENCES = {"entity_f1", "micro_f1"}


def _same_length(predictions: Sequence[Any], truth: Sequence[Any]) -> None:
    if len(predictions) != len(truth):
        raise CourseError(f"There are {len(predictions)} predictions for {len(truth)} true labels.")
    if len(truth) == 0:
        raise CourseError("There is nothing to score: no predictions were given.")


def _seqeval_tags(tags: Sequence[str]) -> list[str]:
    """The tags with the letters that seqeval knows: S for U, and E for L."""
    names = {"U": "S", "L": "E"}
    return [names.get(tag[0], tag[0]) + tag[1:] for tag in tags]


def _continues(before: str, tag: str) -> bool:
    """Whether a tag may continue the entity of the tag before it: both have the same type."""
    return before[0] in "BI" and before[1:] == tag[1:]


def _breaks_iob2(before: str, tag: str) -> bool:
    """Whether a tag continues an entity that has no beginning."""
    return tag[0] == "I" and not _continues(before, tag)


def _breaks_bilou(before: str, tag: str) -> bool:
    """Whether an entity stops without its last tag (L), or continues without its first (B)."""
    is_inside = tag[0] in "IEL"
    return is_inside != (before[0] in "BI") or (is_inside and not _continues(before, tag))


def _answers(predictions: Sequence[str], truth: Answers) -> list[Sequence[str]]:
    """A list of all right answers for each row."""
    _same_length(predictions, truth)
    return [[answers] if isinstance(answers, str) else answers for answers in truth]


def _mean_of_best(
    predictions: Sequence[str], truth: Answers, score: Callable[[str, str], float]
) -> float:
    """The mean over the rows of the best score that one of a row's right answers gives."""
    best = []
    for prediction, answers in zip(predictions, _answers(predictions, truth), strict=True):
        best.append(max(score(prediction, answer) for answer in answers))
    return sum(best) / len(best)


def _plain(answer: str) -> list[str]:
    """The words of an answer, in lower case, without punctuation and articles."""
    letters = "".join(c for c in answer.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", letters).split()
