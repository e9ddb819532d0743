"""Tokenizers: training is reproducible, encoding says what a model needs, bad input is one clear
sentence.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers

from course_lib import CourseError
from course_lib.data.tokenizers import Tokenizer, train_bpe, train_wordpiece

TEXTS = [
    "The cat sat on the mat, and the other cat sat beside it.",
    "A baker bakes bread; the bakers were baking unbelievably good bread!",
    "It isn't far: the café is nearby. Cafés bake, too.",
] * 4


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return train_wordpiece(TEXTS, 110)


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return train_bpe(TEXTS, 320)


def test_special_ids_are_the_contract(wordpiece: Tokenizer, bpe: Tokenizer) -> None:
    vocab = wordpiece.vocab
    assert (vocab.pad, vocab.unk, vocab.cls, vocab.sep, vocab.mask) == (0, 1, 2, 3, 4)
    assert (vocab.bos, vocab.eos, vocab.special, vocab.size) == (None, None, (0, 1, 2, 3, 4), 110)
    assert (bpe.vocab.pad, bpe.vocab.bos, bpe.vocab.eos, bpe.vocab.special) == (0, 1, 1, (0, 1))
    assert (bpe.vocab.unk, bpe.vocab.cls, bpe.vocab.mask) == (None, None, None)


def test_a_pair_has_segments_and_words_that_count_on(wordpiece: Tokenizer) -> None:
    coded = wordpiece.encode("the baker bakes", "a cat")
    assert coded.tokens[0] == "[CLS]" and coded.tokens[-1] == "[SEP]"
    assert coded.segments == [0] * (coded.tokens.index("[SEP]") + 1) + [1] * (
        coded.tokens[::-1].index("[SEP]", 1)
    )
    assert [w for w in coded.words if w is not None] == sorted(
        w for w in coded.words if w is not None
    )
    assert {w for w in coded.words if w is not None} == {0, 1, 2, 3, 4}
    assert coded.words[0] is None and coded.words[-1] is None
    start, end = coded.offsets[1]
    assert "the baker bakes"[start:end] == "the"


def test_words_from_ids_agree_with_the_encoding(wordpiece: Tokenizer, bpe: Tokenizer) -> None:
    for text in ["the bakers' unbelievable café, zzz 7 the", "Cats baking"]:
        coded = wordpiece.encode(text)
        expected = [-1 if w is None else w for w in coded.words]
        assert wordpiece.words(torch.tensor([coded.ids]))[0].tolist() == expected
    coded = bpe.encode("the unbelievable baker")
    assert bpe.words(torch.tensor(coded.ids)).tolist() == coded.words


def test_words_of_a_vocabulary_that_marks_spaces() -> None:
    scores = {"<unk>": 0.0, "▁read": -1.0, "ing": -1.0, "▁book": -1.0, "▁": -2.0, "s": -2.0}
    backend = tokenizers.Tokenizer(models.Unigram(list(scores.items()), unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    tokenizer = Tokenizer(backend)
    coded = tokenizer.encode("reading books")
    assert coded.tokens == ["▁read", "ing", "▁book", "s"]
    assert tokenizer.words(torch.tensor(coded.ids)).tolist() == [0, 0, 1, 1]


def test_separated_words_keep_their_numbers(wordpiece: Tokenizer, bpe: Tokenizer) -> None:
    words = ["the", "bakers", "isn't", "far"]
    assert {w for w in wordpiece.encode(words).words if w is not None} == {0, 1, 2, 3}
    coded = bpe.encode(words)
    assert set(coded.words) == {0, 1, 2, 3} and bpe.decode(coded.ids) == "the bakers isn't far"


def test_words_cut_one_by_one_give_the_tokens_of_the_text(
    wordpiece: Tokenizer, bpe: Tokenizer
) -> None:
    text = "The cat's  box, 12 boxes"
    for tokenizer in (wordpiece, bpe):
        tokens = [token for word in tokenizer.pretokenize(text) for token in tokenizer.cut(word)]
        assert tokens == tokenizer.encode(text, special=False).tokens
    assert wordpiece.pretokenize("The cat's") == ["the", "cat", "'", "s"]
    assert bpe.pretokenize("The cat's") == ["The", "Ġcat", "'s"]


def test_bytes_come_back_unchanged(bpe: Tokenizer) -> None:
    for text in [
        "",
        " two  spaces\n\ttab",
        "naïve 東京 🙂‍🚀 \x00 end",
        "<|endoftext is not special",
    ]:
        assert bpe.decode(bpe.encode(text).ids) == text
    assert bpe.decode(torch.tensor([1, *bpe.encode("cat").ids, 1])) == "cat"
    assert bpe.decode([1, *bpe.encode("cat").ids], special=True) == "<|endoftext|>cat"


def test_max_length_cuts_the_longer_text_and_does_not_stick(wordpiece: Tokenizer) -> None:
    long, short = "the cat sat on the mat " * 5, "a cat"
    coded = wordpiece.encode(long, short, max_length=12)
    assert len(coded) == 12 and coded.tokens[-3:] == wordpiece.encode(short).tokens[1:]
    assert len(wordpiece.encode(long)) == 32


def test_training_is_the_same_in_another_process() -> None:
    """The library's own training follows a hash table's order, which changes between processes."""
    code = (
        "import sys, json; from course_lib.data.tokenizers import train_wordpiece,"
        " train_bpe;texts = json.load(sys.stdin); trained = train_wordpiece(texts, 110),"
        " train_bpe(texts, 320);print(json.dumps([t.backend.get_vocab() for t in trained]))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    asked = {
        "input": json.dumps(TEXTS),
        "capture_output": True,
        "text": True,
        "check": True,
        "env": env,
    }
    run = subprocess.run([sys.executable, "-c", code], **asked)
    here = [
        train_wordpiece(TEXTS, 110).backend.get_vocab(),
        train_bpe(TEXTS, 320).backend.get_vocab(),
    ]
    assert json.loads(run.stdout) == here


def test_save_and_load(tmp_path: Path, wordpiece: Tokenizer, bpe: Tokenizer) -> None:
    for name, tokenizer in {"w": wordpiece, "b": bpe}.items():
        tokenizer.save(tmp_path / name)
        tokenizer.save(tmp_path / f"{name}.json")
        for path in [
            tmp_path / name,
            tmp_path / f"{name}.json",
            tmp_path / name / "tokenizer.json",
        ]:
            again = Tokenizer.load(path)
            assert again.vocab == tokenizer.vocab and again.byte_level == tokenizer.byte_level
            assert again.encode(TEXTS[1], TEXTS[2]) == tokenizer.encode(TEXTS[1], TEXTS[2])


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "model"', encoding="utf-8")
    for name, content in (("empty", ""), ("no_unk", "the\ncat\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vocab.txt").write_text(content)
    for call, said in (
        (lambda: Tokenizer.load(tmp_path), "damaged"),
        (lambda: Tokenizer.load(tmp_path / "empty"), "damaged .*Missing"),
        (lambda: Tokenizer.load(tmp_path / "no_unk"), "damaged .*Missing"),
        (lambda: train_bpe(["", ""], 300), "empty text"),
        (lambda: train_bpe(TEXTS, 200), "at least 258"),
    ):
        with pytest.raises(CourseError, match=said):
            call()
