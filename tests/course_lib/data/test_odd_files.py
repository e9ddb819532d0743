"""Files as people have them: each is read as it was meant, or one sentence says what to do."""

import csv
import gzip
import io
import json
import os
import warnings
from pathlib import Path
from typing import Any

import datasets
import pandas
import pytest
from datasets import ClassLabel, Features, Value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course_lib import CourseError, data
from course_lib.errors import CourseWarning

HEADER = "text,label\n"
TWO = [("a b", "x"), ("c ü", "y")]
TABLE = "text,label\na b,x\nc ü,y\n"


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(path: Path, **how: Any) -> list[tuple[str, Any]]:
    """(text, label) of each row, classes by their names."""
    made = data.task(path, **how)
    names = getattr(made.features["label"], "names", None)
    return [(row["text"], names[row["label"]] if names else row["label"]) for row in made]


def tagged(path: Path, **how: Any) -> list[list[tuple[str, str]]]:
    """(word, tag) of each word of each sentence."""
    made = data.task(path, **how)
    names = made.features["labels"].feature.names
    return [
        [(word, names[tag]) for word, tag in zip(row["tokens"], row["labels"], strict=True)]
        for row in made
    ]


READ = {
    "UTF-16": ("a.csv", TABLE.encode("utf-16"), TWO),
    "UTF-16, the other order of bytes": ("a.csv", b"\xfe\xff" + TABLE.encode("utf-16-be"), TWO),
    "UTF-32": ("a.csv", TABLE.encode("utf-32"), TWO),
    "Excel's Unicode text": ("a.txt", TABLE.replace(",", "\t").encode("utf-16"), TWO),
    "UTF-16, packed": ("a.csv.gz", gzip.compress(TABLE.encode("utf-16")), TWO),
    "JSON in UTF-16": (
        "a.jsonl",
        "".join(json.dumps({"text": t, "label": n}) + "\n" for t, n in TWO).encode("utf-16"),
        TWO,
    ),
    "doubled quotes between tabs": (
        "a.tsv",
        'text\tlabel\n"He said ""hi"""\tx\nfine\ty\n',
        [('He said "hi"', "x"), ("fine", "y")],
    ),
    "a tab in quotes": ("a.tsv", 'text\tlabel\n"a\tb"\tx\nc\ty\n', [("a\tb", "x"), ("c", "y")]),
    "a line's end in quotes": (
        "a.tsv",
        'text\tlabel\n"a\nb"\tx\nc\ty\n',
        [("a\nb", "x"), ("c", "y")],
    ),
    "all cells in quotes": (
        "a.tsv",
        '"text"\t"label"\n"a"\t"x"\n"c"\t"y"\n',
        [("a", "x"), ("c", "y")],
    ),
    "quotes that are text": (
        "a.tsv",
        'text\tlabel\n"a" b\tx\n"c\ty\n',
        [('"a" b', "x"), ('"c', "y")],
    ),
    "a blank before quotes": ("a.csv", HEADER + 'a, "x"\nb, y\n', [("a", "x"), ("b", "y")]),
    "bars": ("a.csv", "text|label\na, b|x\nc|y\n", [("a, b", "x"), ("c", "y")]),
    "Mac lines": ("a.csv", "text,label\ra,x\rb,y\r", [("a", "x"), ("b", "y")]),
    "marks from -2 to 2": (
        "a.csv",
        HEADER + "a,-2\nb,-1\nc,0\n",
        [("a", "-2"), ("b", "-1"), ("c", "0")],
    ),
    "a small two and minus minus": ("a.csv", HEADER + "a,²\nb,--1\n", [("a", "²"), ("b", "--1")]),
}


@pytest.mark.parametrize(("name", "content", "wanted"), READ.values(), ids=READ)
def test_what_is_certain_is_read(
    tmp_path: Path, name: str, content: Any, wanted: list[tuple[str, str]]
) -> None:
    assert rows(write(tmp_path / name, content)) == wanted


SQUAD = {"context": "The cat sat.", "qas": [{"id": "7", "question": "Who?", "answers": []}]}


