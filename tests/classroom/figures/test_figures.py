"""Figures and tables: no global state, the same bytes twice, what they show is right, bad input
named.
"""

import base64
import re
from collections.abc import Callable
from itertools import combinations, pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from matplotlib.colors import to_hex

from classroom import figures
from classroom.figures import style
from classroom.figures.display import png
from classroom.figures.labels import place_labels
from classroom.figures.live import progress_html
from classroom.figures.style import BLUE, canvas
from classroom.figures.trees import probability
from classroom.records.figures import figure
from course_lib import CourseError
from course_lib.families import preset
from course_lib.model.seq2seq import encoder_config

WORDS = ["The", "cat", "drank", "because", "it", "was", "thirsty"]
WEIGHTS = torch.randn(4, 7, 7, generator=torch.Generator().manual_seed(0)).mul(2).softmax(-1)
MASKS = {"causal": torch.ones(7, 7).tril().bool(), "full": torch.ones(7, 7)}
SCORES: dict[str, dict[str, float | None]] = {
    "a": {"x": 1.0, "y": 60.5},
    "b": {"x": 2.0, "y": None},
}
ARC_WORDS, GOVERNORS = ["the", "cat", "sat", "<down>"], [1, 2, -1, 2]
NEXT = torch.eye(4).roll(1, dims=1)  # everybody looks at the next word, the last at the first
TABLE = {(): {"a": 0.6, "b": 0.4}, ("a",): {"x": 0.5, "y": 0.5}, ("b",): {"x": 0.9, "y": 0.1}}
RISING = {"a": [3.0, 2.0, 1.0], "b": ([1, 2], [2.0, 1.9])}
BAND = {"a": ([2.0, 1.0], [4.0, 3.0])}
GROUPS = {"SST": {"a": 1.0, "b": [2.0, 3.0]}, "CoLA": {"a": 2.0}}
LINES = {"input": ["a", ("[MASK]", "orange")], "labels": [".", "cat"]}
MERGES = {("a", "b"): 0, ("c", "ab"): 1}
SHARES = {"a": -1.0, "b": -2.0, "c": -1.0, "ab": -1.5, "bc": -4.0}
PAIRS = [("w", "x"), ("y", "z")]
ARROWS = {"one": {"q": torch.tensor([0.0, 1.0])}, "two": {"q": [1, 0], "k": [0, -1]}}

