"""corpus() and task(): one shape, whichever door; a clear sentence where there is nothing to give."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from course_lib import CourseError, data
from course_lib.data import build, docs, folders
from course_lib.inputs import kind_of

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
    with pytest.raises(CourseError, match=r"test\.tsv, line 2: the label '7' of 'fourth film' is not among 0, 1"):
        data.task(folder, split="test")
    named = data.task(folder, split="test", labels=["0", "1", "7"])
    assert named[0]["label"] == 2
    with pytest.raises(CourseError, match=r"train\.tsv, line 2: the label '0'"):
        data.task(folder, labels=["good", "bad"])


def test_scores_stay_numbers(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("A.,B.,2.5\nC.,D.,0\n")
    scores = data.task(tmp_path)
    assert scores.column_names == ["text", "pair", "label"] and scores["label"][:] == [2.5, 0.0]
    (tmp_path / "train.csv").write_text("A.,B.,2\nC.,D.,0\n")
    assert data.task(tmp_path, labels=[])["label"][:] == [2.0, 0.0]
    (tmp_path / "dev.csv").write_text("A.,B.,much\n")
    with pytest.raises(CourseError, match=r"dev\.csv, line 1: the label 'much' of 'A\.' is not a number"):
        data.task(tmp_path, split="validation", labels=[])


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
def test_unknown_sources(door: Callable[..., object], tmp_path: Path) -> None:
    with pytest.raises(CourseError, match='a source is "world", "docs", "hub:NAME" or a path that exists'):
        door(tmp_path / "nowhere")
    with pytest.raises(CourseError, match="no file for the train split; its files: none of a known format"):
        door(tmp_path)
    with pytest.raises(CourseError, match="no format 'tables'; choose one of text, table, json"):
        door(tmp_path, format="tables")
    (tmp_path / "BLiMP.zip").write_bytes(b"PK")
    with pytest.raises(CourseError, match=r"no data files but BLiMP\.zip; unpack that first"):
        door(tmp_path)


def fill(folder: Path, **files: str) -> Path:
    """Files named as keywords are, "_" standing for "."."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content)
    return folder


TABLE, RECORDS = "sentence\tlabel\nfine\t1\n", '{"text": "bad", "label": 0}\n'


def test_a_folders_format_is_told_by_its_files(tmp_path: Path) -> None:
    story = fill(tmp_path / "stories", a_story="A.\n@highlight\nB\n", b_story="C.\n@highlight\nD\n")
    assert data.task(story)[:] == {"text": ["A.", "C."], "target": ["B", "D"]}
    assert data.corpus(story)["text"][:] == ["A.", "C."]
    parallel = fill(tmp_path / "parallel", train_en="A.\n", train_de="B.\n", val_en="C.\n", val_de="D.\n")
    assert data.task(parallel)[:] == {"text": ["A."], "target": ["B."]}
    assert data.task(parallel, split="validation", columns={"text": "de"})[0] == {"text": "D.", "target": "C."}
    assert data.task(parallel / "train")[:] == data.task(parallel / "train.de")[:] == data.task(parallel)[:]
    assert data.corpus(parallel / "train.de")["text"][:] == ["B."]
    records = fill(tmp_path / "records", train_jsonl=RECORDS, README_md="# a", SOURCE_txt="b")
    assert data.task(records)[0] == {"text": "bad", "label": 0} and data.corpus(records)["text"][:] == ["bad"]
    pairs = fill(tmp_path / "pairs", words_txt="car\tbus\t3.5\nsun\tday\t2\n")
    assert data.task(pairs / "words.txt")["label"][:] == [3.5, 2.0]


def test_ambiguous_folders_get_one_sentence(tmp_path: Path) -> None:
    mixed = fill(tmp_path / "mixed", train_tsv=TABLE, train_jsonl=RECORDS)
    with pytest.raises(CourseError, match=r"several formats, train\.jsonl \(json\), train\.tsv \(table\); give"):
        data.task(mixed)
    assert data.task(mixed, format="table")["text"][:] == ["fine"]
    assert data.task(mixed, format="json")["text"][:] == ["bad"]
    nameless = fill(tmp_path / "nameless", a_tsv=TABLE, b_tsv=TABLE)
    with pytest.raises(CourseError, match=r"2 table files, and no name says which is for training \(a\.tsv, b\.tsv\)"):
        data.task(nameless)
    assert len(data.task(nameless, split="b")) == 1
    outer = tmp_path / "outer"
    fill(outer / "raw", train_tsv=TABLE)
    fill(outer / "tokenized", train_tsv=TABLE)
    with pytest.raises(CourseError, match="it has the folders raw, tokenized, one of which may be meant"):
        data.task(outer)
    with pytest.raises(CourseError, match=r"its format cannot be told .* say format=, one of text"):
        data.task(fill(tmp_path / "odd", a_annotated="x") / "a.annotated")


