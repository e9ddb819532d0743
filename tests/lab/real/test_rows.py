"""Rows and counts of the experiments on real English: parts, graded pairs, searches, PPMI."""

import json
import math
from pathlib import Path

import pytest
import torch

from course_lib.families.word_vectors.text import encode_text
from lab.real import counts, graded, parts, search
from lab.real.search import Collection
from tests.lab import public_data


def test_parts_are_disjoint_and_hold_every_row() -> None:
    rows = list(range(23))
    every = [parts.part(rows, number, 4) for number in range(4)]
    assert sorted(row for part in every for row in part) == rows
    assert {len(part) for part in every} == {5, 6}
    assert every[0] != rows[::4], "they are shuffled"


def test_pairs_that_may_have_been_learned_are_left_out(tmp_path: Path) -> None:
    public = public_data.write(tmp_path)
    sets = graded.read_all(public.joinpath)
    assert [*sets] == ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B"]
    known = sets["STS14"]
    assert len(known) == public_data.ROWS, "the pair without a grade is no pair"
    with (public / "stsb_en" / "stsb-en-dev.csv").open("a", encoding="utf-8") as file:
        file.write(f'"{known[0].first.upper()}","{known[0].second}",1.0\n')
    assert graded.read_all(public.joinpath)["STS14"] == known[1:]


def squad(tmp_path: Path) -> Path:
    """A file of one article with two paragraphs."""
    texts = {
        "The mill stands by Mr. Hale's bridge. It burned in May.": [
            "May",
            "Mr. Hale",
            "bridge. It",
        ],
        "Nobody came. The bells rang.": ["bells"],
    }
    rows = []
    for text, answers in texts.items():
        asked = [
            {"question": answer, "answers": [{"text": answer, "answer_start": text.index(answer)}]}
            for answer in answers
        ]
        rows.append({"context": text, "qas": asked})
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"data": [{"title": "Mill", "paragraphs": rows}]}), "utf-8")
    return path


def test_the_answer_of_a_question_is_its_sentence(tmp_path: Path) -> None:
    found = search.of_squad(squad(tmp_path), sentences=True)
    assert found.passages == [
        "The mill stands by Mr. Hale's bridge.",
        "It burned in May.",
        "Nobody came.",
        "The bells rang.",
    ]
    # "bridge. It" crosses the end of a sentence
    assert found.queries == ["May", "Mr. Hale", "bells"] and found.answers == [{1}, {0}, {3}]
    whole = search.of_squad(squad(tmp_path), sentences=False)
    assert whole.answers == [{0}, {0}, {0}, {1}] and whole.groups == ["Mill"] * 4


def test_two_rankings_are_joined_by_their_ranks() -> None:
    assert search.fused([[4, 1, 2], [1, 3, 4]])[:2] == [1, 4]
    assert search.fused([[0, 1], []]) == [0, 1]


def test_wrong_passages_come_from_all_searches_and_from_known_ones() -> None:
    texts = Collection(list("abcdef"), ["q0", "q1", "q2"], [{0}, {1}, {2}], ["", "", ""])
    first = [[0, 5, 1], [1, 0, 2], [2, 0, 1]]
    second = [[2, 0, 3], [1, 2, 0], [0, 1, 2]]
    rows = search.hard_rows(texts, [first, second], [0, 1, 2], negatives=2)
    # passage 5 and 3 answer nothing; the searches take turns
    assert [row["choices"] for row in rows] == [["a", "c", "b"], ["b", "a", "c"], ["c", "a", "b"]]
    assert search.hard_rows(texts, [first, second], [0, 1], negatives=2) == []


def test_ppmi_is_large_for_words_that_meet_more_often_than_by_chance() -> None:
    text = encode_text([["a", "b"]] * 8 + [["c", "d"]] * 8 + [["a", "d"]], min_count=1)
    matrix = counts.ppmi(text, window=1).toarray()
    number = {word: i for i, word in enumerate(text.words)}
    assert matrix[number["a"], number["b"]] > matrix[number["a"], number["d"]] == 0.0
    # P(b, a) = 8/34, P(b) = 8/34; the contexts' counts 9, 8, 8, 9 to the power of 0.75
    smooth = {word: n**counts.SMOOTHING for word, n in {"a": 9, "b": 8, "c": 8, "d": 9}.items()}
    expected = math.log(8 / 34) - math.log(8 / 34) - math.log(smooth["a"] / sum(smooth.values()))
    assert matrix[number["b"], number["a"]] == pytest.approx(expected, rel=1e-5)
    vectors = counts.reduced(counts.ppmi(text, window=1), text.words, 4, [1.0])[1.0]
    products = vectors.matrix @ vectors.matrix.T  # U S^2 U' = M M'
    assert torch.allclose(products, torch.tensor(matrix @ matrix.T).float(), atol=1e-4)


def test_a_vocabulary_s_words_are_encoded_and_others_left_out() -> None:
    text = counts.encode(["The cat sat.", "A cat!"], ["cat", "the", "."])
    assert text.ids.tolist() == [1, 0, 2, 0] and text.sentence_ids.tolist() == [0, 0, 0, 1]
    assert text.counts.tolist() == [2, 1, 1]
