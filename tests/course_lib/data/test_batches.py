"""Token stores and batch sources: nothing lost, nothing doubled, every batch a function of (seed,
step).
"""

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

from course_lib import CourseError
from course_lib.data.batch_plans import SimilarLength, permutation
from course_lib.data.batches import (
    BatchSource,
    CorruptedBatches,
    DocumentBatches,
    WindowBatches,
)
from course_lib.data.stream_batches import StreamBatches
from course_lib.data.token_store import TokenStore, cut_documents, encode_corpus
from course_lib.data.tokenizers import Tokenizer, train_bpe, train_wordpiece
from course_lib.objectives import collate

SAID = "the cat sat on a mat and then another unbelievable dog was running over it again"
WORDS = SAID.split()
RNG = np.random.default_rng(0)
DOCUMENTS = [
    [" ".join(RNG.choice(WORDS, 5)) + "." for _ in range(RNG.integers(1, 6))] for _ in range(60)
]
TEXTS = [" ".join(sentences) for sentences in DOCUMENTS]


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return train_wordpiece(TEXTS, 90)


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return train_bpe(TEXTS, 300)


def sources(wordpiece: Tokenizer, bpe: Tokenizer) -> list[BatchSource]:
    pieces, stream = encode_corpus(TEXTS, wordpiece), encode_corpus(TEXTS, bpe)
    infilled = partial(collate.denoised, vocab=wordpiece.vocab, noises=["text infilling"])
    return [
        DocumentBatches(stream, bpe, length=24, tokens=200, seed=3),
        WindowBatches(stream, length=16, rows=6, seed=3),
        CorruptedBatches(pieces, wordpiece, length=24, rows=6, seed=3),
        StreamBatches(read, wordpiece, length=24, rows=3, pool=4, pairs=0.5, seed=3),
        CorruptedBatches(pieces, wordpiece, infilled, length=24, rows=6, seed=3),
    ]


def test_stored_tokens_are_the_corpus(tmp_path: Path, bpe: Tokenizer) -> None:
    memory = encode_corpus(({"text": t} for t in TEXTS), bpe)
    disk = encode_corpus(TEXTS, bpe, tmp_path / "tokens")
    assert isinstance(disk.flat, np.memmap)
    for store in (memory, disk, TokenStore.open(tmp_path / "tokens")):
        assert [bpe.decode(store[i]) for i in range(len(store))] == TEXTS
        assert all(store[i][-1] == bpe.vocab.eos for i in range(len(store)))
        everything = np.concatenate([store[i] for i in range(len(store))])
        assert store.stream(0, store.tokens).tolist() == everything.tolist()
        assert store.stream(37, 411).tolist() == everything[37:411].tolist()


def test_a_corpus_larger_than_memory_goes_through(tmp_path: Path, bpe: Tokenizer) -> None:
    """Tokens are written while the text still comes in: a thousand documents are all that is
    held.
    """
    written = []

    def endless() -> Iterator[str]:
        for number in range(6000):
            if number % 2000 == 1999:
                written.append(sum(file.stat().st_size for file in tmp_path.rglob("*.bin")))
            yield f"the cat {number}"

    assert (
        len(encode_corpus(endless(), bpe, tmp_path)) == 6000
        and written[0] < written[1] < written[2]
    )


def test_damaged_token_files_are_refused(
    tmp_path: Path, wordpiece: Tokenizer, bpe: Tokenizer
) -> None:
    with pytest.raises(CourseError, match=r"no header\.json"):
        TokenStore.open(tmp_path)
    with pytest.raises(KeyError, match="text"):
        encode_corpus([*TEXTS, {"body": "x"}], wordpiece, tmp_path)
    with pytest.raises(CourseError, match=r"no header\.json"):  # the write was interrupted
        TokenStore.open(tmp_path)
    store = encode_corpus(TEXTS, wordpiece, tmp_path, note={"data": "cats"})
    assert TokenStore.open(tmp_path, wordpiece).note == {"data": "cats"}
    with pytest.raises(CourseError, match="of another tokenizer"):
        TokenStore.open(tmp_path, bpe)
    good = (header := tmp_path / "header.json").read_text()
    for old, new in ((good, "[]"), ('"uint16"', '"float"'), ('"documents"', '"pages"')):
        header.write_text(good.replace(old, new))
        with pytest.raises(CourseError, match=r"header\.json is damaged"):
            TokenStore.open(tmp_path)
    header.write_text(good)
    file = tmp_path / "tokens.bin"
    assert file.stat().st_size == 2 * store.tokens
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CourseError, match=r"tokens\.bin is missing or not of the size"):
        TokenStore.open(tmp_path)


def test_batches_are_functions_of_seed_and_step(wordpiece: Tokenizer, bpe: Tokenizer) -> None:
    again = sources(wordpiece, bpe)
    for first, second in zip(sources(wordpiece, bpe), again, strict=True):
        order = [first.steps + 1, 0, 2 * first.steps, 1]
        wanted = [first[i] for i in order]
        for step, batch in reversed(list(zip(order, wanted, strict=True))):
            for name, value in second[step].items():
                assert torch.equal(value, batch[name]), (type(first).__name__, step, name)


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=12),
    length=st.integers(2, 12),
    overlap=st.integers(0, 1),
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
    assert cut_documents(starts, length, overlap).tolist() == wanted


