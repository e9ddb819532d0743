"""Folders written by transformers, or in older layouts, give the tokens that transformers gives."""

import json
from pathlib import Path
from typing import Any

import pytest

from course_lib.data.tokenizers import Tokenizer, train_bpe, train_wordpiece

transformers = pytest.importorskip("transformers")

TRAINING = [
    "The quick brown fox jumps over the lazy dog, isn't it? 1,234.56 tonnes of CO2!",
    "Été à Zürich: naïve façades; the dogs were jumping — unbelievably — over foxes.",
] * 5
TEXTS = [
    "",
    " ",
    "The fox isn't jumping over 3,000 dogs.",
    "  Unbelievable\tZÜRICH\n\nfaçade…  ",
    "Привет the fox",
    "東京 the dog 🙂 \x07 control",
    "x" * 150 + " dog",
    "[MASK] the <unk> fox [SEP] <mask> </s> <|endoftext|> end",
]


def same(ours: Tokenizer, theirs: Any) -> None:
    for text, pair in [(t, None) for t in TEXTS] + list(zip(TEXTS[1:], TEXTS[::-1], strict=False)):
        expected = theirs(text, pair, return_offsets_mapping=True, return_token_type_ids=True)
        got = ours.encode(text, pair)
        assert got.ids == expected["input_ids"], text
        assert got.segments == expected["token_type_ids"], text
        assert got.offsets == expected["offset_mapping"], text
        assert got.tokens == theirs.convert_ids_to_tokens(expected["input_ids"])
        if pair is None:
            assert got.words == expected.word_ids()
        assert ours.decode(got.ids) == theirs.decode(
            expected["input_ids"], skip_special_tokens=True
        )
    assert [
        i
        for i in map(theirs.convert_tokens_to_ids, theirs.all_special_tokens)
        if i not in ours.vocab.special
    ] == []
    for role in ("pad", "unk", "cls", "sep", "mask", "bos", "eos"):
        named = getattr(theirs, f"{role}_token_id")
        assert role == "unk" or getattr(ours.vocab, role) == named, role


@pytest.mark.parametrize("lowercase", [True, False])
def test_bert(tmp_path: Path, lowercase: bool) -> None:
    vocab = dict(train_wordpiece(TRAINING, 220, lowercase=lowercase).backend.get_vocab())
    theirs = transformers.BertTokenizerFast(vocab=vocab, do_lower_case=lowercase)
    theirs.save_pretrained(tmp_path)
    same(Tokenizer.load(tmp_path), theirs)


SPECIAL = {"gpt2": ["<|endoftext|>"], "roberta": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]}


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("family", SPECIAL)
def test_byte_level(tmp_path: Path, family: str, saved: bool) -> None:
    """As transformers saves it, and in the older layout of two files."""
    model = json.loads(train_bpe(TRAINING, 400).backend.to_str())["model"]
    tokens = SPECIAL[family] + sorted(model["vocab"], key=model["vocab"].get)[2:]
    (tmp_path / "vocab.json").write_text(
        json.dumps({token: i for i, token in enumerate(tokens)}), encoding="utf-8"
    )
    merges = [f"{' '.join(pair)}\n" for pair in model["merges"]]
    (tmp_path / "merges.txt").write_text("".join(["#version: 0.2\n", *merges]), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    if saved:
        theirs.save_pretrained(tmp_path / "saved")
    same(Tokenizer.load(tmp_path / "saved" if saved else tmp_path), theirs)


def test_older_files_without_a_configuration_are_berts_and_gpt2s(tmp_path: Path) -> None:
    vocab, bpe = train_wordpiece(TRAINING, 220).backend.get_vocab(), train_bpe(TRAINING, 400)
    (tmp_path / "vocab.txt").write_text(
        "".join(f"{t}\n" for t in sorted(vocab, key=vocab.__getitem__)), "utf-8"
    )
    same(Tokenizer.load(tmp_path), transformers.BertTokenizerFast(vocab=dict(vocab)))
    (tmp_path / "gpt2").mkdir()
    bpe.backend.model.save(str(tmp_path / "gpt2"))
    assert Tokenizer.load(tmp_path / "gpt2").ids(TEXTS[:-1]) == bpe.ids(TEXTS[:-1])


def test_transformers_opens_what_we_save(tmp_path: Path) -> None:
    for name, ours in {"w": train_wordpiece(TRAINING, 220), "b": train_bpe(TRAINING, 400)}.items():
        ours.save(tmp_path / name)
        same(ours, transformers.AutoTokenizer.from_pretrained(tmp_path / name))
