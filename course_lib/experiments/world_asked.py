"""The world's tasks without fine-tuning: a pretrained encoder is asked by its own head, a linear model learns to judge.

Each text is a statement about the other one. Every word of it is hidden in turn (`prompting.hiding`), and eight numbers
say how well the words fit what the other text says: few enough for a linear model and 100 labels. That is few-shot
learning by the objective of pretraining, as in Schick and Schuetze (2021, NAACL), without a prompt. People and things
whose names are in pieces, as those of the test split are, get names that are not.
"""

import numpy as np
from torch import nn

from course_lib.experiments.world_views import Rows, View, apart, judge, world
from course_lib.prompting.hiding import stand_ins, summary, whole_words, word_scores
from course_lib.tokenizers import Tokenizer

KINDS = ("single", "pair", "choice")  # of the tasks that can be asked so
HOW = "stand-ins"  # part of a cell's name: asking in another way is another cell


def score(view: View, train: Rows, test: Rows, told: np.ndarray, asked: np.ndarray) -> float:
    """The test score of a linear model. told, asked: `features` of the training and of the test rows."""
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    linear = RidgeCV() if view.metric == "pearson" else LogisticRegression(max_iter=500)
    return judge(view, make_pipeline(StandardScaler(), linear), train, test, told, asked)


def features(rows: Rows, model: nn.Module, tokenizer: Tokenizer) -> np.ndarray:
    """Of each text, or of each pair (a choice with its text is one), eight numbers: the words of the shorter side are
    hidden, read behind the longer one. Which side that is, is the task's, not the row's."""
    said, contexts = ([row.get(side, "") for row in apart(rows)] for side in ("text", "pair"))
    if 0 < sum(map(len, contexts)) <= sum(map(len, said)):
        contexts, said = said, contexts
    people, objects = (whole_words(tokenizer, world().names(kind)) for kind in ("people", "objects"))
    known = (stand_ins(tokenizer, both, people, objects) for both in zip(contexts, said, strict=True))
    contexts, said = map(list, zip(*known, strict=True))
    return np.stack([summary(scores).numpy() for scores in word_scores(model, tokenizer, contexts, said)])
