"""A larger vocabulary: old tokens mean the same, new ones can be read."""

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.families.bert import bert
from course_lib.model.resize import resize_vocabulary
from course_lib.model.transformer import Transformer


def test_old_tokens_stay_and_new_ones_are_random_like_a_new_model_s() -> None:
    torch.manual_seed(0)
    stack = Transformer(bert(20, width=64, layers=1, heads=2, length=8)).eval()
    before = {name: value.clone() for name, value in stack.state_dict().items()}
    larger = resize_vocabulary(stack, 220).eval()

    ids = torch.tensor([[1, 5, 19]])
    torch.testing.assert_close(larger(ids), stack(ids), rtol=0, atol=0)
    new_rows = larger.embed.tokens.weight[20:]
    assert new_rows.std().item() == pytest.approx(stack.config.init_std, rel=0.1)
    assert larger.config.embed.vocab == 220

    with torch.no_grad():
        for weight in larger.parameters():
            weight.zero_()
    assert all(torch.equal(value, before[name]) for name, value in stack.state_dict().items())


def test_a_smaller_vocabulary_is_refused() -> None:
    stack = Transformer(bert(20, width=8, layers=1, heads=2, length=8))
    with pytest.raises(CourseError, match="cannot shrink"):
        resize_vocabulary(stack, 19)