FIGURES: dict[str, Callable[[], Any]] = {
    "attention_map": lambda: figures.attention_map(WEIGHTS[0], WORDS),
    "heads_grid": lambda: figures.heads_grid(WEIGHTS, WORDS),
    "mask_picture": lambda: figures.mask_picture(MASKS, WORDS),
    "looks": lambda: figures.looks(WORDS, WEIGHTS[0, -1], "milk"),
    "looks in a long text": lambda: figures.looks(WORDS * 9, WEIGHTS[0, -1].repeat(9) / 9),
    "one_query": lambda: figures.one_query(
        WORDS[:3], 1, [4.5, 0.5], torch.eye(3)[:, :2], torch.eye(3)[:, 1:], [0.2, 0.1, 0.7]
    ),
    "heads_layer": lambda: figures.heads_layer(torch.eye(3).expand(2, 3, 3)),
    "heads_split": lambda: figures.heads_split(4, 2, 3),
    "staircase": lambda: figures.staircase(WORDS, WEIGHTS[0], MASKS["causal"]),
    "curves": lambda: figures.curves(RISING, marks={2: "x"}, levels={"chance": 2.5}),
    "curves with bands": lambda: figures.curves(
        {"a": [3.0, 2.0]}, bands=BAND, log_x=True, log_y=True
    ),
    "bars": lambda: figures.bars(
        {"a": [80.0, 81.0, 82.0], "b": 70.0}, paper={"a": 85.0}, levels={"chance": 50}
    ),
    "bars in groups": lambda: figures.bars(GROUPS, paper={"SST / a": 3.0}),
    "vector_strips": lambda: figures.vector_strips(["x", "y"], torch.randn(2, 9)),
    "push_pull": lambda: figures.push_pull(
        "drank", {"milk": 1, "the": 0}, {"before": ([1.0, 0.0], torch.eye(2))}, [0.1, 0.2]
    ),
    "word_matrix": lambda: figures.word_matrix({"mine": torch.eye(3)}, ["x", "y", "z"], "aab"),
    "parallelogram": lambda: figures.parallelogram(
        PAIRS, {name: torch.eye(4)[i] for i, name in enumerate("wxyz")}, moved=("w", "x", "y")
    ),
    "who_sees_whom": lambda: figures.who_sees_whom(
        WORDS, {"ELMo": [MASKS["causal"], MASKS["causal"].T], "BERT": [MASKS["full"]]}, gap=2
    ),
    "gap_guesses": lambda: figures.gap_guesses(
        "a [MASK] c", {"x": ("a", [("b", 0.6), ("d", 0.1)]), "y": ("a [MASK] c", [("b", 1.0)])}
    ),
    "tokens": lambda: figures.tokens(WORDS * 6),
    "tokens in rows": lambda: figures.tokens(LINES),
    "merge_tree": lambda: figures.merge_tree("abcab", MERGES),
    "lattice": lambda: figures.lattice("abc", SHARES, ["ab", "c"]),
    "bert_input": lambda: figures.bert_input(
        ["[CLS]", "a", "[SEP]", "b", "[SEP]"], [0, 0, 0, 1, 1]
    ),
    "gpt1_inputs": figures.gpt1_inputs,
    "next_tokens": lambda: figures.next_tokens(["the", "cat", "sat", "."], [0.1, 0.5, 0.9]),
    "bert_heads": figures.bert_heads,
    "span_table": lambda: figures.span_table(["a", "b"], [0.5, 1.0], [2.0, -1.0]),
    "score_grid": lambda: figures.score_grid(SCORES),
    "layer_lines": lambda: figures.layer_lines({"a": [[1.0, 2.0], [2.0, 3.0]]}),
    "probe_layers": lambda: figures.probe_layers(["a", "cat"], 1, ["x", "y", "z"]),
    "head_arcs": lambda: figures.head_arcs(NEXT, ARC_WORDS, GOVERNORS, title="head 1-1"),
    "search_tree": lambda: figures.search_tree(TABLE, {"best": ("b", "x")}),
    "alignment": lambda: figures.alignment(torch.eye(2), ["der", "Hund"], ["the", "dog"]),
    "three_attentions": lambda: figures.three_attentions(
        {"one": (torch.ones(1, 2), ["x"], ["a", "b"])}, focus=[0]
    ),
    "residual_stream": lambda: figures.residual_stream([1.0, 2.0], {"f": [0.5, -1.0]}, token="x"),
    "arrows": lambda: figures.arrows(ARROWS),
    "signed_map": lambda: figures.signed_map([[1.0, -1.0]], size=(2, 1), bar="sign"),
    "number_map": lambda: figures.number_map({"d": [[0, 1], [-1, 0]]}),
    "block": figures.block,
    "stacks": figures.stacks,
    "model": lambda: figures.model(
        [figures.tower(preset("bert-base"), ["[CLS]", "a"], "head", {0: "yes"})]
    ),
    "flow": lambda: figures.flow({"a": (0, 0, "plain"), "b": (4, 1, "blue")}, [("a", "b", "then")]),
    "two_encoders": lambda: figures.two_encoders("question", ["text 1", "text 2"]),
    "pooling": lambda: figures.pooling(["[CLS]", "a", "[PAD]"], torch.eye(3), [True, True, False]),
    "batch_matrix": lambda: figures.batch_matrix({"before": torch.eye(3)}, ["a", "b", "c"]),
    "sentence_map": lambda: figures.sentence_map(
        {"encoder": torch.randn(13, 4)}, ["bread", "bike"] * 6, ["bread"], question="Why?"
    ),
    "new_weights": lambda: figures.new_weights({"LoRA": 9, "adapter": 9, "prefix": 9, "prompt": 1}),
    "low_rank": lambda: figures.low_rank(torch.ones(6, 2), torch.ones(2, 9), torch.ones(6, 9)),
    "expectations": lambda: figures.expectations("ab$", [0, 1, 2], torch.eye(3)),
    "continuation": lambda: figures.continuation(["a", "b", "c"], 1, [0.5, 0.25]),
    "sampling": lambda: figures.sampling(
        "abc", [0.6, 0.3, 0.1], {"cut": [1, 0, 0], "as it is": [0.6, 0.3, 0.1]}, shown=2, text="a b"
    ),
    "cache_steps": lambda: figures.cache_steps(["a", "b", "c"], torch.eye(3)),
    "free_questions": lambda: figures.free_questions(["a", "b", "c"]),
    "one_network": figures.one_network,
    "over_labels": lambda: figures.over_labels(
        {"a": [(60.0, 55.0, 65.0), (70.0, 65.0, 75.0)], "b": [(50.0, 45.0, 55.0)] * 2}, (20, 50), 50
    ),
    "next_words": lambda: figures.next_words({"t": (["a", "b"], torch.tensor([0.6, 0.4]))}),
    "two_means": lambda: figures.two_means(["a", "b"], torch.eye(2), [0, 1], [0.0, 0.9], "new"),
    "clocks": lambda: figures.clocks(["a", "b"], torch.rand(2, 1, 2), ["fast"]),
    "position_doors": figures.position_doors,
    "bias_maps": lambda: figures.bias_maps({"ALiBi": -torch.rand(2, 4, 4)}),
    "by_position": lambda: figures.by_position({"none": [0.0, 1.0]}, mark=1),
    "echoes": lambda: figures.echoes("a b", {"none": "a c"}, mark=2),
    "letter_filters": lambda: figures.letter_filters(list("<a>"), {"a": [1.0, 0.5]}),
    "lstm_steps": lambda: figures.lstm_steps(["a", "bank"]),
    "two_readers": lambda: figures.two_readers(["a", "bank"], 1),
    "timeline": figures.timeline,
    "lesson_map": lambda: figures.lesson_map("09_bert"),
}


