"""What models, objectives and data agree on: special tokens, and the label for no target."""

from dataclasses import dataclass

# The label of a position that carries no loss; `F.cross_entropy` leaves it out by default.
IGNORE = -100


@dataclass(frozen=True)
class Vocab:
    """What a model must know of a vocabulary: its size, and the ids of its special tokens.

    Attributes:
        size: number of tokens.
        pad, unk, cls, sep, mask, bos, eos: the token with this role; None if there is none.
        special: all tokens that are not text, those with a role among them.
        ends: tokens that end a sentence: full stops, question and exclamation marks.
        sentinels: tokens that stand for the spans that T5 is asked for, in their order.
    """

    size: int
    pad: int | None = None
    unk: int | None = None
    cls: int | None = None
    sep: int | None = None
    mask: int | None = None
    bos: int | None = None
    eos: int | None = None
    special: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    sentinels: tuple[int, ...] = ()
