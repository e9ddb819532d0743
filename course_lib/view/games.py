"""Questions: a quiz that explains every choice, and the game of filling in the masked word against the model."""

from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.errors import CourseError
from course_lib.view.display import Html, escape
from course_lib.view.html import BUTTON, MONO, card


def quiz(question: str, choices: Sequence[str], answer: int, explanations: Sequence[str]) -> Html:
    """A question whose every choice opens its own explanation. No script, no kernel; works on GitHub and on paper.

    Args:
        choices: what to choose from; backticks mark code.
        answer: index of the right choice, from 0.
        explanations: for each choice, why it is right or what the mistake behind it is.

    Raises:
        CourseError: fewer than two choices, not an explanation for each, or an answer that is no choice.
    """
    if len(choices) < 2 or len(explanations) != len(choices) or not all(e.strip() for e in explanations):
        raise CourseError(
            f"quiz needs at least two choices and an explanation for each; "
            f"it got {len(choices)} choices and {len(explanations)} explanations."
        )
    if not 0 <= answer < len(choices):
        raise CourseError(f"quiz: answer {answer} is not the index of one of the {len(choices)} choices.")
    items, lines = "", [f"Quiz: {question}"]
    for index, (choice, why) in enumerate(zip(choices, explanations, strict=True)):
        right = index == answer
        word, colour, ground = ("Right.", "#00533d", "#c9ecdf") if right else ("Not so.", "#8a2f00", "#fbdcc4")
        items += (
            '<details style="margin:6px 0;border:1px solid #c8ccd0;border-radius:4px">'
            f'<summary style="cursor:pointer;padding:6px 10px">{"ABCDEFGH"[index]}. {_code(choice)}</summary>'
            f'<div style="padding:6px 12px;background:{ground}"><strong style="color:{colour}">{word}</strong> '
            f"{_code(why)}</div>"
            "</details>"
        )
        lines.append(f"  {'ABCDEFGH'[index]}. {choice}")
    body = f'<p style="margin:0 0 8px 0">{_code(question)}</p>{items}'
    return Html(card("quiz", "Quiz: choose, then read why", body), "\n".join(lines))


@dataclass(frozen=True)
class Blank:
    """A sentence with one hidden word. `top`: the model's best guesses with their probabilities, best first."""

    sentence: str
    answer: str
    top: Sequence[tuple[str, float]]
    mask: str = "[MASK]"


_FILL = """
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
var says = right ? 'Yes, that word stood there. ' : 'The word that stood there is \\u201c' + round.answer + '\\u201d. ';
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
"""


def fill_in(blanks: Sequence[Blank], title: str = "Fill in the word before the model does") -> Html:
    """Sentences with a masked word; the model's best guesses stay folded until the player has guessed.

    Raises:
        CourseError: a sentence without its mask, or without guesses.
    """
    items, lines, data = "", [title], []
    for blank in blanks:
        if blank.sentence.count(blank.mask) != 1 or not blank.top:
            raise CourseError(f"fill_in: {blank.sentence!r} needs exactly one {blank.mask} and the model's guesses.")
        before, after = blank.sentence.split(blank.mask)
        rows = "".join(_guess(word, share) for word, share in blank.top)
        items += (
            f'<li style="margin:0 0 12px 0"><div>{escape(before)}<span style="{MONO};background:#fbdcc4;padding:1px '
            "8px;"
            f'border-radius:3px">{escape(blank.mask)}</span>{escape(after)}</div>'
            '<form class="controls" hidden style="gap:8px;flex-wrap:wrap;align-items:center;margin:4px 0">'
            '<input type="text" autocomplete="off" aria-label="your word" style="font:inherit;padding:3px 8px;'
            'width:11em">'
            f'<button type="button" style="{BUTTON}">guess</button><output aria-live="polite"></output></form>'
            '<details><summary style="cursor:pointer;color:#3c4043">what the model says</summary>'
            f'<table style="border-collapse:collapse;margin:4px 0"><tbody>{rows}</tbody></table>'
            f"<div>In the text stood: <strong>{escape(blank.answer)}</strong></div></details></li>"
        )
        lines.append(f"  {blank.sentence}  (model: {', '.join(word for word, _ in blank.top)}; text: {blank.answer})")
        data.append({"answer": blank.answer, "top": [[word, round(float(p), 4)] for word, p in blank.top]})
    body = f'<ol style="padding-left:1.4em;margin:0">{items}</ol><div class="score" role="status"></div>'
    return Html(card("fill", title, body, _FILL, data), "\n".join(lines))


def _guess(word: str, share: float) -> str:
    bar = f'<div style="background:#0072B2;height:12px;width:{max(1, round(180 * share))}px"></div>'
    return (
        f'<tr><td style="{MONO};padding:2px 10px 2px 0;text-align:left">{escape(word)}</td>'
        f'<td style="padding:2px 8px;text-align:right">{100 * share:.1f}%</td><td style="padding:2px 0;'
        f'text-align:left">{bar}</td></tr>'
    )


def _code(text: str) -> str:
    """Escape, and turn `backticks` into code."""
    parts = escape(text).split("`")
    code = f'<code style="{MONO};font-size:14px;background:#f1f3f4;padding:0 3px">'
    return "".join(f"{code}{part}</code>" if i % 2 else part for i, part in enumerate(parts))
