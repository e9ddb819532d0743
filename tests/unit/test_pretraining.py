"""From text to a folder: every kind, token files written apart, runs that are not mixed up."""

from pathlib import Path

import pytest
import torch

from course_lib import hf, pretraining
from course_lib.data.token_store import TokenStore
from course_lib.errors import CourseError
from course_lib.pretraining import KINDS, pretrain, tokenize
from course_lib.tokenizers import Tokenizer

TEXT = "the judge went home. the fathers of the judge came. anna saw the judge at the mill. " * 20
SIZE: dict[str, int | None] = {"width": 16, "layers": 1, "heads": 2, "length": 32}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("book") / "book.txt"
    file.write_text("\n\n".join(TEXT[: 100 + 37 * i] for i in range(12)))
    return str(file)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_learns_and_is_written_in_the_public_layout(kind: str, book: str, tmp_path: Path) -> None:
    seen, said = [], []

    def show(run, steps):  # type: ignore[no-untyped-def]
        for step in run:
            seen.append(step.loss)
            yield step

    pretrain(
        f"{kind}-mini", tmp_path, data=book, vocab=300, size=SIZE, steps=12, tokens=256, lr=3e-2, precision="fp32",
        say=said.append, show=show,
    )  # fmt: skip
    assert len(seen) == 12 and seen[-1] < seen[0]
    assert "parameters" in said[0] and said[-1] == f"written to {tmp_path}"
    model, tokenizer = hf.load_pretrained(tmp_path), Tokenizer.load(tmp_path)
    assert model.stack.config.width == 16  # type: ignore[union-attr]
    again = pretraining._finish(
        KINDS[kind], pretraining._named(kind, SIZE)[1], pretraining._open(tmp_path, book),
        tmp_path / "run" / "state.safetensors", tmp_path / "again", book, {"length": 32, "tokens": 256, "seed": 0}, 0,
    )  # fmt: skip
    assert again.startswith("written") and tokenizer.vocab.size
    for name, value in hf.load_pretrained(tmp_path / "again").state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name


def test_tokens_are_written_once_and_read_by_any_run(book: str, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    ready = tokenize(book, tmp_path / "tokens of a book", vocab=300)
    assert ready.store.tokens > 500 and ready.tokenizer.vocab.size <= 300
    monkeypatch.setattr(pretraining, "encode_corpus", None)  # nothing is tokenized a second time
    again = tokenize(book, tmp_path / "tokens of a book", vocab=300)
    assert again.store.stream(0, 50).tolist() == ready.store.stream(0, 50).tolist()
    out = tmp_path / "model"
    pretrain("gpt", out, data=str(tmp_path / "tokens of a book"), size=SIZE, steps=1, tokens=256)
    assert not (out / "tokens").exists() and (out / "tokenizer.json").exists() and (out / "config.json").exists()
    with pytest.raises(CourseError, match=r"\[CLS\]"):
        pretrain("bert", tmp_path / "other", data=str(tmp_path / "tokens of a book"), size=SIZE, steps=1)


def test_the_text_is_streamed(book: str, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    asked = []
    real = pretraining.doors.corpus
    monkeypatch.setattr(
        pretraining.doors, "corpus", lambda *a, **how: asked.append(how["streaming"]) or real(*a, **how)
    )
    tokenize(book, tmp_path, vocab=300)
    assert asked == [True, True]


def test_a_dataset_in_the_hubs_layout_streams_in(tmp_path: Path) -> None:
    import datasets

    (tmp_path / "hub").mkdir()
    for part in range(2):
        rows = datasets.Dataset.from_dict({"text": [f"{TEXT[: 90 + part]} {number}" for number in range(30)]})
        rows.to_parquet(tmp_path / "hub" / f"train-{part:05d}-of-00002.parquet")
    ready = tokenize(f"hub:{tmp_path / 'hub'}", tmp_path / "tokens", vocab=300)
    assert len(ready.store) == 60
    assert ready.tokenizer.decode(ready.store[59]) == f"{TEXT[:91]} 29"


def test_a_run_on_other_data_is_not_gone_on_with(book: str, tmp_path: Path) -> None:
    how = {"vocab": 300, "size": SIZE, "steps": 1, "tokens": 256}
    pretrain("gpt", tmp_path, data=book, **how)  # type: ignore[arg-type]
    before = (tmp_path / "run" / "state.safetensors").read_bytes()
    with pytest.raises(CourseError, match=r"holds a run on other data .*seed 0, not .*seed 1.*--afresh"):
        pretrain("gpt", tmp_path, data=book, seed=1, **how)  # type: ignore[arg-type]
    assert (tmp_path / "run" / "state.safetensors").read_bytes() == before
    pretrain("gpt", tmp_path, data=book, seed=1, resume=False, **how)  # type: ignore[arg-type]
    assert TokenStore.open(tmp_path / "tokens").note["seed"] == 1
    with pytest.raises(CourseError, match="another model"):
        pretrain("gpt", tmp_path, data=book, seed=1, **how | {"size": SIZE | {"width": 8}})  # type: ignore[arg-type]
