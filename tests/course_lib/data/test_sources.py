"""corpus() and task() of files: published formats, each written here in miniature; what is wrong in
one is one sentence that says where."""

import bz2
import gzip
import hashlib
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from course_lib import CourseError, data
from course_lib.data import folders, sources, text_files
from course_lib.data.inputs import kind_of

# Files in published formats and what is read of them, or said of what is wrong in them.
CASES = json.loads((Path(__file__).parent / "files.json").read_text())
TABLE, RECORDS = "sentence\tlabel\nfine\t1\n", '{"text": "bad", "label": 0}\n'


def write(path: Path, content: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(content.encode(encoding))
    return path


def fill(folder: Path, **files: str) -> Path:
    """Files named as keywords are, "_" standing for "." and "__" for "-"."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", "-").replace("_", ".")).write_text(content)
    return folder


def rows(path: Path, **how: Any) -> list[dict[str, Any]]:
    """A task's rows, labels by their names."""
    made = data.task(path, **how)
    names = getattr(made.features.get("label"), "names", None)
    return [row | {"label": names[row["label"]]} if names else row for row in made]


def texts(path: Path, **how: Any) -> list[str]:
    return list(data.corpus(path, **how)["text"])


def test_text_files_are_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = texts(write(tmp_path / "wiki.train.tokens", CASES["wikitext"]))
    assert (
        first.split("\n")[0].strip() == "= First lobster ="
        and second.split("\n")[0].strip() == "= Second ="
    )
    assert "= = Life = =" in first and "= 1 =" in first and first.endswith("= 1 =")
    book = (
        "\ufeffAn eBook\r\n*** START OF EBOOK A ***\r\nOne.\r\n\r\nTwo.\r\n*** END OF EBOOK A"
        " ***\r\nlaw"
    )
    assert texts(write(tmp_path / "a.txt", book)) == ["One.\n\nTwo."]
    monkeypatch.setattr(text_files, "MAX_DOCUMENT", 50)
    paragraphs = [f"Paragraph {i} of a book\nthat goes on." for i in range(9)]
    pieces = texts(write(tmp_path / "a.txt", "\n\n".join(paragraphs)))
    assert len(pieces) > 3 and "\n\n".join(pieces) == "\n\n".join(paragraphs)


@pytest.mark.parametrize("between", ["\n\n", "\n", ". ", " ", ""])
def test_a_text_without_documents_is_cut(tmp_path: Path, between: str) -> None:
    whole = between.join(f"part{i}" + "x" * (i % 90) for i in range(450))
    found = texts(book := write(tmp_path / "a.txt", whole))
    assert 40 < len(found) < 90 and max(map(len, found)) <= 600
    assert "".join("".join(found).split()) == "".join(whole.split()), "something was lost"
    assert len(list(data.corpus(book, streaming=True, n=3))) == 3 and not data.has_labels(book)
    lines = "".join(json.dumps({"text": "word " * 200}) + "\n" for _ in range(40))
    assert len(texts(write(tmp_path / "b.jsonl", lines))) == 40, "documents stay"
    assert [
        data.has_labels(name) for name in ("world", "docs", "world/nli", tmp_path / "b.jsonl")
    ] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)]
)
def test_packed_files_are_unpacked(tmp_path: Path, ending: str, pack: Any) -> None:
    packed = tmp_path / f"a.txt{ending}"
    packed.write_bytes(pack(b"One.\nTwo.\n"))
    assert texts(packed) == ["One.\nTwo."]
    packed.write_bytes(pack(b"One.\n" * 9)[:-9])
    with pytest.raises(CourseError, match=rf"a\.txt{ending} cannot be read, or is damaged"):
        texts(packed)


@pytest.mark.parametrize(("name", "content", "wanted"), CASES["tables"])
def test_tables(tmp_path: Path, name: str, content: str, wanted: list[list[Any]]) -> None:
    names = ("text", "label") if len(wanted[0]) == 2 else ("text", "pair", "label")
    found = rows(write(tmp_path / name, content))
    assert [[row[name] for name in names] for row in found] == wanted and all(
        set(row) == set(names) for row in found
    )


