"""The world's tasks without fine-tuning: a pretrained encoder is asked by its own head, a linear model learns to judge.

Each text is a statement about the other one. Every word of it is hidden in turn (`prompting.hiding`), and eight numbers
say how well the words fit what the other text says: few enough for a linear model and 100 labels. That is few-shot
learning by the objective of pretraining, as in Schick and Schuetze (2021, NAACL), without a prompt.
"""

import numpy as np
from torch import nn

from course_lib.experiments import world_views
from course_lib.experiments.world_views import Rows, View
from course_lib.prompting.hiding import summary, word_scores
from course_lib.tokenizers import Tokenizer

KINDS = ("single", "pair", "choice")  # of the tasks that can be asked so


def score(view: View, train: Rows, test: Rows, told: np.ndarray, asked: np.ndarray) -> float:
    """The test score of a linear model. told, asked: `features` of the training and of the test rows."""
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    linear = RidgeCV() if view.metric == "pearson" else LogisticRegression(max_iter=500)
    judge = make_pipeline(StandardScaler(), linear)
    if view.kind != "choice":
        judge.fit(told, [row["label"] for row in train])
        return world_views.score(view, list(judge.predict(asked)), test)
    judge.fit(told, [i == row["label"] for row in train for i in range(len(row["choices"]))])
    chances = judge.predict_proba(asked)[:, 1].reshape(len(test), -1)
    return world_views.score(view, list(chances.argmax(1)), test)


def features(view: View, rows: Rows, model: nn.Module, tokenizer: Tokenizer) -> np.ndarray:
    """Eight numbers of each text, or of each pair (a choice with its text is one): the words of the shorter side are
    hidden, read behind the longer one. Which side that is, is the task's, not the row's."""
    if view.kind == "single":
        pairs = [("", row["text"]) for row in rows]
    else:
        pairs = [(row["text"], other) for row in rows for other in row.get("choices", [row.get("pair")])]
    contexts, said = zip(*pairs, strict=True)
    if view.kind != "single" and sum(map(len, said)) > sum(map(len, contexts)):
        contexts, said = said, contexts
    return np.stack([summary(scores).numpy() for scores in word_scores(model, tokenizer, contexts, said)])