def squad(start: Any) -> str:
    question = {**SQUAD["qas"][0], "answers": [{"text": "cat", "answer_start": start}]}  # type: ignore[index]
    return json.dumps({"data": [{"paragraphs": [{**SQUAD, "qas": [question]}]}]})


REFUSED = {
    "UTF-16 without its mark": (
        "a.csv",
        TABLE.encode("utf-16-le"),
        "line 1: a NUL character, so this is no UTF-8 text; save the file as UTF-8",
    ),
    "a NUL in a text": ("a.csv", HEADER + "a\0b,x\n", "line 2: a NUL character"),
    "Windows-1252": (
        "a.csv",
        TABLE.encode("cp1252"),
        r"line 3: not UTF-8 text \(its byte 2 is 0xfc, 'ü' in Windows-1252\); save the file as",
    ),
    "half of UTF-16": (
        "a.csv",
        TABLE.encode("utf-16")[:-1],
        "not UTF-16-LE text; save the file as",
    ),
    "an Excel file": (
        "a.xlsx",
        b"PK\x03\x04\x00",
        "is an Excel or Word file, or an archive; save a",
    ),
    "an Excel file called CSV": (
        "a.csv",
        b"PK\x03\x04\x00",
        "is an Excel or Word file, or an archi",
    ),
    "packed without its ending": ("a.csv", gzip.compress(b"a"), r"gzip; end its name with \.gz"),
    "a placeholder": (
        "a.csv",
        "version https://git-lfs.github.com/spec/v1\noid sha256:a\n",
        "is a placeholder of Git LFS; fetch the file itself by git lfs pull",
    ),
    "a place in Mac lines": (
        "a.csv",
        "text,label\ra,x\rb\r",
        "line 3: expected 2 columns but found 1",
    ),
    "a comma in a text": (
        "a.csv",
        HEADER + "Not my taste, sorry,x\n",
        "line 2: expected 2 columns but found 3; a cell with the separator inside stands in quotes",
    ),
    "some quotes between tabs": (
        "a.tsv",
        'text\tlabel\n"a\tb"\tx\n"c\ty\n',
        "line 2: expected 2 columns but found 3; if quotes hold .* add quotes=yes to the columns",
    ),
    "a header in capitals once more": (
        "a.csv",
        HEADER + "a,x\nText,Label\n",
        "line 3: it repeats the header; remove it",
    ),
    "a comma in a score": (
        "a.csv",
        "sentence1;sentence2;score\nA.;B.;2,5\n",
        "line 2: the score '2,5' is no number, write a point in place of its comma",
    ),
    "commas in labels": ("a.csv", HEADER + 'a,"2,5"\nb,"3,0"\n', "its labels are written as '2,5'"),
    "per cent": (
        "a.csv",
        HEADER + "a,85%\nb,5%\n",
        "its labels are written as '5%'; write numbers",
    ),
    "an infinite label": (
        "a.csv",
        HEADER + "a,1.5\nb,1e400\n",
        "line 3: the label '1e400' is no finite",
    ),
    "an infinite number": (
        "a.jsonl",
        '{"text": "a", "label": Infinity}\n',
        "line 1: the label inf is no finite number",
    ),
    "classes as pandas writes them": (
        "a.csv",
        HEADER + "a,1.0\nb,0.0\n",
        r"whole numbers that are written as 0\.0. If they are classes, say --columns .*scores=no",
    ),
    "marks up to 100": (
        "a.csv",
        HEADER + "".join(f"a,{i % 101}\n" for i in range(500)),
        "its labels are 101 different whole numbers. If they are classes, say .*scores=no",
    ),
    "one name twice": (
        "a.jsonl",
        '{"text": "a", "text": "b", "label": "x"}\n',
        r"line 1: not readable JSON \(an object has 'text' twice\)",
    ),
    "a deep text": ("a.jsonl", "[" * 100_000, "line 1: not readable JSON .maximum recursion depth"),
    "a long number": (
        "a.jsonl",
        '{"label": ' + "9" * 5000 + "}",
        "line 1: not readable JSON .Exceeds",
    ),
    "an object of columns": (
        "a.json",
        '{"text": ["a", "b"], "label": ["x", "y"]}',
        "a row is an object of its own",
    ),
    "splits in one file": (
        "a.json",
        '{"train": [{"text": "a", "label": "x"}], "test": []}',
        "it holds its records inside of train, test; write each into a file of its own",
    ),
    "a JSON text of many lines": (
        "a.jsonl",
        '{\n"text": "a"\n}\n',
        "a text of many lines is a .json",
    ),
    "no rows": ("a.csv", HEADER, "has no rows in its train split"),
    "a choice that is no digit": (
        "a.jsonl",
        '{"text": "q", "choices": ["a", "b"], "label": "²"}\n',
        "line 1: the label '²' is no choice; they are numbered 0 to 1",
    ),
    "a number before its place": (
        "a.json",
        squad(-8),
        "question 7: the answer 'cat' is not at char",
    ),
    "a place as a text": ("a.json", squad("4"), "question 7: its answers are not in SQuAD's form"),
    "words and tags in a text file": (
        "a.txt",
        "Ann B-PER\nran O\n\nBob B-PER\n",
        r"its lines look like words with a tag each; if they are, end its name with \.conll",
    ),
    "words and tags in a table": ("a.tsv", "Ann\tB-PER\nran\tO\n", r"end its name with \.conll"),
    "words and other tags, sentences apart": (
        "train.txt",
        "Test\tO\n\nLoad\tO\n\nTo\tO\n\nHi\tO\nJohn\tNAME\n",
        r"its lines look like words with a tag each; if they are, end its name with \.conll\.",
    ),
    "the same with blanks": (
        "train.txt",
        "Test O\n\nLoad O\n\nTo O\n\nHi O\nJohn NAME\n",
        r"its lines look like words with a tag each; if they are, end its name with \.conll\.",
    ),
    "the same with commas": (
        "train.csv",
        "Test,O\n\nLoad,O\n\nTo,O\n\nHi,O\nJohn,NAME\n",
        r"end its name with \.conll, and write a tab for each ','\.",
    ),
    "texts of one word": (
        "train.tsv",
        "good\tpos\nfine\tpos\nbad\tneg\nsad\tneg\n",
        "--columns text=0,label=1",
    ),
    "a word as tokens": (
        "a.csv",
        "tokens,labels\nAnn,O\n",
        r"the tokens are 'Ann' instead of a list of words; a file with a word in each line ends in"
        r" \.conll",
    ),
    "packed by zstd": ("a.csv.zst", b"\x28\xb5\x2f\xfda", "is packed by zstd; unpack it"),
    "a web page": ("a.csv", "<!DOCTYPE html>\n<html>\n", "is a web page; fetch the file that it"),
    "a header over tags": (
        "a.conll",
        "token tag\nAnn B-PER\nran O\n",
        "its first line, with 'tag', is a header; remove it",
    ),
    "sentences without a line between": (
        "a.conllu",
        "".join(f"1\t{word}\t_\tX\tX\t_\t0\troot\t_\t_\n" for word in ("Go", "on")),
        "line 2: word 2 of its sentence is numbered '1'",
    ),
    "a head that is no number": (
        "a.conllu",
        "1\tGo\t_\tX\tX\t_\t-3\troot\t_\t_\n",
        "line 1: the head '-3' is no number",
    ),
    "a text that nobody sees": (
        "a.csv",
        HEADER + "\u200b,x\n",
        "line 2: the text is .* instead of",
    ),
    "money": ("a.csv", HEADER + "a,$5\nb,3\n", r"its labels are written as '\$5'"),
    "a typographer's minus": ("a.csv", HEADER + "a,\u22121\nb,1\n", "are written as '\u22121'"),
    "0 or 1 for each class": (
        "a.jsonl",
        '{"text": "a", "label": [1, 0]}\n{"text": "b", "label": [1, 1]}\n',
        "perhaps 0 or 1 for each class; write the names of the labels that hold",
    ),
    "lists among labels": (
        "a.jsonl",
        '{"text": "a", "label": "x"}\n{"text": "b", "label": ["x", "y"]}\n',
        "some labels are lists and some are not",
    ),
    "true as a place": ("a.json", squad(True), "question 7: its answers are not in SQuAD's form"),
    "a word that the loss leaves out": (
        "a.jsonl",
        '{"tokens": ["a", "b"], "labels": [0, -100]}\n',
        "some labels are '-100'",
    ),
}


