"""Masks that ask for what the sentences before have said."""

import pytest
import torch

from course_lib import corrupt
from course_lib.corrupt import IGNORE
from course_lib.tokenizers import train_wordpiece

TEXT = "ann has lamps . bob has keys . ann has keys . bob has lamps ? cy has lamps ."
TOKENIZER = train_wordpiece([TEXT, "ann bob cy lamps keys has . ?"] * 20, 60)
NAMES = {token for ids in TOKENIZER.ids(["ann", "bob", "cy", "lamps", "keys"], special=False) for token in ids}


def asked(rate: float, seed: int) -> tuple[torch.Tensor, corrupt.Corrupted]:
    ids = torch.tensor(TOKENIZER.ids([TEXT])) if not isinstance(TOKENIZER.ids([TEXT]), torch.Tensor) else None
    assert ids is not None
    known = corrupt.mask_known(
        ids,
        corrupt.generator(seed),
        vocab=TOKENIZER.vocab,
        names=NAMES,
        ends=corrupt.sentence_ends(TOKENIZER),
        rate=rate,
    )
    return ids, known


def test_one_whole_name_of_each_known_sentence_is_hidden() -> None:
    chosen = set()
    for seed in range(30):
        ids, (seen, labels, at) = asked(1.0, seed)
        assert torch.equal(labels.where(at, seen), ids) and (seen[at] == TOKENIZER.vocab.mask).all()
        assert (labels[~at] == IGNORE).all()
        hidden = TOKENIZER.decode(ids[0][at[0]]).split()
        assert len(hidden) == 2  # of the third and the fourth sentence: of the first two and the last not all is known
        assert hidden[0] in ("ann", "keys") and hidden[1] in ("bob", "lamps")
        chosen |= set(hidden)
    assert chosen == {"ann", "keys", "bob", "lamps"}


def test_the_rate_is_a_share_of_the_known_sentences() -> None:
    counts = [len(TOKENIZER.decode(ids[0][found.at[0]]).split()) for ids, found in (asked(0.5, s) for s in range(200))]
    assert 0.4 < sum(counts) / 400 < 0.6
    assert not asked(0.0, 1)[1].at.any()


def test_draws_follow_the_generator() -> None:
    assert torch.equal(asked(0.5, 3)[1].at, asked(0.5, 3)[1].at)
    assert len({tuple(asked(0.5, seed)[1].at[0].tolist()) for seed in range(9)}) > 2


def test_a_word_of_several_tokens_is_a_name_and_hidden_whole() -> None:
    text = "bobkeys has keys . bobkeys has keys ."
    ids = torch.tensor(TOKENIZER.ids([text]))
    words = TOKENIZER.words(ids)
    pieces = int((words == 0).sum())
    assert pieces > 1
    hidden = set()
    for seed in range(20):
        generator, ends = corrupt.generator(seed), corrupt.sentence_ends(TOKENIZER)
        keys = TOKENIZER.ids(["keys"], special=False)[0]
        at = corrupt.mask_known(ids, generator, vocab=TOKENIZER.vocab, names=keys, ends=ends, rate=1.0, words=words).at[
            0
        ]
        hidden.add(tuple(words[0, at].tolist()))
        assert int(at.sum()) in (len(keys), pieces)
    assert hidden == {(4,) * pieces, (6,) * len(keys)}  # the second sentence's, all pieces of one of them


def test_names_are_asked_for_only_with_a_mask_token() -> None:
    vocab = type(TOKENIZER.vocab)(**{**vars(TOKENIZER.vocab), "mask": None})
    with pytest.raises(Exception, match="mask token"):
        corrupt.mask_known(torch.tensor([[1]]), corrupt.generator(0), vocab=vocab, names=(), ends=())
