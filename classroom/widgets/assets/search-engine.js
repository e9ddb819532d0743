// course_lib.analysis.retrieval once more: BM25, cosines, reciprocal ranks, from `data` (widgets/search.py).
function whole(lines) { return Int8Array.from(atob(lines.join('')), function(c) { return c.charCodeAt(0); }); }
function floats(lines) {
  return new Float32Array(Uint8Array.from(atob(lines.join('')), function(c) { return c.charCodeAt(0); }).buffer);
}
var E = data.size, n = data.texts.length, vectors = whole(data.vectors);
var rows = whole(data.table), scales = floats(data.scales), number = {};
data.words.split(' ').forEach(function(word, i) { number['_' + word] = i; });
function words(text) { return text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) || []; }
// Words: for each its passages and how often; then BM25 as course_lib.analysis.retrieval has it.
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