def test_every_target_of_every_document_once_an_epoch(bpe: Tokenizer) -> None:
    store = encode_corpus(TEXTS, bpe)
    wanted = Counter(
        pair for i in range(len(store)) for pair in pairwise([bpe.vocab.bos, *store[i].tolist()])
    )
    source = DocumentBatches(store, bpe, length=16, tokens=128)
    orders = []
    for epoch in range(2):
        seen: Counter[tuple[int, int]] = Counter()
        for step in range(epoch * source.steps, (epoch + 1) * source.steps):
            batch = source[step]
            assert batch["ids"].numel() <= 128 and batch["ids"].shape[1] <= 16
            assert (batch["ids"][~batch["attention_mask"]] == bpe.vocab.pad).all()
            for row, attention_mask in zip(batch["ids"], batch["attention_mask"], strict=True):
                seen.update(pairwise(row[attention_mask].tolist()))
        assert seen == wanted
        orders.append(source[epoch * source.steps]["ids"].tolist())
    assert orders[0] != orders[1]


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


def test_masked_rows_hold_the_documents(wordpiece: Tokenizer) -> None:
    store = encode_corpus(TEXTS, wordpiece)
    source = CorruptedBatches(store, wordpiece, length=24, rows=8)
    seen: Counter[int] = Counter()
    for step in range(source.steps):
        batch = source[step]
        original = torch.where(batch["loss_mask"], batch["labels"], batch["ids"])
        assert (original[:, 0] == wordpiece.vocab.cls).all()
        last = batch["attention_mask"].sum(1) - 1
        assert (original[torch.arange(len(last)), last] == wordpiece.vocab.sep).all()
        assert (batch["labels"][~batch["loss_mask"]] == -100).all()
        assert (
            batch["loss_mask"].any(1).all()
            and not (batch["loss_mask"] & ~batch["attention_mask"]).any()
        )
        seen.update(original[batch["attention_mask"]].tolist())
    for special in (wordpiece.vocab.cls, wordpiece.vocab.sep):
        assert seen.pop(special) == len(source.row_bounds)
    assert seen == Counter(store.stream(0, store.tokens).tolist())
    assert not torch.equal(source[0]["loss_mask"], source[source.steps]["loss_mask"])


def read(number: int) -> list[str]:
    return DOCUMENTS[number % len(DOCUMENTS)]


def test_a_stream_reads_each_document_once_and_cuts_some_in_halves(wordpiece: Tokenizer) -> None:
    size = {"rows": 5, "pool": 4, "length": 128}
    plain = StreamBatches(read, wordpiece, **size)
    seen: Counter[str] = Counter()
    for step in range(4):
        batch = plain[step]
        assert set(batch) == {"ids", "attention_mask", "labels", "loss_mask"}
        seen.update(
            wordpiece.decode(row) for row in batch["labels"].where(batch["loss_mask"], batch["ids"])
        )
    assert seen == Counter(wordpiece.decode(wordpiece.encode(text).ids) for text in TEXTS[:20])

    firsts = {
        tuple(wordpiece.encode(" ".join(d[:c])).ids)
        for d in DOCUMENTS[:20]
        for c in range(1, len(d) + 1)
    }
    wholes = {tuple(wordpiece.encode(text, special=False).ids) for text in TEXTS[:20]}
    labels: Counter[int] = Counter()
    source = StreamBatches(read, wordpiece, pairs=1.0, **size)
    for step in range(4):
        batch = source[step]
        original = batch["labels"].where(batch["loss_mask"], batch["ids"])
        for row, attention_mask, segments, label in zip(
            original, batch["attention_mask"], batch["segments"], batch["next"], strict=True
        ):
            one, two = row[attention_mask & (segments == 0)].tolist(), row[segments == 1].tolist()
            assert tuple(one) in firsts and bool(two) == (label >= 0)
            assert label < 0 or (tuple(one[1:-1] + two[:-1]) in wholes) == (label == 0)
            labels[int(label)] += 1
    assert labels[0] > 2 and labels[1] > 2


def test_bad_arguments_are_one_sentence(wordpiece: Tokenizer, bpe: Tokenizer) -> None:
    store = encode_corpus(TEXTS, bpe)
    for call, message in (
        (lambda: DocumentBatches(store, bpe, length=16), "either in rows or in tokens"),
        (
            lambda: DocumentBatches(store, bpe, length=2, rows=4),
            "no room for text; give at least 3",
        ),
        (lambda: CorruptedBatches(store, bpe, length=16, rows=4), r"\[MASK\]"),
        (lambda: WindowBatches(store, length=16, rows=10_000), "too few for 10000 windows"),
        (lambda: encode_corpus(["", " "], wordpiece), "corpus is empty"),
    ):
        with pytest.raises(CourseError, match=message):
            call()


@pytest.mark.parametrize(("rows", "tokens"), [(None, None), (2, 64)])
def test_a_plan_needs_rows_or_tokens_and_not_both(rows: int | None, tokens: int | None) -> None:
    with pytest.raises(CourseError, match="either the rows or the tokens"):
        SimilarLength(np.array([3, 5]), rows, tokens, 0, max_width=32)


def test_nobody_can_write_into_the_orders_that_a_plan_caches() -> None:
    for order in (permutation(5, 0), SimilarLength(np.arange(1, 6), 2, None, 0, 32)[0]):
        with pytest.raises(ValueError, match="read-only"):
            order[0] = 0