WORDS = [["0", "I", "O"], ["0", "enjoy", "B-CON"], ["1", "It", "O"], ["1", "is", "O"]]
WORDS += [["1", "quiet", "B-NOI"], ["1", "really", "O"]]
SPARSE = [[cells[0] if i in (0, 2) else "", *cells[1:]] for i, cells in enumerate(WORDS)]


@pytest.mark.parametrize("table", [WORDS, SPARSE], ids=["each row", "first row"])
@pytest.mark.parametrize("header", [["sentence_id", "words", "labels"], None])
def test_a_word_in_each_row_becomes_a_sentence_in_each_row(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table: list[list[str]],
    header: list[str] | None,
) -> None:
    """The advice makes no classifier of single words, and it works as it stands."""
    lines = table if header is None else [header, *table]
    path = write(tmp_path / "frame.csv", "".join(f"{','.join(cells)}\n" for cells in lines))
    with pytest.raises(CourseError, match="like a word in each row") as refusal:
        data.task(path)
    assert "text=" not in str(refusal.value)
    code = str(refusal.value).partition("by pandas: ")[2].removesuffix(".")
    monkeypatch.chdir(tmp_path)
    frame = pandas.read_csv(path, header=None if header is None else 0)
    eval(code, {"table": frame, "list": list})
    assert tagged(tmp_path / "train.jsonl") == [
        [("I", "O"), ("enjoy", "B-CON")],
        [("It", "O"), ("is", "O"), ("quiet", "B-NOI"), ("really", "O")],
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ["1,Rome,big", "1,Oslo,small", "2,a town,big", "2,Turin,small"],
        ["1,Rome,big", "2,Oslo,small", "1,Bern,big", "2,Turin,small"],
        ["FR,Paris,big", "FR,Lyon,small", "DE,Berlin,big", "DE,Jena,small"],
    ],
    ids=["a text", "mixed numbers", "no numbers"],
)
def test_other_tables_are_not_taken_for_words_of_sentences(
    tmp_path: Path, lines: list[str]
) -> None:
    path = write(tmp_path / "a.csv", "\n".join(["group,name,size", *lines]))
    with pytest.raises(CourseError, match="the columns are not known"):
        data.task(path)


