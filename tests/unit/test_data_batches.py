"""Token stores and batch sources: nothing lost, nothing doubled, every batch a function of (seed, step)."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib import CourseError, objectives
from course_lib.data.batches import (
    CorruptedBatches,
    DocumentBatches,
    MaskedBatches,
    SentencePairBatches,
    Source,
    WindowBatches,
    pad,
)
from course_lib.data.token_store import TokenStore, encode_corpus, pieces
from course_lib.tokenizers import Tokenizer, train_bpe, train_wordpiece

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "then",
    "another",
    "unbelievable",
    "dog",
    "was",
    "running",
    "over",
    "it",
    "again",
]
RNG = np.random.default_rng(0)
DOCUMENTS = [[" ".join(RNG.choice(WORDS, 5)) + "." for _ in range(RNG.integers(1, 6))] for _ in range(60)]
TEXTS = [" ".join(sentences) for sentences in DOCUMENTS]


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return train_wordpiece(TEXTS, 90)


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return train_bpe(TEXTS, 300)


def sources(wordpiece: Tokenizer, bpe: Tokenizer) -> list[Source]:
    pieces, stream = encode_corpus(TEXTS, wordpiece), encode_corpus(TEXTS, bpe)
    return [
        DocumentBatches(stream, bpe, length=24, tokens=200, seed=3),
        WindowBatches(stream, length=16, rows=6, seed=3),
        MaskedBatches(pieces, wordpiece, length=24, rows=6, seed=3),
        MaskedBatches(pieces, wordpiece, length=24, rows=6, seed=3, copies=2, whole_words=True),
        SentencePairBatches(DOCUMENTS, wordpiece, length=24, rows=6, seed=3),
        CorruptedBatches(
            pieces,
            wordpiece,
            partial(objectives.denoised, vocab=wordpiece.vocab, noises=["text infilling"]),
            length=24,
            rows=6,
            seed=3,
        ),
    ]


@pytest.mark.parametrize("shard_tokens", [2**28, 100, 1])
def test_stored_tokens_are_the_corpus(tmp_path: Path, bpe: Tokenizer, shard_tokens: int) -> None:
    memory = encode_corpus(({"text": t} for t in TEXTS), bpe)
    disk = encode_corpus(TEXTS, bpe, tmp_path / "tokens", shard_tokens=shard_tokens)
    assert len(list((tmp_path / "tokens").glob("tokens-*.bin"))) == {2**28: 1, 1: len(TEXTS)}.get(
        shard_tokens, len(list((tmp_path / "tokens").glob("starts-*.bin")))
    )
    for store in (memory, disk, TokenStore.open(tmp_path / "tokens")):
        assert [bpe.decode(store[i]) for i in range(len(store))] == TEXTS
        assert all(store[i][-1] == bpe.vocab.eos for i in range(len(store)))
        assert store.tokens == sum(len(store[i]) for i in range(len(store)))
        everything = np.concatenate([store[i] for i in range(len(store))])
        assert store.stream(0, store.tokens).tolist() == everything.tolist()
        assert store.stream(37, 411).tolist() == everything[37:411].tolist()


def test_a_corpus_larger_than_memory_goes_through(tmp_path: Path, bpe: Tokenizer) -> None:
    """Shards are written while the text still comes in: a thousand documents and a shard are all that is held."""
    seen = []

    def endless() -> Iterator[str]:
        for number in range(6000):
            if number % 1000 == 999:
                seen.append(len(list(tmp_path.glob("starts-*.bin"))))
            yield f"the cat {number}"

    store = encode_corpus(endless(), bpe, tmp_path, shard_tokens=5000)
    assert len(store) == 6000
    assert seen[0] == 0 and seen == sorted(seen) and seen[3] >= 2
    assert isinstance(store._shards[0], np.memmap)


def test_small_vocabularies_take_two_bytes(tmp_path: Path, wordpiece: Tokenizer) -> None:
    store = encode_corpus(TEXTS, wordpiece, tmp_path)
    assert (tmp_path / "tokens-00000.bin").stat().st_size == 2 * store.tokens


def test_damaged_token_files_are_refused(tmp_path: Path, wordpiece: Tokenizer) -> None:
    with pytest.raises(CourseError, match=r"no header\.json"):
        TokenStore.open(tmp_path)
    encode_corpus(TEXTS, wordpiece, tmp_path)
    file = tmp_path / "tokens-00000.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CourseError, match=r"tokens-00000\.bin is missing or not of the size"):
        TokenStore.open(tmp_path)


def test_an_interrupted_write_leaves_no_header(tmp_path: Path, wordpiece: Tokenizer) -> None:
    encode_corpus(TEXTS, wordpiece, tmp_path)
    with pytest.raises(CourseError, match="no text column 'text'; it has body"):
        encode_corpus([*TEXTS, {"body": "x"}], wordpiece, tmp_path)
    with pytest.raises(CourseError, match=r"no header\.json"):
        TokenStore.open(tmp_path)


def test_empty_corpora_are_refused(wordpiece: Tokenizer) -> None:
    for empty in ([], ["", " "]):
        with pytest.raises(CourseError, match="corpus is empty"):
            encode_corpus(empty, wordpiece)


def test_batches_are_functions_of_seed_and_step(wordpiece: Tokenizer, bpe: Tokenizer) -> None:
    again = sources(wordpiece, bpe)
    for first, second in zip(sources(wordpiece, bpe), again, strict=True):
        order = [first.steps + 1, 0, 2 * first.steps, 1]
        wanted = [first[i] for i in order]
        for step, batch in reversed(list(zip(order, wanted, strict=True))):
            for name, value in second[step].items():
                assert torch.equal(value, batch[name]), (type(first).__name__, step, name)


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=12), length=st.integers(2, 12), overlap=st.integers(0, 1)
)
def test_pieces_are_the_documents(sizes: list[int], length: int, overlap: int) -> None:
    starts = np.concatenate([[0], np.cumsum(sizes)])
    wanted = []
    for document, (first, stop) in enumerate(pairwise(starts.tolist())):
        while stop - first > length:
            wanted.append([document, first, first + length])
            first += length - overlap
        if stop > first:
            wanted.append([document, first, stop])
    assert pieces(starts, length, overlap).tolist() == wanted


def test_token_files_know_their_tokenizer(tmp_path: Path, bpe: Tokenizer, wordpiece: Tokenizer) -> None:
    encode_corpus(TEXTS, bpe, tmp_path, note={"data": "cats"})
    assert TokenStore.open(tmp_path, bpe).note == {"data": "cats"}
    with pytest.raises(CourseError, match="of another tokenizer"):
        TokenStore.open(tmp_path, wordpiece)


def test_an_id_outside_the_vocabulary_is_found_when_it_is_read(tmp_path: Path, bpe: Tokenizer) -> None:
    store = encode_corpus(TEXTS, bpe, tmp_path)
    tokens = np.memmap(tmp_path / "tokens-00000.bin", dtype="<u2", mode="r+")
    tokens[40] = bpe.vocab.size
    tokens.flush()
    assert len(store.stream(0, 40)) == 40
    with pytest.raises(CourseError, match=f"stands id {bpe.vocab.size}, but the vocabulary has {bpe.vocab.size}"):
        store.stream(0, 41)


def test_every_target_of_every_document_once_an_epoch(bpe: Tokenizer) -> None:
    store = encode_corpus(TEXTS, bpe)
    wanted = Counter(pair for i in range(len(store)) for pair in pairwise([bpe.vocab.bos, *store[i].tolist()]))
    source = DocumentBatches(store, bpe, length=16, tokens=128)
    orders = []
    for epoch in range(2):
        seen: Counter[tuple[int, int]] = Counter()
        for step in range(epoch * source.steps, (epoch + 1) * source.steps):
            batch = source[step]
            assert batch["ids"].numel() <= 128 and batch["ids"].shape[1] <= 16
            assert (batch["ids"][~batch["keep"]] == bpe.vocab.pad).all()
            for row, keep in zip(batch["ids"], batch["keep"], strict=True):
                seen.update(pairwise(row[keep].tolist()))
        assert seen == wanted
        orders.append(source[epoch * source.steps]["ids"].tolist())
    assert orders[0] != orders[1]


def test_rows_of_like_length_stand_together(bpe: Tokenizer) -> None:
    source = DocumentBatches(encode_corpus(TEXTS, bpe), bpe, length=256, rows=6)
    for i in range(source.steps):
        lengths = source[i]["keep"].sum(1)
        assert lengths.max() - lengths.min() < 32  # two neighbouring widths at most
    together = np.mean([source[i]["keep"].float().mean().item() for i in range(source.steps)])
    everything = pad([source.store[i] for i in range(len(source.store))], 0)["keep"].float().mean().item()
    assert together > 1.25 * everything


@pytest.mark.parametrize("most", [None, 24, 40])
def test_widths_are_few_and_never_past_the_last_position(most: int | None) -> None:
    for length in range(1, (most or 60) + 1):
        batch = pad([[7] * length, [7]], 0, most=most)
        width = batch["ids"].shape[1]
        assert width >= length and (width % 16 == 0 or width == most) and width - length < 16
        assert batch["keep"].sum(1).tolist() == [length, 1] and (batch["ids"] == 7).sum() == length + 1
    assert pad([[1, 2]], 0, width=5)["ids"].tolist() == [[1, 2, 0, 0, 0]]


def test_sources_keep_to_their_length_and_tokens(wordpiece: Tokenizer, bpe: Tokenizer) -> None:
    store, pieces = encode_corpus(TEXTS, bpe), encode_corpus(TEXTS, wordpiece)
    for source in (
        DocumentBatches(store, bpe, length=27, tokens=150),
        MaskedBatches(pieces, wordpiece, length=27, tokens=150),
        MaskedBatches(pieces, wordpiece, length=27, tokens=150, copies=1),
    ):
        shapes = {tuple(source[i]["ids"].shape) for i in range(source.steps)}
        assert {width for _, width in shapes} <= {16, 27} and max(rows * width for rows, width in shapes) <= 150
        assert all(v.shape == source[0]["ids"].shape for v in source[0].values())
    pairs = SentencePairBatches(DOCUMENTS, wordpiece, length=27, rows=6)[0]
    assert pairs["segments"].shape == pairs["ids"].shape == pairs["labels"].shape
    assert pairs["ids"].shape[1] in (16, 27)


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CourseError, match="no rows to pad"):
        pad([], 0)
    with pytest.raises(CourseError, match="3 tokens does not fit into a width of 2"):
        pad([[1, 2, 3]], 0, width=2)


def test_windows_cover_the_stream_once(bpe: Tokenizer) -> None:
    store = encode_corpus(TEXTS, bpe)
    stream = store.stream(0, store.tokens).tolist()
    source = WindowBatches(store, length=16, rows=4)
    starts = []
    for step in range(source.steps):
        batch = source[step]
        assert batch["ids"].shape == batch["labels"].shape == (4, 16)
        assert torch.equal(batch["ids"][:, 1:], batch["labels"][:, :-1])
        for row, last in zip(batch["ids"].tolist(), batch["labels"][:, -1].tolist(), strict=True):
            starts.append(next(i for i in range(len(stream)) if stream[i : i + 17] == [*row, last]))
    assert {(b - a) % 16 for a, b in pairwise(sorted(starts))} == {0}
    assert len(set(starts)) == len(starts) == 4 * source.steps
    with pytest.raises(CourseError, match="too short"):
        WindowBatches(store, length=16, rows=10_000)


def test_masked_rows_hold_the_documents(wordpiece: Tokenizer) -> None:
    store = encode_corpus(TEXTS, wordpiece)
    source = MaskedBatches(store, wordpiece, length=24, rows=8)
    seen: Counter[int] = Counter()
    for step in range(source.steps):
        batch = source[step]
        original = torch.where(batch["at"], batch["labels"], batch["ids"])
        assert (original[:, 0] == wordpiece.vocab.cls).all()
        last = batch["keep"].sum(1) - 1
        assert (original[torch.arange(len(last)), last] == wordpiece.vocab.sep).all()
        assert (batch["labels"][~batch["at"]] == -100).all()
        assert batch["at"].any(1).all() and not (batch["at"] & ~batch["keep"]).any()
        seen.update(original[batch["keep"]].tolist())
    for special in (wordpiece.vocab.cls, wordpiece.vocab.sep):
        assert seen.pop(special) == len(source.cut)
    assert seen == Counter(store.stream(0, store.tokens).tolist())


def test_static_masks_return_and_dynamic_ones_do_not(wordpiece: Tokenizer) -> None:
    store = encode_corpus(TEXTS, wordpiece)

    def masks(copies: int | None, epoch: int) -> set[tuple[tuple[int, ...], ...]]:
        source = MaskedBatches(store, wordpiece, length=40, rows=7, copies=copies)
        rows = set()
        for step in range(epoch * source.steps, (epoch + 1) * source.steps):
            batch = source[step]
            for ids, labels, keep in zip(batch["ids"], batch["labels"], batch["keep"], strict=True):
                rows.add((tuple(ids[keep].tolist()), tuple(labels[keep].tolist())))
        return rows

    assert masks(1, 0) == masks(1, 1)  # though the rows then stand beside others, in other widths
    assert masks(2, 0) != masks(2, 1) and masks(2, 0) == masks(2, 2)
    assert masks(None, 0) != masks(None, 1)


def test_dynamic_masks_differ_even_on_equal_rows(wordpiece: Tokenizer) -> None:
    source = MaskedBatches(encode_corpus(TEXTS[:1] * 8, wordpiece), wordpiece, length=64, rows=4)
    assert not torch.equal(source[0]["at"], source[source.steps]["at"])


def test_whole_words_are_masked_whole() -> None:
    wordpiece = train_wordpiece(TEXTS, 45)  # hardly more than letters, so that every word has several pieces
    source = MaskedBatches(encode_corpus(TEXTS, wordpiece), wordpiece, length=64, rows=20, whole_words=True)
    broken = 0
    for step in range(3):
        batch = source[step]
        words = wordpiece.words(torch.where(batch["at"], batch["labels"], batch["ids"]))
        for row, at in zip(words, batch["at"], strict=True):
            for word in set(row[at].tolist()):
                broken += not at[row == word].all()
    assert broken == 0


def test_sentence_pairs(wordpiece: Tokenizer) -> None:
    source = SentencePairBatches(DOCUMENTS, wordpiece, length=128, rows=20)
    following = {tuple(wordpiece.encode(a, b).ids) for document in DOCUMENTS for a, b in pairwise(document)}
    for step in range(3):
        batch = source[step]
        assert set(batch) == {"ids", "keep", "segments", "labels", "at", "next"}
        assert batch["next"].sum() == 10
        original = torch.where(batch["at"], batch["labels"], batch["ids"])
        for row, keep, segments, away in zip(original, batch["keep"], batch["segments"], batch["next"], strict=True):
            assert tuple(row[keep].tolist()) in following or away
            second = row[keep & (segments == 1)]
            assert second[-1] == wordpiece.vocab.sep and (row == wordpiece.vocab.sep).sum() == 2
    short = SentencePairBatches(DOCUMENTS, wordpiece, length=12, rows=20)
    assert short[0]["ids"].shape[1] == 12


def test_bad_arguments_are_one_sentence(wordpiece: Tokenizer, bpe: Tokenizer) -> None:
    store = encode_corpus(TEXTS, bpe)
    with pytest.raises(CourseError, match="either in rows or in tokens"):
        DocumentBatches(store, bpe, length=16)
    with pytest.raises(CourseError, match="either in rows or in tokens"):
        DocumentBatches(store, bpe, length=16, rows=2, tokens=64)
    with pytest.raises(CourseError, match="is empty"):
        DocumentBatches(store, bpe, length=16, rows=0)
    with pytest.raises(CourseError, match="nothing to predict"):
        DocumentBatches(store, bpe, length=2, rows=4)
    with pytest.raises(CourseError, match=r"\[MASK\]"):
        MaskedBatches(store, bpe, length=16, rows=4)
    with pytest.raises(CourseError, match="no step -1"):
        WindowBatches(store, length=16, rows=4)[-1]
