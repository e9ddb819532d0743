// Words on the left, words on the right, a line for each weight of the chosen head.
var words = data.words, n = words.length, rows = data.weights, NS = 'http://www.w3.org/2000/svg';
var details = root.querySelector('details');
var pick = root.querySelectorAll('select');
var say = root.querySelector('output');
var stage = root.querySelector('.stage');
var query = data.first;
pick[pick.length - 1].value = data.head;
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
svg.addEventListener('mouseleave', function() { if (!svg.contains(document.activeElement)) choose(data.first); });
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
  say.textContent = place + ': \u201c' + words[query] + '\u201d looks at ' + best
    .map(function(b) { return words[b[1]] + ' ' + Math.round(b[0] / 10) + '%'; }).join(', ');
}
pick.forEach(function(p) { p.addEventListener('change', draw); });
root.querySelector('.controls').hidden = false;
details.open = false;
draw();
