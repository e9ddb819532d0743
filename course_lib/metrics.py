"""Scores, thin over scikit-learn, scipy, seqeval, sacrebleu and rouge-score. All take predictions first, then the
truth, as equal-long lists. Shares lie between 0 and 1, correlations between -1 and 1; BLEU and chrF go up to 100."""

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from course_lib.errors import CourseError

Metric = Callable[[Sequence[Any], Sequence[Any]], float]


def accuracy(predictions: Sequence[Any], truth: Sequence[Any]) -> float:
    """Share of equal pairs."""
    _same_length(predictions, truth)
    return sum(bool(p == t) for p, t in zip(predictions, truth, strict=True)) / len(truth)


def f1(predictions: Sequence[Any], truth: Sequence[Any], *, positive: Any = 1, macro: bool = False) -> float:
    """F1 of the class `positive`; or the unweighted mean over the classes that the truth or the predictions
    hold. 0 where nothing is called positive.

    Raises:
        CourseError: nothing is or is called `positive`, and the classes are not the numbers 0 and 1.
    """
    from sklearn.metrics import f1_score

    _same_length(predictions, truth)
    there = {*truth, *predictions}
    if not macro and positive not in there and not there <= {0, 1}:
        names = ", ".join(sorted(map(repr, there)))
        raise CourseError(
            f"No row is or is called {positive!r}; name the class to score, one of {names}, by positive=."
        )
    if macro:
        return float(f1_score(truth, predictions, average="macro", zero_division=0.0))
    hits = [p == positive for p in predictions]
    return float(f1_score([t == positive for t in truth], hits, zero_division=0.0))


def matthews(predictions: Sequence[Any], truth: Sequence[Any]) -> float:
    """Matthews correlation, CoLA's score: 0 for guessing however uneven the classes are, 1 at best."""
    from sklearn.metrics import matthews_corrcoef

    _same_length(predictions, truth)
    return float(matthews_corrcoef(truth, predictions))


def pearson(predictions: Sequence[float], truth: Sequence[float]) -> float:
    """Linear correlation; 0 where one side is constant."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, predictions, truth)


def spearman(predictions: Sequence[float], truth: Sequence[float]) -> float:
    """Rank correlation; 0 where one side is constant."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, predictions, truth)


def entity_f1(predictions: Sequence[Sequence[str]], truth: Sequence[Sequence[str]]) -> float:
    """F1 over whole entities, CoNLL's score (seqeval in its default mode, which counts as conlleval does): the borders
    and the type must both be right. Tags are O, B-X and I-X (E-X and S-X where a data set marks ends and single words);
    an I-X that continues nothing begins an entity."""
    from seqeval.metrics import f1_score

    _same_length(predictions, truth)
    for number, (p, t) in enumerate(zip(predictions, truth, strict=True)):
        if len(p) != len(t):
            raise CourseError(f"Sentence {number} has {len(p)} predicted tags and {len(t)} true ones.")
        if strange := [tag for tag in (*p, *t) if tag != "O" and (tag[:1] not in set("BIES") or tag[1:2] != "-")]:
            raise CourseError(f"Sentence {number} has the tag {strange[0]!r}; tags are O, B-PER, I-PER and the like.")
    return float(f1_score([list(t) for t in truth], [list(p) for p in predictions], zero_division=0))


def exact_match(predictions: Sequence[str], truth: Sequence[str | Sequence[str]]) -> float:
    """Share of right answers (Rajpurkar et al. 2016, section 6): case, ASCII punctuation, articles and white space do
    not count; where several answers are true, the best counts."""
    _same_length(predictions, truth)
    pairs = zip(predictions, map(_answers, truth), strict=True)
    return sum(max(float(_plain(p) == _plain(t)) for t in answers) for p, answers in pairs) / len(truth)


def token_f1(predictions: Sequence[str], truth: Sequence[str | Sequence[str]]) -> float:
    """Mean overlap of words between answers, SQuAD's F1, by the same rules as `exact_match`."""
    _same_length(predictions, truth)
    pairs = zip(predictions, map(_answers, truth), strict=True)
    return sum(max(_overlap(p, t) for t in answers) for p, answers in pairs) / len(truth)


def bleu(predictions: Sequence[str], truth: Sequence[str | Sequence[str]]) -> float:
    """BLEU of the whole corpus, 0 to 100 (Papineni et al. 2002), by sacrebleu with its default settings.

    Those are: words as mteval-v13a cuts them, case kept, up to 4-grams, a count of zero smoothed exponentially
    ("case:mixed|eff:no|tok:13a|smooth:exp"). Several references of a text count as in the paper.
    """
    from sacrebleu.metrics.bleu import BLEU

    return float(BLEU().corpus_score(list(predictions), _streams(predictions, truth)).score)


