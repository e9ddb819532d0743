"""Requests and answers: read, as token ids, written."""

import json

import pytest

from classroom import remarks
from course_lib import zoo


@pytest.fixture(scope="module")
def decoder():
    return zoo.load("gpt-english")


def test_our_reviews_are_about_three_kinds_of_thing():
    found = remarks.read(words=14)
    assert len({row.request for row in found}) == 3
    assert max(len(row.answer.split()) for row in found) == 14
    assert 0.4 < sum(row.good for row in found) / len(found) < 0.6


def test_rows_of_ones_own(tmp_path):
    for split in ("train", "test"):
        lines = [{"text": f"{split} {i}", "label": ["bad", "good"][i % 2]} for i in range(4)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    found = remarks.read(str(tmp_path), "test")
    assert [row.answer for row in found] == [f"test {i}" for i in range(4)]
    assert [row.good for row in found] == [False, True, False, True]


def test_texts_without_labels_are_replaced_by_ours(tmp_path):
    (tmp_path / "text.txt").write_text("A text.", "utf-8")
    assert remarks.read(str(tmp_path)) == remarks.read()


def test_a_row_is_start_request_answer_end(decoder):
    tokenizer = decoder.tokenizer
    given = remarks.rows(tokenizer, [("Please:", "No."), ("Please:", "A longer answer.")])
    ids = given["ids"][0][given["attention_mask"][0]].tolist()
    eos = tokenizer.vocab.eos
    assert ids[0] == ids[-1] == eos and eos not in ids[1:-1]
    asked = int(given["lengths"][0])
    assert tokenizer.decode(ids[1:asked]) == "Please:"
    assert tokenizer.decode(ids[asked:-1]) == " No."


def test_an_answer_without_an_end_is_marked(decoder):
    [text] = remarks.write(decoder.model, decoder.tokenizer, ["Please review a film:"], longest=2)
    assert text.endswith(" ...")


def test_repeated_words_are_counted():
    assert remarks.repeated("So good, so good!") == 0.5
    assert remarks.repeated("") == 0.0
