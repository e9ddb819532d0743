"""ELMo (Peters et al. 2018): word vectors in context from a bidirectional language model.

Differs from the 2017 Transformer in three ways. A CNN makes a word's vector from its characters.
Two LSTM language models, one in each direction, take the place of attention; they share the CNN and
the softmax. A task uses a weighted mean of all layers instead of the last one.

    layers = model.elmo(**elmo.characters([["The", "bank", "closed"]], model.elmo.config.length))

    text.py             words as character ids, and the vocabulary of the softmax
    network.py          the CNN, the two LSTMs, a task's weighted mean of the layers
    language_model.py   pretraining: the softmax and the loss
    published.py        loads the files that the authors published
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
