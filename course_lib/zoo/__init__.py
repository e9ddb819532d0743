"""Models that exist already.

from course_lib import zoo

zoo.load("bert-mini")                       a shipped checkpoint (shipped.py)
zoo.load_pretrained("path/to/folder")       a public folder, or a name of the hub (folders.py)
zoo.open_model("...")                       either, with its tokenizer
"""

from course_lib.zoo import folders, shipped
from course_lib.zoo.folders import (
    load_pretrained,
    load_sentence,
    load_strictly,
    read_weights,
    save_pretrained,
    whole_architecture,
)
from course_lib.zoo.shipped import (
    FILES,
    FOLDER,
    WORDS,
    Loaded,
    card,
    entry,
    export,
    facts,
    load,
    names,
    open_model,
)

__all__ = [
    "FILES",
    "FOLDER",
    "WORDS",
    "Loaded",
    "card",
    "entry",
    "export",
    "facts",
    "folders",
    "load",
    "load_pretrained",
    "load_sentence",
    "load_strictly",
    "names",
    "open_model",
    "read_weights",
    "save_pretrained",
    "shipped",
    "whole_architecture",
]
