// A calculator's controls and how it writes numbers; its own draw() follows, then sliders-end.js.
var bars = {}, shown = root.querySelectorAll('td');
root.querySelectorAll('input').forEach(function(bar) { bars[bar.name] = bar; });
var pick = root.querySelector('select');
function write(x) {
  if (x >= 1e15 || (x > 0 && x < 0.001)) return x.toExponential(2).replace('e+', 'e');
  var named = [[1e12, ' trillion'], [1e9, ' billion'], [1e6, ' million']];
  for (var i = 0; i < 3; i++) if (x >= named[i][0]) return +(x / named[i][0]).toPrecision(3) + named[i][1];
  if (x >= 100) return Math.round(x).toString().replace(/\B(?=(\d{3})+$)/g, ',');
  return x >= 1 ? x.toFixed(1) : x.toFixed(3);
}
