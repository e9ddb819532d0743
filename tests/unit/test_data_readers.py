"""Files in published formats, each written here in miniature; what is wrong in one is said with its place."""

from pathlib import Path

import pytest

from course_lib import CourseError
from course_lib.data import readers

WIKITEXT = """ 
 = First lobster = 
 
 It is <unk> , 60 @-@ odd . 
 
 = = Life = = 
 
 Eggs hatch . 
 = 1 = 
 
 = Second = 
 
 Other text . 
"""  # noqa: W291, W293


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def test_wikitext_articles_are_documents(tmp_path: Path) -> None:
    rows = readers.read_text(write(tmp_path / "wiki.train.tokens", WIKITEXT))
    assert [row["text"].split("\n")[0].strip() for row in rows] == ["= First lobster =", "= Second ="]
    assert "= = Life = =" in rows[0]["text"] and "= 1 =" in rows[0]["text"]


def test_a_book_is_one_document_without_its_licence(tmp_path: Path) -> None:
    book = "\ufeffAn eBook\r\n*** START OF EBOOK A ***\r\nOne.\r\n\r\nTwo.\r\n*** END OF EBOOK A ***\r\nlaw"
    assert readers.read_text(write(tmp_path / "a.txt", book)) == [{"text": "One.\n\nTwo."}]
    assert readers.read_text(write(tmp_path / "b.txt", "Café.\n")) == [{"text": "Café."}]


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("sst2.tsv", 'sentence\tlabel\n"bad" film\t0\n"fun\t1\n', [('"bad" film', None, "0"), ('"fun', None, "1")]),
        ("plain.tsv", "a long film\t0\nfun\t1\n", [("a long film", None, "0"), ("fun", None, "1")]),
        ("turned.tsv", "0\ta long film\n1\tfun film\n", [("a long film", None, "0"), ("fun film", None, "1")]),
        ("cola.tsv", "gj\t1\t\tShe ran.\nbc\t0\t*\tRan she.\n", [("She ran.", None, "1"), ("Ran she.", None, "0")]),
        (
            "mrpc.tsv",
            "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t7\t8\tIt fell.\tIt dropped.\r\n",
            [("It fell.", "It dropped.", "1")],
        ),
        ("rte.tsv", "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tentailment\n", [("A.", "B.", "entailment")]),
        ("qnli.tsv", "index\tquestion\tsentence\tlabel\n0\tA?\tB.\tentailment\n", [("A?", "B.", "entailment")]),
        ("sts.csv", '"A, b.",C.,2.5\r\nD.,E.,0.0\r\n', [("A, b.", "C.", "2.5"), ("D.", "E.", "0.0")]),
        ("semeval.tsv", "2.5\tA.\tB.\n0\tD.\tE.\n", [("A.", "B.", "2.5"), ("D.", "E.", "0")]),
    ],
)
def test_tables(tmp_path: Path, name: str, text: str, rows: list[tuple[str, str | None, str]]) -> None:
    got = readers.read_table(write(tmp_path / name, text))
    assert [(r["text"], r.get("pair"), r["label"]) for r in got] == rows


def test_columns_can_be_named(tmp_path: Path) -> None:
    file = write(tmp_path / "x.tsv", "id\tbody\tmood\n7\thello\tglad\n")
    for columns in ({"text": "body", "label": "mood"}, {"text": 1, "label": "mood"}):
        assert readers.read_table(file, columns) == [{"text": "hello", "label": "glad"}]
    bare = write(tmp_path / "y.tsv", "7\thello\tglad\tx\ty\n")
    assert readers.read_table(bare, {"text": 1, "label": 2}) == [{"text": "hello", "label": "glad"}]


def test_column_files(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- O\n\nAnn NNP B-PER\nran VBD O\n\n\nIn IN O\nBonn NNP B-LOC\n"
    rows = readers.read_conll(write(tmp_path / "train.conll", text))
    assert rows == [
        {"tokens": ["Ann", "ran"], "labels": ["B-PER", "O"]},
        {"tokens": ["In", "Bonn"], "labels": ["O", "B-LOC"]},
    ]
    assert readers.read_conll(tmp_path / "train.conll", {"labels": 1})[0]["labels"] == ["NNP", "VBD"]
    tabs = write(tmp_path / "dev.conll", "#tag\tO\nNew York\tB-LOC\n")
    assert readers.read_conll(tabs) == [{"tokens": ["#tag", "New York"], "labels": ["O", "B-LOC"]}]
    universal = "# text = Don't\n1-2\tDon't\t_\t_\n1\tDo\tdo\tAUX\n2\tn't\tnot\tPART\n2.1\tx\tx\tX\n"
    assert readers.read_conll(write(tmp_path / "a.conllu", universal)) == [
        {"tokens": ["Do", "n't"], "labels": ["AUX", "PART"]}
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "sentence\tlabel\nfine\t1\nbroken\n", r"a\.tsv, line 3: expected 2 columns but found 1"),
        ("a.tsv", "sentence\tlabel\n\t1\n", r"a\.tsv, line 2: the text is empty"),
        ("a.tsv", "sentence\tlabel\n", "a header but no rows"),
        ("a.tsv", "a\tb\tc\td\te\n", r"columns of .*a\.tsv are not known .*a \| b \| c"),
        ("a.tsv", " \n\n", r"a\.tsv is empty"),
        ("a.conll", "Ann\tB-PER\nran\n", r"a\.conll, line 2: expected at least 2 columns but found 1"),
        ("a.conll", "-DOCSTART- O\n", "holds no sentences"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, name: str, text: str, message: str) -> None:
    read = readers.read_conll if name.endswith("conll") else readers.read_table
    with pytest.raises(CourseError, match=message):
        read(write(tmp_path / name, text))


def test_missing_files_and_columns(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="There is no file"):
        readers.read_text(tmp_path / "none.txt")
    with pytest.raises(CourseError, match="is a folder"):
        readers.read_text(tmp_path)
    latin = write(tmp_path / "latin.txt", "Café", "latin-1")
    with pytest.raises(CourseError, match=r"not UTF-8 text \(byte 3 is 0xe9\)"):
        readers.read_text(latin)
    file = write(tmp_path / "x.tsv", "id\tbody\tmood\n7\thello\tglad\n")
    with pytest.raises(CourseError, match="no column 'nope'; its columns are id, body, mood"):
        readers.read_table(file, {"text": "nope", "label": "mood"})
    with pytest.raises(CourseError, match="no column 5"):
        readers.read_table(file, {"text": 5, "label": 2})
    with pytest.raises(CourseError, match="must say where text and label stand"):
        readers.read_table(file, {"text": "body"})
