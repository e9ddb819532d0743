"""Answers in a passage to play with: pick a question, point at a word, see how likely it starts or ends the answer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from course_lib.errors import CourseError
from course_lib.view.display import Html, escape
from course_lib.view.html import card, table

if TYPE_CHECKING:
    from course_lib.spans import Reading

LONGEST = 30  # tokens of an answer, as in course_lib.spans

_SCRIPT = """
var items = root.querySelectorAll('[data-frame]');
var pick = root.querySelector('select');
var say = root.querySelector('output');
var words = [], at = 0;
function show(k) {
at = k;
items.forEach(function(item, i) { item.hidden = i !== k; });
words = items[k].querySelectorAll('[data-word]');
say.textContent = 'Point at a word, or reach it with Tab and the arrow keys.';
}
function clear() { words.forEach(function(w) { w.style.outline = 'none'; }); }
function look(i) {
var d = data[at], total = 0, best = -1, value = -1;
for (var a = 0; a < d.start.length; a++) {
for (var b = a; b < Math.min(d.end.length, a + data[at].longest); b++) total += d.start[a] * d.end[b];
}
for (var j = i; j < Math.min(d.end.length, i + d.longest); j++) {
if (d.end[j] > value) { value = d.end[j]; best = j; }
}
clear();
for (var w = i; w <= best; w++) words[w].style.outline = '2px solid #1b1b1b';
var share = total > 0 ? d.start[i] * d.end[best] / total : 0, text = [];
for (var t = i; t <= best; t++) text.push(d.words[t]);
say.textContent = '\\u201c' + d.words[i] + '\\u201d: starts the answer ' + percent(d.start[i] / 10000) + ', ends it '
+ percent(d.end[i] / 10000) + '. Likeliest answer from here: \\u201c' + text.join(' ') + '\\u201d, ' + percent(share)
+ '.';
}
function percent(v) {
return v < 0.001 ? 'under 0.1%' : (v < 0.1 ? (100 * v).toFixed(1) : Math.round(100 * v)) + '%';
}
items.forEach(function(item) {
item.querySelectorAll('[data-word]').forEach(function(word, i, all) {
word.setAttribute('tabindex', i ? -1 : 0);
word.setAttribute('data-lm-suppress-shortcuts', 'true');
word.addEventListener('mouseenter', function() { look(i); });
word.addEventListener('click', function() { look(i); });
word.addEventListener('focus', function() { look(i); });
word.addEventListener('keydown', function(event) {
var step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
if (step && all[i + step]) { all[i + step].focus(); event.preventDefault(); }
});
});
item.addEventListener('mouseleave', clear);
});
pick.addEventListener('change', function() { show(+pick.value); });
root.querySelector('.controls').hidden = false;
show(0);
"""


def span_reader(readings: Sequence["Reading"], title: str = "Where does the answer start, where does it end?") -> Html:
    """Passages whose words are shaded by the probability of being the answer's first (above) and last word (below).

    With scripts: pick a question, point at a word. Without: every passage and its three likeliest answers.

    Raises:
        CourseError: no reading, or one whose probabilities do not fit its tokens.
    """
    if not readings:
        raise CourseError("span_reader needs at least one reading; the list is empty.")
    items, lines, data = "", [title], []
    for reading in readings:
        if not len(reading.tokens) == len(reading.start) == len(reading.end):
            raise CourseError(
                f"span_reader: {len(reading.tokens)} tokens, {len(reading.start)} start and {len(reading.end)} end "
                "probabilities; one of each is needed."
            )
        likeliest = answers(reading)
        rows = [[escape(text), f"{100 * p:.0f}%"] for text, p in likeliest]
        items += (
            '<li data-frame style="margin:0 0 12px 0"><p style="margin:6px 0"><strong>'
            f'{escape(reading.question)}</strong></p><div style="line-height:2.3">{_words(reading)}</div>'
            f'<div style="margin-top:8px">{table(["likeliest answers", "probability"], rows)}</div></li>'
        )
        said = ", ".join(f"{text} {100 * p:.0f}%" for text, p in likeliest)
        lines.append(f"  {reading.question}  ({said})")
        start, end = ([round(10_000 * p) for p in values] for values in (reading.start, reading.end))
        data.append({"words": reading.tokens, "start": start, "end": end, "longest": LONGEST})
    options = "".join(f'<option value="{i}">{escape(r.question)}</option>' for i, r in enumerate(readings))
    legend = f"{_word('start', 1.0, 0.0)} starts here &nbsp; {_word('end', 0.0, 1.0)} ends here"
    body = (
        f'<div style="font-size:13px;margin-bottom:6px" aria-hidden="true">{legend}</div>'
        '<div class="controls" hidden><label>question <select aria-label="question" style="font:inherit;padding:2px '
        f'6px;max-width:100%">{options}</select></label></div>'
        f'<ol style="list-style:none;padding:0;margin:0">{items}</ol>'
        '<output aria-live="polite" style="display:block;min-height:1.5em"></output>'
    )
    return Html(card("spans", title, body, _SCRIPT, data), "\n".join(lines))


def answers(reading: "Reading", count: int = 3) -> list[tuple[str, float]]:
    """The likeliest answers and their probabilities among all that are allowed, best first."""
    n = len(reading.tokens)
    pairs = [(i, j) for i in range(n) for j in range(i, min(n, i + LONGEST))]
    weights = [reading.start[i] * reading.end[j] for i, j in pairs]
    total = sum(weights) or 1.0
    ranked = sorted(zip(weights, pairs, strict=True), key=lambda row: (-row[0], row[1]))[:count]
    return [(" ".join(reading.tokens[i : j + 1]), weight / total) for weight, (i, j) in ranked]


def _words(reading: "Reading") -> str:
    triples = zip(reading.tokens, reading.start, reading.end, strict=True)
    return " ".join(_word(token, start, end, word=True) for token, start, end in triples)


def _word(text: str, start: float, end: float, *, word: bool = False) -> str:
    """A word between two bands: blue above as deep as the start is likely, orange below for the end."""
    mark = 'data-word role="button" ' if word else ""
    return (
        f'<span {mark}style="display:inline-block;line-height:1.5;padding:0 4px;border-top:6px solid '
        f"rgba(0,114,178,{max(start, 0.04):.2f});border-bottom:6px solid rgba(196,78,0,{max(end, 0.04):.2f});"
        f'background:rgba(250,240,184,{min(1.0, max(start, end)):.2f})">{escape(text)}</span>'
    )
