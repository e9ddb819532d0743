// Query and key turned by their positions.
var bars = root.querySelectorAll('input');
function turned(v, place) {
  var c = Math.cos(place * data.angle), s = Math.sin(place * data.angle);
  return [v[0] * c - v[1] * s, v[0] * s + v[1] * c];
}
function put(name, v) {
  var g = root.querySelector('[data-arrow=' + name + ']');
  var x = data.middle + data.unit * v[0], y = data.middle - data.unit * v[1];
  g.querySelector('line').setAttribute('x2', x);
  g.querySelector('line').setAttribute('y2', y);
  g.querySelector('circle').setAttribute('cx', x);
  g.querySelector('circle').setAttribute('cy', y);
  g.querySelector('text').setAttribute('x', x + 16 * v[0]);
  g.querySelector('text').setAttribute('y', y - 16 * v[1] + 5);
}
function draw() {
  var m = +bars[0].value, n = m + +bars[1].value;
  var q = turned(data.q, m), k = turned(data.k, n);
  put('q', q);
  put('k', k);
  var score = q[0] * k[0] + q[1] * k[1];
  root.querySelector('output').textContent = 'query at ' + m + ', key at ' + n + ': score ' + score.toFixed(2);
}
bars.forEach(function(bar) { bar.addEventListener('input', draw); });
root.querySelector('.controls').hidden = false;
draw();
