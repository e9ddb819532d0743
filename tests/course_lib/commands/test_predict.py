"""`predict` asks about a text or a file, and never takes one for the other."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from course_lib.data.tokenizers import train_wordpiece
from course_lib.families.bert import bert
from course_lib.model.transformer import Transformer
from course_lib.training.finetune import FinetuneConfig, finetune

Call = Callable[..., tuple[int, str, str]]
TEXT = "the judge saw anna at the mill. " * 20
LABELLED = {"text": "the judge", "label": 0}
TASKS = {
    "single": [LABELLED, {**LABELLED, "label": 1}],
    "pair": [{**LABELLED, "pair": "anna"}, {**LABELLED, "pair": "the mill", "label": 1}],
    "tagging": [{"tokens": ["anna", "saw"], "labels": [0, 1]}],
    "choice": [{"text": "anna", "choices": ["saw", "at"], "label": 0}],
    "span": [{"text": "who", "pair": "anna saw", "answer": "anna", "start": 0}],
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model for each kind of task; they read 16 tokens."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    tokenizer = train_wordpiece([TEXT], 60)
    body = Transformer(bert(tokenizer.vocab.size, width=8, layers=1, heads=2, length=16))
    for kind, rows in TASKS.items():
        classes = ["O", "B-X"] if kind in ("single", "pair", "tagging") else None
        config = FinetuneConfig(epochs=1, classes=classes, out=folder / kind)
        finetune(body, {"train": rows, "test": rows}, tokenizer, config)
    return folder


@pytest.fixture
def predict(models: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command with a model of this kind of task."""
    # Python would show a note that was shown once in this process no second time.
    monkeypatch.setattr("warnings.filters", [("always", None, Warning, None, 0)])
    return lambda kind, *words: call("predict", str(models / kind), *map(str, words))


FILES = {
    "a.txt": ("anna saw\nthe mill\n", ["anna saw", "the mill"]),
    "b.txt": ("anna saw\nthe mill\n".encode("utf-16"), ["anna saw", "the mill"]),
    "c.txt.gz": (gzip.compress(b"anna saw\n"), ["anna saw"]),
    "d.txt": ("text\tlabel\nanna saw\tB-X\n", ["anna saw"]),
    "e.csv": ('text,label\n"anna\nsaw",-\n', ["anna saw"]),
    "f.jsonl": ('{"sentence": "anna saw"}\n', ["anna saw"]),
}


@pytest.mark.parametrize(("name", "case"), FILES.items(), ids=FILES)
def test_each_row_of_a_file_has_a_line(
    predict: Call, tmp_path: Path, name: str, case: tuple[str | bytes, list[str]]
) -> None:
    content, wanted = case
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    code, out, err = predict("single", tmp_path / name)
    assert code == 0, err
    lines = [line.split("\t") for line in out.splitlines()]
    assert [line[1:] for line in lines] == [[text] for text in wanted]
    assert {line[0] for line in lines} <= {"O", "B-X"}


@pytest.mark.parametrize(
    "source",
    ["reviews/test", "none.csv", "no file.csv", "none.txt.gz", "/dev/null", "hub:a/b", "world/nli"],
)
def test_a_path_is_no_text(predict: Call, source: str) -> None:
    code, out, err = predict("single", source)
    assert code == 1 and out == "" and f"There is no file {source}" in err


REFUSED = {
    "an empty text": ("single", ["  "], "The text is empty"),
    "a folder": ("single", ["."], "is a folder; give a text, or the path of one file"),
    "bytes that are no text": ("single", ["gr\udcfcn"], "is no text of whole characters"),
    "columns of a text": ("single", ["anna", "--columns", "text=a"], "--columns is for a file"),
    "an empty pair": ("pair", ["anna", "--pair", ""], "--pair is empty"),
    "a pair too many": ("single", ["anna", "--pair", "saw"], "This task has one text; row 0 has"),
    "a pair too few": ("pair", ["anna"], "was tuned on two texts; give the second by --pair"),
    "a pair for a tagger": ("tagging", ["anna", "--pair", "saw"], "or the model takes none"),
}