def test_columns_can_be_named(tmp_path: Path) -> None:
    table = write(tmp_path / "x.tsv", "id\tidea\tmood\n7\thello\tglad\n")
    lines = write(tmp_path / "a.jsonl", '{"idea": "hello", "mood": "glad", "n": 1}\n')
    for file in (table, lines):
        assert rows(file, columns={"text": "idea", "label": "mood"}) == [
            {"text": "hello", "label": "glad"}
        ]
        assert texts(file, column="idea") == ["hello"]
    assert rows(table, columns={"text": 1, "label": 2})[1:] == [{"text": "hello", "label": "glad"}]
    swapped = rows(
        write(tmp_path / "a.tsv", "A dog runs.\tEin Hund rennt.\n"),
        columns={"text": 1, "target": 0},
    )
    assert swapped == [{"text": "Ein Hund rennt.", "target": "A dog runs."}]
    entities = write(tmp_path / "a.conll", "Ann NNP B-PER\nran VBD O\n")
    tags = data.task(entities, columns={"tokens": 0, "labels": 1})
    assert tags.features["labels"].feature.names == ["NNP", "VBD"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"text": "nope", "label": "mood"},
            r"there is no column 'nope'; the columns are id, idea, mood\.",
        ),
        (
            {"text": 5, "label": 2},
            "there is no column 5; the columns are id, idea, mood, numbered from 0",
        ),
        ({"text": "idea"}, "say where both the text and its label"),
        (
            None,
            (
                r"the columns are not known\. It begins: id \| idea \| mood / 7 \| hello \| glad\."
                " Say which is which, for instance --columns text=idea,label="
            ),
        ),
    ],
)
def test_wrong_columns_are_said_for_python_and_the_command(
    tmp_path: Path, columns: Any, message: str
) -> None:
    file = write(tmp_path / "x.jsonl", '{"id": 7, "idea": "hello", "mood": "glad"}\n')
    with pytest.raises(CourseError, match=rf"x\.jsonl, line 1: {message}"):
        data.task(file, columns=columns)
    with pytest.raises(
        CourseError,
        match=r"which column is the text is not known; the columns are id, .* --column NAME",
    ):
        data.corpus(file)


def test_column_files(tmp_path: Path) -> None:
    content = (
        "-DOCSTART- -X- O O\n\nAnn NNP O B-PER\nran VBD O O\n\n\nIn IN O O\nBonn NNP O B-LOC\n"
    )
    tags = data.task(write(tmp_path / "train.conll", content))
    assert tags.features["labels"].feature.names == ["O", "B-LOC", "B-PER"]
    assert tags["tokens"][:] == [["Ann", "ran"], ["In", "Bonn"]] and tags["labels"][:] == [
        [2, 0],
        [0, 1],
    ]
    tabs = data.task(write(tmp_path / "dev.conll", "#tag\tO\nNew York\tB-LOC\n"))
    assert tabs[0]["tokens"] == ["#tag", "New York"]


def conllu(*words: str) -> str:
    """Words "id form upos head deprel" as lines of ten fields."""
    lines = []
    for word in words:
        number, form, upos, head, deprel = word.split()
        lines.append(
            "\t".join([number, form, form.lower(), upos, upos[:2], "_", head, deprel, "_", "_"])
        )
    return "\n".join(lines) + "\n"


def test_treebanks(tmp_path: Path) -> None:
    content = (
        "# sent_id = 1\n# text = Don't go.\n"
        + conllu(
            "1-2 Don't _ _ _",
            "1 Do AUX 3 aux",
            "2 n't PART 3 advmod",
            "2.1 you PRON _ _",
            "3 go VERB 0 root",
        )
        + conllu("4 . PUNCT 3 punct")
        + "\n\n# sent_id = 2\n"
        + conllu("1 Yes INTJ _ _")
    )
    tree = data.task(write(tmp_path / "a.conllu", content))
    first, second = tree
    words = {
        "text": "Don't go.",
        "tokens": ["Do", "n't", "go", "."],
        "upos": ["AUX", "PART", "VERB", "PUNCT"],
    }
    tree_of = {
        "labels": [0, 2, 4, 3],
        "heads": [3, 3, 0, 3],
        "deprels": ["aux", "advmod", "root", "punct"],
    }
    assert first == words | tree_of
    assert tree.features["labels"].feature.names == ["AUX", "INTJ", "PART", "PUNCT", "VERB"]
    assert second["text"] == "Yes" and second["heads"] == [-1]


def squad(*questions: dict[str, Any], context: str = "Ann lives in Bonn. Bonn is old.") -> str:
    asked = [{"id": f"q{i}", "question": "Where?", **q} for i, q in enumerate(questions)]
    return json.dumps(
        {
            "version": "v2",
            "data": [{"title": "Ann", "paragraphs": [{"context": context, "qas": asked}]}],
        }
    )


