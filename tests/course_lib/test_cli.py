"""The command line, in process where nothing is trained and once as a student would call it."""

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from huggingface_hub.utils import filter_repo_objects
from safetensors.torch import load_file, save_file

from course_lib import data, hub, zoo
from course_lib.data.tokenizers import Tokenizer, train_bpe, train_wordpiece
from course_lib.errors import CourseError
from course_lib.families.bert import bert
from course_lib.families.gpt import gpt
from course_lib.families.word_vectors import WordVectors
from course_lib.files import COURSE, locked, read_json, write_json
from course_lib.generation import generate
from course_lib.model import heads
from course_lib.model.transformer import Transformer
from course_lib.training import finetune
from lab import recipes

TEXT = "the judge went home. the fathers of the judge came. anna saw the judge at the mill. " * 20
REFUSED = tomllib.loads(Path(__file__).with_name("refused.toml").read_text())
TABLE = "text\tlabel\na word\t"
ROWS = [{"text": "the judge", "label": 0}, {"text": "anna saw", "label": 1}] * 4
BOOK = "\n\n".join(f"{TEXT[: 200 + 37 * i]}" for i in range(12))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zoo of a tiny gpt and a tiny bert."""
    place = tmp_path_factory.mktemp("zoo")
    torch.manual_seed(0)
    for name, learn, size in (("tiny-gpt", train_bpe, 280), ("tiny-bert", train_wordpiece, 60)):
        tokenizer = learn([TEXT], size)
        shape = {"width": 8, "layers": 1, "heads": 2, "length": 64, "dropout": 0.0}
        config = (gpt if name == "tiny-gpt" else bert)(tokenizer.vocab.size, **shape)
        model = (heads.LM if name == "tiny-gpt" else heads.MLM)(Transformer(config))
        card = {
            "name": name,
            "steps": 7,
            "tokens": 99,
            "scores": {"name": 0.5},
            "curve": [],
            "data": "none",
        }
        zoo.export(name, model, tokenizer, card, place)
    vectors = WordVectors(["a", "b"], torch.ones(2, 3), [1, 1])
    card = {"name": "tiny-words", "steps": 0, "tokens": 0, "scores": {}}
    zoo.export("tiny-words", vectors, None, card, place)
    return place


@pytest.fixture
def call(folder: Path, monkeypatch: pytest.MonkeyPatch, call):  # type: ignore[no-untyped-def]
    """The same beside this zoo."""
    monkeypatch.setattr(zoo.shipped, "FOLDER", folder)
    for function in (zoo.names, zoo.card, zoo.load):
        defaults = function.__kwdefaults__ or {}
        if "folder" in defaults:
            monkeypatch.setitem(defaults, "folder", folder)
        else:
            monkeypatch.setattr(function, "__defaults__", (folder,))
    return call


def reviews(folder: Path, labelled_test: bool = True) -> Path:
    """A folder in GLUE's layout, but for its columns' names."""
    folder.mkdir()
    for split in ("train", "dev", "test"):
        rows = ["review\tverdict", *["anna saw the judge\tgood", "the mill saw the judge\tbad"] * 8]
        if split == "test" and not labelled_test:
            rows = [row.partition("\t")[0] for row in rows]
        (folder / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    return folder


NAMED = ["--columns", "text=review,label=verdict"]


def test_generate_continues_the_prompt_and_follows_the_seed(call) -> None:  # type: ignore[no-untyped-def]
    code, greedy, _ = call("generate", "tiny-gpt", "the judge", "--new", "12")
    assert code == 0 and greedy.startswith("the judge") and len(greedy) > len("the judge\n")
    texts = [
        call("generate", "tiny-gpt", "the", "--new", "12", "--sample", "--seed", s)[1]
        for s in ("1", "1", "2")
    ]
    assert texts[0] == texts[1] != texts[2]
    mark = greedy.removeprefix("the judge")[3:5]
    _, cut, _ = call("generate", "tiny-gpt", "the judge", "--new", "12", "--stop", mark)
    assert cut == greedy[: greedy.index(mark, len("the judge"))] + "\n"


def test_zoo_list_and_check_and_info(call) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = call("zoo", "list")
    assert code == 0 and "tiny-bert" in out and "name 0.500" in out
    code, out, _ = call("zoo", "check")
    assert code == 0 and out.count("good") == 3
    code, out, _ = call("info", "tiny-gpt")
    assert code == 0 and "causal" in out and "True" in out
    code, out, _ = call("info", "tiny-gpt", "--json")
    facts = json.loads(out)
    model = zoo.open_model("tiny-gpt").model
    assert code == 0 and facts["causal"] is True
    assert facts["parameters"] == sum(weight.numel() for weight in model.parameters())
    code, out, _ = call("info", "--json")
    assert code == 0 and json.loads(out)["PyTorch"] == torch.__version__
    code, out, _ = call("info")
    assert code == 0 and "PyTorch" in out and torch.__version__ in out


def test_fetch_takes_all_that_it_can_and_says_what_is_missing(call, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    torch.manual_seed(0)
    tokenizer = train_wordpiece([TEXT], 60)
    body = Transformer(bert(tokenizer.vocab.size, width=8, layers=1, heads=2, length=64))
    zoo.save_pretrained(heads.MLM(body), tmp_path / "model", tokenizer=tokenizer)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "train.txt").write_text(BOOK, "utf-8")
    model, text = ({"name": str(tmp_path / name), "megabytes": 1} for name in ("model", "text"))
    missing = {"name": "nobody/nothing", "revision": "v1", "megabytes": 1}
    write_json(tmp_path / "wanted.json", {"models": [missing, model], "corpora": [text]})
    code, out, err = call("fetch", str(tmp_path / "wanted.json"))
    assert code == 1 and out.count("(1 MB) ...") == 3
    assert (
        "error: The model 'nobody/nothing' at revision 'v1' cannot be had" in err
        and "Traceback" not in err
    )
    write_json(tmp_path / "wanted.json", {"models": [model], "corpora": [text]})
    assert call("fetch", str(tmp_path / "wanted.json"))[0] == 0


def test_the_list_of_a_class_names_commits() -> None:
    entries = [
        entry for kind in read_json(COURSE / "data" / "class.json").values() for entry in kind
    ]
    assert len(entries) == len({entry["name"] for entry in entries}) > 5
    for entry in entries:
        assert hub.COMMIT.fullmatch(entry["revision"]) and hub.REPOSITORY.fullmatch(
            entry["name"].partition(":")[0]
        )
        assert all(
            next((COURSE / "notebooks").glob(f"{lesson}_*.ipynb")) for lesson in entry["lessons"]
        )


def test_of_a_repository_only_what_is_read_is_fetched() -> None:
    there = [
        "config.json",
        "model.safetensors",
        "1_Pooling/config.json",
        "2_Dense/model.safetensors",
        "modules.json",
    ]
    rest = [
        "onnx/config.json",
        "pytorch_model.bin",
        "openvino/vocab.txt",
        "1_Pooling/code.py",
        "README.md",
    ]
    patterns = {"allow_patterns": list(hub.MODEL_FILES), "ignore_patterns": hub.NOT_MODULES}
    assert list(filter_repo_objects(there + rest, **patterns)) == there


@pytest.mark.parametrize(("line", "said"), REFUSED["commands"].items())
def test_errors_are_one_line_without_a_traceback(
    call, line: str, said: str, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    files = {
        "BOOK": BOOK * 3,
        "HALF.jsonl": '{"text": "a \\ud800", "label": 1}',
        "HERE": "",
        "LIST.json": "[{}]",
    }
    files |= {
        "NAN.tsv": TABLE + "nan\n",
        "TWICE.tsv": "text\ttext\tlabel\na\tb\t1\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        line = line.replace(name.partition(".")[0], str(tmp_path / name))
    code, _, err = call(*line.split(" "))
    assert (
        code == 1 and err.startswith("error: ") and err.count("\n") == 1 and "Traceback" not in err
    )
    assert said in err and not Path("never-made").exists()


def test_an_error_is_one_line_whatever_it_quotes(tmp_path: Path) -> None:
    source = tmp_path / "rows.json"
    source.write_text('{"a\\nb\\u001b": 1}')
    with pytest.raises(CourseError, match=r"the columns are a\\nb\\x1b;"):
        data.corpus(str(source))


@pytest.mark.parametrize(("slip", "said"), REFUSED["calls"].items())
def test_a_slip_in_python_is_one_sentence(folder: Path, slip: str, said: str) -> None:
    bert, gpt = (zoo.load(name, folder=folder) for name in ("tiny-bert", "tiny-gpt"))
    names = {
        "bert": bert,
        "gpt": gpt,
        "data": data,
        "zoo": zoo,
        "torch": torch,
        "generate": generate,
    }
    names |= {
        "Tokenizer": Tokenizer,
        "finetune": finetune.finetune,
        "FinetuneConfig": finetune.FinetuneConfig,
        "rows": dict.fromkeys(("train", "test"), ROWS),
    }
    with pytest.raises(CourseError, match=re.escape(said)):
        eval(slip, names)


@pytest.mark.parametrize(("entry", "said"), REFUSED["configs"].items())
def test_a_public_model_that_does_not_fit_is_one_sentence(
    folder: Path, tmp_path: Path, entry: str, said: str
) -> None:
    model, tokenizer, _ = zoo.load("tiny-bert", folder=folder)
    zoo.save_pretrained(model, tmp_path, tokenizer=tokenizer)
    write_json(tmp_path / "config.json", read_json(tmp_path / "config.json") | json.loads(entry))
    with pytest.raises(CourseError, match=re.escape(said)):
        zoo.load_pretrained(tmp_path)


def test_weights_of_a_public_model_are_finite_numbers_with_a_point(
    folder: Path, tmp_path: Path
) -> None:
    model, _, _ = zoo.load("tiny-bert", folder=folder)
    zoo.save_pretrained(model, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    for odd in (lambda x: x * torch.nan, lambda x: x.to(torch.int32)):
        save_file({name: odd(x) for name, x in weights.items()}, tmp_path / "model.safetensors")
        with pytest.raises(CourseError, match="or some that are not finite"):
            zoo.load_pretrained(tmp_path)


def test_pretrain_finetune_and_generate_from_files(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    book, out = tmp_path / "book.txt", tmp_path / "my model"
    book.write_text(BOOK)
    size = [
        "--vocab",
        "300",
        "--layers",
        "1",
        "--width",
        "16",
        "--heads",
        "2",
        "--length",
        "48",
        "--tokens",
        "256",
    ]
    small = ["pretrain", "gpt", "--data", str(book), "--out", str(out), *size, "--device", "cpu"]
    code, first, err = call(*small, "--steps", "4")
    assert (
        code == 0
        and "written to" in first
        and "4/4" in err
        and "loss" in err
        and "going on" not in first
    ), err
    code, second, err = call(*small, "--steps", "6")
    assert code == 0 and "going on" in second and "6/6" in err, err
    assert "is finished" in call(*small, "--steps", "6")[1]
    code, _, err = call(*small, "--steps", "2")
    assert code == 1 and "has made 6 steps, more than 2" in err
    code, third, err = call(*small, "--steps", "2", "--afresh")
    assert code == 0 and "going on" not in third and "2/2" in err, err
    code, text, err = call("generate", str(out), "the judge", "--new", "5")
    assert code == 0 and text.startswith("the judge"), err
    task = reviews(tmp_path / "task", labelled_test=False)
    fit = ["--epochs", "1", "--batch", "4", "--device", "cpu"]
    code, text, err = call("finetune", str(out), "--task", str(task), *NAMED, *fit)
    assert (
        code == 0 and "precision" in text and "accuracy" in text and "on 16 validation rows" in text
    ), err


def test_whole_words_and_ngrams_are_masked_by_the_command(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "book.txt").write_text(BOOK)
    small = ["--data", str(tmp_path / "book.txt"), "--vocab", "80", "--width", "16", "--heads", "2"]
    losses = {}
    for unit in ("tokens", "words", "spans", "ngrams"):
        out = tmp_path / unit
        more = ["--layers", "1", "--tokens", "256", "--steps", "1", "--device", "cpu"]
        code, _, err = call(
            "pretrain", "bert", "--out", str(out), *small, *more, "--mask-unit", unit
        )
        assert code == 0, err
        assert read_json(out / "run" / "config.json")["mask_unit"] == unit
        losses[unit] = read_json(out / "run" / "curve.json")[0]["loss"]
    assert len(set(losses.values())) == 4, "all begin alike, so that the masks make the difference"


def test_a_fine_tuned_model_is_kept_and_asked(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    task, out = reviews(tmp_path / "reviews"), tmp_path / "my judge"
    fit = ["--epochs", "30", "--lr", "0.02", "--batch", "4", "--device", "cpu"]
    tune = ("finetune", "tiny-bert", "--task", str(task), *NAMED, *fit, "--out", str(out))
    for command in (tune, ("tokenize", "--data", str(task), "--out", str(out))):
        with locked(out):
            code, _, err = call(*command)
        assert code == 1 and f"Process {os.getpid()} is writing in {out}" in err
    code, text, err = call(*tune)
    assert (
        code == 0 and "accuracy 1.0000 on 16 test rows" in text and f"written to {out}" in text
    ), err
    assert read_json(out / "config.json")["id2label"] == {"0": "bad", "1": "good"}
    code, text, err = call("predict", str(out), "anna saw the judge")
    assert code == 0 and text == "good\tanna saw the judge\n", err
    (tmp_path / "new.txt").write_text("the mill saw the judge\n\nanna saw the judge\n")
    (tmp_path / "new.tsv").write_text(
        "index\tsentence\n0\tthe mill saw the judge\n1\tanna saw the judge\n"
    )
    for file in ("new.txt", "new.tsv"):
        code, text, err = call("predict", str(out), str(tmp_path / file))
        assert code == 0 and text == "bad\tthe mill saw the judge\ngood\tanna saw the judge\n", err
    # three lines, whatever else Unicode calls a line's end; a text is as long as it likes
    (tmp_path / "odd.txt").write_bytes("\ufeffanna\u2028saw.\r\nthe\u0085judge\nthe mill".encode())
    code, text, err = call("predict", str(out), str(tmp_path / "odd.txt"))
    assert code == 0 and text.count("\n") == 3 and text.split("\t")[1].startswith("anna"), err
    long = "anna saw the judge " * 300
    assert call("predict", str(out), long)[0] == 0
    (tmp_path / "old.txt").write_bytes("gr\xfcn".encode("cp1252"))
    for source, said in (
        (
            tmp_path / "old.txt",
            "line 1: not UTF-8 text (its byte 2 is 0xfc, 'ü' in Windows-1252); save",
        ),
        (tmp_path, "is a folder; give a text, or the path of one file"),
        (tmp_path / "none.txt", "There is no file"),
    ):
        code, _, err = call("predict", str(out), str(source))
        assert code == 1 and said in err and err.count("\n") == 1, err
    code, text, err = call("predict", str(out), str(task / "test.tsv"), *NAMED)
    assert code == 0 and text.startswith("good\tanna saw") and text.count("\n") == 16, err


def test_the_trained_pooler_is_where_the_command_begins(call, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    seen: list[object] = []
    monkeypatch.setattr(
        finetune, "finetune", lambda model, *_, **__: seen.append(model) or sys.exit(0)
    )
    call("finetune", "tiny-bert", "--task", str(reviews(tmp_path / "reviews")), *NAMED)
    assert isinstance(seen[0], heads.MLM), "the whole model, with whatever pooler it owns"


def test_a_recipe_is_built_by_its_command(call, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    recipe = recipes.RECIPES["gpt-mini"]
    small = replace(
        recipe,
        steps=2,
        rows=2,
        warmup=1,
        probe_every=1,
        size=replace(recipe.size, vocab=700),
        documents=replace(recipe.documents, pool=2),
    )
    monkeypatch.setattr(recipes, "RECIPES", {"gpt-mini": small})
    monkeypatch.setattr("lab.recipes.base.TOKENIZER_DOCUMENTS", 300)
    monkeypatch.setattr("lab.recipes.base.BLANKS", 4)
    code, out, err = call(
        "zoo", "build", "--work", str(tmp_path / "work"), "--to", str(tmp_path / "done")
    )
    assert code == 0 and out.count("name ") >= 2 and "written to" in out, err
    assert zoo.load("gpt-mini", folder=tmp_path / "done").card["steps"] == 2


def test_as_a_student_calls_it(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(COURSE)}
    done = subprocess.run(
        [sys.executable, "-m", "course_lib", "generate", str(tmp_path / "nothing"), "x"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert (
        done.returncode == 1 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_the_output_is_one_line():
    words = [sys.executable, "-m", "course_lib", "info", "gpt-nano"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "error: The output cannot be written: the disk is full.\n"


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps a folder that is in use")
def test_a_current_folder_that_is_gone_is_one_line(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    code, _, err = call("info", "gpt-nano")
    assert (code, err) == (1, "error: The current folder is no longer there; go to another one.\n")


def test_a_name_that_the_terminal_cannot_write_does_not_end_a_command(tmp_path):
    path = tmp_path / "Zo\xeb.csv"
    path.write_text("no table of ours\n", "utf-8")
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "course_lib", "info", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert "Traceback" not in done.stderr
    assert "Zo\\xeb" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="needs a shell")
def test_a_closed_output_is_an_error() -> None:
    command = f'"{sys.executable}" -m course_lib zoo list'
    done = subprocess.run(f"{command} >&-", shell=True, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr.startswith("error: The output is closed")
    done = subprocess.run(f"{command} 2>&-", shell=True, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0 and "gpt-mini" in done.stdout