def chrf(predictions: Sequence[str], truth: Sequence[str | Sequence[str]]) -> float:
    """chrF2 of the whole corpus, 0 to 100 (Popović 2015), by sacrebleu: F-score, recall twice as heavy, over 1- to
    6-grams of characters without white space, no words ("case:mixed|eff:yes|nc:6|nw:0|space:no")."""
    from sacrebleu.metrics.chrf import CHRF

    return float(CHRF().corpus_score(list(predictions), _streams(predictions, truth)).score)


def rouge(predictions: Sequence[str], truth: Sequence[str | Sequence[str]], *, kind: str = "rougeL") -> float:
    """Mean ROUGE F-measure, 0 to 1 (Lin 2004), by rouge-score: lower case, letters and digits only, Porter's stems; of
    several references the best counts.

    Args:
        kind: "rouge1", "rouge2" (n-grams), "rougeL" (longest common subsequence of the whole text) or "rougeLsum" (its
            union over sentences, one a line, as summaries of several sentences are scored).
    """
    from rouge_score.rouge_scorer import RougeScorer

    _same_length(predictions, truth)
    if not re.fullmatch(r"rouge([1-9]|L|Lsum)", kind):
        raise CourseError(f"There is no ROUGE {kind!r}; there are rouge1 to rouge9, rougeL and rougeLsum.")
    scorer = RougeScorer([kind], use_stemmer=True)
    pairs = zip(predictions, map(_answers, truth), strict=True)
    return sum(float(scorer.score_multi(answers, said)[kind].fmeasure) for said, answers in pairs) / len(truth)


def perplexity(loss: float) -> float:
    """exp of the mean loss a token, in nats. Comparable only between models with the same tokens."""
    if math.isnan(loss):
        raise CourseError("The loss is not a number (NaN), so it has no perplexity; look at the training run.")
    return math.exp(loss) if loss < 700 else math.inf


def bits_per_byte(loss: float, tokens: int, text_bytes: int) -> float:
    """Total loss in bits over the text's UTF-8 bytes: comparable between any two tokenizers.

    Args:
        loss: mean a token, in nats. tokens: number of predicted tokens. text_bytes: bytes of the text they
            spell.
    """
    if text_bytes < 1 or tokens < 0:
        raise CourseError(f"bits_per_byte needs a text: got {tokens} tokens and {text_bytes} bytes.")
    return loss * tokens / math.log(2) / text_bytes


def per_class(predictions: Sequence[Any], truth: Sequence[Any], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and count of each class. Classes are numbers from 0; `names` says what they are
    called."""
    from sklearn.metrics import precision_recall_fscore_support

    _same_length(predictions, truth)
    _known(predictions, truth, names)
    columns = precision_recall_fscore_support(truth, predictions, labels=list(range(len(names))), zero_division=0.0)
    keys = ("precision", "recall", "f1", "count")
    return {
        name: {key: float(column[i]) for key, column in zip(keys, columns, strict=True)} for i, name in enumerate(names)
    }


def confusion(predictions: Sequence[int], truth: Sequence[int], names: Sequence[str]) -> list[list[int]]:
    """How often each true class (row) was called each class (column). Classes are numbers from 0."""
    from sklearn.metrics import confusion_matrix

    _same_length(predictions, truth)
    _known(predictions, truth, names)
    table: list[list[int]] = confusion_matrix(truth, predictions, labels=list(range(len(names)))).tolist()
    return table


def mrr(rankings: Sequence[Sequence[Any]], truth: Sequence[Collection[Any]], *, k: int = 10) -> float:
    """Mean reciprocal rank: 1 / the rank of the first relevant document, 0 where none is among the first k.

    Args:
        rankings: what was found for each query, best first. truth: the relevant documents of each query.
    """
    return _mean_over_queries(rankings, truth, k, lambda hits, _: next((1 / r for r, h in enumerate(hits, 1) if h), 0))


def recall(rankings: Sequence[Sequence[Any]], truth: Sequence[Collection[Any]], *, k: int = 10) -> float:
    """Share of a query's relevant documents among the first k, averaged over the queries."""
    return _mean_over_queries(rankings, truth, k, lambda hits, relevant: sum(map(bool, hits)) / len(relevant))


def mean_average_precision(
    rankings: Sequence[Sequence[Any]], truth: Sequence[Collection[Any]], *, k: int | None = None
) -> float:
    """MAP: the precision at the rank of each relevant document (0 if not found), averaged over them, then the
    queries."""

    def average_precision(hits: list[float], relevant: dict[Any, float]) -> float:
        places = [rank for rank, hit in enumerate(hits, 1) if hit]
        return sum(found / rank for found, rank in enumerate(places, 1)) / len(relevant)

    return _mean_over_queries(rankings, truth, k, average_precision)


def ndcg(
    rankings: Sequence[Sequence[Any]],
    truth: Sequence[Collection[Any] | Mapping[Any, float]],
    *,
    k: int | None = 10,
) -> float:
    """nDCG (Järvelin and Kekäläinen 2002): the gains of the first k, divided by log2(rank + 1), over the best possible
    sum.

    Args:
        rankings, truth: as for `mrr`; a mapping in `truth` gives each relevant document's gain, a collection gives
            each the gain 1. The gain is taken as it is, not as 2^gain - 1.
    """

    def gained(gains: Iterable[float]) -> float:
        return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))

    return _mean_over_queries(
        rankings, truth, k, lambda hits, relevant: gained(hits) / gained(sorted(relevant.values(), reverse=True)[:k])
    )


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "entity_f1": entity_f1,
    "exact_match": exact_match,
    "token_f1": token_f1,
    "bleu": bleu,
    "chrf": chrf,
    "rouge1": partial(rouge, kind="rouge1"),
    "rouge2": partial(rouge, kind="rouge2"),
    "rougeL": rouge,
}


