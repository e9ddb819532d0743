"""What an ELMo is, as data, and the sizes of it that the course uses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from course_lib.errors import CourseError

CHARACTERS = 262  # 256 bytes, 5 marks, and 0 for "no word here"


@dataclass(frozen=True)
class ElmoConfig:
    """A bidirectional language model over characters.

    vocab: words of the softmax, 0 for none (published weights come without it). width: output of each direction, so
    that features are twice as wide. hidden: cells of an LSTM. length: characters of a word, its two marks included;
    longer words are cut. character: width of a character's vector. filters: (characters wide, how many) of each
    convolution. residual: from the second layer on, a layer adds its input to its output. cell_clip, projection_clip:
    bounds on an LSTM's cells and outputs, None for none. dropout: on the input of each LSTM and of the softmax.
    """

    vocab: int
    width: int
    hidden: int
    filters: tuple[tuple[int, int], ...]
    layers: int = 2
    length: int = 50
    character: int = 16
    highways: int = 2
    activation: Literal["relu", "tanh"] = "relu"
    residual: bool = True
    cell_clip: float | None = 3.0
    projection_clip: float | None = 3.0
    dropout: float = 0.1

    def __post_init__(self) -> None:
        for name in ("width", "hidden", "layers", "character"):
            if getattr(self, name) < 1:
                raise CourseError(f"ElmoConfig.{name} is {getattr(self, name)}; it must be at least 1.")
        if self.width >= self.hidden:
            raise CourseError(
                f"width is {self.width} and hidden {self.hidden}; the LSTMs project to fewer than hidden."
            )
        if not self.filters or any(wide < 1 or many < 1 for wide, many in self.filters):
            raise CourseError(f"filters is {self.filters}; give pairs of (characters wide, how many).")
        if max(wide for wide, _ in self.filters) > self.length:
            raise CourseError(f"A filter of {max(self.filters)[0]} characters does not fit words of {self.length}.")


def elmo_original(vocab: int = 0) -> ElmoConfig:
    """The published model (Peters et al. 2018, section 3.4): two layers of 4096 projected to 512, 94M parameters.

    vocab: its softmax had 793,471 words and was never published.
    """
    filters = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    return ElmoConfig(vocab, width=512, hidden=4096, filters=filters)


def elmo_mini(vocab: int, dropout: float = 0.0) -> ElmoConfig:
    """The classroom's ELMo: 64 a direction, 336 cells, features of 128, about as many weights as bert-mini.

    Its four LSTMs weigh what bert-mini's four blocks weigh; no dropout: it sees every document once.
    """
    filters = ((1, 16), (2, 32), (3, 64), (4, 64), (5, 48), (6, 32))
    return ElmoConfig(vocab, width=64, hidden=336, filters=filters, length=24, dropout=dropout)


def from_dict(values: Mapping[str, Any]) -> ElmoConfig:
    """The configuration that `dataclasses.asdict` (perhaps by way of JSON) took apart.

    Raises:
        CourseError: a field is missing or unknown.
    """
    try:
        filters = tuple((int(wide), int(many)) for wide, many in values["filters"])
        return ElmoConfig(**{**values, "filters": filters})
    except (KeyError, TypeError) as error:
        raise CourseError(f"The stored configuration is no ELMo's: {error}.") from None
