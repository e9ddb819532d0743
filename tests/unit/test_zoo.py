"""Shipped checkpoints: what is saved is what is loaded, and nothing damaged is ever loaded."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from course_lib import heads, zoo
from course_lib.config import EmbedConfig, Learned, StackConfig
from course_lib.errors import CourseError
from course_lib.stack import Stack
from course_lib.tokenizers import Tokenizer, train_bpe, train_wordpiece

TEXT = ["the judge went home to the mill"] * 30


def model(head: str, tokenizer: Tokenizer, width: int = 8) -> torch.nn.Module:
    torch.manual_seed(0)
    config = StackConfig(
        EmbedConfig(tokenizer.vocab.size, segments=2), width=width, layers=1, heads=2, hidden=16,
        position=Learned(16), causal=head == "LM", init_std=0.5,
    )  # fmt: skip
    return zoo.HEADS[head](Stack(config))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = train_wordpiece(TEXT, 60)
    card = {"name": "tiny", "seed": 3, "steps": 5, "scores": {"loss": 1.5}, "curve": [{"step": 5, "loss": 1.5}]}
    zoo.export("tiny", model("Pretraining", tokenizer), tokenizer, card, tmp_path)
    return tmp_path


@pytest.mark.parametrize("head", list(zoo.HEADS))
def test_what_is_saved_is_what_is_loaded(head: str, tmp_path: Path) -> None:
    tokenizer = (train_bpe if head == "LM" else train_wordpiece)(TEXT, 300)
    before = model(head, tokenizer).eval()
    zoo.export("a", before, tokenizer, {"name": "a"}, tmp_path)
    after, words, card = zoo.load("a", folder=tmp_path)
    assert type(after) is type(before) and not after.training and card == {"name": "a"}
    assert after.stack.config == before.stack.config
    assert words.encode("the judge went").ids == tokenizer.encode("the judge went").ids
    for name, value in after.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, before.state_dict()[name].half().float()), name
    ids = torch.tensor([tokenizer.encode("the judge went home").ids])
    a, b = after(ids), before(ids)
    torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)


def seq2seq(tokenizer: Tokenizer) -> torch.nn.Module:
    from course_lib.models import bart

    config = bart.bart(tokenizer.vocab.size, width=8, layers=1, heads=2, length=16)
    return bart.bart_lm(config, start=3)


def t5_1_1(tokenizer: Tokenizer) -> torch.nn.Module:
    from course_lib.models import t5

    return t5.t5_lm(t5.t5(tokenizer.vocab.size, width=8, layers=1, heads=2, hidden=16, gated=True), start=1)


def sentence(tokenizer: Tokenizer) -> torch.nn.Module:
    from course_lib.models.sentence import Sentence

    return Sentence(model("MLM", tokenizer).stack, "max")  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [seq2seq, t5_1_1, sentence])
def test_other_kinds_of_models_come_back(make: Callable[[Tokenizer], torch.nn.Module], tmp_path: Path) -> None:
    tokenizer = train_wordpiece(TEXT, 60)
    torch.manual_seed(0)
    before = make(tokenizer).eval()
    place = zoo.export("a", before, tokenizer, {"name": "a"}, tmp_path)
    after = zoo.load("a", folder=tmp_path).model
    assert type(after) is type(before) and not after.training
    for name, value in after.state_dict().items():
        assert torch.equal(value, before.state_dict()[name].half().float()), name
    settings = ("pool", "scaled") if make is not sentence else ("pool",)
    assert all(getattr(after, name, None) == getattr(before, name, None) for name in settings)
    if make is not sentence:
        kept = load_file(place / "model.safetensors").keys()
        assert sum(name.endswith("embed.tokens.weight") for name in kept) == 1, "a tied table is kept once"
        assert after.stack.start == before.stack.start and (after.head is None) == (before.head is None)
        assert after.stack.decoder.embed.tokens.weight is after.stack.encoder.embed.tokens.weight


def test_models_of_words_come_back(tmp_path: Path) -> None:
    from course_lib.models import elmo, static

    words = elmo.Vocabulary.count([text.split() for text in TEXT])
    config = elmo.ElmoConfig(len(words), width=4, hidden=6, filters=((1, 4), (2, 4)), length=8)
    zoo.export("elmo", elmo.model(config), words, {"name": "elmo"}, tmp_path)
    after, known, _ = zoo.load("elmo", folder=tmp_path)
    assert isinstance(after, elmo.BiLM) and after.elmo.config == config and known.words == words.words
    vectors = static.WordVectors(["the", "mill"], torch.randn(2, 4), [9, 1])
    zoo.export("static", vectors, None, {"name": "static"}, tmp_path)
    again, known, card = zoo.load("static", folder=tmp_path)
    assert again.words == vectors.words and again.counts == [9, 1] and known is None and card == {"name": "static"}
    assert torch.equal(again.matrix, vectors.matrix.half().float())
    assert set(zoo.entry("static", tmp_path)["files"]) == {*zoo.FILES, zoo.WORDS} - {"tokenizer.json"}
    flip(tmp_path / "static" / zoo.WORDS)
    with pytest.raises(CourseError, match="SHA-256"):
        zoo.load("static", folder=tmp_path)


def test_the_manifest_knows_every_file_and_the_recipe(folder: Path) -> None:
    entry = json.loads((folder / "manifest.json").read_text())["tiny"]
    assert set(entry["files"]) == set(zoo.FILES)
    assert entry["seed"] == 3 and entry["steps"] == 5 and entry["scores"] == {"loss": 1.5} and "curve" not in entry
    assert zoo.names(folder) == ["tiny"] and zoo.card("tiny", folder)["curve"] == [{"step": 5, "loss": 1.5}]


def test_a_second_export_keeps_the_first(folder: Path) -> None:
    tokenizer = train_wordpiece(TEXT, 60)
    zoo.export("other", model("MLM", tokenizer), tokenizer, {"name": "other"}, folder)
    assert zoo.names(folder) == ["other", "tiny"]
    zoo.load("tiny", folder=folder)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "one bit": (flip, "SHA-256"),
    "cut short": (lambda p: p.write_bytes(p.read_bytes()[:-10]), "bytes instead of"),
    "empty": (lambda p: p.write_bytes(b""), "bytes instead of"),
    "gone": (lambda p: p.unlink(), "cannot be read"),
}


@pytest.mark.parametrize("file", zoo.FILES)
@pytest.mark.parametrize("damage", list(DAMAGE))
def test_damage_to_any_file_is_found(damage: str, file: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_model(*args: object, **kwargs: object) -> None:
        raise AssertionError("a model was begun before all files were checked")

    monkeypatch.setattr(zoo, "Stack", no_model)
    spoil, words = DAMAGE[damage]
    spoil(folder / "tiny" / file)
    with pytest.raises(CourseError, match=words) as error:
        zoo.load("tiny", folder=folder)
    assert file in str(error.value) and "make checkpoints" in str(error.value)


def resign(folder: Path) -> None:
    """Make the manifest agree with the files, as a careless hand would."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["tiny"]["files"] = {f: zoo._entry((folder / "tiny" / f).read_bytes()) for f in zoo.FILES}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_missing_extra_and_misshapen_weights(folder: Path) -> None:
    path = folder / "tiny" / "model.safetensors"
    good = load_file(path)
    name = "stack.blocks.0.attn.q.weight"
    for weights, words in (
        ({k: v for k, v in good.items() if k != name}, f"{name} is missing"),
        (good | {"surplus": torch.zeros(2)}, "surplus has no place"),
        (good | {name: torch.zeros(3, 3)}, "has shape"),
    ):
        save_file(weights, path)
        resign(folder)
        with pytest.raises(CourseError, match=words):
            zoo.load("tiny", folder=folder)
    path.write_bytes(b"12345678 not safetensors")
    resign(folder)
    with pytest.raises(CourseError, match="damaged"):
        zoo.load("tiny", folder=folder)


