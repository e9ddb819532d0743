"""A public model by its short name, ready to use.

    bert = zoo.public("minilm")
    model, tokenizer, card = bert.load()
    encoder = bert.sentence_encoder()

`python -m course_lib fetch minilm` downloads it once (fetching.py). course_lib/public_models.py
lists the models and their files.
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
    """A public model that was downloaded.

    Attributes:
        name: its short name.
        folder: its files, in the Hugging Face layout.
    """

    name: str
    folder: Path

    def load(self) -> Loaded:
        """The model, its tokenizer and a card with its name, as from `open_model`."""
        return open_model(self.folder)

    def sentence_encoder(self) -> SentenceEncoder:
        """The model as an encoder, which turns texts into the vectors of sentence-transformers."""
        return load_sentence(self.folder)


def public(name: str) -> Public:
    """A downloaded public model by its short name, such as "minilm".

    Raises:
        CourseError: it was not downloaded, or a file of it is not the published one. The message
            says how to download it.
    """
    return Public(name, public_models.folder(name))


def available(name: str, *, instead: str) -> str:
    """The name of a model that a lesson can open: `name`, or `instead` if `name` is not here.

    A lesson's first cell has MODEL = zoo.available("minilm", instead="bert-english"). If the public
    model is missing, a `CourseWarning` says that the lesson's numbers will differ. Any other name
    is returned as it is.

    Args:
        name: a public model's short name; or a shipped checkpoint, a folder or a name of the hub.
        instead: a shipped checkpoint.
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
