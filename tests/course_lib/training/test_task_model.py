"""The copy of a body for a task: old tokens mean the same, new ones can be read."""

import pytest
import torch

from course_lib.families.bert import bert
from course_lib.model.transformer import Transformer
from course_lib.training.finetune_config import FinetuneConfig
from course_lib.training.task_model import copy_body


def test_old_tokens_stay_and_new_ones_are_random_like_a_new_model_s() -> None:
    torch.manual_seed(0)
    stack = Transformer(bert(20, width=64, layers=1, heads=2, length=8)).eval()
    before = {name: value.clone() for name, value in stack.state_dict().items()}
    larger = copy_body(stack, 220, FinetuneConfig()).eval()

    ids = torch.tensor([[1, 5, 19]])
    torch.testing.assert_close(larger(ids), stack(ids), rtol=0, atol=0)
    new_rows = larger.embed.tokens.weight[20:]
    assert new_rows.std().item() == pytest.approx(stack.config.init_std, rel=0.1)
    assert larger.config.embed.vocab == 220

    with torch.no_grad():
        for weight in larger.parameters():
            weight.zero_()
    assert all(torch.equal(value, before[name]) for name, value in stack.state_dict().items())


def test_a_token_table_never_loses_a_row() -> None:
    stack = Transformer(bert(20, width=8, layers=1, heads=2, length=8))
    assert copy_body(stack, 19, FinetuneConfig()).config == stack.config
