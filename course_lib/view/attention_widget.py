"""Attention to play with: pick a layer and a head, point at a word, see where it looks."""

from collections.abc import Sequence

from course_lib.errors import CourseError
from course_lib.view.display import Html, escape
from course_lib.view.html import card
from course_lib.view.style import Numbers, array

ROW, LEFT, RIGHT, WIDE = 30, 170, 430, 660

_SCRIPT = """
var words = data.words, n = words.length, rows = data.weights, NS = 'http://www.w3.org/2000/svg';
var details = root.querySelector('details');
var pick = root.querySelectorAll('select');
var say = root.querySelector('output');
var stage = root.querySelector('.stage');
var query = -1;
function el(name, attributes, parent) {
var node = document.createElementNS(NS, name);
for (var key in attributes) node.setAttribute(key, attributes[key]);
parent.appendChild(node);
return node;
}
var svg = el('svg', {viewBox: '0 0 ' + data.wide + ' ' + (n * data.row + 34), width: data.wide, role: 'group',
'aria-label': 'Words on the left look at words on the right'}, stage);
svg.style.maxWidth = '100%';
var heads = [['looks', data.left, 'end'], ['is looked at', data.right, 'start']];
heads.forEach(function(h) {
el('text', {x: h[1], y: 16, 'text-anchor': h[2], 'font-size': 13, fill: '#5f6368'}, svg).textContent = h[0];
});
var lines = [], left = [], right = [], shade = [], share = [];
function y(i) { return 44 + i * data.row; }
for (var q = 0; q < n; q++) {
lines.push([]);
for (var k = 0; k < n; k++) lines[q].push(el('line', {x1: data.left + 8, y1: y(q) - 5, x2: data.right - 8, y2: y(k) - 5,
stroke: '#0072B2', 'stroke-linecap': 'round'}, svg));
}
words.forEach(function(word, i) {
shade.push(el('rect', {x: data.right - 6, y: y(i) - 19, width: word.length * 9.2 + 14, height: 26, rx: 3,
fill: '#0072B2', 'fill-opacity': 0}, svg));
right.push(el('text', {x: data.right, y: y(i), 'font-size': 15, fill: '#1b1b1b'}, svg));
right[i].textContent = word;
share.push(el('text', {x: data.right + word.length * 9.2 + 18, y: y(i), 'font-size': 13, fill: '#3c4043'}, svg));
var group = el('g', {tabindex: 0, role: 'button', 'aria-label': 'where ' + word + ' looks'}, svg);
group.style.cursor = 'pointer';
group.setAttribute('data-lm-suppress-shortcuts', 'true');
el('rect', {x: data.left - word.length * 9.2 - 10, y: y(i) - 19, width: word.length * 9.2 + 16, height: 26, rx: 3,
fill: '#ffffff', stroke: 'none'}, group);
var text = el('text', {x: data.left, y: y(i), 'text-anchor': 'end', 'font-size': 15, fill: '#1b1b1b'}, group);
text.textContent = word;
left.push(group);
group.addEventListener('mouseenter', function() { choose(i); });
group.addEventListener('focus', function() { choose(i); });
group.addEventListener('click', function() { choose(i); });
group.addEventListener('keydown', function(event) {
var step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
if (step && left[i + step]) { left[i + step].focus(); event.preventDefault(); }
});
});
svg.addEventListener('mouseleave', function() { if (!svg.contains(document.activeElement)) choose(-1); });
function choose(i) { query = i; draw(); }
function draw() {
var layer = pick.length > 1 ? +pick[0].value : 0, head = +pick[pick.length - 1].value;
var w = rows[layer][head];
for (var q = 0; q < n; q++) {
var on = query < 0 || q === query;
left[q].firstChild.setAttribute('fill', q === query ? '#cfe5f5' : '#ffffff');
for (var k = 0; k < n; k++) {
var v = w[q][k] / 1000;
lines[q][k].setAttribute('stroke-opacity', on ? Math.min(1, v * 1.1) : 0);
lines[q][k].setAttribute('stroke-width', 0.5 + 5 * v);
}
}
words.forEach(function(word, k) {
var v = query < 0 ? 0 : w[query][k] / 1000;
shade[k].setAttribute('fill-opacity', v * 0.75);
share[k].textContent = query < 0 || v < 0.005 ? '' : Math.round(100 * v) + '%';
});
var place = (pick.length > 1 ? 'layer ' + layer + ', ' : '') + 'head ' + head;
if (query < 0) { say.textContent = place + ': point at a word on the left.'; return; }
var best = w[query].map(function(v, k) { return [v, k]; });
best = best.sort(function(a, b) { return b[0] - a[0]; }).slice(0, 3).filter(function(b) { return b[0] >= 10; });
say.textContent = place + ': \\u201c' + words[query] + '\\u201d looks at ' + best
.map(function(b) { return words[b[1]] + ' ' + Math.round(b[0] / 10) + '%'; }).join(', ');
}
pick.forEach(function(p) { p.addEventListener('change', draw); });
root.querySelector('.controls').hidden = false;
details.open = false;
draw();
"""


