"""The marked sentences of lesson 11, the rule of the neighbour, and the sentences with a gap."""

from pathlib import Path

import pytest

from classroom.town import arcs, gaps
from course_lib import zoo

LINE = "My old friend/N opened/V the/d3 heavy kitchen/N door/N/o-4 ."


def test_marks_are_taken_apart() -> None:
    (row,) = arcs.marked([LINE])
    assert row["tokens"][3:5] == ["opened", "the"] and row["tags"][3] == "V"
    assert arcs.pairs([row], "det") == [(4, 7)] and arcs.pairs([row], "obj") == [(7, 3)]


def test_the_neighbour_is_the_last_of_the_next_nouns_or_the_verb_before() -> None:
    (row,) = arcs.marked([LINE])
    assert arcs.neighbour(row, 4) == 7 and arcs.neighbour(row, 7) == 3
    assert arcs.neighbour(arcs.marked(["the/d1 first"])[0], 0) == -1
    assert arcs.next_door([row], "det") == [True]


@pytest.mark.parametrize("relation", ["det", "obj"])
def test_each_arc_stays_in_its_sentence_and_no_sentence_is_in_both_halves(relation: str) -> None:
    halves = arcs.sentences()
    for rows in halves:
        for row in rows:
            for dependent, governor in arcs.pairs([row], relation):
                assert 0 <= governor < len(row["tokens"]) and governor != dependent
        assert len(arcs.pairs(rows, relation)) >= 30
    texts = [{" ".join(row["tokens"]) for row in rows} for rows in halves]
    assert not texts[0] & texts[1]


def test_a_treebank_keeps_the_two_relations(tmp_path: Path) -> None:
    cells = [("The", "DET", 3, "det"), ("old", "ADJ", 3, "amod"), ("dog", "NOUN", 0, "root")]
    lines = [f"{i}\t{w}\t_\t{t}\t_\t_\t{h}\t{r}\t_\t_" for i, (w, t, h, r) in enumerate(cells, 1)]
    (tmp_path / "a.conllu").write_text(("\n".join(lines) + "\n\n") * 6, "utf-8")
    choose, score = arcs.sentences(str(tmp_path / "a.conllu"))
    assert len(choose) == len(score) == 3
    assert choose[0]["heads"] == [2, -1, -1] and choose[0]["tags"] == ["", "", "N"]


def test_a_gap_is_masked_and_its_answer_kept() -> None:
    _, tokenizer, _ = zoo.load("bert-english")
    found = gaps.english(tokenizer, n=20)
    assert found.loss_mask.sum(1).tolist() == [1] * 20
    assert (found.ids[found.loss_mask] == tokenizer.vocab.mask).all()
    assert tokenizer.decode([int(found.answers[0])]).strip() == "for"
    assert not (found.loss_mask & ~found.attention_mask).any()


def test_a_gaps_loss_is_that_of_its_own_sentence() -> None:
    model, tokenizer, _ = zoo.load("bert-english")
    together = gaps.losses(model, gaps.english(tokenizer, n=6))
    alone = gaps.losses(model, gaps.english(tokenizer, n=1))
    assert together.shape == (6,) and together[0].item() == pytest.approx(alone.item(), abs=1e-4)