def test_doors_say_which_is_meant(tmp_path: Path) -> None:
    tags = fill(tmp_path / "tags", train_conll="Ann\tB-PER\n")
    with pytest.raises(CourseError, match=r"examples of a task \(conll\); read them by data\.task"):
        data.corpus(tags)
    texts = fill(tmp_path / "texts", train_txt="One.")
    with pytest.raises(CourseError, match=r"plain text and no labels; read it by data\.corpus"):
        data.task(texts)


def test_folders_may_stand_for_splits(tmp_path: Path) -> None:
    fill(tmp_path / "train", a_txt="One.", b_txt="Two.")
    fill(tmp_path / "valid", a_txt="Three.")
    assert data.corpus(tmp_path)["text"][:] == ["One.", "Two."]
    assert data.corpus(tmp_path, split="validation")["text"][:] == ["Three."]
    with pytest.raises(CourseError, match="no file for the test split"):
        data.corpus(tmp_path, split="test")


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("wnut17train.conll", "train"), ("emerging.dev.conll", "validation"), ("msr-para-val.tsv", "validation"),
        ("in_domain_train.tsv", "train"), ("Trainset.csv", "train"), ("test_2016_flickr", "test"),
        ("contest.txt", None), ("devices.txt", None), ("retrained.txt", None), ("valley.txt", None),
    ],
)  # fmt: skip
def test_only_whole_words_say_a_split(name: str, split: str | None) -> None:
    assert folders.split_of(name) == split


def test_questions_and_treebanks_through_the_door(tmp_path: Path) -> None:
    fields = ["1", "Go", "go", "VERB", "VB", "_", "0", "root", "_", "_"]
    fill(tmp_path / "ud", train_conllu="\t".join(fields) + "\n")
    tree = data.task(tmp_path / "ud")
    assert tree[0]["heads"] == [0] and tree[0]["deprels"] == ["root"]
    assert tree.features["labels"].feature.names == ["VERB"]
    answers = [{"text": "Bonn", "answer_start": 3}]
    questions = [{"id": "a", "question": "Where?", "answers": answers}, {"id": "b", "question": "Who?", "answers": []}]
    questions[1]["is_impossible"] = True
    squad = {"data": [{"title": "T", "paragraphs": [{"context": "In Bonn.", "qas": questions}]}]}
    (tmp_path / "train-v2.0.json").write_text(json.dumps(squad))
    rows = data.task(tmp_path / "train-v2.0.json")
    assert rows["start"][:] == [3, -1] and rows["answers"][:] == [["Bonn"], []]
    assert kind_of(rows.column_names) == "span"


def test_streams_read_no_more_than_they_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "big.jsonl"
    file.write_text('{"text": "good", "label": 1}\n' * 3000 + "broken\n")
    stream = data.task(file, streaming=True, labels=["0", "1"])
    assert next(iter(stream)) == {"text": "good", "label": 1}
    assert stream.features["label"].names == ["0", "1"]
    texts = data.corpus(file, streaming=True, n=3)
    assert [row["text"] for row in texts] == ["good"] * 3
    with pytest.raises(CourseError, match=r"big\.jsonl, line 3001, column 1: not valid JSON"):
        list(data.corpus(file, streaming=True))
    with pytest.raises(CourseError, match="line 3001"):
        data.corpus(file)
    town = data.corpus("world", n=2, streaming=True)
    assert [row["text"] for row in town] == data.corpus("world", n=2)["text"][:]


def test_large_files_are_memory_mapped(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import datasets

    small = data.task(folder)
    assert small.cache_files == []
    monkeypatch.setattr(build, "IN_MEMORY", 10)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    large = data.task(folder)
    assert large.cache_files and large.features == small.features and large[:] == small[:]
    again = data.task(folder)
    assert again.cache_files == large.cache_files
    (folder / "train.tsv").write_text("sentence\tlabel\nanother\t1\nlast\t0\n")
    assert data.task(folder)["text"][:] == ["another", "last"]  # a file that changed is read anew
    (folder / "train.tsv").write_text("sentence\tlabel\nanother\t1\nlast\n")
    with pytest.raises(CourseError, match=r"train\.tsv, line 3: expected 2 columns"):
        data.task(folder, labels=["0", "1"])


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
