"""Prompts to the letter: zero, one and few shots, words for labels, every task of the world."""

import re

import pytest

from course_lib.data.world import World
from course_lib.errors import CourseError
from course_lib.prompting import Question, Template, clause, questions, world_template
from course_lib.prompting.templates import WORLD

SENTIMENT = Template("{text} It was {answer}.", ("bad", "good"))
WORLD_0 = World(0)
ROWS = [{"text": f"Row {i}.", "label": i % 2} for i in range(8)]


def test_zero_one_and_two_shots() -> None:
    row = {"text": "I slept.", "label": 0}
    assert SENTIMENT.ask(row) == Question("I slept. It was ", ".", ("bad", "good"), ("bad",), 0)
    assert SENTIMENT.ask(row, ROWS[1:2]).left == "Row 1. It was good. I slept. It was "
    told = Template("{text} It was {answer}.", ("bad", "good"), between="\n\n", instruction="Judge.")
    assert told.ask(row, ROWS[:2]).left == "Judge.\n\nRow 0. It was bad.\n\nRow 1. It was good.\n\nI slept. It was "
    assert told.ask(row).left == "Judge.\n\nI slept. It was "


def test_where_answers_come_from() -> None:
    choice = Template("{text} {answer}")
    assert choice.ask({"text": "a", "choices": ["b", "c"], "label": 1, "answer": "z"}).answers == ("c",)
    free = choice.ask({"text": "a", "target": "b"})
    assert (free.choices, free.answers, free.label) == ((), ("b",), -1)
    assert choice.ask({"text": "a", "answer": "b", "answers": ["b", "c"]}).answers == ("b", "c")
    assert choice.show({"text": "a", "answer": "b", "answers": ["b", "c"]}) == "a b"


def test_columns_may_hold_braces_and_join_sentences() -> None:
    template = Template("{{{text}}} {number} so {pair:clause}? {answer}", ("no", "yes"))
    row = {"text": "{answer} {x}", "pair": "The boat was lost.", "number": 3, "label": 1}
    assert template.show(row) == "{{answer} {x}} 3 so the boat was lost? yes"
    assert clause("Anna lost it!") == "Anna lost it" and clause("It rained.") == "it rained"
    assert clause("Theo slept.") == "Theo slept" and clause("A") == "a" and clause("") == ""


def test_shots_are_drawn_anew_for_each_question_by_seed() -> None:
    def lefts(**options: object) -> list[str]:
        return [q.left for q in questions(SENTIMENT, ROWS[:4], examples=ROWS, **options)]

    three, one = lefts(shots=3), lefts(shots=1)
    assert three == lefts(shots=3) != lefts(shots=3, seed=1)
    shown = [left.split(" Row ")[:3] for left in three]
    assert len({tuple(some) for some in shown}) > 1  # not the same for all
    for few, single in zip(three, one, strict=True):
        assert few.endswith(single)  # one shot is the last of three
    assert lefts(shots=0) == [f"{row['text']} It was " for row in ROWS[:4]]
    for left in lefts(shots=8):  # none twice
        assert left.count("It was") == 9 and set(re.findall(r"Row (\d)", left)[:8]) == set("01234567")


def test_random_labels_leave_the_texts_and_the_question_alone() -> None:
    rows = ROWS * 10
    true, control = (
        questions(SENTIMENT, rows, examples=ROWS, shots=4, random_labels=random) for random in (False, True)
    )
    wrong = total = 0
    for a, b in zip(true, control, strict=True):
        assert (a.answers, a.label) == (b.answers, b.label)
        assert a.left.replace("bad", "good") == b.left.replace("bad", "good")
        pairs = list(zip(a.left.split(), b.left.split(), strict=True))
        wrong += sum(x != y for x, y in pairs)
        total += 4
    assert 0.35 < wrong / total < 0.65


@pytest.mark.parametrize("task", WORLD)
def test_every_wording_of_the_worlds_tasks_fits(task: str) -> None:
    rows = WORLD_0.task(task, 6, "train", seed=0)
    for number, template in enumerate(WORLD[task]):
        assert world_template(task, number) is template
        for question, row in zip(questions(template, rows, examples=rows, shots=2), rows, strict=True):
            assert question.left.endswith((" ", "\n")) and row["text"] in question.left
            assert "{" not in question.left + question.right
            assert question.left.endswith(template.ask(row).left)
            assert template.show(row) == template.ask(row).left + question.answers[0] + question.right
            if "label" in row:
                assert len(question.choices) == len(row.get("choices", World.label_names(task)))
                assert question.label == row["label"]


def test_every_class_of_a_world_task_has_its_word() -> None:
    for task, wordings in WORLD.items():
        for template in wordings:
            assert not template.words or len(set(template.words)) == len(World.label_names(task))


def test_bad_templates_and_rows() -> None:
    for call, said in (
        (lambda: Template("{text} is good"), "where the answer stands"),
        (lambda: Template("{answer} or {answer}"), "where the answer stands"),
        (lambda: Template("{text {answer}"), "braces hold a column's name"),
        (lambda: Template("{} {answer}"), "braces hold a column's name"),
        (lambda: Template("{text.x} {answer}"), "braces hold a column's name"),
        (lambda: SENTIMENT.ask({"pair": "a", "label": 0}), "needs the column 'text'; the row has pair, label"),
        (lambda: SENTIMENT.ask({"text": "a", "label": 2}), "label 2 is none of the 2 choices bad, good"),
        (lambda: SENTIMENT.ask({"text": "a", "label": -1}), "label -1 is none"),
        (lambda: SENTIMENT.ask({"text": "a"}), "label None is none"),
        (lambda: Template("{text} {answer}").ask({"text": "a"}), "neither choices nor an answer"),
        (lambda: questions(SENTIMENT, []), "no rows"),
        (lambda: questions(SENTIMENT, ROWS, examples=ROWS, shots=9), "9 shots cannot be drawn from 8"),
        (lambda: questions(Template("{text} {answer}"), [{"text": "a", "target": "b"}],
                           examples=[{"text": "a", "target": "b"}], shots=1, random_labels=True), "Random labels need"),
        (lambda: world_template("similarity"), "no template for the task 'similarity'"),
        (lambda: world_template("cloze", 5), "worded in 1 ways"),
    ):  # fmt: skip
        with pytest.raises(CourseError, match=said):
            call()
