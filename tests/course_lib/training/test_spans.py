"""Spans: the best answer is an answer, and the probabilities are those of all answers that there
are.
"""

from dataclasses import replace

import pytest
import torch

from course_lib.data.inputs import Passage
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.training import spans
from tests.course_lib.training.test_finetune import BPE, WORDPIECE, rows, run

# Seven tokens: [CLS] question [SEP] a b c [SEP]
INSIDE = torch.tensor([False, False, False, True, True, True, False])


def test_the_best_of_all_pairs_by_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MAX_ANSWER", 2)
    rng = torch.Generator().manual_seed(0)
    for _ in range(50):
        start, end = torch.randn(7, generator=rng), torch.randn(7, generator=rng)
        pairs = [(i, j) for i in range(3, 6) for j in range(i, 6) if j - i < 2]
        assert spans.best_span(start, end, INSIDE) == max(
            pairs, key=lambda p: float(start[p[0]] + end[p[1]])
        )
        allowed = spans.totals(start, end, INSIDE).isfinite()
        assert sorted(map(tuple, allowed.nonzero().tolist())) == sorted(pairs)


@pytest.mark.parametrize("tokenizer", [WORDPIECE, BPE], ids=["encoder", "decoder"])
def test_a_reading_says_what_the_result_predicted(tokenizer: Tokenizer) -> None:
    result = run("span", tokenizer)
    for item, said in zip(rows("span", 40, 1)[:10], result.predictions[:10], strict=True):
        reading = spans.read(result, item)
        assert reading.answer == said and reading.question == item["text"]
        assert (
            len(reading.start_probabilities) == len(reading.end_probabilities) == len(reading.words)
        )
        assert sum(reading.start_probabilities) == pytest.approx(1, abs=1e-4) and sum(
            reading.end_probabilities
        ) == pytest.approx(1, abs=1e-4)
        assert reading.words == item["pair"].split(), "pieces of a word are put together"
        first, last = reading.best_words
        assert said.replace(" ", "") in "".join(reading.words[first : last + 1]), "whole words"


def test_without_a_passage_or_a_span_task_there_is_no_answer() -> None:
    (row,) = run("span", WORDPIECE, epochs=1).frame.rows([rows("span", 1, 0)[0]])
    assert row.passage is not None
    # the whole passage cut away
    cut = replace(row, passage=Passage(row.passage.text, (None,) * len(row.passage.offsets)))
    assert spans.answer_text(cut, torch.zeros(20), torch.zeros(20)) == ""
    with pytest.raises(CourseError, match="no passage"):
        spans.best_span(torch.zeros(3), torch.zeros(3), torch.zeros(3, dtype=torch.bool))
    with pytest.raises(CourseError, match="span task; this one's is 'single'"):
        spans.read(run("single", WORDPIECE, epochs=1), rows("span", 1, 0)[0])
