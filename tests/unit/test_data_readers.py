"""Files in published formats, each written here in miniature; what is wrong in one is said with its place."""

import bz2
import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from course_lib import CourseError
from course_lib.data import readers
from course_lib.data.readers import FORMATS, Columns, text

WIKITEXT = """ 
 = First lobster = 
 
 It is <unk> , 60 @-@ odd . 
 
 = = Life = = 
 
 Eggs hatch . 
 = 1 = 
 
 = Second = 
 
 Other text . 
"""  # noqa: W291, W293


def write(path: Path, content: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(content.encode(encoding))
    return path


def rows(path: Path, columns: Columns | None = None, door: str = "task") -> list[dict[str, Any]]:
    """What the reader of the file's format gives."""
    (kind,) = (kind for kind in FORMATS.values() if readers.unpacked(path).suffix in kind.endings)
    return [row for _, row in getattr(kind, door)(path, columns)]


def texts(path: Path) -> list[str]:
    return [row["text"] for row in rows(path, door="corpus")]


def test_wikitext_articles_are_documents(tmp_path: Path) -> None:
    first, second = texts(write(tmp_path / "wiki.train.tokens", WIKITEXT))
    assert first.split("\n")[0].strip() == "= First lobster =" and second.split("\n")[0].strip() == "= Second ="
    assert "= = Life = =" in first and "= 1 =" in first and first.endswith("= 1 =")


def test_a_book_is_one_document_without_its_licence(tmp_path: Path) -> None:
    book = "\ufeffAn eBook\r\n*** START OF EBOOK A ***\r\nOne.\r\n\r\nTwo.\r\n*** END OF EBOOK A ***\r\nlaw"
    assert texts(write(tmp_path / "a.txt", book)) == ["One.\n\nTwo."]
    assert texts(write(tmp_path / "b.txt", "Café.\n")) == ["Café."]


def test_long_texts_are_cut_at_blank_lines_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "PIECE", 50)
    paragraphs = [f"Paragraph {i} of a book\nthat goes on." for i in range(9)]
    pieces = texts(write(tmp_path / "a.txt", "\n\n".join(paragraphs)))
    assert len(pieces) > 3 and "\n\n".join(pieces) == "\n\n".join(paragraphs)


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_packed_files_are_unpacked(tmp_path: Path, ending: str, pack: Any) -> None:
    packed = tmp_path / f"a.txt{ending}"
    packed.write_bytes(pack(b"One.\nTwo.\n"))
    assert texts(packed) == ["One.\nTwo."]
    packed.write_bytes(pack(b"One.\n" * 9)[:-9])
    with pytest.raises(CourseError, match=rf"a\.txt{ending}.*(damaged|cannot be read)"):
        texts(packed)


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("sst2.tsv", 'sentence\tlabel\n"bad" film\t0\n"fun\t1\n', [('"bad" film', "0"), ('"fun', "1")]),
        ("plain.tsv", "a long film\t0\nfun\t1\n", [("a long film", "0"), ("fun", "1")]),
        ("turned.tsv", "0\ta long film\n1\tfun film\n", [("a long film", "0"), ("fun film", "1")]),
        ("cola.tsv", "gj\t1\t\tShe ran.\nbc\t0\t*\tRan she.\n", [("She ran.", "1"), ("Ran she.", "0")]),
        (
            "mrpc.tsv",
            "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t7\t8\tIt fell.\tIt dropped.\r\n",
            [("It fell.", "It dropped.", "1")],
        ),
        ("rte.tsv", "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tentailment\n", [("A.", "B.", "entailment")]),
        ("qnli.tsv", "index\tquestion\tsentence\tlabel\n0\tA?\tB.\tentailment\n", [("A?", "B.", "entailment")]),
        ("quoted.csv", 'text,label\n"A ""b"",\nc.",x\n', [('A "b",\nc.', "x")]),
        ("sts.csv", '"A, b.",C.,2.5\r\nD.,E.,0.0\r\n', [("A, b.", "C.", "2.5"), ("D.", "E.", "0.0")]),
        ("semeval.tsv", "2.5\tA.\tB.\n\tC.\tC.\n0\tD.\tE.\n", [("A.", "B.", 2.5), ("D.", "E.", 0.0)]),
        (
            "sts-dev.csv",
            'main\tnews\t2012\t0001\t3.8\tA "b.\tC.\nmain\tforum\t2013\t0002\t5\tD.\tE.\tx\ty\n',
            [('A "b.', "C.", 3.8), ("D.", "E.", 5.0)],
        ),
        ("stsb.tsv", "index\tsentence1\tsentence2\tscore\n0\tA.\tB.\t3\n", [("A.", "B.", 3.0)]),
    ],
)
def test_tables(tmp_path: Path, name: str, content: str, wanted: list[tuple[Any, ...]]) -> None:
    names = ("text", "label") if len(wanted[0]) == 2 else ("text", "pair", "label")
    found = rows(write(tmp_path / name, content))
    assert [tuple(row[name] for name in names) for row in found] == wanted
    assert all(set(row) == set(names) for row in found)


