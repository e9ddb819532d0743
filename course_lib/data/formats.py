"""The published formats whose columns the course knows. Each is an entry of `FORMATS`.

A record has a format if it has all published columns and no others. Files without a header are
recognised by their published names. For any other file the user must give `columns=`. To add a
format, add an entry here and a test with its real layout.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.data.columns import ANSWERS, OURS, ColumnMap, Record

Cells = list[str]


@dataclass(frozen=True, kw_only=True)
class Format(ColumnMap):
    """A published format: the names of its columns, and its peculiarities.

    Attributes:
        name: the format's name, for messages.
        further: other columns that a file may have; the course does not read them.
        files: a regular expression for the names ("folder/file") of its files without a header.
        column_names: the names that we give to the columns of files without a header.
        prepare: record -> the record with further columns, computed from the published ones.
        repair: mends a line with a wrong number of cells: (cells, column names) -> cells. It
            returns None if the line is left out.
    """

    name: str
    further: Collection[str] = ()
    files: str = ""
    column_names: Sequence[str] = ()
    prepare: Callable[[Record], Record] = dict
    repair: Callable[[Cells, Sequence[str]], Cells | None] | None = None

    def fits(self, names: Collection[str], labelled: bool) -> bool:
        """Whether a record with these columns has this format; a test set may lack its labels."""
        needed = set(self.columns.values())
        if not labelled:
            needed -= {theirs for ours, theirs in self.columns.items() if ours in ANSWERS}
        beside = set(names) - set(self.columns.values()) - {"id", "idx", "index"}
        return needed <= set(names) and beside <= set(self.further)


class Own(Format):
    """A format with the course's own column names. Further columns are ignored."""

    def fits(self, names: Collection[str], labelled: bool) -> bool:
        """Whether the record has these columns of the course and no other columns of the course."""
        needed = set(self.columns)
        present = set(names) & set(OURS)
        return present == needed or (not labelled and present == needed - set(ANSWERS))


def own(*names: str) -> Own:
    """A format whose columns have the course's own names."""
    return Own(name="the course's own", columns={name: name for name in names})


def without_broken_lines(cells: Cells, names: Sequence[str]) -> Cells | None:
    """Leave out the lines of QQP's file that are broken in two."""
    return None


def with_all_annotators(cells: Cells, names: Sequence[str]) -> Cells | None:
    """SNLI in GLUE: the header names one annotator's label, a line may have five of them.

    The gold label is the last cell. In other files of SNLI and MultiNLI a line with fewer than five
    annotators is shorter, so we add empty cells.
    """
    if names[-1] == "gold_label" and len(cells) > len(names):
        return cells[: len(names) - 1] + cells[-1:]
    if names[-1] == "label5" and len(names) - 4 <= len(cells) < len(names):
        return cells + [""] * (len(names) - len(cells))
    raise ValueError


def without_sources(cells: Cells, names: Sequence[str]) -> Cells | None:
    """Cut off the sources of both sentences, which end some lines of the STS benchmark."""
    if len(cells) < len(names):
        raise ValueError
    return cells[: len(names)]


def with_title(record: Record) -> Record:
    """AG News: the text is the title and the description."""
    text = f"{record['Title']} {record['Description']}"
    return {**record, "text": text.strip()}


def with_word(record: Record) -> Record:
    """Word in Context: the first text is the word in question and the first sentence."""
    return {**record, "text": f"{record['word']}: {record['sentence1']}"}


def choices_of(*names: str) -> Callable[[Record], Record]:
    """Collect the choices from columns of their own, such as ending0 to ending3."""
    return lambda record: {**record, "choices": [record[name] for name in names]}


PAIR = {"text": "sentence1", "pair": "sentence2", "label": "label"}
PARSES = ("sentence1_parse", "sentence1_binary_parse", "sentence2_parse", "sentence2_binary_parse")
PARSES_OF_HUB = [
    name.replace("sentence1", "premise").replace("sentence2", "hypothesis") for name in PARSES
]
ANNOTATED = (
    *PARSES,
    *("captionID", "pairID", "promptID", "genre", "annotator_labels"),
    *(f"label{i}" for i in range(1, 6)),
)
STS = ("genre", "filename", "year", "old_index", "score", "sentence1", "sentence2")
ENDINGS = ("ending0", "ending1", "ending2", "ending3")

