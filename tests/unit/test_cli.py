"""The command line, in process where nothing is trained and once as a student would call it."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from course_lib import __main__ as cli
from course_lib import heads, recipes, zoo
from course_lib.config import EmbedConfig, Learned, StackConfig
from course_lib.errors import CourseError
from course_lib.stack import Stack
from course_lib.tokenizers import train_bpe, train_wordpiece

TEXT = "the judge went home. the fathers of the judge came. anna saw the judge at the mill. " * 20
BOOK = "\n\n".join(f"{TEXT[: 200 + 37 * i]}" for i in range(12))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zoo of a tiny gpt and a tiny bert."""
    place = tmp_path_factory.mktemp("zoo")
    torch.manual_seed(0)
    for name, learn, size in (("tiny-gpt", train_bpe, 280), ("tiny-bert", train_wordpiece, 60)):
        tokenizer = learn([TEXT], size)
        config = StackConfig(
            EmbedConfig(tokenizer.vocab.size), width=8, layers=1, heads=2, hidden=16, position=Learned(64),
            causal=name == "tiny-gpt", dropout=0.0, attention_dropout=0.0,
        )  # fmt: skip
        model = (heads.LM if name == "tiny-gpt" else heads.MLM)(Stack(config))
        card = {"name": name, "steps": 7, "tokens": 99, "scores": {"name": 0.5}, "curve": [], "data": "none"}
        zoo.export(name, model, tokenizer, card, place)
    return place