TWICE = ("attention_map", "curves with bands", "lesson_map", "search_tree")


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_pure_and_reproducible(name: str) -> None:
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    before, open_before = dict(mpl.rcParams), plt.get_fignums()
    torch.manual_seed(0)
    first = png(FIGURES[name](), dpi=55)
    if name in TWICE:
        torch.manual_seed(0)
        assert png(FIGURES[name](), dpi=55) == first
    assert dict(mpl.rcParams) == before and plt.get_fignums() == open_before
    width, height = png_size(first)
    assert 20 < width < 900 and 20 < height < 700 and len(first) < 200_000


def png_size(picture: str) -> tuple[int, int]:
    data = base64.b64decode(picture)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def words(figure: Any) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_a_decoder_is_drawn_with_its_targets_one_place_to_the_left() -> None:
    figure = figures.next_tokens(["the", "cat", "sat", "."], [0.1, 0.5, 0.9], focus=1)
    x, y = {}, {}
    for text in figure.axes[0].texts:
        x.setdefault(text.get_text(), []).append(text.get_position()[0])
        y.setdefault(text.get_text(), []).append(text.get_position()[1])
    predicted, read = 0, 1  # "cat" is drawn as the first target, then as the second input
    assert x["cat"][predicted] == x["the"][0] and y["cat"][predicted] > y["the"][0]
    assert x["0.50"] == [x["cat"][read]] == [x["sat"][predicted]]
    assert len(x["the"]) == len(x["."]) == 1  # the first is only read, the last only predicted
    seen = [line.get_xdata()[0] for line in figure.axes[0].lines]
    assert sorted(seen) == [x["the"][0], x["cat"][read]]  # itself and what stands to the left


