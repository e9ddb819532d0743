"""Widgets: whole and escaped without a script, offline, deterministic, right in what they say, bad
input named.
"""

import json
import re
import tempfile
import tomllib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from classroom import figures, widgets
from course_lib import CourseError
from course_lib.analysis import cost
from course_lib.files import COURSE, write_json

BAD = "</script><!--<i a=\"'"  # may stand nowhere as it is
WORDS = ["The", "cat", BAD, "it"]
GOVERNORS = [1, 2, -1, 2]
NEXT = torch.eye(4).roll(1, dims=1)  # everybody looks at the next word, the last at the first
WEIGHTS = torch.stack([NEXT, 0.6 * torch.eye(4) + 0.4 * NEXT.T])[:, None]  # two layers of one head
SEARCH = [
    [figures.Option(0, "a", -0.6, "kept"), figures.Option(0, BAD, -0.8, "kept")],
    [figures.Option(1, "lamp", -0.9, "kept"), figures.Option(0, "mill", -1.7, "dropped")],
    [figures.Option(0, "</s>", -1.0, "ended"), figures.Option(0, "</s>", -1.6, "ended")],
]
ORIGINAL = ["the", "wolf", "saw", "a", "sheep"]
ROUND = widgets.ReplacedText(["the", "wolf", "ate", "a", BAD], ORIGINAL, [0.1, 0.7, 0.2, 0.0, 0.9])