@pytest.fixture
def call(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Run a command as `main` does: (exit code, stdout, stderr)."""
    monkeypatch.setattr(zoo, "FOLDER", folder)
    for function in (zoo.names, zoo.card, zoo.load):
        defaults = function.__kwdefaults__ or {}
        if "folder" in defaults:
            monkeypatch.setitem(defaults, "folder", folder)
        else:
            monkeypatch.setattr(function, "__defaults__", (folder,))

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["course", *words])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.mark.parametrize("command", ["pretrain", "tokenize", "finetune", "generate", "zoo", "info"])
def test_every_command_explains_itself(command: str) -> None:
    top = CliRunner().invoke(cli.app, ["--help"]).output
    assert command in top
    text = CliRunner().invoke(cli.app, [command, "--help"], env={"COLUMNS": "200"}).output
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert "Usage" in plain and "Traceback" not in plain
    if command in ("pretrain", "tokenize", "finetune", "generate"):
        assert "Example: python -m course_lib" in plain


def test_generate_continues_the_prompt_and_follows_the_seed(call) -> None:  # type: ignore[no-untyped-def]
    code, greedy, _ = call("generate", "tiny-gpt", "the judge", "--new", "12")
    assert code == 0 and greedy.startswith("the judge") and len(greedy) > len("the judge\n")
    texts = [call("generate", "tiny-gpt", "the", "--new", "12", "--sample", "--seed", s)[1] for s in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]


def test_zoo_list_and_check_and_info(call) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = call("zoo", "list")
    assert code == 0 and "tiny-bert" in out and "name 0.500" in out
    code, out, _ = call("zoo", "check")
    assert code == 0 and out.count("good") == 2
    code, out, _ = call("info", "tiny-gpt")
    assert code == 0 and "causal" in out and "True" in out
    code, out, _ = call("info")
    assert code == 0 and "PyTorch" in out and torch.__version__ in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["generate", "no-such-model", "x"], "There is no checkpoint 'no-such-model'; there are tiny-bert, tiny-gpt."),
        (["generate", "tiny-bert", "x"], "causal"),
        (["zoo", "build", "no-such-recipe"], "There is no recipe 'no-such-recipe'"),
        (["finetune", "tiny-bert", "--task", "no/such/folder"], "no/such/folder"),
        (["pretrain", "gpt", "--data", "no/such.txt", "--out", "never-made"], "no/such.txt"),
        (["pretrain", "gpt-huge", "--out", "never-made"], "There is no model 'gpt-huge' to pretrain"),
        (["pretrain", "gpt", "--width", "10", "--out", "never-made"], "cannot be shared by 4 heads"),
    ],
)
def test_errors_are_one_line_without_a_traceback(call, words: list[str], said: str) -> None:  # type: ignore[no-untyped-def]
    code, _, err = call(*words)
    assert code == 1
    assert err.startswith("error: ") and err.count("\n") == 1 and "Traceback" not in err
    assert said in err
    assert not Path("never-made").exists()


def test_a_wrong_option_is_exit_code_two(call) -> None:  # type: ignore[no-untyped-def]
    code, _, err = call("pretrain", "gpt", "--no-such-option")
    assert code == 2 and "Traceback" not in err


def test_pretrain_finetune_and_generate_from_files(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    book, out = tmp_path / "book.txt", tmp_path / "my model"
    book.write_text(BOOK)
    size = ["--vocab", "300", "--layers", "1", "--width", "16", "--heads", "2", "--length", "48", "--tokens", "256"]
    small = ["pretrain", "gpt", "--data", str(book), "--out", str(out), *size, "--device", "cpu"]
    code, first, err = call(*small, "--steps", "4")
    assert code == 0, err
    assert "written to" in first and "4/4" in err and "loss" in err
    assert "going on" not in first
    code, second, err = call(*small, "--steps", "6")
    assert code == 0 and "going on" in second and "6/6" in err, err
    code, third, err = call(*small, "--steps", "2", "--afresh")
    assert code == 0 and "going on" not in third and "2/2" in err, err
    code, text, err = call("generate", str(out), "the judge", "--new", "5")
    assert code == 0 and text.startswith("the judge"), err
    task = tmp_path / "task"
    task.mkdir()
    for split in ("train", "test"):
        rows = [f"{word} saw the judge\t{i % 2}" for i, word in enumerate(["anna", "the mill"] * 8)]
        (task / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    code, text, err = call(
        "finetune", str(out), "--task", str(task), "--epochs", "1", "--batch", "4", "--device", "cpu"
    )
    assert code == 0, err
    assert "precision" in text and "accuracy" in text and "on 16 test rows" in text


def test_recipes_can_be_built_small_and_stopped_and_built_on(
    call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    """The shipped recipes themselves, on a few tiny batches."""
    small = {
        name: replace(recipe, steps=6, rows=2, pool=2, vocab=700, warmup=1, probe_every=3, checkpoint_every=2)
        for name, recipe in (("gpt-mini", recipes.GPT), ("bert-mini", recipes.BERT))
    }
    monkeypatch.setattr(recipes, "RECIPES", small)
    monkeypatch.setattr(recipes.base, "TOKENIZER_DOCUMENTS", 300)
    monkeypatch.setattr(recipes.base, "BLANKS", 4)
    command = ["zoo", "build", "--work", str(tmp_path / "work"), "--to", str(tmp_path / "done")]
    code, out, err = call(*command)
    assert code == 0, err
    assert out.count("name ") >= 4 and "written to" in out
    for name in small:
        model, tokenizer, card = zoo.load(name, folder=tmp_path / "done")
        assert [point["step"] for point in card["curve"]] == [3, 6]
        assert set(card["scores"]) == {"name", "object", "place", "loss"}
        assert tokenizer.vocab.size <= 700 and not model.training
    lr = small["gpt-mini"].lr
    monkeypatch.setitem(small, "gpt-mini", replace(small["gpt-mini"], lr=1.0))
    code, _, err = call(*command, "gpt-mini")
    assert code == 1 and f"lr = {lr}" in err


def test_as_a_student_calls_it(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-m", "course_lib", "generate", str(tmp_path / "nothing"), "x"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_a_file_where_a_folder_is_needed_is_one_line(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    blocked = tmp_path / "file"
    blocked.write_text("x")
    book = tmp_path / "book.txt"
    book.write_text(BOOK)
    code, _, err = call("pretrain", "gpt", "--data", str(book), "--out", str(blocked / "model"), "--vocab", "300")
    assert code == 1 and err.startswith("error: ") and "Traceback" not in err


def test_course_errors_are_value_errors() -> None:
    assert issubclass(CourseError, ValueError)
