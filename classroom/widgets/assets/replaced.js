// Marked words against the replaced ones and the discriminator's guesses.
var score = root.querySelector('.score'), you = [0, 0, 0], model = [0, 0, 0];
root.querySelectorAll('li').forEach(function(item, i) {
  var words = item.querySelectorAll('[data-word]'), button = item.querySelector('.controls button');
  var out = item.querySelector('output'), details = item.querySelector('details'), round = data[i], done = false;
  words.forEach(function(word) {
    word.disabled = false;
    word.style.cursor = 'pointer';
    word.addEventListener('click', function() {
      if (done) return;
      var on = word.getAttribute('aria-pressed') !== 'true';
      word.setAttribute('aria-pressed', on);
      word.style.background = on ? '#faf0b8' : '#f1f3f4';
    });
  });
  function count(total, guesses) {
    var here = [0, 0];
    guesses.forEach(function(guess, k) { if (guess) here[round.replaced[k] ? 0 : 1] += 1; });
    total[0] += here[0];
    total[1] += here[1];
    total[2] += round.replaced.filter(Boolean).length;
    return here[0] + ' found, ' + here[1] + ' false';
  }
  function says(total) { return total[0] + ' of ' + total[2] + ' found, ' + total[1] + ' false'; }
  button.addEventListener('click', function() {
    if (done) return;
    done = true;
    button.disabled = true;
    var mine = Array.prototype.map.call(words, function(word) { return word.getAttribute('aria-pressed') === 'true'; });
    words.forEach(function(word, k) { if (round.replaced[k]) word.style.outline = '2px solid #C44E00'; });
    out.textContent = 'You: ' + count(you, mine) + '. The discriminator: ' + count(model, round.said) + '.';
    details.open = true;
    score.textContent = 'So far. You: ' + says(you) + '. The discriminator: ' + says(model) + '.';
  });
  item.querySelector('.controls').hidden = false;
});
