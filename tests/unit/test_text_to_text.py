"""T5's wordings to the letter, and the way back from words to labels."""

import pytest

from course_lib.errors import CourseError
from course_lib.inputs import SourceTarget
from course_lib.mixing import MixedTasks, proportional
from course_lib.models.t5 import t5
from course_lib.text_to_text import WORDINGS, Wording, rows, translation
from course_lib.tokenizers import train_wordpiece


@pytest.mark.parametrize(
    ("wording", "item", "text", "target"),
    [
        ("sst2", {"text": "a warm film .", "label": 1}, "sst2 sentence: a warm film .", "positive"),
        (
            "mrpc",
            {"text": "He left .", "pair": "He went .", "label": 1},
            "mrpc sentence1: He left . sentence2: He went .",
            "equivalent",
        ),
        (
            translation("English", "German"),
            {"text": "The house.", "target": "Das Haus."},
            "translate English to German: The house.",
            "Das Haus.",
        ),
        ("cola", {"text": "Sleeps he.", "label": 0}, "cola sentence: Sleeps he.", "unacceptable"),
        ("stsb", {"text": "a", "pair": "b", "label": 2.49}, "stsb sentence1: a sentence2: b", "2.4"),
        ("stsb", {"text": "a", "pair": "b", "label": 5}, "stsb sentence1: a sentence2: b", "5.0"),
        ("mnli", {"text": "P.", "pair": "H.", "label": 2}, "mnli hypothesis: H. premise: P.", "contradiction"),
        ("summary", {"text": "Long.", "target": "Short."}, "summarize: Long.", "Short."),
        ("squad", {"text": "Who?", "pair": "Ann.", "answer": "Ann", "start": 0}, "question: Who? context: Ann.", "Ann"),
    ],
)
def test_examples_as_t5_words_them(wording, item, text, target) -> None:
    assert list(rows([item], wording)) == [{"text": text, "target": target}]


def test_answers_are_read_back() -> None:
    for name in ("sst2", "mrpc", "mnli"):
        wording = WORDINGS[name]
        for label in range(len(wording.labels)):
            assert wording.label_of(f" {wording.target({'label': label})} ") == label
    assert WORDINGS["sst2"].label_of("hamburger") is None
    assert WORDINGS["stsb"].label_of("3.8") == 3.8 and WORDINGS["stsb"].label_of("very") is None


def test_several_tasks_in_one_batch() -> None:
    first = list(rows([{"text": "good day", "label": 1}] * 3, "sst2"))
    second = list(rows([{"text": "good day", "target": "day good"}] * 9, translation("English", "Backwards")))
    tokenizer = train_wordpiece([row[key] for row in first + second for key in row] * 3, 120)
    config = t5(tokenizer.vocab.size, width=8, layers=1, heads=1, hidden=8)
    frame = SourceTarget(tokenizer, config)
    tasks = {"sst2": frame.rows(first), "backwards": frame.rows(second)}
    mixed = MixedTasks(frame, tasks, proportional([3, 9], limit=3), batch=6)
    names = {name for step in range(4) for name, _ in mixed.rows(step)}
    assert names == {"sst2", "backwards"}
    assert set(mixed[0]) == {"ids", "keep", "labels"} and len(mixed[0]["ids"]) == 6


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: list(rows([{"text": "a", "label": 0}], "haiku")), "no wording 'haiku'"),
        (lambda: list(rows([{"text": "a", "label": 0}], "mrpc")), "the column 'pair'"),
        (lambda: list(rows([{"text": "a", "label": 2}], "sst2")), "0 to 1"),
        (lambda: list(rows([{"text": "a"}], Wording("guess"))), "neither a label nor a target"),
    ],
)
def test_bad_input_is_one_sentence(call, words) -> None:
    with pytest.raises(CourseError, match=words):
        call()
