"""Shipped checkpoints: what is saved is what is loaded, and nothing damaged is ever loaded."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from course_lib import zoo
from course_lib.data.tokenizers import Tokenizer, train_wordpiece
from course_lib.errors import CourseError
from course_lib.families import bart, elmo, sentence, t5, word_vectors
from course_lib.model import heads
from course_lib.model.config import EmbedConfig, Learned, StackConfig
from course_lib.model.seq2seq import EncoderDecoder, Seq2SeqLM, encoder_config
from course_lib.model.transformer import Transformer

TEXT = ["the judge went home to the mill"] * 30


def model(head: str, tokenizer: Tokenizer) -> torch.nn.Module:
    torch.manual_seed(0)
    config = StackConfig(
        EmbedConfig(tokenizer.vocab.size, segments=2),
        width=8,
        layers=1,
        heads=2,
        hidden=16,
        position=Learned(16),
        causal=head == "LM",
        init_std=0.5,
    )
    return getattr(heads, head)(Transformer(config))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = train_wordpiece(TEXT, 60)
    card = {
        "name": "tiny",
        "seed": 3,
        "steps": 5,
        "scores": {"loss": 1.5},
        "curve": [{"step": 5, "loss": 1.5}],
    }
    zoo.export("tiny", model("Pretraining", tokenizer), tokenizer, card, tmp_path)
    return tmp_path


def seq2seq(tokenizer: Tokenizer) -> torch.nn.Module:
    return bart.bart_lm(
        bart.bart(tokenizer.vocab.size, width=8, layers=1, heads=2, length=16), start=3
    )


def t5_1_1(tokenizer: Tokenizer) -> torch.nn.Module:
    return t5.t5_lm(
        t5.t5(tokenizer.vocab.size, width=8, layers=1, heads=2, hidden=16, gated=True), start=1
    )


def unequal_sides(tokenizer: Tokenizer) -> torch.nn.Module:
    config = bart.bart(tokenizer.vocab.size, width=8, layers=1, heads=2, length=16)
    return Seq2SeqLM(
        EncoderDecoder(config, encoder=replace(encoder_config(config), layers=3)), bias=True
    )


def pooled(tokenizer: Tokenizer) -> torch.nn.Module:
    return sentence.Sentence(model("MLM", tokenizer).stack, "max")  # type: ignore[arg-type]


HEADS = [partial(model, head) for head in ("LM", "MLM", "Pretraining", "RTD")]


@pytest.mark.parametrize("make", [*HEADS, seq2seq, t5_1_1, unequal_sides, pooled])
def test_what_is_saved_is_what_is_loaded(
    make: Callable[[Tokenizer], torch.nn.Module], tmp_path: Path
) -> None:
    tokenizer = train_wordpiece(TEXT, 60)
    torch.manual_seed(0)
    before: Any = make(tokenizer).eval()
    place = zoo.export("a", before, tokenizer, {"name": "a"}, tmp_path)
    after, words, card = zoo.open_model(place)  # which is `load` by its folder
    assert type(after) is type(before) and not after.training and card == {"name": "a"}
    assert words.encode("the judge went").ids == tokenizer.encode("the judge went").ids
    for name, value in after.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, before.state_dict()[name].half().float()), name
    assert all(
        getattr(after, name, None) == getattr(before, name, None) for name in ("pool", "scaled")
    )
    assert after.stack.config == before.stack.config
    kept = load_file(place / "model.safetensors").keys()
    assert sum(name.endswith("embed.tokens.weight") for name in kept) == 1, (
        "a tied table is kept once"
    )
    if hasattr(before.stack, "decoder"):
        assert after.stack.start == before.stack.start and (after.head is None) == (
            before.head is None
        )
        assert after.stack.decoder.embed.tokens.weight is after.stack.encoder.embed.tokens.weight


def test_models_of_words_come_back(tmp_path: Path) -> None:
    words = elmo.Vocabulary.count([text.split() for text in TEXT])
    config = elmo.ElmoConfig(len(words), width=4, hidden=6, filters=((1, 4), (2, 4)), length=8)
    zoo.export("elmo", elmo.model(config), words, {"name": "elmo"}, tmp_path)
    after, known, _ = zoo.load("elmo", folder=tmp_path)
    assert (
        isinstance(after, elmo.BiLM) and after.elmo.config == config and known.words == words.words
    )
    vectors = word_vectors.WordVectors(["the", "mill"], torch.randn(2, 4), [9, 1])
    zoo.export("static", vectors, None, {"name": "static"}, tmp_path)
    again, known, card = zoo.load("static", folder=tmp_path)
    assert (
        again.words == vectors.words
        and again.counts == [9, 1]
        and known is None
        and card == {"name": "static"}
    )
    assert torch.equal(again.matrix, vectors.matrix.half().float())
    assert set(zoo.manifest_entry("static", tmp_path)["files"]) == {
        *zoo.FILES,
        zoo.WORDS,
    } - {"tokenizer.json"}
    flip(tmp_path / "static" / zoo.WORDS)
    with pytest.raises(CourseError, match="SHA-256"):
        zoo.load("static", folder=tmp_path)


def test_the_manifest_knows_every_file_and_the_recipe(folder: Path) -> None:
    entry = json.loads((folder / "manifest.json").read_text())["tiny"]
    assert set(entry["files"]) == set(zoo.FILES)
    assert (
        entry["seed"] == 3
        and entry["steps"] == 5
        and entry["scores"] == {"loss": 1.5}
        and "curve" not in entry
    )
    assert zoo.card("tiny", folder)["curve"] == [{"step": 5, "loss": 1.5}]
    tokenizer = train_wordpiece(TEXT, 60)
    zoo.export("other", model("MLM", tokenizer), tokenizer, {"name": "other"}, folder)
    assert zoo.names(folder) == ["other", "tiny"]
    zoo.load("tiny", folder=folder)
    with pytest.raises(CourseError, match="no checkpoint 'big'; there are other, tiny"):
        zoo.load("big", folder=folder)
    with pytest.raises(CourseError, match=r"no manifest\.json"):
        zoo.load("tiny", folder=folder / "nowhere")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("file", zoo.FILES)
@pytest.mark.parametrize(("spoil", "words"), [(flip, "SHA-256"), (Path.unlink, "cannot be read")])
def test_damage_to_any_file_is_found(
    spoil: Callable[[Path], None], words: str, file: str, folder: Path
) -> None:
    spoil(folder / "tiny" / file)
    with pytest.raises(CourseError, match=words) as error:
        zoo.load("tiny", folder=folder)
    assert file in str(error.value) and "make checkpoints" in str(error.value)


def test_what_may_not_be_shipped(tmp_path: Path) -> None:
    tokenizer = train_wordpiece(TEXT, 60)
    with pytest.raises(CourseError, match="this model is a Transformer"):
        zoo.export("a", model("MLM", tokenizer).stack, tokenizer, {}, tmp_path)  # type: ignore[arg-type]
    huge = model("MLM", tokenizer)
    with torch.no_grad():
        huge.get_parameter("head.bias")[0] = 1e6
    with pytest.raises(CourseError, match=r"head\.bias holds numbers too large"):
        zoo.export("a", huge, tokenizer, {}, tmp_path)
    assert not (tmp_path / "a").exists() and not (tmp_path / "manifest.json").exists()


def test_the_shipped_checkpoints_are_whole_and_small() -> None:
    for name in zoo.names():
        model, tokenizer, card = zoo.load(name)
        if isinstance(tokenizer, Tokenizer):
            stack = getattr(model.stack, "decoder", model.stack)
            assert stack.config.embed.vocab == tokenizer.vocab.size
        assert {"recipe", "seed", "data", "steps", "tokens", "scores", "curve"} <= card.keys()
        assert all(isinstance(score, float) for score in card["scores"].values())
        assert all(point["loss"] > 0 for point in card["curve"])
        sizes = [
            (zoo.FOLDER / name / file).stat().st_size for file in zoo.manifest_entry(name)["files"]
        ]
        assert max(sizes) <= (12_000_000 if name.endswith("-english") else 6_000_000)
        # the copy probe: picking one of the two candidates gives a half
        if name in ("bert-mini", "gpt-mini"):
            assert sum(card["scores"][kind] for kind in ("name", "object", "place")) / 3 >= 0.9