def test_slides_show_more_pixels_of_the_same_figure() -> None:
    figure = FIGURES["signed_map"]()
    (narrow, _), (wide, _) = png_size(png(figure)), png_size(png(figure, dpi=220))
    assert wide == pytest.approx(2 * narrow, rel=0.05)
    assert figure.axes[0].images[0].get_clim() == (-1.0, 1.0)  # white at zero


def test_every_number_is_written() -> None:
    assert words(FIGURES["number_map"]()) == ["0", "+1", "-1", "0"]


def test_score_grid_has_the_best_of_each_column_in_bold_and_leaves_gaps() -> None:
    texts = figures.score_grid(SCORES).axes[0].texts
    assert [(t.get_text(), t.get_weight()) for t in texts] == [
        ("1.0", "normal"),
        ("2.0", "bold"),
        ("60.5", "bold"),
    ]


def test_blocks_and_stacks_have_their_parts() -> None:
    block, stacks = words(figures.block()), words(figures.stacks())
    assert [block.count(part) for part in ("attention", "feed-forward", "norm", "+")] == [
        2,
        2,
        4,
        4,
    ]
    assert [
        stacks.count(part) for part in ("attention", "causal attention", "cross-attention")
    ] == [2, 2, 1]


def test_error_bars_are_the_records_interval() -> None:
    drawn = figures.bars({"a": [1.0, 2, 4]}, y="")
    (bar,) = drawn.axes[0].collections[0].get_segments()
    assert sorted(bar.flat)[:1] + sorted(bar.flat)[-1:] == pytest.approx(
        list(figure([1.0, 2, 4]).interval or ())
    )


def test_a_whole_model_follows_its_configuration() -> None:
    decoder = preset("transformer-base")
    encoder = figures.tower(encoder_config(decoder), ["die", "Katze"])
    said = words(figures.model([encoder, figures.tower(decoder, ["the"])]))
    assert [
        said.count(part) for part in ("layer norm", "attention, both sides", "attention, causal")
    ] == [5, 1, 1]
    assert said.count("attention to the encoder") == 1 and said.count("+") == 2 * 2 + 3
    pre = figures.tower(preset("t5-mini"), ["a"], "vocabulary", {0: "b"})
    assert pre.block[0] == ("RMS norm", "| attention, causal, T5Buckets") and pre.after == [
        "RMS norm"
    ]


def test_arrows_stand_where_they_are_given() -> None:
    figure = figures.arrows(ARROWS)
    assert [axes.get_title(loc="center") for axes in figure.axes] == ["one", "two"]
    assert [t.xy for t in figure.axes[1].texts if not t.get_text()] == [(1.0, 0.0), (0.0, -1.0)]
    label = next(t for t in figure.axes[0].texts if t.get_text() == "q")
    assert label.get_position()[1] > 1 > label.get_position()[0]


def test_looks_have_an_arc_for_each_large_weight_and_lose_the_beginning_of_a_long_text() -> None:
    weights = torch.tensor([0.01, 0.3, 0.0, 0.0, 0.6, 0.0, 0.09])
    figure = figures.looks(WORDS, weights, "milk")
    lines = figure.axes[0].lines
    assert len(lines) == 2 and lines[0].get_linewidth() < lines[1].get_linewidth()
    assert words(figure) == [*WORDS, "milk", "0.30", "0.60", "0.09"]
    shown = words(FIGURES["looks in a long text"]())
    assert 7 < sum(word in WORDS for word in shown) < 63 and shown.count("thirsty") > 1


def test_one_query_writes_query_keys_weights_values_and_their_mixture() -> None:
    shown = words(FIGURES["one_query"]())
    assert [text for text in shown if re.fullmatch(r"\d\.\d\d", text)] == ["0.20", "0.10", "0.70"]
    assert shown[shown.index("0.70") + 3 :][:2] == ["0.1", "0.7"]  # 0.1 and 0.7 of the values


