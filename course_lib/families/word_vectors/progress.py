"""What word2vec and GloVe report while they train."""

from typing import NamedTuple


class Progress(NamedTuple):
    """The end of one epoch.

    Attributes:
        epoch: how many epochs are finished, so the first report says 1.
        loss: mean over the epoch, before each update. Skip-gram averages over pairs of a centre
            and a context word, CBOW over centres, GloVe over the terms of J.
    """

    epoch: int
    loss: float
