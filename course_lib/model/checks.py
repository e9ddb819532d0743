"""Checks of a model's inputs."""

from jaxtyping import Int
from torch import Tensor

from course_lib.errors import CourseError


def check_ids(ids: Int[Tensor, "*N"], size: int) -> None:
    """Refuse token ids that are not in the vocabulary.

    PyTorch's own error is hard to read; on a GPU it is only "device-side assert".

    Args:
        ids: token ids.
        size: size of the vocabulary.

    Raises:
        CourseError: an id is negative, or `size` or more.
    """
    if ids.numel() == 0:
        return
    extremes = ids.aminmax()
    low = int(extremes.min)
    high = int(extremes.max)
    if low < 0 or high >= size:
        raise CourseError(
            f"Token ids run from {low} to {high}, but the model's vocabulary has {size} entries;"
            " was the text encoded with another model's tokenizer?"
        )