def test_heads_are_split_rightly_in_the_middle_and_wrongly_on_the_right() -> None:
    before, right, wrong = ([t.get_text() for t in a.texts] for a in FIGURES["heads_split"]().axes)
    assert before == [str(number) for number in range(24)]
    assert right[:4] == ["head 0", "0", "1", "2"] and right[4] == "6"
    assert wrong[4] == "3" and sorted(wrong) == sorted(right)


def test_behind_the_stairs_every_weight_is_zero() -> None:
    scores, masked, shares = (
        [t.get_text() for t in axes.texts] for axes in FIGURES["staircase"]().axes
    )
    assert len(scores) == 49 and masked.count("−∞") == shares.count("0") == 21
    assert shares[0] == "1.00"


def test_search_tree_multiplies_along_its_branches() -> None:
    assert probability(TABLE, ("b", "x")) == pytest.approx(0.36)
    shown = words(FIGURES["search_tree"]())
    assert "0.360   best" in shown and shown.count("0.300") == 2


def test_a_head_has_an_arc_a_word_and_the_parse_one_a_governor() -> None:
    figure = figures.head_arcs(NEXT, ARC_WORDS, GOVERNORS)
    lines = figure.axes[0].lines
    assert len(lines) == 3 + 4 and len({line.get_color() for line in lines[3:]}) == 3
    assert [word for word in words(figure) if word] == ARC_WORDS
    plain = figures.head_arcs(NEXT, ARC_WORDS, [-1] * 4).axes[0].lines
    assert len(plain) == 4 and {line.get_color() for line in plain} == {BLUE}  # no parse


def test_a_probe_reads_one_word_at_each_layer() -> None:
    figure = figures.probe_layers(["a", "cat"], 1, ["x", "y", "z"])
    shown = words(figure)
    assert [shown.count(text) for text in ("probe", "x", "y", "z")] == [3, 1, 1, 1]
    assert shown.index("x") < shown.index("z") and "layer 2" in shown
    (axes,) = figure.axes
    read = [patch for patch in axes.patches if patch.get_label() == "read"]
    assert len(read) == 3 and len({patch.get_x() for patch in read}) == 1


def test_lines_over_layers_take_intervals_and_draws() -> None:
    lines = {"a": [(1.0, 0.5, 1.5), (2.0, 1.5, 2.5)], "b": [[1.0, 3.0], [4.0, 4.0]]}
    (axes,) = figures.layer_lines(lines, levels={"guess": 0.0}).axes
    assert [list(line.get_ydata()) for line in axes.lines[:2]] == [[1.0, 2.0], [2.0, 4.0]]
    first = axes.collections[0].get_paths()[0].get_extents()
    assert (first.y0, first.y1) == (0.5, 2.5)


def test_a_decoder_sees_no_word_behind_the_hidden_one() -> None:
    left, right = figures.free_questions(["a", "b", "c"]).axes
    said = [[text.get_text() for text in axes.texts] for axes in (left, right)]
    assert said == [["a", "b", "", "a", "b", "c"], ["a", "b", "c", "a", "b", "c"]]


def test_two_means_writes_the_distances() -> None:
    points = [[0.0, 0.0], [0.0, 2.0], [4.0, 1.0]]
    drawn = figures.two_means(["a", "b", "c"], points, [0, 0, 1], [3.0, 1.0], "new")
    assert {"3.00", "1.00", "new", "a", "mean of\npositive"} <= set(words(drawn))


def test_next_words_have_their_probabilities() -> None:
    said = words(FIGURES["next_words"]())
    assert said == ["60%", "40%"]


def test_what_the_shown_words_leave_is_a_bar_of_its_own() -> None:
    drawn = figures.next_words({"t": (["a", "b"], torch.tensor([0.5, 0.2]))})
    assert words(drawn) == ["50%", "20%", "30%"]
    names = [label.get_text() for label in drawn.axes[0].get_yticklabels()]
    assert names == ["a", "b", "all others"]


