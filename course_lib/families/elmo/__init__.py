"""ELMo (Peters et al. 2018): word vectors in context from a bidirectional language model.

Differs from the 2017 Transformer by: no attention; words are read by their characters through a
CNN; two LSTM language models, one from each side, that share that input and the softmax; a task
mixes all layers instead of taking the last.

    layers = model.elmo(**elmo.characters([["The", "bank", "closed"]], model.elmo.config.length))

    text.py             words as characters, and the words of the softmax
    network.py          the CNN, the two LSTMs, a task's mean of the layers
    language_model.py   what it is pretrained as: the softmax and the loss
    published.py        the files that its authors published
"""

from course_lib.families.elmo.language_model import BiLM, hidden_word, loss, model
from course_lib.families.elmo.network import (
    CharacterCNN,
    Elmo,
    ElmoConfig,
    Highway,
    ScalarMix,
    elmo_mini,
    elmo_original,
)
from course_lib.families.elmo.published import load_published, read_options, weight_table
from course_lib.families.elmo.text import BOS, EOS, UNK, Vocabulary, characters, spelling

__all__ = [
    "BOS",
    "EOS",
    "UNK",
    "BiLM",
    "CharacterCNN",
    "Elmo",
    "ElmoConfig",
    "Highway",
    "ScalarMix",
    "Vocabulary",
    "characters",
    "elmo_mini",
    "elmo_original",
    "hidden_word",
    "load_published",
    "loss",
    "model",
    "read_options",
    "spelling",
    "weight_table",
]
