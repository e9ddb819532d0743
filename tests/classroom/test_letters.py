"""Letters: ids and back, tables of neighbours by hand, and pieces."""

import pytest
import torch

from classroom import lesson
from classroom.letters import Letters
from course_lib.model import heads


@pytest.fixture
def letters(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abc " * 200, encoding="utf-8")
    return Letters(lesson.start("smoke", 0, "cpu", str(path)), documents=5)


def test_letters_and_back(letters):
    ids = letters.ids("ab Z")
    assert letters.text(ids) == "ab ·"
    assert int(ids[-1]) == letters.vocab.unk
    assert letters.vocab.size == 5 + 4


def test_a_neighbour_tells_a_letter_of_a_repeated_text(letters):
    assert letters.guessed(1, 0) == letters.guessed(0, 1) == 100
    letters.test = "axxxxc"  # the neighbours a_c stand in the training text, and the rest do not
    assert letters.guessed(1, 1) == 0
    letters.test = "a c"
    assert letters.guessed(1, 1) == 0  # seen, but with another letter between


def test_a_step_always_draws_the_same_pieces(letters):
    assert letters.pieces(3, 7, rows=2).shape == (2, 7)
    assert torch.equal(letters.pieces(3), letters.pieces(3))
    assert not torch.equal(letters.pieces(3), letters.pieces(4))


@pytest.mark.parametrize(("causal", "changes"), [(True, False), (False, True)])
def test_the_mask_decides_whether_a_later_letter_counts(letters, causal, changes):
    network = letters.network(heads.LM, causal=causal).eval()
    first, other = (network(letters.ids(text)[None])[0, 0] for text in ("abc", "aba"))
    assert (not torch.allclose(first, other)) == changes