def test_translations_in_a_table(tmp_path: Path) -> None:
    wanted = [{"text": "A dog runs.", "target": "Ein Hund rennt."}]
    assert rows(write(tmp_path / "a.tsv", "A dog runs.\tEin Hund rennt.\n")) == wanted
    assert rows(write(tmp_path / "b.tsv", "de\ten\nEin Hund rennt.\tA dog runs.\n")) == wanted
    turned = rows(tmp_path / "a.tsv", {"text": 1, "target": 0})
    assert turned == [{"text": "Ein Hund rennt.", "target": "A dog runs."}]


def test_columns_can_be_named(tmp_path: Path) -> None:
    file = write(tmp_path / "x.tsv", "id\tidea\tmood\n7\thello\tglad\n")
    wanted = [{"text": "hello", "label": "glad"}]
    assert rows(file, {"text": "idea", "label": "mood"}) == wanted
    assert rows(file, {"text": 1, "label": 2})[1:] == wanted
    assert rows(file, {"text": "idea"}, door="corpus") == [{"text": "hello"}]
    with pytest.raises(CourseError, match="no column 'nope'; its columns are id, idea, mood"):
        rows(file, {"text": "nope", "label": "mood"})
    with pytest.raises(CourseError, match="no column 5"):
        rows(file, {"text": 5, "label": 2})
    with pytest.raises(CourseError, match="must say where text and label stand"):
        rows(file, {"text": "idea"})
    with pytest.raises(CourseError, match=r"no text column; its columns are id, idea, mood; say which by column="):
        rows(file, door="corpus")


def test_column_files(tmp_path: Path) -> None:
    content = "-DOCSTART- -X- O O\n\nAnn NNP O B-PER\nran VBD O O\n\n\nIn IN O O\nBonn NNP O B-LOC\n"
    file = write(tmp_path / "train.conll", content)
    assert rows(file) == [
        {"tokens": ["Ann", "ran"], "labels": ["B-PER", "O"]},
        {"tokens": ["In", "Bonn"], "labels": ["O", "B-LOC"]},
    ]
    assert rows(file, {"labels": 1})[0]["labels"] == ["NNP", "VBD"]
    tabs = write(tmp_path / "dev.conll", "#tag\tO\nNew York\tB-LOC\n")
    assert rows(tabs) == [{"tokens": ["#tag", "New York"], "labels": ["O", "B-LOC"]}]


def conllu(*words: str) -> str:
    """Words "id form upos head deprel" as lines of ten fields."""
    lines = []
    for word in words:
        number, form, upos, head, deprel = word.split()
        lines.append("\t".join([number, form, form.lower(), upos, upos[:2], "_", head, deprel, "_", "_"]))
    return "\n".join(lines) + "\n"


