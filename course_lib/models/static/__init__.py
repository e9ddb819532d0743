"""Static word vectors: word2vec (Mikolov et al. 2013a, 2013b) and GloVe (Pennington et al. 2014).

Differs from the 2017 Transformer by: no layers and no context; a word has one vector, whatever it means here.

    text = static.count(static.sentences(world.document(i)["text"] for i in range(8_000)))
    model = static.Word2Vec(text, static.Word2VecConfig("skip-gram"))   # or "cbow"
    for progress in model.train(): print(progress.epoch, progress.loss)
    vectors = model.vectors()
    vectors.nearest("bank"); vectors.analogy("man", "king", "woman")
    Words(tokenizer, static=vectors.table(tokenizer.tokens(range(tokenizer.vocab.size))))   # models/baselines.py

The defaults are the classroom's: 2 to 4 MB of the world's text in seconds on one core. `text.py` counts words,
`word2vec.py` and `glove.py` learn, `vectors.py` asks, `files.py` reads and writes, `scores.py` measures.
"""

from course_lib.models.static.files import load, load_text, save, save_text
from course_lib.models.static.glove import GloVe, GloVeConfig, cooccurrences
from course_lib.models.static.scores import Analogies, Question, analogies, questions, similarity
from course_lib.models.static.text import CountedText, count, sentences
from course_lib.models.static.vectors import WordVectors
from course_lib.models.static.word2vec import Progress, Word2Vec, Word2VecConfig

__all__ = [
    "Analogies",
    "CountedText",
    "GloVe",
    "GloVeConfig",
    "Progress",
    "Question",
    "Word2Vec",
    "Word2VecConfig",
    "WordVectors",
    "analogies",
    "cooccurrences",
    "count",
    "load",
    "load_text",
    "questions",
    "save",
    "save_text",
    "sentences",
    "similarity",
]
