"""Figures, widgets, tables: no global state, the same bytes twice, readable without a script, bad input named."""

import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
import torch

from course_lib import CourseError, view
from course_lib.view.display import png
from course_lib.view.overview import TIMELINE

WORDS = ["The", "cat", "drank", "because", "it", "was", "thirsty"]
WEIGHTS = torch.randn(2, 4, 7, 7, generator=torch.Generator().manual_seed(0)).mul(2).softmax(-1)

FIGURES: dict[str, Callable[[], Any]] = {
    "attention_map": lambda: view.attention_map(WEIGHTS[0, 0], WORDS, title="head 0"),
    "attention_map of cross-attention": lambda: view.attention_map([[0.2, 0.8]], ["a"], ["b", "c"]),
    "heads_grid": lambda: view.heads_grid(WEIGHTS[0], WORDS),
    "mask_picture": lambda: view.mask_picture(
        {"causal": torch.ones(7, 7).tril().bool(), "full": torch.ones(7, 7)}, WORDS
    ),
    "curves": lambda: view.curves(
        {"a": [3.0, 2.0, 1.0], "b": ([1, 2], [2.0, 1.9])}, marks={2: "x"}, levels={"chance": 2.5}
    ),
    "curves with bands": lambda: view.curves(
        {"a": [3.0, 2.0]}, bands={"a": ([2.0, 1.0], [4.0, 3.0])}, log_x=True, log_y=True
    ),
    "scaling": lambda: view.scaling({"attention": ([1, 2, 4, 8], [1, 4, 16, 64])}),
    "learning_curve": lambda: view.learning_curve(
        [3.0, 2.0, 1.0], {"name": [0.0, 0.1, 0.9]}, phase=(2, "copies"), chance=0.1
    ),
    "bars": lambda: view.bars({"a": [80.0, 81.0, 82.0], "b": 70.0}, paper={"a": 85.0}, levels={"chance": 50}),
    "bars in groups": lambda: view.bars(
        {"SST": {"a": 1.0, "b": [2.0, 3.0]}, "CoLA": {"a": 2.0}}, paper={"SST / a": 3.0}
    ),
    "scatter": lambda: view.scatter(torch.eye(2), ["x", "y"], groups=["g", "h"]),
    "histogram": lambda: view.histogram({"d": torch.randn(50), "e": torch.randn(9)}),
    "tokens": lambda: view.tokens(WORDS * 6),
    "tokens with values": lambda: view.tokens(WORDS, values=WEIGHTS[0, 0, 0]),
    "tokens in rows": lambda: view.tokens({"input": ["a", ("[MASK]", "orange")], "labels": [".", "cat"]}),
    "bert_input": lambda: view.bert_input(["[CLS]", "a", "[SEP]", "b", "[SEP]"], [0, 0, 0, 1, 1]),
    "gpt1_inputs": view.gpt1_inputs,
    "gelu": view.gelu,
    "timeline": view.timeline,
    "lesson_map": lambda: view.lesson_map("09_bert", ["00_start_here", "09"]),
}
WIDGETS: dict[str, Callable[[], view.Html]] = {
    "attention": lambda: view.attention(WEIGHTS, WORDS),
    "masking": lambda: view.masking(["[CLS]", "a", "cat", "[SEP]"], [0, 1, 1, 0], ["[CLS]", "[MASK]", "cat", "[SEP]"]),
    "samples": lambda: view.samples([(0, 8.0, ["x </script><b>"]), (9, 2.0, ["the cat", "a dog"])]),
    "fill_in": lambda: view.fill_in([view.Blank("The [MASK] barked.", "dog", [("dog", 0.7), ("</script>", 0.1)])]),
    "quiz": lambda: view.quiz("Why `1/sqrt(d)` & <b>?", ["speed", "variance"], 1, ["No.", "Yes."]),
    "rotation": view.rotation,
    "results_table": lambda: view.results_table(
        [view.Row("SST-2", 91.3, 88.2, (88.0, 87.0, 89.0), "partly")], unit="%"
    ),
    "table": lambda: view.table([{"a": 1, "b": 0.123456}]),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_pure_and_reproducible(name: str) -> None:
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    torch.manual_seed(0)
    before, open_before = dict(mpl.rcParams), plt.get_fignums()
    first = png(FIGURES[name]())
    torch.manual_seed(0)
    assert png(FIGURES[name]()) == first
    assert dict(mpl.rcParams) == before and plt.get_fignums() == open_before
    width, height = png_size(base64.b64decode(first))
    assert 40 < width < 1800 and 40 < height < 1400
    assert len(first) < 400_000


def png_size(data: bytes) -> tuple[int, int]:
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


class Outline(HTMLParser):
    """Open elements balanced? Which attributes and how much text outside scripts?"""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag not in ("br", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text += data + " "


@pytest.mark.parametrize("name", WIDGETS)
def test_widgets_are_sound_offline_and_deterministic(name: str) -> None:
    widget = WIDGETS[name]()
    assert widget.html == WIDGETS[name]().html == widget._repr_html_()
    outline = Outline()
    outline.feed(widget.html)
    assert outline.open == []
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|src=|@import|url\(", widget.html)
    assert repr(widget) == widget.text and "<" not in widget.text.replace("<b>", "").replace("</script>", "")
    names = [value for key, value in outline.attributes if key == "id"]
    assert len(names) == len(set(names))
    if name not in ("results_table", "table"):
        assert ("role", "group") in outline.attributes
        assert any(key == "aria-label" and value for key, value in outline.attributes)
        assert ("data-lm-suppress-shortcuts", "true") in outline.attributes


def test_widgets_of_unlike_content_have_unlike_names() -> None:
    def name(html: str) -> str:
        found = re.search(r'data-course="([^"]+)"', html)
        assert found
        return found[1]

    quizzes = [view.quiz(q, ["a", "b"], 0, ["x", "y"]).html for q in ("one", "two", "one")]
    assert name(quizzes[0]) == name(quizzes[2]) != name(quizzes[1])


def test_without_scripts_everything_can_be_read() -> None:
    def text(html: str) -> str:
        outline = Outline()
        outline.feed(html)
        return " ".join(outline.text.split())

    quiz = text(WIDGETS["quiz"]().html)
    assert "speed" in quiz and "No." in quiz and "Right. Yes." in quiz and "Not so. No." in quiz
    masking = text(WIDGETS["masking"]().html)
    assert "Chosen: 2 of 4" in masking and "replaced by [MASK]" in masking and "left as it is" in masking
    assert "dog 70.0%" in text(WIDGETS["fill_in"]().html)
    assert "thirsty" in text(WIDGETS["attention"]().html)
    assert "step 9, loss 2.00" in text(WIDGETS["samples"]().html)


def test_masking_tells_the_three_fates_apart() -> None:
    text = view.masking(list("abcd"), [True, True, True, False], ["[MASK]", "b", "x", "d"]).text
    assert "“a”: replaced by [MASK]" in text
    assert "“b”: left as it is" in text
    assert "“c”: replaced by a random token, “x”" in text
    assert "“d”" not in text


def test_only_the_labels_that_would_overlap_are_moved() -> None:
    lines = {"low": 0.1, "a": 0.98, "b": 0.99, "c": 1.0}
    (axes,) = view.curves({name: ([0, 1], [0.0, end]) for name, end in lines.items()}, y="y").axes
    bottom, top = axes.get_ylim()
    height = {label.get_text(): label.xy[1] for label in axes.texts}
    assert height["low"] == pytest.approx((0.1 - bottom) / (top - bottom))
    assert height["c"] <= 1.03
    ends = sorted(height.values())
    assert min(b - a for a, b in pairwise(ends)) > 0.04


def test_the_label_of_a_bar_below_zero_stands_below_it() -> None:
    (axes,) = view.bars({"a": -2.0, "b": 3.0}).axes
    stands = {label.get_text(): (label.xy[1], label.xyann[1], label.get_va()) for label in axes.texts}
    assert stands == {"-2.0": (-2.0, -9, "top"), "3.0": (3.0, 9, "bottom")}


def test_only_a_near_diamond_lifts_the_label_of_its_bar() -> None:
    (axes,) = view.bars({"a": 20.0, "b": 20.0}, paper={"a": 60.0, "b": 21.0}).axes
    assert [label.xy[1] for label in axes.texts] == [20.0, 21.0]


def test_the_masking_player_names_the_rate_that_was_asked_for() -> None:
    assert "the rate is 30%" in view.masking(list("ab"), [True, False], ["[MASK]", "b"], rate=0.3).text


def test_results_table_shows_missing_figures_as_a_dash() -> None:
    text = view.results_table(
        [view.Row("a", paper=1.0), {"name": "b", "here": 2.0, "verdict": "reproduced"}], unit="%"
    ).text
    header, first, second = text.split("\n")
    assert header.split() == ["measure", "paper", "(%)", "this", "run", "(%)", "verdict"]  # nothing is recorded
    assert first.split() == ["a", "1.0", "–"]
    assert second.split() == ["b", "–", "2.0", "reproduced"]
    kept = view.results_table([view.Row("a", recorded=(1.0, 0.5, 1.5)), view.Row("b", recorded=2.0)]).text
    assert [line.split() for line in kept.split("\n")] == [
        ["measure", "recorded"], ["a", "1.0", "[0.5,", "1.5]"], ["b", "2.0"]
    ]  # fmt: skip


@pytest.mark.parametrize(("epochs", "whole"), [([1, 2, 3], True), ([0.5, 1.5, 2.5], False)])
def test_there_are_no_half_epochs(epochs: list[float], whole: bool) -> None:
    axes = view.curves({"loss": (epochs, [3.0, 2.0, 1.5])}, x="epoch").axes[0]
    assert all(float(tick).is_integer() for tick in axes.get_xticks()) == whole


def test_a_table_sets_words_to_the_left_and_figures_to_the_right() -> None:
    rows = [
        {"row": "a", "says": "a long sentence", "size": "110M", "share": None, "verdict": "partly"},
        {"row": "bb", "says": "no", "size": "<1K", "share": 0.5, "verdict": ""},
    ]
    found = view.table(rows, digits=1)
    assert found.text.split("\n") == [
        "row  says             size  share  verdict",
        "a    a long sentence  110M      –  partly",
        "bb   no                <1K    0.5",
    ]
    sides = re.findall(r"text-align:(\w+)", found.html)
    assert sides == ["left", "left", "right", "right", "left"] * 3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: view.attention_map(WEIGHTS[0], WORDS), "one example and one head"),
        (lambda: view.attention_map(WEIGHTS[0, 0], WORDS[:3]), "3 row words"),
        (lambda: view.heads_grid(WEIGHTS, WORDS), r"\[H Tq Tk\]"),
        (lambda: view.mask_picture(torch.ones(2, 3, 3)), r"\[Tq Tk\]"),
        (lambda: view.attention(WEIGHTS, WORDS[:2]), "2 words"),
        (lambda: view.curves({}), "at least one series"),
        (lambda: view.curves({"a": ([1, 2], [1.0])}), "2 x values and 1 y"),
        (lambda: view.scaling({"a": ([1, 2], [0, 1])}), "not positive"),
        (lambda: view.bars({}), "at least one value"),
        (lambda: view.scatter(torch.ones(3)), r"\[N 2\]"),
        (lambda: view.tokens([("a", "mauve")]), "no tint 'mauve'"),
        (lambda: view.tokens({"a": ["x"], "b": ["y"]}, values=[1.0]), "one line only"),
        (lambda: view.bert_input(["a"], [0, 1]), "1 tokens and 2 segments"),
        (lambda: view.lesson_map("44"), "no lesson '44'"),
        (lambda: view.player([], "x"), "at least one frame"),
        (lambda: view.masking(["a"], [True, False], ["a"]), "one length"),
        (lambda: view.quiz("q", ["a", "b"], 2, ["x", "y"]), "answer 2"),
        (lambda: view.quiz("q", ["a", "b"], 0, ["x"]), "1 explanations"),
        (lambda: view.quiz("q", ["a", "b"], 0, ["x", " "]), "an explanation for each"),
        (lambda: view.fill_in([view.Blank("no mask", "a", [("a", 1.0)])]), "exactly one"),
        (lambda: view.results_table([]), "at least one row"),
        (lambda: view.results_table([{"name": "a", "ours": 1}]), "'ours'"),
        (lambda: view.show(FIGURES["gelu"](), caption="", alt="x"), "caption and a text alternative"),
        (lambda: view.show(FIGURES["gelu"](), caption="x", alt=" "), "caption and a text alternative"),
    ],
)
def test_bad_input_is_one_sentence(make: Callable[[], object], words: str) -> None:
    with pytest.raises(CourseError, match=words):
        make()


