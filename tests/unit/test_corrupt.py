"""Masking and sentence pairs: who is chosen, what stands there afterwards, and that draws follow the generator."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.corrupt import IGNORE, generator, mask_documents, mask_tokens, nsp_pairs
from course_lib.errors import CourseError
from course_lib.tokenizers import Vocab

VOCAB = Vocab(size=1000, pad=0, unk=1, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4))
BPE = Vocab(size=1000, pad=0, bos=1, eos=1, special=(0, 1))


def rows(b: int = 400, t: int = 100) -> tuple[torch.Tensor, torch.Tensor]:
    """[CLS] tokens [SEP] padding, all lengths from 5 on."""
    draw = generator(7)
    ids = torch.randint(5, VOCAB.size, (b, t), generator=draw)
    lengths = torch.randint(5, t + 1, (b, 1), generator=draw)
    places = torch.arange(t).expand(b, t)
    ids = ids.masked_fill(places == 0, 2).masked_fill(places == lengths - 1, 3)
    keep = places < lengths
    return ids.masked_fill(~keep, 0), keep


def test_shares_are_80_10_10_and_not_81_10_9() -> None:
    ids, keep = rows(8000)
    seen, labels, at = mask_tokens(ids, generator(0), vocab=VOCAB, keep=keep)
    n = int(at.sum())
    masked = int((seen[at] == VOCAB.mask).sum()) / n
    kept = int((seen[at] == labels[at]).sum()) / n
    tolerance = 4 * math.sqrt(0.1 * 0.9 / n)  # four standard errors
    assert tolerance < 0.006, "too few draws to tell 81/10/9 from 80/10/10"
    assert abs(masked - 0.8) < 1.4 * tolerance
    assert abs(kept - 0.1 - 0.1 / 995) < tolerance  # a random token may be the right one


def test_exactly_the_rate_of_each_rows_ordinary_tokens_is_chosen() -> None:
    ids, keep = rows()
    _, _, at = mask_tokens(ids, generator(0), vocab=VOCAB, keep=keep)
    ordinary = keep.sum(1) - 2
    expected = (ordinary * 0.15).round().clamp(min=1)
    assert torch.equal(at.sum(1), expected.long())


def test_places_are_uniform() -> None:
    ids = torch.full((20000, 20), 9)
    _, _, at = mask_tokens(ids, generator(1), vocab=VOCAB)
    share = at.float().mean(0)
    assert (share - 0.15).abs().max() < 0.012


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**31),
    rate=st.floats(0, 1),
    b=st.integers(1, 5),
    t=st.integers(1, 12),
    whole=st.booleans(),
)
def test_properties(seed: int, rate: float, b: int, t: int, whole: bool) -> None:
    draw = generator(seed)
    ids = torch.randint(0, VOCAB.size, (b, t), generator=draw)
    keep = torch.rand(b, t, generator=draw) < 0.8
    words = (torch.rand(b, t, generator=draw) < 0.5).cumsum(1) - 1 if whole else None
    before = ids.clone()
    seen, labels, at = mask_tokens(ids, generator(seed), vocab=VOCAB, rate=rate, words=words, keep=keep)
    again = mask_tokens(ids, generator(seed), vocab=VOCAB, rate=rate, words=words, keep=keep)
    assert all(torch.equal(x, y) for x, y in zip((seen, labels, at), again, strict=True))
    assert torch.equal(ids, before), "the input was written to"
    assert torch.equal(seen[~at], ids[~at]), "a token that was not chosen changed"
    assert (labels[~at] == IGNORE).all() and torch.equal(labels[at], ids[at])
    assert not (at & ~keep).any() and not (ids[at] < 5).any(), "padding or a special token was chosen"
    allowed = (seen[at] >= 5) | (seen[at] == VOCAB.mask)
    assert allowed.all(), "a special token was put in"
    if rate == 0:
        assert not at.any()


def test_whole_words_are_chosen_whole_and_at_the_rate() -> None:
    t = 60
    words = (torch.arange(t) // 3).expand(500, t).clone()  # 20 words of three pieces
    words[:, -3:] = -1
    ids = torch.full((500, t), 50)
    _, _, at = mask_tokens(ids, generator(0), vocab=VOCAB, words=words)
    pieces = at[:, :57].reshape(500, 19, 3)
    assert (pieces.all(-1) | ~pieces.any(-1)).all()
    assert (pieces.all(-1).sum(1) == 3).all()  # 0.15 * 19, rounded
    assert not at[:, 57:].any()
    assert len({tuple(row) for row in pieces.all(-1).int().tolist()}) > 300, "rows share their draws"


def test_one_row_without_a_batch_dimension() -> None:
    seen, labels, at = mask_tokens(torch.full((40,), 9), generator(0), vocab=VOCAB)
    assert seen.shape == labels.shape == at.shape == (40,)
    assert int(at.sum()) == 6


def test_rows_of_special_tokens_only_stay_as_they_are() -> None:
    ids = torch.tensor([[2, 3, 0, 0], [2, 9, 3, 0]])
    seen, _, at = mask_tokens(ids, generator(0), vocab=VOCAB)
    assert at.sum(1).tolist() == [0, 1]
    assert torch.equal(seen[0], ids[0])


def test_static_masks_depend_on_the_document_alone() -> None:
    ids, keep = rows(6, 40)
    some = mask_documents(ids, range(6), vocab=VOCAB, seed=1, epoch=0, copies=1, keep=keep)
    order = [4, 0, 2]
    later = mask_documents(ids[order], order, vocab=VOCAB, seed=1, epoch=5, copies=1, keep=keep[order])
    assert torch.equal(later.ids, some.ids[order]) and torch.equal(later.at, some.at[order])
    other = mask_documents(ids, range(6), vocab=VOCAB, seed=2, epoch=0, copies=1, keep=keep)
    assert not torch.equal(other.at, some.at)


def test_dynamic_masks_change_with_the_epoch_and_ten_copies_come_round() -> None:
    ids, _ = rows(6, 40)

    def at(epoch: int, copies: int | None) -> torch.Tensor:
        return mask_documents(ids, range(6), vocab=VOCAB, seed=1, epoch=epoch, copies=copies).at

    assert not torch.equal(at(0, None), at(1, None))
    assert not torch.equal(at(0, None), at(10, None))
    assert torch.equal(at(3, 10), at(13, 10)) and not torch.equal(at(3, 10), at(4, 10))


def test_generators_of_neighbouring_keys_are_unrelated() -> None:
    draws = torch.stack([torch.rand(1000, generator=generator(0, k)) for k in range(20)])
    off = torch.corrcoef(draws) - torch.eye(20)
    assert off.abs().max() < 0.15
    assert torch.equal(torch.rand(3, generator=generator(1, 2)), torch.rand(3, generator=generator(1, 2)))


DOCUMENTS = [[f"{d}.{s}" for s in range(length)] for d, length in enumerate([6, 1, 4, 9, 2, 0])]


def test_half_the_pairs_are_consecutive_and_half_from_another_document() -> None:
    pairs = nsp_pairs(DOCUMENTS, generator(3), n=1000)
    assert sum(pair.next == 0 for pair in pairs) == 500
    for pair in pairs:
        (d, s), (e, r) = (map(int, text.split(".")) for text in (pair.text, pair.pair))
        if pair.next == 0:
            assert (e, r) == (d, s + 1)
        else:
            assert e != d
    first_hundred = Counter(pair.next for pair in pairs[:100])
    assert min(first_hundred.values()) > 20, "true and false pairs are not mixed"
    assert {pair.pair.split(".")[0] for pair in pairs if pair.next} == {"0", "1", "2", "3", "4"}
    assert nsp_pairs(DOCUMENTS, generator(3), n=1000) == pairs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rate": 1.5}, "between 0 and 1"),
        ({"parts": (0.8, 0.1, 0.2)}, "add up to 1"),
        ({"vocab": BPE}, "mask token"),
        ({"keep": torch.ones(2, 3, dtype=torch.bool)}, "keep has shape"),
    ],
)
def test_bad_input_is_one_sentence(change: dict[str, object], words: str) -> None:
    with pytest.raises(CourseError, match=words):
        mask_tokens(torch.full((2, 8), 9), generator(0), **({"vocab": VOCAB} | change))  # type: ignore[arg-type]


def test_pairs_need_two_documents() -> None:
    with pytest.raises(CourseError, match="at least two documents"):
        nsp_pairs([["a", "b"]], generator(0), n=2)
    with pytest.raises(CourseError, match="at least two documents"):
        nsp_pairs([["a"], ["b"]], generator(0), n=2)
