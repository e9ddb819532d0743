"""From text to a folder: every kind, token files written apart, runs that are not mixed up."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib import families, zoo
from course_lib.data.token_store import TokenStore
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.files import read_json
from course_lib.training import pretraining, token_files
from course_lib.training.loop import Step
from course_lib.training.pretrain_config import PretrainConfig, TokenizeConfig
from course_lib.training.run_folder import read_curve, run_probe
from course_lib.training.sizes import FAMILIES

TEXT = "the judge went home. the fathers of the judge came. anna saw the judge at the mill. " * 20
SIZE: dict[str, Any] = {"width": 16, "layers": 1, "heads": 2, "length": 32}


def pretrain(model: str, out: Path, **options: Any) -> None:
    """A run, its reports among the options."""
    reports = {name: options.pop(name) for name in ("say", "watch") if name in options}
    pretraining.pretrain(PretrainConfig(model=model, out=out, **options), **reports)


def tokenize(data: str, out: Path, **options: Any) -> token_files.TokenFiles:
    config = TokenizeConfig(**{"model": "gpt", "data": data, "out": out, **options})
    return token_files.tokenize(config)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("book") / "book.txt"
    file.write_text("\n\n".join(TEXT[: 100 + 37 * i] for i in range(12)))
    return str(file)


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family_learns_and_is_written_in_the_public_layout(
    kind: str, book: str, tmp_path: Path
) -> None:
    seen: list[Step] = []
    said: list[str] = []
    pretrain(
        f"{kind}-mini",
        tmp_path,
        data=book,
        vocab=300,
        **SIZE,
        steps=12,
        tokens=256,
        lr=3e-2,
        precision="fp32",
        say=said.append,
        watch=seen.append,
    )
    assert len(seen) == 12 and seen[-1].loss < seen[0].loss
    assert "parameters" in said[0] and said[-1].startswith(
        f"written to {tmp_path}; no held-out text"
    )
    model, tokenizer = zoo.load_pretrained(tmp_path), Tokenizer.load(tmp_path)
    assert families.family_of(model).name == kind and model.stack.config.width == 16  # type: ignore[union-attr]
    card = read_json(tmp_path / "card.json")
    assert (
        card["steps"] == 12
        and card["tokens"] == sum(step.tokens for step in seen)
        and not card["scores"]
    )
    assert card["curve"] == read_json(tmp_path / "run" / "curve.json") and tokenizer.vocab.size


def test_the_column_of_the_text_can_be_named(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    row = json.dumps({"title": "The judge", "content": "the judge went home. " * 40})
    rows.write_text(f"{row}\n" * 40, encoding="utf-8")
    with pytest.raises(CourseError, match=r"the text is not known; .* --column NAME"):
        tokenize(str(rows), tmp_path / "tokens", vocab=300)
    ready = tokenize(str(rows), tmp_path / "tokens", vocab=300, column="content")
    assert "home" in ready.tokenizer.decode(ready.store[0])
    assert ready.store.note["column"] == "content"


def test_tokens_are_streamed_and_written_once_and_read_by_any_run(
    book: str, tmp_path: Path, monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    place, asked, real = tmp_path / "tokens of a book", [], token_files.corpora.corpus
    monkeypatch.setattr(
        token_files.corpora,
        "corpus",
        lambda *a, **how: asked.append(how.get("streaming")) or real(*a, **how),
    )
    ready = tokenize(book, place, vocab=300)
    assert asked == [None, True, True]  # the validation split is short; the vocabulary, the tokens
    assert ready.store.tokens > 500 and ready.tokenizer.vocab.size <= 300
    monkeypatch.setattr(token_files, "encode_corpus", None)  # nothing is tokenized a second time
    assert (
        tokenize(book, place, vocab=300).store.stream(0, 50).tolist()
        == ready.store.stream(0, 50).tolist()
    )
    out = tmp_path / "model"
    pretrain("gpt", out, data=str(place), **SIZE, steps=1, tokens=256)
    assert (
        not (out / "tokens").exists()
        and (out / "tokenizer.json").exists()
        and (out / "config.json").exists()
    )
    with pytest.raises(CourseError, match=r"\[CLS\]"):
        pretrain("bert", tmp_path / "other", data=str(place), **SIZE, steps=1)


def test_bart_reads_a_text_without_full_stops(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT.replace(".", " and"))
    pretrain(
        "bart",
        tmp_path / "bart",
        data=str(tmp_path / "a.txt"),
        vocab=300,
        **SIZE,
        steps=1,
        tokens=256,
    )


def test_a_run_on_other_data_is_not_gone_on_with(book: str, tmp_path: Path) -> None:
    how: dict[str, Any] = {"data": book, "vocab": 300, **SIZE, "steps": 1, "tokens": 256}
    pretrain("gpt", tmp_path, **how)
    before = (tmp_path / "run" / "state.safetensors").read_bytes()
    with pytest.raises(
        CourseError,
        match=r"of a run with vocab 300 \(here 301\), heads 2 \(here 4\), lr 0.001 \(here 0.1\)",
    ):
        pretrain("gpt", tmp_path, **how | {"vocab": 301, "heads": 4}, lr=0.1)
    with pytest.raises(
        CourseError, match=r"of a run with seed 0 \(here 1\): use the same settings.*--afresh"
    ):
        pretrain("gpt", tmp_path, seed=1, **how)
    assert (tmp_path / "run" / "state.safetensors").read_bytes() == before
    for odd in (
        '{"a": 1}',
        "3",
        '[{"loss": 1.0}]',
        '[{"step": "1", "loss": 1, "lr": 1, "tokens": 1, "seconds": 1}]',
    ):
        (tmp_path / "run" / "curve.json").write_text(odd)
        with pytest.raises(CourseError, match=r"curve\.json is no learning curve .*; remove it"):
            pretrain("gpt", tmp_path, **how | {"steps": 2})
    (tmp_path / "run" / "curve.json").unlink()
    pretrain("gpt", tmp_path, seed=1, resume=False, **how)
    assert TokenStore.open(tmp_path / "tokens").note["seed"] == 1
    killed = tmp_path / "tokens" / ".saved.killed.tmp"
    killed.mkdir()
    (killed / "tokens.bin").touch()
    tokenize(book, tmp_path / "", vocab=300, resume=False)
    assert {file.name for file in (tmp_path / "tokens").iterdir()} == {
        "header.json",
        "tokens.bin",
        "starts.bin",
        "made_from.json",
    }


def test_tokens_are_made_again_where_their_text_or_tokenizer_is_another(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("the cat sat near the door. " * 300)

    def words(**options: Any) -> str:
        files = tokenize(str(book), tmp_path / "out", **{"vocab": 300, **options})
        return files.tokenizer.decode(files.store[0][:30].tolist())

    assert "cat" in words()
    book.write_text("a dog ran over the hill. " * 300)
    assert "dog" in words(), "tokens of the text as it was"
    vocabulary = (tmp_path / "out" / "tokenizer.json").read_text()
    assert "dog" in words() and vocabulary == (tmp_path / "out" / "tokenizer.json").read_text()
    words(vocab=265)
    assert Tokenizer.load(tmp_path / "out").vocab.size == 265
    words(model="bert", cased=True)
    assert Tokenizer.load(tmp_path / "out").vocab.mask is not None

    # damaged notes are no notes
    (tmp_path / "out" / "tokens" / "made_from.json").write_text("[1]")
    assert "dog" in words()

    # a tokenizer that someone has put there is kept
    own = Tokenizer.load(tmp_path / "out")
    own.save(tmp_path / "mine")
    assert tokenize(str(book), tmp_path / "mine", vocab=300).tokenizer.vocab == own.vocab
    book.write_text("the cat sat near the door. " * 300)
    assert tokenize(str(book), tmp_path / "mine", vocab=400).tokenizer.vocab == own.vocab


def test_a_run_does_not_go_on_with_a_text_that_has_changed(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("the cat sat near the door. " * 300)
    how: dict[str, Any] = {"data": str(book), "vocab": 300, **SIZE, "steps": 1, "tokens": 256}
    pretrain("gpt", tmp_path / "out", **how)
    book.write_text("a dog ran over the hill. " * 300)
    with pytest.raises(CourseError, match=r"a run on other data \(its files have changed\)"):
        pretrain("gpt", tmp_path / "out", **how)
    pretrain("gpt", tmp_path / "out", resume=False, **how)
    store = TokenStore.open(tmp_path / "out" / "tokens")
    assert "dog" in Tokenizer.load(tmp_path / "out").decode(store[0].tolist())
    pretrain("gpt", tmp_path / "out", **how | {"steps": 2})

    # the same of token files that were written apart
    tokenize(str(book), tmp_path / "apart", vocab=300)
    how |= {"data": str(tmp_path / "apart")}
    pretrain("gpt", tmp_path / "two", **how)
    book.write_text("the cat sat near the door. " * 300)
    tokenize(str(book), tmp_path / "apart", vocab=300)
    with pytest.raises(CourseError, match=r"are not those that the run in .* has read so far"):
        pretrain("gpt", tmp_path / "two", **how | {"steps": 2})


def test_tokens_of_another_format_are_not_read(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "book.txt").write_text("the cat sat near the door. " * 300)
    tokenize(str(tmp_path / "book.txt"), tmp_path / "out", vocab=300)
    monkeypatch.setattr("course_lib.data.token_store.FORMAT", 99)
    with pytest.raises(CourseError, match="were written by another version of the course"):
        TokenStore.open(tmp_path / "out" / "tokens")


def test_tokens_that_were_written_apart_bring_their_held_out_text(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for split, start in (("train", 100), ("valid", 130)):
        (source / f"{split}.txt").write_text("\n\n".join(TEXT[: start + 37 * i] for i in range(12)))
    said: list[list[str]] = [[], []]
    how: dict[str, Any] = {**SIZE, "steps": 2, "tokens": 256, "vocab": 300}
    pretrain("gpt", tmp_path / "at once", data=str(source), say=said[0].append, **how)
    tokenize(str(source), tmp_path / "tokens", vocab=300)
    source.rename(tmp_path / "gone")  # a token folder may travel without its source
    pretrain("gpt", tmp_path / "apart", data=str(tmp_path / "tokens"), say=said[1].append, **how)
    losses = [lines[-1].partition(";")[0] for lines in said]
    assert losses[0].startswith("loss on held-out text ") and losses[0] == losses[1]


def test_documents_are_kept_aside_where_there_is_no_validation_split(tmp_path: Path) -> None:
    book, said = str(tmp_path / "stories.jsonl"), list[str]()
    Path(book).write_text(
        "".join(json.dumps({"text": TEXT[: 100 + 37 * i]}) + "\n" for i in range(12))
    )
    how = {**SIZE, "steps": 2, "tokens": 256, "vocab": 300}
    with pytest.raises(CourseError, match="12 documents kept aside leave nothing to train on"):
        tokenize(book, tmp_path / "none", vocab=300, held_out=12)
    assert not (tmp_path / "none").exists()
    pretrain("gpt", tmp_path, data=book, held_out=3, say=said.append, **how)  # type: ignore[arg-type]
    assert said[-1].startswith("loss on held-out text ")
    trained, aside = (TokenStore.open(tmp_path / part) for part in ("tokens", "held_out"))
    assert len(aside) == 3
    whole = tokenize(book, tmp_path / "all", vocab=300).store
    assert len(trained) == len(whole) - 3 and trained[0].tolist() == whole[3].tolist()


def test_a_run_may_begin_with_the_weights_of_another(book: str, tmp_path: Path) -> None:
    how: dict[str, Any] = {"data": book, "steps": 8, "tokens": 256, "lr": 3e-2, "precision": "fp32"}
    pretrain("bert", tmp_path / "one", vocab=300, **SIZE, **how)
    first = {}
    for name, start in (("warm", tmp_path / "one"), ("cold", None)):
        seen: list[Step] = []
        size = {} if start else SIZE
        once = how | size | {"steps": 1, "vocab": 300, "watch": seen.append}
        pretrain("bert", tmp_path / name, init_from=start, **once)
        first[name] = seen[0].loss
    assert first["warm"] < first["cold"] - 0.2
    assert (tmp_path / "warm" / "tokenizer.json").read_bytes() == (
        tmp_path / "one" / "tokenizer.json"
    ).read_bytes()
    with pytest.raises(CourseError, match="no model that a gpt could begin with"):
        pretrain("gpt", tmp_path / "x", init_from=tmp_path / "one", **how)
    with pytest.raises(CourseError, match="leave layers, width and heads"):
        pretrain("bert", tmp_path / "x", init_from=tmp_path / "one", **SIZE, **how)


def test_a_student_by_the_command(book: str, tmp_path: Path) -> None:
    """Every second layer of the teacher to begin with; what it learns is written in a public
    layout.
    """
    how: dict[str, Any] = {"data": book, "steps": 4, "tokens": 256, "lr": 1e-2, "precision": "fp32"}
    pretrain("megatron-bert", tmp_path / "teacher", vocab=300, **SIZE | how | {"layers": 4})
    said: list[str] = []
    how |= {"teacher": tmp_path / "teacher", "say": said.append}
    pretrain("bert", tmp_path / "student", layers=1, **how)
    teacher, student = (zoo.load_pretrained(tmp_path / name) for name in ("teacher", "student"))
    assert (teacher.stack.config.layers, student.stack.config.layers) == (4, 1)
    far, near = (
        (student.stack.blocks[0].ff.up.weight - block.ff.up.weight).norm()
        for block in (teacher.stack.blocks[3], teacher.stack.blocks[0])
    )
    assert 0 < near < far / 2  # it began as the first layer, and learned
    pretrain("bert", tmp_path / "student", layers=1, **how | {"steps": 6})
    assert "going on" in " ".join(said)
    with pytest.raises(CourseError, match="leave --init-from"):
        pretrain("bert", tmp_path / "x", init_from=tmp_path / "teacher", **how)


def test_muon_short_rows_capitals_and_first_weights(tmp_path: Path) -> None:
    """Stopped and resumed such a run is the same."""
    (tmp_path / "books").mkdir()
    for number in range(4):
        text = TEXT.replace("anna", "Anna").replace(" the", " The") if number % 2 else TEXT
        (tmp_path / "books" / f"{number}.txt").write_text(text)
    how: dict[str, Any] = {
        "data": str(tmp_path / "books"),
        "vocab": 300,
        "held_out": 1,
        "tokens": 256,
        "lr": 3e-3,
    }
    how |= {"schedule": "wsd", "warmup": 2}
    how |= {
        "optimizer": "muon",
        "weight_decay": 0.1,
        "short": 16,
        "mask_rate": 0.4,
        "cased": True,
        "save_every": 3,
    }
    how |= {
        "dropout": 0.0,
        "init_std": 0.04,
        "width": 32,
        "heads": 2,
        "layers": 1,
        "length": 32,
    }
    pretrain("megatron-bert", tmp_path / "whole", steps=10, **how)

    def stop(step) -> None:  # type: ignore[no-untyped-def]
        if step.step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain("megatron-bert", tmp_path / "cut", steps=10, watch=stop, **how)
    pretrain("megatron-bert", tmp_path / "cut", steps=10, **how)
    whole, cut = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut"))
    assert whole == cut
    the, small = Tokenizer.load(tmp_path / "whole").ids(["The", "the"], special=False)
    assert the != small
    config = read_json(tmp_path / "whole" / "config.json")
    assert config["initializer_range"] == 0.04 and config["hidden_dropout_prob"] == 0.0
    points = read_curve(tmp_path / "whole" / "run")
    assert [point["step"] for point in points if "probe" in point] == [3, 6, 9, 10]


def test_a_run_says_what_it_was_asked_for(book: str, tmp_path: Path) -> None:
    how = {"data": book, "vocab": 300, "steps": 1, "tokens": 256, "mask_unit": "words", **SIZE}
    pretrain("bert", tmp_path, **how)
    asked = read_json(tmp_path / "run" / "config.json")
    assert asked["model"] == "bert" and asked["mask_unit"] == "words" and asked["width"] == 16
    assert asked.pop("token_files"), "the tokens that it reads, beside what was asked"
    assert PretrainConfig(**asked | {"out": tmp_path}).to_json() == asked
    with pytest.raises(
        CourseError, match=r"with mask_unit words \(here ngrams\): use the same settings"
    ):
        pretrain("bert", tmp_path, **how | {"mask_unit": "ngrams"})
    again: list[str] = []  # where it runs and how often it is saved may change
    pretrain("bert", tmp_path, **how | {"save_every": 7, "accumulate": 2}, say=again.append)
    assert "is finished" in " ".join(again)


@pytest.mark.parametrize(
    ("model", "option", "message"),
    [
        ("gpt", {"mask_rate": 0.3}, "causal hides no tokens; leave --mask-rate"),
        ("bart", {"mask_unit": "words"}, "denoised masks no units; leave --mask-unit"),
        ("bert", {"mask_unit": "letters"}, "no unit 'letters' to mask"),
    ],
)
def test_an_objective_refuses_what_it_does_not_know(
    model: str, option: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CourseError, match=message):
        pretrain(model, tmp_path, data="book.txt", **option)
    assert not any(tmp_path.iterdir()), "work was done before"


def test_a_probe_leaves_the_random_numbers_of_the_gpus_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states = {0: torch.tensor([7]), 1: torch.tensor([8])}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(states))
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[device])
    monkeypatch.setattr(
        torch.cuda, "set_rng_state", lambda state, device: states.update({device: state})
    )
    monkeypatch.setattr(
        torch.cuda,
        "manual_seed_all",
        lambda seed: states.update(dict.fromkeys(states, torch.tensor([seed]))),
    )
    seen = run_probe(lambda model: {"seed": float(states[1])}, torch.nn.Linear(1, 1))
    assert seen == {"seed": 0.0}
    assert [int(state) for state in states.values()] == [7, 8]
