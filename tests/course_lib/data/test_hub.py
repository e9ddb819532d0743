"""The hub's door: folders in the hub's layout, a cache as the library leaves it, and a hub of two
repositories.

The tests run without a network (conftest sets HF_HUB_OFFLINE); the toy hub is asked by a process of
its own."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from course_lib import CourseError, data, hub, zoo
from course_lib.data.tokenizers import train_wordpiece
from course_lib.families.bert import bert
from course_lib.model import heads
from course_lib.model.transformer import Transformer
from tests.course_lib.data.toy_hub import NEW, OLD, serve


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The libraries' caches, in a folder of the test's own."""
    import datasets
    from huggingface_hub import constants

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache" / "datasets")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache" / "hub"))
    return tmp_path / "cache"


def parquet(rows: list[dict[str, Any]], **types: Any) -> bytes:
    """Rows as a Parquet file that `datasets` wrote, with its own types."""
    import datasets

    made = datasets.Dataset.from_list(rows)
    for name, kind in types.items():
        made = made.cast_column(name, kind)
    file = io.BytesIO()
    made.to_parquet(file)
    return file.getvalue()


def files(tag: str) -> dict[str, bytes]:
    """A repository of two configurations, as the hub has it."""
    from datasets import ClassLabel

    mood = ClassLabel(names=["bad", "good"])
    films = [{"sentence": f"{tag} film {i}", "label": i % 2, "idx": i} for i in range(4)]
    hidden = [{"sentence": f"{tag} film", "label": -1, "idx": 9}]
    answers = {"text": ["Bonn"], "answer_start": [3]}
    questions = [
        {"id": "q", "title": "T", "context": "In Bonn.", "question": "Where?", "answers": answers}
    ]
    return {
        "README.md": Path(__file__).with_name("card.yaml").read_bytes(),
        "films/train-00000-of-00002.parquet": parquet(films[:2], label=mood),
        "films/train-00001-of-00002.parquet": parquet([*films[2:], *hidden], label=mood),
        "films/validation-00000-of-00001.parquet": parquet(films[:1], label=mood),
        "films/test-00000-of-00001.parquet": parquet(hidden, label=mood),
        "questions/train-00000-of-00001.parquet": parquet(questions),
    }


def lay(folder: Path, content: dict[str, bytes]) -> Path:
    for name, raw in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)
    return folder


def test_a_folder_in_the_hubs_layout(tmp_path: Path) -> None:
    folder = lay(tmp_path / "set", files("new"))
    assert next(iter(data.corpus(f"hub:{folder}:films", streaming=True)))["text"] == "new film 0"
    assert not list((tmp_path / "cache").rglob("*.arrow"))
    rows = data.task(f"hub:{folder}:films")
    assert rows.column_names == ["text", "label"] and rows.features["label"].names == [
        "bad",
        "good",
    ]
    # the row without a gold label is left out
    assert rows["text"][:] == [f"new film {i}" for i in range(4)]
    few = [data.task(f"hub:{folder}:films", n=2, seed=seed)["text"][:] for seed in (0, 0, 3)]
    assert few[0] == few[1] != few[2] and set(few[0]) < set(rows["text"][:])
    assert data.task(f"hub:{folder}:films", split="validation")["text"][:] == ["new film 0"]
    assert data.held_out(f"hub:{folder}:films") == "validation"
    question = {"id": "q", "title": "T", "text": "Where?", "pair": "In Bonn."}
    assert data.task(f"hub:{folder}:questions")[0] == question | {
        "answers": ["Bonn"],
        "answer": "Bonn",
        "start": 3,
    }
    assert data.corpus(f"hub:{folder}:films", n=2).num_rows == 2


@pytest.mark.parametrize(
    ("name", "split", "message"),
    [
        ("", "train", r"could not be loaded: Config name is missing.*'films', 'questions'"),
        (
            ":actors",
            "train",
            r"could not be loaded: BuilderConfig 'actors' not found.*'films', 'questions'",
        ),
        (":questions", "test", "has no split 'test'; it has train"),
        (
            ":films",
            "test",
            "has no rows with labels in its test split; use another, such as validation",
        ),
        (":films@v1", "train", "a folder has no revisions; leave out @v1"),
    ],
)
def test_wrong_names_are_one_sentence(tmp_path: Path, name: str, split: str, message: str) -> None:
    folder = lay(tmp_path / "set", files("new"))
    with pytest.raises(CourseError, match=message) as error:
        data.task(f"hub:{folder}{name}", split=split)
    assert "\n" not in str(error.value)


