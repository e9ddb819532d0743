"""A public model by its short name, ready to use.

    bert = zoo.public("minilm")
    model, tokenizer, card = bert.load()
    encoder = bert.sentence_encoder()

`course_lib/public_models.py` says which there are and how their files come to this machine.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

from course_lib import public_models
from course_lib.data.embedders import SentenceEncoder
from course_lib.errors import CourseWarning
from course_lib.zoo.sentence_folders import load_sentence
from course_lib.zoo.shipped import Loaded, open_model


@dataclass(frozen=True)
class Public:
    """A public model on this machine."""

    name: str
    folder: Path  # in the Hugging Face layout

    def load(self) -> Loaded:
        """The model and its tokenizer, as `open_model` gives them."""
        return open_model(self.folder)

    def sentence_encoder(self) -> SentenceEncoder:
        """The model as an encoder of texts, with the vectors of sentence-transformers."""
        return load_sentence(self.folder)


def public(name: str) -> Public:
    """A public model on this machine by its short name, such as "minilm".

    Raises:
        CourseError: if it is not on this machine, or a file of it is not the published one. The
            message says how to fetch it.
    """
    return Public(name, public_models.folder(name))


def available(name: str, *, instead: str) -> str:
    """The name of a model that a lesson can open: `name`, or `instead` if it was never fetched.

    A lesson's first cell calls this. Only a public model that was never fetched is replaced, and a
    `CourseWarning` says so. Any other name comes back as it is.

    Args:
        name: a public model's short name, a shipped checkpoint, a folder, a name of the hub.
        instead: a shipped checkpoint.

    Raises:
        CourseError: if a file of the public model is not the published one.
    """
    if name not in public_models.MODELS:
        return name
    if not public_models.is_here(name):
        warnings.warn(
            f"{public_models.MODELS[name].title} is not on this machine, so this lesson runs with"
            f" {instead}. Its numbers and pictures are other ones than the text describes. To fetch"
            f" it once: python -m course_lib fetch {name}",
            CourseWarning,
            stacklevel=2,
        )
        return instead
    return name
