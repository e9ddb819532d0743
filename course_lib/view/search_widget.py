"""A search engine that runs in the page itself: words, vectors, or both; no kernel, no network, also in exported HTML.

Inside are the passages, their vectors and a table of word vectors for the queries, a byte a number. `ENGINE` is
`course_lib.search` once more, in JavaScript; `PAGE` is what the reader moves.
"""

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.models.sentence import WordAverage
from course_lib.search import RRF, Index, snippet
from course_lib.view.display import Html, escape
from course_lib.view.html import BUTTON, card
from course_lib.view.packed import lines, rounded

MOST = 400_000  # characters in a page
SHOWN = 5
WAYS = {"rrf": "both (hybrid)", "dense": "vectors", "bm25": "words (BM25)"}

# Every statement ends in a semicolon, because the widget's script is put on one line.
ENGINE = r"""
function whole(lines) { return Int8Array.from(atob(lines.join('')), function(c) { return c.charCodeAt(0); }); }
function floats(lines) {
return new Float32Array(Uint8Array.from(atob(lines.join('')), function(c) { return c.charCodeAt(0); }).buffer);
}
var E = data.size, n = data.texts.length, vectors = whole(data.vectors);
var rows = whole(data.table), scales = floats(data.scales), number = {};
data.words.split(' ').forEach(function(word, i) { number['_' + word] = i; });
function words(text) { return text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) || []; }
// Words: for each its passages and how often; then BM25 as course_lib.search has it.
var postings = {}, lengths = [], mean = 0;
data.texts.forEach(function(text, d) {
var inside = words(text);
lengths.push(inside.length);
mean += inside.length / n;
inside.forEach(function(word) {
var found = postings['_' + word] = postings['_' + word] || {};
found[d] = (found[d] || 0) + 1;
});
});
function by_words(query) {
var scores = new Float64Array(n);
words(query).forEach(function(word) {
var found = postings['_' + word] || {}, held = Object.keys(found), df = held.length;
var idf = Math.log(1 + (n - df + 0.5) / (df + 0.5));
held.forEach(function(d) {
scores[d] += idf * found[d] / (found[d] + data.k1 * (1 - data.b + data.b * lengths[d] / mean));
});
});
return Array.from(scores, function(s) { return s > 0 ? s : -Infinity; });
}
// Vectors: the query's is the sum of its words' vectors; the cosine with each passage's.
function by_vectors(query) {
var q = new Float64Array(E), known = 0;
words(query).forEach(function(word) {
var row = number['_' + word];
if (row === undefined) return;
known += 1;
for (var i = 0; i < E; i++) q[i] += rows[row * E + i] * scales[row];
});
var size = Math.sqrt(q.reduce(function(a, x) { return a + x * x; }, 0));
return data.texts.map(function(text, d) {
if (!known) return -Infinity;
var product = 0, square = 0;
for (var i = 0; i < E; i++) {
product += q[i] * vectors[d * E + i];
square += vectors[d * E + i] * vectors[d * E + i];
}
return product / (Math.sqrt(square) * size);
});
}
function order(scores) {
var found = scores.map(function(s, d) { return d; }).filter(function(d) { return scores[d] > -Infinity; });
return found.sort(function(a, b) { return scores[b] - scores[a] || a - b; });
}
function search(query, how) {
var parts = [];
if (how !== 'dense') parts.push(by_words(query));
if (how !== 'bm25') parts.push(by_vectors(query));
var scores = parts[0];
if (how === 'rrf') {
scores = new Array(n).fill(-Infinity);
parts.forEach(function(part) {
order(part).forEach(function(d, rank) {
scores[d] = Math.max(scores[d], 0) + 1 / (data.rrf + rank + 1);
});
});
}
return order(scores).map(function(d) { return [d, scores[d]]; });
}
"""

