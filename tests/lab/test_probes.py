"""The sentences of data/probes: one gap each, one right answer, three wrong ones, no sentence
twice.
"""

import csv

from course_lib.files import COURSE


def test_the_knowledge_probe_is_whole() -> None:
    with (COURSE / "data" / "probes" / "knowledge.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows) >= 300 and len({row["sentence"] for row in rows}) == len(rows)
    for row in rows:
        answers = {row[name] for name in ("answer", "wrong_1", "wrong_2", "wrong_3")}
        assert row["sentence"].count("___") == 1 and len(answers) == 4 and all(answers), row
    kinds = {row["kind"] for row in rows}
    assert kinds == {"verb", "preposition", "common sense", "time", "place", "number", "science"}