def test_questions_with_and_without_an_answer(tmp_path: Path) -> None:
    both = [{"text": "Bonn", "answer_start": 13}, {"text": "in Bonn", "answer_start": 10}]
    content = squad(
        {"answers": both}, {"answers": [], "is_impossible": True, "plausible_answers": both}
    )
    made = data.task(write(tmp_path / "a.json", content))
    assert kind_of(made.column_names) == "span"
    first, second = made
    asked = {
        "id": "q0",
        "title": "Ann",
        "text": "Where?",
        "pair": "Ann lives in Bonn. Bonn is old.",
    }
    assert first == asked | {"answer": "Bonn", "start": 13, "answers": ["Bonn", "in Bonn"]}
    assert (second["answer"], second["start"], second["answers"]) == ("", -1, [])


@pytest.mark.parametrize(("record", "wanted"), CASES["records"])
def test_records(tmp_path: Path, record: dict[str, Any], wanted: dict[str, Any]) -> None:
    lines = f"{json.dumps(record)}\n"
    for file, content in (
        ("a.jsonl", lines),
        ("b.json", lines),
        ("c.json", json.dumps([record], indent=1)),
    ):
        assert rows(write(tmp_path / file, content)) == [wanted], file


def test_parallel_files(tmp_path: Path) -> None:
    write(tmp_path / "train.en", "A dog.\n\nTwo cats.\n")
    (tmp_path / "train.de.gz").write_bytes(gzip.compress(b"Ein Hund.\n\nZwei Katzen.\n"))
    wanted = [
        {"text": "A dog.", "target": "Ein Hund."},
        {"text": "Two cats.", "target": "Zwei Katzen."},
    ]
    for source in (tmp_path, tmp_path / "train", tmp_path / "train.en"):
        assert rows(source) == wanted
    assert texts(tmp_path / "train.en") == ["A dog.\n\nTwo cats."]
    german = {"text": "de", "target": "en"}
    assert rows(tmp_path, columns=german)[0] == {"text": "Ein Hund.", "target": "A dog."}
    write(tmp_path / "train.fr", "Un chien.\n\nDeux chats.\nTrois.\n")
    assert rows(tmp_path, columns=german)[0] == {"text": "Ein Hund.", "target": "A dog."}
    with pytest.raises(
        CourseError, match=r"It begins: de \| en \| fr .*for instance --columns text=de,target=en"
    ):
        data.task(tmp_path)
    with pytest.raises(
        CourseError, match=r"train\.en, line 4: it has nothing here, but its translation goes on"
    ):
        data.task(tmp_path, columns={"text": "en", "target": "fr"})


def test_stories(tmp_path: Path) -> None:
    story = "It rained.\n\nIt stopped.\n\n@highlight\n\nRain fell\n\n@highlight\n\nthen sun"
    fill(tmp_path, a_story=story, b_story="C.\n@highlight\nD\n")
    assert rows(tmp_path / "a.story") == [
        {"text": "It rained.\nIt stopped.", "target": "Rain fell\nthen sun"}
    ]
    assert len(rows(tmp_path)) == 2 and texts(tmp_path)[1] == "C."