@pytest.mark.parametrize(("name", "content", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_certain_is_asked(
    tmp_path: Path, name: str, content: Any, message: str
) -> None:
    with pytest.raises(CourseError, match=message) as error:
        data.task(write(tmp_path / name, content))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "label", ["-", "-1", "--", "?", "N/A", "NA", "#N/A", "<NA>", "n.a.", "None", "NULL", "nan"]
)
def test_words_that_may_say_no_label(tmp_path: Path, label: str) -> None:
    file = write(tmp_path / "a.csv", f"{HEADER}a,x\nb,y\nc,{label}\n")
    with pytest.raises(CourseError, match="If this says that there is no label"):
        data.task(file)
    with pytest.warns(CourseWarning, match="1 of 3 rows have no label"):
        assert rows(file, columns={"no_label": label}) == [("a", "x"), ("b", "y")]
    assert rows(file, columns={"class": label})[2] == ("c", label)


def test_several_words_may_say_no_label(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", f"{HEADER}a,x\nb,y\nc,-\nd,N/A\n")
    with pytest.raises(CourseError, match=r"labels are '-' and 'N/A'\..*no_label=-\|N/A"):
        data.task(file)
    with pytest.warns(CourseWarning, match="2 of 4 rows have no label"):
        assert len(rows(file, columns={"no_label": "-|N/A"})) == 2


@pytest.mark.parametrize("value", ['"1.0"', "1.0"])
def test_whole_numbers_with_a_point_are_classes_or_scores(tmp_path: Path, value: str) -> None:
    other = value.replace("1", "-1")
    lines = [f'{{"text": "a", "label": {label}}}' for label in (value, value, other)]
    file = write(tmp_path / "a.jsonl", "\n".join(lines))
    assert rows(file, columns={"scores": "yes"}) == [("a", 1.0), ("a", 1.0), ("a", -1.0)]
    with pytest.warns(CourseWarning, match="1 of 3 rows have no label"):
        assert rows(file, columns={"scores": "no", "no_label": "-1"}) == [("a", "1")] * 2


@pytest.mark.parametrize(
    "labels",
    [
        ("Pos", "pos"),
        ("very good", "very  good"),
        ("pos", "pos\u200b"),
        ("é", "e\u0301"),
        ("01", "1"),
    ],
)
def test_classes_that_look_alike_are_named(tmp_path: Path, labels: tuple[str, str]) -> None:
    content = HEADER + "".join(f"a,{label}\n" for label in (*labels, "x"))
    with pytest.warns(CourseWarning, match="are different classes; if they are meant to be one"):
        assert len(data.task(write(tmp_path / "a.csv", content)).features["label"].names) == 3


def test_several_labels_in_one_cell_are_named(tmp_path: Path) -> None:
    content = HEADER + 'a,"x,y"\nb,x\nc,y\n'
    with pytest.warns(CourseWarning, match="'x,y' is a class of its own beside x and y"):
        data.task(write(tmp_path / "a.csv", content))


def test_a_header_is_no_row_where_columns_are_numbers(tmp_path: Path) -> None:
    numbers = {"text": 0, "label": 1}
    for content in ("text,label\na,x\nb,y\n", "satz,note\na,1\nb,2.5\nc,3\n"):
        file = write(tmp_path / "a.csv", content)
        with pytest.raises(CourseError, match="add header=yes to the columns if it is a header"):
            data.task(file, columns=numbers)
        assert rows(file, columns=numbers | {"header": "yes"})[0][0] == "a"


def test_a_column_is_named_once(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", f"{HEADER}a,x\nb,y\n")
    with pytest.raises(CourseError, match="name one of the file's twice"):
        data.task(file, columns={"text": "text", "label": "text"})


@pytest.mark.parametrize("label", ["-", "-1", "N/A"])
def test_a_test_split_may_hide_its_labels(tmp_path: Path, label: str) -> None:
    write(tmp_path / "train.csv", f"{HEADER}a,x\nb,y\n")
    write(tmp_path / "test.csv", f"{HEADER}c,{label}\nd,{label}\n")
    assert data.held_out(tmp_path) == "test"
    with pytest.raises(CourseError, match="if it says that there is no label, add no_label="):
        data.task(tmp_path, split="test")
    write(tmp_path / "dev.csv", f"{HEADER}c,x\n")
    assert data.held_out(tmp_path) == "validation"


def test_descriptions_are_obeyed_without_columns(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", f"{HEADER}a,3\nb,5\n")
    assert rows(file, columns={"scores": "yes"}) == [("a", 3.0), ("b", 5.0)]
    table = write(tmp_path / "a.tsv", 'text\tlabel\n"a"\tx\n"b"\ty\n')
    assert rows(table)[0] == ('"a"', "x")
    assert rows(table, columns={"quotes": "yes"})[0] == ("a", "x")


def test_numbers_of_classes_are_the_same_in_all_splits(tmp_path: Path) -> None:
    def split(*names: str) -> datasets.Dataset:
        features = Features({"text": Value("string"), "label": ClassLabel(names=list(names))})
        return datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}, features)

    splits = datasets.DatasetDict({"train": split("neg", "pos"), "test": split("pos", "neg")})
    splits.save_to_disk(tmp_path / "saved")
    (tmp_path / "tables").mkdir()
    for name, rows in splits.items():
        rows.to_parquet(tmp_path / "tables" / f"{name}.parquet")
    for folder in ("saved", "tables"):
        with pytest.raises(CourseError, match="the classes of label are numbered as"):
            data.task(tmp_path / folder, split="test")


def test_tables_of_a_file_that_has_changed_are_made_again(tmp_path: Path) -> None:
    file = tmp_path / "set" / "train.parquet"
    file.parent.mkdir()
    for word in ("old", "new"):
        datasets.Dataset.from_dict({"text": [word] * 2, "label": ["x", "y"]}).to_parquet(file)
        os.utime(file, (1e9, 1e9))  # a copy may keep the time
        for source in (file, file.parent):
            assert rows(source) == [(word, "x"), (word, "y")]


def test_texts_that_are_missing_are_left_out_of_a_corpus(tmp_path: Path) -> None:
    table = datasets.Dataset.from_dict({"text": ["a", None, "b"], "number": [1, 2, 3]})
    table.to_parquet(tmp_path / "a.parquet")
    for streaming in (False, True):
        found = data.corpus(tmp_path / "a.parquet", streaming=streaming)
        assert [row["text"] for row in found] == ["a", "b"]
    with pytest.raises(CourseError, match="the column 'number' holds int64; choose another"):
        data.corpus(tmp_path / "a.parquet", column="number")


def test_a_corpus_asks_for_one_column(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "Satz,Note\na b,1\nc d,2\n")
    with pytest.raises(CourseError, match=r"begins: Satz \| Note\. Name it by .* --column NAME;"):
        data.corpus(file)
    assert data.corpus(file, column="Satz")["text"][:] == ["a b", "c d"]


COMMENTS = {
    "two words": "# id\nAnn B-PER\nran O\n\n# id\nBob B-PER\n",
    "one word": "#id=7\nAnn B-PER\nran O\n\n#id=8\nBob B-PER\n",
    "between words": "Ann B-PER\n# a note here\nran O\n\nBob B-PER\n",
    "alone": "# newdoc\n\nAnn B-PER\nran O\n\nBob B-PER\n",
    "CoNLL 2012": "#begin document (a);\nAnn B-PER\nran O\n\nBob B-PER\n#end document\n",
    "documents without blank lines": "-DOCSTART- O\nAnn B-PER\nran O\n-DOCSTART- O\nBob B-PER\n",
    "documents": "-DOCSTART-\n\nAnn B-PER\nran O\n\n-DOCSTART-\n\nBob B-PER\n",
}


@pytest.mark.parametrize("content", COMMENTS.values(), ids=COMMENTS)
def test_comments_in_conll_are_no_words(tmp_path: Path, content: str) -> None:
    sentences = tagged(write(tmp_path / "a.conll", content))
    assert sentences == [[("Ann", "B-PER"), ("ran", "O")], [("Bob", "B-PER")]]


def test_words_without_a_tag(tmp_path: Path) -> None:
    lines = "Ann\tB-PER\nran\t\n\nBob\tB-PER\nran\tO \n"
    with pytest.warns(CourseWarning, match="1 of 2 rows have no label"):
        assert tagged(write(tmp_path / "a.conll", lines)) == [[("Bob", "B-PER"), ("ran", "O")]]
    word = "\t_\t_\t0\troot\t_\t_\n"
    tree = f"1\tDo\tdo\t_{word}\n1\tGo\tgo\tVERB{word}"
    with pytest.warns(CourseWarning, match="1 of 2 rows have no label"):
        assert tagged(write(tmp_path / "a.conllu", tree)) == [[("Go", "VERB")]]


letters = st.text(st.sampled_from("ab\"\t\n,;'ü. "), min_size=1, max_size=12)
texts = letters.filter(lambda text: text.strip())
labelled = st.tuples(texts, st.sampled_from(["x", "y"]))
written = {
    "separator": st.sampled_from([",", ";", "\t"]),
    "quoting": st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    "encoding": st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]),
    "end": st.sampled_from(["\n", "\r\n"]),
}


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(table=st.lists(labelled, min_size=1, max_size=5), **written)
def test_a_table_comes_back_or_a_sentence_does(
    tmp_path: Path,
    table: list[tuple[str, str]],
    separator: str,
    quoting: Any,
    encoding: str,
    end: str,
) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=separator, quoting=quoting, lineterminator=end)
    writer.writerows([("text", "label"), *table])
    ending = "tsv" if separator == "\t" else "csv"
    path = write(tmp_path / f"a.{ending}", file.getvalue().encode(encoding))
    wanted = [(text.strip(), label) for text, label in table]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = rows(path)
    except CourseError:
        return
    assert found == wanted, path.read_bytes()
