"""Lesson 02: wrong answers are named, what it calls exact is exact, the models have the paper's size."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from course_lib import check, data, view
from course_lib.claims.experiment import find
from course_lib.claims.record import figure
from course_lib.errors import CourseError
from course_lib.files import read_json
from course_lib.inputs import SourceTarget
from course_lib.models.transformer import transformer, transformer_base, transformer_big, transformer_lm
from course_lib.seq2seq import shift_right
from course_lib.tokenizers import train_wordpiece

PAPER = read_json(Path(__file__).resolve().parents[2] / "data/papers/02_transformer.json")
Tensor = torch.Tensor


def _norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    variance = x.var(-1, keepdim=True, unbiased=False)
    return (x - x.mean(-1, keepdim=True)) / (variance + 1e-5).sqrt() * w + b


def _branch(x: Tensor, f: Any, norm: Any, pre: bool) -> Tensor:
    return x + f(norm(x)) if pre else norm(x + f(x))


def _shift(target: Tensor, start: int) -> Tensor:
    return torch.cat((torch.full_like(target[:, :1], start), target[:, :-1]), dim=1)


def _smooth(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    log_p = logits.log_softmax(-1)
    right = log_p.gather(-1, target[:, None])[:, 0]
    return -((1 - smoothing) * right + smoothing * log_p.mean(-1)).mean()


def _beam(scores: Tensor, log_probs: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    score, flat = (scores[:, None] + log_probs).flatten().topk(width)
    return flat // log_probs.shape[-1], flat % log_probs.shape[-1], score


RIGHT: dict[str, Callable[..., Any]] = {
    "layer_norm": _norm,
    "residual_branch": _branch,
    "decoder_input": _shift,
    "smoothed_loss": _smooth,
    "beam_step": _beam,
}


def _greedy_each(scores: Tensor, log_probs: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    score, token = (scores[:, None] + log_probs).max(-1)
    return torch.arange(len(scores)), token, score


def _unordered(scores: Tensor, log_probs: Tensor, width: int) -> tuple[Tensor, ...]:
    return tuple(part.flip(0) for part in _beam(scores, log_probs, width))


def _no_mean(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w + b


WRONG: list[tuple[str, Callable[..., Any], str]] = [
    ("layer_norm", lambda x, w, b: (x - x.mean(-1, True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt() * w + b, "D - 1"),
    ("layer_norm", lambda x, w, b: F.layer_norm(x.mT, x.mT.shape[-1:]).mT * w + b, "dim=-1"),
    ("layer_norm", lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-3), "differ"),
    (
        "layer_norm",
        lambda x, w, b: (x - x.mean(-1, True)) / (x.std(-1, keepdim=True, unbiased=False) + 1e-5) * w + b,
        "outside the square root",
    ),
    ("layer_norm", _no_mean, "RMS"),
    ("layer_norm", lambda x, w, b: F.layer_norm(x, x.shape[-1:], eps=1e-5), "Scale and shift"),
    ("residual_branch", lambda x, f, norm, pre: _branch(x, f, norm, not pre), "changed places"),
    ("residual_branch", lambda x, f, norm, pre: f(norm(x)) if pre else norm(f(x)), "residual is missing"),
    ("residual_branch", lambda x, f, norm, pre: norm(x) + f(norm(x)) if pre else norm(x + f(x)), "x itself"),
    ("residual_branch", lambda x, f, norm, pre: norm(x + f(x)), "both cases"),
    ("decoder_input", lambda target, start: target, "copy"),
    ("decoder_input", lambda target, start: F.pad(target, (1, 0), value=start), "one longer"),
    ("decoder_input", lambda target, start: target.roll(1, dims=1), "`start` belongs"),
    ("decoder_input", lambda target, start: F.pad(target[:, 1:], (0, 1), value=start), "left"),
    ("smoothed_loss", lambda z, t, s: F.cross_entropy(z, t), "no smoothing"),
    ("smoothed_loss", lambda z, t, s: F.cross_entropy(z, t, label_smoothing=s, reduction="sum"), "mean"),
    ("smoothed_loss", lambda z, t, s: F.cross_entropy(z, t, label_smoothing=1 - s), "changed places"),
    (
        "smoothed_loss",
        lambda z, t, s: (1 - s) * F.cross_entropy(z, t) - s / z.shape[-1] * (z.log_softmax(-1).sum(-1).mean()) * 0,
        "differ",
    ),
    ("beam_step", lambda scores, log_probs, width: _beam(0 * scores, log_probs, width), "so far are not used"),
    ("beam_step", _greedy_each, "flatten"),
    ("beam_step", _unordered, "best first"),
    ("beam_step", lambda scores, log_probs, width: _beam(scores, log_probs.exp(), width), "robabilities"),
]


@pytest.mark.parametrize("name", RIGHT)
def test_the_answer_in_the_lesson_passes(name: str) -> None:
    assert getattr(check, name)(RIGHT[name]).passed


@pytest.mark.parametrize("name", RIGHT)
def test_a_stub_is_not_written_yet(name: str) -> None:
    assert "not written" in getattr(check, name)(lambda *_: None).message


@pytest.mark.parametrize(("name", "answer", "says"), WRONG)
def test_a_wrong_answer_is_named(name: str, answer: Callable[..., Any], says: str) -> None:
    verdict = getattr(check, name)(answer)
    assert not verdict.passed
    assert says in verdict.message, verdict.message


@pytest.mark.parametrize(("size", "config"), [("base", transformer_base()), ("big", transformer_big())])
def test_the_models_have_the_papers_size(size: str, config: Any) -> None:
    said = PAPER["sizes"]["rows"][size]
    assert (config.layers, config.width, config.hidden, config.heads) == tuple(
        said[name] for name in ("layers", "width", "hidden", "heads")
    )
    with torch.device("meta"):
        count = sum(p.numel() for p in transformer_lm(config).parameters())
    assert abs(count / 1e6 / said["millions"] - 1) < 0.04


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_one_pass_is_all_prefixes(norm: Any) -> None:
    """Claim parallel-training, with padding in the source, in double precision."""
    torch.manual_seed(0)
    model = transformer_lm(transformer(40, width=16, layers=2, heads=4, norm=norm, dropout=0.0), 2).double()
    source, target = torch.randint(3, 40, (3, 7)), torch.randint(3, 40, (3, 6))
    keep = torch.arange(7) < torch.tensor([[7], [4], [2]])
    whole = F.cross_entropy(model(source, shift_right(target, 2), keep=keep).mT, target)
    total = torch.zeros((), dtype=torch.double)
    for t in range(1, 7):
        logits = model(source, shift_right(target, 2)[:, :t], keep=keep)[:, -1]
        total = total + F.cross_entropy(logits, target[:, t - 1])
    torch.testing.assert_close(whole, total / 6, rtol=1e-10, atol=1e-12)


SEARCH = [
    [view.Option(0, "a", -0.6, "kept"), view.Option(0, "the", -0.8, "kept")],
    [
        view.Option(1, "lamp", -0.9, "kept"),
        view.Option(0, "coin", -1.5, "kept"),
        view.Option(0, "mill", -1.7, "dropped"),
    ],
    [view.Option(0, "</s>", -1.0, "ended"), view.Option(1, "</s>", -1.6, "ended")],
]


def test_the_beam_widget_says_who_won_and_shows_every_option() -> None:
    widget = view.beam_tree({"2 beams": SEARCH, "short": SEARCH[:1]})
    assert "2 beams: the lamp </s> (-1.00)" in repr(widget)
    assert "short: a (-0.60)" in repr(widget)
    assert widget.html.count("<svg") == 2
    for options in SEARCH:
        for option in options:
            assert option.token.replace("<", "&lt;").replace(">", "&gt;") in widget.html


def test_a_length_penalty_changes_the_winner() -> None:
    steps = [
        [view.Option(0, "yes", -0.5, "kept"), view.Option(0, "</s>", -0.7, "ended")],
        [view.Option(0, "</s>", -0.9, "ended")],
    ]
    assert "yes </s> (-0.90)" in repr(view.beam_tree({"": steps}))
    assert ": </s> (-0.70)" in repr(view.beam_tree({"": steps}, length_penalty=0.0))


def test_the_beam_picture_has_every_option() -> None:
    texts = [text.get_text() for text in view.beam_picture(SEARCH).axes[0].texts]
    assert len(texts) == sum(map(len, SEARCH))


@pytest.mark.parametrize(
    ("searches", "says"),
    [
        ({}, "at least one search"),
        ({"x": []}, "at least one step"),
        ({"x": [SEARCH[0], [view.Option(2, "b", -1, "kept")]]}, "2 were kept"),
    ],
)
def test_a_wrong_search_is_one_sentence(searches: Any, says: str) -> None:
    with pytest.raises(CourseError, match=says):
        view.beam_tree(searches)


def test_the_lesson_runs_on_parallel_text_of_ones_own(tmp_path: Path) -> None:
    """What section 1 promises of DATA: a folder with train.en and train.de."""
    (tmp_path / "train.en").write_text("the lamp is old\nthe mill is red\n" * 8)
    (tmp_path / "train.de").write_text("die Lampe ist alt\ndie Mühle ist rot\n" * 8)
    pairs = data.task(str(tmp_path), n=12, seed=0)
    assert {tuple(pair) for pair in pairs} == {("text", "target")}
    tokenizer = train_wordpiece([pair[side] for pair in pairs for side in ("text", "target")], 120, lowercase=False)
    frame = SourceTarget(tokenizer, transformer(tokenizer.vocab.size, width=8, layers=1, heads=2))
    batch = frame.collate(frame.rows(pairs))
    assert len(batch["ids"]) == len(batch["labels"]) == 12


@pytest.mark.parametrize(
    ("known", "strangers", "verdict"),
    [(2.0, 3.0, "reproduced"), (2.0, -3.0, "partly"), (-20.0, 1.5, "partly"), (-20.0, -10.0, "not at this scale")],
)
def test_the_rule_of_the_translation_claim(known: float, strangers: float, verdict: str) -> None:
    values = {
        f"BLEU/{name}/{test}": figure([60.0 + lead, 60.2 + lead, 59.9 + lead])
        for name, ahead in (("Transformer", 1), ("attentional LSTM", 0))
        for test, lead in (("known words", ahead * known), ("strangers", ahead * strangers))
    }
    values |= {f"seconds a step/{name}": figure([0.03] * 3) for name in ("Transformer", "attentional LSTM")}
    test = find("transformer-translation")
    assert test is not None
    said, why = test.verdict(values)
    assert said == verdict
    assert f"({known:+.1f})" in why


def test_the_rule_of_the_parallel_claim() -> None:
    test = find("parallel-training")
    assert test is not None
    assert test.verdict({"agree to 1e-10": figure([1.0], exact=True)})[0] == "reproduced"
    assert test.verdict({"agree to 1e-10": figure([0.0], exact=True)})[0] == "not at this scale"
