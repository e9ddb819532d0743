"""The game of replaced-token detection: find the words that a generator wrote, then compare with the discriminator."""

from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.errors import CourseError
from course_lib.view.display import Html, escape
from course_lib.view.html import BUTTON, MONO, boxes, card

_PICK = (
    f"{MONO};font-size:14px;border:1px solid #9aa0a6;border-radius:3px;padding:2px 7px;margin:2px;background:#f1f3f4;"
    "color:#1b1b1b"
)
_SCRIPT = """
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
"""


@dataclass(frozen=True)
class Filled:
    """A text in which a generator wrote some of the tokens.

    tokens: as they stand there now. original: as they stood. suspicion: for each, the discriminator's probability that
    it was replaced.
    """

    tokens: Sequence[str]
    original: Sequence[str]
    suspicion: Sequence[float]

    @property
    def replaced(self) -> list[bool]:
        """Where the two differ."""
        return [now != then for now, then in zip(self.tokens, self.original, strict=True)]

    @property
    def said(self) -> list[bool]:
        """Where the discriminator takes the token for replaced."""
        return [p > 0.5 for p in self.suspicion]


def which_replaced(rounds: Sequence[Filled], title: str = "Which words were replaced?") -> Html:
    """Texts whose suspicious words the player marks; the answer and the discriminator's guesses stay folded until then.

    Without a script the texts and, folded, the answers are there to read.

    Raises:
        CourseError: no text; tokens, originals and probabilities that are not equally many.
    """
    if not rounds:
        raise CourseError("which_replaced needs at least one text; the list is empty.")
    items, lines, data = "", [title], []
    for filled in rounds:
        if not len(filled.tokens) == len(filled.original) == len(filled.suspicion):
            raise CourseError(
                f"which_replaced: {len(filled.tokens)} tokens, {len(filled.original)} originals and "
                f"{len(filled.suspicion)} probabilities; each token needs both."
            )
        words = "".join(
            f'<button type="button" data-word disabled aria-pressed="false" style="{_PICK}">{escape(token)}</button> '
            for token in filled.tokens
        )
        items += (
            f'<li style="margin:0 0 14px 0"><div>{words}</div><div class="controls" hidden style="margin:4px 0">'
            f'<button type="button" style="{BUTTON}">compare</button> <output aria-live="polite"></output></div>'
            '<details><summary style="cursor:pointer;color:#3c4043">the answer, and the discriminator</summary>'
            f"{boxes(_judged(filled))}<div>{_stood(filled)}</div></details></li>"
        )
        lines.append(f"  {' '.join(filled.tokens)}")
        lines.append(f"    {_stood(filled, plain=True)}")
        data.append({"replaced": filled.replaced, "said": filled.said})
    legend = (
        '<div style="font-size:13px;margin-bottom:6px">Mark the words that you think were replaced, then compare. '
        "In the answer: "
        + boxes([("replaced and found", "green"), ("replaced, not found", "orange"), ("false alarm", "blue")])
    )
    body = f'{legend}</div><ol style="padding-left:1.4em;margin:0">{items}</ol><div class="score" role="status"></div>'
    return Html(card("replaced", title, body, _SCRIPT, data), "\n".join(lines))


def tints(filled: Filled) -> list[str]:
    """Of each token its colour: replaced and found, replaced and not found, false alarm, rightly left alone."""
    fate = {(True, True): "green", (True, False): "orange", (False, True): "blue", (False, False): "plain"}
    return [fate[pair] for pair in zip(filled.replaced, filled.said, strict=True)]


def _judged(filled: Filled) -> list[tuple[str, str]]:
    shares = [f"{token} {100 * p:.0f}%" for token, p in zip(filled.tokens, filled.suspicion, strict=True)]
    return list(zip(shares, tints(filled), strict=True))


def _stood(filled: Filled, *, plain: bool = False) -> str:
    """What stood at the replaced places."""
    places = [i for i, replaced in enumerate(filled.replaced) if replaced]
    quoted = [
        f"“{filled.original[i]}” for “{filled.tokens[i]}” (suspected with {100 * filled.suspicion[i]:.0f}%)"
        for i in places
    ]
    text = "In the text stood: " + ", ".join(quoted) if quoted else "Nothing was replaced"
    return f"{text}." if plain else escape(f"{text}.")
