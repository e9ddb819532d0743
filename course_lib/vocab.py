"""What models, objectives and data share: the special tokens, and the label of no target."""

from dataclasses import dataclass

# The label of a position that carries no loss; `F.cross_entropy` leaves it out by default.
IGNORE = -100


@dataclass(frozen=True)
class Vocab:
    """The size of a vocabulary, and the ids of its special tokens.

    Attributes:
        size: the number of tokens.
        pad, unk, cls, sep, mask, bos, eos: the id of this special token; None if there is none.
        special: the ids of all special tokens, with or without a role above.
        ends: the ids of tokens that end a sentence: full stops, question and exclamation marks.
        sentinels: the ids of the tokens that replace T5's masked spans, in order.
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

    @property
    def padding_id(self) -> int:
        """The id that fills up the short rows of a batch: `pad`, or 0 if there is no such token.

        GPT-2, for example, has none. There any id will do, because the attention mask hides it.
        """
        return 0 if self.pad is None else self.pad