def test_treebanks(tmp_path: Path) -> None:
    content = (
        "# sent_id = 1\n# text = Don't go.\n"
        + conllu("1-2 Don't _ _ _", "1 Do AUX 3 aux", "2 n't PART 3 advmod", "2.1 you PRON _ _", "3 go VERB 0 root")
        + conllu("4 . PUNCT 3 punct")
        + "\n\n# sent_id = 2\n"
        + conllu("1 Yes INTJ _ _")
    )
    first, second = rows(write(tmp_path / "a.conllu", content))
    assert first == {
        "text": "Don't go.",
        "tokens": ["Do", "n't", "go", "."],
        "labels": ["AUX", "PART", "VERB", "PUNCT"],
        "upos": ["AUX", "PART", "VERB", "PUNCT"],
        "heads": [3, 3, 0, 3],
        "deprels": ["aux", "advmod", "root", "punct"],
    }
    assert second["text"] == "Yes" and second["heads"] == [-1]
    assert rows(tmp_path / "a.conllu", {"labels": "deprel"})[0]["labels"] == first["deprels"]
    assert rows(tmp_path / "a.conllu", {"labels": 4})[0]["labels"] == ["AU", "PA", "VE", "PU"]


def squad(*questions: dict[str, Any], context: str = "Ann lives in Bonn. Bonn is old.") -> str:
    paragraph = {
        "context": context,
        "qas": [{"id": f"q{i}", "question": "Where?", **q} for i, q in enumerate(questions)],
    }
    return json.dumps({"version": "v2", "data": [{"title": "Ann", "paragraphs": [paragraph]}]})


def test_questions_with_and_without_an_answer(tmp_path: Path) -> None:
    both = [{"text": "Bonn", "answer_start": 13}, {"text": "in Bonn", "answer_start": 10}]
    content = squad({"answers": both}, {"answers": [], "is_impossible": True, "plausible_answers": both})
    first, second = rows(write(tmp_path / "a.json", content))
    assert first == {
        "id": "q0",
        "title": "Ann",
        "text": "Where?",
        "pair": "Ann lives in Bonn. Bonn is old.",
        "answer": "Bonn",
        "start": 13,
        "answers": ["Bonn", "in Bonn"],
    }
    assert (second["answer"], second["start"], second["answers"]) == ("", -1, [])


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"answers": [{"text": "Bonn", "answer_start": 12}]}, "'Bonn' is not at character 12 .*it stands at 13"),
        ({"answers": [{"text": "Rome", "answer_start": 13}]}, "'Rome' .*it stands nowhere in it"),
        ({"answers": []}, "has no answer; version 2 of SQuAD marks the unanswerable"),
        ({"answers": [{"text": "Bonn", "answer_start": 13}], "is_impossible": True}, "has answers but is_impossible"),
        ({"answers": [{"answer": "Bonn"}]}, "not in SQuAD's form"),
        ({"question": None, "answers": []}, "the text, question, is None instead of text"),
    ],
)
def test_faulty_questions_are_named(tmp_path: Path, question: dict[str, Any], message: str) -> None:
    good = {"answers": [{"text": "Ann", "answer_start": 0}]}
    with pytest.raises(CourseError, match=rf"a\.json, question q1: .*{message}"):
        rows(write(tmp_path / "a.json", squad(good, question)))


@pytest.mark.parametrize(
    ("records", "wanted"),
    [
        ([{"text": "A.", "label": 1}, {"text": "B.", "label": 0}], {"text": "A.", "label": "1"}),
        ([{"question": "A?", "passage": "B.", "label": False}], {"text": "A?", "pair": "B.", "label": "false"}),
        ([{"s1": "A.", "s2": "B.", "score": 3}], {"text": "A.", "pair": "B.", "label": 3.0}),
        ([{"document": "A.", "summary": "B."}], {"text": "A.", "target": "B."}),
        ([{"translation": {"de": "A.", "en": "B."}}], {"text": "B.", "target": "A."}),
        ([{"tokens": ["A", "b"], "tags": ["X", "Y"]}], {"tokens": ["A", "b"], "labels": ["X", "Y"]}),
        (
            [{"ctx": "A", "endings": ["b", "c"], "label": "1", "id": 7}],
            {"text": "A", "choices": ["b", "c"], "label": 1},
        ),
        (
            [{"word": "bank", "sentence1": "A.", "sentence2": "B.", "label": True}],
            {"text": "bank: A.", "pair": "B.", "label": "true"},
        ),
        (
            [{"startphrase": "A", "ending0": "b", "ending1": "c", "label": 0}],
            {"text": "A", "choices": ["b", "c"], "label": 0},
        ),
    ],
)
def test_records(tmp_path: Path, records: list[dict[str, Any]], wanted: dict[str, Any]) -> None:
    lines = "".join(json.dumps(record) + "\n" for record in records)
    for file, content in (("a.jsonl", lines), ("b.json", lines), ("c.json", json.dumps(records, indent=1))):
        found = rows(write(tmp_path / file, content))
        assert found[0] == wanted and len(found) == len(records), file


