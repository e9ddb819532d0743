"""Static word vectors: word2vec (Mikolov et al. 2013a, 2013b) and GloVe (Pennington et al. 2014).

Differs from the 2017 Transformer by: no layers and no context. A word has the same vector in every
sentence.

    vectors.py     the learned word vectors, and the public text files of them
    text.py        a text as word ids, which both methods learn from
    word2vec.py    skip-gram and CBOW with negative sampling
    glove.py       GloVe
    progress.py    what both methods report after each epoch

Known departure of both: a step takes a batch of centres or pairs in random order, and computes all
gradients before it updates. The default settings suit the course's small corpora.
"""

from course_lib.families.word_vectors.glove import GloVe, GloVeConfig, cooccurrences
from course_lib.families.word_vectors.progress import Progress
from course_lib.families.word_vectors.text import EncodedText, encode_text
from course_lib.families.word_vectors.vectors import WordVectors, load_text
from course_lib.families.word_vectors.word2vec import Word2Vec, Word2VecConfig, keep_probability

__all__ = [
    "EncodedText",
    "GloVe",
    "GloVeConfig",
    "Progress",
    "Word2Vec",
    "Word2VecConfig",
    "WordVectors",
    "cooccurrences",
    "encode_text",
    "keep_probability",
    "load_text",
]
