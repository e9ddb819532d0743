"""Published formats on their real layout, each written here in miniature with words of our own."""

import json
from pathlib import Path
from typing import Any

import pytest

from course_lib import data
from course_lib.data import formats
from course_lib.errors import CourseError, CourseWarning

NLI = ("contradiction", "entailment", "neutral")
PARSES = ("sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse")


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def tabs(*cells: str) -> str:
    return "\t".join(cells)


def nli(label: str, number: int, **more: Any) -> dict[str, Any]:
    """A record of SNLI's or MultiNLI's JSON lines."""
    record = {"annotator_labels": [label], "gold_label": label, "pairID": f"{number}n"}
    record |= {"sentence1": f"A dog runs {number}.", "sentence2": f"A dog moves {number}."}
    return record | dict.fromkeys(PARSES, "( A dog )") | more


def nli_table(*labels: str) -> list[str]:
    """The same as SNLI's and MultiNLI's tables."""
    names = ("gold_label", *PARSES, "sentence1", "sentence2", "promptID", "pairID", "genre")
    lines = [tabs(*names, *(f"label{i}" for i in range(1, 6)))]
    for number, label in enumerate(labels):
        parses = ["( A dog )"] * 4
        texts = [f"A dog runs {number}.", f"A dog moves {number}."]
        lines.append(tabs(label, *parses, *texts, "1", "1n", "travel", label, "", "", "", ""))
    return lines


@pytest.fixture
def multinli(tmp_path: Path) -> Path:
    """The published folder: every split as JSON lines and as a table, with notes beside them."""
    folder = tmp_path / "multinli_1.0"
    for split, labels in (
        ("train", [*NLI, "entailment"]),
        ("dev_matched", ["neutral", "-"]),
        ("dev_mismatched", ["entailment", "contradiction", "-", "neutral"]),
    ):
        records = (nli(label, i, genre="travel", promptID="1") for i, label in enumerate(labels))
        write(folder / f"multinli_1.0_{split}.jsonl", *map(json.dumps, records))
        write(folder / f"multinli_1.0_{split}.txt", *nli_table(*labels))
    write(folder / "README.txt", "MultiNLI")
    (folder / "Icon\r").write_bytes(b"")
    (folder / "paper.pdf").write_bytes(b"%PDF")
    return folder


def test_the_folder_of_multinli(multinli: Path) -> None:
    train = data.task(multinli)
    assert train.features["label"].names == list(NLI) and len(train) == 4
    assert train[0] == {"text": "A dog runs 0.", "pair": "A dog moves 0.", "label": 0}
    for split, left_out, count in (("dev_matched", "1 of 2", 1), ("dev_mismatched", "1 of 4", 3)):
        with pytest.warns(CourseWarning, match=f"{left_out} rows have no label, and are left out"):
            rows = data.task(multinli, split=split)
        assert len(rows) == count and rows.features["label"].names == list(NLI)
    with pytest.raises(CourseError, match=r'several files .* split="dev_matched"'):
        data.task(multinli, split="validation")


def test_a_table_of_multinli(multinli: Path) -> None:
    for path in multinli.glob("*.jsonl"):
        path.unlink()
    assert data.task(multinli)["label"][:] == [0, 1, 2, 1]
    with pytest.warns(CourseWarning, match="1 of 2 rows have no label"):
        assert data.task(multinli, split="dev_matched")["label"][:] == [2]
    # the annotators that there are not may be cut off
    table = multinli / "multinli_1.0_train.txt"
    table.write_text("\n".join(line.rstrip("\t") for line in table.read_text().split("\n")))
    assert data.task(multinli)["label"][:] == [0, 1, 2, 1]


def test_snli_in_glue_has_rows_that_are_longer_than_the_header(tmp_path: Path) -> None:
    names = ("index", "captionID", "pairID", *PARSES, "sentence1", "sentence2", "label1")
    row = ["0", "c", "p", *["( A )"] * 4, "A dog runs.", "A dog moves."]
    one = tabs(*row, "neutral", "neutral")
    five = tabs(*row, "neutral", *["entailment"] * 4, "entailment")
    table = write(tmp_path / "train.tsv", tabs(*names, "gold_label"), one, five)
    rows = data.task(table)
    assert [rows.features["label"].names[label] for label in rows["label"]] == [
        "neutral",
        "entailment",
    ]
    write(table, tabs(*names, "gold_label"), tabs(*row))
    with pytest.raises(CourseError, match=r"train\.tsv, line 2: expected 11 columns but found 9"):
        data.task(table)


