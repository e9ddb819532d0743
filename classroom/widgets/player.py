"""Anything that happens step by step, played: frames with back, next, a slider and the arrow
keys.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch

from classroom.figures.display import Html
from classroom.figures.tables import box, boxes
from classroom.templates import trusted
from classroom.widgets.card import card, render


class PlayerFrame(NamedTuple):
    """One step. `body` is HTML (make token lines with `boxes`); `text` is what is read where there
    is no HTML.
    """

    title: str
    body: str
    text: str = ""


def player(frames: Sequence[PlayerFrame], title: str, *, above: str = "") -> Html:
    """Frames shown one at a time; all of them, numbered, where no script runs.

    above: HTML that stays over all frames.
    """
    places = [f"{i} of {len(frames)}" for i in range(1, len(frames) + 1)]
    shown = [(frame.title, trusted(frame.body)) for frame in frames]
    told = [f"{frame.title} | {frame.text}" if frame.text else frame.title for frame in frames]
    lines = [f"  {place}: {says}" for place, says in zip(places, told, strict=True)]
    return Html(
        card("player", title, places, above=trusted(above), frames=shown),
        "\n".join([title, *lines]),
    )


def word_steps(rows: Mapping[str, Sequence[tuple[str, str]]], title: str) -> Html:
    """A player of token lines: what each frame is called -> its (token, tint) pairs."""
    frames = [
        PlayerFrame(name, boxes(line), " ".join(text for text, _ in line))
        for name, line in rows.items()
    ]
    return player(frames, title)


def masking(
    tokens: Sequence[str],
    chosen: Sequence[bool] | torch.Tensor,
    corrupted: Sequence[str],
    *,
    rate: float = 0.15,
    title: str = "Masking, step by step",
) -> Html:
    """BERT's corruption of one sentence (Devlin et al. 2019, section 3.1) played from what the real
    function returned.

    chosen: Bool[T], the positions that carry loss. corrupted: the T tokens that the model is given.
    """
    places = [i for i, flag in enumerate(chosen) if flag]
    share = 100 * len(places) / max(1, len(tokens))
    shown, tints = list(tokens), dict.fromkeys(places, "yellow")
    told = (
        f"Chosen: {len(places)} of {len(tokens)} positions ({share:.0f}%; the rate is {rate:.0%}). "
    )
    told += "Only these will be asked for; special tokens never are."
    frames = [
        _line("The sentence as it stands in the corpus.", shown, {}),
        _line(told, shown, tints),
    ]
    for i in places:
        shown[i] = corrupted[i]
        tints[i], says = _fate(tokens[i], corrupted[i])
        frames.append(_line(f"Position {i}, “{tokens[i]}”: {says}", shown, tints))
    asked = ", ".join(f"“{tokens[i]}” at {i}" for i in places) or "nothing"
    frames.append(
        _line(f"What the model sees. It must say: {asked}. Loss nowhere else.", corrupted, tints)
    )
    fates = {
        "chosen": "yellow",
        "[MASK], 80%": "orange",
        "random, 10%": "purple",
        "kept, 10%": "green",
    }
    legend = " ".join(box(name, tint) for name, tint in fates.items())
    return player(
        frames, title, above=f'<div style="font-size:13px;margin-bottom:6px">{legend}</div>'
    )


def _line(title: str, tokens: Sequence[str], tints: Mapping[int, str]) -> PlayerFrame:
    line = [(token, tints.get(i, "plain")) for i, token in enumerate(tokens)]
    return PlayerFrame(title, boxes(line), " ".join(tokens))


def _fate(before: str, after: str) -> tuple[str, str]:
    if after == "[MASK]":
        return "orange", "replaced by [MASK] (8 in 10)."
    if after == before:
        return "green", "left as it is (1 in 10), and asked for all the same."
    return "purple", f"replaced by a random token, “{after}” (1 in 10)."


def samples(
    records: Sequence[tuple[int, float, Sequence[str]]],
    title: str = "What the model writes while it learns",
) -> Html:
    """Texts sampled at several moments of training, under the loss curve.

    records: (step, loss, texts) in the order of training.
    """
    frames = [
        PlayerFrame(
            f"step {step}, loss {loss:.2f}", render("samples", texts=texts), " / ".join(texts)
        )
        for step, loss, texts in records
    ]
    return player(
        frames,
        title,
        above=_loss_curve([record[:2] for record in records]) if len(records) > 1 else "",
    )


def _loss_curve(records: Sequence[tuple[int, float]]) -> str:
    wide, high, first, last = 520, 90, records[0], records[-1]
    top, span = max(loss for _, loss in records), max(1e-9, last[0] - first[0])
    fall = max(1e-9, top - min(loss for _, loss in records))
    points = [
        (60 + (wide - 80) * (s - first[0]) / span, 12 + (high - 34) * (top - loss) / fall)
        for s, loss in records
    ]
    return render("loss-curve", wide=wide, high=high, points=points, first=first, last=last)


def merging(counts: Mapping[str, int], merges: Mapping[tuple[str, str], int]) -> Html:
    """The merges of byte-pair encoding on a few words, one frame each.

    Args:
        counts: word -> how often it occurs.
        merges: pair -> its place in the order of learning, as the student's function found them.
    """
    words = {tuple(word): n for word, n in counts.items()}
    frames = [_merged(f"Before: letters only, {_length(words)} symbols in the text", words, "")]
    for number, pair in enumerate(sorted(merges, key=lambda pair: merges[pair]), 1):
        before = _length(words)
        words = {_join(word, pair): n for word, n in words.items()}
        a, b = pair
        told = f"Merge {number}: {a} and {b} stood together {before - _length(words)} times"
        frames.append(_merged(f"{told}; {_length(words)} symbols are left", words, a + b))
    return player(frames, "Byte-pair encoding, merge by merge")


def longest_match(word: str, vocab: Collection[str]) -> Html:
    """WordPiece's cut of one word, one token a frame: what is looked up, until something fits.

    Args:
        word: one word, without spaces.
        vocab: the tokens; those that continue a word begin with ##.
    """
    frames = [PlayerFrame(f"The word {word}", boxes((c, "plain") for c in word), " ".join(word))]
    done: list[tuple[str, str]] = []
    start = 0
    while start < len(word):
        mark = "##" if start else ""
        tries = [mark + word[start:end] for end in range(len(word), start, -1)]
        fit = next((i for i, token in enumerate(tries) if token in vocab), None)
        if fit is None:
            frames.append(_matched("Nothing fits: the whole word is [UNK]", tries, None, []))
            break
        done.append((tries[fit], "blue"))
        start = len(word) - fit
        rest = [(c, "plain") for c in word[start:]]
        told = f"Token {len(done)}: {tries[fit]} is the longest that fits"
        frames.append(_matched(told, tries[: fit + 1], fit, [*done, *rest]))
    return player(frames, "WordPiece: the longest match, from the left")


def _matched(
    title: str, tries: Sequence[str], fit: int | None, state: Sequence[tuple[str, str]]
) -> PlayerFrame:
    """A frame: the tokens that were looked up, then the word as far as it is cut."""
    looked_up = boxes((token, "blue" if i == fit else "plain") for i, token in enumerate(tries))
    word = boxes(state or [("[UNK]", "dark")])
    return PlayerFrame(
        title,
        f"<div>looked up:</div>{looked_up}<div>the word so far:</div>{word}",
        " ".join(text for text, _ in state or [("[UNK]", "")]),
    )


def _length(words: Mapping[tuple[str, ...], int]) -> int:
    return sum(n * len(word) for word, n in words.items())


def _join(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    """The word with every occurrence of the pair joined, from left to right."""
    out: list[str] = []
    i = 0
    while i < len(word):
        here = word[i : i + 2] == pair
        out.append("".join(pair) if here else word[i])
        i += 2 if here else 1
    return tuple(out)


def _merged(title: str, words: Mapping[tuple[str, ...], int], new: str) -> PlayerFrame:
    """A frame of words as boxes: the new symbol yellow, older joined ones blue."""
    rows = []
    for word in words:
        tints = ["plain" if len(s) == 1 else "yellow" if s == new else "blue" for s in word]
        line = boxes(zip(word, tints, strict=True))
        rows.append(f'<div style="display:inline-block;width:19em;max-width:100%">{line}</div>')
    return PlayerFrame(title, "".join(rows), "  ".join(" ".join(word) for word in words))
