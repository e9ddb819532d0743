"""The masking examples that the slides print, to the letter: each is one of the draws, made by these functions."""

import torch

from course_lib.corrupt import generator, mask_tokens, nsp_pairs, prefix_lm
from course_lib.tokenizers import Vocab

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def text(words: str) -> tuple[torch.Tensor, list[str], Vocab]:
    """Ids, names and a vocabulary for a text in space-separated tokens."""
    tokens = words.split()
    names = SPECIALS + sorted(set(tokens) - set(SPECIALS))
    vocab = Vocab(size=len(names), pad=0, unk=1, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4))
    return torch.tensor([names.index(token) for token in tokens]), names, vocab


def draws(words: str, *, rate: float, n: int = 400, whole: torch.Tensor | None = None, **options) -> set[str]:
    ids, names, vocab = text(words)
    seen = (mask_tokens(ids, generator(s), vocab=vocab, rate=rate, words=whole, **options).ids for s in range(n))
    return {" ".join(names[i] for i in row.tolist()) for row in seen}


def test_a_word_of_a_sentence_is_masked() -> None:
    only = {"parts": (1.0, 0.0, 0.0)}
    seen = draws("The dog barked at the mailman .", rate=1 / 7, **only)
    assert "The [MASK] barked at the mailman ." in seen and len(seen) == 7
    assert "The cat sat on the [MASK]" in draws("The cat sat on the mat", rate=1 / 6, **only)


def test_pieces_of_a_word_are_masked_alone_or_together() -> None:
    tokens = "_O _bama _was _the _president _of _the _United _States _in _2010"
    alone = "[MASK] _bama _was _the _president _of _the _United _States _in _2010"
    together = "[MASK] [MASK] _was _the _president _of _the _United _States _in _2010"
    words = torch.tensor([0, 0, *range(1, 10)])
    only = {"parts": (1.0, 0.0, 0.0)}
    pieces, whole = draws(tokens, rate=1 / 11, **only), draws(tokens, rate=1 / 10, whole=words, **only)
    assert alone in pieces and together not in pieces and len(pieces) == 11
    assert together in whole and alone not in whole and len(whole) == 10


def test_a_pair_with_masks_on_both_sides() -> None:
    pair = nsp_pairs([["John visited Madagascar yesterday and really liked it", "I like Madonna ."], ["?"]],
                     generator(0), n=2)  # fmt: skip
    true = next(p for p in pair if p.next == 0)
    seen = draws(f"[CLS] {true.text} [SEP] {true.pair}", rate=0.25, n=3000, parts=(1.0, 0.0, 0.0))
    assert "[CLS] John visited [MASK] yesterday and really [MASK] it [SEP] I [MASK] Madonna ." in seen


def test_a_text_is_split_for_an_encoder_decoder() -> None:
    ids, names, vocab = text("Thank you for inviting me to your party last week .")
    cuts = set()
    for seed in range(300):
        parts = prefix_lm(ids, generator(seed), vocab=vocab)
        cuts.add(tuple(" ".join(names[i] for i in part.tolist()) for part in parts))
    assert len(cuts) == 10
    assert ("Thank you for inviting me", "to your party last week .") in cuts
