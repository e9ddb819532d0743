"""Sentence-BERT: a pooling of one's own."""

import torch
from torch import Tensor

from course_lib import zoo
from course_lib.families.sentence import Sentence


def mean_of_real(h: Tensor, attention_mask: Tensor | None) -> Tensor:
    assert attention_mask is not None
    real = attention_mask[..., None]
    return (h * real).sum(1) / real.sum(1)


def test_a_function_pools_as_the_library_does() -> None:
    stack = zoo.load("bert-mini").model.stack.eval()
    ids = torch.randint(5, 50, (2, 3, 6))
    attention_mask = torch.ones(2, 3, 6, dtype=torch.bool)
    attention_mask[1, :, 4:] = False
    ours = Sentence(stack, mean_of_real)(ids, attention_mask=attention_mask)
    librarys = Sentence(stack, "mean")(ids, attention_mask=attention_mask)
    torch.testing.assert_close(ours, librarys, atol=1e-6, rtol=0)