FORMATS = (
    own("text", "pair", "answers"),
    own("text", "choices", "label"),
    own("tokens", "labels"),
    own("text", "pair", "label"),
    own("text", "label"),
    own("text", "target"),
    # GLUE (Wang et al. 2019): its own tables and the hub's
    Format(
        name="SST-2, CoLA",
        columns={"text": "sentence", "label": "label"},
    ),
    Format(
        name="CoLA without a header",
        columns={"text": "sentence", "label": "label"},
        files=r"(in_domain|out_of_domain)_(train|dev)\.tsv|CoLA/(train|dev)\.tsv",
        column_names=("source", "label", "mark", "sentence"),
        further=("source", "mark"),
        separator="\t",
    ),
    Format(
        name="MRPC",
        columns={"text": "#1 String", "pair": "#2 String", "label": "Quality"},
        further=("#1 ID", "#2 ID"),
    ),
    Format(name="RTE, WNLI, PAWS; MRPC and STS-B of the hub", columns=PAIR),
    Format(
        name="QNLI",
        columns={"text": "question", "pair": "sentence", "label": "label"},
    ),
    Format(
        name="QQP",
        columns={"text": "question1", "pair": "question2", "label": "is_duplicate"},
        further=("qid1", "qid2"),
        repair=without_broken_lines,
    ),
    Format(
        name="QQP of the hub",
        columns={"text": "question1", "pair": "question2", "label": "label"},
    ),
    Format(
        name="STS-B",
        columns={"text": "sentence1", "pair": "sentence2", "label": "score"},
        further=("genre", "filename", "year", "old_index", "source1", "source2"),
        is_score=True,
    ),
    Format(
        name="the STS benchmark",
        columns={"text": "sentence1", "pair": "sentence2", "label": "score"},
        files=r"sts-(train|dev|test)\.csv",
        column_names=STS,
        further=STS,
        separator="\t",
        is_score=True,
        repair=without_sources,
    ),
    Format(
        name="the STS benchmark in several languages",
        columns={"text": "sentence1", "pair": "sentence2", "label": "similarity_score"},
        files=r"stsb-[a-z]{2}-(train|dev|test)\.csv",
        column_names=("sentence1", "sentence2", "similarity_score"),
        separator=",",
        is_score=True,
    ),
    # Natural language inference (Bowman et al. 2015; Williams et al. 2018)
    Format(
        name="SNLI, MultiNLI",
        columns={"text": "sentence1", "pair": "sentence2", "label": "gold_label"},
        further=ANNOTATED,
        no_label=("-",),
        repair=with_all_annotators,
    ),
    Format(
        name="SNLI, MultiNLI, CB and RTE of the hub and of SuperGLUE",
        columns={"text": "premise", "pair": "hypothesis", "label": "label"},
        further=(*PARSES_OF_HUB, "promptID", "pairID", "genre"),
    ),
    # SuperGLUE (Wang et al. 2019)
    Format(
        name="BoolQ of SuperGLUE",
        columns={"text": "question", "pair": "passage", "label": "label"},
    ),
    Format(
        name="BoolQ",
        columns={"text": "question", "pair": "passage", "label": "answer"},
    ),
    Format(
        name="Word in Context",
        columns={"text": "text", "pair": "sentence2", "label": "label"},
        further=("word", "sentence1", "start1", "start2", "end1", "end2", "version"),
        prepare=with_word,
    ),
    # Questions (Rajpurkar et al. 2016, 2018)
    Format(
        name="SQuAD 1.1 and 2",
        columns={"text": "question", "pair": "context", "answers": "answers"},
        further=("title", "is_impossible", "plausible_answers"),
    ),
    # Choices
    Format(
        name="SWAG",
        columns={"text": "startphrase", "choices": "choices", "label": "label"},
        further=("video-id", "fold-ind", "sent1", "sent2", "gold-source", *ENDINGS),
        prepare=choices_of(*ENDINGS),
    ),
    Format(
        name="HellaSwag",
        columns={"text": "ctx", "choices": "endings", "label": "label"},
        further=("ind", "activity_label", "ctx_a", "ctx_b", "source_id", "split", "split_type"),
    ),
    Format(
        name="PIQA",
        columns={"text": "goal", "choices": "choices", "label": "label"},
        further=("sol1", "sol2"),
        prepare=choices_of("sol1", "sol2"),
    ),
    # Tags
    Format(
        name="CoNLL-U",
        columns={"tokens": "tokens", "labels": "labels"},
        further=("text", "upos", "heads", "deprels"),
        no_label=("_",),
    ),
    Format(
        name="CoNLL 2003, WNUT of the hub",
        columns={"tokens": "tokens", "labels": "ner_tags"},
        further=("pos_tags", "chunk_tags"),
    ),
    # Topics
    Format(
        name="AG News",
        columns={"text": "text", "label": "Class Index"},
        further=("Title", "Description"),
        files=r"ag_news_csv/(train|test)\.csv",
        column_names=("Class Index", "Title", "Description"),
        separator=",",
        prepare=with_title,
    ),
    # Summaries and translations
    Format(name="CNN / Daily Mail of the hub", columns={"text": "article", "target": "highlights"}),
    Format(name="XSum", columns={"text": "document", "target": "summary"}),
    Format(
        name="SAMSum, DialogSum",
        columns={"text": "dialogue", "target": "summary"},
        further=("topic",),
    ),
)


def of_columns(record: Record, labelled: bool = True) -> Format | None:
    """The format of a record, or None if it is not a known one.

    Args:
        record: only its column names matter.
        labelled: whether the record must have labels.
    """
    for format in FORMATS:
        try:
            prepared = format.prepare(record)
        except KeyError:  # the columns that it is made of are not there
            continue
        if format.fits(prepared, labelled):
            return format
    return _translation(record)


def of_file(path: Path) -> Format | None:
    """The format of a file without a header, if its name is a published one."""
    for format in FORMATS:
        if format.files and re.search(rf"(?i)(^|/)({format.files})$", path.as_posix()):
            return format
    return None


def _translation(record: Record) -> Format | None:
    """The format of a record with two languages. English is the source if it is one of them."""
    names = list(record)
    if len(names) != 2 or not all(re.fullmatch("[a-z]{2}", name) for name in names):
        return None
    source, target = sorted(names, key=lambda name: (name != "en", name))
    return Format(name="parallel text", columns={"text": source, "target": target})