def test_qqp_has_broken_lines(tmp_path: Path) -> None:
    header = tabs("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
    good = tabs("1", "2", "3", "How warm is it?", "Is it warm?", "1")
    write(tmp_path / "train.tsv", header, good, tabs("2", "3", "How"), "warm?\t0", good)
    with pytest.warns(CourseWarning, match="2 of 4 lines are broken, as published"):
        assert len(data.task(tmp_path)) == 2


def test_cola_has_no_header(tmp_path: Path) -> None:
    rows = ("gj04\t1\t\tShe ran.", "bc01\t0\t*\tRan she.")
    wanted = [{"text": "She ran.", "label": 1}, {"text": "Ran she.", "label": 0}]
    write(tmp_path / "CoLA" / "train.tsv", *rows)
    write(tmp_path / "CoLA" / "dev.tsv", *rows)
    write(tmp_path / "CoLA" / "test.tsv", "index\tsentence", "0\tShe ran.")
    write(tmp_path / "raw" / "in_domain_train.tsv", *rows)
    assert list(data.task(tmp_path / "CoLA")) == wanted == list(data.task(tmp_path / "raw"))
    assert data.held_out(tmp_path / "CoLA") == "validation"
    # elsewhere the same table is not known
    with pytest.raises(CourseError, match="for instance --columns text=3,label="):
        data.task(write(tmp_path / "mine.tsv", *rows))


def test_the_sts_benchmark(tmp_path: Path) -> None:
    row = tabs("main-news", "headlines", "2015", "1", "3", "A dog; a cat, runs.", "A dog runs.")
    write(tmp_path / "sts-train.csv", row, tabs(row, "here", "there"))
    assert data.task(tmp_path)["label"][:] == [3.0, 3.0]
    glue = write(
        tmp_path / "STS-B" / "train.tsv",
        tabs("index", "genre", "filename", "year", "old_index", "source1", "source2")
        + tabs("", "sentence1", "sentence2", "score"),
        tabs("0", "main", "f", "2012", "1", "none", "none", "A dog runs.", "A dog moves.", "5.000"),
    )
    assert data.task(glue)[0] == {"text": "A dog runs.", "pair": "A dog moves.", "label": 5.0}


def test_ag_news_has_no_header(tmp_path: Path) -> None:
    write(tmp_path / "ag_news_csv" / "train.csv", '"3","Rain","It ""rained"""', '"1","","Sun"')
    rows = data.task(tmp_path / "ag_news_csv")
    assert rows["text"][:] == ['Rain It "rained"', "Sun"] and rows.features["label"].names == [
        "1",
        "3",
    ]


def test_conll_2003(tmp_path: Path) -> None:
    lines = ("-DOCSTART- -X- O O", "", "Ann NNP I-NP I-PER", "ran VBD I-VP O", "")
    for name in ("train", "valid", "test"):
        write(tmp_path / "deepai" / f"{name}.txt", *lines)
    for name in ("testa", "testb"):
        write(tmp_path / "original" / f"eng.{name}", *lines)
    for folder, split in (("deepai", "train"), ("deepai", "validation"), ("original", "test")):
        rows = data.task(tmp_path / folder, split=split)
        assert rows["tokens"][:] == [["Ann", "ran"]]
        assert rows.features["labels"].feature.names == ["O", "I-PER"]


def test_comments_in_conll(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.conll",
        "# id 7c\tdomain=en",
        "# _ _ O",
        "Bonn _ _ B-LOC",
        "",
        "# id 8d\tdomain=en",
        "#tag _ _ O",
        "",
        "New\N{NO-BREAK SPACE}York _ _ B-LOC",
    )
    rows = data.task(file)
    assert rows["tokens"][:] == [["#", "Bonn"], ["#tag"], ["New\N{NO-BREAK SPACE}York"]]


def test_a_label_of_minus_one_is_asked_for(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.jsonl",
        *(json.dumps({"text": f"Text {i}.", "label": i % 3 - 1}) for i in range(9)),
    )
    with pytest.raises(CourseError, match=r"some labels are '-1'.*no_label=-1"):
        data.task(file)
    with pytest.warns(CourseWarning, match="3 of 9 rows have no label"):
        assert data.task(file, columns={"no_label": "-1"}).features["label"].names == ["0", "1"]
    kept = data.task(file, columns={"text": "text", "label": "label", "class": "-1"})
    assert kept.features["label"].names == ["-1", "0", "1"]


def test_rows_without_label_are_counted(tmp_path: Path) -> None:
    rows = [
        {"text": "A.", "label": "x"},
        {"text": "B.", "label": ""},
        {"text": "C.", "label": None},
    ]
    file = write(tmp_path / "a.jsonl", *map(json.dumps, rows))
    with pytest.warns(CourseWarning, match=r"a\.jsonl: 2 of 3 rows have no label"):
        assert data.task(file)["text"][:] == ["A."]


def test_a_header_that_may_be_a_row_is_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path / "spam.csv", "v1,v2,,", *["ham,See you.,,", "spam,Win!,,"] * 2)
    with pytest.raises(CourseError, match=r"text=v2,label=v1 .* if the first line is a header"):
        data.task(file)
    numbers = {"text": 1, "label": 0}
    with pytest.raises(CourseError, match="no other line has the label 'v1' of the first line"):
        data.task(file, columns=numbers)
    assert data.task(file, columns=numbers | {"header": "yes"}).features["label"].names == [
        "ham",
        "spam",
    ]
    assert len(data.task(file, columns=numbers | {"header": "no"})) == 5
    assert len(data.task(file, columns={"text": "v2", "label": "v1"})) == 4


