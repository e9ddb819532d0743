"""Anything that happens step by step, played: frames with back, next, a slider and the arrow keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from course_lib.errors import CourseError
from course_lib.view.display import Html, escape
from course_lib.view.html import BUTTON, MONO, box, boxes, card
from course_lib.view.style import TINTS

_SCRIPT = """
var items = root.querySelectorAll('[data-frame]');
var bar = root.querySelector('.controls');
var buttons = bar.querySelectorAll('button');
var range = bar.querySelector('input');
var out = bar.querySelector('output');
var dots = root.querySelectorAll('[data-dot]');
var at = 0;
function show(i) {
at = Math.max(0, Math.min(items.length - 1, i));
items.forEach(function(item, k) { item.hidden = k !== at; });
dots.forEach(function(dot, k) { dot.setAttribute('r', k === at ? 7 : 3); });
buttons[0].disabled = at === 0;
buttons[1].disabled = at === items.length - 1;
range.value = at;
out.textContent = data[at];
}
buttons[0].addEventListener('click', function() { show(at - 1); });
buttons[1].addEventListener('click', function() { show(at + 1); });
range.addEventListener('input', function() { show(+range.value); });
root.addEventListener('keydown', function(event) {
if (event.target === range) return;
if (event.key === 'ArrowRight') { show(at + 1); event.preventDefault(); }
if (event.key === 'ArrowLeft') { show(at - 1); event.preventDefault(); }
});
bar.hidden = false;
bar.style.display = 'flex';
show(0);
"""


@dataclass(frozen=True)
class Frame:
    """One step. `body` is HTML (make token lines with `boxes`); `text` is what is read where there is no HTML."""

    title: str
    body: str
    text: str = ""


def player(frames: Sequence[Frame], title: str, *, above: str = "") -> Html:
    """Frames shown one at a time; all of them, numbered, where no script runs.

    above: HTML that stays over all frames.
    """
    if not frames:
        raise CourseError("player needs at least one frame; the list is empty.")
    items = "".join(
        '<li data-frame style="margin:0 0 8px 0"><p style="margin:0 0 4px '
        f'0">{escape(frame.title)}</p>{frame.body}</li>'
        for frame in frames
    )
    count = len(frames)
    controls = (
        '<div class="controls" hidden style="gap:10px;align-items:center;flex-wrap:wrap;margin-top:8px">'
        f'<button type="button" style="{BUTTON}">&#8592; back</button>'
        f'<button type="button" style="{BUTTON}">next &#8594;</button>'
        f'<input type="range" min="0" max="{count - 1}" value="0" step="1" aria-label="step of {escape(title)}" '
        'style="flex:1 1 12em;max-width:24em;accent-color:#0072B2">'
        '<output aria-live="polite"></output></div>'
    )
    body = f'{above}<ol style="list-style:none;padding:0;margin:0">{items}</ol>{controls}'
    places = [f"{i} of {count}: {frame.title}" for i, frame in enumerate(frames, 1)]
    html = card("player", title, body, _SCRIPT, [place.split(":")[0] for place in places])
    text = "\n".join(
        [title, *(f"  {p}{' | ' + f.text if f.text else ''}" for p, f in zip(places, frames, strict=True))]
    )
    return Html(html, text)


def masking(
    tokens: Sequence[str],
    chosen: Sequence[bool] | torch.Tensor,
    corrupted: Sequence[str],
    *,
    rate: float = 0.15,
    mask: str = "[MASK]",
    title: str = "Masking, step by step",
) -> Html:
    """BERT's corruption of one sentence (Devlin et al. 2019, section 3.1) played from what the real function returned.

    Args:
        tokens: the sentence, T strings.
        chosen: Bool[T], the positions that carry loss (`at`).
        corrupted: the T tokens that the model is given.
        rate: the share of positions that was asked for.
        mask: how the mask token is written.
    """
    flags = [bool(flag) for flag in chosen]
    if not len(tokens) == len(flags) == len(corrupted):
        raise CourseError(
            f"masking needs three rows of one length; it got {len(tokens)} tokens, {len(flags)} flags and "
            f"{len(corrupted)} corrupted tokens."
        )
    places = [i for i, flag in enumerate(flags) if flag]
    share = 100 * len(places) / max(1, len(tokens))
    frames = [
        _masking_frame("The sentence as it stands in the corpus.", tokens, {}),
        _masking_frame(
            f"Chosen: {len(places)} of {len(tokens)} positions ({share:.0f}%; the rate is {rate:.0%}). "
            "Only these will be asked for; special tokens never are.",
            tokens,
            dict.fromkeys(places, "yellow"),
        ),
    ]
    shown, tints = list(tokens), dict.fromkeys(places, "yellow")
    for i in places:
        shown[i] = corrupted[i]
        tints[i], says = _fate(tokens[i], corrupted[i], mask)
        frames.append(_masking_frame(f"Position {i}, “{tokens[i]}”: {says}", shown, dict(tints)))
    asked = ", ".join(f"“{tokens[i]}” at {i}" for i in places) or "nothing"
    frames.append(_masking_frame(f"What the model sees. It must say: {asked}. Loss nowhere else.", corrupted, tints))
    legend = '<div style="font-size:13px;margin-bottom:6px">' + " ".join(
        box(name, tint)
        for name, tint in (
            ("chosen", "yellow"),
            ("[MASK], 80%", "orange"),
            ("random, 10%", "purple"),
            ("kept, 10%", "green"),
        )
    )
    return player(frames, title, above=legend + "</div>")


def samples(
    records: Sequence[tuple[int, float, Sequence[str]]], title: str = "What the model writes while it learns"
) -> Html:
    """Texts sampled at several moments of training, under the loss curve.

    records: (step, loss, texts) in the order of training.
    """
    frames = []
    for step, loss, texts in records:
        quotes = "".join(
            f'<blockquote style="{MONO};font-size:14px;margin:6px 0;padding:6px 12px;border-left:4px solid #0072B2;'
            f'background:{TINTS["plain"]};white-space:pre-wrap">{escape(text)}</blockquote>'
            for text in texts
        )
        frames.append(Frame(f"step {step}, loss {loss:.2f}", quotes, " / ".join(texts)))
    return player(frames, title, above=_spark([(s, x) for s, x, _ in records]) if len(records) > 1 else "")


def word_steps(rows: Mapping[str, Sequence[tuple[str, str]]], title: str) -> Html:
    """A player of token lines: what each frame is called -> its (token, tint) pairs."""
    return player([Frame(name, boxes(line), " ".join(t for t, _ in line)) for name, line in rows.items()], title)


def _masking_frame(title: str, tokens: Sequence[str], tints: Mapping[int, str]) -> Frame:
    line = [(token, tints.get(i, "plain")) for i, token in enumerate(tokens)]
    return Frame(title, boxes(line), " ".join(tokens))


def _fate(before: str, after: str, mask: str) -> tuple[str, str]:
    if after == mask:
        return "orange", "replaced by [MASK] (8 in 10)."
    if after == before:
        return "green", "left as it is (1 in 10), and asked for all the same."
    return "purple", f"replaced by a random token, “{after}” (1 in 10)."


def _spark(points: Sequence[tuple[int, float]]) -> str:
    """A small loss curve with a dot for each record; the script enlarges the current one."""
    wide, high = 520, 90
    steps, losses = [p[0] for p in points], [p[1] for p in points]
    low, top = min(losses), max(losses)
    xs = [60 + (wide - 80) * (s - steps[0]) / max(1e-9, steps[-1] - steps[0]) for s in steps]
    ys = [12 + (high - 34) * (top - loss) / max(1e-9, top - low) for loss in losses]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    dots = "".join(
        f'<circle data-dot cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#0072B2"/>' for x, y in zip(xs, ys, strict=True)
    )
    label = f"loss from {losses[0]:.2f} at step {steps[0]} to {losses[-1]:.2f} at step {steps[-1]}"
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {wide} {high}" width="{wide}" style="max-width:100%">'
        f'<polyline points="{path}" fill="none" stroke="#0072B2" stroke-width="2"/>{dots}'
        f'<g font-size="12" fill="#3c4043"><text x="52" y="{ys[0] + 4:.1f}" text-anchor="end">{losses[0]:.2f}</text>'
        f'<text x="52" y="{ys[-1] + 4:.1f}" text-anchor="end">{losses[-1]:.2f}</text>'
        f'<text x="{xs[0]:.1f}" y="{high - 4}" text-anchor="middle">step {steps[0]}</text>'
        f'<text x="{xs[-1]:.1f}" y="{high - 4}" text-anchor="end">step {steps[-1]}</text></g></svg>'
    )
