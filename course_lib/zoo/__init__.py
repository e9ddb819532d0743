"""Load pretrained models.

The ways to load one:

    zoo.load("bert-mini")                       a shipped checkpoint (shipped.py)
    zoo.load_pretrained("path/to/folder")       a public folder, or a name of the hub (folders.py)
    zoo.open_model("...")                       either of these, with its tokenizer
    zoo.load_sentence("path/to/folder")         a sentence encoder: a vector for each text
                                                (sentence_folders.py)
    zoo.public("minilm")                        a public model by its short name (public_model.py)
    zoo.require("...", "masked words")          any model, if it can do what a lesson needs
                                                (abilities.py)

"Public" means: published by others, in the layout of Hugging Face. Shipped checkpoints come with
the course and have a layout of their own. The other files:

    kinds.py                how each class of model is stored in a shipped checkpoint
    fetching.py             downloads a public model with a short name
    weights.py              reads safetensors files, and loads them into a model
    public_weights.py       chooses the weights of a public folder that a model needs
    generation_config.py    warns of settings that our `generate` does not follow
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
