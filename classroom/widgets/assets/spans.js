// The likeliest answer from the word that is pointed at.
var items = root.querySelectorAll('[data-frame]');
var pick = root.querySelector('select');
var say = root.querySelector('output');
var words = [], at = 0;
function show(k) {
  at = k;
  items.forEach(function(item, i) { item.hidden = i !== k; });
  words = items[k].querySelectorAll('[data-word]');
  say.textContent = 'Point at a word, or reach it with Tab and the arrow keys.';
}
function clear() { words.forEach(function(w) { w.style.outline = 'none'; }); }
function look(i) {
  var d = data[at], total = 0, best = -1, value = -1;
  for (var a = 0; a < d.start.length; a++) {
    for (var b = a; b < Math.min(d.end.length, a + data[at].longest); b++) total += d.start[a] * d.end[b];
  }
  for (var j = i; j < Math.min(d.end.length, i + d.longest); j++) {
    if (d.end[j] > value) { value = d.end[j]; best = j; }
  }
  clear();
  for (var w = i; w <= best; w++) words[w].style.outline = '2px solid #1b1b1b';
  var share = total > 0 ? d.start[i] * d.end[best] / total : 0, text = [];
  for (var t = i; t <= best; t++) text.push(d.words[t]);
  say.textContent = '\u201c' + d.words[i] + '\u201d: starts the answer ' + percent(d.start[i] / 10000) + ', ends it '
    + percent(d.end[i] / 10000) + '. Likeliest answer from here: \u201c' + text.join(' ') + '\u201d, ' + percent(share)
    + '.';
}
function percent(v) {
  return v < 0.001 ? 'under 0.1%' : (v < 0.1 ? (100 * v).toFixed(1) : Math.round(100 * v)) + '%';
}
items.forEach(function(item) {
  item.querySelectorAll('[data-word]').forEach(function(word, i, all) {
    word.setAttribute('tabindex', i ? -1 : 0);
    word.setAttribute('data-lm-suppress-shortcuts', 'true');
    word.addEventListener('mouseenter', function() { look(i); });
    word.addEventListener('click', function() { look(i); });
    word.addEventListener('focus', function() { look(i); });
    word.addEventListener('keydown', function(event) {
      var step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
      if (step && all[i + step]) { all[i + step].focus(); event.preventDefault(); }
    });
  });
  item.addEventListener('mouseleave', clear);
});
pick.addEventListener('change', function() { show(+pick.value); });
root.querySelector('.controls').hidden = false;
show(0);