def test_over_labels_puts_no_interval_on_another() -> None:
    (axes,) = FIGURES["over_labels"]().axes
    bars = [segment for drawn in axes.collections for segment in drawn.get_segments()]
    assert len({bar[0][0] for bar in bars}) == len(bars) == 4
    assert {tuple(bar[:, 1]) for bar in bars} == {(55.0, 65.0), (65.0, 75.0), (45.0, 55.0)}


def test_one_network_has_four_uses() -> None:
    said = words(figures.one_network())
    assert said.count("unchanged") == 3 and sum("trained on" in text for text in said) == 1


def test_only_the_labels_that_would_overlap_are_moved() -> None:
    lines = {"low": 0.1, "a": 0.98, "b": 0.99, "c": 1.0}
    figure = figures.curves({name: [0.0, end] for name, end in lines.items()})
    figure.canvas.draw()
    (axes,) = figure.axes
    bottom, top = axes.get_ylim()
    height = {label.get_text(): label.xy[1] for label in axes.texts}
    assert height["low"] == pytest.approx((0.1 - bottom) / (top - bottom)) and height["c"] <= 1.03
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])


@pytest.mark.parametrize(("log", "smooth"), [(False, 1), (True, 3)])
def test_end_labels_stand_at_the_ends_of_their_lines(log: bool, smooth: int) -> None:
    series = {"high": [9.0, 8.0] * 20, "low": [9.0, 0.1] * 20}
    figure = figures.curves(series, log_y=log, smooth=smooth)
    figure.canvas.draw()
    axes = figure.axes[0]
    heights = {t.get_text(): t.get_window_extent().get_points()[:, 1].mean() for t in axes.texts}
    for line, name in zip([x for x in axes.lines if x.get_alpha() is None], series, strict=True):
        end = axes.transData.transform((1, line.get_ydata()[-1]))[1]
        assert abs(heights[name] - end) < 12


def test_a_bars_label_stands_below_zero_or_above_a_near_diamond() -> None:
    (axes,) = figures.bars({"a": -2.0, "b": 3.0}).axes
    stands = {
        label.get_text(): (label.xy[1], label.xyann[1], label.get_va()) for label in axes.texts
    }
    assert stands == {"-2.0": (-2.0, -9, "top"), "3.0": (3.0, 9, "bottom")}
    (axes,) = figures.bars({"a": 20.0, "b": 20.0}, paper={"a": 60.0, "b": 21.0}).axes
    assert [label.xy[1] for label in axes.texts] == [20.0, 21.0]


@pytest.mark.parametrize(("epochs", "whole"), [([1, 2, 3], True), ([0.5, 1.5, 2.5], False)])
def test_there_are_no_half_epochs(epochs: list[float], whole: bool) -> None:
    axes = figures.curves({"loss": (epochs, [3.0, 2.0, 1.5])}, x="epoch").axes[0]
    assert all(float(tick).is_integer() for tick in axes.get_xticks()) == whole


def test_a_table_sets_words_to_the_left_and_figures_to_the_right() -> None:
    rows = [
        {"row": "a", "says": "a long sentence", "size": "110M", "share": None, "verdict": "partly"},
        {"row": "bb", "says": "no", "size": "<1K", "share": 0.5, "verdict": ""},
    ]
    found = figures.table(rows, digits=1)
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
        (
            lambda: figures.attention_map(WEIGHTS[0], WORDS[:3]),
            "3 row words .* one example and one head",
        ),
        (lambda: figures.head_arcs(torch.ones(3, 3), ARC_WORDS, GOVERNORS), "weights .* 4 4"),
        (
            lambda: figures.show(FIGURES["block"](), caption="x", alt=" "),
            "caption and a text alternative",
        ),
    ],
)
def test_bad_input_is_one_sentence(make: Callable[[], object], words: str) -> None:
    with pytest.raises(CourseError, match=words):
        make()


