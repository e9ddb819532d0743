// A search tree that grows with the slider.
var pick = root.querySelector('select');
var range = root.querySelector('input');
var out = root.querySelector('output');
var panes = root.querySelectorAll('[data-search]');
function draw() {
  var here = pick.selectedIndex;
  var last = data[here].length - 1;
  range.max = last;
  var at = Math.min(+range.value, last);
  panes.forEach(function(pane, i) { pane.hidden = i !== here; });
  panes[here].querySelectorAll('[data-step]').forEach(function(g) {
    g.style.visibility = +g.getAttribute('data-step') > at ? 'hidden' : 'visible';
  });
  out.textContent = data[here][at];
}
pick.addEventListener('change', function() { range.max = 999; range.value = 999; draw(); });
range.addEventListener('input', draw);
root.querySelectorAll('h4').forEach(function(h) { h.hidden = true; });
root.querySelector('.controls').hidden = false;
root.querySelector('.controls').style.display = 'flex';
range.value = 0;
draw();
