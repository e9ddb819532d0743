"""Readers of published file formats. A folder's format is told by the endings of its files (.gz, .bz2, .xz beside).

    format    endings                       rows                                          published so
    text      .txt .tokens .raw .md         text                                          WikiText, Gutenberg, your own
    table     .tsv .csv (.txt by its path)  by header or columns=                         GLUE, STS, word similarity
    json      .json .jsonl .ndjson          by field names or columns=                    SQuAD 1.1 and 2, SuperGLUE
    conll     .conll .bio .iob .iob2        tokens, labels                                CoNLL 2003, WNUT
    conllu    .conllu                       text, tokens, labels, upos, heads, deprels    Universal Dependencies
    stories   .story                        text, target                                  CNN / Daily Mail
    parallel  .en .de ... side by side      text, target                                  Multi30k, WMT
    parquet   .parquet .arrow               by column names or columns=                   the Hugging Face hub

A reader takes one file and yields (where, row); what is wrong in a file is one sentence that says in which line.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from course_lib.data.readers.base import Columns, Placed, Reader, Row, read_file, unpacked
from course_lib.data.readers.columns import read_conll, read_conllu
from course_lib.data.readers.parallel import LANGUAGE, languages, read_parallel
from course_lib.data.readers.records import read_json, read_texts
from course_lib.data.readers.tables import is_number, read_table, read_table_texts
from course_lib.data.readers.text import read_story, read_text

__all__ = [
    "FORMATS",
    "LANGUAGE",
    "Columns",
    "Format",
    "Row",
    "is_number",
    "languages",
    "read_conll",
    "read_conllu",
    "read_file",
    "read_json",
    "read_parallel",
    "read_story",
    "read_table",
    "read_table_texts",
    "read_text",
    "read_texts",
    "rows",
    "unpacked",
]


@dataclass(frozen=True)
class Format:
    """A published format. many: any number of its files make one split, as books do.

    task, corpus: the reader for each of the two doors; None where the format is none for it.
    """

    name: str
    endings: tuple[str, ...]
    task: Reader | None = None
    corpus: Reader | None = None
    many: bool = field(default=False)


FORMATS = {
    format.name: format
    for format in (
        Format("text", (".txt", ".tokens", ".raw", ".md"), None, read_text, many=True),
        Format("table", (".tsv", ".csv"), read_table, read_table_texts),
        Format("json", (".json", ".jsonl", ".ndjson"), read_json, read_texts),
        Format("conll", (".conll", ".bio", ".iob", ".iob2"), read_conll),
        Format("conllu", (".conllu",), read_conllu),
        Format("stories", (".story",), read_story, read_story, many=True),
        Format("parallel", (), read_parallel),
        Format("parquet", (".parquet", ".arrow")),  # read by `datasets` itself
    )
}


def rows(format: str, door: str, files: list[str], columns: Columns | None = None) -> Iterator[Placed]:
    """The rows of several files, one after the other; places name the file."""
    reader: Reader = getattr(FORMATS[format], door)
    for file in files:
        for place, row in reader(Path(file), columns):
            yield f"{file}, {place}", row