def test_names_are_taken_apart(tmp_path: Path) -> None:
    assert hub.parse("hub:glue") == hub.Name("glue")
    assert hub.parse("hub:o/n:c@refs/pr/1") == hub.Name("o/n", "c", "refs/pr/1")
    odd = tmp_path / "a:b@c"
    odd.mkdir()
    assert hub.parse(f"hub:{odd}") == hub.Name(str(odd))
    assert hub.parse(f"hub:{tmp_path}:c") == hub.Name(str(tmp_path), "c")
    for name in ("hub:", "hub:a/b/c", "hub:../x y", "hub:@main", "hub::config"):
        with pytest.raises(
            CourseError, match="names neither a folder that exists nor a repository"
        ):
            data.corpus(name)


def test_tables_and_records_of_a_folder(tmp_path: Path) -> None:
    table = b"sentence,label,idx\nfine film,glad,0\nbad film,cross,1\n"
    lay(tmp_path / "csv", {"train.csv": table, "test.csv": b"sentence,label,idx\nodd film,odd,0\n"})
    rows = data.task(f"hub:{tmp_path / 'csv'}")
    assert rows[0] == {"text": "fine film", "label": 1} and rows.features["label"].names == [
        "cross",
        "glad",
    ]
    with pytest.raises(
        CourseError, match=r"row 'odd film': the label 'odd' of 'odd film' is not among cross, glad"
    ):
        data.task(f"hub:{tmp_path / 'csv'}", split="test")
    lay(tmp_path / "json", {"train.jsonl": b'{"a": "fine", "b": 1}\n{"a": "bad", "b": 0}\n'})
    source = f"hub:{tmp_path / 'json'}"
    assert (
        data.corpus(source)["text"][:]
        == data.corpus(source, column="a")["text"][:]
        == ["fine", "bad"]
    )
    with pytest.raises(
        CourseError, match=r"the columns are not known\. It begins: a \| b / fine \| 1"
    ):
        data.task(source)
    with pytest.raises(CourseError, match="no column 'nope'; the columns are a, b"):
        data.corpus(source, column="nope")


def test_parquet_files_need_no_prefix(tmp_path: Path) -> None:
    from datasets import ClassLabel, List

    table = parquet([{"text": "one", "label": "a"}, {"text": "two", "label": "b"}])
    lay(tmp_path / "flat", {"train.parquet": table, "test.parquet": table})
    assert data.task(tmp_path / "flat")[1] == {"text": "two", "label": 1}
    assert data.corpus(tmp_path / "flat", split="test")["text"][:] == ["one", "two"]
    assert data.corpus(tmp_path / "flat" / "train.parquet")["text"][:] == ["one", "two"]
    tags, mood = (
        [{"tokens": ["Ann", "ran"], "ner_tags": [1, 0]}],
        List(ClassLabel(names=["O", "PER"])),
    )
    lay(tmp_path / "tags", {"train.parquet": parquet(tags, ner_tags=mood)})
    rows = data.task(tmp_path / "tags")
    assert rows[0] == {"tokens": ["Ann", "ran"], "labels": [1, 0]}
    assert rows.features["labels"].feature.names == ["O", "PER"]
    lay(tmp_path / "deep", {"data/train-00000-of-00001.parquet": table})
    assert data.corpus(tmp_path / "deep")["text"][:] == ["one", "two"]


@pytest.mark.parametrize("streaming", [False, True])
def test_a_splits_folder_may_hold_several_parquet_files(streaming: bool, tmp_path: Path) -> None:
    files = {f"train/{word}.parquet": parquet([{"text": word}]) for word in ("one", "two")}
    lay(tmp_path, files | {"test/three.parquet": parquet([{"text": "three"}])})
    for split, words in {"train": ["one", "two"], "test": ["three"]}.items():
        rows = data.corpus(tmp_path, split=split, streaming=streaming)
        assert sorted(row["text"] for row in rows) == words


def test_no_code_of_a_hub_is_executed(tmp_path: Path) -> None:
    script = f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit\n".encode()
    lay(tmp_path / "set", {"set.py": script, "train.csv": b"text,label\na,1\n"})
    lay(tmp_path / "pickles", {"train.pkl": b"cos\nsystem\n(S'touch ran'\ntR."})
    lay(tmp_path / "images", {"train/a.png": b"x", "train/b.png": b"y"})
    for name, message in (
        (tmp_path / "set", "comes as a Python script, which is not executed"),
        (tmp_path / "pickles", "could not be loaded"),
        (tmp_path / "images", "comes as imagefolder, and the course reads tables only"),
        ("csv", "names a format and no dataset"),
        ("toy/other", "'toy/other' cannot be had: the hub does not answer"),
    ):
        with pytest.raises(CourseError, match=message) as error:
            data.task(f"hub:{name}")
        assert "\n" not in str(error.value)
    assert not (tmp_path / "ran").exists()