@pytest.mark.parametrize(("name", "content", "message"), CASES["wrong"])
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    with pytest.raises(CourseError, match=rf"{name}.*{message}") as error:
        rows(write(tmp_path / name, content))
    assert "\n" not in str(error.value)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(
        CourseError, match=r"latin\.txt, line 2: not UTF-8 text \(its byte 3 is 0xe9, 'é' in W"
    ):
        texts(write(tmp_path / "latin.txt", "One\nCafé", "latin-1"))
    with pytest.raises(CourseError, match="There are no rows"):
        texts(write(tmp_path / "b.txt", "*** START OF A ***\n*** END OF A ***\n"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table = "sentence\tlabel\n" + "".join(f"film {i}\t{i % 2}\n" for i in range(50))
    fill(tmp_path, train_tsv=table, test_tsv="sentence\tlabel\nfourth film\t7\n")
    write(tmp_path / "dev_matched.tsv", "sentence\tlabel\nother film\t1\n")
    write(tmp_path / "dev_mismatched.tsv", "sentence\tlabel\nthird film\t0\n")
    return tmp_path


def test_a_folder_of_tables(folder: Path) -> None:
    train = data.task(folder)
    assert train.column_names == ["text", "label"] and train.features["label"].names == ["0", "1"]
    assert (len(train), train[3]) == (50, {"text": "film 3", "label": 1})
    with pytest.raises(
        CourseError, match=r'several files for .* split="dev_matched", in a command'
    ):
        data.task(folder, split="validation")
    assert data.task(folder, split="dev_matched")["text"][:] == ["other film"]
    assert data.task(folder, split="dev_mismatched")["text"][:] == ["third film"]
    assert data.task(folder / "train.tsv").features == train.features
    draws = [data.task(folder, n=10, seed=seed)["text"][:] for seed in (0, 0, 1)]
    assert (
        draws[0] == draws[1] != draws[2]
        and len(set(draws[0])) == 10
        and len(data.task(folder, n=80)) == 50
    )
    with pytest.raises(CourseError, match="at least one row"):
        data.task(folder, n=0)
    with pytest.raises(
        CourseError, match=r"test\.tsv, line 2: the label '7' of 'fourth film' is not among 0, 1"
    ):
        data.task(folder, split="test")
    scores = fill(
        folder / "scores", train_csv="A dog.,A cat.,2.5\nA man.,A boy.,0\n", dev_csv="A.,B.,much\n"
    )
    graded = {"text": 0, "pair": 1, "label": 2}
    with pytest.raises(CourseError, match="for instance --columns text=0,pair=1,label=2"):
        data.task(scores)
    assert data.task(scores, columns=graded)["label"][:] == [2.5, 0.0]
    with pytest.raises(
        CourseError, match=r"dev\.csv, line 1: the label 'much' of 'A\.' is not a number"
    ):
        data.task(scores, split="validation", columns=graded)


@pytest.mark.parametrize("door", [data.corpus, data.task])
def test_unknown_sources(door: Callable[..., object], tmp_path: Path) -> None:
    with pytest.raises(
        CourseError,
        match='a source is "text", "docs", "hub:NAME", a path that exists, or a name that',
    ):
        door(tmp_path / "nowhere")
    with pytest.raises(CourseError, match="no file of a known format for the train split"):
        door(tmp_path)
    with pytest.raises(
        CourseError, match=r"its name does not tell its format; give it one of the endings \.txt"
    ):
        door(fill(tmp_path, a_annotated="x") / "a.annotated")


def test_a_folders_format_and_splits_are_told_by_its_files(tmp_path: Path) -> None:
    named_so = tmp_path / "folders"
    fill(named_so / "train", a_txt="One.", b_txt="Two.")
    fill(named_so / "valid", a_txt="Three.")
    assert texts(named_so) == ["One.", "Two."] and texts(named_so, split="validation") == ["Three."]
    records = fill(tmp_path / "records", train_jsonl=RECORDS, README_md="# a", SOURCE_txt="b")
    assert data.task(records)[0] == {"text": "bad", "label": 0} and texts(records) == ["bad"]
    tables = fill(
        tmp_path / "words", train_txt=TABLE + "bad\t0\n", dev_txt=TABLE, notes_md="# Notes"
    )
    assert (
        data.task(tables)[:]
        == data.task(tables / "train.txt")[:]
        == {
            "text": ["fine", "bad"],
            "label": [1, 0],
        }
    )
    mrpc = fill(
        tmp_path / "mrpc",
        train_tsv=TABLE,
        dev_tsv=TABLE,
        dev__ids_tsv="1\t2\n",
        msr__train_txt=TABLE,
    )
    assert len(data.task(mrpc, split="validation")) == 1


def test_what_a_folder_does_not_say_is_one_sentence(tmp_path: Path) -> None:
    mixed = fill(tmp_path / "mixed", train_tsv=TABLE, train_jsonl=RECORDS)
    nameless = fill(tmp_path / "nameless", a_tsv=TABLE, b_tsv=TABLE)
    fill(tmp_path / "outer" / "raw", train_tsv=TABLE)
    fill(tmp_path / "outer" / "tokenized", train_tsv=TABLE)
    tags, plain = (
        fill(tmp_path / "tags", train_conll="A\tB\n"),
        fill(tmp_path / "plain", train_txt="One."),
    )
    for door, source, split, message in (
        (
            data.task,
            mixed,
            "train",
            r"several formats, train\.tsv \(table\), train\.jsonl \(json\); give the path",
        ),
        (
            data.task,
            nameless,
            "train",
            r"2 table files, and no name says which is for training \(a\.tsv, b\.tsv\)",
        ),
        (
            data.task,
            tmp_path / "outer",
            "train",
            "it has the folders raw, tokenized, one of which may be meant",
        ),
        (
            data.corpus,
            tags,
            "train",
            "which column is the text is not known; the columns are tokens, labels",
        ),
        (
            data.task,
            plain,
            "train",
            "train.txt, line 1: there are no labels; it has the columns text",
        ),
        (data.corpus, plain, "test", "has no file for the test split; its files: train.txt"),
        (
            data.task,
            nameless / "a.tsv",
            "test",
            'it has no test split; .*split="train", in a command --test train',
        ),
    ):
        with pytest.raises(CourseError, match=message):
            door(source, split=split)  # type: ignore[operator]
    assert len(data.task(nameless, split="b")) == 1


UNLABELLED = "index\tsentence\n0\tfourth film\n"


@pytest.mark.parametrize(
    ("dev", "test", "split"), [(TABLE, UNLABELLED, "validation"), (TABLE, TABLE, "test")]
)
def test_the_split_to_score_on_is_the_labelled_one(
    tmp_path: Path, dev: str, test: str, split: str
) -> None:
    folder = fill(tmp_path, train_tsv=TABLE, dev_tsv=dev, test_tsv=test)
    assert data.held_out(folder) == split
    # of the course, and with a label for each word
    assert data.held_out("world/nli") == data.held_out("tasks/names") == "test"
    (folder / "dev.tsv").unlink()
    if split == "validation":
        with pytest.raises(
            CourseError, match=r"no file for the validation split; its files: test\.tsv, train\.tsv"
        ):
            data.held_out(folder)
    odd = fill(
        tmp_path / "odd", train_tsv="a\tb\nA.\tx\n", dev_tsv="a\tb\nB.\tx\n", test_tsv="a\nC.\n"
    )
    assert data.held_out(odd, columns={"text": "a", "label": "b"}) == "validation"


def test_as_many_classes_as_rows_are_refused(tmp_path: Path) -> None:
    lines = "".join(f"{'abcd'[i % 4]},headline {i},body {i} of the news\n" for i in range(500))
    folder = fill(tmp_path, train_csv="Topic,Headline,Lead\n" + lines)
    with pytest.raises(
        CourseError, match="its labels are 500 different ones in 500 rows; if another column"
    ):
        data.task(folder, columns={"text": "Lead", "label": "Headline"})
    assert (
        len(data.task(folder, columns={"text": "Lead", "label": "Topic"}).features["label"].names)
        == 4
    )


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("wnut17train.conll", "train"),
        ("emerging.dev.conll", "validation"),
        ("msr-para-val.tsv", "validation"),
        ("in_domain_train.tsv", "train"),
        ("Trainset.csv", "train"),
        ("test_2016_flickr", "test"),
        ("contest.txt", None),
        ("devices.txt", None),
        ("retrained.txt", None),
        ("valley.txt", None),
    ],
)
def test_only_whole_words_say_a_split(name: str, split: str | None) -> None:
    assert folders.split_of(name) == split


