"""Interactive pictures of the lessons: HTML and JavaScript that work without a kernel or a network.

Each function returns an `Html` that shows itself as the last expression of a cell.

    attention.py     where a head looks
    beam.py          a beam search, step by step
    calculators.py   what a model costs to train and to hold
    games.py         quizzes, and words to find
    player.py        frames with back and next
    vectors.py       words and their neighbours; a query and a key, rotated
    card.py          what all widgets are made of
"""
# ruff: noqa: F401  the names are the package's

from classroom.widgets.attention import attention, head_player
from classroom.widgets.beam import beam_tree
from classroom.widgets.calculators import calculator
from classroom.widgets.games import (
    ReplacedText,
    quiz,
    which_replaced,
)
from classroom.widgets.player import (
    PlayerFrame,
    longest_match,
    masking,
    merging,
    player,
    samples,
    word_steps,
)
from classroom.widgets.vectors import rotation, word_map