def checkpoint(folder: Path, seed: int) -> dict[str, bytes]:
    """A small BERT in the public layout, beside files that must not be opened."""
    torch.manual_seed(seed)
    words = train_wordpiece(["the judge went home"] * 9, 60)
    model = heads.MLM(Transformer(bert(words.vocab.size, width=8, layers=1, heads=2, length=16)))
    zoo.save_pretrained(model, folder, model_type="bert", architecture="BertForMaskedLM")
    words.save(folder)
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "modeling.py").write_text("raise SystemExit")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.safetensors").write_bytes(b"another")
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_no_pickle_is_opened(tmp_path: Path) -> None:
    content = checkpoint(tmp_path / "old", 0)
    lay(tmp_path / "pickled", {name: raw for name, raw in content.items() if "safe" not in name})
    with pytest.raises(CourseError, match="no safetensors file; pickled weights are not opened"):
        zoo.load_pretrained(f"hub:{tmp_path / 'pickled'}")
    with pytest.raises(CourseError, match="a model has no configurations; leave out :base"):
        zoo.load_pretrained("hub:toy/bert:base")


ASK = """
import json, sys
from course_lib import CourseError, data, zoo
said = {}
for name in sys.argv[1:]:
    kind, _, source = name.partition(" ")
    try:
        if kind == "model":
            model = zoo.open_model(source).model
            said[name] = float(sum(p.sum() for p in model.parameters()))
        else:
            rows = data.corpus(source, streaming=True) if kind == "stream" else data.task(source)
            said[name] = next(iter(rows))["text"]
    except CourseError as error:
        said[name] = str(error)
print(json.dumps(said))
"""


def ask(home: Path, address: str, *names: str) -> dict[str, Any]:
    """What each name gives in a process that asks this hub."""
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    env = kept | {
        "HF_ENDPOINT": address,
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "0",
        "NO_PROXY": "*",
    }
    done = subprocess.run(
        [sys.executable, "-c", ASK, *names], env=env, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


@pytest.mark.slow
def test_a_hub_is_asked_once_and_then_no_more(tmp_path: Path) -> None:
    old, new = checkpoint(tmp_path / "old", 0), checkpoint(tmp_path / "new", 1)
    repositories = {
        "datasets/toy/set": {OLD: files("old"), NEW: files("new")},
        "models/toy/bert": {OLD: old, NEW: new},
    }
    names = ("task hub:toy/set:films@v1", "model hub:toy/bert", "model hub:toy/bert@v1")
    with serve(repositories) as (address, requests):
        asked = (
            "task hub:toy/set:films",
            *names,
            "stream hub:toy/set:films",
            "task hub:toy/set:films@v9",
        )
        first = ask(tmp_path / "home", address, *asked, "task hub:toy/none", "model hub:toy/none")
    assert first["task hub:toy/set:films"] == first["stream hub:toy/set:films"] == "new film 0"
    assert first["task hub:toy/set:films@v1"] == "old film 0"
    assert first["model hub:toy/bert"] != first["model hub:toy/bert@v1"]
    assert "at revision 'v9' does not exist" in first["task hub:toy/set:films@v9"]
    assert "'toy/none' is not on the hub, or is private" in first["task hub:toy/none"]
    assert "'toy/none' is not on the hub, or is private" in first["model hub:toy/none"]
    never = ("pytorch_model.bin", "modeling.py", "onnx/model.safetensors")
    assert not [path for path in requests if path.endswith(never)]
    # never fetched; not of the revision kept last
    absent = ("task hub:toy/set:questions", "task hub:toy/set:films")
    again = ask(tmp_path / "home", address, *names, *absent)  # the server is gone
    assert {name: again[name] for name in names} == {name: first[name] for name in names}
    for name in absent:
        assert "the hub does not answer (or HF_HUB_OFFLINE is set)" in again[name]


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_a_clock_in_the_past_is_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By such a clock no certificate is valid yet, so the hub seems not to answer."""
    import huggingface_hub

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate is not yet valid (_ssl.c:1006)")

    monkeypatch.setattr(huggingface_hub, "get_session", lambda: SimpleNamespace(head=refuse))
    with pytest.raises(CourseError, match="Set the date and time right") as error:
        hub.pretrained("nobody/model") if kind == "model" else data.task("hub:nobody/set")
    assert "does not answer" not in str(error.value)


def test_a_user_without_a_home_is_told_where_the_cache_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HOME", "~/.cache/huggingface")
    lay(tmp_path / "flat", {"train.parquet": parquet([{"text": "one", "label": "a"}])})
    for call in (lambda: hub.pretrained("nobody/model"), lambda: data.task(tmp_path / "flat")):
        with pytest.raises(CourseError, match=r"no home folder.*set HF_HOME"):
            call()
    assert not (tmp_path / "~").exists()
