"""Folders written by transformers, or in older layouts, give the tokens that transformers gives."""

import json
from pathlib import Path
from typing import Any

import pytest

from course_lib.tokenizers import Tokenizer, train_bpe, train_wordpiece

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
        assert ours.decode(got.ids) == theirs.decode(expected["input_ids"], skip_special_tokens=True)
    assert [
        i for i in map(theirs.convert_tokens_to_ids, theirs.all_special_tokens) if i not in ours.vocab.special
    ] == []
    for role in ("pad", "unk", "cls", "sep", "mask", "bos", "eos"):
        named = getattr(theirs, f"{role}_token_id")
        assert role == "unk" or getattr(ours.vocab, role) == named, role


def wordpiece_vocab(lowercase: bool) -> dict[str, int]:
    return dict(train_wordpiece(TRAINING, 220, lowercase=lowercase).backend.get_vocab())


def bpe_files(folder: Path, special: list[str]) -> None:
    """A vocab.json and merges.txt in the old layout, with these special tokens in front."""
    model = json.loads(train_bpe(TRAINING, 400).backend.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)[2:]
    (folder / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(special + tokens)}), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in model["merges"]), ""]
    (folder / "merges.txt").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.parametrize("lowercase", [True, False])
def test_bert_saved_by_transformers(tmp_path: Path, lowercase: bool) -> None:
    theirs = transformers.BertTokenizerFast(vocab=wordpiece_vocab(lowercase), do_lower_case=lowercase)
    theirs.save_pretrained(tmp_path)
    same(Tokenizer.load(tmp_path), theirs)


@pytest.mark.parametrize("lowercase", [True, False])
def test_bert_from_vocab_txt(tmp_path: Path, lowercase: bool) -> None:
    vocab = wordpiece_vocab(lowercase)
    (tmp_path / "vocab.txt").write_text("".join(f"{t}\n" for t in sorted(vocab, key=vocab.__getitem__)), "utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}), "utf-8")
    same(Tokenizer.load(tmp_path), transformers.BertTokenizerFast.from_pretrained(tmp_path))


@pytest.mark.parametrize("saved", [True, False])
def test_gpt2(tmp_path: Path, saved: bool) -> None:
    bpe_files(tmp_path, ["<|endoftext|>"])
    theirs = transformers.GPT2TokenizerFast.from_pretrained(tmp_path)
    if saved:
        theirs.save_pretrained(tmp_path / "saved")
    same(Tokenizer.load(tmp_path / "saved" if saved else tmp_path), theirs)


@pytest.mark.parametrize("saved", [True, False])
def test_roberta(tmp_path: Path, saved: bool) -> None:
    bpe_files(tmp_path, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    theirs = transformers.RobertaTokenizerFast.from_pretrained(tmp_path)
    if saved:
        theirs.save_pretrained(tmp_path / "saved")
    same(Tokenizer.load(tmp_path / "saved" if saved else tmp_path), theirs)


def test_gpt1_from_vocab_and_merges(tmp_path: Path) -> None:
    letters = sorted({c for text in TRAINING for c in text.lower() if not c.isspace()})
    merges = [("t", "h"), ("th", "e</w>"), ("o", "x</w>"), ("f", "ox</w>"), ("d", "o"), ("do", "g</w>")]
    tokens = ["<unk>", *letters, *(c + "</w>" for c in letters), *("".join(m) for m in merges)]
    (tmp_path / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}), "utf-8")
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges), "utf-8")
    same(Tokenizer.load(tmp_path), transformers.OpenAIGPTTokenizerFast.from_pretrained(tmp_path))


def test_transformers_opens_what_we_save(tmp_path: Path) -> None:
    for name, ours in {"w": train_wordpiece(TRAINING, 220), "b": train_bpe(TRAINING, 400)}.items():
        ours.save(tmp_path / name)
        same(ours, transformers.AutoTokenizer.from_pretrained(tmp_path / name))