def test_whole_numbers_are_scores_if_the_user_says_so(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "one,two,grade", "A.,B.,3", "C.,D.,5")
    columns = {"text": "one", "pair": "two", "label": "grade"}
    assert data.task(file, columns=columns).features["label"].names == ["3", "5"]
    assert data.task(file, columns=columns | {"scores": "yes"})["label"][:] == [3.0, 5.0]


def test_rows_to_predict_need_no_labels(tmp_path: Path) -> None:
    lines = tmp_path / "a.txt"
    lines.write_bytes("\ufeffA\u2028line.\r\nA\u0085second.\n\nA third.".encode())
    wanted = ["A\u2028line.", "A\u0085second.", "A third."]
    assert [row["text"] for row in data.unlabelled(lines)] == wanted
    table = write(tmp_path / "test.tsv", "index\tsentence", "0\tA.")
    assert data.unlabelled(table) == [{"text": "A."}]
    mine = write(tmp_path / "mine.csv", "review,stars", "A.,")
    assert data.unlabelled(mine, columns={"text": "review"}) == [{"text": "A."}]
    with pytest.raises(CourseError, match="the columns are not known"):
        data.unlabelled(mine)


def test_what_save_to_disk_wrote_is_read(tmp_path: Path) -> None:
    from datasets import Dataset, DatasetDict

    rows = Dataset.from_list([{"text": "A.", "label": "x"}, {"text": "B.", "label": "y"}])
    rows.save_to_disk(tmp_path / "one")
    DatasetDict({"train": rows, "dev": rows}).save_to_disk(tmp_path / "several")
    for source in ("one", "several", "several/train"):
        assert data.task(tmp_path / source)["text"][:] == ["A.", "B."]
    assert data.corpus(tmp_path / "several", split="validation", column="label")["text"][:] == [
        "x",
        "y",
    ]
    with pytest.raises(CourseError, match="has no split 'test'; it has train, dev"):
        data.task(tmp_path / "several", split="test")


@pytest.mark.parametrize("format", formats.FORMATS, ids=lambda format: format.name)
def test_a_format_is_known_by_its_columns(format: formats.Format) -> None:
    made = {"text", "choices"} if format.prepare is not dict else set()
    names = {*format.columns.values(), *format.further} - made
    found = formats.of_columns(dict.fromkeys(names))
    assert found is not None and found.columns == format.columns
