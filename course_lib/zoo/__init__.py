"""Load pretrained models.

The ways to load one:

    zoo.load("bert-mini")                       a shipped checkpoint (shipped.py)
    zoo.load_pretrained("path/to/folder")       a public folder, or a name of the hub (folders.py)
    zoo.open_model("...")                       either of these, with its tokenizer
    zoo.load_sentence("path/to/folder")         an encoder of texts (sentence_folders.py)
    zoo.public("minilm")                        a public model by its short name (public_model.py)
    zoo.require("...", "masked words")          a model with an ability (abilities.py)

Its other files:

    kinds.py                the classes of models that a shipped checkpoint may hold
    fetching.py             fetches a public model once
    weights.py              tensors of safetensors files, and how they get into a model
    public_weights.py       from the weights of a public folder to those that a model needs
    generation_config.py    the settings of a folder that our `generate` lacks
"""

from course_lib.zoo import shipped
from course_lib.zoo.abilities import ABILITIES, require
from course_lib.zoo.fetching import fetch
from course_lib.zoo.folders import load_pretrained, save_pretrained, whole_architecture
from course_lib.zoo.public_model import Public, available, public
from course_lib.zoo.sentence_folders import load_sentence
from course_lib.zoo.shipped import (
    FILES,
    FOLDER,
    WORDS,
    Loaded,
    card,
    export,
    facts,
    load,
    manifest_entry,
    names,
    open_model,
)
from course_lib.zoo.weights import load_strictly, read_weights

__all__ = [
    "ABILITIES",
    "FILES",
    "FOLDER",
    "WORDS",
    "Loaded",
    "Public",
    "available",
    "card",
    "export",
    "facts",
    "fetch",
    "load",
    "load_pretrained",
    "load_sentence",
    "load_strictly",
    "manifest_entry",
    "names",
    "open_model",
    "public",
    "read_weights",
    "require",
    "save_pretrained",
    "shipped",
    "whole_architecture",
]