@pytest.mark.parametrize(("kind", "words", "said"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused(
    predict: Call, kind: str, words: list[str], said: str
) -> None:
    code, out, err = predict(kind, *words)
    assert code == 1 and out == "" and err.startswith("error: ") and said in err, err


def test_a_second_text_is_not_overwritten(predict: Call, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,pair\nanna,the mill\n")
    code, out, _ = predict("pair", tmp_path / "a.csv")
    assert code == 0 and out.split("\t")[0] in ("O", "B-X") and out.endswith("\tanna\tthe mill\n")
    code, _, err = predict("pair", tmp_path / "a.csv", "--pair", "saw")
    assert code == 1 and "has a second text in each row; leave out --pair" in err


def test_what_is_not_read_is_said(predict: Call, tmp_path: Path) -> None:
    long = "anna saw the judge " * 100
    (tmp_path / "a.txt").write_text(f"anna\n\n{long}\n")
    code, out, err = predict("single", tmp_path / "a.txt")
    assert code == 0 and out.count("\n") == 2
    assert "1 of 3 lines are blank" in err
    assert "1 of 2 texts are longer than the 16 tokens that are read" in err
    for kind, words in (("single", [long]), ("tagging", [long]), ("span", ["who", "--pair", long])):
        code, _, err = predict(kind, *words)
        assert code == 0 and "1 of 1 texts are longer than the 16 tokens" in err, kind
    assert predict("single", "anna")[2] == ""


@pytest.mark.parametrize("text", ["火灾探测器可燃", "ひらがな", "ภาษาไทย"])
def test_a_text_without_blanks_is_one_word_for_a_tagger(
    predict: Call, tmp_path: Path, text: str
) -> None:
    code, _, err = predict("tagging", text)
    assert code == 0 and f"{text!r} is one word for the tagger" in err
    assert "Put blanks between the words" in err
    for words in (" ".join(text), "anna", f"{text[:2]} {text[2:]}"):
        assert predict("tagging", words)[2] == ""
    (tmp_path / "a.conll").write_text(f"{text}\n", encoding="utf-8")  # says itself what a word is
    assert predict("tagging", tmp_path / "a.conll")[2] == ""
    assert predict("single", text)[2] == ""


def test_rows_without_answers_are_asked_about(predict: Call, tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("anna\nsaw\n\nmill\n")
    code, out, err = predict("tagging", tmp_path / "a.conll")
    assert code == 0 and [line.split("\t")[1] for line in out.splitlines()] == ["anna saw", "mill"]
    asked = {"paragraphs": [{"context": "anna saw", "qas": [{"id": "1", "question": "who"}]}]}
    (tmp_path / "a.json").write_text(json.dumps({"data": [asked]}))
    code, out, err = predict("span", tmp_path / "a.json")
    assert code == 0 and out.endswith("\twho\tanna saw\n"), err
    rows = [{"text": "anna", "choices": ["saw", "at"]}, {"text": "anna", "choices": ["a"] * 3}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    code, _, err = predict("choice", tmp_path / "a.jsonl")
    assert code == 1 and "Row 1 has 3 choices and row 0 has 2" in err


def test_finetune_says_which_test_rows_it_has_learned(
    call: Call, tmp_path: Path, models: Path
) -> None:
    (tmp_path / "train.csv").write_text("text,label\nanna saw,x\nthe mill,y\n")
    (tmp_path / "test.csv").write_text("text,label\nanna saw,x\nthe judge,y\n")
    tune = ("finetune", str(models / "single"), "--task", str(tmp_path), "--epochs", "1")
    code, _, err = call(*tune, "--device", "cpu")
    assert code == 0 and "1 of the test rows are training rows, too" in err, err
    code, out, err = call(*tune, "--test", "train", "--device", "cpu")
    assert code == 0 and "The score is that of the training rows" in err
    assert "longer" not in out
    long = "anna saw the judge " * 20
    (tmp_path / "test.csv").write_text(f"text,label\n{long},x\nthe judge,y\n")
    code, out, err = call(*tune, "--device", "cpu")
    assert (
        code == 0 and "1 test rows are longer than the model reads" in out and "too good" not in err
    )
