// Hides the rows that the two menus leave out.
var picks = root.querySelectorAll('select'), rows = root.querySelectorAll('tbody tr');
function draw() {
  var seen = 0;
  rows.forEach(function(row, i) {
    var ok = (!picks[0].value || data[i][0] === picks[0].value) && (!picks[1].value || data[i][1] === picks[1].value);
    row.hidden = !ok;
    if (ok) seen += 1;
  });
  root.querySelector('output').textContent = seen + ' of ' + rows.length;
}
picks.forEach(function(pick) { pick.addEventListener('input', draw); });
root.querySelector('.controls').hidden = false;
draw();