def test_show_sends_picture_alternative_and_caption(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[dict[str, str], dict[str, Any]]] = []
    monkeypatch.setattr(
        "classroom.figures.display.send", lambda data, metadata: sent.append((data, metadata))
    )
    figures.show(figures.block(), caption="Look <here>.", alt="Two orders")
    (picture, metadata), (caption, _) = sent
    assert (
        metadata == {"image/png": {"alt": "Two orders"}}
        and picture["text/plain"] == "[figure: Two orders]"
    )
    assert png_size(picture["image/png"])[0] > 300 and "Look &lt;here&gt;." in caption["text/html"]


def test_live_yields_all_and_one_picture(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TQDM_DISABLE", "1")
    steps = [SimpleNamespace(step=i, loss=5.0 - i) for i in range(1, 4)]
    assert figures.train_with_progress(iter(steps), 3) == steps
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.startswith(
        "[figure: loss against step, from 4.00 at step 1 to 2.00 at step 3.]\n"
    )
    assert figures.train_with_progress(iter(steps), 3, picture=False) == steps
    assert capsys.readouterr().out == "" and figures.train_with_progress(iter([]), 3) == []


def test_progress_stays_small_however_long_the_run() -> None:
    html = progress_html([(i, 5.0 / i) for i in range(1, 20_001)], 20_000, "loss", 10.0)
    assert len(html) < 5_000 and 'value="20000"' in html


def test_labels_of_near_points_do_not_lie_on_each_other() -> None:
    near = [(3.76, 72.8), (3.91, 72.9), (4.24, 72.7), (6.07, 74.7), (3.91, 56.5)]
    figure, axes = canvas(8.0, 5.6)
    axes.scatter(*zip(*near, strict=True))
    axes.margins(0.12)
    place_labels(axes, near, ["BitFit", "LoRA", "adapters", "everything", "prefix"])
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in axes.texts]
    assert len(boxes) == 5 and not any(a.overlaps(b) for a, b in combinations(boxes, 2))


def test_a_misspelled_option_of_the_axes_is_refused():
    with pytest.raises(TypeError, match="'logx'"):
        figures.curves({"a": [1.0, 2.0]}, logx=True)


def test_padding_is_not_in_the_drawn_mean() -> None:
    drawn = figures.pooling(["[CLS]", "[PAD]"], [[1.0, 3.0], [9.0, 9.0]], [True, False])
    said = words(drawn)
    assert said.count("1.0") == said.count("3.0") == 3  # the token, [CLS] and the mean
    assert "not counted" in said


def test_a_ranking_has_the_best_first() -> None:
    found = figures.ranking(["low", "high", "middle"], [[0.1, 0.9, 0.5]], k=2)
    assert repr(found).splitlines() == ["0.90  high", "0.50  middle"]


