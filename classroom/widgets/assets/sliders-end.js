// A calculator's last lines: redraw at every move.
root.querySelectorAll('input,select').forEach(function(part) { part.addEventListener('input', draw); });
root.querySelector('.controls').hidden = false;
draw();
