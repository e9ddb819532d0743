// The arcs of the chosen head; of one word alone while it is pointed at.
var menu = root.querySelector('select');
var say = root.querySelector('output');
var stage = root.querySelector('[data-arcs]');
var words = root.querySelectorAll('[data-word]');
var parsed = root.querySelector('svg > path');
var chosen = -1;
function draw() {
  var arcs = data.heads[+menu.value];
  var count = {governor: 0, dependent: 0, neither: 0};
  stage.innerHTML = '';
  arcs.forEach(function(arc, word) {
    var kind = arc[2];
    count[kind] += 1;
    if (chosen >= 0 && chosen !== word) return;
    var path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
    path.setAttribute('d', arc[1]);
    path.setAttribute('fill', 'none');
    path.setAttribute('stroke', data.colours[kind]);
    path.setAttribute('stroke-width', 1 + 4 * arc[3]);
    path.setAttribute('stroke-opacity', 0.35 + 0.65 * arc[3]);
    path.setAttribute('marker-end', 'url(#' + data.marker + '-' + kind + ')');
    stage.appendChild(path);
  });
  if (chosen >= 0) {
    var arc = arcs[chosen];
    say.textContent = '\u201c' + data.words[chosen] + '\u201d looks most at \u201c' + data.words[arc[0]] + '\u201d, '
      + Math.round(100 * arc[3]) + '%' + (parsed ? ': ' + data.says[arc[2]] : '');
  } else {
    say.textContent = !parsed ? '' : 'Words that look ' + Object.keys(count).map(function(kind) {
      return data.says[kind] + ': ' + count[kind]; }).join(', ');
  }
}
words.forEach(function(word, i) {
  word.addEventListener('mouseenter', function() { chosen = i; draw(); });
  word.addEventListener('mouseleave', function() { chosen = -1; draw(); });
  word.addEventListener('focus', function() { chosen = i; draw(); });
  word.addEventListener('blur', function() { chosen = -1; draw(); });
  word.addEventListener('click', function() { chosen = i; draw(); });
});
menu.addEventListener('change', draw);
root.querySelector('.controls').hidden = false;
draw();