def test_show_sends_picture_alternative_and_caption(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[dict[str, str], dict[str, Any]]] = []
    monkeypatch.setattr(
        "course_lib.view.display.send", lambda data, metadata, handle=None: sent.append((data, metadata))
    )
    view.show(view.gelu(), caption="Look <here>.", alt="GELU and ReLU")
    (picture, metadata), (caption, _) = sent
    assert metadata == {"image/png": {"alt": "GELU and ReLU"}}
    assert picture["text/plain"] == "[figure: GELU and ReLU]"
    assert png_size(base64.b64decode(picture["image/png"]))[0] > 300
    assert "Look &lt;here&gt;." in caption["text/html"]


def test_outside_a_notebook_the_words_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    view.show(view.gelu(), caption="The caption.", alt="the alternative")
    assert capsys.readouterr().out == "[figure: the alternative]\nThe caption.\n"


@dataclass(frozen=True)
class Step:
    step: int
    loss: float


def test_live_yields_every_record_and_one_still_picture(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TQDM_DISABLE", "1")
    steps = [Step(i, 5.0 - i) for i in range(1, 4)]
    assert view.live(iter(steps), 3) == steps
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.startswith("[figure: loss against step, from 4.00 at step 1 to 2.00 at step 3.]\n")
    assert view.live(iter(steps), 3, picture=False) == steps
    assert capsys.readouterr().out == ""
    assert view.live(iter([]), 3) == []


def test_live_lets_an_error_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> Any:
        yield Step(1, 1.0)
        raise CourseError("The loss is NaN.")

    monkeypatch.setenv("TQDM_DISABLE", "1")
    with pytest.raises(CourseError, match="NaN"):
        view.live(failing(), 2)


def test_progress_stays_small_however_long_the_run() -> None:
    from course_lib.view.live import progress_html

    html = progress_html([(i, 5.0 / i) for i in range(1, 20_001)], 20_000, "loss", 10.0)
    assert len(html) < 5_000
    assert 'value="20000"' in html


def test_timeline_states_what_it_says() -> None:
    models = json.loads(TIMELINE.read_text(encoding="utf-8"))["models"]
    assert len({m["model"] for m in models}) == len(models) >= 15
    for m in models:
        year, month = map(int, m["date"].split("-"))
        assert 2013 <= year <= 2023 and 1 <= month <= 12
        assert m["family"] in {"static", "recurrent", "encoder", "decoder", "encoder-decoder"}
        assert re.search(r"20\d\d$", m["venue"]) and m["paper"]
        assert m["parameters"] is None or m["parameters"] > 1e6
        assert (m["data"] is None) == (m["unit"] is None)


def test_plotting_libraries_are_imported_only_when_used() -> None:
    code = "import sys, course_lib.view, course_lib.check, course_lib.lesson; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"matplotlib", "IPython", "ipywidgets", "scipy"} & set(done.stdout.split())


def test_end_labels_do_not_cover_each_other() -> None:
    figure = view.curves({name: [3.0, 1.0 + 0.001 * i] for i, name in enumerate("abcde")})
    figure.canvas.draw()
    axes = figure.axes[0]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 5
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])


@pytest.mark.parametrize("log", [False, True])
def test_end_labels_stand_at_the_ends_of_their_lines(log: bool) -> None:
    series = {"high": [9.0, 8.0] * 20, "low": [9.0, 0.1] * 20}
    figure = view.curves(series, log_y=log, smooth=3 if log else 1)
    figure.canvas.draw()
    axes = figure.axes[0]
    heights = {t.get_text(): t.get_window_extent().get_points()[:, 1].mean() for t in axes.texts}
    for line, name in zip([x for x in axes.lines if x.get_alpha() is None], series, strict=True):
        end = axes.transData.transform((1, line.get_ydata()[-1]))[1]
        assert abs(heights[name] - end) < 12
