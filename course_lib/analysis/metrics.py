"""Scores, thin over scikit-learn, scipy, seqeval, sacrebleu and rouge-score. All take predictions
first, then the truth, as equal-long lists. Shares lie between 0 and 1, correlations between -1 and
1; BLEU goes up to 100."""

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from course_lib.errors import CourseError

Answers = Sequence[str | Sequence[str]]  # of each row the one that is true, or all that are


def accuracy(predictions: Sequence[Any], truth: Sequence[Any]) -> float:
    """Share of equal pairs."""
    _same_length(predictions, truth)
    return sum(bool(p == t) for p, t in zip(predictions, truth, strict=True)) / len(truth)


def f1(predictions: Sequence[Any], truth: Sequence[Any], *, macro: bool = False) -> float:
    """F1 of the class 1 of 0 and 1; or the unweighted mean over the classes that the truth or the
    predictions hold. 0 where nothing is called positive."""
    from sklearn.metrics import f1_score

    _same_length(predictions, truth)
    if not macro and not {*truth, *predictions} <= {0, 1}:
        raise CourseError(
            "f1 is of the class 1 of 0 and 1; of other classes the mean is taken (macro=True)."
        )
    return float(
        f1_score(truth, predictions, average="macro" if macro else "binary", zero_division=0.0)
    )


def matthews(predictions: Sequence[Any], truth: Sequence[Any]) -> float:
    """Matthews correlation, CoLA's score: 0 for guessing however uneven the classes are, 1 at
    best.
    """
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
    """F1 over whole entities, CoNLL's score, as conlleval counts: the borders and the type must
    both be right. Tags are O, B-X and I-X (E-X, S-X: ends and single words); an I-X that continues
    nothing begins an entity."""
    from seqeval.metrics import f1_score

    _same_length(predictions, truth)
    for number, tags in enumerate(zip(predictions, truth, strict=True)):
        if strange := [tag for side in tags for tag in side if not re.match(r"O$|[BIES]-", tag)]:
            raise CourseError(
                f"Sentence {number} has the tag {strange[0]!r}; tags are O, B-PER, I-PER and the"
                " like."
            )
    return float(
        f1_score([list(t) for t in truth], [list(p) for p in predictions], zero_division=0)
    )


def exact_match(predictions: Sequence[str], truth: Answers) -> float:
    """Share of right answers (Rajpurkar et al. 2016, section 6), but for case, ASCII punctuation,
    articles and white space; where several answers are true, the best counts."""
    return _mean_of_best(predictions, truth, lambda p, t: float(_plain(p) == _plain(t)))


def token_f1(predictions: Sequence[str], truth: Answers) -> float:
    """Mean overlap of words between answers, SQuAD's F1, by the same rules as `exact_match`."""

    def overlap(prediction: str, answer: str) -> float:
        p, t = _plain(prediction), _plain(answer)
        common = sum((Counter(p) & Counter(t)).values())
        return 2 * common / (len(p) + len(t)) if p and t else float(p == t)

    return _mean_of_best(predictions, truth, overlap)


def bleu(predictions: Sequence[str], truth: Answers, *, tokenize: str = "13a") -> float:
    """BLEU of the whole corpus, 0 to 100 (Papineni et al. 2002), of one reference or several, by
    sacrebleu as it comes: "case:mixed|eff:no|tok:13a|smooth:exp", words as mteval-v13a cuts them;
    tokenize="none": texts that are cut."""
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
    """Mean ROUGE F-measure, 0 to 1 (Lin 2004), by rouge-score: lower case, with `stem` Porter's
    stems; of several references the best counts. kind: "rouge1", "rouge2", "rougeL", "rougeLsum" (L
    over sentences, one a line)."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer([kind], use_stemmer=stem)
    return _mean_of_best(
        predictions, truth, lambda said, answer: float(scorer.score(answer, said)[kind].fmeasure)
    )


def perplexity(loss: float) -> float:
    """exp of the mean loss a token, in nats. Comparable only between models with the same
    tokens.
    """
    return math.exp(loss) if loss < 700 else math.inf


def per_class(
    predictions: Sequence[int], truth: Sequence[int], names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and count of each class. Classes are numbers from 0; `names` says what
    they are called.
    """
    _same_length(predictions, truth)
    if strange := {*predictions, *truth} - set(range(len(names))):
        raise CourseError(
            f"The class {min(strange)!r} has no name; {len(names)} names are given, for 0 and"
            " so on."
        )
    said, true = Counter(predictions), Counter(truth)
    right = Counter(p for p, t in zip(predictions, truth, strict=True) if p == t)
    return {
        name: {
            "precision": right[i] / (said[i] or 1),
            "recall": right[i] / (true[i] or 1),
            "f1": 2 * right[i] / (said[i] + true[i] or 1),
            "count": float(true[i]),
        }
        for i, name in enumerate(names)
    }


def mrr(
    rankings: Sequence[Sequence[Any]], truth: Sequence[Collection[Any]], *, k: int = 10
) -> float:
    """Mean reciprocal rank: 1 / the rank of the first relevant document, 0 where none is among the
    first k. rankings: what was found for each query, best first; truth: what is relevant for it."""
    _same_length(rankings, truth)
    first = [
        next(
            (1 / rank for rank, document in enumerate(ranking[:k], 1) if document in relevant), 0.0
        )
        for ranking, relevant in zip(rankings, truth, strict=True)
    ]
    return sum(first) / len(first)


def ndcg(
    rankings: Sequence[Sequence[Any]], truth: Sequence[Collection[Any]], *, k: int = 10
) -> float:
    """nDCG (Järvelin and Kekäläinen 2002): the sum of 1 / log2(rank + 1) of the relevant documents
    among the first k, over the best possible sum."""

    def gained(ranks: Iterable[int]) -> float:
        return sum(1 / math.log2(rank + 1) for rank in ranks)

    _same_length(rankings, truth)
    total = 0.0
    for ranking, relevant in zip(rankings, truth, strict=True):
        found = gained(rank for rank, document in enumerate(ranking[:k], 1) if document in relevant)
        total += found / gained(range(1, min(k, len(relevant)) + 1))
    return total / len(truth)


METRICS: dict[str, Callable[[Sequence[Any], Sequence[Any]], float]] = {
    **{
        m.__name__: m
        for m in (accuracy, f1, matthews, pearson, spearman, entity_f1, exact_match, token_f1, bleu)
    },
    **{kind: partial(rouge, kind=kind) for kind in ("rouge1", "rouge2", "rougeL")},
    "macro_f1": partial(f1, macro=True),
}


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
    rows = zip(predictions, _answers(predictions, truth), strict=True)
    return sum(max(score(said, answer) for answer in answers) for said, answers in rows) / len(
        truth
    )


def _plain(answer: str) -> list[str]:
    """The words of an answer that are compared: lower case, no punctuation, no articles, in SQuAD's
    order.
    """
    kept = "".join(c for c in answer.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()
