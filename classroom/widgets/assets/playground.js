// What the reader moves in the playground.
var bar = root.querySelector('.controls'), area = root.querySelector('textarea'), menu = root.querySelector('select');
var text = root.querySelector('[data-text]'), says = root.querySelector('[data-says]');
var bars = root.querySelector('[data-bars]'), seed = root.querySelector('input[type=number]');
var cache, logits, prompt, said, next, turn = 0;
function setting(name) { return +root.querySelector('[data-set=' + name + ']').value; }
function kept() { return choices(logits, setting('temperature'), setting('k'), setting('p')); }
function part(tag, words, style) {
  var found = document.createElement(tag);
  found.textContent = words;
  found.style.cssText = style || '';
  return found;
}
function begin() {
  turn += 1;
  cache = fresh();
  said = [];
  next = random(+seed.value || 0);
  prompt = [data.start].concat(encode(area.value.replace(/\s+$/, ''))).slice(0, T - 1);
  prompt.forEach(function(id) { logits = step(cache, id); });
  paint();
}
function paint() {
  text.textContent = '';
  text.append(part('span', decode(prompt)), part('b', decode(said), 'color:#00517f'));
  if (said[said.length - 1] === data.end) text.append(part('span', ' (end of the text)', 'color:#5f6368'));
  var left = kept(), plain = choices(logits, 1, 0, 1), after = {};
  left.forEach(function(pair) { after[pair[0]] = pair[1]; });
  var bits = left.reduce(function(sum, pair) { return sum - pair[1] * Math.log2(pair[1] || 1); }, 0);
  says.textContent = left.length + (left.length === 1 ? ' token is' : ' tokens are') + ' left to draw from, ' +
    bits.toFixed(1) + ' bits. Pale: what the model says. Blue: after temperature, top-k, top-p.';
  var rows = part('table', '', 'border-collapse:collapse');
  plain.slice(0, data.shown).forEach(function(pair) {
    var row = part('tr', ''), share = after[pair[0]] || 0;
    var cell = part('td', '', 'padding:1px 0;min-width:220px;text-align:left');
    [[pair[1], '#b9cfdf'], [share, '#0072B2']].forEach(function(both) {
      cell.append(part('div', '', 'height:7px;width:' + Math.round(220 * both[0]) + 'px;background:' + both[1]));
    });
    var word = pair[0] === data.end ? '(end)' : decode([pair[0]]).replace(/ /g, '\u2423').replace(/\n/g, '\u21b5');
    row.append(part('td', word, 'font-family:monospace;padding:1px 10px 1px 0;text-align:left'), cell,
      part('td', (100 * pair[1]).toFixed(1) + '% \u2192 ' + (100 * share).toFixed(1) + '%', 'padding:1px 0 1px 12px'));
    rows.append(row);
  });
  bars.textContent = '';
  bars.append(rows);
}
function write() {
  if (cache.length >= T || said[said.length - 1] === data.end) return false;
  var token = draw(kept(), next);
  said.push(token);
  logits = step(cache, token);
  paint();
  return true;
}
function go(count, mine) { if (count > 0 && mine === turn && write()) setTimeout(go, 15, count - 1, mine); }
root.querySelector('[data-do=one]').addEventListener('click', function() { turn += 1; write(); });
root.querySelector('[data-do=more]').addEventListener('click', function() { turn += 1; go(data.new, turn); });
root.querySelector('[data-do=clear]').addEventListener('click', begin);
area.addEventListener('input', begin);
seed.addEventListener('input', begin);
menu.addEventListener('change', function() { area.value = data.prompts[+menu.value]; begin(); });
root.querySelectorAll('[data-set]').forEach(function(input) {
  input.addEventListener('input', function() {
    root.querySelector('[data-value=' + input.dataset.set + ']').textContent = input.value;
    paint();
  });
});
bar.hidden = false;
bar.style.display = 'flex';
begin();