def test_streams_read_no_more_than_they_are_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path / "big.jsonl", '{"text": "good", "label": 1}\n' * 3000 + "broken\n")
    assert [row["text"] for row in data.corpus(file, streaming=True, n=3)] == ["good"] * 3
    with pytest.raises(CourseError, match=r"big\.jsonl, line 3001, column 1: not valid JSON"):
        list(data.corpus(file, streaming=True))
    town = data.corpus("world", n=2, streaming=True)
    assert [row["text"] for row in town] == data.corpus("world", n=2)["text"][:]


def test_docs_come_with_the_course_and_name_whose_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    found = {
        split: data.corpus("docs", split=split)["text"][:]
        for split in ("train", "validation", "test")
    }
    assert [len(rows) for rows in found.values()] == [3000, 200, 200]
    about = (sources.SHIPPED["docs"] / "README.md").read_text("utf-8")
    with lzma.open(sources.SHIPPED["docs"] / "train.jsonl.xz", "rt", encoding="utf-8") as file:
        packages = {json.loads(line)["name"].split(".")[0] for line in file}
    assert "tqdm" not in packages, "its licence is no permissive one"
    assert all(f"| {name} | " in about for name in packages)
    assert not set(found["train"]) & set(found["test"]) and not list(tmp_path.iterdir())
    drawn = [data.corpus("docs", n=40, seed=seed)["text"][:] for seed in (0, 1)]
    assert drawn[0] == found["train"][:40] != drawn[1]  # in the order that seed 0 draws
    assert (
        hashlib.sha256("".join(found["train"][:400]).encode()).hexdigest()[:16]
        == "3e4695545ebd5c31"
    )
    assert (
        hashlib.sha256("".join(data.corpus("manual")["text"]).encode()).hexdigest()[:16]
        == "37d06970fc926e60"
    )
