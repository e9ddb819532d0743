// Frames one at a time: buttons, slider, arrow keys.
var items = root.querySelectorAll('[data-frame]');
var bar = root.querySelector('.controls');
var buttons = bar.querySelectorAll('button');
var range = bar.querySelector('input');
var out = bar.querySelector('output');
var dots = root.querySelectorAll('[data-dot]');
var at = 0;
function show(i) {
  at = Math.max(0, Math.min(items.length - 1, i));
  items.forEach(function(item, k) { item.hidden = k !== at; });
  dots.forEach(function(dot, k) { dot.setAttribute('r', k === at ? 7 : 3); });
  buttons[0].disabled = at === 0;
  buttons[1].disabled = at === items.length - 1;
  range.value = at;
  out.textContent = data[at];
}
buttons[0].addEventListener('click', function() { show(at - 1); });
buttons[1].addEventListener('click', function() { show(at + 1); });
range.addEventListener('input', function() { show(+range.value); });
root.addEventListener('keydown', function(event) {
  if (event.target === range) return;
  if (event.key === 'ArrowRight') { show(at + 1); event.preventDefault(); }
  if (event.key === 'ArrowLeft') { show(at - 1); event.preventDefault(); }
});
bar.hidden = false;
bar.style.display = 'flex';
show(0);
