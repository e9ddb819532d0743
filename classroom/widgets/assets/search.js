// What the reader moves on the search page.
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
