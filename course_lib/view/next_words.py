"""The distribution over the next word, along a sentence: one frame a word."""

from collections.abc import Sequence

from course_lib.errors import CourseError
from course_lib.view.display import Html, escape
from course_lib.view.html import MONO, boxes
from course_lib.view.player import Frame, player


def next_words(
    tokens: Sequence[str],
    likely: Sequence[Sequence[tuple[str, float]]],
    bits: Sequence[float],
    title: str = "What comes next, word by word",
) -> Html:
    """A player along a sentence: what was read, the likeliest next tokens with their probabilities, the entropy.

    Args:
        tokens: the sentence, T strings.
        likely: for each of them the likeliest tokens that may follow it, best first, each with its probability.
        bits: for each the entropy of the whole distribution.

    Raises:
        CourseError: not the same number of each.
    """
    if not len(tokens) == len(likely) == len(bits):
        raise CourseError(
            f"next_words needs one distribution a token; it got {len(tokens)} tokens, {len(likely)} distributions and "
            f"{len(bits)} entropies."
        )
    frames = []
    for place, (words, entropy) in enumerate(zip(likely, bits, strict=True)):
        came = tokens[place + 1] if place + 1 < len(tokens) else ""
        line = [(token, "blue" if i == place else "plain") for i, token in enumerate(tokens[: place + 1])]
        rows = "".join(_row(word, p, came) for word, p in words)
        told = f"{entropy:.1f} bits, as open as {2**entropy:,.0f} equally likely words"
        after = f"; in the text comes “{came.strip()}”" if came else ""
        body = f'{boxes(line)}<table style="border-collapse:collapse;margin:6px 0"><tbody>{rows}</tbody></table>'
        text = ", ".join(f"{word.strip()} {p:.0%}" for word, p in words)
        frames.append(Frame(f"after “{tokens[place].strip()}”: {told}{after}", body, text))
    return player(frames, title)


def _row(word: str, p: float, came: str) -> str:
    """A word, its bar, its probability; green if it is what comes in the text."""
    colour, weight = ("#007A5A", "700") if word == came else ("#0072B2", "400")
    return (
        f'<tr><td style="{MONO};font-weight:{weight};padding:2px 10px 2px 0;text-align:left">'
        f"{escape(word.strip())}</td>"
        f'<td style="padding:2px 0;min-width:220px;text-align:left"><div style="background:{colour};height:12px;'
        f'width:{max(1, round(220 * p))}px"></div></td>'
        f'<td style="padding:2px 8px;text-align:right">{100 * p:.0f}%</td></tr>'
    )
