"""corpus() and task(): one shape, whichever door; a clear sentence where there is nothing to give."""

from pathlib import Path

import pytest

from course_lib import CourseError, data
from course_lib.data import docs

LONG = "This sentence stands here to be long enough to count as documentation. " * 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.tsv").write_text("sentence\tlabel\n" + "".join(f"film {i}\t{i % 2}\n" for i in range(50)))
    (tmp_path / "dev_matched.tsv").write_text("sentence\tlabel\nother film\t1\n")
    (tmp_path / "dev_mismatched.tsv").write_text("sentence\tlabel\nthird film\t0\n")
    (tmp_path / "test.tsv").write_text("sentence\tlabel\nfourth film\t7\n")
    return tmp_path


def test_a_folder_of_tables(folder: Path) -> None:
    train = data.task(folder)
    assert train.column_names == ["text", "label"]
    assert train.features["label"].names == ["0", "1"]
    assert (len(train), train[3]) == (50, {"text": "film 3", "label": 1})
    both = data.task(folder, split="validation")
    assert both["text"][:] == ["other film", "third film"]
    assert data.task(folder, split="dev_matched")["text"][:] == ["other film"]
    assert data.task(folder / "train.tsv").features == train.features


def test_n_rows_are_drawn_by_seed(folder: Path) -> None:
    draws = [data.task(folder, n=10, seed=seed)["text"][:] for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert len(set(draws[0])) == 10 and len(data.task(folder, n=80)) == 50
    with pytest.raises(CourseError, match="at least one row"):
        data.task(folder, n=0)


def test_labels_outside_the_set_are_named(folder: Path) -> None:
    with pytest.raises(CourseError, match=r"test\.tsv: the label '7' of 'fourth film' is not among 0, 1"):
        data.task(folder, split="test")
    named = data.task(folder, split="test", labels=["0", "1", "7"])
    assert named[0]["label"] == 2
    with pytest.raises(CourseError, match=r"train\.tsv: the label '0'"):
        data.task(folder, labels=["good", "bad"])


def test_scores_stay_numbers(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("A.,B.,2.5\nC.,D.,0\n")
    scores = data.task(tmp_path)
    assert scores.column_names == ["text", "pair", "label"] and scores["label"][:] == [2.5, 0.0]


def test_tagging_has_names_and_outside_first(tmp_path: Path) -> None:
    (tmp_path / "wnut17train.conll").write_text("Ann\tB-PER\nran\tO\n\nBonn\tB-LOC\n")
    (tmp_path / "emerging.dev.conll").write_text("Eve\tB-PER\n")
    tags = data.task(tmp_path)
    assert tags.features["labels"].feature.names == ["O", "B-LOC", "B-PER"]
    assert tags[0] == {"tokens": ["Ann", "ran"], "labels": [2, 0]}
    assert data.task(tmp_path, split="validation")[0]["labels"] == [2]


def test_text_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "wiki.train.tokens").write_text(" = A = \n\n one \n\n = B = \n\n two \n")
    (tmp_path / "wiki.valid.tokens").write_text(" = C = \n\n three \n")
    assert [t.split()[-1] for t in data.corpus(tmp_path)["text"]] == ["one", "two"]
    assert len(data.corpus(tmp_path, split="validation")) == 1
    assert len(data.corpus(tmp_path / "wiki.train.tokens")) == 2
    with pytest.raises(CourseError, match="no file for the test split"):
        data.corpus(tmp_path, split="test")
    with pytest.raises(CourseError, match="single file, so it has no test split"):
        data.corpus(tmp_path / "wiki.train.tokens", split="test")
    with pytest.raises(CourseError, match="no split 'tset'"):
        data.corpus(tmp_path, split="tset")


@pytest.mark.parametrize("door", [data.corpus, data.task])
def test_unknown_sources(door: object, tmp_path: Path) -> None:
    assert callable(door)
    with pytest.raises(CourseError, match='a source is "world", "docs", "hub:NAME" or a path that exists'):
        door(tmp_path / "nowhere")
    with pytest.raises(CourseError, match="no file for the train split; its files: none of a known format"):
        door(tmp_path)


def library(root: Path) -> Path:
    """A site-packages with one of the known libraries in it."""
    package = root / "numpy"
    (package / "tests").mkdir(parents=True)
    (package / "__init__.py").write_text(f'"""{LONG}numpy"""\nraise SystemExit("must not be executed")\n')
    code = f'class A:\n    """{LONG}``A`` and :class:`~x.B`."""\n    def f(self):\n        """{LONG}f"""\n'
    (package / "core.py").write_text(code + f'def short():\n    """Short."""\ndef again():\n    """{LONG}f"""\n')
    (package / "attached.py").write_text(f'from x import add_newdoc\nadd_newdoc("numpy", "sin", """{LONG}sin""")\n')
    (package / "tests" / "test_a.py").write_text(f'"""{LONG}test"""\n')
    (package / "broken.py").write_text("def (:\n")
    return root


def test_docstrings_are_read_without_executing(tmp_path: Path) -> None:
    root = library(tmp_path)
    rows = [row for split in docs.SPLITS for row in docs.docstrings(split, folder=root)]
    names = {row["name"] for row in rows}
    assert names == {"numpy", "numpy.core.A", "numpy.core.A.f", "numpy.attached.numpy.sin"}
    text = next(row["text"] for row in rows if row["name"] == "numpy.core.A")
    assert text.endswith("A and x.B.")
    with pytest.raises(CourseError, match="no split 'dev'"):
        docs.docstrings("dev")
    with pytest.raises(CourseError, match="None of the libraries"):
        docs.docstrings(folder=tmp_path / "empty")


def test_docs_are_cached_and_a_damaged_cache_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = library(tmp_path / "site")
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(docs.sysconfig, "get_paths", lambda: {"purelib": str(root)})
    first = {split: data.corpus("docs", split=split) if docs.docstrings(split) else None for split in docs.SPLITS}
    (cache,) = (tmp_path / "cache").glob("docs-*.jsonl")
    before = docs.docstrings()
    (root / "numpy" / "core.py").unlink()
    assert docs.docstrings() == before  # from the cache: the versions are the same
    cache.write_text('{"name": "num')
    assert len(docs.docstrings()) < len(before)
    assert first["train"] is not None and set(first["train"].column_names) == {"name", "text"}


def test_docs_splits_share_nothing() -> None:
    shares = [len(numbers) for numbers in docs.SPLITS.values()]
    assert sum(shares) == 100 == len({i for numbers in docs.SPLITS.values() for i in numbers})


def test_hub_door_on_a_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.csv").write_text("sentence,label,idx\nfine film,1,0\nbad film,0,1\n")
    rows = data.task(f"hub:{tmp_path / 'set'}")
    assert rows.column_names == ["text", "label"] and rows[0] == {"text": "fine film", "label": 1}
    with pytest.raises(CourseError, match="no column 'text'; its columns are sentence, label, idx"):
        data.corpus(f"hub:{tmp_path / 'set'}")


def test_hub_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("Couldn't reach the server\nlong trace")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(CourseError, match=r"'some/set' could not be loaded .*\(Couldn't reach the server\); check"):
        data.corpus("hub:some/set@abc")


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("sentiment", {"text", "label"}),
        ("acceptability", {"text", "label"}),
        ("nli", {"text", "pair", "label"}),
        ("entities", {"tokens", "labels"}),
        ("continuation", {"text", "choices", "label"}),
    ],
)
def test_world_tasks_have_the_shape_of_all_tasks(name: str, columns: set[str]) -> None:
    rows = data.task(f"world/{name}", n=4, seed=1)
    assert set(rows.column_names) == columns and len(rows) == 4
    assert rows[:] == data.task(f"world/{name}", n=4, seed=1)[:] != data.task(f"world/{name}", n=4, seed=2)[:]
    if "labels" in columns:
        assert rows.features["labels"].feature.names[0] == "O"
    elif "choices" not in columns:
        assert len(rows.features["label"].names) in (2, 3)


def test_world_documents_and_their_sentences() -> None:
    rows = data.corpus("world", n=3)
    assert len(rows) == 3 and " ".join(rows[0]["sentences"]) == rows[0]["text"]
    assert rows["text"][:] != data.corpus("world", n=3, split="validation")["text"][:]
    with pytest.raises(CourseError):
        data.corpus("world", n=3, split="tset")
    with pytest.raises(CourseError):
        data.task("world/juggling", n=3)
    with pytest.raises(CourseError, match="no rows"):
        data.corpus("world", n=0)
