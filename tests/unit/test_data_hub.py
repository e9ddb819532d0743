"""The hub's door: folders in the hub's layout, a cache as the library leaves it, and a hub of two repositories.

The tests run without a network (conftest sets HF_HUB_OFFLINE); the toy hub is asked by a process of its own.
"""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib import CourseError, data, heads, hf, hub, zoo
from course_lib.models.bert import bert
from course_lib.stack import Stack
from course_lib.tokenizers import train_wordpiece
from tests.unit.toy_hub import Repository, serve

OLD, NEW = "a" * 40, "b" * 40
CARD = """---
configs:
- config_name: films
  data_files:
  - {split: train, path: films/train-*}
  - {split: validation, path: films/validation-*}
  - {split: test, path: films/test-*}
- config_name: questions
  data_files: questions/*.parquet
---
# A set
"""


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
    questions = [{"id": "q", "title": "T", "context": "In Bonn.", "question": "Where?", "answers": answers}]
    return {
        "README.md": CARD.encode(),
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
    rows = data.task(f"hub:{folder}:films")
    assert rows.column_names == ["text", "label"] and rows.features["label"].names == ["bad", "good"]
    assert rows["text"][:] == [f"new film {i}" for i in range(4)]  # the row without a gold label is left out
    assert data.task(f"hub:{folder}:films", split="validation")["text"][:] == ["new film 0"]
    assert data.task(f"hub:{folder}:questions")[0] == {
        "id": "q",
        "title": "T",
        "text": "Where?",
        "pair": "In Bonn.",
        "answers": ["Bonn"],
        "answer": "Bonn",
        "start": 3,
    }
    assert data.corpus(f"hub:{folder}:films", n=2).num_rows == 2


def test_streams_of_a_folder(tmp_path: Path) -> None:
    folder = lay(tmp_path / "set", files("new"))
    stream = data.task(f"hub:{folder}:films", streaming=True)
    assert [row["label"] for row in stream] == [0, 1, 0, 1]
    (question,) = data.task(f"hub:{folder}:questions", streaming=True)
    assert question["start"] == 3
    assert next(iter(data.corpus(f"hub:{folder}:films", streaming=True)))["text"] == "new film 0"
    assert not list((tmp_path / "cache").rglob("*.arrow"))


@pytest.mark.parametrize(
    ("name", "split", "message"),
    [
        ("", "train", r"has several configurations; choose one of films, questions, as in hub:.*:films"),
        (":actors", "train", "has no configuration 'actors'; choose one of films, questions"),
        (":questions", "test", "has no split 'test'; it has train"),
        (":films", "test", "withholds the labels of its test split; use another, such as validation"),
        (":films@v1", "train", "a folder has no revisions; leave out @v1"),
    ],
)
def test_wrong_names_are_one_sentence(tmp_path: Path, name: str, split: str, message: str) -> None:
    folder = lay(tmp_path / "set", files("new"))
    with pytest.raises(CourseError, match=message) as error:
        data.task(f"hub:{folder}{name}", split=split)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["hub:", "hub:a/b/c", "hub:../x y", "hub:@main", "hub::config"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(CourseError, match="names neither a folder that exists nor a repository"):
        data.corpus(name)


def test_names_are_taken_apart(tmp_path: Path) -> None:
    assert hub.parse("hub:glue") == hub.Name("glue")
    assert hub.parse("hub:o/n:c@refs/pr/1") == hub.Name("o/n", "c", "refs/pr/1")
    odd = tmp_path / "a:b@c"
    odd.mkdir()
    assert hub.parse(f"hub:{odd}") == hub.Name(str(odd))
    assert hub.parse(f"hub:{tmp_path}:c") == hub.Name(str(tmp_path), "c")


def test_tables_and_records_of_a_folder(tmp_path: Path) -> None:
    lay(tmp_path / "csv", {"train.csv": b"sentence,label,idx\nfine film,glad,0\nbad film,cross,1\n"})
    rows = data.task(f"hub:{tmp_path / 'csv'}")
    assert rows[0] == {"text": "fine film", "label": 1} and rows.features["label"].names == ["cross", "glad"]
    lay(tmp_path / "csv", {"test.csv": b"sentence,label,idx\nodd film,odd,0\n"})
    with pytest.raises(CourseError, match=r"row 'odd film': the label 'odd' is not among cross, glad"):
        data.task(f"hub:{tmp_path / 'csv'}", split="test")
    lay(tmp_path / "json", {"train.jsonl": b'{"review": "fine", "stars": 1}\n{"review": "bad", "stars": 0}\n'})
    assert data.corpus(f"hub:{tmp_path / 'json'}", column="review")["text"][:] == ["fine", "bad"]
    assert data.task(f"hub:{tmp_path / 'json'}", labels=["bad", "good"]).features["label"].names == ["bad", "good"]
    with pytest.raises(CourseError, match="no column 'nope'; its columns are review, stars"):
        data.corpus(f"hub:{tmp_path / 'json'}", column="nope")
    with pytest.raises(CourseError, match="has no column 'nope'; its columns are review, stars"):
        data.task(f"hub:{tmp_path / 'json'}", columns={"text": "nope", "label": "stars"})
    lay(tmp_path / "odd", {"train.jsonl": b'{"a": "x", "b": "y"}\n'})
    with pytest.raises(CourseError, match="the columns a, b make no task that the course knows"):
        data.task(f"hub:{tmp_path / 'odd'}")
    with pytest.raises(CourseError, match="no text column that is known; its columns are a, b; say which by column="):
        data.corpus(f"hub:{tmp_path / 'odd'}")


def test_parquet_files_need_no_prefix(tmp_path: Path) -> None:
    table = parquet([{"text": "one", "label": "a"}, {"text": "two", "label": "b"}])
    lay(tmp_path / "flat", {"train.parquet": table, "test.parquet": table})
    assert data.task(tmp_path / "flat")[1] == {"text": "two", "label": 1}
    assert data.corpus(tmp_path / "flat", split="test")["text"][:] == ["one", "two"]
    assert data.corpus(tmp_path / "flat" / "train.parquet")["text"][:] == ["one", "two"]
    lay(tmp_path / "deep", {"data/train-00000-of-00001.parquet": table})
    assert data.corpus(tmp_path / "deep")["text"][:] == ["one", "two"]
    lay(tmp_path / "broken", {"train.parquet": b"PAR1"})
    with pytest.raises(CourseError, match="could not be loaded"):
        data.corpus(tmp_path / "broken")


def test_no_code_of_a_hub_is_executed(tmp_path: Path) -> None:
    script = f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit\n".encode()
    lay(tmp_path / "set", {"set.py": script, "train.csv": b"text,label\na,1\n"})
    with pytest.raises(CourseError, match="comes as a Python script, and the course executes no code of others"):
        data.task(f"hub:{tmp_path / 'set'}")
    lay(tmp_path / "pickles", {"train.pkl": b"cos\nsystem\n(S'touch ran'\ntR."})
    with pytest.raises(CourseError, match="could not be loaded"):
        data.task(f"hub:{tmp_path / 'pickles'}")
    lay(tmp_path / "images", {"train/a.png": b"x", "train/b.png": b"y"})
    with pytest.raises(CourseError, match="comes as imagefolder, and the course reads tables only"):
        data.task(f"hub:{tmp_path / 'images'}")
    with pytest.raises(CourseError, match="names a format and no dataset"):
        data.task("hub:csv")
    assert not (tmp_path / "ran").exists()


def test_a_damaged_description_is_one_sentence(tmp_path: Path) -> None:
    folder = lay(tmp_path / "set", {**files("new"), "README.md": b"---\nconfigs: [\n---\n"})
    with pytest.raises(CourseError, match="could not be loaded") as error:
        data.task(f"hub:{folder}")
    assert "\n" not in str(error.value)


def cached(caches: Path, kind: str, name: str, revisions: dict[str, dict[str, bytes]], **refs: str) -> Path:
    """A repository in the hub's cache as the library lays it out: refs, and a snapshot for each commit."""
    place = caches / "hub" / f"{kind}s--{name.replace('/', '--')}"
    for commit, content in revisions.items():
        lay(place / "snapshots" / commit, content)
    return lay(place / "refs", {ref: commit.encode() for ref, commit in refs.items()})


def test_what_was_fetched_is_used_without_a_network(caches: Path) -> None:
    cached(caches, "dataset", "toy/set", {OLD: files("old"), NEW: files("new")}, main=NEW, v1=OLD)
    for name, tag in (("", "new"), ("@v1", "old"), (f"@{OLD}", "old"), ("@main", "new"), ("", "new")):
        assert data.task(f"hub:toy/set:films{name}")["text"][0] == f"{tag} film 0", name
    with pytest.raises(CourseError, match=r"at revision 'v2' cannot be had: .* fetch it once where there is a network"):
        data.task("hub:toy/set:films@v2")
    with pytest.raises(CourseError, match=r"'toy/other' cannot be had: .* fetch it once where there is a network"):
        data.task("hub:toy/other")


def test_half_of_a_dataset_is_refused(caches: Path) -> None:
    content = files("new")
    del content["films/train-00001-of-00002.parquet"]
    cached(caches, "dataset", "toy/set", {NEW: content}, main=NEW)
    with pytest.raises(CourseError, match="the cache holds no whole copy"):
        data.task("hub:toy/set:films")


def checkpoint(folder: Path, seed: int) -> dict[str, bytes]:
    """A small BERT in the public layout, beside files that must not be opened."""
    torch.manual_seed(seed)
    words = train_wordpiece(["the judge went home"] * 9, 60)
    model = heads.MLM(Stack(bert(words.vocab.size, width=8, layers=1, heads=2, length=16)))
    hf.save_pretrained(model, folder, model_type="bert", architecture="BertForMaskedLM")
    words.save(folder)
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "modeling.py").write_text("raise SystemExit")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.safetensors").write_bytes(b"another")
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_checkpoints_from_the_cache(caches: Path, tmp_path: Path) -> None:
    old, new = checkpoint(tmp_path / "old", 0), checkpoint(tmp_path / "new", 1)
    cached(caches, "model", "toy/bert", {OLD: old, NEW: new}, main=NEW, v1=OLD)
    for name, folder in (("hub:toy/bert@v1", "old"), ("hub:toy/bert", "new"), (f"hub:{tmp_path / 'old'}", "old")):
        model, words, card = zoo.open_model(name)
        ids = torch.tensor([words.encode("the judge").ids])
        assert torch.equal(model(ids), hf.load_pretrained(tmp_path / folder)(ids)) and card["name"] == name
        assert torch.equal(model(ids), hf.load_pretrained(name)(ids))
    for name, message in (
        ("hub:toy/bert@v2", r"The model 'toy/bert' at revision 'v2' cannot be had"),
        ("hub:toy/none", r"The model 'toy/none' cannot be had: the hub does not answer"),
        ("hub:toy/bert:base", "a model has no configurations; leave out :base"),
    ):
        with pytest.raises(CourseError, match=message):
            hf.load_pretrained(name)
    cached(caches, "model", "toy/pickled", {OLD: {k: v for k, v in old.items() if "safe" not in k}}, main=OLD)
    with pytest.raises(CourseError, match="no safetensors file; pickled weights are not opened"):
        hf.load_pretrained("hub:toy/pickled")
    cached(caches, "model", "toy/odd", {OLD: {"README.md": b"x"}}, main=OLD)
    with pytest.raises(CourseError, match=r"has no config\.json"):
        hf.load_pretrained("hub:toy/odd")


ASK = """
import json, sys
from course_lib import CourseError, data, zoo
said = {}
for name in sys.argv[1:]:
    kind, _, source = name.partition(" ")
    try:
        if kind == "model":
            said[name] = float(sum(p.sum() for p in zoo.open_model(source).model.parameters()))
        else:
            said[name] = next(iter(data.task(source, streaming=kind == "stream")))["text"]
    except CourseError as error:
        said[name] = str(error)
print(json.dumps(said))
"""


def ask(home: Path, address: str, *names: str) -> dict[str, Any]:
    """What each name gives in a process that asks this hub."""
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    env = kept | {"HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "NO_PROXY": "*"}
    done = subprocess.run([sys.executable, "-c", ASK, *names], env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


@pytest.mark.slow
def test_a_hub_is_asked_once_and_then_no_more(tmp_path: Path) -> None:
    old, new = checkpoint(tmp_path / "old", 0), checkpoint(tmp_path / "new", 1)
    repositories = {
        "datasets/toy/set": Repository({"main": NEW, "v1": OLD}, {OLD: files("old"), NEW: files("new")}),
        "models/toy/bert": Repository({"main": NEW, "v1": OLD}, {OLD: old, NEW: new}),
    }
    names = ("task hub:toy/set:films", "task hub:toy/set:films@v1", "model hub:toy/bert", "model hub:toy/bert@v1")
    with serve(repositories) as server:
        asked = (*names, "stream hub:toy/set:questions@v1", "task hub:toy/set:films@v9", "task hub:toy/none")
        first = ask(tmp_path / "home", server.address, *asked, "model hub:toy/none", "task hub:csv")
    assert first["task hub:toy/set:films"] == "new film 0" and first["task hub:toy/set:films@v1"] == "old film 0"
    assert first["stream hub:toy/set:questions@v1"] == "Where?"
    assert first["model hub:toy/bert"] != first["model hub:toy/bert@v1"]
    assert "at revision 'v9' does not exist" in first["task hub:toy/set:films@v9"]
    assert "'toy/none' is not on the hub, or is private" in first["task hub:toy/none"]
    assert "'toy/none' is not on the hub, or is private" in first["model hub:toy/none"]
    assert "names a format and no dataset" in first["task hub:csv"]
    never = ("pytorch_model.bin", "modeling.py", "onnx/model.safetensors")
    assert not [path for path in server.asked if path.endswith(never)]
    again = ask(tmp_path / "home", server.address, *names, "task hub:toy/set:questions")  # the server is gone
    assert {name: again[name] for name in names} == {name: first[name] for name in names}
    assert "the hub does not answer (or HF_HUB_OFFLINE is set)" in again["task hub:toy/set:questions"]
