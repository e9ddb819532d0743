// Joins the chosen word with its neighbours.
var points = root.querySelectorAll('[data-word]');
var lines = root.querySelector('[data-lines]');
var list = root.querySelector('output');
var menu = root.querySelector('select');
function choose(word) {
  var near = data.near[word] || [];
  var names = near.map(function(pair) { return pair[0]; });
  points.forEach(function(point) {
    var name = point.getAttribute('data-word');
    var on = name === word || names.indexOf(name) >= 0;
    point.setAttribute('opacity', on ? 1 : 0.25);
    point.querySelector('text').setAttribute('font-weight', name === word ? 700 : 400);
  });
  lines.innerHTML = '';
  var from = data.at[word];
  names.forEach(function(name) {
    var to = data.at[name];
    if (!to) return;
    var line = document.createElementNS('http://www.w3.org/2000/svg', 'line');
    line.setAttribute('x1', from[0]);
    line.setAttribute('y1', from[1]);
    line.setAttribute('x2', to[0]);
    line.setAttribute('y2', to[1]);
    line.setAttribute('stroke', data.colour);
    line.setAttribute('stroke-width', 1.5);
    lines.appendChild(line);
  });
  list.textContent = near.map(function(pair) { return pair[0] + ' ' + pair[1].toFixed(2); }).join(', ');
  menu.value = word;
}
points.forEach(function(point) {
  point.addEventListener('click', function() { choose(point.getAttribute('data-word')); });
});
menu.addEventListener('change', function() { choose(menu.value); });
root.querySelector('.controls').hidden = false;
choose(menu.value);
