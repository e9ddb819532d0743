"""ELMo (Peters et al. 2018): word vectors in context from a bidirectional language model.

Differs from the 2017 Transformer by: no attention; words are read by their characters through a CNN; two LSTM language
models, one from each side, that share that input and the softmax; a task mixes all layers instead of taking the last.

    words = elmo.Vocabulary.count(world.document(i)["tokens"] for i in range(20_000))
    model = elmo.model(elmo.elmo_mini(len(words)))
    batches = elmo.Batches(lambda i: world.document(i)["tokens"], words, model.elmo.config)
    for step in train(model, batches, elmo.loss, steps=1000): ...
    layers = model.elmo(**elmo.characters([["The", "bank", "closed"]], model.elmo.config.length))

`config.py` says what a model is, `words.py` spells words, `model.py` is the network, `pretrain.py` trains it,
`files.py` reads and writes the published weights. A task's model on top: `models/baselines.py`.
"""

from course_lib.models.elmo.config import ElmoConfig, elmo_mini, elmo_original, from_dict
from course_lib.models.elmo.files import load, save
from course_lib.models.elmo.model import BiLM, CharacterCNN, Elmo, Highway, ScalarMix, State
from course_lib.models.elmo.pretrain import Batches, hidden_word, language_model_batch, loss, model
from course_lib.models.elmo.words import Vocabulary, characters, split

__all__ = [
    "Batches",
    "BiLM",
    "CharacterCNN",
    "Elmo",
    "ElmoConfig",
    "Highway",
    "ScalarMix",
    "State",
    "Vocabulary",
    "characters",
    "elmo_mini",
    "elmo_original",
    "from_dict",
    "hidden_word",
    "language_model_batch",
    "load",
    "loss",
    "model",
    "save",
    "split",
]
