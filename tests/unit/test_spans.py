"""Spans: the best answer is an answer, and the probabilities are those of all answers that there are."""

from dataclasses import replace

import pytest
import torch

from course_lib import spans
from course_lib.errors import CourseError
from course_lib.finetune import finetune
from course_lib.tokenizers import Tokenizer
from tests.unit.test_finetune import BPE, WORDPIECE, rows, run, stack

# Seven tokens: [CLS] question [SEP] a b c [SEP]
INSIDE = torch.tensor([False, False, False, True, True, True, False])


def test_the_best_answer_lies_in_the_passage_and_in_order() -> None:
    start = torch.tensor([9.0, 9.0, 9.0, 0.0, 1.0, 5.0, 9.0])
    end = torch.tensor([9.0, 9.0, 9.0, 4.0, 2.0, 0.0, 9.0])
    # Apart they would be c and a; together a..a gives 4, b..b 3, c..c 5, b..c 1, a..b 2.
    assert spans.best(start, end, INSIDE) == (5, 5)
    assert spans.best(start - 2 * torch.eye(7)[5] * 2, end, INSIDE) == (3, 3)


def test_the_best_of_all_pairs_by_counting() -> None:
    rng = torch.Generator().manual_seed(0)
    for _ in range(50):
        start, end = torch.randn(7, generator=rng), torch.randn(7, generator=rng)
        pairs = [(i, j) for i in range(3, 6) for j in range(i, 6) if j - i < 2]
        assert spans.best(start, end, INSIDE, longest=2) == max(pairs, key=lambda p: float(start[p[0]] + end[p[1]]))
        joint = spans.joint(start, end, INSIDE, longest=2)
        assert sorted(map(tuple, joint.nonzero().tolist())) == sorted(pairs)
        assert joint.sum() == pytest.approx(1, abs=1e-5)
        assert divmod(int(joint.argmax()), 7) == spans.best(start, end, INSIDE, longest=2)


def test_probabilities_are_of_the_passage_only() -> None:
    p = spans.probabilities(torch.tensor([50.0, 0, 0, 1, 2, 3, 50]), INSIDE)
    assert p.tolist()[:3] == [0, 0, 0] and p[6] == 0
    torch.testing.assert_close(p[3:6], torch.tensor([1.0, 2, 3]).softmax(0))


def test_without_a_passage_there_is_no_answer() -> None:
    with pytest.raises(CourseError, match="no passage"):
        spans.best(torch.zeros(3), torch.zeros(3), torch.zeros(3, dtype=torch.bool))


@pytest.mark.parametrize("tokenizer", [WORDPIECE, BPE], ids=["encoder", "decoder"])
def test_a_reading_says_what_the_result_predicted(tokenizer: Tokenizer) -> None:
    result = run("span", tokenizer)
    for item, said in zip(rows("span", 40, 1)[:10], result.predictions[:10], strict=True):
        reading = spans.read(result, item)
        assert reading.answer == said and reading.question == item["text"]
        assert len(reading.start) == len(reading.end) == len(reading.tokens)
        assert sum(reading.start) == pytest.approx(1, abs=1e-4) and sum(reading.end) == pytest.approx(1, abs=1e-4)
        assert reading.tokens == item["pair"].split(), "pieces of a word are put together"
        first, last = reading.best
        assert said.replace(" ", "") in "".join(reading.tokens[first : last + 1]), (
            "whole words, so perhaps a little more"
        )


def test_a_passage_that_was_cut_away_has_an_empty_answer() -> None:
    result = run("span", WORDPIECE, epochs=1)
    (row,) = result.frame.rows([rows("span", 1, 0)[0]])
    assert row.context is not None
    cut = replace(row, context=(row.context[0], (None,) * len(row.context[1])))
    assert spans.answer(cut, torch.zeros(20), torch.zeros(20)) == ""


def test_only_span_models_are_read() -> None:
    task = {"train": rows("single", 8, 0), "test": rows("single", 4, 0)}
    result = finetune(stack(WORDPIECE), task, WORDPIECE, epochs=1)
    with pytest.raises(CourseError, match="span task; this one's is 'single'"):
        spans.read(result, rows("span", 1, 0)[0])
