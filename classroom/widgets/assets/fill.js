// The reader's guess against the model's.
var wins = 0, tries = 0, score = root.querySelector('.score');
root.querySelectorAll('li').forEach(function(item, i) {
  var form = item.querySelector('form'), input = item.querySelector('input'), out = item.querySelector('output');
  var details = item.querySelector('details'), round = data[i], done = false;
  form.hidden = false;
  form.style.display = 'flex';
  form.addEventListener('submit', function(event) { event.preventDefault(); });
  form.querySelector('button').addEventListener('click', play);
  // JupyterLab keeps Enter from submitting a form, so the key is heard here.
  input.addEventListener('keydown', function(event) {
    if (event.key === 'Enter') { event.preventDefault(); play(); }
  });
  function play() {
    var guess = input.value.trim().toLowerCase();
    if (!guess) { out.textContent = 'Type a word first.'; return; }
    var place = round.top.map(function(t) { return t[0].toLowerCase(); }).indexOf(guess);
    var right = guess === round.answer.toLowerCase(), model = round.top[0][0].toLowerCase() === round.answer.toLowerCase();
    var says = right ? 'Yes, that word stood there. ' : 'The word that stood there is \u201c' + round.answer + '\u201d. ';
    says += place < 0 ? 'The model does not have yours among its first ' + round.top.length + '.'
      : 'The model has yours in place ' + (place + 1) + ' with ' + Math.round(100 * round.top[place][1]) + '%.';
    out.textContent = says;
    details.open = true;
    if (!done) {
      done = true;
      tries += 1;
      if (right) wins += 1;
      if (model) data.model = (data.model || 0) + 1;
      score.textContent = 'Sentences played: ' + tries + '. You: ' + wins + ' right. The model: ' + (data.model || 0) + '.';
    }
  }
});