def quiz(question: str, choices: dict[str, str]) -> figures.Html:
    """A quiz from a file that holds nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quiz.json"
        write_json(path, {"1": {"question": question, "choices": choices}})
        return widgets.quiz("99.1", path)


WIDGETS: dict[str, Callable[[], figures.Html]] = {
    "attention": lambda: widgets.attention(WEIGHTS, WORDS),
    "head_player": lambda: widgets.head_player(WEIGHTS, WORDS, GOVERNORS),
    "beam_tree": lambda: widgets.beam_tree({"2 beams": SEARCH, BAD: SEARCH[:1]}),
    "calculator": lambda: widgets.calculator(title=BAD),
    "masking": lambda: widgets.masking(
        ["[CLS]", "a", BAD, "b", "[SEP]"],
        [0, 1, 1, 1, 0],
        ["[CLS]", "[MASK]", BAD, "x", "[SEP]"],
        rate=0.3,
    ),
    "quiz": lambda: quiz(f"Why `1/sqrt(d)` & {BAD}?", {"variance": "Yes.", "speed": "No."}),
    "rotation": widgets.rotation,
    "samples": lambda: widgets.samples([(0, 8.0, [BAD]), (9, 2.0, ["the cat", "a dog"])]),
    "which_replaced": lambda: widgets.which_replaced([ROUND]),
    "word_map": lambda: widgets.word_map(
        torch.eye(3)[:, :2], ["bank", BAD, "river"], {"bank": [("river", 0.5)]}
    ),
    "longest_match": lambda: widgets.longest_match(BAD, {BAD[0]}),
    "merging": lambda: widgets.merging({BAD: 2}, {(BAD[0], BAD[1]): 0}),
    "word_steps": lambda: widgets.word_steps({"one": [(BAD, "plain")]}, BAD),
}


class Outline(HTMLParser):
    """Open elements balanced? Which attributes, how many scripts, and what text outside scripts?"""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        self.tags.append(tag)
        if tag not in ("br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text += data + " "


@pytest.mark.parametrize("name", WIDGETS)
def test_widgets_are_sound_escaped_offline_and_deterministic(name: str) -> None:
    widget = WIDGETS[name]()
    assert (
        widget.html == WIDGETS[name]().html == widget._repr_html_() and repr(widget) == widget.text
    )
    outline = Outline(widget.html)
    assert outline.open == [] and outline.tags.count("script") <= 1 and "i" not in outline.tags
    assert "<!--" not in widget.html and BAD not in widget.html
    assert not re.search(
        r"https?://(?!www\.w3\.org/2000/svg)|src=|@import|url\((?!#|'#)", widget.html
    )
    names = [value for key, value in outline.attributes if key == "id"]
    assert len(names) == len(set(names)) and ("role", "group") in outline.attributes
    assert any(key == "aria-label" and value for key, value in outline.attributes)
    assert ("data-lm-suppress-shortcuts", "true") in outline.attributes


def test_a_widgets_name_follows_from_its_content() -> None:
    one, two, again = (quiz(q, {"a": "x", "b": "y"}).html for q in ("one", "two", "one"))
    names = [re.search(r'data-course="([^"]+)"', html)[1] for html in (one, two)]  # type: ignore[index]
    assert one == again and names[0] != names[1]


@pytest.mark.parametrize(
    ("name", "says"), json.loads(Path(__file__).with_name("says.json").read_text("utf-8")).items()
)
def test_without_scripts_everything_can_be_read(name: str, says: list[str]) -> None:
    text = " ".join(Outline(WIDGETS[name]().html).text.split())
    assert [piece for piece in says if piece not in text] == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: widgets.attention(WEIGHTS, WORDS[:2]), "2 words"),
        (lambda: widgets.head_player(WEIGHTS, WORDS[:2], GOVERNORS), r"weights \[.. 2 2\]"),
        (lambda: widgets.calculator(parameters=10), "slider of parameters"),
    ],
)
def test_bad_input_is_one_sentence(make: Callable[[], object], words: str) -> None:
    with pytest.raises(CourseError, match=words):
        make()


def test_each_word_is_judged_by_what_was_done_and_what_was_said() -> None:
    assert [tint for _, tint in ROUND.judged] == ["plain", "blue", "orange", "plain", "green"]
    assert ROUND._replace(original=ROUND.tokens).stood == "Nothing was replaced."


def test_each_word_has_the_arc_of_its_largest_weight() -> None:
    made = widgets.head_player(WEIGHTS, WORDS, GOVERNORS)
    found = re.search(r"var data=(\{.*?\});", made.html)
    assert found
    one, two = json.loads(found[1])["heads"]
    assert [arc[0] for arc in one] == [1, 2, 3, 0]
    assert [arc[2] for arc in one] == ["governor", "governor", "dependent", "neither"]
    assert [arc[0] for arc in two] == [3, 0, 1, 2]  # not itself, though that has more
    assert [arc[3] for arc in two] == [0.4] * 4 and "The > cat (at its governor)" in repr(made)
    second = widgets.head_player(WEIGHTS, WORDS, GOVERNORS, first=(1, 0))
    assert '<option value="1" selected>2-1</option>' in second.html
    assert "head 2-1: The > it (elsewhere)" in repr(second)


def test_the_beams_winner_has_the_best_score_for_its_length() -> None:
    steps = [
        [figures.Option(0, "yes", -0.5, "kept"), figures.Option(0, "</s>", -0.7, "ended")],
        [figures.Option(0, "</s>", -0.9, "ended")],
    ]
    assert "yes </s> (-0.90)" in repr(widgets.beam_tree({"": steps}))


def test_the_calculators_numbers_are_the_librarys() -> None:
    shown = repr(widgets.calculator(175e9, 300e9, device="A100", devices=1000, utilisation=0.4))
    bill = cost.bill(
        cost.training_flops(175e9, 300e9), cost.DEVICES["A100"], devices=1000, utilisation=0.4
    )
    assert f"days of training {bill.days:.1f}" in shown and "3.15e23" in shown
    assert "devices to hold the weights 5, devices to train 35" in shown


@pytest.mark.parametrize("room", ["figures", "grading", "widgets"])
def test_an_installed_package_has_the_templates_and_scripts(room: str) -> None:
    assets = {path.suffix for path in (COURSE / "classroom" / room / "assets").iterdir()}
    setup = tomllib.loads((COURSE / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    assert {f"assets/*{suffix}" for suffix in assets} == set(
        setup["package-data"][f"classroom.{room}"]
    )


def test_longest_match_looks_up_shorter_and_shorter_tokens_until_one_fits() -> None:
    html = widgets.longest_match("unable", {"un", "u", "##able", "##a"})
    assert [line.partition(" | ")[2] for line in html.text.splitlines()[1:]] == [
        "u n a b l e",
        "un a b l e",
        "un ##able",
    ]
    assert "unabl<" in html.html and "##abl<" not in html.html  # ##able fits at once
    assert widgets.longest_match("unx", {"un"}).text.endswith("[UNK]")


def test_merging_joins_one_pair_a_frame_in_the_order_of_learning() -> None:
    played = widgets.merging({"aab": 2, "ab": 1}, {("a", "ab"): 1, ("a", "b"): 0}).text
    assert [line.partition(" | ")[2] for line in played.splitlines()[1:]] == [
        "a a b  a b",
        "a ab  ab",
        "aab  ab",
    ]
    assert "Merge 1: a and b stood together 3 times; 5 symbols are left" in played
