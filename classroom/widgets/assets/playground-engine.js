// A GPT and its byte-level BPE tokenizer, from `data` (widgets/playground.py packs it).
// Weights: a matrix is a scale for each row and a signed byte for each number, a vector is floats.
var D = data.width, H = data.heads, dh = D / H, T = data.length;
var raw = Uint8Array.from(atob(data.weights.join('')), function(c) { return c.charCodeAt(0); });
data.weights = [];
var place = 0;
function vector(n) {
  var out = new Float32Array(raw.buffer.slice(place, place + 4 * n));
  place += 4 * n;
  return out;
}
function matrix(rows, cols) {
  var scale = vector(rows), out = new Float32Array(rows * cols);
  for (var i = 0; i < rows; i++) {
    for (var j = 0; j < cols; j++) out[i * cols + j] = ((raw[place + i * cols + j] << 24) >> 24) * scale[i];
  }
  place += rows * cols;
  return out;
}
function linear(rows, cols) { return {w: matrix(rows, cols), b: vector(rows), rows: rows, cols: cols}; }
function scaling() { return {w: vector(D), b: vector(D)}; }
var words = matrix(data.vocab, D), places = matrix(T, D), blocks = [];
for (var l = 0; l < data.layers; l++) {
  blocks.push({n1: scaling(), q: linear(D, D), k: linear(D, D), v: linear(D, D), o: linear(D, D),
    n2: scaling(), up: linear(data.hidden, D), down: linear(D, data.hidden)});
}
var last = scaling();
function apply(m, x) {
  var y = new Float32Array(m.rows);
  for (var i = 0; i < m.rows; i++) {
    var sum = m.b ? m.b[i] : 0, at = i * m.cols;
    for (var j = 0; j < m.cols; j++) sum += m.w[at + j] * x[j];
    y[i] = sum;
  }
  return y;
}
function norm(n, x) {
  var mean = 0, spread = 0, y = new Float32Array(D);
  for (var i = 0; i < D; i++) mean += x[i] / D;
  for (i = 0; i < D; i++) spread += (x[i] - mean) * (x[i] - mean) / D;
  spread = Math.sqrt(spread + data.eps);
  for (i = 0; i < D; i++) y[i] = (x[i] - mean) / spread * n.w[i] + n.b[i];
  return y;
}
function gelu(x) { return x / 2 * (1 + Math.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
// One token: its keys and values join the cache, and it attends to all that are there.
function attend(block, own, h) {
  var q = apply(block.q, h), y = new Float32Array(D);
  own.k.push(apply(block.k, h));
  own.v.push(apply(block.v, h));
  for (var head = 0; head < H; head++) {
    var from = head * dh, most = -Infinity, total = 0;
    var scores = own.k.map(function(k) {
      var s = 0;
      for (var i = from; i < from + dh; i++) s += q[i] * k[i];
      s /= Math.sqrt(dh);
      most = Math.max(most, s);
      return s;
    });
    scores = scores.map(function(s) { s = Math.exp(s - most); total += s; return s; });
    own.v.forEach(function(v, t) {
      for (var i = from; i < from + dh; i++) y[i] += scores[t] / total * v[i];
    });
  }
  return apply(block.o, y);
}
function add(x, y) { for (var i = 0; i < D; i++) x[i] += y[i]; }
function fresh() { return {length: 0, layers: blocks.map(function() { return {k: [], v: []}; })}; }
function step(cache, token) {
  var x = new Float32Array(D);
  for (var i = 0; i < D; i++) x[i] = words[token * D + i] + places[cache.length * D + i];
  blocks.forEach(function(block, l) {
    add(x, attend(block, cache.layers[l], norm(block.n1, x)));
    add(x, apply(block.down, apply(block.up, norm(block.n2, x)).map(gelu)));
  });
  cache.length += 1;
  return apply({w: words, rows: data.vocab, cols: D}, norm(last, x));
}
// The tokenizer: bytes, written as letters, merged in the order in which the merges were learned.
var letter = {}, byte = {}, spare = 256;
for (var b = 0; b < 256; b++) {
  var seen = (b > 32 && b < 127) || (b > 160 && b < 173) || b > 173;
  letter[b] = String.fromCharCode(seen ? b : spare++);
  byte[letter[b]] = b;
}
var number = {}, rank = {};
data.tokens.forEach(function(token, i) { number[token] = i; });
var merges = data.merges;
for (var m = 0; m < merges.length; m += 3) rank[merges[m] + ' ' + merges[m + 1]] = [m, merges[m + 2]];
var pieces = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;
function encode(text) {
  var out = [];
  (text.match(pieces) || []).forEach(function(piece) {
    var ids = Array.from(new TextEncoder().encode(piece), function(b) { return number[letter[b]]; });
    while (ids.length > 1) {
      var best = null, where = 0;
      for (var i = 0; i + 1 < ids.length; i++) {
        var found = rank[ids[i] + ' ' + ids[i + 1]];
        if (found && (!best || found[0] < best[0])) { best = found; where = i; }
      }
      if (!best) break;
      ids.splice(where, 2, best[1]);
    }
    out = out.concat(ids);
  });
  return out;
}
function decode(ids) {
  var bytes = [];
  ids.forEach(function(id) {
    if (data.special.indexOf(id) >= 0) return;
    Array.from(data.tokens[id]).forEach(function(c) { bytes.push(byte[c]); });
  });
  return new TextDecoder().decode(Uint8Array.from(bytes));
}
// Temperature, then the k likeliest, then the fewest of those that reach p: [token, probability], likeliest first.
function choices(logits, temperature, k, p) {
  var order = Array.from(logits.keys()).sort(function(a, b) { return logits[b] - logits[a]; });
  if (k > 0) order = order.slice(0, k);
  var shares = order.map(function(i) { return Math.exp((logits[i] - logits[order[0]]) / temperature); });
  var total = shares.reduce(function(a, b) { return a + b; }, 0), so_far = 0, kept = [];
  for (var i = 0; i < order.length && (p === 1 || so_far < p * total); i++) {
    kept.push([order[i], shares[i]]);
    so_far += shares[i];
  }
  return kept.map(function(pair) { return [pair[0], pair[1] / so_far]; });
}
function random(seed) {
  return function() {
    seed = (seed + 0x6D2B79F5) | 0;
    var t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
function draw(kept, next) {
  var left = next();
  for (var i = 0; i < kept.length; i++) {
    left -= kept[i][1];
    if (left < 0) return kept[i][0];
  }
  return kept[kept.length - 1][0];
}