def test_fields_can_be_named(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"body": "Fine.", "mood": "glad", "n": 1}\n')
    assert rows(file, {"text": "body", "label": "mood"}) == [{"text": "Fine.", "label": "glad"}]
    assert rows(file, {"text": "body"}, door="corpus") == [{"text": "Fine."}]
    with pytest.raises(CourseError, match=r"line 1.* has no column 'nope'; its columns are body, mood, n"):
        rows(file, {"text": "nope"})


def test_parallel_files(tmp_path: Path) -> None:
    write(tmp_path / "train.en", "A dog.\n\nTwo cats.\n")
    (tmp_path / "train.de.gz").write_bytes(gzip.compress(b"Ein Hund.\n\nZwei Katzen.\n"))

    def read(columns: Columns | None = None) -> list[tuple[str, str]]:
        return [(r["text"], r["target"]) for _, r in readers.read_parallel(tmp_path / "train", columns)]

    assert read() == [("A dog.", "Ein Hund."), ("Two cats.", "Zwei Katzen.")]
    assert read({"text": "de"}) == read({"target": "en"}) == [(b, a) for a, b in read()]
    write(tmp_path / "train.fr", "Un chien.\n\nDeux chats.\nTrois.\n")
    assert read({"text": "de", "target": "en"}) == [(b, a) for a, b in read({"text": "en", "target": "de"})]
    for columns, message in (
        (None, r"train is there in de, en, fr; say from which to which by columns="),
        ({"text": "en", "target": "cs"}, "not in 'cs'"),
        ({"text": "en", "target": "fr"}, r"train\.en, line 4: it ends here, but train\.fr goes on"),
    ):
        with pytest.raises(CourseError, match=message):
            read(columns)
    write(tmp_path / "train.en", "A dog.\nA cat.\nTwo cats.\n")
    with pytest.raises(CourseError, match=r"train\.de\.gz, line 2: it is blank, and its translation is not"):
        read({"text": "en", "target": "de"})


