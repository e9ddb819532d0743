"""Lesson 08: what it claims exactly is exact, and typical slips in its exercises are named."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from course_lib import check, heads
from course_lib.files import read_json
from course_lib.models.gpt import gpt1
from course_lib.stack import Stack

PAPER = read_json(Path(__file__).resolve().parents[2] / "data/papers/08_gpt1.json")


def test_gpt1_has_the_papers_size():
    said, config = PAPER["gpt1-size"], gpt1()
    assert (config.layers, config.width, config.heads) == (said["layers"], said["width"], said["heads"])
    with torch.device("meta"):
        count = sum(p.numel() for p in heads.LM(Stack(config)).parameters())
    assert count == 116_534_784
    assert abs(count / 1e6 - said["millions"]) < 1


def test_the_papers_table_says_what_the_lecture_says():
    """Ahead on most tasks, not on RTE."""
    rows = {task: row for task, row in PAPER["gpt1-table"]["rows"].items() if task != "GLUE"}
    behind = {task for task, (earlier, gpt) in rows.items() if gpt < earlier}
    assert "RTE" in behind
    assert len(behind) < len(rows) / 2


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("gelu", lambda x: F.gelu(x, approximate="tanh"), "tanh"),
        ("gelu", lambda x: x * torch.sigmoid(1.702 * x), "1.702"),
        ("next_token_loss", lambda logits, ids, keep: F.cross_entropy(logits[keep], ids[keep]), "shift"),
        ("temperature", lambda logits, temperature: (logits * temperature).softmax(-1), "ivide"),
        ("entailment_input", lambda p, h, start, delim, extract: [start, *p, *h, extract], "delim"),
        ("entailment_input", lambda p, h, start, delim, extract: [start, *h, delim, *p, extract], "premise"),
    ],
)
def test_a_typical_slip_is_named(name, answer, says):
    verdict = getattr(check, name)(answer)
    assert not verdict.passed and says in verdict.message
