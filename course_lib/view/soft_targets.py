"""What a teacher and its student say of one gap, at one temperature after another: one frame a temperature."""

from collections.abc import Mapping, Sequence

from course_lib.errors import CourseError
from course_lib.view.display import Html, escape
from course_lib.view.html import MONO, boxes
from course_lib.view.player import Frame, player
from course_lib.view.style import PALETTE

Said = Mapping[str, Sequence[float]]


def soft_targets(
    tokens: Sequence[str],
    at: int,
    words: Sequence[str],
    said: Mapping[float, Said],
    truth: str = "",
    title: str = "Soft targets of one gap",
) -> Html:
    """A player over temperatures: for each word a bar of every model's probability; the word that stood there in green.

    Args:
        tokens: the text, with the gap at place `at`.
        words: the words that get a row; the rest of the vocabulary shares the last one.
        said: temperature -> model -> the probability of each of `words`.

    Raises:
        CourseError: no temperature, or not one probability a word.
    """
    if not said or any(len(p) != len(words) for models in said.values() for p in models.values()):
        raise CourseError(f"soft_targets needs at each temperature one probability for each of {len(words)} words.")
    line = boxes((token, "blue" if place == at else "plain") for place, token in enumerate(tokens))
    frames = []
    for temperature, models in said.items():
        columns = {name: [*p, max(0.0, 1 - sum(p))] for name, p in models.items()}
        head = "".join(
            f'<th colspan="2" style="text-align:left;padding:2px 10px">{escape(name)}</th>' for name in columns
        )
        rows = "".join(
            _row(word, [p[i] for p in columns.values()], word == truth)
            for i, word in enumerate([*words, "all other words"])
        )
        body = f'<table style="border-collapse:collapse;margin:6px 0"><thead><tr><th></th>{head}</tr></thead>'
        text = "; ".join(
            f"{name}: " + ", ".join(f"{word} {p:.0%}" for word, p in zip(words, shares, strict=False))
            for name, shares in columns.items()
        )
        frames.append(Frame(f"temperature {temperature:g}", f"{body}<tbody>{rows}</tbody></table>", text))
    return player(frames, title, above=line)


def _row(word: str, shares: Sequence[float], true: bool) -> str:
    """A word, then a bar and its figure for each model."""
    cells = ""
    for number, share in enumerate(shares):
        colour = "#007A5A" if true else PALETTE[number % len(PALETTE)]
        cells += (
            '<td style="padding:2px 0 2px 10px;min-width:170px;text-align:left"><div '
            f'style="background:{colour};height:12px;width:{max(1, round(170 * share))}px"></div></td>'
            f'<td style="padding:2px 10px 2px 6px;text-align:right">{100 * share:.1f}%</td>'
        )
    weight = "700" if true else "400"
    return (
        f'<tr><th scope="row" style="{MONO};font-weight:{weight};padding:2px 10px 2px 0;text-align:left">'
        f"{escape(word)}</th>{cells}</tr>"
    )
