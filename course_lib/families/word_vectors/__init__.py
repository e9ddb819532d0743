"""Static word vectors: word2vec (Mikolov et al. 2013a, 2013b) and GloVe (Pennington et al. 2014).

Differs from the 2017 Transformer by: no layers and no context; a word has one vector, whatever it
means here.

    vectors.py     one vector a word, and the public text files of them
    text.py        a text as numbers, which both methods learn from
    word2vec.py    skip-gram and CBOW with negative sampling
    glove.py       GloVe

Known departure of both: a step takes many centres or pairs in random order, and computes all their
gradients before it updates. The defaults are the classroom's.
"""

from course_lib.families.word_vectors.glove import GloVe, GloVeConfig, cooccurrences
from course_lib.families.word_vectors.text import CountedText, Progress, count
from course_lib.families.word_vectors.vectors import WordVectors, load_text
from course_lib.families.word_vectors.word2vec import Word2Vec, Word2VecConfig, stays

__all__ = [
    "CountedText",
    "GloVe",
    "GloVeConfig",
    "Progress",
    "Word2Vec",
    "Word2VecConfig",
    "WordVectors",
    "cooccurrences",
    "count",
    "load_text",
    "stays",
]