def _correlation(how: Callable[..., Any], predictions: Sequence[float], truth: Sequence[float]) -> float:
    _same_length(predictions, truth)
    if len(truth) < 2:
        raise CourseError("A correlation needs at least two pairs.")
    if not all(map(math.isfinite, (*predictions, *truth))):
        raise CourseError("A correlation needs finite numbers; one of these scores is infinite or no number (NaN).")
    if len(set(predictions)) == 1 or len(set(truth)) == 1:
        return 0.0
    return float(how(predictions, truth)[0])


def _mean_over_queries(
    rankings: Sequence[Sequence[Any]],
    truth: Sequence[Collection[Any] | Mapping[Any, float]],
    k: int | None,
    score: Callable[[list[float], dict[Any, float]], float],
) -> float:
    """Mean of `score(gains of the first k, gain of each relevant document)`; no document may be ranked twice."""
    _same_length(rankings, truth)
    if k is not None and k < 1:
        raise CourseError(f"k is {k}; at least the first document must count.")
    total = 0.0
    for number, (ranking, relevant) in enumerate(zip(rankings, truth, strict=True)):
        gains = dict(relevant) if isinstance(relevant, Mapping) else dict.fromkeys(relevant, 1.0)
        if any(gain < 0 for gain in gains.values()):
            raise CourseError(f"Query {number} has a negative gain; the least is 0, for what is not relevant.")
        gains = {document: gain for document, gain in gains.items() if gain}
        if not gains:
            raise CourseError(f"Query {number} has no relevant document; leave it out, nothing could be found.")
        if len(set(ranking)) != len(ranking):
            raise CourseError(f"The ranking of query {number} holds a document twice.")
        total += score([gains.get(document, 0.0) for document in ranking[:k]], gains)
    return total / len(truth)


def _same_length(predictions: Sequence[Any], truth: Sequence[Any]) -> None:
    if len(predictions) != len(truth):
        raise CourseError(f"There are {len(predictions)} predictions for {len(truth)} true labels.")
    if len(truth) == 0:
        raise CourseError("There is nothing to score: no predictions were given.")


def _known(predictions: Sequence[int], truth: Sequence[int], names: Sequence[str]) -> None:
    """Classes outside `names` would silently be left out of a table."""
    if strange := {*predictions, *truth} - set(range(len(names))):
        raise CourseError(f"The class {min(strange)!r} has no name; {len(names)} names are given, for 0 and so on.")


def _streams(predictions: Sequence[str], truth: Sequence[str | Sequence[str]]) -> list[list[Any]]:
    """sacrebleu's form of references: the first of every text, the second of every text, ... (None: it has none)."""
    _same_length(predictions, truth)
    rows = [_answers(answers) for answers in truth]
    return [[row[i] if i < len(row) else None for row in rows] for i in range(max(map(len, rows)))]


def _answers(truth: str | Sequence[str]) -> Sequence[str]:
    answers = [truth] if isinstance(truth, str) else truth
    if not answers:
        raise CourseError("A question has no true answer; give it an empty string if it cannot be answered.")
    return answers


def _plain(answer: str) -> str:
    """What is left to compare of an answer, in the order of SQuAD's own scoring: lower case, no punctuation, no
    articles, single spaces."""
    kept = "".join(c for c in answer.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def _overlap(prediction: str, truth: str) -> float:
    p, t = _plain(prediction).split(), _plain(truth).split()
    if not p or not t:
        return float(p == t)
    common = sum((Counter(p) & Counter(t)).values())
    return 2 * common / (len(p) + len(t))