def test_stories(tmp_path: Path) -> None:
    story = "It rained.\n\nIt stopped.\n\n@highlight\n\nRain fell\n\n@highlight\n\nthen sun"
    wanted = [{"text": "It rained.\nIt stopped.", "target": "Rain fell\nthen sun"}]
    assert rows(write(tmp_path / "a.story", story)) == wanted


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "sentence\tlabel\nfine\t1\nbroken\n", "line 3: expected 2 columns but found 1"),
        ("a.tsv", "sentence\tlabel\n\t1\n", "line 2: the text is empty"),
        ("a.tsv", "sentence\tlabel\nA.\t\n", "line 2: the label is empty"),
        ("a.tsv", "sentence\tlabel\n", "a header but no rows"),
        ("a.tsv", "index\tsentence1\tsentence2\n0\tA.\tB.\n", "no label .test sets are published without"),
        ("a.tsv", "a\tb\tc\td\te\n", r"its first line has 5: a \| b \| c"),
        ("a.tsv", " \n\n", "is empty"),
        ("a.csv", ",,\n", "is empty"),
        ("a.csv", 'text,label\n"A" b,1\n', "line 2: not a readable table"),
        ("a.csv", 'text,label\nA,1\n"B,1\nC,0\n', "line 4: not a readable table"),
        ("a.tsv", "4.5\tA.\tB.\n5.5\tC.\tD.\n", "line 2: the score 5.5 is outside 0 to 5"),
        ("a.tsv", "sentence1\tsentence2\tscore\nA.\tB.\thigh\n", "line 2: the score 'high' is no number"),
        ("a.conll", "Ann\tB-PER\nran\n", "line 2: expected 2 columns but found 1"),
        ("a.conll", "Ann\nran\n", "line 1: expected 2 columns but found 1"),
        ("a.conll", "-DOCSTART- O\n", "holds no sentences"),
        ("a.conllu", "1\tA\ta\tX\n", "line 1: expected 10 fields with tabs between, found 4"),
        ("a.conllu", conllu("1 A X 0 root", "3 B X 1 dep"), "line 2: expected word 2 of the sentence, not 3"),
        ("a.conllu", "# c\n" + conllu("1 A X 0 root", "2 B X 7 dep"), "line 3: the head '7' is no other word"),
        ("a.conllu", conllu("1 A X 1 root"), "line 1: the head '1' is no other word"),
        ("a.conllu", conllu("1 A X x root"), "line 1: the head 'x' is no other word"),
        ("a.conllu", conllu("1 A X 0 root", "2 B X 0 root"), "line 1: the sentence has 2 roots"),
        ("a.conllu", conllu("a A X 0 root"), "line 1: 'a' is no number of a word"),
        ("a.conllu", "# nothing\n", "holds no sentences"),
        ("a.jsonl", '{"text": "A", "label": 1}\n{"text": "B" "label": 1}\n', "line 2, column 14: not valid JSON"),
        ("a.jsonl", "[1]\n", "line 1: expected a JSON object .* but found list"),
        ("a.jsonl", '{"text": "A", "label": 1}\n{"text": "B"}\n', "line 2: there is no 'label'; it has text"),
        ("a.jsonl", '{"text": "A", "label": [1]}\n', r"line 1: the label is \[1\] instead of a word or a number"),
        ("a.jsonl", '{"text": 5, "label": 1}\n', "line 1: the text, text, is 5 instead of text"),
        ("a.jsonl", '{"a": 5, "b": 1}\n', "line 1: the columns a, b make no task that the course knows"),
        ("a.jsonl", '{"tokens": ["A"], "tags": [0, 1]}\n', "line 1: there are 1 tokens but 2 labels"),
        ("a.jsonl", '{"tokens": "A", "tags": [0]}\n', "line 1: the tokens are 'A' instead of a list of words"),
        ("a.jsonl", '{"text": "A", "choices": ["b"], "label": 0}\n', "line 1: the choices are .'b'. instead of a list"),
        ("a.jsonl", '{"text": "A", "choices": ["b", "c"], "label": 2}\n', "line 1: the label 2 is no choice"),
        ("a.jsonl", '{"text": "A", "choices": ["b", "c"], "label": "x"}\n', "line 1: the label 'x' is no number"),
        ("a.json", '{"data": [{"paragraphs": [{}]}]}', "record 0, paragraph 0: it has no context"),
        ("a.json", '{"data": [{"paragraphs": 3}]}', "record 0: it has no list 'paragraphs'"),
        ("a.json", '{\n"data":\n[}', "line 3, column 2: not valid JSON"),
        ("a.json", "3", "holds int instead of a list of records"),
        ("a.json", "[[1]]", "record 0: expected a JSON object"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.story", "It rained.\n", "has no line @highlight"),
        ("a.story", "@highlight\n\nRain\n", "has no article before its highlights"),
        ("a.story", "It rained.\n@highlight\n", "line 2: no sentence follows @highlight"),
        ("a.story", "It rained.\n@highlight\n@highlight\nRain", "line 2: no sentence follows @highlight"),
        ("a.story", "It rained.\n@highlight\nRain\nMore.\n", "line 4: text after the highlights"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(CourseError, match=rf"{name}.*{message}") as error:
        rows(write(tmp_path / name, content))
    assert "\n" not in str(error.value)


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="There is no file"):
        texts(tmp_path / "none.txt")
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(CourseError, match="is a folder"):
        texts(tmp_path / "a.txt")
    latin = write(tmp_path / "latin.txt", "One\nCafé", "latin-1")
    with pytest.raises(CourseError, match=r"latin\.txt, line 2: not UTF-8 text \(its byte 3 is 0xe9\)"):
        texts(latin)
    with pytest.raises(CourseError, match=r"holds no text beside its licence"):
        texts(write(tmp_path / "b.txt", "*** START OF A ***\n*** END OF A ***\n"))
    assert readers.read_file(write(tmp_path / "c.txt", "A\r\nB")) == "A\nB"
