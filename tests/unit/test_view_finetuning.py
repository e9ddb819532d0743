"""Lesson 10's figures and its widget: pure, the same bytes twice, right numbers, readable without a script."""

import base64
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from course_lib import CourseError, view
from course_lib.spans import Reading
from course_lib.view.display import png
from course_lib.view.span_widget import answers

TOKENS = "Rita fixed the kite . Leo saw </script> <b> .".split()  # noqa: SIM905
STARTS = [0.7, 0, 0.1, 0, 0, 0.2, 0, 0, 0, 0]
ENDS = [0.6, 0, 0, 0.1, 0, 0.3, 0, 0, 0, 0]
READING = Reading("Who fixed the kite?", TOKENS, STARTS, ENDS, (0, 0), "Rita")
SCORES: dict[str, dict[str, float | None]] = {"a": {"x": 1.0, "y": 60.5}, "b": {"x": 2.0, "y": None}}
FIGURES: dict[str, Callable[[], Any]] = {
    "bert_heads": view.bert_heads,
    "confusion": lambda: view.confusion([[3, 1], [0, 4]], ["no", "yes"], title="NLI"),
    "score_grid": lambda: view.score_grid(SCORES, title="suite"),
    "span_bars": lambda: view.span_bars(READING),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_pure_and_reproducible(name: str) -> None:
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    before, open_before = dict(mpl.rcParams), plt.get_fignums()
    first = png(FIGURES[name]())
    assert png(FIGURES[name]()) == first
    assert dict(mpl.rcParams) == before and plt.get_fignums() == open_before
    data = base64.b64decode(first)
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    assert 200 < width < 1800 and 150 < height < 1400


def words(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_confusion_writes_counts_and_shares_of_the_true_class() -> None:
    assert words(view.confusion([[3, 1], [0, 4]], ["no", "yes"])) == ["3\n75%", "1\n25%", "0\n0%", "4\n100%"]
    assert words(view.confusion([[0, 0], [1, 1]], ["no", "yes"]))[:2] == ["0\n0%", "0\n0%"]


def test_score_grid_has_the_best_of_each_column_in_bold_and_leaves_gaps() -> None:
    figure = view.score_grid(SCORES)
    assert words(figure) == ["1.0", "60.5", "2.0"]
    assert [text.get_weight() for text in figure.axes[0].texts] == ["normal", "bold", "bold"]


def test_bert_heads_reads_each_kind_where_it_is_read() -> None:
    from course_lib.view.finetuning import PANELS

    for panel in PANELS:
        tokens = [*panel.first, *panel.second]
        spots = [tokens[place] for place in panel.above]
        if set(panel.above.values()) == {"class"}:
            assert spots == ["[CLS]"]
        elif "span" in panel.title:
            assert min(panel.above) >= len(panel.first), "an answer lies in the second text"
        else:
            assert not any(spot.startswith(("##", "[")) for spot in spots)


def test_the_likeliest_answers_are_those_of_all_that_are_allowed() -> None:
    ranked = answers(READING, 4)
    total = sum(s * e for i, s in enumerate(READING.start) for e in READING.end[i:])
    assert ranked[0] == ("Rita", pytest.approx(0.42 / total))
    assert ranked[1] == ("Rita fixed the kite . Leo", pytest.approx(0.21 / total))
    assert [p for _, p in ranked] == sorted((p for _, p in ranked), reverse=True)
    assert answers(replace(READING, start=[0.0] * 10)) != [], "no division by zero"


def test_the_reader_is_offline_escaped_and_readable_without_scripts() -> None:
    widget = view.span_reader([READING, replace(READING, question="Who saw?")])
    assert widget.html == view.span_reader([READING, replace(READING, question="Who saw?")]).html
    body, script = widget.html.split("<script>")
    assert not re.search(r"https?://|src=|@import|url\(", widget.html)
    assert "<b>" not in body and "</script>" not in body and script.count("</script>") == 1
    plain = re.sub(r"<[^>]+>", " ", body)
    assert "Who saw?" in plain and "52%" in plain and plain.count("Leo") >= 2
    assert "Who fixed the kite?  (Rita" in widget.text
    assert 'role="group"' in body and "aria-label" in body


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: view.confusion([[1, 2, 3]], ["a", "b", "c"]), "3 by 3 table"),
        (lambda: view.score_grid({}), "at least one system"),
        (lambda: view.score_grid({"a": {}}), "at least one system"),
        (lambda: view.span_reader([]), "at least one reading"),
        (lambda: view.span_reader([replace(READING, end=[0.5])]), "10 tokens, 10 start and 1 end"),
    ],
)
def test_bad_input_is_one_sentence(make: Callable[[], object], says: str) -> None:
    with pytest.raises(CourseError, match=says):
        make()