def test_a_duel_shows_the_largest_differences_on_both_sides() -> None:
    by_words = [[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]
    by_vectors = [[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [3.0, 1.0, 2.0]]
    shown = figures.duel(
        ["one", "two", "three"], [{0}, {0}, {0}], {"words": by_words, "vectors": by_vectors}, k=1
    )
    lines = [line.split() for line in repr(shown).splitlines()[1:]]
    assert lines == [["two", "3", "1"], ["one", "1", "3"]]


def test_neighbouring_tokens_have_two_colours_and_special_ones_are_dark() -> None:
    tokens = [*"abcdefgh", "[UNK]", "<unk>"]
    tints = [tint for _, tint in figures.coloured(tokens)]
    assert all(a != b for a, b in pairwise(tints[:9]))
    assert tints[8:] == ["dark", "dark"] and "dark" not in tints[:8]


def test_cuts_count_the_tokens_and_escape_them() -> None:
    cut = figures.cuts({"<b>": ["<i>", "x"], "one": ["x"]})
    assert cut.text == "<b>: 2 tokens\n  <i> | x\none: 1 token\n  x"
    assert "<i>" not in cut.html and "&lt;i&gt;" in cut.html


def test_the_merge_tree_joins_what_was_learned_first() -> None:
    tree = figures.merge_tree("abcab", MERGES)
    said = [text.get_text() for text in tree.axes[0].texts]
    # five letters, ab twice by merge 1, then cab by merge 2
    assert sorted(said) == sorted([*"abcab", "ab", "1", "ab", "1", "cab", "2"])
    thick = [patch for patch in tree.axes[0].patches if patch.get_linewidth() > 1.5]
    assert len(thick) == 2  # the tokens ab and cab


def test_the_lattice_has_an_arc_for_each_token_that_fits() -> None:
    drawn = figures.lattice("abc", SHARES, ["ab", "c"]).axes[0]
    thick = [line for line in drawn.lines if line.get_linewidth() > 3]
    assert [(line.get_xdata()[0], line.get_xdata()[-1]) for line in thick] == [(0, 2), (2, 3)]
    labels = {text.get_text().split()[0] for text in drawn.texts if " " in text.get_text()}
    assert labels == set(SHARES)


def frames(figure: Any, colour: str) -> int:
    """How many boxes have a frame of this colour, in all panels."""
    patches = [patch for axes in figure.axes for patch in axes.patches]
    return sum(to_hex(patch.get_edgecolor()).upper() == colour for patch in patches)


def test_what_comes_next_is_framed_where_it_was_expected() -> None:
    sure = torch.tensor([[0.1, 0.8, 0.1], [0.1, 0.2, 0.7], [1.0, 0.0, 0.0]])
    assert frames(figures.expectations("abc", [0, 1, 2], sure, rows=1), style.GREEN) == 2
    assert frames(figures.expectations("abc", [0, 2, 1], sure, rows=1), style.GREEN) == 0


def test_a_sampler_says_what_it_cuts_and_how_much_is_left() -> None:
    own = [0.5, 0.3, 0.15, 0.05]
    panels = {"top-k 1": [1.0, 0, 0, 0], "all": own}
    cut, whole = figures.sampling("abcd", own, panels, shown=2).axes
    assert [text.get_text() for text in cut.texts] == ["100%", "cut", "cut"]
    assert [text.get_text() for text in whole.texts] == ["50%", "30%", "20%"]
    assert "1 of 4 tokens" in cut.get_title("left")


def test_a_cache_computes_each_key_once() -> None:
    drawn = figures.cache_steps(["a", "b", "c"], torch.eye(3))
    without, cached = drawn.axes
    assert "6 keys" in without.get_title("left")
    assert "3 keys" in cached.get_title("left")
    assert frames(drawn, style.VERMILION) == 6 + 3


def test_a_drawn_word_has_its_probability_beside_it() -> None:
    drawn = figures.push_pull(
        "drank", {"milk": 1, "the": 0}, {"now": ([2.0, 0.0], [[1.0, 0], [0, 1]])}
    )
    assert {"milk 0.88", "the 0.50", "drank"} <= set(words(drawn))


def test_a_moved_arrow_of_a_true_parallelogram_ends_at_its_corner() -> None:
    corner = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0.8, 0, 0.6], [-0.2, 1, 0.6]])
    at = dict(zip("abcd", corner / corner.norm(dim=1, keepdim=True), strict=True))
    drawn = figures.parallelogram([("a", "b"), ("c", "d")], at, moved=("a", "b", "c"))
    assert "c - a + b" in [said.strip() for said in words(drawn)]
    points = [dots.get_offsets() for dots in drawn.axes[0].collections]
    (one, other), (third, _), (star, *_) = points[:3]
    assert list(star) == pytest.approx(list(third + other - one))


def test_heads_layer_shows_the_weights_of_each_head() -> None:
    (axes,) = FIGURES["heads_layer"]().axes
    assert len(axes.images) == 2
    shown = [torch.as_tensor(image.get_array()) for image in axes.images]
    assert all((matrix == torch.eye(3)).all() for matrix in shown)
    assert {"head 0", "head 1"} <= {text.get_text() for text in axes.texts}