PAGE = r"""
var box = root.querySelector('input'), menu = root.querySelector('select');
var list = root.querySelector('[data-hits]'), says = root.querySelector('[data-says]');
function marked(text, asked) {
var item = document.createElement('span');
text.split(/([\p{L}\p{N}_]+)/gu).forEach(function(part) {
var hit = asked.indexOf(part.toLowerCase()) >= 0 && part.trim() !== '';
var piece = document.createElement(hit ? 'mark' : 'span');
piece.textContent = part;
item.appendChild(piece);
});
return item;
}
function show() {
var asked = words(box.value), hits = search(box.value, menu.value);
var strange = asked.filter(function(word) { return number['_' + word] === undefined; });
says.textContent = (hits.length ? hits.length + ' of ' + n + ' passages are ranked' : 'Nothing found')
+ (menu.value === 'bm25' || !strange.length ? '.' : '; no vector for: ' + strange.join(', ') + '.');
list.innerHTML = '';
hits.slice(0, data.shown).forEach(function(hit) {
var line = document.createElement('li'), score = document.createElement('small');
line.appendChild(marked(data.texts[hit[0]], asked));
score.textContent = '  ' + hit[1].toFixed(menu.value === 'rrf' ? 4 : 2);
line.appendChild(score);
list.appendChild(line);
});
}
box.addEventListener('input', show);
menu.addEventListener('change', show);
root.querySelectorAll('[data-query]').forEach(function(button) {
button.addEventListener('click', function() { box.value = button.textContent; show(); });
});
root.querySelector('.controls').hidden = false;
show();
"""


def search_page(index: Index, table: WordAverage, queries: Sequence[str], *, title: str = "Search") -> Html:
    """A page with a search box over an index: by words, by vectors, or by both (reciprocal ranks).

    Without scripts the first query's passages are left, found by Python.

    Args:
        index: with vectors. table: word vectors for the queries, of the vectors' width (`distil_queries`).
        queries: to begin with; the reader may write any other.

    Raises:
        CourseError: an index without vectors, vectors of another width, no query, a page that would be too large.
    """
    if not queries:
        raise CourseError("A search page needs at least one query to begin with.")
    data = pack(index, table)
    with_table = Index(index.documents, index.bm25, index.vectors, table, table.fingerprint())
    hits = with_table.search(queries[0], SHOWN, how="rrf")
    page = Html(
        card("search", title, _body(queries, [snippet(h.document["text"], queries[0], 400) for h in hits]),
             ENGINE + PAGE, data),
        f"{title}: {len(index.documents)} passages. For {queries[0]!r} the first is: {hits[0].document['text']}",
    )  # fmt: skip
    if len(page.html) > MOST:
        raise CourseError(f"This page has {len(page.html):,} characters, {MOST:,} is the most; give fewer passages.")
    return page


def pack(index: Index, table: WordAverage) -> dict[str, Any]:
    """What the engine in the page reads."""
    if index.vectors is None or index.vectors.shape[1] != table.vectors.shape[1]:
        raise CourseError("A search page needs an index with vectors, as wide as those of the table of words.")
    vectors, _ = rounded(F.normalize(index.vectors, dim=-1))
    rows, scales = rounded(table.vectors)
    names = sorted(table.numbers, key=table.numbers.__getitem__)
    return {
        "texts": [document["text"] for document in index.documents], "words": " ".join(names),
        "size": index.vectors.shape[1], "vectors": _packed(vectors), "table": _packed(rows), "scales": _packed(scales),
        "k1": index.bm25.k1, "b": index.bm25.b, "rrf": RRF, "shown": SHOWN,
    }  # fmt: skip


def _packed(values: Tensor) -> list[str]:
    return lines(values.detach().contiguous().numpy().tobytes())


def _body(queries: Sequence[str], hits: Sequence[str]) -> str:
    options = "".join(f'<option value="{how}">{says}</option>' for how, says in WAYS.items())
    examples = " ".join(
        f'<button type="button" data-query style="{BUTTON}">{escape(query)}</button>' for query in queries
    )
    found = "".join(f"<li>{_bold(hit)}</li>" for hit in hits)
    return (
        '<div class="controls" hidden style="gap:10px;flex-wrap:wrap;align-items:center;margin-bottom:6px">'
        f'<label style="margin-right:10px">search <input type="search" value="{escape(queries[0])}" '
        'aria-label="search" style="font:inherit;padding:4px;width:24em;max-width:100%"></label>'
        f'<label>by <select aria-label="search by" style="font:inherit;padding:3px">{options}</select></label>'
        f'<p style="margin:8px 0 0 0">Try: {examples}</p></div>'
        f'<p data-says role="status" style="margin:6px 0">The best passages for: {escape(queries[0])}</p>'
        f'<ol data-hits style="margin:4px 0">{found}</ol>'
    )


def _bold(hit: str) -> str:
    """`snippet`'s marks as HTML."""
    parts = escape(hit).split("**")
    return "".join(f"<mark>{part}</mark>" if i % 2 else part for i, part in enumerate(parts))
