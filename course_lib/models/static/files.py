"""Word vectors in files: the course's folders (safetensors and JSON) and word2vec's text format."""

from pathlib import Path

import torch

from course_lib.errors import CourseError
from course_lib.files import atomic_write, read_json, write_json
from course_lib.models.static.vectors import WordVectors

MATRIX, VOCABULARY = "vectors.safetensors", "vocabulary.json"


def save(vectors: WordVectors, folder: str | Path, *, half: bool = False) -> Path:
    """Write vectors.safetensors and vocabulary.json. half: 16 bits a number. Returns: the folder."""
    from safetensors.torch import save as to_bytes

    folder = Path(folder)
    matrix = vectors.matrix.half() if half else vectors.matrix
    with atomic_write(folder / MATRIX, "wb") as file:
        file.write(to_bytes({"vectors": matrix.contiguous()}, metadata={"format": "pt"}))
    write_json(folder / VOCABULARY, {"words": vectors.words, "counts": vectors.counts})
    return folder


def load(folder: str | Path) -> WordVectors:
    """What `save` wrote, in float32.

    Raises:
        CourseError: a file is missing or damaged, or the two do not belong together.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    path, listed = Path(folder) / MATRIX, read_json(Path(folder) / VOCABULARY)
    try:
        matrix = from_bytes(path.read_bytes())["vectors"]
        words, counts = listed["words"], listed["counts"]
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise CourseError(f"{folder} holds no word vectors that can be read ({error}); save them again.") from None
    return WordVectors(words, matrix, counts)


def save_text(vectors: WordVectors, path: str | Path) -> None:
    """Write word2vec's text format: a line of V and D, then a line a word, exact to float32.

    Raises:
        CourseError: a word holds white space, which the format cannot say.
    """
    if bad := next((word for word in vectors.words if not word or word != "".join(word.split())), None):
        raise CourseError(f"The text format parts words by spaces; it cannot hold {bad!r}.")
    with atomic_write(path) as file:
        file.write(f"{len(vectors)} {vectors.matrix.shape[1]}\n")
        for word, row in zip(vectors.words, vectors.matrix.tolist(), strict=True):
            file.write(" ".join([word, *(f"{value:.9g}" for value in row)]) + "\n")


def load_text(path: str | Path) -> WordVectors:
    """Read word2vec's text format, or GloVe's, which has no first line of its own.

    Raises:
        CourseError: no such file, or a line that does not fit, by its number.
    """
    try:
        lines = Path(path).read_text("utf-8").rstrip("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CourseError(f"The word vectors {path} cannot be read ({error}).") from None
    head = lines[0].split()
    announced = [int(part) for part in head] if len(head) == 2 and all(part.isdecimal() for part in head) else None
    first = 1 if announced else 0
    words: list[str] = []
    rows: list[list[float]] = []
    for number, line in enumerate(lines[first:], first + 1):
        word, *values = line.rstrip(" ").split(" ")
        try:
            row = [float(value) for value in values]
        except ValueError:
            row = []
        if not row or len(row) != (announced[1] if announced else len(rows[0]) if rows else len(row)):
            raise CourseError(f"Line {number} of {path} is not a word and as many numbers as the others have.")
        words.append(word)
        rows.append(row)
    if announced and announced[0] != len(words):
        raise CourseError(f"{path} announces {announced[0]} words and has {len(words)}; it is cut off or was changed.")
    return WordVectors(words, torch.tensor(rows))