def test_other_kinds_of_trouble(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="no checkpoint 'big'; there are tiny"):
        zoo.load("big", folder=folder)
    with pytest.raises(CourseError, match=r"no manifest\.json"):
        zoo.load("tiny", folder=tmp_path / "nowhere")
    config = folder / "tiny" / "config.json"
    config.write_text(config.read_text().replace("Pretraining", "Oracle"))
    resign(folder)
    with pytest.raises(CourseError, match="head 'Oracle'"):
        zoo.load("tiny", folder=folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(CourseError, match="not valid JSON"):
        zoo.load("tiny", folder=folder)


def test_what_may_not_be_shipped(tmp_path: Path) -> None:
    tokenizer = train_wordpiece(TEXT, 60)
    with pytest.raises(CourseError, match="this model is a Stack"):
        zoo.export("a", model("MLM", tokenizer).stack, tokenizer, {}, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(CourseError, match="bytes in half precision"):
        zoo.export("a", model("MLM", tokenizer, width=1024), tokenizer, {}, tmp_path)
    huge = model("MLM", tokenizer)
    with torch.no_grad():
        huge.get_parameter("head.bias")[0] = 1e6
    with pytest.raises(CourseError, match=r"head\.bias holds numbers too large"):
        zoo.export("a", huge, tokenizer, {}, tmp_path)
    assert not (tmp_path / "a").exists() and not (tmp_path / "manifest.json").exists()


def test_folders_in_the_public_layout_open_too(tmp_path: Path) -> None:
    from course_lib import hf
    from course_lib.models.bert import bert

    tokenizer = train_wordpiece(TEXT, 60)
    config = bert(tokenizer.vocab.size, width=8, layers=1, heads=2, length=16)
    before = heads.MLM(Stack(config)).eval()
    hf.save_pretrained(before, tmp_path, model_type="bert", architecture="BertForMaskedLM")
    tokenizer.save(tmp_path)
    after = zoo.open_model(tmp_path)
    ids = torch.tensor([tokenizer.encode("the judge").ids])
    torch.testing.assert_close(after.model(ids), before(ids))


@pytest.mark.skipif(not (zoo.FOLDER / "manifest.json").exists(), reason="no checkpoints have been made yet")
def test_the_shipped_checkpoints_are_whole_and_small() -> None:
    total = 0
    for name in zoo.names():
        model, tokenizer, card = zoo.load(name)
        if isinstance(tokenizer, Tokenizer):
            stack = getattr(model.stack, "decoder", model.stack)
            assert stack.config.embed.vocab == tokenizer.vocab.size
        assert {"recipe", "seed", "data", "steps", "scores", "curve"} <= card.keys()
        assert all(point["loss"] > 0 for point in card["curve"])
        sizes = [(zoo.FOLDER / name / file).stat().st_size for file in zoo.entry(name)["files"]]
        assert max(sizes) <= 6_000_000
        total += sum(sizes)
    assert total <= 40_000_000


@pytest.mark.parametrize("name", ["bert-mini", "gpt-mini"])
def test_what_lessons_build_on_looks_words_up(name: str) -> None:
    """The course's aim for the copy probe: picking one of the two candidates at random gives a half."""
    scores = zoo.load(name).card["scores"]
    assert sum(scores[kind] for kind in ("name", "object", "place")) / 3 >= 0.9


@pytest.mark.skipif(not (zoo.FOLDER / "manifest.json").exists(), reason="no checkpoints have been made yet")
def test_the_shipped_scores_are_those_of_the_shipped_weights() -> None:
    """Half precision costs next to nothing: the probe gives again what the card says."""
    from course_lib import recipes
    from course_lib.probes import fill_in_accuracy

    for name in zoo.names():
        model, tokenizer, card = zoo.load(name)
        if not isinstance(model, heads.LM | heads.MLM | heads.Pretraining) or "object" not in card["scores"]:
            continue
        run = recipes.Run(name, recipes.Recipe(**card["recipe"]), Path("unused"))
        blanks = run.blanks("object")[:64]
        assert fill_in_accuracy(model, tokenizer, blanks) == pytest.approx(card["scores"]["object"], abs=0.15)
