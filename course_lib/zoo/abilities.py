"""Check in a lesson's first cell that the chosen model can do what the lesson needs.

    MODEL = "gpt-english"
    model, tokenizer, card = zoo.require(MODEL, "masked words")

raises a CourseError: This lesson needs a model that fills in masked words (masked words);
gpt-english is a LM and does not. Set MODEL = "bert-english", or take another one that does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib import hub
from course_lib.data.embedders import SentenceEncoder
from course_lib.errors import CourseError
from course_lib.families.elmo import BiLM
from course_lib.families.sentence import Sentence
from course_lib.families.word_vectors import WordVectors
from course_lib.model import heads
from course_lib.model.seq2seq import EncoderDecoder, Seq2SeqLM
from course_lib.model.transformer import Transformer
from course_lib.zoo import shipped
from course_lib.zoo.sentence_folders import load_sentence
from course_lib.zoo.shipped import Loaded, open_model


@dataclass(frozen=True)
class Ability:
    """Something that some models can do.

    Attributes:
        has: (model) -> whether it can.
        means: a verb phrase for error messages, such as "fills in masked words".
        example: a shipped model that can.
    """

    has: Callable[[Any], bool]
    means: str
    example: str


def _is_encoder(model: Any) -> bool:
    stack = getattr(model, "stack", None)
    return isinstance(stack, Transformer) and not stack.config.causal


def _is_decoder(model: Any) -> bool:
    return isinstance(model, heads.LM) and model.stack.config.causal


def _is_encoder_decoder(model: Any) -> bool:
    return isinstance(model, Seq2SeqLM) and isinstance(model.stack, EncoderDecoder)


ABILITIES = {
    "encoder": Ability(_is_encoder, "reads a text in both directions", "bert-english"),
    "masked words": Ability(
        lambda model: isinstance(model, heads.MLM | heads.Pretraining),
        "fills in masked words",
        "bert-english",
    ),
    "next sentence": Ability(
        lambda model: isinstance(model, heads.Pretraining),
        "judges whether one sentence follows another",
        "bert-mini",
    ),
    "replaced words": Ability(
        lambda model: isinstance(model, heads.RTD),
        "judges whether a word was replaced",
        "electra-mini",
    ),
    "decoder": Ability(_is_decoder, "continues a text", "gpt-english"),
    "encoder-decoder": Ability(
        _is_encoder_decoder, "reads one text and writes another", "bart-english"
    ),
    "sentence encoder": Ability(
        lambda model: isinstance(model, SentenceEncoder), "gives a text one vector", "sbert-mini"
    ),
    "word vectors": Ability(
        lambda model: isinstance(model, WordVectors), "gives a word one vector", "word2vec-mini"
    ),
    "words in context": Ability(
        lambda model: isinstance(model, BiLM), "reads words by their letters (ELMo)", "elmo-mini"
    ),
}


def require(source: str | Path, ability: str) -> Loaded:
    """Load a model and check that it has an ability.

    Args:
        source: the model, as for `open_model`.
        ability: one of `ABILITIES`. With "sentence encoder" the loaded model is a
            `SentenceEncoder`, which turns texts into vectors.

    Raises:
        CourseError: the model lacks the ability, or there is no such model or ability.
    """
    if ability not in ABILITIES:
        raise CourseError(f"There is no ability {ability!r}; there are {', '.join(ABILITIES)}.")
    wanted = ABILITIES[ability]
    loaded = _open_sentence(source) if ability == "sentence encoder" else open_model(source)
    if not wanted.has(loaded.model):
        raise CourseError(
            f"This lesson needs a model that {wanted.means} ({ability}); {source} is a"
            f' {type(loaded.model).__name__} and does not. Set MODEL = "{wanted.example}", or take'
            " another one that does."
        )
    return loaded


def _open_sentence(source: str | Path) -> Loaded:
    """Load a model as a `SentenceEncoder`. A model that is none comes back as it is."""
    known = shipped.names() if (shipped.FOLDER / "manifest.json").exists() else []
    if str(source) not in known:
        folder = hub.pretrained(source)
        if (folder / "modules.json").is_file():  # written by sentence-transformers
            encoder = load_sentence(folder)
            return Loaded(encoder, encoder.tokenizer, {"name": str(source)})
    loaded = open_model(source)
    if isinstance(loaded.model, Sentence):
        return loaded._replace(model=SentenceEncoder(loaded.model, loaded.tokenizer))
    return loaded