def attention(weights: Numbers, words: Sequence[str], *, title: str = "Who looks at whom") -> Html:
    """Interactive attention weights [H T T], or [L H T T] with a choice of layers too.

    Point at a word on the left, tab to it or tap it. Without scripts: head 0 as a coloured table.

    Raises:
        CourseError: the shape of the weights does not fit the words.
    """
    stack = array(weights)
    if stack.ndim == 3:
        stack = stack[None]
    if stack.ndim != 4 or stack.shape[2:] != (len(words), len(words)):
        raise CourseError(
            f"attention needs weights [H T T] or [L H T T] for {len(words)} words; these have shape "
            f"{list(stack.shape)}. Take one example out of the batch."
        )
    layers, heads = stack.shape[:2]
    thousandths = (1000 * stack).round().astype(int).tolist()
    longest = max(len(word) for word in words)
    left = max(80, round(9.2 * longest) + 24)
    right = left + 230
    data = {
        "words": list(words),
        "weights": thousandths,
        "row": ROW,
        "left": left,
        "right": right,
        "wide": right + round(9.2 * longest) + 80,
    }
    first = "Layer 0, head 0" if layers > 1 else "Head 0"
    menus = (_menu("layer", layers) if layers > 1 else "") + _menu("head", heads)
    body = (
        f'<div class="controls" hidden>{menus}<output aria-live="polite" style="margin-left:8px"></output></div>'
        '<div class="stage"></div>'
        f'<details open><summary style="cursor:pointer">{first} in numbers (%)</summary>'
        f"{_heat_table(stack[0, 0], words)}</details>"
    )
    text = (
        f"{title}: {layers} x {heads} heads over “{' '.join(words)}”"
        if layers > 1
        else (f"{title}: {heads} heads over “{' '.join(words)}”")
    )
    return Html(card("attention", title, body, _SCRIPT, data), text)


def _menu(name: str, count: int) -> str:
    options = "".join(f'<option value="{i}">{i}</option>' for i in range(count))
    return (
        f'<label style="margin-right:10px">{name} <select aria-label="{name}" style="font:inherit;padding:2px 6px">'
        f"{options}</select></label>"
    )


def _heat_table(matrix: object, words: Sequence[str]) -> str:
    """Numbers on a blue ground; readable with the colours removed."""
    rows = array(matrix)
    head = "".join(f'<th scope="col" style="padding:2px 6px">{escape(word)}</th>' for word in words)
    body = ""
    for word, row in zip(words, rows, strict=True):
        body += f'<tr><th scope="row">{escape(word)}</th>'
        for value in row:
            shade = "".join(f"{round(255 + (c - 255) * min(1.0, float(value))):02x}" for c in (0x00, 0x72, 0xB2))
            ink = ";color:#fff" if value > 0.55 else ""
            body += f'<td style="background:#{shade}{ink}">' if value >= 0.005 else "<td>"
            body += f"{100 * value:.0f}</td>"
        body += "</tr>"
    style = "border-collapse:collapse;text-align:right;font-size:13px"
    return (
        f'<div style="overflow-x:auto"><table style="{style}"><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
